/*
 * What the stand-in's streams carry out, one after the other.
 */
#ifndef PINSERVE_TESTS_STREAM_H
#define PINSERVE_TESTS_STREAM_H

#include "driver.h"
#include "proto/list.h"

enum operation_kind { OPERATION_COPY, OPERATION_HOST, OPERATION_RECORD, OPERATION_WAIT };

struct operation {
    struct list link;
    enum operation_kind kind;
    void *target;
    const void *origin;
    size_t bytes;
    bool is_prompt; /* takes no extra time: the one before it in the batch did */
    CUhostFn function;
    void *user;
    CUevent event;
    uint64_t record;
};

/* Queues what *what says. */
CUresult stream_queue_locked(CUstream handle, const struct operation *what);

/* Carries a copy out; without the lock. */
void copy_run(const struct operation *operation);

#endif
