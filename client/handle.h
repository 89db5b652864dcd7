/*
 * What every public handle begins with, so that pinclient_error can take any of
 * them, and what each public call begins with.
 */
#ifndef PINSERVE_CLIENT_HANDLE_H
#define PINSERVE_CLIENT_HANDLE_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "proto/failure.h"

enum handle_kind {
    HANDLE_CLIENT = 0x70634331,
    HANDLE_SPEC = 0x70635331,
    HANDLE_JOB = 0x70634a31,
};

/* The first member of a handle's struct. The text of the last error lies behind a pointer: calls
 * that leave the handle as it is may fail, too. */
struct handle {
    enum handle_kind kind;
    pid_t pid; /* of the process that made it */
    struct failure *failure;
    struct failure failure_store;
};

static inline void handle_init(struct handle *handle, enum handle_kind kind)
{
    memset(handle, 0, sizeof *handle);
    handle->kind = kind;
    handle->pid = getpid();
    handle->failure = &handle->failure_store;
}

/* -EPERM in a child of the process that made it. */
static inline int handle_check(const struct handle *handle)
{
    if (handle->pid == getpid())
        return 0;
    return failure_set(handle->failure, -EPERM,
                       "forked: this handle belongs to process %d, of which this is a child",
                       (int)handle->pid);
}

#endif
