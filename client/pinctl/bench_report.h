/*
 * The result of a bench run, for people and as JSON.
 */
#ifndef PINCTL_BENCH_REPORT_H
#define PINCTL_BENCH_REPORT_H

#include "bench.h"

/* The checksums are those of options->jobs jobs; they are left out (JSON: null) when none were
 * asked for, or when the run was cut short and they would tell nothing. 0 or -ENOMEM. */
int bench_report_text(const struct bench_result *result, const struct bench_options *options,
                      const struct bench_job *jobs, FILE *out);
void bench_report_json(const struct bench_result *result, const struct bench_options *options,
                       const struct bench_job *jobs, FILE *out);

#endif
