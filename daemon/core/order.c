/*
 * The order. A position is permuted by a Feistel network over the smallest
 * power of two that holds all samples, walked until it falls among them again.
 * The two halves differ by at most one bit, so that the walk is shorter than
 * two steps on average. Integer arithmetic only: the same on every machine.
 */
#include "order.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ROUNDS 12
#define SAMPLES_MAX (UINT64_C(1) << 63)

static const char *const shuffle_names[] = {
    [ORDER_SHUFFLE_FULL] = "full",
    [ORDER_SHUFFLE_NONE] = "none",
};
static const char *const last_names[] = {
    [ORDER_LAST_DROP] = "drop",
    [ORDER_LAST_PAD] = "pad",
    [ORDER_LAST_PARTIAL] = "partial",
};

static const char *const bad_names[] = {
    [ORDER_BAD_FAIL] = "fail",
    [ORDER_BAD_BLANK] = "blank",
    [ORDER_BAD_SUBSTITUTE] = "substitute",
};

static uint64_t global_batch(const struct order *order)
{
    return (uint64_t)order->batch * order->world;
}

int order_check(const struct order *order, struct failure *failure)
{
    if (order->shuffle != ORDER_SHUFFLE_FULL && order->shuffle != ORDER_SHUFFLE_NONE)
        return failure_set(failure, -EINVAL, "shuffle %d is unknown", (int)order->shuffle);
    if (order->last != ORDER_LAST_DROP && order->last != ORDER_LAST_PAD &&
        order->last != ORDER_LAST_PARTIAL)
        return failure_set(failure, -EINVAL, "last %d is unknown", (int)order->last);
    if (order->bad != ORDER_BAD_FAIL && order->bad != ORDER_BAD_BLANK &&
        order->bad != ORDER_BAD_SUBSTITUTE)
        return failure_set(failure, -EINVAL, "bad %d is unknown", (int)order->bad);
    if (order->batch == 0)
        return failure_set(failure, -EINVAL, "batch is 0: a batch has at least one sample");
    if (order->world == 0)
        return failure_set(failure, -EINVAL, "world is 0: there is at least one rank");
    if (order->rank >= order->world)
        return failure_set(failure, -EINVAL, "rank %" PRIu32 " is not below world %" PRIu32,
                           order->rank, order->world);
    if (order->last == ORDER_LAST_PARTIAL && order->world > 1)
        return failure_set(failure, -EINVAL,
                           "last partial is for one rank only, world is %" PRIu32
                           ": take drop or pad",
                           order->world);
    if (order->samples == 0)
        return failure_set(failure, -EINVAL, "the dataset has no samples");
    if (order->samples > SAMPLES_MAX)
        return failure_set(failure, -EINVAL, "the dataset has %" PRIu64 " samples, more than 2^63",
                           order->samples);
    if (order->last == ORDER_LAST_DROP && global_batch(order) > order->samples)
        return failure_set(failure, -EINVAL,
                           "a step takes %" PRIu64 " samples (batch %" PRIu32 " on %" PRIu32
                           " ranks), the dataset has %" PRIu64 ": with last drop no step is left",
                           global_batch(order), order->batch, order->world, order->samples);
    return 0;
}

uint64_t order_steps(const struct order *order)
{
    uint64_t step = global_batch(order), whole = order->samples / step;

    if (order->last == ORDER_LAST_DROP)
        return whole;
    return whole + (order->samples % step != 0);
}

uint64_t order_position(const struct order *order, uint64_t step)
{
    return step * global_batch(order);
}

uint32_t order_count(const struct order *order, uint64_t step)
{
    uint64_t left;

    if (order->last != ORDER_LAST_PARTIAL)
        return order->batch;
    left = order->samples - order_position(order, step);
    return left < order->batch ? (uint32_t)left : order->batch;
}

uint64_t order_samples(const struct order *order)
{
    /* With partial there is one rank. */
    if (order->last == ORDER_LAST_PARTIAL)
        return order->samples;
    return order_steps(order) * order->batch;
}

static uint64_t item_position(const struct order *order, uint64_t step, uint32_t i)
{
    return order_position(order, step) + (uint64_t)i * order->world + order->rank;
}

/* A position behind the end of the epoch is one from its start. */
static uint64_t position_sample(const struct order *order, uint64_t epoch, uint64_t position)
{
    if (position >= order->samples)
        position %= order->samples;
    if (order->shuffle == ORDER_SHUFFLE_FULL)
        return order_permute(order->seed, epoch, order->samples, position);
    return position;
}

struct order_item order_at(const struct order *order, uint64_t epoch, uint64_t step, uint32_t i)
{
    uint64_t position = item_position(order, step, i);

    return (struct order_item){
        .sample = position_sample(order, epoch, position),
        .status = position < order->samples ? SAMPLE_OK : SAMPLE_PADDING,
    };
}

bool order_substitute(const struct order *order, uint64_t epoch, uint64_t step, uint32_t i,
                      uint32_t n, uint64_t *sample_p)
{
    uint64_t position = item_position(order, step, i);

    if (n > ORDER_SUBSTITUTES_MAX || n >= order->samples)
        return false;
    *sample_p = position_sample(order, epoch, position + n);
    return true;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x;
}

/* The top bits of a product, which depend on every bit of what was multiplied. */
static uint64_t round_bits(uint64_t half, uint64_t key, unsigned bits)
{
    uint64_t x = (half + key) * UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 32;
    return (x * UINT64_C(0xd1342543de82ef95)) >> (64 - bits);
}

uint64_t order_permute(uint64_t seed, uint64_t epoch, uint64_t samples, uint64_t position)
{
    uint64_t key = mix(mix(seed + UINT64_C(0x9e3779b97f4a7c15)) + epoch);
    uint64_t stride = mix(key + UINT64_C(0x9e3779b97f4a7c15)) | 1;
    unsigned bits, high_bits, low_bits;
    uint64_t high, low, low_mask, at = position;

    if (samples <= 1)
        return 0;
    bits = samples <= 2 ? 2 : 64 - (unsigned)__builtin_clzll(samples - 1);
    high_bits = bits / 2;
    low_bits = bits - high_bits;
    low_mask = (UINT64_C(1) << low_bits) - 1;
    do {
        uint64_t round_key = key;

        high = at >> low_bits;
        low = at & low_mask;
        for (int round = 0; round < ROUNDS; round += 2) {
            high ^= round_bits(low, round_key, high_bits);
            round_key += stride;
            low ^= round_bits(high, round_key, low_bits);
            round_key += stride;
        }
        at = high << low_bits | low;
    } while (at >= samples);
    return at;
}

int order_resume(const struct order *order, const char *dataset, uint64_t fingerprint,
                 const char *pipeline, const struct order_token *token, struct cursor *cursor_p,
                 struct failure *failure)
{
    uint64_t step = global_batch(order), end = order_position(order, order_steps(order));

    if (token->fingerprint != fingerprint)
        return failure_set(failure, -EINVAL,
                           "the token is for dataset %.120s (fingerprint %016" PRIx64
                           "), the job reads %.120s (fingerprint %016" PRIx64 ")%s",
                           token->dataset, token->fingerprint, dataset, fingerprint,
                           strcmp(token->dataset, dataset) == 0
                               ? ": its files, their sizes, seq or an option are others"
                               : "");
    if (strcmp(token->pipeline, pipeline) != 0)
        return failure_set(failure, -EINVAL,
                           "the token is for pipeline %.180s, the job has pipeline %.180s",
                           token->pipeline, pipeline);
    if (token->seed != order->seed)
        return failure_set(failure, -EINVAL,
                           "the token is for seed %" PRIu64 ", the job has seed %" PRIu64,
                           token->seed, order->seed);
    if (token->shuffle != order->shuffle || token->last != order->last)
        return failure_set(
            failure, -EINVAL,
            "the token is for shuffle %s and last %s, the job has shuffle %s and last %s",
            token->shuffle <= ORDER_SHUFFLE_NONE ? shuffle_names[token->shuffle] : "unknown",
            token->last <= ORDER_LAST_PARTIAL ? last_names[token->last] : "unknown",
            shuffle_names[order->shuffle], last_names[order->last]);
    if (token->bad != order->bad)
        return failure_set(failure, -EINVAL,
                           "the token is for bad samples %s, the job has bad samples %s",
                           token->bad <= ORDER_BAD_SUBSTITUTE ? bad_names[token->bad] : "unknown",
                           bad_names[order->bad]);
    if (token->global_batch != step)
        return failure_set(failure, -EINVAL,
                           "the token is for a global batch of %" PRIu64
                           " samples, the job has %" PRIu64 " (batch %" PRIu32 " on %" PRIu32
                           " ranks)",
                           token->global_batch, step, order->batch, order->world);
    if (token->position > end || token->position % step)
        return failure_set(failure, -EINVAL,
                           "the token's position %" PRIu64
                           " is not between two steps: they are %" PRIu64
                           " samples each and end at %" PRIu64,
                           token->position, step, end);
    *cursor_p = (struct cursor){.epoch = token->epoch, .step = token->position / step};
    return 0;
}
