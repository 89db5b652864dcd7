/*
 * A job's consumer: opens it, takes and releases batches until its end, and keeps what it measured.
 * A batch's data is read for the checksum only. Each batch is released before the next is taken, so
 * that a job of depth 1 goes on, too.
 */
#include "bench_job.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "checksum.h"
#include "client/device.h"
#include "proto/cleanup.h"
#include "readback.h"

#define NS_PER_MS 1000000
#define NS_PER_S 1000000000
#define SLICE_MS 100 /* the longest time between two looks at `stop` */

/* What the loop keeps from one batch to the next. */
struct consumer {
    struct bench_job *bench;
    struct pinclient_job_info info;
    struct checksum *checksum; /* NULL: none wanted */
    uint64_t epochs;           /* ended */
    uint64_t waited_ns;        /* for the batch that is to come */
    uint64_t full_bytes;       /* of a full batch; 0: none has come */
};

uint64_t bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static bool stop_wanted(const struct bench_job *bench)
{
    return atomic_load_explicit(bench->stop, memory_order_relaxed);
}

static int open_job(struct bench_job *bench)
{
    struct pinclient_spec *spec = NULL;
    struct pinclient *client = NULL;

    int rc = bench_options_spec(bench->options, bench->number, &spec, &bench->failure);
    if (rc < 0)
        return rc;
    rc = pinclient_connect(bench->socket, &client);
    if (rc == 0)
        rc = pinclient_job_open(client, spec, &bench->job);
    if (rc < 0)
        failure_set(&bench->failure, rc, "%s", client ? pinclient_error(client) : "no memory");
    pinclient_close(client);
    pinclient_spec_free(spec);
    return rc;
}

/* Bytes of the batch's tensors. Asked once for full batches: they are all alike. */
static int batch_bytes(struct consumer *consumer, const struct pinclient_batch *batch,
                       uint32_t count, uint64_t *bytes_p)
{
    uint64_t bytes = 0;

    if (count == consumer->info.batch && consumer->full_bytes) {
        *bytes_p = consumer->full_bytes;
        return 0;
    }
    for (uint32_t i = 0; i < consumer->info.n_tensors; i++) {
        struct pinclient_tensor tensor;
        int rc = pinclient_batch_tensor_at(batch, i, &tensor);
        if (rc < 0)
            return rc;
        bytes += tensor.bytes;
    }
    if (count == consumer->info.batch)
        consumer->full_bytes = bytes;
    *bytes_p = bytes;
    return 0;
}

static void count_batch(struct consumer *consumer, uint32_t samples, uint64_t bytes,
                        uint64_t now_ns)
{
    struct bench_job *bench = consumer->bench;
    struct bench_counts *counts = &bench->counts;

    if (counts->batches == 0) {
        counts->first_ns = now_ns;
        counts->first_samples = samples;
        counts->first_bytes = bytes;
    } else {
        histogram_add(&bench->wait, consumer->waited_ns);
    }
    counts->last_ns = now_ns;
    counts->batches++;
    counts->samples += samples;
    counts->bytes += bytes;
    consumer->waited_ns = 0;

    atomic_store_explicit(&bench->seen_batches, counts->batches, memory_order_relaxed);
    atomic_store_explicit(&bench->seen_samples, counts->samples, memory_order_relaxed);
    atomic_store_explicit(&bench->seen_wait_ns, bench->wait.sum, memory_order_relaxed);
}

static int take_batch(struct consumer *consumer, struct pinclient_batch *batch, uint64_t now_ns)
{
    struct bench_job *bench = consumer->bench;
    struct pinclient_batch_info info;
    uint64_t bytes = 0;

    pinclient_batch_info(batch, &info);
    int rc = batch_bytes(consumer, batch, info.count, &bytes);
    if (rc < 0)
        failure_set(&bench->failure, rc, "%s", pinclient_error(bench->job));
    if (rc == 0 && consumer->checksum)
        rc = checksum_add(consumer->checksum, batch, consumer->info.n_tensors, &bench->failure);
    int released = pinclient_release(batch, PINCLIENT_NO_STREAM);
    if (rc == 0 && released < 0)
        rc = failure_set(&bench->failure, released, "%s", pinclient_error(bench->job));
    if (rc == 0)
        count_batch(consumer, info.count, bytes, now_ns);
    return rc;
}

/* True when the run has all that it was asked for; the end of epochs is told by next instead. */
static bool is_complete(const struct consumer *consumer)
{
    const struct bench_options *options = consumer->bench->options;
    const struct bench_counts *counts = &consumer->bench->counts;

    if (options->batches)
        return counts->batches >= options->batches;
    if (options->seconds > 0 && counts->batches > 0)
        return (double)(bench_now() - counts->first_ns) >= options->seconds * NS_PER_S;
    return options->epochs && consumer->epochs >= options->epochs;
}

/* With --step-ms: sleeps until the next batch is due, by a schedule from the first batch on that
 * no late batch shifts. Not longer than a slice; false: not yet due. */
static bool wait_for_step(const struct consumer *consumer)
{
    const struct bench_options *options = consumer->bench->options;
    const struct bench_counts *counts = &consumer->bench->counts;

    if (options->step_ms <= 0 || counts->batches == 0)
        return true;
    uint64_t due =
        counts->first_ns + (uint64_t)((double)counts->batches * options->step_ms * NS_PER_MS);
    uint64_t slice = bench_now() + (uint64_t)SLICE_MS * NS_PER_MS;
    uint64_t until = due < slice ? due : slice;
    struct timespec at = {.tv_sec = (time_t)(until / NS_PER_S),
                          .tv_nsec = (long)(until % NS_PER_S)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    return bench_now() >= due;
}

/* How long next may wait: to the next look at `stop` or the end of --seconds. */
static int next_timeout_ms(const struct consumer *consumer)
{
    const struct bench_options *options = consumer->bench->options;
    const struct bench_counts *counts = &consumer->bench->counts;

    if (options->seconds <= 0 || counts->batches == 0)
        return SLICE_MS;
    double left_ms = options->seconds * 1e3 - (double)(bench_now() - counts->first_ns) / NS_PER_MS;
    return left_ms < SLICE_MS ? (left_ms > 0 ? (int)left_ms + 1 : 0) : SLICE_MS;
}

static int consume(struct consumer *consumer)
{
    struct bench_job *bench = consumer->bench;

    while (!is_complete(consumer)) {
        if (stop_wanted(bench)) {
            bench->stopped = true;
            return 0;
        }
        if (!wait_for_step(consumer))
            continue;
        struct pinclient_batch *batch = NULL;
        int timeout_ms = next_timeout_ms(consumer);
        uint64_t before = bench_now();
        int rc = pinclient_next(bench->job, timeout_ms, &batch);
        uint64_t after = bench_now();
        consumer->waited_ns += after - before;
        if (rc == -ETIMEDOUT || rc == -EINTR)
            continue;
        if (rc == PINCLIENT_EPOCH_END)
            consumer->epochs++;
        else if (rc < 0)
            return failure_set(&bench->failure, rc, "%s", pinclient_error(bench->job));
        else if ((rc = take_batch(consumer, batch, after)) < 0)
            return rc;
    }
    return 0;
}

/* A trainer has its CUDA context long before its first batch: making one, which takes longer than
 * all else, is left out of the time to the first batch. NULL: no GPU, or the job will say why. */
static struct readback *prepare_device(const struct bench_job *bench)
{
    char name[DEVICE_NAME_MAX];
    struct readback *readback = NULL;
    struct failure ignored;

    if (device_resolve(bench->options->device, name, &ignored) < 0 || strcmp(name, "host") == 0 ||
        readback_new(name, &readback, &ignored) < 0)
        return NULL;
    return readback;
}

static int run_prepared(struct bench_job *bench)
{
    struct consumer consumer = {.bench = bench};

    bench->counts.start_ns = bench_now();
    int rc = open_job(bench);
    if (rc < 0)
        return rc;
    pinclient_job_info(bench->job, &consumer.info);
    atomic_store_explicit(&bench->steps, consumer.info.steps, memory_order_relaxed);
    atomic_store(&bench->phase, BENCH_RUNNING);
    if (consumer.info.steps == 0)
        return failure_set(&bench->failure, -EINVAL,
                           "%s: its %llu samples make no batch of %u for each of %u ranks "
                           "with --last %s",
                           bench->options->source, (unsigned long long)consumer.info.samples,
                           bench->options->batch, bench->options->world, bench->options->last);
    if (bench->options->checksum) {
        bool host = strcmp(consumer.info.delivery, "host") == 0;
        rc =
            checksum_new(host ? "host" : consumer.info.device, &consumer.checksum, &bench->failure);
        if (rc < 0)
            return rc;
    }
    rc = consume(&consumer);
    if (rc == 0 && consumer.checksum)
        bench->checksum = checksum_value(consumer.checksum);
    checksum_free(consumer.checksum);
    return rc;
}

static int run(struct bench_job *bench)
{
    struct readback *readback = prepare_device(bench);
    int rc = run_prepared(bench);

    readback_free(readback);
    return rc;
}

void *bench_job_run(void *bench_job)
{
    struct bench_job *bench = bench_job;

    bench->rc = run(bench);
    atomic_store(&bench->phase, BENCH_ENDED);
    eventfd_write(bench->ended_fd, 1);
    return NULL;
}

void bench_job_close(struct bench_job *job)
{
    pinclient_job_close(job->job);
    job->job = NULL;
}
