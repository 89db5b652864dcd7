/*
 * What the files of the model share.
 */
#ifndef PINSERVE_TESTS_MODEL_H
#define PINSERVE_TESTS_MODEL_H

#include <inttypes.h>

#include "sim.h"

#define JOB "job %" PRIu64 ": "

/* -- model.c -- */

/* What action asks for is under way. */
struct task *model_task_add(struct sim *sim, enum task_type type, const struct core_action *action);

/* -- model_batches.c: one action each -- */

void model_decode(struct sim *sim, struct sim_job *job, const struct core_action *action);
void model_decode_cancel(struct sim *sim, struct sim_job *job, const struct core_action *action);
void model_copy(struct sim *sim, struct sim_job *job, const struct core_action *action);
void model_batch_ready(struct sim *sim, struct sim_job *job, const struct core_action *action);

#endif
