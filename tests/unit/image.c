/*
 * The decoder as a whole: formats by their first bytes, results that depend on
 * nothing but what they are a function of, memory that does not grow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "decode/image.h"
#include "images.h"

#define SIZE 40
#define BYTES (SIZE * SIZE * 3)

static const struct pipeline random_crop = {.crop = CROP_KIND_RANDOM,
                                            .size = SIZE,
                                            .area_min_ppm = 80000,
                                            .area_max_ppm = 1000000,
                                            .ratio_min_ppm = 750000,
                                            .ratio_max_ppm = 1333333,
                                            .flip_ppm = 500000};

static void test_foreign(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *text;
    } cases[] = {
        {"", 0, "c1/x.JPEG: empty file"},
        {"BM\x36\0\0\0\0\0", 8, "c1/x.JPEG: is BMP data; only JPEG, PNG and WebP are decoded"},
        {"\x1f\x8b\x08\0\0\0", 6, "is gzip data"},
        {"\x28\xb5\x2f\xfd\0", 5, "is zstd data"},
        {"RIFF\x10\0\0\0WEBPVP8 ", 16, "c1/x.JPEG: WebP: premature end of file"},
        {"GIF89a\1\0", 8, "is GIF data"},
        {"II*\0\x08\0\0\0", 8, "is TIFF data"},
        {"\x89PNG", 4, "PNG: cut off after 4 bytes"},
        {"\x89", 1, "PNG: cut off after 1 bytes"},
        {"\xff\xd8", 2, "c1/x.JPEG: 2 bytes are no image"},
        {"\xff\xd8\xff", 3, "c1/x.JPEG: JPEG: "},
        {"hello, world", 12, "neither JPEG, PNG nor WebP; starts with bytes 68 65 6c 6c"},
    };
    struct decoder *decoder = decoder_new();
    uint8_t out[BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct failure failure = {0};

        assert_int_equal(decoder_image(decoder, &random_crop, (const uint8_t *)cases[i].bytes,
                                       cases[i].size, 0, 0, 0, out, "c1/x.JPEG", &failure),
                         -EBADMSG);
        assert_int_equal(failure.code, -EBADMSG);
        if (!strstr(failure.text, cases[i].text))
            fail_msg("\"%s\" lacks \"%s\"", failure.text, cases[i].text);
    }
    decoder_free(decoder);
}

/* Two decoders with different histories give the same bytes, and write nothing behind them. */
static void test_pure(void **state)
{
    struct decoder *one = decoder_new(), *other = decoder_new();
    uint8_t out[BYTES + 64], again[BYTES];

    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        struct jpeg_make make = {.w = 30 + image_noise(i) % 300,
                                 .h = 30 + image_noise(i + 100) % 300,
                                 .components = 3,
                                 .horizontal = 2,
                                 .vertical = 2};
        size_t size;
        uint8_t *jpeg = image_jpeg(&make, NULL, &size);

        memset(out, 0xa5, sizeof out);
        assert_int_equal(decoder_image(one, &random_crop, jpeg, size, 5, 6, i, out, "a.jpg", NULL),
                         0);
        if (i % 3 == 0)
            assert_int_equal(
                decoder_image(other, &random_crop, jpeg, size, 5, 6, i, again, "a.jpg", NULL), 0);
        if (i % 3 == 0)
            assert_memory_equal(out, again, BYTES);
        for (size_t k = BYTES; k < sizeof out; k++)
            assert_int_equal(out[k], 0xa5);
        free(jpeg);
    }
    decoder_free(one);
    decoder_free(other);
}

/* The same box, mirrored or not. */
static void test_mirror(void **state)
{
    struct pipeline plain = random_crop, mirrored = random_crop;
    struct jpeg_make make = {.w = 200, .h = 150, .components = 3, .horizontal = 2, .vertical = 2};
    struct decoder *decoder = decoder_new();
    uint8_t straight[BYTES], flipped[BYTES], *jpeg;
    size_t size;

    (void)state;
    plain.flip_ppm = 0;
    mirrored.flip_ppm = 1000000;
    jpeg = image_jpeg(&make, NULL, &size);
    for (uint64_t sample = 0; sample < 10; sample++) {
        assert_int_equal(
            decoder_image(decoder, &plain, jpeg, size, 0, 0, sample, straight, "a", NULL), 0);
        assert_int_equal(
            decoder_image(decoder, &mirrored, jpeg, size, 0, 0, sample, flipped, "a", NULL), 0);
        for (size_t y = 0; y < SIZE; y++)
            for (size_t x = 0; x < SIZE; x++)
                assert_memory_equal(straight + (y * SIZE + x) * 3,
                                    flipped + (y * SIZE + SIZE - 1 - x) * 3, 3);
    }
    free(jpeg);
    decoder_free(decoder);
}

/* A malformed file again and again, between good ones: nothing is left behind. */
static void test_no_growth(void **state)
{
    struct jpeg_make makes[] = {
        {.w = 150, .h = 120, .components = 3, .horizontal = 2, .vertical = 2},
        {.w = 150, .h = 120, .components = 3, .progressive = true}};
    struct png_make png_make = {
        .w = 50, .h = 50, .color_type = SPNG_COLOR_TYPE_TRUECOLOR, .bit_depth = 8};
    struct decoder *decoder = decoder_new();
    uint8_t out[BYTES], *pixels = image_pixels(50, 50, 3), *files[3];
    size_t sizes[3], before = 0;

    (void)state;
    for (int i = 0; i < 2; i++)
        files[i] = image_jpeg(&makes[i], NULL, &sizes[i]);
    files[2] = image_png(&png_make, pixels, 50 * 50 * 3, &sizes[2]);
    for (uint64_t i = 0; i < 3000; i++) {
        const uint8_t *file = files[i % 3];
        size_t size = sizes[i % 3] * (20 + i % 60) / 100;

        if (i == 300)
            before = mallinfo2().uordblks;
        assert_int_equal(decoder_image(decoder, &random_crop, file, size, 0, 0, i, out, "a", NULL),
                         -EBADMSG);
    }
    assert_true(mallinfo2().uordblks <= before + 65536);
    for (int i = 0; i < 3; i++)
        free(files[i]);
    free(pixels);
    decoder_free(decoder);
}

static void test_free_nothing(void **state)
{
    (void)state;
    decoder_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foreign),      cmocka_unit_test(test_pure),
        cmocka_unit_test(test_mirror),       cmocka_unit_test(test_no_growth),
        cmocka_unit_test(test_free_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
