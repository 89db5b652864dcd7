/*
 * How a transform is given to a GPU: which kernel, and tiles that fill a block's
 * shared memory when there is much to do, and all of the GPU when there is not.
 */
#include "transform.h"

#define BLOCKS_WANTED 512     /* a few for each multiprocessor of a large GPU */
#define TILE_PIXELS_LEAST 512 /* a tile is not cut below twice that */
#define VECTOR_BYTES 16

static uint32_t divide_up(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

/* Tiles as even as their number allows. A piece of a row begins at a multiple of a vector. */
static void cut_tiles(const struct transform_work *work, struct transform_args *args)
{
    uint32_t pieces = divide_up(work->width, TRANSFORM_TILE_PIXELS);

    args->columns = divide_up(work->width, pieces);
    if (pieces > 1)
        args->columns = divide_up(args->columns, VECTOR_BYTES) * VECTOR_BYTES;
    args->tiles_across = divide_up(work->width, args->columns);
    args->rows = pieces > 1 ? 1 : TRANSFORM_TILE_PIXELS / args->columns;
    if (args->rows > work->height)
        args->rows = work->height;
    while (args->rows > 1 && args->rows * args->columns >= 2 * TILE_PIXELS_LEAST &&
           work->samples * divide_up(work->height, args->rows) < BLOCKS_WANTED)
        args->rows = divide_up(args->rows, 2);
    args->tiles_down = divide_up(work->height, args->rows);
    args->rows = divide_up(work->height, args->tiles_down);
}

/* Whether whole vectors can be stored, and loaded from shared memory. */
static bool is_aligned(const struct transform_work *work)
{
    size_t in_vector = VECTOR_BYTES / transform_dtype_bytes(work->plan->dtype);

    return work->width % in_vector == 0 && (uintptr_t)work->in % in_vector == 0 &&
           work->in_stride % in_vector == 0 && (uintptr_t)work->out % VECTOR_BYTES == 0;
}

enum transform_kernel transform_cut(const struct transform_work *work, struct transform_args *args)
{
    const struct transform_plan *plan = work->plan;

    args->in = work->in;
    args->out = work->out;
    args->in_stride = work->in_stride;
    args->height = work->height;
    args->width = work->width;
    args->channels = plan->channels;
    cut_tiles(work, args);
    for (uint32_t c = 0; c < plan->channels; c++)
        args->line[c] = plan->line[c];
    if (!plan->by_line || !is_aligned(work))
        return TRANSFORM_ANY;
    switch (plan->channels) {
    case 1:
        return TRANSFORM_NCHW_1; /* in either layout */
    case 3:
        return work->layout == PINCLIENT_NCHW ? TRANSFORM_NCHW_3 : TRANSFORM_NHWC_3;
    case 4:
        return work->layout == PINCLIENT_NCHW ? TRANSFORM_NCHW_4 : TRANSFORM_NHWC_4;
    default:
        return TRANSFORM_ANY;
    }
}
