/*
 * Turning: where each stored pixel comes to lie, for all orientations, and
 * whatever the pieces are in which rows come.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "decode/turn.h"

#define W 5
#define H 3

/* Stored pixel (x, y) of which the oriented (X, Y) is made, as the EXIF standard has it. */
static void stored_at(unsigned orientation, uint32_t X, uint32_t Y, uint32_t *x, uint32_t *y)
{
    const uint32_t places[8][2] = {
        {X, Y}, {W - 1 - X, Y}, {W - 1 - X, H - 1 - Y}, {X, H - 1 - Y},
        {Y, X}, {Y, H - 1 - X}, {W - 1 - Y, H - 1 - X}, {W - 1 - Y, X},
    };

    *x = places[orientation - 1][0];
    *y = places[orientation - 1][1];
}

static void test_places(void **state)
{
    struct turner turner = {0};
    uint8_t stored[H][W * RESIZE_PIXEL];

    (void)state;
    for (uint32_t y = 0; y < H; y++)
        for (uint32_t x = 0; x < W; x++)
            memcpy(stored[y] + (size_t)x * RESIZE_PIXEL,
                   (const uint8_t[]){(uint8_t)x, (uint8_t)y, 7, 0}, RESIZE_PIXEL);
    for (unsigned orientation = 1; orientation <= 8; orientation++) {
        const uint8_t *rows[H + 1] = {stored[0], stored[1], stored[2], stored[2]};
        bool swaps = orientation >= 5;
        uint32_t w = swaps ? H : W, h = swaps ? W : H;

        assert_int_equal(orientation_swaps(orientation), swaps);
        assert_int_equal(turner_begin(&turner, orientation, w, h), 0);
        turner_rows(&turner, rows, 1);
        turner_rows(&turner, rows + 1, H); /* the last is one too many */
        assert_int_equal(turner.n_rows, H);
        for (uint32_t Y = 0; Y < h; Y++)
            for (uint32_t X = 0; X < w; X++) {
                const uint8_t *pixel = turner.pixels + ((size_t)Y * w + X) * RESIZE_PIXEL;
                uint32_t x, y;

                stored_at(orientation, X, Y, &x, &y);
                assert_int_equal(pixel[0], x);
                assert_int_equal(pixel[1], y);
            }
    }
    turner_deinit(&turner);
}

/* Handed on, row by row, more than ROWS_MAX of them. */
static void test_handed_on(void **state)
{
    struct turner turner = {0};
    struct resizer resizer = {0};
    struct resize_span x = {.size = 40, .length = 40, .full = 40, .count = 40};
    uint8_t row[40 * RESIZE_PIXEL] = {0}, out[40 * 40 * 3];
    const uint8_t *rows[1] = {row};

    (void)state;
    assert_int_equal(resizer_begin(&resizer, &x, &x), 0);
    assert_int_equal(turner_begin(&turner, 6, 40, 40), 0);
    for (unsigned y = 0; y < 40; y++) {
        for (size_t i = 0; i < 40; i++)
            memset(row + i * RESIZE_PIXEL, (int)(y * 5 + i % 4), 3);
        turner_rows(&turner, rows, 1);
    }
    turner_end(&turner, &resizer);
    resizer_end(&resizer, out);
    for (unsigned Y = 0; Y < 40; Y++)
        for (unsigned X = 0; X < 40; X++)
            assert_int_equal(out[(Y * 40 + X) * 3], (39 - X) * 5 + Y % 4);
    turner_deinit(&turner);
    resizer_deinit(&resizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_handed_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
