/*
 * Crops: which part of an image becomes the result. Everything is drawn from a
 * counter-based generator keyed by (seed, epoch, sample) and computed with
 * integers, so that a box depends on nothing else. Changes of result need a new
 * PIPELINE_VERSION.
 *
 * Fixed point: Q32 has 32 bits behind the point, Q62 has 62.
 */
#include "decode/image.h"
#include "source/draw.h"

#define PPM 1000000u
#define TRIES 10
#define BLOCK_FLIP 0x80000000u /* blocks below it are the tries of the box */

typedef unsigned __int128 u128;

/* Uniform in [0, n). */
static uint32_t draw_below(uint32_t word, uint32_t n)
{
    return (uint32_t)((uint64_t)word * n >> 32);
}

/* log2(x) in Q32, bit by bit; x > 0. */
static int64_t log2_q32(uint32_t x)
{
    int exponent = 31 - __builtin_clz(x);
    uint64_t m = (uint64_t)x << (62 - exponent); /* in [1, 2), Q62 */
    int64_t log = exponent;

    for (int bit = 0; bit < 32; bit++) {
        u128 square = (u128)m * m >> 62;

        log *= 2;
        if (square >> 63) {
            log |= 1;
            square >>= 1;
        }
        m = (uint64_t)square;
    }
    return log;
}

/* 2^x in Q32 for x in Q32, between -30 and 30. */
static uint64_t exp2_q32(int64_t x)
{
    /* 2^(2^-1), 2^(2^-2), ... in Q62. */
    static const uint64_t root[32] = {
        0x5a827999fcef3242, 0x4c1bf828c6dc54b8, 0x45cae0f1f545eb73, 0x42d561b3e6243d8a,
        0x4166c34c5615d0ec, 0x40b268f9de0183ba, 0x4058f6a7ecccd5b6, 0x402c6be96af2fb58,
        0x4016321b687027a8, 0x400b18178ba33b14, 0x40058bce410147e8, 0x4002c5d7bff71daf,
        0x400162e807ee7e5b, 0x4000b1730df6a524, 0x400058b9497b8152, 0x40002c5c955dd701,
        0x4000162e46d6f26c, 0x40000b1722757b1b, 0x4000058b90fd3e0c, 0x400002c5c86f3f26,
        0x40000162e433c79b, 0x400000b17218edd0, 0x40000058b90c3968, 0x4000002c5c860d54,
        0x400000162e4302d2, 0x4000000b17218073, 0x400000058b90bffc, 0x40000002c5c85fef,
        0x4000000162e42ff3, 0x40000000b17217f9, 0x4000000058b90bfc, 0x400000002c5c85fe,
    };
    int64_t whole = x >= 0 ? x >> 32 : -((-x + 0xffffffff) >> 32);
    uint32_t fraction = (uint32_t)(uint64_t)(x - whole * ((int64_t)1 << 32));
    uint64_t power = (uint64_t)1 << 62;

    for (int bit = 0; bit < 32; bit++)
        if (fraction >> (31 - bit) & 1)
            power = (uint64_t)((u128)power * root[bit] >> 62);
    return power >> (30 - whole);
}

/* The largest integer whose square is at most x. */
static uint64_t square_root(u128 x)
{
    uint64_t root = 0;

    for (uint64_t bit = (uint64_t)1 << 63; bit; bit >>= 1) {
        uint64_t next = root | bit;

        if ((u128)next * next <= x)
            root = next;
    }
    return root;
}

/* The square root of x, in Q64, rounded to an integer. */
static uint64_t side(u128 x)
{
    return (square_root(x) + 0x80000000u) >> 32;
}

/* a / b rounded to nearest, ties to even. */
static uint64_t divide_even(uint64_t a, uint64_t b)
{
    uint64_t quotient = a / b, twice = a % b * 2;

    return quotient + (twice > b || (twice == b && quotient % 2 == 1));
}

/* The whole image or, when its ratio is outside the bounds, its centre. */
static struct box crop_fallback(const struct pipeline *pipeline, uint32_t w, uint32_t h)
{
    struct box box = {0, 0, w, h};

    if ((uint64_t)w * PPM < (uint64_t)h * pipeline->ratio_min_ppm)
        box.h = (uint32_t)divide_even((uint64_t)w * PPM, pipeline->ratio_min_ppm);
    else if ((uint64_t)w * PPM > (uint64_t)h * pipeline->ratio_max_ppm)
        box.w = (uint32_t)divide_even((uint64_t)h * pipeline->ratio_max_ppm, PPM);
    box.w += box.w == 0;
    box.h += box.h == 0;
    box.x = (w - box.w) / 2;
    box.y = (h - box.h) / 2;
    return box;
}

struct box crop_random(const struct pipeline *pipeline, uint32_t w, uint32_t h, uint64_t seed,
                       uint64_t epoch, uint64_t sample)
{
    uint64_t key = draw_key(seed, epoch);
    uint64_t area_range = pipeline->area_max_ppm - pipeline->area_min_ppm;
    int64_t ratio_min = log2_q32(pipeline->ratio_min_ppm) - log2_q32(PPM);
    int64_t ratio_range = log2_q32(pipeline->ratio_max_ppm) - log2_q32(PPM) - ratio_min;

    for (uint32_t i = 0; i < TRIES; i++) {
        struct block random = draw(key, sample, i);
        uint64_t share = ((uint64_t)pipeline->area_min_ppm << 32) + area_range * random.word[0];
        u128 area = (u128)share * w * h / PPM; /* Q32, below 2^64 */
        uint64_t ratio =
            exp2_q32(ratio_min + (int64_t)((u128)(uint64_t)ratio_range * random.word[1] >> 32));
        uint64_t box_w = side(area * ratio);
        uint64_t box_h = side((area << 64) / ratio);

        if (box_w == 0 || box_w > w || box_h == 0 || box_h > h)
            continue;
        return (struct box){draw_below(random.word[2], w - (uint32_t)box_w + 1),
                            draw_below(random.word[3], h - (uint32_t)box_h + 1), (uint32_t)box_w,
                            (uint32_t)box_h};
    }
    return crop_fallback(pipeline, w, h);
}

bool crop_flip(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch, uint64_t sample)
{
    struct block random = draw(draw_key(seed, epoch), sample, BLOCK_FLIP);

    return draw_below(random.word[0], PPM) < pipeline->flip_ppm;
}

/* (a - b) / 2 rounded to nearest, ties to even, as Python's round() has it. */
static uint32_t half_even(uint32_t a, uint32_t b)
{
    return (uint32_t)divide_even(a - b, 2);
}

struct view crop_view(const struct pipeline *pipeline, uint32_t w, uint32_t h, uint64_t seed,
                      uint64_t epoch, uint64_t sample)
{
    struct view view = {.flip = crop_flip(pipeline, seed, epoch, sample)};

    if (pipeline->crop == CROP_KIND_RANDOM) {
        view.box = crop_random(pipeline, w, h, seed, epoch, sample);
        view.width = view.height = pipeline->size;
        return view;
    }
    view.box = (struct box){0, 0, w, h};
    view.width = view.height = pipeline->resize;
    if (w < h)
        view.height = (uint32_t)((uint64_t)pipeline->resize * h / w);
    else
        view.width = (uint32_t)((uint64_t)pipeline->resize * w / h);
    view.x = half_even(view.width, pipeline->size);
    view.y = half_even(view.height, pipeline->size);
    return view;
}

unsigned crop_scale(const struct view *view)
{
    unsigned scale = 3;

    while (scale > 0 && (view->box.w < (uint64_t)view->width << (scale + 1) ||
                         view->box.h < (uint64_t)view->height << (scale + 1)))
        scale--;
    return scale;
}
