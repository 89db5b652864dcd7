/*
 * One job of a bench run and the thread that consumes it.
 */
#ifndef PINCTL_BENCH_JOB_H
#define PINCTL_BENCH_JOB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bench_options.h"
#include "histogram.h"
#include "pinclient.h"
#include "proto/failure.h"

enum bench_phase { BENCH_OPENING, BENCH_RUNNING, BENCH_ENDED };

/* What a job has taken. Times are of the monotonic clock, in nanoseconds. */
struct bench_counts {
    uint64_t samples, batches;
    uint64_t bytes;                      /* of all tensors, without padding */
    uint64_t first_samples, first_bytes; /* of these, the first batch's */
    uint64_t start_ns;                   /* before the job was opened */
    uint64_t first_ns, last_ns;          /* when the first and the last batch came */
};

struct bench_job {
    /* Set before the thread starts. */
    const struct bench_options *options;
    const char *socket;
    uint32_t number;
    const atomic_bool *stop; /* set: end early */
    int ended_fd;            /* an eventfd; counts jobs that have ended */

    /* The thread's; to be read once it is joined. */
    pthread_t thread;
    int rc; /* 0, or a negative errno with failure */
    struct failure failure;
    struct pinclient_job *job; /* left open, so that the daemon can still be asked about it */
    struct bench_counts counts;
    struct histogram wait; /* ns in pinclient_next of each batch but the first */
    uint64_t checksum;     /* meaningful with options->checksum and not stopped */
    bool stopped;          /* ended early */

    /* For whoever watches meanwhile. */
    atomic_int phase;           /* enum bench_phase */
    atomic_uint_fast64_t steps; /* of an epoch; 0: not known yet */
    atomic_uint_fast64_t seen_batches, seen_samples, seen_wait_ns;
};

/* The monotonic clock. */
uint64_t bench_now(void);

/* The thread's function; takes a struct bench_job. */
void *bench_job_run(void *bench_job);

/* Closes the job. The thread has been joined. */
void bench_job_close(struct bench_job *job);

#endif
