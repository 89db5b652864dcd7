/*
 * How a transform is given to a GPU: which kernel, and tiles that fill a block's
 * shared memory when there is much to do, and all of the GPU when there is not.
 */
#include "transform.h"

#define BLOCKS_WANTED 512     /* a few for each multiprocessor of a large GPU */
#define TILE_PIXELS_LEAST 512 /* a tile is not cut below twice that */
#define VECTOR_BYTES 16

/* Of a number above 0, in parts of at most b. */
static uint32_t divide_up(uint32_t a, uint32_t b)
{
    return (a - 1) / b + 1;
}

/* Tiles as even as their number allows. A piece of a row begins at a multiple of a vector. */
static void cut_tiles(const struct transform_work *work, struct transform_args *args)
{
    const uint32_t most = TRANSFORM_TILE_BYTES / (work->plan->dtype == PINCLIENT_F32 ? 4 : 2);
    /* An image of nothing would have a tile, too. */
    const uint32_t height = work->height ? work->height : 1, width = work->width ? work->width : 1;
    uint32_t rows = 1, columns = width;

    if (width > most) {
        columns = divide_up(width, divide_up(width, most));
        columns = divide_up(columns, VECTOR_BYTES) * VECTOR_BYTES;
    } else {
        rows = most / width;
    }
    if (rows > height)
        rows = height;
    while (rows > 1 && rows * columns >= 2 * TILE_PIXELS_LEAST &&
           work->samples * divide_up(height, rows) < BLOCKS_WANTED)
        rows = divide_up(rows, 2);
    args->tiles_across = divide_up(width, columns);
    args->tiles_down = divide_up(height, rows);
    args->columns = columns;
    args->rows = divide_up(height, args->tiles_down);
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
