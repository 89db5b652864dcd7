/*
 * Jobs that outlive their daemon. What the caller holds is a job in front,
 * without a connection or memory; behind it stands one that does all the work,
 * and when its daemon is gone another takes its place, opened by the resume
 * token of the first step that was not taken. A job behind holds the one in
 * front, and uses its text of errors and its lock of calls; batches belong to
 * the job that they came by, so those of a lost one stay as they are, and end
 * its memory with the last of them.
 *
 * All but reconnect_new, reconnect_free and reconnect_note_late are for jobs in
 * front.
 */
#ifndef PINSERVE_CLIENT_RECONNECT_H
#define PINSERVE_CLIENT_RECONNECT_H

#include "job.h"
#include "spec.h"

/* Puts a job in front of one that was opened by spec. On failure that one is as it was. -ENOMEM */
int reconnect_new(struct pinclient_job *job, const struct pinclient_spec *spec,
                  struct pinclient_job **front_p, struct failure *failure);
/* What only a job in front has; nothing is done for another. */
void reconnect_free(struct pinclient_job *job);

/* As pinclient_next. Under front->calls. */
int reconnect_next(struct pinclient_job *front, int timeout_ms, struct pinclient_batch **batch_p);
/* A batch of a job behind is late: job_drop_late is called for it from now on, even when the job is
 * not in force any more. Under job->calls. */
void reconnect_note_late(struct pinclient_job *job);
/* The caller polls front->epoll_fd from now on. Under front->calls. */
void reconnect_want_fd(struct pinclient_job *front);

/* As the public functions. */
int reconnect_token(const struct pinclient_job *front, char *text, size_t *size_p);
void reconnect_info(const struct pinclient_job *front, struct pinclient_job_info *info_p);
void reconnect_close(struct pinclient_job *front);

/* For a child, where neither locks nor threads are as they were. */
void reconnect_close_fds(struct pinclient_job *front);

#endif
