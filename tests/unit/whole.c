/*
 * Whole images: their pixels as stored, what they are, and that nothing wrong
 * with them is passed over.
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

#define W 37
#define H 53

static void test_pixels(void **state)
{
    struct png_make make = {
        .w = W, .h = H, .color_type = SPNG_COLOR_TYPE_TRUECOLOR, .bit_depth = 8};
    struct decoder *decoder = decoder_new();
    struct image_facts facts;
    uint8_t *pixels = image_pixels(W, H, 3), out[W * H * 3], *png;
    size_t size;

    (void)state;
    png = image_png(&make, pixels, (size_t)W * H * 3, &size);
    assert_int_equal(decoder_whole(decoder, png, size, true, "a.png", &facts, NULL), 0);
    decoder_whole_pixels(decoder, out);
    assert_memory_equal(out, pixels, sizeof out);
    assert_string_equal(facts.format, "png");
    assert_string_equal(facts.mode, "rgb, 8 bits");
    assert_int_equal(facts.width, W);
    assert_int_equal(facts.height, H);
    assert_int_equal(facts.orientation, 1);
    free(png);
    free(pixels);
    decoder_free(decoder);
}

static void test_facts(void **state)
{
    static const struct {
        struct jpeg_make make;
        const char *mode;
    } cases[] = {
        {{.components = 1}, "gray"},
        {{.components = 3, .stored = JCS_RGB, .horizontal = 1, .vertical = 1}, "rgb"},
        {{.components = 3, .horizontal = 2, .vertical = 2, .progressive = true},
         "ycbcr 2x2, progressive"},
        {{.components = 3, .horizontal = 2, .vertical = 1, .arithmetic = true},
         "ycbcr 2x1, arithmetic"},
        {{.components = 4, .stored = JCS_CMYK}, "cmyk"},
        {{.components = 4, .stored = JCS_YCCK, .horizontal = 1, .vertical = 1}, "ycck 1x1"},
    };
    struct decoder *decoder = decoder_new();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct jpeg_make make = cases[i].make;
        struct failure failure = {0};
        struct image_facts facts;
        uint8_t *jpeg;
        size_t size;

        make.w = W;
        make.h = H;
        jpeg = image_jpeg(&make, NULL, &size);
        assert_int_equal(decoder_whole(decoder, jpeg, size, false, "a.jpg", &facts, &failure), 0);
        assert_string_equal(facts.format, "jpeg");
        assert_string_equal(facts.mode, cases[i].mode);
        assert_int_equal(facts.width, W);
        assert_int_equal(facts.height, H);
        assert_false(facts.without_end);
        /* What could be read is told of a damaged file, too. */
        assert_int_equal(
            decoder_whole(decoder, jpeg, size - size / 8, false, "a.jpg", &facts, &failure),
            -EBADMSG);
        assert_int_equal(facts.width, W);
        assert_string_equal(facts.mode, cases[i].mode);
        if (!make.arithmetic) {
            assert_int_equal(
                decoder_whole(decoder, jpeg, size - 2, false, "a.jpg", &facts, &failure), 0);
            assert_true(facts.without_end);
        }
        free(jpeg);
    }
    decoder_free(decoder);
}

static void test_no_image(void **state)
{
    struct decoder *decoder = decoder_new();
    struct image_facts facts;
    struct failure failure = {0};

    (void)state;
    assert_int_equal(decoder_whole(decoder, (const uint8_t *)"hello, world", 12, true, "a.txt",
                                   &facts, &failure),
                     -EBADMSG);
    assert_null(facts.format);
    assert_int_equal(facts.width, 0);
    assert_string_equal(facts.mode, "");
    decoder_free(decoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pixels),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_no_image),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
