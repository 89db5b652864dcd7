/*
 * WebP: pixels of lossless images come out as they went in; damaged ones are bad
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

#include <webp/encode.h>

#include "decode/image.h"
#include "images.h"

#define SIDE 61

static int decode_same(struct decoder *decoder, const uint8_t *webp, size_t size, uint8_t *out,
                       struct failure *failure)
{
    struct pipeline pipeline = {.crop = CROP_KIND_CENTER, .size = SIDE, .resize = SIDE};

    return decoder_image(decoder, &pipeline, webp, size, 0, 0, 0, out, "c1/a.webp", failure);
}

static void test_lossless(void **state)
{
    struct decoder *decoder = decoder_new();
    uint8_t *pixels = image_pixels(SIDE, SIDE, 4), *webp = NULL, out[SIDE * SIDE * 3];
    struct decoder_counts counts;
    size_t size;

    (void)state;
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++)
        pixels[i * 4 + 3] |= 1; /* what nobody sees need not be kept */
    size = WebPEncodeLosslessRGBA(pixels, SIDE, SIDE, SIDE * 4, &webp);
    assert_true(size > 0);
    assert_int_equal(decode_same(decoder, webp, size, out, NULL), 0);
    for (size_t i = 0; i < (size_t)SIDE * SIDE; i++)
        assert_memory_equal(out + i * 3, pixels + i * 4, 3);
    decoder_counts_get(decoder, &counts);
    assert_int_equal(counts.webp, 1);
    WebPFree(webp);
    free(pixels);
    decoder_free(decoder);
}

static void test_damaged(void **state)
{
    struct decoder *decoder = decoder_new();
    uint8_t *pixels = image_pixels(SIDE, SIDE, 3), out[SIDE * SIDE * 3];

    (void)state;
    for (int lossless = 0; lossless < 2; lossless++) {
        struct failure failure = {0};
        uint8_t *webp = NULL;
        size_t size = lossless ? WebPEncodeLosslessRGB(pixels, SIDE, SIDE, SIDE * 3, &webp)
                               : WebPEncodeRGB(pixels, SIDE, SIDE, SIDE * 3, 80, &webp);

        assert_true(size > 100);
        for (size_t cut = 12; cut < size - 8; cut += 1 + size / 40) {
            assert_int_equal(decode_same(decoder, webp, cut, out, &failure), -EBADMSG);
            assert_non_null(strstr(failure.text, "c1/a.webp: WebP: "));
        }
        for (uint32_t i = 0; i < 500; i++) {
            size_t at = 12 + image_noise(i * 2) % (size - 12);
            uint8_t before = webp[at];
            int rc;

            webp[at] = (uint8_t)image_noise(i * 2 + 1);
            rc = decode_same(decoder, webp, size, out, &failure);
            if (rc != 0 && rc != -EBADMSG && rc != -EFBIG)
                fail_msg("%d: %s", rc, failure.text);
            webp[at] = before;
        }
        assert_int_equal(decode_same(decoder, webp, size, out, &failure), 0);
        WebPFree(webp);
    }
    free(pixels);
    decoder_free(decoder);
}

/* Refused by the header alone. */
static void test_dimensions(void **state)
{
    struct decoder *decoder = decoder_new();
    uint8_t *pixels = image_pixels(SIDE, SIDE, 3), *webp = NULL, out[SIDE * SIDE * 3];
    struct failure failure = {0};
    size_t size = WebPEncodeLosslessRGB(pixels, SIDE, SIDE, SIDE * 3, &webp);

    (void)state;
    assert_true(size > 30 && webp[20] == 0x2f);
    memset(webp + 21, 0xff, 3);
    webp[24] |= 0x0f; /* 16384 x 16384 */
    assert_int_equal(decode_same(decoder, webp, size, out, &failure), -EFBIG);
    assert_string_equal(failure.text,
                        "c1/a.webp: 16384x16384 = 268435456 pixels; the limit is 67108864 for "
                        "progressive, interlaced, turned and WebP images");
    WebPFree(webp);
    free(pixels);
    decoder_free(decoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lossless),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_dimensions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
