/*
 * Synthetic samples: bytes made from the sample's number alone, which look
 * random and cost little more than writing them. 32-bit words, each a mix of a
 * key of the sample and the word's place; blocks of a fixed number of words,
 * so that the compiler makes vector code of them.
 */
#include "source/kind.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proto/cleanup.h"

#define BLOCK_WORDS 64u
#define STEP UINT32_C(0x9e3779b9) /* from word to word before mixing; odd */
#define LABELS 1000

struct synthetic {
    uint32_t shape[SHAPE_DIMS_MAX];
    size_t n_dims;
    enum sample_dtype dtype;
    uint64_t bytes; /* of one sample */
};

struct key {
    uint32_t start, flip;
};

static struct key key_of(uint64_t sample)
{
    uint64_t x = (sample + 1) * UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (struct key){.start = (uint32_t)x, .flip = (uint32_t)(x >> 32)};
}

/* Shifts and additions only: a 32-bit product takes six instructions without SSE4. The second half
 * of the key comes in between: samples are no shifted copies of one sequence. */
static inline uint32_t word_mix(uint32_t x, uint32_t flip)
{
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    x += flip;
    x ^= x >> 15;
    x += x << 9;
    return x ^ x >> 14;
}

static void block_u8(struct key key, uint32_t *restrict out)
{
    for (uint32_t i = 0; i < BLOCK_WORDS; i++, key.start += STEP)
        out[i] = htole32(word_mix(key.start, key.flip));
}

/* Multiples of 2^-24 in [0, 1): exact in a float. */
static void block_f32(struct key key, float *restrict out)
{
    for (uint32_t i = 0; i < BLOCK_WORDS; i++, key.start += STEP)
        out[i] = (float)(int32_t)(word_mix(key.start, key.flip) >> 8) * 0x1p-24f;
}

static void block_fill(const struct synthetic *synthetic, struct key key, void *restrict block)
{
    if (synthetic->dtype == SAMPLE_F32)
        block_f32(key, block);
    else
        block_u8(key, block);
}

static int synthetic_fill(struct source *source, uint64_t index, struct sample_key sample_key,
                          void *out, int64_t *label_p, struct failure *failure)
{
    const struct synthetic *synthetic = source->index;
    struct key key = key_of(index);
    uint8_t *to = out;
    uint64_t left = synthetic->bytes;
    /* Its alignment is that of the widest vector; slots need none. */
    _Alignas(64) uint32_t block[BLOCK_WORDS];

    (void)sample_key;
    (void)failure;
    for (; left > 0; key.start += BLOCK_WORDS * STEP) {
        size_t size = left < sizeof block ? (size_t)left : sizeof block;
        block_fill(synthetic, key, block);
        memcpy(to, block, size);
        to += size;
        left -= size;
    }
    *label_p = (int64_t)(index % LABELS);
    return 0;
}

static int synthetic_read(struct source *source, uint64_t index, struct sample *sample,
                          struct failure *failure)
{
    const struct synthetic *synthetic = source->index;

    (void)failure;
    sample->bytes = NULL;
    sample->size = synthetic->bytes;
    sample->label = (int64_t)(index % LABELS);
    return 0;
}

static uint64_t synthetic_fingerprint(const struct synthetic *synthetic, uint64_t samples)
{
    char text[160];
    int n = snprintf(text, sizeof text, "synthetic %d %" PRIu64, (int)synthetic->dtype, samples);

    for (size_t i = 0; i < synthetic->n_dims; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %" PRIu32, synthetic->shape[i]);
    return XXH64(text, (size_t)n, 0);
}

static int synthetic_index(struct source *source, const struct source_spec *spec,
                           struct source_progress *progress, struct failure *failure)
{
    uint64_t bytes = spec->dtype == SAMPLE_F32 ? sizeof(float) : 1;

    if (spec->n_dims == 0 || spec->n_dims > SHAPE_DIMS_MAX)
        return failure_set(failure, -EINVAL, "source %s: a shape has 1 to %zu dimensions, not %zu",
                           source->name, SHAPE_DIMS_MAX, spec->n_dims);
    for (size_t i = 0; i < spec->n_dims; i++) {
        if (spec->shape[i] == 0)
            return failure_set(failure, -EINVAL, "source %s: dimension %zu of the shape is 0",
                               source->name, i + 1);
        if (__builtin_mul_overflow(bytes, spec->shape[i], &bytes) || bytes > RAW_SAMPLE_BYTES_MAX)
            return failure_set(failure, -E2BIG, "source %s: a sample would be over the 4 GiB limit",
                               source->name);
    }
    if (spec->samples == 0)
        return failure_set(failure, -EINVAL, "source %s: 0 samples asked for", source->name);

    struct synthetic *synthetic = calloc(1, sizeof *synthetic);
    if (!synthetic)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    source->index = synthetic;
    synthetic->n_dims = spec->n_dims;
    synthetic->dtype = spec->dtype;
    synthetic->bytes = bytes;
    memcpy(synthetic->shape, spec->shape, spec->n_dims * sizeof spec->shape[0]);
    source->samples = spec->samples;
    source->fingerprint = synthetic_fingerprint(synthetic, spec->samples);
    return source_progress_set(source, progress, source->samples, failure);
}

static bool synthetic_matches(const struct source *source, const struct source_spec *spec)
{
    const struct synthetic *synthetic = source->index;

    return synthetic->n_dims == spec->n_dims && synthetic->dtype == spec->dtype &&
           source->samples == spec->samples &&
           memcmp(synthetic->shape, spec->shape, spec->n_dims * sizeof spec->shape[0]) == 0;
}

static int synthetic_shape(const struct source *source, uint32_t *shape_p, size_t *n_dims_p,
                           enum sample_dtype *dtype_p)
{
    const struct synthetic *synthetic = source->index;

    memcpy(shape_p, synthetic->shape, synthetic->n_dims * sizeof shape_p[0]);
    *n_dims_p = synthetic->n_dims;
    *dtype_p = synthetic->dtype;
    return 0;
}

static const char *synthetic_sample_name(const struct source *source, uint64_t index, char *text,
                                         size_t size)
{
    snprintf(text, size, "%s: sample %" PRIu64, source->name, index);
    return text;
}

static void synthetic_free(struct source *source)
{
    free(source->index);
}

const struct source_ops source_synthetic_ops = {
    .name = "synthetic",
    .index = synthetic_index,
    .read = synthetic_read,
    .fill = synthetic_fill,
    .shape = synthetic_shape,
    .matches = synthetic_matches,
    .sample_name = synthetic_sample_name,
    .free = synthetic_free,
};
