/*
 * pinctl bench: consumes jobs as a trainer would, but for the training, and measures.
 */
#ifndef PINCTL_BENCH_H
#define PINCTL_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "bench_job.h"
#include "report_text.h"

#define BENCH_TEXT_MAX 256

/* What a run came to, over all its jobs. */
struct bench_result {
    uint64_t samples, batches, bytes;
    double seconds; /* from the first batch on */
    /* What came after the first batch, a second: the time before it is not the pipeline's speed
     * but its length. 0 with less than two batches. */
    double samples_per_s, gb_per_s;
    double first_batch_ms; /* from opening a job to its first batch; the slowest job's */
    struct {
        double mean, p50, p99, max;
    } wait_us;
    struct stages_us stages;
    char delivery[16];
    char delivery_why[BENCH_TEXT_MAX];
    bool interrupted;
};

/* Sums up jobs that have ended. Stages and delivery are left empty. -ENOMEM. */
int bench_summarise(const struct bench_job *jobs, uint32_t n, struct bench_result *result_p);

/* Runs, and prints the result to out. An exit status. */
int bench_run(const char *socket, const struct bench_options *options, bool json, FILE *out,
              struct failure *failure);

#endif
