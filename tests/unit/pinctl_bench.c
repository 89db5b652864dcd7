/*
 * What a bench run sums up to and how it is printed, from jobs whose counts are made here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/pinctl/bench_report.h"

#define MS UINT64_C(1000000)

static struct bench_job *jobs;

/* Two jobs: 11 batches of 10 samples from 1.0 to 2.0 s, and 5 from 1.5 to 2.5 s. */
static int make_jobs(void **state)
{
    (void)state;
    jobs = calloc(2, sizeof(*jobs));
    if (!jobs)
        return -1;
    jobs[0].counts = (struct bench_counts){.samples = 110,
                                           .batches = 11,
                                           .bytes = 110 * 1000000,
                                           .first_samples = 10,
                                           .first_bytes = 10 * 1000000,
                                           .start_ns = 800 * MS,
                                           .first_ns = 1000 * MS,
                                           .last_ns = 2000 * MS};
    jobs[1].counts = (struct bench_counts){.samples = 50,
                                           .batches = 5,
                                           .bytes = 50 * 1000000,
                                           .first_samples = 10,
                                           .first_bytes = 10 * 1000000,
                                           .start_ns = 800 * MS,
                                           .first_ns = 1500 * MS,
                                           .last_ns = 2500 * MS};
    for (uint64_t i = 1; i <= 10; i++)
        histogram_add(&jobs[0].wait, i * 10);
    for (uint64_t i = 1; i <= 4; i++)
        histogram_add(&jobs[1].wait, 200);
    jobs[0].checksum = 0xabc;
    jobs[1].checksum = UINT64_MAX;
    return 0;
}

static int free_jobs(void **state)
{
    (void)state;
    free(jobs);
    return 0;
}

static void test_rate_leaves_out_the_first_batch(void **state)
{
    (void)state;
    struct bench_result result;
    assert_int_equal(bench_summarise(jobs, 1, &result), 0);
    assert_int_equal(result.samples, 110);
    assert_int_equal(result.batches, 11);
    assert_int_equal(result.bytes, 110000000);
    assert_true(result.seconds == 1);
    assert_true(result.samples_per_s == 100);
    assert_true(result.gb_per_s == 0.1);
    assert_true(result.first_batch_ms == 200);
    assert_true(result.wait_us.p50 == 0.05);
    assert_true(result.wait_us.max == 0.1);
    assert_true(result.wait_us.mean == 0.055);
    assert_false(result.interrupted);
}

static void test_jobs_are_summed(void **state)
{
    (void)state;
    struct bench_result result;
    jobs[1].stopped = true;
    assert_int_equal(bench_summarise(jobs, 2, &result), 0);
    assert_int_equal(result.samples, 160);
    assert_int_equal(result.batches, 16);
    assert_true(result.seconds == 1.5);
    assert_true(result.samples_per_s == 100);
    assert_true(result.first_batch_ms == 700);
    assert_true(result.wait_us.p99 == 0.2);
    assert_true(result.interrupted);
}

static void test_one_batch_has_no_rate(void **state)
{
    (void)state;
    struct bench_result result;
    jobs[0].counts.batches = 1;
    jobs[0].counts.samples = 10;
    jobs[0].counts.last_ns = jobs[0].counts.first_ns;
    assert_int_equal(bench_summarise(jobs, 1, &result), 0);
    assert_true(result.seconds == 0);
    assert_true(result.samples_per_s == 0);
    assert_true(result.gb_per_s == 0);
}

static void test_no_batch_at_all(void **state)
{
    (void)state;
    struct bench_result result;
    memset(jobs, 0, 2 * sizeof(*jobs));
    assert_int_equal(bench_summarise(jobs, 2, &result), 0);
    assert_int_equal(result.samples, 0);
    assert_true(result.seconds == 0);
    assert_true(result.wait_us.p50 == 0);
}

static char *as_json(const struct bench_result *result, const struct bench_options *options)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    bench_report_json(result, options, jobs, out);
    fclose(out);
    return text;
}

static void test_json(void **state)
{
    (void)state;
    struct bench_result result;
    struct bench_options options;
    bench_options_init(&options);
    assert_int_equal(bench_summarise(jobs, 1, &result), 0);
    strcpy(result.delivery, "host");
    result.stages.decode = 12.5;
    char *text = as_json(&result, &options);
    assert_string_equal(text, "{\n"
                              "  \"samples\": 110,\n"
                              "  \"batches\": 11,\n"
                              "  \"bytes\": 110000000,\n"
                              "  \"seconds\": 1,\n"
                              "  \"samples_per_s\": 100,\n"
                              "  \"gb_per_s\": 0.1,\n"
                              "  \"first_batch_ms\": 200,\n"
                              "  \"wait_us\": {\n"
                              "    \"mean\": 0.055,\n"
                              "    \"p50\": 0.05,\n"
                              "    \"p99\": 0.1,\n"
                              "    \"max\": 0.1\n"
                              "  },\n"
                              "  \"stages_us\": {\n"
                              "    \"read\": 0,\n"
                              "    \"decode\": 12.5,\n"
                              "    \"slot_wait\": 0,\n"
                              "    \"copy\": 0,\n"
                              "    \"hold\": 0\n"
                              "  },\n"
                              "  \"delivery\": \"host\",\n"
                              "  \"checksum\": null\n"
                              "}\n");
    free(text);
}

static void set_option(struct bench_options *options, const char *name, const char *value)
{
    struct failure failure;
    for (size_t i = 0; i < bench_options_count; i++) {
        if (strcmp(bench_options_table[i].name, name) == 0)
            assert_int_equal(bench_options_set(options, i, value, &failure), 0);
    }
}

static void test_checksums(void **state)
{
    (void)state;
    struct bench_result result;
    struct bench_options options;
    bench_options_init(&options);
    assert_int_equal(bench_summarise(jobs, 2, &result), 0);
    set_option(&options, "checksum", NULL);
    char *text = as_json(&result, &options);
    assert_non_null(strstr(text, "\"checksum\": \"0000000000000abc\"\n}\n"));
    free(text);

    set_option(&options, "jobs", "2");
    text = as_json(&result, &options);
    assert_non_null(strstr(text, "\"checksum\": [\n    \"0000000000000abc\",\n"
                                 "    \"ffffffffffffffff\"\n  ]\n}\n"));
    free(text);

    /* Cut short: what came is not what was asked for. */
    result.interrupted = true;
    text = as_json(&result, &options);
    assert_non_null(strstr(text, "\"checksum\": null,\n  \"interrupted\": true\n}\n"));
    free(text);
}

static void test_text(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    struct bench_result result;
    struct bench_options options;
    bench_options_init(&options);
    options.batch = 10;
    options.image = "random-crop:224";
    options.checksum = true;
    assert_int_equal(bench_summarise(jobs, 1, &result), 0);
    strcpy(result.delivery, "ipc");
    strcpy(result.delivery_why, "fd: not supported");
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(bench_report_text(&result, &options, jobs, out), 0);
    fclose(out);
    assert_non_null(strstr(text, "100.0 img/s, 0.100 GB/s\n"));
    assert_non_null(strstr(text, "ipc: fd: not supported\n"));
    assert_non_null(strstr(text, "checksum    0000000000000abc\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rate_leaves_out_the_first_batch, make_jobs, free_jobs),
        cmocka_unit_test_setup_teardown(test_jobs_are_summed, make_jobs, free_jobs),
        cmocka_unit_test_setup_teardown(test_one_batch_has_no_rate, make_jobs, free_jobs),
        cmocka_unit_test_setup_teardown(test_no_batch_at_all, make_jobs, free_jobs),
        cmocka_unit_test_setup_teardown(test_json, make_jobs, free_jobs),
        cmocka_unit_test_setup_teardown(test_checksums, make_jobs, free_jobs),
        cmocka_unit_test_setup_teardown(test_text, make_jobs, free_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
