/*
 * JPEG: the part that is decoded equals that part of the whole, for every kind
 * of file; damaged files are bad, whole ones are not.
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

static struct pipeline checked(enum crop_kind crop, uint32_t size)
{
    struct pipeline pipeline = {.crop = crop, .size = size, .flip_ppm = 300000};

    assert_int_equal(pipeline_check(&pipeline, NULL), 0);
    return pipeline;
}

/* Decodes every row and column at the given scale and resizes the planned part. */
static void decode_whole(struct decoder *decoder, const struct request *request, uint8_t *out)
{
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    uint8_t *row;

    info.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, request->bytes, request->size);
    jpeg_read_header(&info, TRUE);
    assert_int_equal(image_plan(decoder, request, info.image_width, info.image_height, 3), 0);
    info.scale_denom = 1u << decoder->scale;
    info.out_color_space = JCS_EXT_RGBX;
    jpeg_start_decompress(&info);
    row = malloc((size_t)info.output_width * RESIZE_PIXEL + RESIZE_SLACK);
    assert_non_null(row);
    while (info.output_scanline < info.output_height) {
        uint32_t y = info.output_scanline;
        const uint8_t *from = row + (size_t)decoder->resizer.x.first * RESIZE_PIXEL;

        jpeg_read_scanlines(&info, &row, 1);
        if (y >= decoder->resizer.y.first)
            resizer_rows(&decoder->resizer, &from, 1);
    }
    resizer_end(&decoder->resizer, out);
    jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
    free(row);
}

/* Random crops of one file, compared with the whole. */
static void check_crops(struct decoder *decoder, struct decoder *whole,
                        const struct pipeline *pipeline, const struct jpeg_make *make)
{
    size_t size, bytes = (size_t)pipeline->size * pipeline->size * 3;
    uint8_t *jpeg = image_jpeg(make, NULL, &size);
    uint8_t *out = malloc(bytes), *expected = malloc(bytes);
    struct failure failure = {0};

    assert_non_null(jpeg);
    assert_non_null(out);
    assert_non_null(expected);
    for (uint64_t sample = 0; sample < 12; sample++) {
        struct request request = {.pipeline = pipeline,
                                  .bytes = jpeg,
                                  .size = size,
                                  .sample = sample,
                                  .name = "test.jpg",
                                  .failure = &failure};

        if (decoder_image(decoder, pipeline, jpeg, size, 0, 0, sample, out, "test.jpg", &failure) <
            0)
            fail_msg("%s", failure.text);
        decode_whole(whole, &request, expected);
        if (memcmp(out, expected, bytes) != 0)
            fail_msg("%ux%u, sampling %dx%d, %d components, progressive %d, restart %u, sample "
                     "%d, 1/%u: differs from the whole",
                     make->w, make->h, make->horizontal, make->vertical, make->components,
                     make->progressive, make->restart_rows, (int)sample, 1u << decoder->scale);
    }
    free(jpeg);
    free(out);
    free(expected);
}

static void test_parts_equal_whole(void **state)
{
    static const struct {
        int components, horizontal, vertical;
    } kinds[] = {{1, 1, 1}, {3, 1, 1}, {3, 2, 1}, {3, 2, 2}, {3, 1, 2}, {3, 4, 1}, {3, 4, 2}};
    static const uint32_t sizes[][2] = {{97, 131}, {160, 96}, {129, 65}, {33, 47}};
    struct decoder *decoder = decoder_new(), *whole = decoder_new();
    struct pipeline pipelines[] = {checked(CROP_KIND_RANDOM, 64), checked(CROP_KIND_CENTER, 48),
                                   checked(CROP_KIND_RANDOM, 15)};

    (void)state;
    pipelines[0].area_min_ppm = 10000; /* mostly enlarged, so that each pixel shows */
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
        for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++)
            for (int variant = 0; variant < 4; variant++)
                for (size_t p = 0; p < 3; p++) {
                    struct jpeg_make make = {.w = sizes[size][0],
                                             .h = sizes[size][1],
                                             .components = kinds[kind].components,
                                             .horizontal = kinds[kind].horizontal,
                                             .vertical = kinds[kind].vertical,
                                             .progressive = variant & 1,
                                             .restart_rows = variant & 2 ? 1 : 0};

                    check_crops(decoder, whole, &pipelines[p], &make);
                }
    decoder_free(decoder);
    decoder_free(whole);
}

/* At 1/2, 1/4 and 1/8. */
static void test_scaled_parts_equal_whole(void **state)
{
    static const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}};
    struct decoder *decoder = decoder_new(), *whole = decoder_new();
    const struct pipeline small = checked(CROP_KIND_RANDOM, 11);
    const struct pipeline large = checked(CROP_KIND_RANDOM, 35);
    struct decoder_counts counts;

    (void)state;
    for (size_t i = 0; i < 6; i++)
        for (int progressive = 0; progressive < 2; progressive++) {
            struct jpeg_make make = {.w = 397,
                                     .h = 301,
                                     .components = 3,
                                     .horizontal = samplings[i][0],
                                     .vertical = samplings[i][1],
                                     .progressive = progressive};

            check_crops(decoder, whole, &small, &make);
            check_crops(decoder, whole, &large, &make);
        }
    decoder_counts_get(decoder, &counts);
    assert_true(counts.jpeg[1] > 0 && counts.jpeg[2] > 0 && counts.jpeg[3] > 0);
    assert_int_equal(counts.jpeg[0] + counts.jpeg[1] + counts.jpeg[2] + counts.jpeg[3], 288);
    assert_int_equal(counts.png, 0);
    decoder_free(decoder);
    decoder_free(whole);
}

/* The middle pixel of a flat 16x16 image of inks. */
static void check_inks(const uint8_t inks[4], J_COLOR_SPACE stored, bool no_adobe,
                       const uint8_t rgb[3], int tolerance)
{
    struct jpeg_make make = {
        .w = 16, .h = 16, .components = 4, .stored = stored, .no_adobe = no_adobe, .quality = 100};
    struct pipeline pipeline = checked(CROP_KIND_CENTER, 4);
    struct decoder *decoder = decoder_new();
    struct decoder_counts counts;
    struct failure failure = {0};
    uint8_t pixels[16 * 16 * 4], out[4 * 4 * 3], *jpeg;
    size_t size;

    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(no_adobe ? inks[i % 4] : 255 - inks[i % 4]);
    jpeg = image_jpeg(&make, pixels, &size);
    assert_int_equal(
        decoder_image(decoder, &pipeline, jpeg, size, 0, 0, 0, out, "inks.jpg", &failure), 0);
    for (int i = 0; i < 48; i++)
        if (abs(out[i] - rgb[i % 3]) > tolerance)
            fail_msg("channel %d is %d, not %d", i % 3, out[i], rgb[i % 3]);
    decoder_counts_get(decoder, &counts);
    assert_int_equal(counts.plain_inks, no_adobe);
    free(jpeg);
    decoder_free(decoder);
}

/* Adobe's files hold inks inverted; without Adobe's marker they are taken as they are. */
static void test_inks(void **state)
{
    const uint8_t inks[4] = {100, 50, 25, 10}, rgb[3] = {149, 197, 221};
    const uint8_t black[4] = {0, 0, 0, 255}, dark[3] = {0, 0, 0};

    (void)state;
    check_inks(inks, JCS_CMYK, false, rgb, 2);
    check_inks(inks, JCS_YCCK, false, rgb, 2);
    check_inks(black, JCS_CMYK, false, dark, 0);
    check_inks(inks, JCS_CMYK, true, rgb, 2);
}

/* A file of RGB: nothing is lost by converting colours. */
static void test_rgb(void **state)
{
    struct jpeg_make make = {.w = 16, .h = 16, .components = 3, .stored = JCS_RGB, .quality = 100};
    struct pipeline pipeline = {.crop = CROP_KIND_CENTER, .size = 16, .resize = 16};
    struct decoder *decoder = decoder_new();
    uint8_t pixels[16 * 16 * 3], out[16 * 16 * 3], *jpeg;
    size_t size;

    (void)state;
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t[]){200, 30, 5}[i % 3];
    jpeg = image_jpeg(&make, pixels, &size);
    assert_int_equal(decoder_image(decoder, &pipeline, jpeg, size, 0, 0, 0, out, "rgb.jpg", NULL),
                     0);
    for (size_t i = 0; i < sizeof out; i++)
        if (abs(out[i] - pixels[i]) > 1)
            fail_msg("channel %zu is %d, not %d", i % 3, out[i], pixels[i]);
    free(jpeg);
    decoder_free(decoder);
}

static int decode(struct decoder *decoder, const uint8_t *jpeg, size_t size, uint64_t sample,
                  uint8_t *out, struct failure *failure)
{
    struct pipeline pipeline = checked(CROP_KIND_RANDOM, 32);

    return decoder_image(decoder, &pipeline, jpeg, size, 0, 0, sample, out, "c1/cut.jpg", failure);
}

static const struct jpeg_make makes[] = {
    {.w = 150, .h = 130, .components = 3, .horizontal = 2, .vertical = 2},
    {.w = 150, .h = 130, .components = 3, .horizontal = 2, .vertical = 2, .progressive = true},
    {.w = 150, .h = 130, .components = 3, .separate_scans = true},
    {.w = 150, .h = 130, .components = 3, .restart_rows = 1},
    {.w = 150, .h = 130, .components = 1},
};
#define MAKES (sizeof makes / sizeof makes[0])

/* Whatever the crop, also one that lies before the cut. */
static void test_truncated(void **state)
{
    struct decoder *decoder = decoder_new();
    uint8_t out[32 * 32 * 3];

    (void)state;
    for (size_t i = 0; i < MAKES; i++) {
        size_t size;
        uint8_t *jpeg = image_jpeg(&makes[i], NULL, &size);

        for (uint64_t sample = 0; sample < 20; sample++) {
            struct failure failure = {0};
            /* From the half on to within a few bytes of the end. */
            size_t cut = size / 2 + (size / 2 - 16) * sample / 19;

            assert_int_equal(decode(decoder, jpeg, cut, sample, out, &failure), -EBADMSG);
            assert_non_null(strstr(failure.text, "c1/cut.jpg: JPEG: "));
        }
        free(jpeg);
    }
    decoder_free(decoder);
}

static void test_only_end_missing(void **state)
{
    struct decoder *decoder = decoder_new();
    struct decoder_counts counts;
    uint8_t out[32 * 32 * 3], whole[32 * 32 * 3];

    (void)state;
    for (size_t i = 0; i < MAKES; i++) {
        struct failure failure = {0};
        size_t size;
        uint8_t *jpeg = image_jpeg(&makes[i], NULL, &size);

        for (uint64_t sample = 0; sample < 10; sample++) {
            assert_int_equal(decode(decoder, jpeg, size, sample, whole, &failure), 0);
            if (decode(decoder, jpeg, size - 2, sample, out, &failure) < 0)
                fail_msg("file %zu: %s", i, failure.text);
            assert_memory_equal(out, whole, sizeof out);
        }
        free(jpeg);
    }
    decoder_counts_get(decoder, &counts);
    assert_int_equal(counts.without_end, 10 * MAKES);
    decoder_free(decoder);
}

/* The same coefficients in another code: the same pixels. Where it is cut does not show, so that
 * its end marker has to be there. */
static void test_arithmetic(void **state)
{
    struct decoder *decoder = decoder_new();
    uint8_t out[32 * 32 * 3], whole[32 * 32 * 3];

    (void)state;
    for (size_t i = 0; i < MAKES; i++) {
        struct jpeg_make make = makes[i];
        struct failure failure = {0};
        size_t size, coded_size;
        uint8_t *jpeg = image_jpeg(&make, NULL, &size), *coded;

        make.arithmetic = true;
        coded = image_jpeg(&make, NULL, &coded_size);
        assert_true(coded_size != size);
        for (uint64_t sample = 0; sample < 10; sample++) {
            size_t cut = coded_size / 2 + (coded_size / 2 - 2) * sample / 9;

            assert_int_equal(decode(decoder, jpeg, size, sample, whole, &failure), 0);
            if (decode(decoder, coded, coded_size, sample, out, &failure) < 0)
                fail_msg("file %zu: %s", i, failure.text);
            assert_memory_equal(out, whole, sizeof out);
            assert_int_equal(decode(decoder, coded, cut, sample, out, &failure), -EBADMSG);
        }
        free(jpeg);
        free(coded);
    }
    decoder_free(decoder);
}

/* Junk behind the end harms nothing. */
static void test_trailing_bytes(void **state)
{
    struct decoder *decoder = decoder_new();
    uint8_t out[32 * 32 * 3], whole[32 * 32 * 3], *longer;
    struct failure failure = {0};
    size_t size;
    uint8_t *jpeg = image_jpeg(&makes[0], NULL, &size);

    (void)state;
    longer = malloc(size + 1000);
    assert_non_null(longer);
    memcpy(longer, jpeg, size);
    memset(longer + size, 0xff, 1000);
    assert_int_equal(decode(decoder, jpeg, size, 3, whole, &failure), 0);
    assert_int_equal(decode(decoder, longer, size + 1000, 3, out, &failure), 0);
    assert_memory_equal(out, whole, sizeof out);
    free(longer);
    free(jpeg);
    decoder_free(decoder);
}

/* Offset of the marker's code. */
static size_t find_marker(const uint8_t *jpeg, size_t size, uint8_t code)
{
    for (size_t i = 0; i + 1 < size; i++)
        if (jpeg[i] == 0xff && jpeg[i + 1] == code)
            return i + 1;
    fail_msg("no marker %02x", code);
    return 0;
}

static void test_dimensions(void **state)
{
    static const struct {
        size_t make;
        uint8_t frame; /* the code of its frame header */
        uint16_t w, h;
        const char *text;
    } cases[] = {
        {0, 0xc0, 65500, 65500,
         "c1/cut.jpg: 65500x65500 = 4290250000 pixels; the limit is 268435456"},
        {0, 0xc0, 65501, 2, "c1/cut.jpg: JPEG: Maximum supported image dimension is 65500"},
        {1, 0xc2, 8193, 8192, "8193x8192 = 67117056 pixels; the limit is 67108864 for progressive"},
    };
    struct decoder *decoder = decoder_new();
    uint8_t out[32 * 32 * 3];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct failure failure = {0};
        size_t size, at;
        uint8_t *jpeg = image_jpeg(&makes[cases[i].make], NULL, &size);

        at = find_marker(jpeg, size, cases[i].frame);
        jpeg[at + 4] = (uint8_t)(cases[i].h >> 8);
        jpeg[at + 5] = (uint8_t)cases[i].h;
        jpeg[at + 6] = (uint8_t)(cases[i].w >> 8);
        jpeg[at + 7] = (uint8_t)cases[i].w;
        assert_int_equal(decode(decoder, jpeg, size, 0, out, &failure), -EFBIG);
        if (!strstr(failure.text, cases[i].text))
            fail_msg("\"%s\" lacks \"%s\"", failure.text, cases[i].text);
        free(jpeg);
    }
    decoder_free(decoder);
}

/* Any bytes whatever: an error or pixels, and the decoder is as good as before. */
static void test_damage(void **state)
{
    struct decoder *decoder = decoder_new();
    uint8_t out[32 * 32 * 3], whole[32 * 32 * 3];
    unsigned bad = 0;

    (void)state;
    for (size_t i = 0; i < MAKES; i++) {
        struct failure failure = {0};
        size_t size;
        uint8_t *jpeg = image_jpeg(&makes[i], NULL, &size);

        assert_int_equal(decode(decoder, jpeg, size, 1, whole, &failure), 0);
        for (uint32_t round = 0; round < 300; round++) {
            size_t at = 2 + image_noise(round * 3) % (round % 2 ? size - 2 : 600);
            uint8_t before = jpeg[at];
            int rc;

            jpeg[at] = (uint8_t)image_noise(round * 3 + 1);
            rc = decode(decoder, jpeg, size, round, out, &failure);
            bad += rc != 0;
            if (rc != 0 && rc != -EBADMSG && rc != -EFBIG)
                fail_msg("%d: %s", rc, failure.text);
            jpeg[at] = before;
        }
        assert_int_equal(decode(decoder, jpeg, size, 1, out, &failure), 0);
        assert_memory_equal(out, whole, sizeof out);
        free(jpeg);
    }
    assert_true(bad > 100);
    decoder_free(decoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_equal_whole),
        cmocka_unit_test(test_scaled_parts_equal_whole),
        cmocka_unit_test(test_inks),
        cmocka_unit_test(test_rgb),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_only_end_missing),
        cmocka_unit_test(test_arithmetic),
        cmocka_unit_test(test_trailing_bytes),
        cmocka_unit_test(test_dimensions),
        cmocka_unit_test(test_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
