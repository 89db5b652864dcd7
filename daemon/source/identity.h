/*
 * Whose eyes the daemon opens files with: the file-system identity of the peer
 * that named them, taken on by the calling thread alone.
 */
#ifndef PINSERVE_SOURCE_IDENTITY_H
#define PINSERVE_SOURCE_IDENTITY_H

#include <stdint.h>
#include <sys/types.h>

#include "proto/failure.h"

struct identity {
    uid_t uid;
    gid_t gid;
    uint32_t n_groups;
    gid_t groups[256]; /* more are cut off: fewer rights, never more */
};

/* The calling process's own. */
void identity_of_process(struct identity *identity_p);

/* Makes the calling thread open files as identity does, with none of the daemon's capabilities on
 * files; it stays so until the next call. NULL: as the daemon itself. Cheap when nothing changes.
 * -EPERM in words when the daemon may not do it. */
int identity_assume(const struct identity *identity, struct failure *failure);

#endif
