/*
 * EXIF: the orientation is found in each container, and nonsense is none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "decode/exif.h"

#define TIFF_BYTES 38

/* A directory of two entries, the second of which is the orientation. */
static size_t make_tiff(uint8_t *at, bool little, unsigned type, unsigned value)
{
    static const uint8_t big[TIFF_BYTES] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 2, 1,    0, 0,
                                            4,   0,   0, 0,  1, 0, 0, 0, 9, 1, 0x12, 0, 3,
                                            0,   0,   0, 1,  0, 6, 0, 0, 0, 0, 0,    0};
    static const uint8_t small[TIFF_BYTES] = {'I', 'I', 42, 0, 8, 0, 0, 0, 2, 0,    0, 1, 4,
                                              0,   1,   0,  0, 0, 9, 0, 0, 0, 0x12, 1, 3, 0,
                                              1,   0,   0,  0, 6, 0, 0, 0, 0, 0,    0, 0};

    memcpy(at, little ? small : big, TIFF_BYTES);
    at[little ? 24 : 25] = (uint8_t)type;
    at[little ? 30 : 31] = (uint8_t)value;
    return TIFF_BYTES;
}

static size_t make_jpeg(uint8_t *at, const uint8_t *tiff, size_t n)
{
    static const uint8_t start[] = {0xff, 0xd8, 0xff, 0xe0, 0,   4,   1,   2, 0xff, 0xff,
                                    0xe1, 0,    0,    'E',  'x', 'i', 'f', 0, 0};
    size_t size = sizeof start;

    memcpy(at, start, size);
    at[12] = (uint8_t)(n + 8);
    memcpy(at + size, tiff, n);
    size += n;
    memcpy(at + size, (const uint8_t[]){0xff, 0xda, 0, 2}, 4);
    return size + 4;
}

static size_t make_webp(uint8_t *at, const uint8_t *tiff, size_t n)
{
    memcpy(at, "RIFF\0\0\0\0WEBPVP8X\3\0\0\0abc\0EXIF", 28);
    memcpy(at + 28, (const uint8_t[]){(uint8_t)n, 0, 0, 0}, 4);
    memcpy(at + 32, tiff, n);
    return 32 + n;
}

/* Of a copy that ends with its last byte, so that nothing behind it is read unseen. */
static unsigned orientation_of(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size + !size);
    unsigned orientation;

    assert_non_null(copy);
    memcpy(copy, bytes, size);
    orientation = exif_orientation(copy, size);
    free(copy);
    return orientation;
}

static void test_values(void **state)
{
    uint8_t tiff[TIFF_BYTES], file[200];

    (void)state;
    for (unsigned value = 0; value < 12; value++)
        for (int little = 0; little < 2; little++) {
            unsigned right = value >= 1 && value <= 8 ? value : 1;
            size_t n = make_tiff(tiff, little, 3, value);

            assert_int_equal(orientation_of(file, make_jpeg(file, tiff, n)), right);
            assert_int_equal(orientation_of(file, make_webp(file, tiff, n)), right);
        }
    /* A long is no orientation. */
    assert_int_equal(orientation_of(file, make_jpeg(file, tiff, make_tiff(tiff, true, 4, 6))), 1);
    assert_int_equal(orientation_of((const uint8_t *)"hello", 5), 1);
    assert_int_equal(orientation_of(file, 0), 1);
}

/* Cut anywhere: found where the tag is whole, and no byte behind the end is read. */
static void test_cut(void **state)
{
    uint8_t tiff[TIFF_BYTES], file[200];
    size_t n = make_tiff(tiff, false, 3, 6);

    (void)state;
    for (size_t cut = 0; cut <= n; cut++) {
        unsigned right = cut >= 34 ? 6 : 1;

        assert_int_equal(orientation_of(file, make_jpeg(file, tiff, cut)), right);
        assert_int_equal(orientation_of(file, make_webp(file, tiff, cut)), right);
    }
    for (size_t size = make_webp(file, tiff, n); size-- > 0;)
        assert_int_equal(orientation_of(file, size), 1);
    for (size_t size = make_jpeg(file, tiff, n) - 4; size-- > 0;)
        assert_int_equal(orientation_of(file, size), 1);
}

/* Lengths and offsets of any value. */
static void test_damage(void **state)
{
    uint8_t tiff[TIFF_BYTES], file[200];
    uint32_t random = 1;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        size_t n = make_tiff(tiff, i & 1, 3, 6);
        size_t size = i & 2 ? make_jpeg(file, tiff, n) : make_webp(file, tiff, n);

        for (int k = 0; k < 1 + i % 4; k++) {
            random = random * 1664525u + 1013904223u;
            file[(random >> 8) % size] = (uint8_t)(i & 4 ? 0xff : random >> 24);
        }
        unsigned orientation = orientation_of(file, size);
        assert_true(orientation >= 1 && orientation <= 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
