/*
 * A source for the readers' tests: its samples come when the test lets them.
 * Sample i has gated->bytes bytes, all of them i.
 */
#ifndef PINSERVE_TESTS_GATED_H
#define PINSERVE_TESTS_GATED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "source/kind.h"
#include "source/reader.h"

#define GATED_SAMPLES 1024

struct gated {
    struct source source;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool shut;                /* no read ends */
    bool held[GATED_SAMPLES]; /* nor does that of these samples */
    bool warm;                /* all is in the page cache */
    size_t bytes;             /* of a sample */
    uint64_t large;           /* sample that has large_bytes instead */
    size_t large_bytes;
    uint64_t bad;                      /* sample that cannot be read */
    unsigned n_reads;                  /* that have begun */
    uint64_t reads[4 * GATED_SAMPLES]; /* the samples, in that order */
    unsigned told;                     /* calls of ready */
};

static inline struct gated *gated_of(struct source *source)
{
    return (struct gated *)source;
}

static inline int gated_bytes(struct gated *gated, uint64_t index, struct sample *sample,
                              struct failure *failure)
{
    size_t size = index == gated->large ? gated->large_bytes : gated->bytes;
    int r = sample_reserve(sample, size, "gated", failure);

    if (r < 0)
        return r;
    memset(sample->buffer, (int)index, size);
    sample->bytes = sample->buffer;
    sample->size = size;
    sample->label = (int64_t)index;
    return 0;
}

/* Notes a read and waits until it may end. */
static inline void gated_wait(struct gated *gated, uint64_t index)
{
    pthread_mutex_lock(&gated->lock);
    gated->reads[gated->n_reads++ % (4 * GATED_SAMPLES)] = index;
    pthread_cond_broadcast(&gated->change);
    while (gated->shut || gated->held[index])
        pthread_cond_wait(&gated->change, &gated->lock);
    pthread_mutex_unlock(&gated->lock);
}

static inline int gated_read(struct source *source, uint64_t index, struct sample *sample,
                             struct failure *failure)
{
    struct gated *gated = gated_of(source);

    gated_wait(gated, index);
    if (index == gated->bad)
        return failure_set(failure, -EIO, "sample %d: no bytes", (int)index);
    return gated_bytes(gated, index, sample, failure);
}

static inline int gated_try_read(struct source *source, uint64_t index, struct sample *sample,
                                 struct failure *failure)
{
    struct gated *gated = gated_of(source);

    pthread_mutex_lock(&gated->lock);
    bool warm = gated->warm;
    if (warm)
        gated->reads[gated->n_reads++ % (4 * GATED_SAMPLES)] = index;
    pthread_mutex_unlock(&gated->lock);
    return warm ? gated_bytes(gated, index, sample, failure) : 1;
}

static inline const char *gated_name(const struct source *source, uint64_t index, char *text,
                                     size_t size)
{
    (void)source;
    snprintf(text, size, "sample %d", (int)index);
    return text;
}

static const struct source_ops gated_ops = {
    .name = "gated", .read = gated_read, .try_read = gated_try_read, .sample_name = gated_name};

static inline void gated_init(struct gated *gated, size_t bytes)
{
    memset(gated, 0, sizeof *gated);
    gated->source = (struct source){.ops = &gated_ops, .refs = 1, .samples = GATED_SAMPLES};
    gated->bytes = bytes;
    gated->large = gated->bad = UINT64_MAX;
    pthread_mutex_init(&gated->lock, NULL);
    pthread_cond_init(&gated->change, NULL);
}

static inline void gated_deinit(struct gated *gated)
{
    assert_int_equal(gated->source.refs, 1);
    pthread_mutex_destroy(&gated->lock);
    pthread_cond_destroy(&gated->change);
}

static inline void gated_shut(struct gated *gated, bool shut)
{
    pthread_mutex_lock(&gated->lock);
    gated->shut = shut;
    pthread_cond_broadcast(&gated->change);
    pthread_mutex_unlock(&gated->lock);
}

static inline void gated_hold(struct gated *gated, uint64_t index, bool held)
{
    pthread_mutex_lock(&gated->lock);
    gated->held[index] = held;
    pthread_cond_broadcast(&gated->change);
    pthread_mutex_unlock(&gated->lock);
}

static inline unsigned gated_reads(struct gated *gated)
{
    pthread_mutex_lock(&gated->lock);
    unsigned n = gated->n_reads;
    pthread_mutex_unlock(&gated->lock);
    return n;
}

static inline void gated_on_ready(void *user)
{
    struct gated *gated = user;

    pthread_mutex_lock(&gated->lock);
    gated->told++;
    pthread_mutex_unlock(&gated->lock);
}

static inline unsigned gated_told(struct gated *gated)
{
    pthread_mutex_lock(&gated->lock);
    unsigned told = gated->told;
    pthread_mutex_unlock(&gated->lock);
    return told;
}

/* Batches of n in order, of all samples or the first ones. */
static inline struct order gated_order(uint32_t n, uint64_t samples)
{
    return (struct order){
        .samples = samples, .batch = n, .world = 1, .shuffle = ORDER_SHUFFLE_NONE};
}

static inline struct readers *readers_start(unsigned threads, uint64_t ahead)
{
    struct readers *readers = NULL;

    assert_int_equal(readers_new(threads, ahead, &readers, NULL), 0);
    return readers;
}

static inline struct readers_info info_of(struct readers *readers)
{
    struct readers_info info;

    readers_info_get(readers, &info);
    return info;
}

static inline void pause_ms(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

/* Waits up to 20 s; the test fails when the condition does not come true. */
#define wait_until(condition)                                                                      \
    do {                                                                                           \
        int tries = 0;                                                                             \
        while (!(condition) && ++tries < 20000)                                                    \
            pause_ms(1);                                                                           \
        if (tries >= 20000)                                                                        \
            fail_msg("not within 20 s: %s", #condition);                                           \
    } while (0)

/* When all streams are closed: waits until they are gone, with all that was read. */
static inline void readers_end(struct readers *readers)
{
    wait_until(info_of(readers).streams == 0);
    assert_int_equal(info_of(readers).bytes, 0);
    readers_free(readers);
}

/* Nothing more is read. */
static inline void wait_quiet(struct readers *readers)
{
    unsigned quiet = 0;

    for (int i = 0; i < 20000 && quiet < 20; i++) {
        quiet = info_of(readers).reading == 0 ? quiet + 1 : 0;
        pause_ms(1);
    }
}

/* Takes what is ready, bytes expected, and checks them. */
static inline struct taken take_bytes(struct intake *intake, uint64_t first, size_t bytes)
{
    struct taken taken;
    struct sample sample = {0};
    struct failure failure = {0};

    assert_true(intake_take(intake, &taken, &sample, &failure));
    assert_int_equal(taken.how, TAKEN_BYTES);
    assert_int_equal(taken.code, 0);
    assert_int_equal(sample.size, bytes);
    assert_int_equal(sample.label, first + taken.position);
    assert_int_equal(sample.bytes[0], (uint8_t)(first + taken.position));
    assert_int_equal(sample.bytes[bytes - 1], (uint8_t)(first + taken.position));
    assert_null(sample.grow);
    sample_deinit(&sample);
    return taken;
}

#endif
