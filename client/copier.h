/*
 * Delivery copy: from the daemon's regions into memory of the GPU that is the
 * job's own. See copier.c.
 */
#ifndef PINSERVE_CLIENT_COPIER_H
#define PINSERVE_CLIENT_COPIER_H

#include "job.h"

/* Gets the memory, and sets job->copier: JobReady was taken. -ENOMEM, -EIO. */
int copier_new(struct pinclient_job *job, struct failure *failure);
/* When no copy is under way and no batch is leased. Without one nothing is done. */
void copier_free(struct pinclient_job *job);

/* Take what the daemon says; -EPROTO. */
int copier_announce(struct pinclient_job *job, const Pinserve__BatchReady *ready,
                    struct failure *failure);
int copier_end_epoch(struct pinclient_job *job, const Pinserve__EpochEnd *end,
                     struct failure *failure);
/* Nothing comes behind what was announced but this. */
void copier_fail(struct pinclient_job *job, const struct failure *failure);
/* NULL: none yet. */
const struct failure *copier_failure(const struct copier *copier);
/* Something was announced and not taken. */
bool copier_pending(const struct copier *copier);

/* Starts the copies for which there are places. */
void copier_start(struct pinclient_job *job);
/* The next thing in order: 0, PINCLIENT_EPOCH_END, or -EAGAIN. */
int copier_take(struct pinclient_job *job, struct pinclient_batch **batch_p);
/* Copies are under way. */
bool copier_busy(struct pinclient_job *job);
/* Whether they can still end: -EIO when the GPU's context is broken. */
int copier_check(struct pinclient_job *job, struct failure *failure);
/* Releases what was announced and is not being copied: it will not be taken. */
void copier_give_back(struct pinclient_job *job);
/* Something was copied, or a place is free. Any thread. */
void copier_wake(const struct pinclient_job *job);

#endif
