/*
 * What the host passes to a kernel of transform.cu. Read by nvcc and by the C
 * compiler: plain types only.
 *
 * A block turns one tile: whole rows of one sample, or a piece of one row where
 * rows are long. Output tile and input tile are the same rows; in a mirrored
 * sample the input's piece lies at the other end of the row.
 */
#ifndef PINSERVE_CLIENT_TRANSFORM_KERNEL_H
#define PINSERVE_CLIENT_TRANSFORM_KERNEL_H

#include <stdint.h>

#define TRANSFORM_CHANNELS 4
#define TRANSFORM_THREADS 192     /* a block; a multiple of every count of channels */
#define TRANSFORM_TILE_BYTES 8192 /* of a channel's output, at most */
#define TRANSFORM_SAMPLES 8192    /* a launch: as many as there are bits in flips */

/* A channel's values as a line in two parts, each part one fused multiply-add: y = (x * a + b) +
 * (x * c + d). The first is exact, the second brings the bits that a and b have no room for. */
struct transform_line {
    float a, b, c, d;
};

struct transform_args {
    const uint8_t *in;
    void *out;
    const uint8_t *flip; /* memory of the GPU; NULL: flips holds */
    uint64_t in_stride;  /* bytes from sample to sample */
    uint32_t samples, height, width, channels;
    uint32_t rows, columns; /* of a full tile */
    uint32_t tiles_down, tiles_across;
    struct transform_line line[TRANSFORM_CHANNELS];
    uint32_t flips[TRANSFORM_SAMPLES / 32];
};

/* For the kernels that take everything: any width and alignment, and values that no line gives. */
struct transform_any_args {
    struct transform_args base;
    uint32_t planes;                         /* NCHW, else NHWC */
    uint32_t by_table;                       /* else by line */
    uint32_t table[TRANSFORM_CHANNELS][256]; /* the bits of the output type */
};

#endif
