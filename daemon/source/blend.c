/*
 * Blends. The table is made once: place by place it goes to the part that
 * would fall one draw behind its share the soonest, among those that the draw
 * does not put one ahead of it. Integer arithmetic only.
 */
#include "source/blend.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/order.h"

#define PART_KEY UINT64_C(0x9e3779b97f4a7c15)

typedef unsigned __int128 wide;

struct remainder {
    wide left;
    size_t part;
};

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The larger first, of equal ones the first. */
static int remainder_compare(const void *a, const void *b)
{
    const struct remainder *left = a, *right = b;

    if (left->left != right->left)
        return left->left < right->left ? 1 : -1;
    return left->part < right->part ? -1 : 1;
}

/* A part that got nothing takes from the one that has the most. */
static void shares_fill(uint32_t *shares, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        size_t most = 0;
        if (shares[k] > 0)
            continue;
        for (size_t i = 1; i < n; i++) {
            if (shares[i] > shares[most])
                most = i;
        }
        shares[most]--;
        shares[k] = 1;
    }
}

static void shares_by_remainder(const uint64_t *weights, size_t n, wide sum, uint32_t *shares)
{
    struct remainder remainders[BLEND_PARTS_MAX];
    uint32_t rest = BLEND_PERIOD_MAX;

    for (size_t k = 0; k < n; k++) {
        wide scaled = (wide)weights[k] * BLEND_PERIOD_MAX;
        shares[k] = (uint32_t)(scaled / sum);
        remainders[k] = (struct remainder){scaled % sum, k};
        rest -= shares[k];
    }
    qsort(remainders, n, sizeof *remainders, remainder_compare);
    for (uint32_t i = 0; i < rest; i++)
        shares[remainders[i].part]++;
    shares_fill(shares, n);
}

void blend_weights(const uint64_t *weights, size_t n, uint32_t *period_p, uint32_t *shares)
{
    uint64_t divisor = 0;
    wide sum = 0;

    for (size_t k = 0; k < n; k++) {
        divisor = gcd(weights[k], divisor);
        sum += weights[k];
    }
    if (sum / divisor > BLEND_PERIOD_MAX) {
        shares_by_remainder(weights, n, sum, shares);
        *period_p = BLEND_PERIOD_MAX;
        return;
    }
    for (size_t k = 0; k < n; k++)
        shares[k] = (uint32_t)(weights[k] / divisor);
    *period_p = (uint32_t)(sum / divisor);
}

/* Among the parts with count * T < (place + 1) * W, the one with the smallest (count + 1) / W. */
static size_t part_next(const struct blend *blend, const uint16_t *counts, uint64_t place)
{
    const struct blend_part *parts = blend->parts;
    size_t best = blend->n_parts;

    for (size_t k = 0; k < blend->n_parts; k++) {
        uint64_t count = counts[k], weight = parts[k].weight;
        if (count * blend->period >= (place + 1) * weight)
            continue;
        if (best == blend->n_parts ||
            (count + 1) * parts[best].weight < (counts[best] + UINT64_C(1)) * weight)
            best = k;
    }
    return best;
}

static int table_make(struct blend *blend, struct arena *arena, struct failure *failure)
{
    uint64_t periods = blend->samples / blend->period, rest = blend->samples % blend->period;
    uint16_t counts[BLEND_PARTS_MAX] = {0};

    int r =
        array_reserve(&blend->places, blend->period, sizeof(struct blend_place), arena, failure);
    if (r < 0)
        return r;
    struct blend_place *places = blend->places.items;
    for (uint32_t p = 0; p < blend->period; p++) {
        size_t part = part_next(blend, counts, p);
        places[p] = (struct blend_place){(uint16_t)part, counts[part]++};
        if (p < rest)
            blend->parts[part].draws++;
    }
    blend->places.n = blend->period;
    for (size_t k = 0; k < blend->n_parts; k++)
        blend->parts[k].draws += periods * blend->parts[k].weight;
    return 0;
}

int blend_init(struct blend *blend, const uint64_t *weights, const uint64_t *samples, size_t n,
               struct arena *arena, struct failure *failure)
{
    uint32_t shares[BLEND_PARTS_MAX];

    if (n == 0 || n > BLEND_PARTS_MAX)
        return failure_set(failure, -EINVAL,
                           "source %s: a blend of %zu parts; 1 to %d are possible", arena->name, n,
                           BLEND_PARTS_MAX);
    for (size_t k = 0; k < n; k++) {
        if (weights[k] == 0 || samples[k] == 0)
            return failure_set(failure, -EINVAL, "source %s: part %zu of the blend has no %s",
                               arena->name, k + 1, weights[k] ? "samples" : "weight");
    }
    blend->parts = calloc(n, sizeof *blend->parts);
    if (!blend->parts)
        return failure_set(failure, -ENOMEM, "source %s: no memory", arena->name);
    blend->n_parts = n;
    blend_weights(weights, n, &blend->period, shares);
    for (size_t k = 0; k < n; k++) {
        blend->parts[k] = (struct blend_part){.samples = samples[k], .weight = shares[k]};
        if (__builtin_add_overflow(blend->samples, samples[k], &blend->samples))
            return failure_set(failure, -E2BIG, "source %s: more than 2^64 samples", arena->name);
    }
    return table_make(blend, arena, failure);
}

void blend_deinit(struct blend *blend)
{
    free(blend->parts);
    array_deinit(&blend->places);
    *blend = (struct blend){0};
}

struct blend_draw blend_at(const struct blend *blend, uint64_t sample, struct sample_key key)
{
    const struct blend_place *place =
        (const struct blend_place *)blend->places.items + sample % blend->period;
    const struct blend_part *part = &blend->parts[place->part];
    uint64_t in_epoch = sample / blend->period * part->weight + place->rank;
    wide draw = (wide)key.epoch * part->draws + in_epoch;
    uint64_t own = (uint64_t)(draw % part->samples);

    if (key.shuffled)
        own = order_permute(key.seed ^ (place->part + UINT64_C(1)) * PART_KEY,
                            (uint64_t)(draw / part->samples), part->samples, own);
    return (struct blend_draw){place->part, own};
}
