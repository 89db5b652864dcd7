/*
 * Blends: which part of a dataset a sample is drawn from, and which of the
 * part's own samples it is; a pure function of seed, epoch and sample number.
 * A change of result needs a new BLEND_VERSION.
 *
 * The weights become whole numbers W of sum T, the period. Sample s is drawn
 * from part k = table[s mod T], in which k stands W[k] times, spread evenly: in
 * the first p places its count differs from p * W[k] / T by less than one. An
 * epoch of N samples draws M[k] times from part k; s is draw number
 *   j = (s div T) * W[k] + (how often k stands in the table before s mod T)
 * of the epoch and g = epoch * M[k] + j of all epochs. Of the part's n[k]
 * samples this is number i = g mod n[k] of pass g div n[k]: so each is drawn
 * once before any is drawn twice, a small part repeats within an epoch, and a
 * large one goes on in the next. Where the order is shuffled, the sample at i
 * is taken from the pass's keyed permutation of the part.
 */
#ifndef PINSERVE_SOURCE_BLEND_H
#define PINSERVE_SOURCE_BLEND_H

#include <stddef.h>
#include <stdint.h>

#include "proto/failure.h"
#include "source/arena.h"
#include "source/source.h"

#define BLEND_VERSION 1
#define BLEND_PERIOD_MAX 65536
#define BLEND_PARTS_MAX 4096

struct blend_part {
    uint64_t samples; /* n, of its own; at least 1 */
    uint64_t draws;   /* M, in an epoch */
    uint32_t weight;  /* W, in a period; at least 1 */
};

/* Zeroed, there is none. */
struct blend {
    uint64_t samples; /* N, of an epoch: those of all parts */
    uint32_t period;  /* T */
    struct blend_part *parts;
    size_t n_parts;
    struct array places; /* the table: struct blend_place */
};

struct blend_place {
    uint16_t part;
    uint16_t rank; /* how often the part comes before in the table */
};

struct blend_draw {
    size_t part;
    uint64_t sample; /* of the part's own */
};

/* The weights, above 0 and of any unit, become the period's: as they are, reduced, where their sum
 * is at most BLEND_PERIOD_MAX; else that many are shared out by largest remainders, of equal ones
 * the first, and a part that got none takes one from the largest part, of equal ones the first. */
void blend_weights(const uint64_t *weights, size_t n, uint32_t *period_p, uint32_t *shares);

/* parts: samples are set; takes over neither. The table is charged to arena. -EINVAL names the
 * source; -E2BIG, -ENOMEM. Also after an error blend_deinit is called. */
int blend_init(struct blend *blend, const uint64_t *weights, const uint64_t *samples, size_t n,
               struct arena *arena, struct failure *failure);
void blend_deinit(struct blend *blend);

/* sample is below blend->samples. */
struct blend_draw blend_at(const struct blend *blend, uint64_t sample, struct sample_key key);

#endif
