/*
 * A batch for the workers, with somebody who waits for it.
 */
#ifndef PINSERVE_TESTS_BATCH_H
#define PINSERVE_TESTS_BATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>

#include "decode/workers.h"

struct batch {
    struct work work;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned times; /* that done was called */
};

static inline void on_done(struct work *work)
{
    struct batch *batch = work->user;

    pthread_mutex_lock(&batch->lock);
    batch->times++;
    pthread_cond_signal(&batch->ended);
    pthread_mutex_unlock(&batch->lock);
}

/* Waits for done; the batch may be submitted again then. */
static inline void batch_wait(struct batch *batch)
{
    pthread_mutex_lock(&batch->lock);
    while (batch->times == 0)
        pthread_cond_wait(&batch->ended, &batch->lock);
    assert_int_equal(batch->times, 1);
    batch->times = 0;
    pthread_mutex_unlock(&batch->lock);
}

static inline void batch_init(struct batch *batch, struct source *source,
                              const struct pipeline *pipeline, const struct layout *layout,
                              const struct order *order)
{
    *batch = (struct batch){.work = {.source = source,
                                     .pipeline = pipeline,
                                     .layout = layout,
                                     .order = order,
                                     .done = on_done}};
    batch->work.user = batch;
    batch->work.count = order->batch;
    batch->work.slot = calloc(1, layout->slot_bytes);
    assert_non_null(batch->work.slot);
    pthread_mutex_init(&batch->lock, NULL);
    pthread_cond_init(&batch->ended, NULL);
}

static inline void batch_deinit(struct batch *batch)
{
    free(batch->work.slot);
    pthread_mutex_destroy(&batch->lock);
    pthread_cond_destroy(&batch->ended);
}

#endif
