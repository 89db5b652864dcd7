/*
 * Reports for people and as JSON, and the rates of stats --watch, from reports made here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/pinctl/report_json.h"
#include "client/pinctl/report_text.h"
#include "client/pinctl/stats.h"

#define UUID "GPU-01234567-89ab-cdef-0123-456789abcdef"

/* A report of rows that live elsewhere. */
static struct report report_of(Pinserve__QueryKind kind, ProtobufCMessage **rows, size_t n)
{
    return (struct report){.kind = kind, .rows = rows, .n_rows = n};
}

static char *as_json(const struct report *report)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    report_json(report, out);
    fclose(out);
    return text;
}

static char *as_text(const struct report *report)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(report_text(report, out), 0);
    fclose(out);
    return text;
}

#define assert_contains(text, part) assert_non_null(strstr(text, part))
#define assert_begins(text, part) assert_ptr_equal(strstr(text, part), text)

static Pinserve__JobReport job_report(Pinserve__Stages *stages)
{
    Pinserve__JobReport job = PINSERVE__JOB_REPORT__INIT;
    *stages = (Pinserve__Stages)PINSERVE__STAGES__INIT;
    stages->samples = 10;
    stages->batches = 5;
    stages->read_ns = 50000;
    stages->decode_ns = 1000000;
    stages->hold_ns = 10000;
    job.job = 42;
    job.name = "train \"a\"";
    job.state = "running";
    job.pid = 1234;
    job.uid = 4294967000;
    job.device = UUID;
    job.delivery = PINSERVE__DELIVERY__DELIVERY_FD;
    job.delivery_why = "first rung";
    job.source = "folder:/data";
    job.error = "";
    job.tenant = "u0";
    job.pipeline = "none";
    job.batch = 8;
    job.depth = 4;
    job.ready = 3;
    job.leased = 1;
    job.epoch = 2;
    job.step = 7;
    job.steps = 100;
    job.delivered = 5;
    job.starved = 6;
    job.bad = 9;
    job.stages = stages;
    return job;
}

static void test_jobs_json(void **state)
{
    (void)state;
    Pinserve__Stages stages;
    Pinserve__JobReport job = job_report(&stages);
    ProtobufCMessage *rows[] = {&job.base};
    struct report report = report_of(PINSERVE__QUERY_KIND__QUERY_JOBS, rows, 1);
    char *text = as_json(&report);
    assert_begins(text, "{\n  \"jobs\": [\n    {\n      \"job\": 42,\n");
    assert_contains(text, "\"name\": \"train \\\"a\\\"\",");
    assert_contains(text, "\"uid\": 4294967000,");
    assert_contains(text, "\"device\": \"" UUID "\",");
    assert_contains(text, "\"delivery\": \"fd\",");
    assert_contains(text, "\"delivery_why\": \"first rung\",");
    assert_contains(text, "\"stages\": {\n        \"samples\": 10,\n        \"batches\": 5,");
    free(text);
}

static void test_empty_lists(void **state)
{
    (void)state;
    static const struct {
        Pinserve__QueryKind kind;
        const char *json;
    } cases[] = {
        {PINSERVE__QUERY_KIND__QUERY_JOBS, "{\n  \"jobs\": []\n}\n"},
        {PINSERVE__QUERY_KIND__QUERY_POOLS, "{\n  \"pools\": []\n}\n"},
        {PINSERVE__QUERY_KIND__QUERY_DEVICES, "{\n  \"devices\": []\n}\n"},
        {PINSERVE__QUERY_KIND__QUERY_BAD, "{\n  \"bad\": []\n}\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct report report = report_of(cases[i].kind, NULL, 0);
        char *text = as_json(&report);
        assert_string_equal(text, cases[i].json);
        free(text);
        free(as_text(&report));
    }
}

static void test_bad_samples(void **state)
{
    (void)state;
    Pinserve__BadSample bad = PINSERVE__BAD_SAMPLE__INIT;
    bad.sample = 17;
    bad.name = "s-0.tar:a/17.jpg@10752";
    bad.reason = "s-0.tar: a/17.jpg at 10752 is empty";
    ProtobufCMessage *rows[] = {&bad.base};
    struct report report = report_of(PINSERVE__QUERY_KIND__QUERY_BAD, rows, 1);
    char *text = as_json(&report);
    assert_contains(text, "\"sample\": 17,");
    assert_contains(text, "\"name\": \"s-0.tar:a/17.jpg@10752\",");
    assert_contains(text, "\"reason\": \"s-0.tar: a/17.jpg at 10752 is empty\"");
    free(text);
    text = as_text(&report);
    assert_contains(text, "17 s-0.tar:a/17.jpg@10752 s-0.tar: a/17.jpg at 10752 is empty");
    free(text);
}

static void test_jobs_text(void **state)
{
    (void)state;
    Pinserve__Stages stages;
    Pinserve__JobReport job = job_report(&stages);
    ProtobufCMessage *rows[] = {&job.base};
    struct report report = report_of(PINSERVE__QUERY_KIND__QUERY_JOBS, rows, 1);
    char *text = as_text(&report);
    assert_contains(text, "42 train \"a\" 1234 4294967000 GPU-01234567 fd ");
    assert_contains(text, " running ");
    assert_contains(text, " 7/100 ");
    assert_contains(text, " 3/4 ");
    assert_contains(text, " 9 folder:/data");
    free(text);
}

static void test_pools(void **state)
{
    (void)state;
    Pinserve__PoolReport pool = PINSERVE__POOL_REPORT__INIT, empty = PINSERVE__POOL_REPORT__INIT;
    ProtobufCMessage *rows[] = {&pool.base, &empty.base};
    pool.device = "host";
    pool.numa_node = 1;
    pool.regions = 2;
    pool.bytes = 128 << 20;
    pool.pages = 100000;
    pool.pages_local = 99999;
    pool.binding = "bound";
    empty.device = UUID;
    empty.numa_node = -1;
    empty.binding = "unbound: mbind is not permitted";
    struct report report = report_of(PINSERVE__QUERY_KIND__QUERY_POOLS, rows, 2);
    char *text = as_text(&report);
    assert_contains(text, " 99.9 % bound\n"); /* not 100 %: a page is elsewhere */
    assert_contains(text, "128 MiB");
    assert_contains(text, "- unbound: mbind is not permitted\n");
    free(text);
    text = as_json(&report);
    assert_contains(text, "\"numa_node\": -1,");
    assert_contains(text, "\"pages_local\": 99999,");
    free(text);
}

static void test_status_is_one_object(void **state)
{
    (void)state;
    static char *warnings[] = {"one", "two\033[1m"};
    Pinserve__StatusReport status = PINSERVE__STATUS_REPORT__INIT;
    ProtobufCMessage *rows[] = {&status.base};
    status.version = "0.1.0";
    status.socket = "/run/s";
    status.pid = 99;
    status.uptime_ns = UINT64_C(93784) * 1000000000;
    status.pinned_bytes = 1 << 30;
    status.pinned_max = UINT64_C(4) << 30;
    status.warnings = warnings;
    status.n_warnings = 2;
    struct report report = report_of(PINSERVE__QUERY_KIND__QUERY_STATUS, rows, 1);
    char *text = as_json(&report);
    assert_begins(text, "{\n  \"version\": \"0.1.0\",\n");
    assert_contains(text, "\"warnings\": [\n    \"one\",\n    \"two\\u001b[1m\"\n  ]\n}\n");
    free(text);
    text = as_text(&report);
    assert_contains(text, "up         1 d 02:03:04\n");
    assert_contains(text, "1 GiB of 4 GiB\n");
    assert_contains(text, "warning    one\n");
    assert_null(strchr(text, '\033'));
    free(text);
}

static void test_devices(void **state)
{
    (void)state;
    Pinserve__DeviceReport device = PINSERVE__DEVICE_REPORT__INIT;
    ProtobufCMessage *rows[] = {&device.base};
    device.uuid = UUID;
    device.name = "A GPU";
    device.pci = "0000:01:00.0";
    device.placement = "nearest";
    device.process = true;
    device.jobs = 3;
    Pinserve__DeliveryCount fd = PINSERVE__DELIVERY_COUNT__INIT;
    Pinserve__DeliveryCount copy = PINSERVE__DELIVERY_COUNT__INIT;
    Pinserve__DeliveryCount *deliveries[] = {&fd, &copy};
    fd.delivery = PINSERVE__DELIVERY__DELIVERY_FD;
    fd.jobs = 2;
    copy.delivery = PINSERVE__DELIVERY__DELIVERY_COPY;
    copy.jobs = 1;
    device.deliveries = deliveries;
    device.n_deliveries = 2;
    device.link_generation = 1;
    device.link_width = 8;
    device.link_generation_max = 5;
    device.link_width_max = 16;
    device.gathered_bytes = UINT64_C(3) << 20;
    device.copy_rate = 54000000000;
    struct report report = report_of(PINSERVE__QUERY_KIND__QUERY_DEVICES, rows, 1);
    char *text = as_text(&report);
    assert_contains(text, UUID " A GPU 0000:01:00.0");
    assert_contains(text, " up ");
    assert_contains(text, " 1 x8 (5 x16) ");
    assert_contains(text, " 3 (fd 2, copy 1) ");
    assert_contains(text, " 3 MiB ");
    assert_contains(text, " 54.00 GB/s ");
    free(text);
    text = as_json(&report);
    assert_contains(text, "\"process\": true,");
    assert_contains(text, "\"link_generation_max\": 5,");
    assert_contains(text, "\"delivery\": \"copy\",");
    free(text);
    device.link_generation = 5;
    device.link_width = 16;
    device.n_deliveries = 0;
    device.copy_rate = 0;
    text = as_text(&report);
    assert_contains(text, " 5 x16 ");
    assert_contains(text, " 0.00 GB/s ");
    free(text);
    device.link_generation = 0;
    text = as_text(&report);
    assert_contains(text, "0000:01:00.0 - ");
    free(text);
}

static void test_words(void **state)
{
    (void)state;
    char word[16];
    assert_string_equal(report_word(&pinserve__delivery__descriptor, 4, word, sizeof(word)),
                        "host");
    assert_string_equal(report_word(&pinserve__delivery__descriptor, 99, word, sizeof(word)), "?");
    assert_string_equal(report_word(&pinserve__delivery__descriptor, 5, word, 4), "map");
}

static void test_stage_means(void **state)
{
    (void)state;
    Pinserve__Stages before = PINSERVE__STAGES__INIT, after = PINSERVE__STAGES__INIT;
    before.samples = 100;
    before.decode_ns = 5000000;
    after.samples = 300;
    after.decode_ns = 205000000;
    struct stages_us mean = stages_mean(&after, &before);
    assert_true(mean.decode == 1000);
    assert_true(mean.copy == 0);
    mean = stages_mean(NULL, NULL);
    assert_true(mean.read == 0 && mean.hold == 0);
}

/* Two seconds apart: 400 samples in 50 batches over all, the job 20 of them. */
static void test_rates(void **state)
{
    (void)state;
    Pinserve__Stages first = PINSERVE__STAGES__INIT, last = PINSERVE__STAGES__INIT, own, own_later;
    Pinserve__StatsReport from = PINSERVE__STATS_REPORT__INIT, to = PINSERVE__STATS_REPORT__INIT;
    Pinserve__JobReport job = job_report(&own), later = job_report(&own_later);
    ProtobufCMessage *rows[] = {&from.base, &to.base, &job.base, &later.base};
    last.samples = 400;
    last.batches = 50;
    last.hold_ns = 100000;
    from.stages = &first;
    to.stages = &last;
    from.uptime_ns = 5000000000;
    to.uptime_ns = 7000000000;
    to.bytes = 4000000000;
    later.delivered = job.delivered + 20;
    later.starved = job.starved + 4;

    struct stats_moment before = {report_of(PINSERVE__QUERY_KIND__QUERY_STATS, &rows[0], 1),
                                  report_of(PINSERVE__QUERY_KIND__QUERY_JOBS, &rows[2], 1)};
    struct stats_moment after = {report_of(PINSERVE__QUERY_KIND__QUERY_STATS, &rows[1], 1),
                                 report_of(PINSERVE__QUERY_KIND__QUERY_JOBS, &rows[3], 1)};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    stats_print_json(&before, &after, out);
    fclose(out);
    assert_begins(text, "{\"uptime_ns\": 7000000000, \"seconds\": 2, \"samples_per_s\": 200, "
                        "\"batches_per_s\": 25, \"stages_us\": {\"read\": 0, \"decode\": 0, "
                        "\"slot_wait\": 0, \"copy\": 0, \"hold\": 2}, \"gb_per_s\": 2, ");
    assert_contains(text, "\"jobs\": [{\"job\": 42, \"name\": \"train \\\"a\\\"\", \"ready\": 3, "
                          "\"depth\": 4, \"samples_per_s\": 80, \"batches_per_s\": 10, ");
    assert_contains(text, "\"starved_per_s\": 2}]}\n");
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    free(text);

    out = open_memstream(&text, &size);
    assert_int_equal(stats_print_text(&before, &after, out), 0);
    fclose(out);
    assert_contains(text, "all -");
    assert_contains(text, " 42 train \"a\" ");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_json),   cmocka_unit_test(test_empty_lists),
        cmocka_unit_test(test_bad_samples), cmocka_unit_test(test_jobs_text),
        cmocka_unit_test(test_pools),       cmocka_unit_test(test_status_is_one_object),
        cmocka_unit_test(test_devices),     cmocka_unit_test(test_words),
        cmocka_unit_test(test_stage_means), cmocka_unit_test(test_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
