/*
 * PNG: every colour type and depth becomes the right RGB; damaged files are bad
 * whatever the crop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode/image.h"
#include "images.h"

/* The image itself: a center crop of a square image at its own size. */
static int decode_same(struct decoder *decoder, const uint8_t *png, size_t size, uint32_t side,
                       uint8_t *out, struct failure *failure)
{
    struct pipeline pipeline = {.crop = CROP_KIND_CENTER, .size = side, .resize = side};

    assert_int_equal(pipeline_check(&pipeline, NULL), 0);
    return decoder_image(decoder, &pipeline, png, size, 0, 0, 0, out, "c1/a.png", failure);
}

/* A flat 2x2 image of one pixel's bytes. */
static void check_color(struct png_make make, const uint8_t *pixel, size_t bytes,
                        const uint8_t rgb[3])
{
    struct decoder *decoder = decoder_new();
    struct failure failure = {0};
    uint8_t pixels[4 * 8], out[2 * 2 * 3], *png;
    size_t size;

    make.w = make.h = 2;
    for (size_t i = 0; i < 4; i++)
        memcpy(pixels + i * bytes, pixel, bytes);
    png = image_png(&make, pixels, 4 * bytes, &size);
    assert_non_null(png);
    if (decode_same(decoder, png, size, 2, out, &failure) < 0)
        fail_msg("%s", failure.text);
    for (size_t i = 0; i < 4; i++)
        assert_memory_equal(out + i * 3, rgb, 3);
    free(png);
    decoder_free(decoder);
}

static void test_colors(void **state)
{
    const uint8_t gray_alpha[2] = {77, 0}, rgba[4] = {1, 2, 3, 0}, rgb[3] = {100, 150, 200};
    const uint16_t high = 0xff00, wide[3] = {0x1234, 0xff80, 0x00ff};
    const uint8_t index = 1, gray = 140;
    static const struct spng_plte palette = {
        2, {{.red = 9, .green = 9, .blue = 9}, {.red = 10, .green = 20, .blue = 30}}};

    (void)state;
    check_color((struct png_make){.color_type = SPNG_COLOR_TYPE_TRUECOLOR, .bit_depth = 8}, rgb, 3,
                rgb);
    check_color((struct png_make){.color_type = SPNG_COLOR_TYPE_GRAYSCALE, .bit_depth = 8}, &gray,
                1, (const uint8_t[]){140, 140, 140});
    check_color((struct png_make){.color_type = SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, .bit_depth = 8},
                gray_alpha, 2, (const uint8_t[]){77, 77, 77});
    check_color((struct png_make){.color_type = SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, .bit_depth = 8},
                rgba, 4, (const uint8_t[]){1, 2, 3});
    check_color((struct png_make){.color_type = SPNG_COLOR_TYPE_INDEXED,
                                  .bit_depth = 8,
                                  .palette = &palette},
                &index, 1, (const uint8_t[]){10, 20, 30});
    /* 16 bits: the high byte. */
    check_color((struct png_make){.color_type = SPNG_COLOR_TYPE_GRAYSCALE, .bit_depth = 16},
                (const uint8_t *)&high, 2, (const uint8_t[]){255, 255, 255});
    check_color((struct png_make){.color_type = SPNG_COLOR_TYPE_TRUECOLOR, .bit_depth = 16},
                (const uint8_t *)wide, 6, (const uint8_t[]){0x12, 0xff, 0});
    /* A gamma changes nothing. */
    check_color(
        (struct png_make){.color_type = SPNG_COLOR_TYPE_TRUECOLOR, .bit_depth = 8, .gamma = 0.02},
        rgb, 3, rgb);
}

/* An image of 1 bit a pixel: eight in a byte. */
static void test_bits(void **state)
{
    struct png_make make = {
        .w = 8, .h = 8, .color_type = SPNG_COLOR_TYPE_GRAYSCALE, .bit_depth = 1};
    struct decoder *decoder = decoder_new();
    uint8_t rows[8] = {0x80, 0xff, 0, 1, 2, 3, 0xaa, 0x55}, out[8 * 8 * 3], *png;
    size_t size;

    (void)state;
    png = image_png(&make, rows, sizeof rows, &size);
    assert_int_equal(decode_same(decoder, png, size, 8, out, NULL), 0);
    for (size_t y = 0; y < 8; y++)
        for (size_t x = 0; x < 8; x++)
            assert_int_equal(out[(y * 8 + x) * 3], rows[y] >> (7 - x) & 1 ? 255 : 0);
    free(png);
    decoder_free(decoder);
}

#define SIDE 61

/* Row by row and held whole, the same pixels; and the same crops. */
static void test_interlaced(void **state)
{
    struct png_make make = {
        .w = SIDE, .h = SIDE, .color_type = SPNG_COLOR_TYPE_TRUECOLOR, .bit_depth = 8};
    struct pipeline random = {.crop = CROP_KIND_RANDOM, .size = 30, .flip_ppm = 500000};
    struct decoder *decoder = decoder_new();
    struct decoder_counts counts;
    uint8_t *pixels = image_pixels(SIDE, SIDE, 3), out[2][SIDE * SIDE * 3], *png[2];
    size_t size[2];

    (void)state;
    assert_int_equal(pipeline_check(&random, NULL), 0);
    for (int i = 0; i < 2; i++) {
        make.interlaced = i;
        png[i] = image_png(&make, pixels, (size_t)SIDE * SIDE * 3, &size[i]);
        assert_int_equal(decode_same(decoder, png[i], size[i], SIDE, out[i], NULL), 0);
        assert_memory_equal(out[i], pixels, (size_t)SIDE * SIDE * 3);
    }
    for (uint64_t sample = 0; sample < 20; sample++) {
        for (int i = 0; i < 2; i++)
            assert_int_equal(decoder_image(decoder, &random, png[i], size[i], 1, 2, sample, out[i],
                                           "c1/a.png", NULL),
                             0);
        assert_memory_equal(out[0], out[1], 30 * 30 * 3);
    }
    decoder_counts_get(decoder, &counts);
    assert_int_equal(counts.png, 42);
    free(png[0]);
    free(png[1]);
    free(pixels);
    decoder_free(decoder);
}

static void check_bad(struct decoder *decoder, const uint8_t *png, size_t size, int code,
                      const char *text)
{
    struct failure failure = {0};
    uint8_t out[SIDE * SIDE * 3];

    if (decode_same(decoder, png, size, SIDE, out, &failure) != code)
        fail_msg("not %d but %d: %s", code, failure.code, failure.text);
    if (!strstr(failure.text, text))
        fail_msg("\"%s\" lacks \"%s\"", failure.text, text);
}

static void test_damaged(void **state)
{
    struct png_make make = {
        .w = SIDE, .h = SIDE, .color_type = SPNG_COLOR_TYPE_TRUECOLOR, .bit_depth = 8};
    struct decoder *decoder = decoder_new();
    uint8_t *pixels = image_pixels(SIDE, SIDE, 3);

    (void)state;
    for (int i = 0; i < 2; i++) {
        uint8_t *png;
        size_t size;

        make.interlaced = i;
        png = image_png(&make, pixels, (size_t)SIDE * SIDE * 3, &size);
        check_bad(decoder, png, size / 2, -EBADMSG, "c1/a.png: PNG: premature end of file");
        check_bad(decoder, png, 20, -EBADMSG, "c1/a.png: PNG: ");
        check_bad(decoder, png, 5, -EBADMSG, "c1/a.png: PNG: cut off after 5 bytes");
        png[size / 2] ^= 1;
        check_bad(decoder, png, size, -EBADMSG, "c1/a.png: PNG: ");
        free(png);
    }
    free(pixels);
    decoder_free(decoder);
}

/* CRC-32 as PNG has it. */
static uint32_t crc(const uint8_t *bytes, size_t size)
{
    uint32_t c = 0xffffffff;

    for (size_t i = 0; i < size; i++) {
        c ^= bytes[i];
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xedb88320 ^ c >> 1 : c >> 1;
    }
    return ~c;
}

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void test_dimensions(void **state)
{
    static const struct {
        uint32_t w, h;
        bool interlaced;
        const char *text;
    } cases[] = {
        {65500, 65500, false, "c1/a.png: 65500x65500 = 4290250000 pixels; the limit is 268435456"},
        {2147483647, 2147483647, false, "2147483647x2147483647 = 4611686014132420609 pixels"},
        {100000, 10, false, "100000x10 pixels; the limit is 65500 a side"},
        {8193, 8192, true,
         "the limit is 67108864 for progressive, interlaced, turned and WebP images"},
    };
    struct png_make make = {
        .w = SIDE, .h = SIDE, .color_type = SPNG_COLOR_TYPE_TRUECOLOR, .bit_depth = 8};
    struct decoder *decoder = decoder_new();
    uint8_t *pixels = image_pixels(SIDE, SIDE, 3);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t *png;
        size_t size;

        make.interlaced = cases[i].interlaced;
        png = image_png(&make, pixels, (size_t)SIDE * SIDE * 3, &size);
        put32(png + 16, cases[i].w);
        put32(png + 20, cases[i].h);
        put32(png + 29, crc(png + 12, 17));
        check_bad(decoder, png, size, -EFBIG, cases[i].text);
        free(png);
    }
    free(pixels);
    decoder_free(decoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_colors),     cmocka_unit_test(test_bits),
        cmocka_unit_test(test_interlaced), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_dimensions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
