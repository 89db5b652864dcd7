/*
 * The resizer: identity, known values, windows and mirrors against the whole,
 * and every kernel against the plain one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "decode/resize.h"

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)random_state * n >> 32);
}

static struct resize_span span_of(uint32_t size, uint32_t full)
{
    return (struct resize_span){.size = size, .length = size, .full = full, .count = full};
}

/* An RGBX image with slack, whose fourth bytes are as random as the others. */
static uint8_t *image_new(uint32_t w, uint32_t h)
{
    size_t bytes = (size_t)w * h * RESIZE_PIXEL;
    uint8_t *image = malloc(bytes + RESIZE_SLACK);

    assert_non_null(image);
    for (size_t i = 0; i < bytes + RESIZE_SLACK; i++)
        image[i] = (uint8_t)random_below(256);
    return image;
}

/* Resizes and checks that nothing is written behind the result. */
static uint8_t *resize(struct resizer *resizer, const uint8_t *image, uint32_t w,
                       const struct resize_span *x, const struct resize_span *y)
{
    size_t bytes = (size_t)x->count * y->count * 3;
    uint8_t *out = malloc(bytes + 64);

    assert_non_null(out);
    memset(out, 0xa5, bytes + 64);
    assert_int_equal(resizer_begin(resizer, x, y), 0);
    for (uint32_t at = resizer->y.first; at < resizer->y.last;) {
        const uint8_t *rows[7];
        uint32_t n = 1 + random_below(7);

        for (uint32_t i = 0; i < n; i++) {
            uint32_t row = at + i < resizer->y.last ? at + i : at;

            rows[i] = image + ((size_t)row * w + resizer->x.first) * RESIZE_PIXEL;
        }
        resizer_rows(resizer, rows, n);
        at += n;
    }
    resizer_end(resizer, out);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(out[bytes + i], 0xa5);
    return out;
}

static void test_identity(void **state)
{
    struct resizer resizer = {0};
    struct resize_span x = span_of(37, 37), y = span_of(23, 23);
    uint8_t *image = image_new(37, 23), *out = resize(&resizer, image, 37, &x, &y);

    (void)state;
    for (size_t i = 0; i < 37u * 23u; i++)
        assert_memory_equal(out + i * 3, image + i * RESIZE_PIXEL, 3);
    free(image);
    free(out);
    resizer_deinit(&resizer);
}

/* One row of gray values, resized: Pillow's results. */
static void check_row(enum resize_filter filter, const uint8_t *from, uint32_t n, const uint8_t *to,
                      uint32_t count)
{
    struct resizer resizer = {0};
    struct resize_span x = span_of(n, count), y = span_of(1, 1);
    uint8_t *image = image_new(n, 1), *out;

    x.filter = y.filter = filter;

    for (uint32_t i = 0; i < n; i++)
        memset(image + (size_t)i * RESIZE_PIXEL, from[i], 3);
    out = resize(&resizer, image, n, &x, &y);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t c = 0; c < 3; c++)
            assert_int_equal(out[i * 3 + c], to[i]);
    free(image);
    free(out);
    resizer_deinit(&resizer);
}

static void test_values(void **state)
{
    static const uint8_t wave[10] = {0, 255, 17, 200, 90, 91, 3, 254, 128, 60};

    (void)state;
    check_row(RESIZE_BILINEAR, wave, 10, (const uint8_t[]){122, 101, 124}, 3);
    check_row(RESIZE_BILINEAR, wave, 10, (const uint8_t[]){88, 121, 146, 91, 63, 193, 84}, 7);
    check_row(RESIZE_BILINEAR, wave, 10,
              (const uint8_t[]){0, 128, 215, 57, 109, 182, 108, 91, 76, 18, 129, 233, 149, 94, 60},
              15);
    check_row(RESIZE_BILINEAR, wave, 10, (const uint8_t[]){111}, 1);
    check_row(RESIZE_BICUBIC, wave, 10, (const uint8_t[]){119, 102, 125}, 3);
    check_row(RESIZE_BICUBIC, wave, 10, (const uint8_t[]){91, 124, 147, 89, 54, 205, 75}, 7);
    check_row(RESIZE_BICUBIC, wave, 10,
              (const uint8_t[]){0, 134, 239, 38, 101, 197, 105, 89, 78, 0, 131, 254, 150, 85, 56},
              15);
    check_row(RESIZE_BICUBIC, wave, 10, (const uint8_t[]){111}, 1);
}

/* What one direction of a random case does. */
static struct resize_span random_span(uint32_t *size_p)
{
    uint32_t size = 1 + random_below(300), from = random_below(size);
    uint32_t full = 1 + random_below(120);
    struct resize_span span = {.origin = from, .size = size - from, .full = full};

    span.count = 1 + random_below(full);
    span.window = random_below(full - span.count + 1);
    span.mirrored = random_below(2);
    span.filter = random_below(2) ? RESIZE_BICUBIC : RESIZE_BILINEAR;
    span.from = random_below(2) ? 0.0 : random_below(8) / 8.0;
    span.length = span.size - span.from;
    if (span.length > 1 && random_below(2))
        span.length -= random_below(8) / 8.0;
    *size_p = size;
    return span;
}

static void test_kernels(void **state)
{
    struct resizer plain = {.kernel = &resize_kernel_plain};
    struct resizer fast = {.kernel = resize_kernel_avx2()};

    (void)state;
    if (!fast.kernel)
        skip();
    assert_ptr_equal(resize_kernel_best(), fast.kernel);
    for (int i = 0; i < 1000; i++) {
        uint32_t w, h;
        struct resize_span x = random_span(&w), y = random_span(&h);
        uint8_t *image = image_new(w, h);
        uint8_t *slow_out = resize(&plain, image, w, &x, &y);
        uint8_t *fast_out = resize(&fast, image, w, &x, &y);

        assert_memory_equal(slow_out, fast_out, (size_t)x.count * y.count * 3);
        free(image);
        free(slow_out);
        free(fast_out);
    }
    resizer_deinit(&plain);
    resizer_deinit(&fast);
}

/* A window is a part of the whole, and a mirrored one its mirror image. */
static void test_windows(void **state)
{
    struct resizer resizer = {0};

    (void)state;
    for (int i = 0; i < 200; i++) {
        uint32_t w, h;
        struct resize_span x = random_span(&w), y = random_span(&h);
        struct resize_span all_x = x, all_y = y;
        uint8_t *image = image_new(w, h), *part, *whole;

        all_x.window = all_y.window = 0;
        all_x.count = x.full;
        all_y.count = y.full;
        all_x.mirrored = all_y.mirrored = false;
        part = resize(&resizer, image, w, &x, &y);
        whole = resize(&resizer, image, w, &all_x, &all_y);
        for (uint32_t row = 0; row < y.count; row++)
            for (uint32_t column = 0; column < x.count; column++) {
                uint32_t at_y = y.window + (y.mirrored ? y.count - 1 - row : row);
                uint32_t at_x = x.window + (x.mirrored ? x.count - 1 - column : column);

                assert_memory_equal(part + ((size_t)row * x.count + column) * 3,
                                    whole + ((size_t)at_y * x.full + at_x) * 3, 3);
            }
        free(image);
        free(part);
        free(whole);
    }
    resizer_deinit(&resizer);
}

/* White stays white and black black, whatever the rounding of coefficients. */
static void test_flat(void **state)
{
    struct resizer resizer = {0};

    (void)state;
    for (int i = 0; i < 300; i++) {
        uint32_t w, h;
        struct resize_span x = random_span(&w), y = random_span(&h);
        size_t bytes = (size_t)w * h * RESIZE_PIXEL;
        uint8_t *image = image_new(w, h), *out;

        memset(image, i % 2 ? 255 : 0, bytes);
        out = resize(&resizer, image, w, &x, &y);
        for (size_t k = 0; k < (size_t)x.count * y.count * 3; k++)
            assert_int_equal(out[k], i % 2 ? 255 : 0);
        free(image);
        free(out);
    }
    resizer_deinit(&resizer);
}

/* Only what is needed of a large image: 2 of 60,000 rows. */
static void test_need(void **state)
{
    struct resizer resizer = {0};
    struct resize_span x = span_of(100, 100), y = span_of(60000, 30000);

    (void)state;
    y.window = 20000;
    y.count = 1;
    x.window = 10;
    x.count = 5;
    assert_int_equal(resizer_begin(&resizer, &x, &y), 0);
    assert_int_equal(resizer.x.first, 10);
    assert_int_equal(resizer.x.last, 15);
    assert_int_equal(resizer.y.first, 39999);
    assert_int_equal(resizer.y.last, 40003);
    resizer_deinit(&resizer);
}

static void test_rows(void **state)
{
    struct rows rows = {0};

    (void)state;
    for (size_t pixels = 1; pixels < 3000; pixels = pixels * 3 + 1) {
        assert_int_equal(rows_reserve(&rows, pixels), 0);
        for (size_t i = 0; i < ROWS_MAX; i++)
            memset(rows.row[i], 1, pixels * RESIZE_PIXEL + RESIZE_SLACK);
        assert_true(rows.row[1] >= rows.row[0] + pixels * RESIZE_PIXEL + RESIZE_SLACK);
    }
    assert_int_equal(rows_reserve(&rows, 5), 0);
    rows_deinit(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity), cmocka_unit_test(test_values),
        cmocka_unit_test(test_kernels),  cmocka_unit_test(test_windows),
        cmocka_unit_test(test_flat),     cmocka_unit_test(test_need),
        cmocka_unit_test(test_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
