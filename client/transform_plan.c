/*
 * What the 256 values of a byte become, channel by channel: (x / 255 - mean) /
 * std in double precision, rounded once to the output type. That table is the
 * definition.
 *
 * A GPU computes a line in single precision instead, whose operations IEEE 754
 * defines to the bit: so the same operations here, on every value, prove that a
 * line gives the table. One that is off at some value by a rounding is moved a
 * little and tried again; where none gives the table, the GPU gets the table.
 */
#include <math.h>
#include <string.h>

#include "transform.h"

#define LINE_TRIES 48 /* to either side */

size_t transform_dtype_bytes(enum pinclient_dtype dtype)
{
    switch (dtype) {
    case PINCLIENT_F32:
        return 4;
    case PINCLIENT_F16:
    case PINCLIENT_BF16:
        return 2;
    default:
        return 0;
    }
}

/* The bits of value in a binary format of fraction and exponent bits, rounded to the nearest, ties
 * to even. */
static uint32_t round_to(double value, unsigned fraction_bits, unsigned exponent_bits)
{
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint32_t infinite = ((1u << exponent_bits) - 1) << fraction_bits;
    const uint32_t sign = signbit(value) ? 1u << (fraction_bits + exponent_bits) : 0;
    int exponent;

    if (value == 0)
        return sign;
    if (isinf(value))
        return sign | infinite;
    frexp(value, &exponent); /* its fraction is of [0.5, 1) */
    if (exponent - 1 > bias)
        return sign | infinite;
    /* Subnormal values have the exponent of the least normal one, and fewer bits. */
    int biased = exponent - 1 + bias;
    if (biased < 1)
        biased = 1;
    double scaled = ldexp(fabs(value), (int)fraction_bits - (biased - bias));
    uint32_t units = (uint32_t)nearbyint(scaled);
    /* The leading bit, where there is one, counts the exponent up by one; a carry does likewise. */
    return sign | (((uint32_t)(biased - 1) << fraction_bits) + units);
}

static uint32_t value_bits(enum pinclient_dtype dtype, double value)
{
    switch (dtype) {
    case PINCLIENT_F16:
        return round_to(value, 10, 5);
    case PINCLIENT_BF16:
        return round_to(value, 7, 8);
    default:
        return round_to(value, 23, 8);
    }
}

/* As line_at() in transform.cu. */
static float line_at(const struct transform_line *line, unsigned x)
{
    return fmaf((float)x, line->a, line->b) + fmaf((float)x, line->c, line->d);
}

static bool line_gives(const struct transform_line *line, enum pinclient_dtype dtype,
                       const uint32_t *table)
{
    for (unsigned x = 0; x < 256; x++) {
        if (value_bits(dtype, (double)line_at(line, x)) != table[x])
            return false;
    }
    return true;
}

/* Tries the line as it is, and moved up and down by steps. */
static bool line_move(struct transform_line *line, double step, enum pinclient_dtype dtype,
                      const uint32_t *table)
{
    const double d = (double)line->d;

    for (int i = 0; i <= 2 * LINE_TRIES; i++) {
        int away = i % 2 ? (i + 1) / 2 : -(i / 2);
        line->d = (float)(d + away * step);
        if (line_gives(line, dtype, table))
            return true;
    }
    return false;
}

/* A line for slope * x + origin, or false. a and b are multiples of a step so coarse that the sum
 * of the first part never needs more than a float's 24 bits. */
static bool line_find(struct transform_line *line, enum pinclient_dtype dtype, double slope,
                      double origin, const uint32_t *table)
{
    int exponent;

    frexp(fmax(fabs(origin), fabs(slope * 255 + origin)), &exponent);
    for (int bits = 24; bits >= 23; bits--) {
        double step = ldexp(1, exponent - bits);
        *line = (struct transform_line){
            .a = (float)(nearbyint(slope / step) * step),
            .b = (float)(nearbyint(origin / step) * step),
        };
        line->c = (float)(slope - (double)line->a);
        line->d = (float)(origin - (double)line->b);
        /* For single precision the rounding of the second part decides, else that of the sum. */
        if (line_move(line, dtype == PINCLIENT_F32 ? ldexp(step, -19) : step / 4, dtype, table))
            return true;
    }
    return false;
}

bool transform_plan_fits(const struct transform_plan *plan, enum pinclient_dtype dtype,
                         uint32_t channels, const double *mean, const double *std)
{
    return plan->dtype == dtype && plan->channels == channels &&
           memcmp(plan->mean, mean, channels * sizeof *mean) == 0 &&
           memcmp(plan->std, std, channels * sizeof *std) == 0;
}

void transform_plan_make(struct transform_plan *plan, enum pinclient_dtype dtype, uint32_t channels,
                         const double *mean, const double *std)
{
    memset(plan, 0, sizeof *plan);
    plan->dtype = dtype;
    plan->channels = channels;
    plan->by_line = true;
    for (uint32_t c = 0; c < channels; c++) {
        plan->mean[c] = mean[c];
        plan->std[c] = std[c];
        for (unsigned x = 0; x < 256; x++)
            plan->table[c][x] = value_bits(dtype, (x / 255.0 - mean[c]) / std[c]);
        if (plan->by_line)
            plan->by_line = line_find(&plan->line[c], dtype, 1 / (255 * std[c]), -mean[c] / std[c],
                                      plan->table[c]);
    }
}
