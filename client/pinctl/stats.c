/*
 * Rates: two moments of the daemon's counters and the time between them. Signals are held back only
 * while it waits for the next second, so that a daemon that does not answer can be left at once.
 */
#include "stats.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/cleanup.h"
#include "report_json.h"
#include "report_text.h"
#include "table.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NS_PER_S 1000000000

/* A row: a job, or all of them. */
struct rates {
    double samples, batches; /* a second */
    double gigabytes;        /* a second; all only: a job's bytes are not counted apart */
    double starved;          /* a second; jobs only */
    struct stages_us stages;
};

static const Pinserve__StatsReport *stats_of(const struct stats_moment *moment)
{
    return (const Pinserve__StatsReport *)moment->stats.rows[0];
}

static double seconds_between(const struct stats_moment *before, const struct stats_moment *after)
{
    uint64_t from = stats_of(before)->uptime_ns, to = stats_of(after)->uptime_ns;
    return to > from ? (double)(to - from) / NS_PER_S : 0;
}

static double rate(uint64_t before, uint64_t after, double seconds)
{
    return seconds > 0 && after > before ? (double)(after - before) / seconds : 0;
}

static struct rates rates_of_all(const struct stats_moment *before,
                                 const struct stats_moment *after)
{
    static const Pinserve__Stages zero = PINSERVE__STAGES__INIT;
    const Pinserve__StatsReport *from = stats_of(before), *to = stats_of(after);
    const Pinserve__Stages *first = from->stages ? from->stages : &zero;
    const Pinserve__Stages *last = to->stages ? to->stages : &zero;
    double seconds = seconds_between(before, after);

    return (struct rates){
        .samples = rate(first->samples, last->samples, seconds),
        .batches = rate(first->batches, last->batches, seconds),
        .gigabytes = rate(from->bytes, to->bytes, seconds) / 1e9,
        .stages = stages_mean(last, first),
    };
}

static const Pinserve__JobReport *find_job(const struct report *jobs, uint64_t id)
{
    for (size_t i = 0; i < jobs->n_rows; i++) {
        const Pinserve__JobReport *job = (const Pinserve__JobReport *)jobs->rows[i];
        if (job->job == id)
            return job;
    }
    return NULL;
}

/* The samples are those of delivered batches, which a job takes; those of stages may be ahead. */
static struct rates rates_of_job(const struct stats_moment *before,
                                 const struct stats_moment *after, const Pinserve__JobReport *job)
{
    const Pinserve__JobReport *old = find_job(&before->jobs, job->job);
    double seconds = seconds_between(before, after);
    double batches = rate(old ? old->delivered : 0, job->delivered, seconds);

    return (struct rates){
        .samples = batches * job->batch,
        .batches = batches,
        .starved = rate(old ? old->starved : 0, job->starved, seconds),
        .stages = stages_mean(job->stages, old ? old->stages : NULL),
    };
}

static void row_stages(struct table *table, const struct stages_us *stages)
{
    table_cell(table, "%.1f", stages->read);
    table_cell(table, "%.1f", stages->decode);
    table_cell(table, "%.1f", stages->slot_wait);
    table_cell(table, "%.1f", stages->copy);
    table_cell(table, "%.1f", stages->hold);
}

static void row_all(struct table *table, const struct rates *rates)
{
    table_row(table);
    table_cell(table, "all");
    table_cell(table, "-");
    table_cell(table, "%.0f", rates->samples);
    table_cell(table, "%.1f", rates->batches);
    table_cell(table, "%.2f", rates->gigabytes);
    table_cell(table, "-");
    table_cell(table, "-");
    row_stages(table, &rates->stages);
}

static void row_job(struct table *table, const Pinserve__JobReport *job, const struct rates *rates)
{
    table_row(table);
    table_cell(table, "%" PRIu64, job->job);
    table_cell(table, "%s", job->name);
    table_cell(table, "%.0f", rates->samples);
    table_cell(table, "%.1f", rates->batches);
    table_cell(table, "-");
    table_cell(table, "%" PRIu32 "/%" PRIu32, job->ready, job->depth);
    table_cell(table, "%.1f", rates->starved);
    row_stages(table, &rates->stages);
}

int stats_print_text(const struct stats_moment *before, const struct stats_moment *after, FILE *out)
{
    static const struct table_column columns[] = {
        {"JOB", true},       {"NAME", false, true},  {"SAMPLES/S", true}, {"BATCHES/S", true},
        {"GB/S", true},      {"READY", true},        {"STARVED/S", true}, {"READ us", true},
        {"DECODE us", true}, {"SLOT WAIT us", true}, {"COPY us", true},   {"HOLD us", true},
    };
    struct table *table = table_new(columns, COUNT(columns), true);
    if (!table)
        return -ENOMEM;

    struct rates all = rates_of_all(before, after);
    row_all(table, &all);
    for (size_t i = 0; i < after->jobs.n_rows; i++) {
        const Pinserve__JobReport *job = (const Pinserve__JobReport *)after->jobs.rows[i];
        struct rates rates = rates_of_job(before, after, job);
        row_job(table, job, &rates);
    }
    int rc = table_print(table, out);
    table_free(table);
    return rc;
}

static void json_rates(struct json *json, const struct rates *rates)
{
    json_real(json, "samples_per_s", rates->samples);
    json_real(json, "batches_per_s", rates->batches);
    json_object_begin(json, "stages_us");
    json_real(json, "read", rates->stages.read);
    json_real(json, "decode", rates->stages.decode);
    json_real(json, "slot_wait", rates->stages.slot_wait);
    json_real(json, "copy", rates->stages.copy);
    json_real(json, "hold", rates->stages.hold);
    json_object_end(json);
}

void stats_print_json(const struct stats_moment *before, const struct stats_moment *after,
                      FILE *out)
{
    struct json json;
    struct rates all = rates_of_all(before, after);

    json_init(&json, out, true);
    json_object_begin(&json, NULL);
    json_unsigned(&json, "uptime_ns", stats_of(after)->uptime_ns);
    json_real(&json, "seconds", seconds_between(before, after));
    json_rates(&json, &all);
    json_real(&json, "gb_per_s", all.gigabytes);
    json_array_begin(&json, "jobs");
    for (size_t i = 0; i < after->jobs.n_rows; i++) {
        const Pinserve__JobReport *job = (const Pinserve__JobReport *)after->jobs.rows[i];
        struct rates rates = rates_of_job(before, after, job);
        json_object_begin(&json, NULL);
        json_unsigned(&json, "job", job->job);
        json_string(&json, "name", job->name);
        json_unsigned(&json, "ready", job->ready);
        json_unsigned(&json, "depth", job->depth);
        json_rates(&json, &rates);
        json_real(&json, "starved_per_s", rates.starved);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
}

static void moment_deinit(struct stats_moment *moment)
{
    report_deinit(&moment->stats);
    report_deinit(&moment->jobs);
}

static int moment_ask(struct connection *connection, struct stats_moment *moment,
                      struct failure *failure)
{
    int rc =
        query_report(connection, PINSERVE__QUERY_KIND__QUERY_STATS, 0, &moment->stats, failure);
    if (rc < 0)
        return rc;
    return query_report(connection, PINSERVE__QUERY_KIND__QUERY_JOBS, 0, &moment->jobs, failure);
}

/* Waits until a moment of the monotonic clock. True when a signal asked to end. */
static bool wait_until(uint64_t due_ns)
{
    sigset_t set, old;
    struct timespec now, left = {0};
    int signal = -1;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t now_ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
        uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
        left.tv_sec = (time_t)(left_ns / NS_PER_S);
        left.tv_nsec = (long)(left_ns % NS_PER_S);
        signal = sigtimedwait(&set, NULL, &left);
    } while (signal < 0 && errno == EINTR);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return signal > 0;
}

static int print_moment(const struct stats_moment *before, const struct stats_moment *after,
                        bool json, FILE *out)
{
    int rc = 0;

    if (json) {
        stats_print_json(before, after, out);
    } else {
        /* On a terminal each second takes the place of the one before. */
        fputs(isatty(fileno(out)) ? "\033[H\033[J" : "", out);
        rc = stats_print_text(before, after, out);
        fputs(isatty(fileno(out)) ? "" : "\n", out);
    }
    return fflush(out) == 0 ? rc : -errno;
}

int stats_watch(struct connection *connection, bool json, FILE *out, struct failure *failure)
{
    cleanup(moment_deinit) struct stats_moment before = {REPORT_INIT, REPORT_INIT};
    struct timespec start;

    int rc = moment_ask(connection, &before, failure);
    clock_gettime(CLOCK_MONOTONIC, &start);
    uint64_t due_ns = (uint64_t)start.tv_sec * NS_PER_S + (uint64_t)start.tv_nsec;
    while (rc == 0) {
        due_ns += NS_PER_S;
        if (wait_until(due_ns))
            return 0;
        cleanup(moment_deinit) struct stats_moment after = {REPORT_INIT, REPORT_INIT};
        rc = moment_ask(connection, &after, failure);
        if (rc < 0)
            return rc;
        rc = print_moment(&before, &after, json, out);
        if (rc < 0)
            return failure_set(failure, rc, "cannot print: %s", strerror(-rc));
        struct stats_moment old = before;
        before = after;
        after = old;
    }
    return rc;
}
