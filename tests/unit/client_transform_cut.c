/*
 * client/transform_cut.c: the kernel for the work, and tiles that cover it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/transform.h"

static struct transform_plan plan = {.dtype = PINCLIENT_F32, .channels = 3, .by_line = true};

static struct transform_work work_of(uint64_t samples, uint32_t height, uint32_t width)
{
    return (struct transform_work){
        .plan = &plan,
        .in = (const uint8_t *)4096,
        .out = (void *)8192,
        .in_stride = (uint64_t)height * width * plan.channels,
        .samples = samples,
        .height = height,
        .width = width,
        .layout = PINCLIENT_NCHW,
    };
}

static void test_tiles_cover(void **state)
{
    static const uint32_t sizes[][2] = {{224, 224},  {1, 1},    {7, 7},    {225, 225},  {1, 100000},
                                        {100000, 1}, {3, 2048}, {3, 2049}, {600, 1000}, {2, 4104}};
    static const uint64_t counts[] = {1, 7, 256, 100000};
    struct transform_args args;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
            struct transform_work work = work_of(counts[j], sizes[i][0], sizes[i][1]);
            transform_cut(&work, &args);
            assert_true(args.rows >= 1 && args.columns >= 1);
            assert_true(args.rows * args.columns <= TRANSFORM_TILE_BYTES / 4);
            assert_true((uint64_t)args.rows * args.tiles_down >= work.height);
            assert_true((uint64_t)args.rows * (args.tiles_down - 1) < work.height);
            assert_true((uint64_t)args.columns * args.tiles_across >= work.width);
            assert_true((uint64_t)args.columns * (args.tiles_across - 1) < work.width);
            /* A tile is whole rows or a piece of one, which begins at a vector. */
            assert_true(args.columns == work.width || (args.rows == 1 && args.columns % 16 == 0));
        }
    }
}

/* Little work is cut smaller, for all of the GPU to have some. */
static void test_small_batches(void **state)
{
    struct transform_args args;
    struct transform_work large = work_of(256, 224, 224), small = work_of(1, 224, 224);

    (void)state;
    transform_cut(&large, &args);
    assert_int_equal(args.rows, 9);
    assert_int_equal(args.tiles_down, 25);
    transform_cut(&small, &args);
    assert_in_range(args.rows, 1, 4);
    assert_true(args.tiles_down >= 56);
}

static void test_kernel(void **state)
{
    struct transform_args args;
    struct transform_work work = work_of(2, 16, 20);

    (void)state;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_NCHW_3);
    work.layout = PINCLIENT_NHWC;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_NHWC_3);
    plan.channels = 2;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_ANY);
    plan.channels = 1;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_NCHW_1);
    plan.channels = 4;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_NHWC_4);
    plan.channels = 3;
    work.layout = PINCLIENT_NCHW;
    /* 16 bytes hold 4 elements of 4 bytes, and 8 of 2. */
    plan.dtype = PINCLIENT_F16;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_ANY);
    work.width = 24;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_NCHW_3);
    work.out = (void *)8194;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_ANY);
    work.out = (void *)8192;
    work.in = (const uint8_t *)4100;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_ANY);
    work.in = (const uint8_t *)4096;
    work.in_stride += 4;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_ANY);
    work.in_stride += 4;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_NCHW_3);
    plan.by_line = false;
    assert_int_equal(transform_cut(&work, &args), TRANSFORM_ANY);
    plan.by_line = true;
    plan.dtype = PINCLIENT_F32;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_cover),
        cmocka_unit_test(test_small_batches),
        cmocka_unit_test(test_kernel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
