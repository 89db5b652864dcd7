/*
 * Opening a job again, by a thread of its own that waits for the daemon as long
 * as it takes: connecting, opening files and the device, and indexing may all
 * block, and must not hold up a caller beyond its timeout.
 */
#ifndef PINSERVE_CLIENT_SEEK_H
#define PINSERVE_CLIENT_SEEK_H

#include "job.h"
#include "spec.h"

struct seek;

/* Starts looking for the daemon at socket, to open a job by spec, whose owner the search becomes.
 * -ENOMEM, with spec freed. */
int seek_start(const char *socket, struct pinclient_spec *spec_consume, struct seek **seek_p,
               struct failure *failure);
/* Readable once the search has ended. */
int seek_fd(const struct seek *seek);
/* 0: *job_p is ready, and the caller's; -EAGAIN: not yet, and why tells of the last attempt; or a
 * final error. After another result than -EAGAIN only seek_stop may follow. */
int seek_result(struct seek *seek, struct pinclient_job **job_p, struct failure *why);
/* Ends it: a job that was opened and not taken is closed, by whoever comes to it. Waits a moment
 * for the thread, which may need longer. NULL is allowed. */
void seek_stop(struct seek *seek);
/* For a child: closes its descriptors. NULL is allowed. */
void seek_close_fds(struct seek *seek);

#endif
