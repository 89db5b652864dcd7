/*
 * Images turned into floats on the CPU, by the plan's table. Each combination of
 * element size and channels is compiled on its own, so that the loop over
 * channels is unrolled.
 */
#include <string.h>

#include "transform.h"

#define INLINE static inline __attribute__((always_inline))

INLINE void element_put(uint8_t *out, uint32_t bits, size_t bytes)
{
    uint16_t half = (uint16_t)bits;

    if (bytes == sizeof bits)
        memcpy(out, &bits, sizeof bits);
    else
        memcpy(out, &half, sizeof half);
}

/* A row: out is where its first pixel's first channel goes; elements of a pixel are channel_step
 * bytes apart, pixels pixel_step. */
INLINE void row_turn(const struct transform_work *work, const uint8_t *in, uint8_t *out, bool flip,
                     size_t channel_step, size_t pixel_step, size_t bytes, uint32_t channels)
{
    const uint32_t(*table)[256] = work->plan->table;
    ptrdiff_t step = flip ? -(ptrdiff_t)channels : (ptrdiff_t)channels;

    if (flip)
        in += (size_t)(work->width - 1) * channels;
    for (uint32_t x = 0; x < work->width; x++, in += step, out += pixel_step) {
        for (uint32_t c = 0; c < channels; c++)
            element_put(out + c * channel_step, table[c][in[c]], bytes);
    }
}

INLINE void work_turn(const struct transform_work *work, size_t bytes, uint32_t channels)
{
    const bool planes = work->layout == PINCLIENT_NCHW;
    const size_t plane = (size_t)work->height * work->width * bytes;
    const size_t channel_step = planes ? plane : bytes;
    const size_t pixel_step = planes ? bytes : bytes * channels;

    for (uint64_t i = 0; i < work->samples; i++) {
        const uint8_t *in = work->in + i * work->in_stride;
        uint8_t *out = (uint8_t *)work->out + i * plane * channels;
        bool flip = work->flip && work->flip[i];
        for (uint32_t y = 0; y < work->height; y++) {
            row_turn(work, in, out, flip, channel_step, pixel_step, bytes, channels);
            in += (size_t)work->width * channels;
            out += work->width * pixel_step;
        }
    }
}

void transform_host(const struct transform_work *work)
{
    const uint32_t channels = work->plan->channels;
    const bool wide = transform_dtype_bytes(work->plan->dtype) == 4;

    if (wide && channels == 3)
        work_turn(work, 4, 3);
    else if (wide)
        work_turn(work, 4, channels);
    else if (channels == 3)
        work_turn(work, 2, 3);
    else
        work_turn(work, 2, channels);
}
