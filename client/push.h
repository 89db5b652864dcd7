/*
 * Source push: the slots that the daemon has granted, and what came on the
 * socket while one was waited for. The job's calls lock guards it.
 */
#ifndef PINSERVE_CLIENT_PUSH_H
#define PINSERVE_CLIENT_PUSH_H

#include "job.h"

/* For a job that pushes; -ENOMEM. */
int push_new(struct pinclient_job *job, uint32_t depth, struct failure *failure);
void push_free(struct pinclient_job *job);

/* What SlotGranted says, checked; -EPROTO. */
int push_take_grant(struct pinclient_job *job, const Pinserve__SlotGranted *granted,
                    struct failure *failure);
/* The slots are others now: grants that are not filled yet are void. */
void push_forget_grants(struct pinclient_job *job);

/* As connection_receive without waiting, but first what was set aside. */
int push_receive(struct pinclient_job *job, struct wire_packet *packet, struct failure *failure);
bool push_has_aside(const struct pinclient_job *job);
/* Takes a packet over, for push_receive. */
int push_set_aside(struct pinclient_job *job, struct wire_packet *packet, struct failure *failure);
/* Releases the batches among what was set aside: the job is being closed. */
void push_give_back(struct pinclient_job *job);
/* pinclient_next has returned a batch. */
void push_taken(struct pinclient_job *job);

#endif
