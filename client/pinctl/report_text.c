/*
 * Reports as tables: what an operator asks first stands left, free text last, where a narrow
 * terminal may cut it.
 */
#include "report_text.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdbool.h>
#include <string.h>

#include "proto/cleanup.h"
#include "proto/units.h"
#include "report_json.h"
#include "table.h"

#define BYTES_MAX 32
#define DEVICE_MAX 13 /* "GPU-" and the UUID's first group */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void free_table(struct table **table)
{
    table_free(*table);
}
#define cleanup_table cleanup(free_table)

struct stages_us stages_mean(const Pinserve__Stages *stages, const Pinserve__Stages *before)
{
    static const Pinserve__Stages zero = PINSERVE__STAGES__INIT;
    if (!stages)
        stages = &zero;
    if (!before)
        before = &zero;
    double samples = (double)(stages->samples - before->samples) * 1e3;
    double batches = (double)(stages->batches - before->batches) * 1e3;
    struct stages_us mean = {.read = 0};
    if (samples > 0) {
        mean.read = (double)(stages->read_ns - before->read_ns) / samples;
        mean.decode = (double)(stages->decode_ns - before->decode_ns) / samples;
    }
    if (batches > 0) {
        mean.slot_wait = (double)(stages->slot_wait_ns - before->slot_wait_ns) / batches;
        mean.copy = (double)(stages->copy_ns - before->copy_ns) / batches;
        mean.hold = (double)(stages->hold_ns - before->hold_ns) / batches;
    }
    return mean;
}

const char *format_device(const char *device, char *text, size_t size)
{
    bool uuid = strncmp(device, "GPU-", 4) == 0;
    snprintf(text, uuid && size > DEVICE_MAX ? DEVICE_MAX : size, "%s", device);
    return text;
}

const char *format_uptime(uint64_t nanoseconds, char *text, size_t size)
{
    uint64_t seconds = nanoseconds / 1000000000;
    uint64_t days = seconds / 86400;
    size_t n = 0;

    if (days > 0)
        n = (size_t)snprintf(text, size, "%" PRIu64 " d ", days);
    if (n < size)
        snprintf(text + n, size - n, "%02u:%02u:%02u", (unsigned)(seconds / 3600 % 24),
                 (unsigned)(seconds / 60 % 60), (unsigned)(seconds % 60));
    return text;
}

static void cell_bytes(struct table *table, uint64_t bytes)
{
    char text[BYTES_MAX];
    table_cell(table, "%s", units_format_bytes(bytes, text, sizeof(text)));
}

static void cell_node(struct table *table, int32_t node)
{
    if (node < 0)
        table_cell(table, "-");
    else
        table_cell(table, "%" PRId32, node);
}

static void cell_device(struct table *table, const char *device)
{
    char text[DEVICE_MAX + 1];
    table_cell(table, "%s", format_device(device, text, sizeof(text)));
}

static int print_status(const Pinserve__StatusReport *status, FILE *out)
{
    static const struct table_column columns[] = {{"NAME"}, {"VALUE"}};
    char text[BYTES_MAX], more[BYTES_MAX];
    cleanup_table struct table *table = table_new(columns, COUNT(columns), false);

    if (!table)
        return -ENOMEM;
    table_pair(table, "version", "%s", status->version);
    table_pair(table, "pid", "%" PRIu64, status->pid);
    table_pair(table, "up", "%s", format_uptime(status->uptime_ns, text, sizeof(text)));
    table_pair(table, "socket", "%s", status->socket);
    table_pair(table, "peers", "%" PRIu32, status->peers);
    table_pair(table, "jobs", "%" PRIu32, status->jobs);
    table_pair(table, "workers", "%" PRIu32, status->workers);
    table_pair(table, "pinned", "%s of %s",
               units_format_bytes(status->pinned_bytes, text, sizeof(text)),
               units_format_bytes(status->pinned_max, more, sizeof(more)));
    table_pair(table, "on devices", "%s",
               units_format_bytes(status->device_bytes, text, sizeof(text)));
    for (size_t i = 0; i < status->n_warnings; i++)
        table_pair(table, "warning", "%s", status->warnings[i]);
    return table_print(table, out);
}

static int print_stats(const Pinserve__StatsReport *stats, FILE *out)
{
    static const struct table_column columns[] = {{"NAME"}, {"VALUE"}};
    char text[BYTES_MAX];
    struct stages_us mean = stages_mean(stats->stages, NULL);
    cleanup_table struct table *table = table_new(columns, COUNT(columns), false);

    if (!table)
        return -ENOMEM;
    table_pair(table, "up", "%s", format_uptime(stats->uptime_ns, text, sizeof(text)));
    table_pair(table, "samples", "%" PRIu64, stats->stages ? stats->stages->samples : 0);
    table_pair(table, "batches", "%" PRIu64, stats->stages ? stats->stages->batches : 0);
    table_pair(table, "delivered", "%s", units_format_bytes(stats->bytes, text, sizeof(text)));
    table_pair(table, "read", "%.1f us a sample", mean.read);
    table_pair(table, "decode", "%.1f us a sample", mean.decode);
    table_pair(table, "slot wait", "%.1f us a batch", mean.slot_wait);
    table_pair(table, "copy", "%.1f us a batch", mean.copy);
    table_pair(table, "hold", "%.1f us a batch", mean.hold);
    table_pair(table, "bad samples", "%" PRIu64, stats->bad);
    table_pair(table, "JPEGs without end", "%" PRIu64, stats->without_end);
    table_pair(table, "plain CMYK", "%" PRIu64, stats->plain_inks);
    table_pair(table, "jobs opened", "%" PRIu64, stats->jobs_opened);
    table_pair(table, "jobs failed", "%" PRIu64, stats->jobs_failed);
    table_pair(table, "peers seen", "%" PRIu64, stats->peers_seen);
    table_pair(table, "peers dropped", "%" PRIu64, stats->peers_dropped);
    table_pair(table, "device restarts", "%" PRIu64, stats->device_restarts);
    return table_print(table, out);
}

/* "5 x16", with what it could be in brackets where it is not that. */
static void cell_link(struct table *table, const Pinserve__DeviceReport *device)
{
    if (!device->link_generation || !device->link_width)
        table_cell(table, "-");
    else if (device->link_generation < device->link_generation_max ||
             device->link_width < device->link_width_max)
        table_cell(table, "%" PRIu32 " x%" PRIu32 " (%" PRIu32 " x%" PRIu32 ")",
                   device->link_generation, device->link_width, device->link_generation_max,
                   device->link_width_max);
    else
        table_cell(table, "%" PRIu32 " x%" PRIu32, device->link_generation, device->link_width);
}

/* "3 (fd 2, copy 1)"; jobs that are opening have no delivery yet. */
static void cell_jobs(struct table *table, const Pinserve__DeviceReport *device)
{
    char text[128] = "", word[16];
    size_t size = 0;

    for (size_t i = 0; i < device->n_deliveries && size < sizeof(text); i++)
        size +=
            (size_t)snprintf(text + size, sizeof(text) - size, "%s%s %" PRIu32, i ? ", " : " (",
                             report_word(&pinserve__delivery__descriptor,
                                         (int)device->deliveries[i]->delivery, word, sizeof(word)),
                             device->deliveries[i]->jobs);
    table_cell(table, "%" PRIu32 "%s%s", device->jobs, text, *text ? ")" : "");
}

static int print_devices(const struct report *report, FILE *out)
{
    static const struct table_column columns[] = {
        {"DEVICE"},      {"NAME"},           {"PCI"},          {"LINK"},
        {"NODE", true},  {"WORKERS", true},  {"JOBS"},         {"POOL", true},
        {"RINGS", true}, {"GATHER", true},   {"COPIED", true}, {"RATE", true},
        {"PROCESS"},     {"RESTARTS", true}, {"STATE"},        {"PLACEMENT", false, true},
    };
    cleanup_table struct table *table = table_new(columns, COUNT(columns), true);

    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < report->n_rows; i++) {
        const Pinserve__DeviceReport *device = (const Pinserve__DeviceReport *)report->rows[i];
        table_row(table);
        table_cell(table, "%s", device->uuid);
        table_cell(table, "%s", device->name);
        table_cell(table, "%s", device->pci);
        cell_link(table, device);
        cell_node(table, device->numa_node);
        table_cell(table, "%" PRIu32, device->workers);
        cell_jobs(table, device);
        cell_bytes(table, device->pool_bytes);
        cell_bytes(table, device->ring_bytes);
        cell_bytes(table, device->gathered_bytes);
        cell_bytes(table, device->copied_bytes);
        table_cell(table, "%.2f GB/s", (double)device->copy_rate / 1e9);
        table_cell(table, "%s", device->process ? "up" : "-");
        table_cell(table, "%" PRIu32, device->restarts);
        table_cell(table, "%s", *device->state ? device->state : "-");
        table_cell(table, "%s", device->placement);
    }
    return table_print(table, out);
}

/* Cut, not rounded: 100 % is written only when it is all of them. */
static void cell_share(struct table *table, uint64_t part, uint64_t whole)
{
    if (whole == 0) {
        table_cell(table, "-");
        return;
    }
    uint64_t permille = (uint64_t)((__uint128_t)part * 1000 / whole);
    table_cell(table, "%" PRIu64 ".%" PRIu64 " %%", permille / 10, permille % 10);
}

static int print_pools(const struct report *report, FILE *out)
{
    static const struct table_column columns[] = {
        {"DEVICE"},      {"NODE", true},           {"REGIONS", true}, {"BYTES", true},
        {"SLOTS", true}, {"USED", true},           {"LOCKED", true},  {"LINGERING", true},
        {"LOCAL", true}, {"BINDING", false, true},
    };
    cleanup_table struct table *table = table_new(columns, COUNT(columns), true);

    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < report->n_rows; i++) {
        const Pinserve__PoolReport *pool = (const Pinserve__PoolReport *)report->rows[i];
        table_row(table);
        cell_device(table, pool->device);
        cell_node(table, pool->numa_node);
        table_cell(table, "%" PRIu32, pool->regions);
        cell_bytes(table, pool->bytes);
        table_cell(table, "%" PRIu32, pool->slots);
        cell_bytes(table, pool->used_bytes);
        cell_bytes(table, pool->locked_bytes);
        cell_bytes(table, pool->lingering_bytes);
        cell_share(table, pool->pages_local, pool->pages);
        table_cell(table, "%s", pool->binding);
    }
    return table_print(table, out);
}

static void cell_user(struct table *table, uint64_t uid)
{
    const struct passwd *user = getpwuid((uid_t)uid);
    if (user)
        table_cell(table, "%s", user->pw_name);
    else
        table_cell(table, "%" PRIu64, uid);
}

static int print_jobs(const struct report *report, FILE *out)
{
    static const struct table_column columns[] = {
        {"JOB", true},
        {"NAME"},
        {"PID", true},
        {"USER"},
        {"DEVICE"},
        {"DELIVERY"},
        {"STATE"},
        {"EPOCH", true},
        {"STEP", true},
        {"READY", true},
        {"LEASED", true},
        {"STARVED", true},
        {"SHARED", true},
        {"BAD", true},
        {"SOURCE", false, true},
        {"ERROR", false, true},
    };
    char word[16];
    cleanup_table struct table *table = table_new(columns, COUNT(columns), true);

    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < report->n_rows; i++) {
        const Pinserve__JobReport *job = (const Pinserve__JobReport *)report->rows[i];
        table_row(table);
        table_cell(table, "%" PRIu64, job->job);
        table_cell(table, "%s", job->name);
        table_cell(table, "%" PRIu64, job->pid);
        cell_user(table, job->uid);
        cell_device(table, job->device);
        table_cell(
            table, "%s",
            report_word(&pinserve__delivery__descriptor, (int)job->delivery, word, sizeof(word)));
        table_cell(table, "%s", job->state);
        table_cell(table, "%" PRIu64, job->epoch);
        table_cell(table, "%" PRIu64 "/%" PRIu64, job->step, job->steps);
        table_cell(table, "%" PRIu32 "/%" PRIu32, job->ready, job->depth);
        table_cell(table, "%" PRIu32, job->leased);
        table_cell(table, "%" PRIu64, job->starved);
        table_cell(table, "%" PRIu64, job->shared);
        table_cell(table, "%" PRIu64, job->bad);
        table_cell(table, "%s", job->source);
        table_cell(table, "%s", job->error);
    }
    return table_print(table, out);
}

static int print_bad(const struct report *report, FILE *out)
{
    static const struct table_column columns[] = {
        {"SAMPLE", true}, {"NAME"}, {"REASON", false, true}};
    cleanup_table struct table *table = table_new(columns, COUNT(columns), true);

    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < report->n_rows; i++) {
        const Pinserve__BadSample *bad = (const Pinserve__BadSample *)report->rows[i];
        table_row(table);
        table_cell(table, "%" PRIu64, bad->sample);
        table_cell(table, "%s", bad->name);
        table_cell(table, "%s", bad->reason);
    }
    return table_print(table, out);
}

int report_text(const struct report *report, FILE *out)
{
    switch (report->kind) {
    case PINSERVE__QUERY_KIND__QUERY_STATUS:
        return print_status((const Pinserve__StatusReport *)report->rows[0], out);
    case PINSERVE__QUERY_KIND__QUERY_DEVICES:
        return print_devices(report, out);
    case PINSERVE__QUERY_KIND__QUERY_POOLS:
        return print_pools(report, out);
    case PINSERVE__QUERY_KIND__QUERY_JOBS:
        return print_jobs(report, out);
    case PINSERVE__QUERY_KIND__QUERY_BAD:
        return print_bad(report, out);
    default:
        return print_stats((const Pinserve__StatsReport *)report->rows[0], out);
    }
}
