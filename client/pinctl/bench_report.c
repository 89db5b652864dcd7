/*
 * Prints the result of a bench run.
 */
#include "bench_report.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "json.h"
#include "table.h"

#define CHECKSUM_MAX 17

static bool has_checksum(const struct bench_result *result, const struct bench_options *options)
{
    return options->checksum && !result->interrupted;
}

static const char *format_checksum(uint64_t checksum, char *text)
{
    snprintf(text, CHECKSUM_MAX, "%016" PRIx64, checksum);
    return text;
}

int bench_report_text(const struct bench_result *result, const struct bench_options *options,
                      const struct bench_job *jobs, FILE *out)
{
    static const struct table_column columns[] = {{"NAME"}, {"VALUE"}};
    bool images = options->image && strcmp(options->image, "none") != 0;
    char text[CHECKSUM_MAX];
    struct table *table = table_new(columns, 2, false);
    if (!table)
        return -ENOMEM;

    table_pair(table, "batches", "%" PRIu64 " of %" PRIu32 ", %" PRIu64 " samples in %.3f s%s",
               result->batches, options->batch, result->samples, result->seconds,
               result->interrupted ? ", interrupted" : "");
    table_pair(table, "rate", "%.1f %s, %.3f GB/s", result->samples_per_s,
               images ? "img/s" : "samples/s", result->gb_per_s);
    table_pair(table, "first batch", "%.1f ms", result->first_batch_ms);
    table_pair(table, "wait", "p50 %.1f us, p99 %.1f us, max %.1f us, mean %.1f us",
               result->wait_us.p50, result->wait_us.p99, result->wait_us.max, result->wait_us.mean);
    table_pair(table, "a sample", "read %.1f us, decode %.1f us", result->stages.read,
               result->stages.decode);
    table_pair(table, "a batch", "slot wait %.1f us, copy %.1f us, hold %.1f us",
               result->stages.slot_wait, result->stages.copy, result->stages.hold);
    table_pair(table, "delivery", "%s%s%s", result->delivery, *result->delivery_why ? ": " : "",
               result->delivery_why);
    for (uint32_t i = 0; has_checksum(result, options) && i < options->jobs; i++)
        table_pair(table, "checksum", "%s", format_checksum(jobs[i].checksum, text));
    int rc = table_print(table, out);
    table_free(table);
    return rc;
}

static void json_checksum(struct json *json, const struct bench_result *result,
                          const struct bench_options *options, const struct bench_job *jobs)
{
    char text[CHECKSUM_MAX];

    if (!has_checksum(result, options)) {
        json_null(json, "checksum");
        return;
    }
    if (!bench_options_given(options, "jobs")) {
        json_string(json, "checksum", format_checksum(jobs[0].checksum, text));
        return;
    }
    json_array_begin(json, "checksum");
    for (uint32_t i = 0; i < options->jobs; i++)
        json_string(json, NULL, format_checksum(jobs[i].checksum, text));
    json_array_end(json);
}

void bench_report_json(const struct bench_result *result, const struct bench_options *options,
                       const struct bench_job *jobs, FILE *out)
{
    struct json json;

    json_init(&json, out, false);
    json_object_begin(&json, NULL);
    json_unsigned(&json, "samples", result->samples);
    json_unsigned(&json, "batches", result->batches);
    json_unsigned(&json, "bytes", result->bytes);
    json_real(&json, "seconds", result->seconds);
    json_real(&json, "samples_per_s", result->samples_per_s);
    json_real(&json, "gb_per_s", result->gb_per_s);
    json_real(&json, "first_batch_ms", result->first_batch_ms);
    json_object_begin(&json, "wait_us");
    json_real(&json, "mean", result->wait_us.mean);
    json_real(&json, "p50", result->wait_us.p50);
    json_real(&json, "p99", result->wait_us.p99);
    json_real(&json, "max", result->wait_us.max);
    json_object_end(&json);
    json_object_begin(&json, "stages_us");
    json_real(&json, "read", result->stages.read);
    json_real(&json, "decode", result->stages.decode);
    json_real(&json, "slot_wait", result->stages.slot_wait);
    json_real(&json, "copy", result->stages.copy);
    json_real(&json, "hold", result->stages.hold);
    json_object_end(&json);
    json_string(&json, "delivery", result->delivery);
    json_checksum(&json, result, options, jobs);
    if (result->interrupted)
        json_bool(&json, "interrupted", true);
    json_object_end(&json);
}
