/*
 * What an operator ends: a job, or the use of a device.
 */
#ifndef PINCTL_OPERATE_H
#define PINCTL_OPERATE_H

#include <stdint.h>
#include <stdio.h>

#include "options.h"
#include "query.h"

/* Each returns an exit status of pinctl.h, with a failure where that is not PINCTL_DONE. */
int evict_run(const struct options *options, FILE *out, struct failure *failure);
/* Waits until nothing is left on the devices, at most options->timeout_s; else the failure names
 * the jobs that are. With undo it waits for nothing. */
int drain_run(const struct options *options, FILE *out, struct failure *failure);

/* Says in text which of the report's jobs are left on the n devices, and returns how many. */
size_t drain_left(const struct report *jobs, char *const *devices, size_t n, char *text,
                  size_t size);

#endif
