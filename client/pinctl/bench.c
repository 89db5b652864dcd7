/*
 * A bench run: one thread a job, and this one, which watches them, draws the progress and takes
 * signals. The first SIGINT or SIGTERM ends the run early, with what there is; the second kills.
 */
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "bench_report.h"
#include "client/connection.h"
#include "pinctl.h"
#include "progress.h"
#include "proto/cleanup.h"
#include "query.h"
#include "report_json.h"

#define PROGRESS_MS 200
/* How long a job that is being opened may still take once the run is to end. Opening waits for the
 * daemon, and cannot be called off from here. */
#define OPENING_GRACE_MS 1000

struct bench {
    const struct bench_options *options;
    struct bench_job *jobs;
    uint32_t n_jobs, n_started;
    atomic_bool stop;
    int ended_fd, signal_fd;
    sigset_t signals, old_signals;
    struct progress progress;
    uint64_t start_ns, stop_ns;
    bool interrupted;
};

static int bench_init(struct bench *bench, const char *socket, const struct bench_options *options,
                      bool json, struct failure *failure)
{
    *bench = (struct bench){.options = options, .n_jobs = options->jobs, .start_ns = bench_now()};
    sigemptyset(&bench->signals);
    sigaddset(&bench->signals, SIGINT);
    sigaddset(&bench->signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &bench->signals, &bench->old_signals);
    progress_init(&bench->progress, stderr, !json, bench->start_ns);
    bench->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bench->signal_fd = signalfd(-1, &bench->signals, SFD_CLOEXEC | SFD_NONBLOCK);
    bench->jobs = calloc(bench->n_jobs, sizeof(*bench->jobs));
    if (bench->ended_fd < 0 || bench->signal_fd < 0 || !bench->jobs)
        return failure_set(failure, -errno, "cannot prepare %" PRIu32 " jobs: %s", bench->n_jobs,
                           strerror(errno));
    for (uint32_t i = 0; i < bench->n_jobs; i++) {
        bench->jobs[i].options = options;
        bench->jobs[i].socket = socket;
        bench->jobs[i].number = i;
        bench->jobs[i].stop = &bench->stop;
        bench->jobs[i].ended_fd = bench->ended_fd;
    }
    return 0;
}

static void bench_deinit(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->n_started; i++)
        bench_job_close(&bench->jobs[i]);
    free(bench->jobs);
    close_fd(&bench->ended_fd);
    close_fd(&bench->signal_fd);
    pthread_sigmask(SIG_SETMASK, &bench->old_signals, NULL);
}

static void bench_stop(struct bench *bench)
{
    if (!atomic_exchange(&bench->stop, true))
        bench->stop_ns = bench_now();
}

static uint32_t count_phase(const struct bench *bench, enum bench_phase phase)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < bench->n_started; i++)
        n += atomic_load(&bench->jobs[i].phase) == (int)phase;
    return n;
}

static void show_progress(struct bench *bench)
{
    const struct bench_options *options = bench->options;
    struct progress_counts counts = {.share = -1};
    uint64_t steps = 0, now_ns = bench_now();

    for (uint32_t i = 0; i < bench->n_started; i++) {
        struct bench_job *job = &bench->jobs[i];
        counts.batches += atomic_load_explicit(&job->seen_batches, memory_order_relaxed);
        counts.samples += atomic_load_explicit(&job->seen_samples, memory_order_relaxed);
        counts.wait_ns += atomic_load_explicit(&job->seen_wait_ns, memory_order_relaxed);
        steps += atomic_load_explicit(&job->steps, memory_order_relaxed);
    }
    double all = options->batches ? (double)options->batches * bench->n_jobs
                                  : (double)options->epochs * (double)steps;
    if (options->seconds > 0)
        counts.share = (double)(now_ns - bench->start_ns) / 1e9 / options->seconds;
    else if (all > 0)
        counts.share = (double)counts.batches / all;
    progress_show(&bench->progress, &counts, now_ns);
}

/* Ends the process, its jobs with it: they are not there yet, and nothing was measured. */
static _Noreturn void give_up(const struct bench *bench)
{
    fprintf(stderr, "pinctl: interrupted while %s was being opened\n", bench->options->source);
    fflush(NULL);
    _exit(PINCTL_FAILED);
}

/* Waits until every job has ended. */
static void watch(struct bench *bench)
{
    struct pollfd fds[] = {{.fd = bench->ended_fd, .events = POLLIN},
                           {.fd = bench->signal_fd, .events = POLLIN}};
    struct signalfd_siginfo signal;
    eventfd_t ended = 0;

    while (count_phase(bench, BENCH_ENDED) < bench->n_started) {
        bool stopping = atomic_load(&bench->stop);
        poll(fds, 2, bench->progress.out || stopping ? PROGRESS_MS : -1);
        eventfd_read(bench->ended_fd, &ended);
        if (read(bench->signal_fd, &signal, sizeof(signal)) == (ssize_t)sizeof(signal)) {
            bench->interrupted = true;
            bench_stop(bench);
            pthread_sigmask(SIG_UNBLOCK, &bench->signals, NULL);
        }
        /* One that failed takes the others with it. */
        for (uint32_t i = 0; i < bench->n_started; i++) {
            if (atomic_load(&bench->jobs[i].phase) == BENCH_ENDED && bench->jobs[i].rc < 0)
                bench_stop(bench);
        }
        if (bench->interrupted && count_phase(bench, BENCH_OPENING) > 0 &&
            bench_now() - bench->stop_ns > (uint64_t)OPENING_GRACE_MS * 1000000)
            give_up(bench);
        show_progress(bench);
    }
    progress_end(&bench->progress);
}

/* Starts the jobs and sees them end. */
static int consume(struct bench *bench, struct failure *failure)
{
    int rc = 0;

    for (; rc == 0 && bench->n_started < bench->n_jobs; bench->n_started += rc == 0) {
        struct bench_job *job = &bench->jobs[bench->n_started];
        rc = -pthread_create(&job->thread, NULL, bench_job_run, job);
    }
    if (rc < 0) {
        failure_set(failure, rc, "cannot start a thread for job %" PRIu32 " of %" PRIu32 ": %s",
                    bench->n_started + 1, bench->n_jobs, strerror(-rc));
        bench_stop(bench);
    }
    watch(bench);
    for (uint32_t i = 0; i < bench->n_started; i++)
        pthread_join(bench->jobs[i].thread, NULL);
    for (uint32_t i = 0; rc == 0 && i < bench->n_started; i++) {
        rc = bench->jobs[i].rc;
        if (rc < 0)
            failure_set(failure, rc, "%s", bench->jobs[i].failure.text);
    }
    return rc;
}

int bench_summarise(const struct bench_job *jobs, uint32_t n, struct bench_result *result_p)
{
    struct bench_result result = {.samples = 0};
    const struct bench_counts *first = NULL;
    uint64_t last_ns = 0;
    struct histogram *wait = calloc(1, sizeof(*wait));

    if (!wait)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        const struct bench_counts *counts = &jobs[i].counts;
        histogram_merge(wait, &jobs[i].wait);
        result.interrupted = result.interrupted || jobs[i].stopped;
        if (counts->batches == 0)
            continue;
        result.samples += counts->samples;
        result.batches += counts->batches;
        result.bytes += counts->bytes;
        if (!first || counts->first_ns < first->first_ns)
            first = counts;
        if (counts->last_ns > last_ns)
            last_ns = counts->last_ns;
        double opened_ms = (double)(counts->first_ns - counts->start_ns) / 1e6;
        if (opened_ms > result.first_batch_ms)
            result.first_batch_ms = opened_ms;
    }
    if (first && last_ns > first->first_ns) {
        result.seconds = (double)(last_ns - first->first_ns) / 1e9;
        result.samples_per_s = (double)(result.samples - first->first_samples) / result.seconds;
        result.gb_per_s = (double)(result.bytes - first->first_bytes) / result.seconds / 1e9;
    }
    result.wait_us.mean = histogram_mean(wait) / 1e3;
    result.wait_us.p50 = (double)histogram_percentile(wait, 0.50) / 1e3;
    result.wait_us.p99 = (double)histogram_percentile(wait, 0.99) / 1e3;
    result.wait_us.max = (double)wait->max / 1e3;
    free(wait);
    *result_p = result;
    return 0;
}

static void add_stages(Pinserve__Stages *sum, const Pinserve__Stages *stages)
{
    sum->samples += stages->samples;
    sum->batches += stages->batches;
    sum->read_ns += stages->read_ns;
    sum->decode_ns += stages->decode_ns;
    sum->slot_wait_ns += stages->slot_wait_ns;
    sum->copy_ns += stages->copy_ns;
    sum->hold_ns += stages->hold_ns;
}

/* Asks the daemon what it knows of the jobs, which are still open. */
static int ask_stages(struct connection *connection, const struct bench *bench,
                      struct bench_result *result, struct failure *failure)
{
    Pinserve__Stages sum = PINSERVE__STAGES__INIT;

    for (uint32_t i = 0; i < bench->n_jobs; i++) {
        struct pinclient_job_info info;
        cleanup(report_deinit) struct report report = REPORT_INIT;
        pinclient_job_info(bench->jobs[i].job, &info);
        int rc =
            query_report(connection, PINSERVE__QUERY_KIND__QUERY_JOBS, info.id, &report, failure);
        if (rc < 0)
            return rc;
        if (report.n_rows != 1)
            return failure_set(failure, -EPROTO, "the daemon does not report on job %" PRIu64,
                               info.id);
        const Pinserve__JobReport *job = (const Pinserve__JobReport *)report.rows[0];
        if (job->stages)
            add_stages(&sum, job->stages);
        if (i == 0) {
            report_word(&pinserve__delivery__descriptor, (int)job->delivery, result->delivery,
                        sizeof(result->delivery));
            snprintf(result->delivery_why, sizeof(result->delivery_why), "%s", job->delivery_why);
        }
    }
    result->stages = stages_mean(&sum, NULL);
    return 0;
}

/* The run itself and its result. */
static int run(struct bench *bench, struct connection *connection, bool json, FILE *out,
               struct failure *failure)
{
    struct bench_result result;

    int rc = consume(bench, failure);
    if (rc < 0)
        return rc;
    rc = bench_summarise(bench->jobs, bench->n_jobs, &result);
    if (rc < 0)
        return failure_set(failure, rc, "no memory for the result");
    rc = ask_stages(connection, bench, &result, failure);
    if (rc < 0)
        return rc;
    if (json)
        bench_report_json(&result, bench->options, bench->jobs, out);
    else if ((rc = bench_report_text(&result, bench->options, bench->jobs, out)) < 0)
        failure_set(failure, rc, "no memory for the result");
    return rc;
}

int bench_run(const char *socket, const struct bench_options *options, bool json, FILE *out,
              struct failure *failure)
{
    struct pinclient_spec *spec = NULL;
    struct connection *connection = NULL;
    struct bench bench;

    /* What the library refuses is told before anything starts, and without a daemon. */
    int rc = bench_options_spec(options, 0, &spec, failure);
    if (rc < 0)
        return rc == -EINVAL ? PINCTL_USAGE : PINCTL_FAILED;
    pinclient_spec_free(spec);
    int status = query_connect(socket, &connection, failure);
    if (status != PINCTL_DONE)
        return status;
    rc = bench_init(&bench, socket, options, json, failure);
    if (rc == 0)
        rc = run(&bench, connection, json, out, failure);
    bench_deinit(&bench);
    connection_close(connection);
    return rc < 0 ? PINCTL_FAILED : PINCTL_DONE;
}
