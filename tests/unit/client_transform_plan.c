/*
 * client/transform_plan.c: the table against values of the output type next to
 * it, and the line against the table.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/transform.h"

static const enum pinclient_dtype types[] = {PINCLIENT_F32, PINCLIENT_F16, PINCLIENT_BF16};
static struct transform_plan plan;

/* What the bits of a finite value say, in a format of fraction and exponent bits. */
static double decode(uint32_t bits, int fraction_bits, int exponent_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint32_t exponent = bits >> fraction_bits & ((1u << exponent_bits) - 1);
    double fraction = bits & ((1u << fraction_bits) - 1);
    double sign = bits >> (fraction_bits + exponent_bits) ? -1 : 1;

    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + ldexp(1, fraction_bits), (int)exponent - bias - fraction_bits);
}

static double decode_as(enum pinclient_dtype dtype, uint32_t bits)
{
    switch (dtype) {
    case PINCLIENT_F16:
        return decode(bits, 10, 5);
    case PINCLIENT_BF16:
        return decode(bits, 7, 8);
    default:
        return decode(bits, 23, 8);
    }
}

/* No neighbour is nearer, and none as near has an even last bit where this one's is odd. */
static void assert_nearest(enum pinclient_dtype dtype, uint32_t bits, double exact)
{
    uint32_t sign = dtype == PINCLIENT_F32 ? 0x80000000 : 0x8000;
    double distance = fabs(decode_as(dtype, bits) - exact);
    uint32_t size = bits & ~sign;

    if (size > 0) {
        double below = fabs(decode_as(dtype, bits - 1) - exact);
        assert_true(distance < below || (distance == below && bits % 2 == 0));
    } else {
        assert_true(exact == 0 || distance <= fabs(decode_as(dtype, bits + 1) - exact));
    }
    double above = fabs(decode_as(dtype, bits + 1) - exact);
    assert_true(distance < above || (distance == above && bits % 2 == 0));
}

static void assert_table(const double *mean, const double *std)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        transform_plan_make(&plan, types[i], 4, mean, std);
        for (uint32_t c = 0; c < 4; c++) {
            for (uint32_t x = 0; x < 256; x++)
                assert_nearest(types[i], plan.table[c][x], (x / 255.0 - mean[c]) / std[c]);
        }
    }
}

static void test_values_are_the_nearest(void **state)
{
    static const double means[][4] = {{0.485, 0.456, 0.406, 0.5},
                                      {0, 0, 0, 0},
                                      {0.4914, 0.4822, 0.4465, 0.1307},
                                      {128 / 255.0, 1, -3, 1e-4},
                                      {0, 0.5, 0, 0}};
    static const double stds[][4] = {{0.229, 0.224, 0.225, 0.5},
                                     {1, 1 / 255.0, 0.5, -1},
                                     {0.247, 0.2435, 0.2616, 0.3081},
                                     {0.01, 0.1, 7, 3},
                                     {1000, 30000, 1e4, 4096}};

    (void)state;
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++)
        assert_table(means[i], stds[i]);
    /* Single precision is the compiler's to check. */
    transform_plan_make(&plan, PINCLIENT_F32, 3, means[0], stds[0]);
    for (uint32_t x = 0; x < 256; x++) {
        float y = (float)((x / 255.0 - 0.485) / 0.229);
        assert_memory_equal(&plan.table[0][x], &y, sizeof y);
    }
}

static void test_known_bits(void **state)
{
    const double zero = 0, one = 1;

    (void)state;
    transform_plan_make(&plan, PINCLIENT_F16, 1, &zero, &one);
    assert_int_equal(plan.table[0][0], 0);
    assert_int_equal(plan.table[0][255], 0x3c00);
    assert_int_equal(plan.table[0][51], 0x3266); /* 0.2 */
    transform_plan_make(&plan, PINCLIENT_BF16, 1, &one, &one);
    assert_int_equal(plan.table[0][0], 0xbf80);
    assert_int_equal(plan.table[0][255], 0);
}

static void test_infinite_and_subnormal(void **state)
{
    const double zero = 0, half = 0.5, small = 1e-6, huge = 1e300, tiny = 1e-310;
    const double least = 5.9604644775390625e-8; /* of half precision */

    (void)state;
    transform_plan_make(&plan, PINCLIENT_F16, 1, &half, &small);
    assert_int_equal(plan.table[0][0], 0xfc00);
    assert_int_equal(plan.table[0][255], 0x7c00);
    transform_plan_make(&plan, PINCLIENT_F32, 1, &half, &tiny);
    assert_int_equal(plan.table[0][0], 0xff800000);
    assert_false(plan.by_line);
    transform_plan_make(&plan, PINCLIENT_F32, 1, &zero, &huge);
    assert_int_equal(plan.table[0][255], 0);
    /* 255 / 255 becomes the least value there is, 127 / 255 less than half of it. */
    const double std = 1 / least;
    transform_plan_make(&plan, PINCLIENT_F16, 1, &zero, &std);
    assert_int_equal(plan.table[0][255], 1);
    assert_int_equal(plan.table[0][128], 1);
    assert_int_equal(plan.table[0][127], 0);
}

/* The usual ones go by line, and a line gives exactly the table. */
static void test_lines(void **state)
{
    static const double usual[][2] = {
        {0.485, 0.229},
        {0.456, 0.224},
        {0.406, 0.225},
        {0.5, 0.5},
        {0, 1},
        {0.48145466, 0.26862954},
        {0.4578275, 0.26130258},
        {0.1307, 0.3081},
        {0.40821073, 0.27577711},
        {0, 1 / 255.0},
        {0.5, 1 / 255.0},
        {123.675 / 255, 58.395 / 255},
    };

    (void)state;
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        for (size_t j = 0; j < sizeof types / sizeof types[0]; j++) {
            transform_plan_make(&plan, types[j], 1, &usual[i][0], &usual[i][1]);
            assert_true(plan.by_line);
            if (types[j] != PINCLIENT_F32)
                continue;
            for (uint32_t x = 0; x < 256; x++) {
                const struct transform_line *line = &plan.line[0];
                float y = fmaf((float)x, line->a, line->b) + fmaf((float)x, line->c, line->d);
                assert_true(y == (float)((x / 255.0 - usual[i][0]) / usual[i][1]));
            }
        }
    }
}

static void test_plan_fits(void **state)
{
    double mean[] = {0.1, 0.2, 0.3, 0.4}, std[] = {1, 2, 3, 4};

    (void)state;
    transform_plan_make(&plan, PINCLIENT_F16, 3, mean, std);
    assert_true(transform_plan_fits(&plan, PINCLIENT_F16, 3, mean, std));
    assert_false(transform_plan_fits(&plan, PINCLIENT_BF16, 3, mean, std));
    assert_false(transform_plan_fits(&plan, PINCLIENT_F16, 4, mean, std));
    mean[3] = 9;
    assert_true(transform_plan_fits(&plan, PINCLIENT_F16, 3, mean, std));
    std[2] = 5;
    assert_false(transform_plan_fits(&plan, PINCLIENT_F16, 3, mean, std));
}

static void test_dtype_bytes(void **state)
{
    (void)state;
    assert_int_equal(transform_dtype_bytes(PINCLIENT_F32), 4);
    assert_int_equal(transform_dtype_bytes(PINCLIENT_F16), 2);
    assert_int_equal(transform_dtype_bytes(PINCLIENT_BF16), 2);
    assert_int_equal(transform_dtype_bytes(PINCLIENT_U8), 0);
    assert_int_equal(transform_dtype_bytes(PINCLIENT_F64), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_the_nearest),
        cmocka_unit_test(test_known_bits),
        cmocka_unit_test(test_infinite_and_subnormal),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_plan_fits),
        cmocka_unit_test(test_dtype_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
