/*
 * The rule from (seed, epoch, position) to a sample number, and from a step to
 * positions: no state, no list of samples. Everything here decides bytes:
 * a change of result needs a new ORDER_VERSION.
 */
#ifndef PINSERVE_CORE_ORDER_H
#define PINSERVE_CORE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/failure.h"

#define ORDER_VERSION 1

enum order_shuffle { ORDER_SHUFFLE_FULL, ORDER_SHUFFLE_NONE };
enum order_last { ORDER_LAST_DROP, ORDER_LAST_PAD, ORDER_LAST_PARTIAL };

enum sample_status { SAMPLE_OK = 0, SAMPLE_PADDING = 1, SAMPLE_SUBSTITUTE = 2, SAMPLE_BLANK = 3 };

/* What becomes of a sample whose bytes are bad. */
enum order_bad { ORDER_BAD_FAIL, ORDER_BAD_BLANK, ORDER_BAD_SUBSTITUTE };

struct order {
    enum order_shuffle shuffle;
    enum order_last last;
    uint64_t seed;
    uint64_t samples; /* N, of an epoch */
    uint32_t batch;   /* B, samples a rank and step */
    uint32_t rank, world;
    enum order_bad bad;
};

static inline bool order_same(const struct order *a, const struct order *b)
{
    return a->shuffle == b->shuffle && a->last == b->last && a->seed == b->seed &&
           a->samples == b->samples && a->batch == b->batch && a->rank == b->rank &&
           a->world == b->world && a->bad == b->bad;
}

/* One position of a rank's batch. */
struct order_item {
    uint64_t sample;
    enum sample_status status; /* SAMPLE_OK or SAMPLE_PADDING */
};

/* A place between batches: the next one is (epoch, step); step may equal the steps of the epoch,
 * then the epoch's end comes next. */
struct cursor {
    uint64_t epoch, step;
};

static inline bool cursor_before(struct cursor a, struct cursor b)
{
    return a.epoch != b.epoch ? a.epoch < b.epoch : a.step < b.step;
}

/* What a resume token says, without what text it came in. */
struct order_token {
    const char *dataset, *pipeline;
    uint64_t fingerprint;
    uint64_t seed;
    enum order_shuffle shuffle;
    enum order_last last;
    enum order_bad bad;
    uint64_t global_batch;
    uint64_t epoch, position;
};

/* Checks the order. -EINVAL names what is wrong: no samples; batch 0; world 0; rank not below
 * world; partial with world > 1; drop with batch * world > samples (citing both figures). */
int order_check(const struct order *order, struct failure *failure);

/* Steps of an epoch, the same for every rank. */
uint64_t order_steps(const struct order *order);

/* Samples of this rank's batch at step: batch, or fewer for the last one of partial. */
uint32_t order_count(const struct order *order, uint64_t step);

/* Samples of this rank in an epoch. */
uint64_t order_samples(const struct order *order);

/* Sample i of this rank's batch at (epoch, step), i below order_count. */
struct order_item order_at(const struct order *order, uint64_t epoch, uint64_t step, uint32_t i);

/* What is tried in place of a sample that is bad, n counting from 1: the sample n positions behind
 * it in the epoch's order, whoever's rank that is. false: no more, after ORDER_SUBSTITUTES_MAX of
 * them or once round. */
#define ORDER_SUBSTITUTES_MAX 64
bool order_substitute(const struct order *order, uint64_t epoch, uint64_t step, uint32_t i,
                      uint32_t n, uint64_t *sample_p);

/* The keyed permutation of [0, samples): 12 Feistel rounds, cycle-walking. */
uint64_t order_permute(uint64_t seed, uint64_t epoch, uint64_t samples, uint64_t position);

/* Where a job of this order, over this dataset and pipeline, goes on after token. -EINVAL when the
 * token is for other data, another pipeline, seed, shuffle, last, bad or global batch, naming both;
 * or when its position is not between two of this order's steps. */
int order_resume(const struct order *order, const char *dataset, uint64_t fingerprint,
                 const char *pipeline, const struct order_token *token, struct cursor *cursor_p,
                 struct failure *failure);

/* The global position at which (epoch, step) starts. */
uint64_t order_position(const struct order *order, uint64_t step);

#endif
