/*
 * client/transform_host.c: every byte value in every place, against its own
 * formula.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/transform.h"

static const enum pinclient_dtype types[] = {PINCLIENT_F32, PINCLIENT_F16, PINCLIENT_BF16};
static const double mean[] = {0.485, 0.456, 0.406, 0.5}, std[] = {0.229, 0.224, 0.225, -0.25};
static struct transform_plan plan;

static uint32_t element(const uint8_t *out, size_t i, size_t bytes)
{
    uint32_t wide;
    uint16_t narrow;

    if (bytes == 4) {
        memcpy(&wide, out + i * 4, 4);
        return wide;
    }
    memcpy(&narrow, out + i * 2, 2);
    return narrow;
}

static void assert_sample(const struct transform_work *work, const uint8_t *out, uint32_t n)
{
    const uint32_t channels = plan.channels, height = work->height, width = work->width;
    const size_t bytes = transform_dtype_bytes(plan.dtype);
    bool flip = work->flip && work->flip[n];

    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            for (uint32_t c = 0; c < channels; c++) {
                uint32_t from = flip ? width - 1 - x : x;
                size_t at = work->layout == PINCLIENT_NCHW
                                ? (((size_t)n * channels + c) * height + y) * width + x
                                : (((size_t)n * height + y) * width + x) * channels + c;
                uint8_t in =
                    work->in[n * work->in_stride + ((size_t)y * width + from) * channels + c];
                assert_int_equal(element(out, at, bytes), plan.table[c][in]);
            }
        }
    }
}

static void compare(uint32_t samples, uint32_t height, uint32_t width, const uint8_t *flip,
                    enum pinclient_layout layout)
{
    const size_t sample = (size_t)height * width * plan.channels, stride = sample + 5;
    const size_t out_bytes = samples * sample * transform_dtype_bytes(plan.dtype);
    uint8_t *in = malloc(samples * stride), *out = malloc(out_bytes + 1);

    assert_non_null(in);
    assert_non_null(out);
    for (size_t i = 0; i < samples * stride; i++)
        in[i] = (uint8_t)(i % 251 + i / 251);
    memset(out, 0xa5, out_bytes + 1);
    struct transform_work work = {.plan = &plan,
                                  .in = in,
                                  .out = out,
                                  .flip = flip,
                                  .in_stride = stride,
                                  .samples = samples,
                                  .height = height,
                                  .width = width,
                                  .layout = layout};
    transform_host(&work);
    for (uint32_t n = 0; n < samples; n++)
        assert_sample(&work, out, n);
    assert_int_equal(out[out_bytes], 0xa5);
    free(in);
    free(out);
}

static void test_all(void **state)
{
    static const uint8_t flip[] = {0, 1, 200};
    static const uint32_t sizes[][2] = {{1, 1}, {7, 7}, {16, 32}, {9, 33}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (uint32_t channels = 1; channels <= 4; channels++) {
            transform_plan_make(&plan, types[i], channels, mean, std);
            for (size_t j = 0; j < 4; j++) {
                compare(3, sizes[j][0], sizes[j][1], NULL, PINCLIENT_NCHW);
                compare(3, sizes[j][0], sizes[j][1], NULL, PINCLIENT_NHWC);
                compare(3, sizes[j][0], sizes[j][1], flip, PINCLIENT_NCHW);
                compare(3, sizes[j][0], sizes[j][1], flip, PINCLIENT_NHWC);
            }
        }
    }
}

/* Against the formula itself, in single precision. */
static void test_formula(void **state)
{
    uint8_t in[256 * 3];
    float out[256 * 3];

    (void)state;
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(i / 3);
    transform_plan_make(&plan, PINCLIENT_F32, 3, mean, std);
    struct transform_work work = {.plan = &plan,
                                  .in = in,
                                  .out = out,
                                  .in_stride = sizeof in,
                                  .samples = 1,
                                  .height = 16,
                                  .width = 16,
                                  .layout = PINCLIENT_NCHW};
    transform_host(&work);
    for (size_t c = 0; c < 3; c++) {
        for (size_t i = 0; i < 256; i++)
            assert_true(out[c * 256 + i] == (float)(((double)i / 255 - mean[c]) / std[c]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_formula),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
