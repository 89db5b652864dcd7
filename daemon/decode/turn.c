/*
 * Turning: stored rows are spread over an upright image as they come, which then
 * goes to the resizer row by row, as if it had been stored so.
 */
#include "decode/turn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool orientation_swaps(unsigned orientation)
{
    return orientation >= 5;
}

bool orientation_flips_x(unsigned orientation)
{
    return orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
}

bool orientation_flips_y(unsigned orientation)
{
    return orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
}

int turner_begin(struct turner *turner, unsigned orientation, uint32_t width, uint32_t height)
{
    size_t need = (size_t)width * height * RESIZE_PIXEL + RESIZE_SLACK;

    turner->orientation = orientation;
    turner->width = width;
    turner->height = height;
    turner->n_rows = 0;
    if (turner->room >= need)
        return 0;
    free(turner->pixels);
    turner->room = 0;
    turner->pixels = malloc(need);
    if (!turner->pixels)
        return -ENOMEM;
    /* What the resizer reads of the slack counts nothing, but is read. */
    memset(turner->pixels + need - RESIZE_SLACK, 0, RESIZE_SLACK);
    turner->room = need;
    return 0;
}

void turner_rows(struct turner *turner, const uint8_t *const *rows, uint32_t n_rows)
{
    bool swaps = orientation_swaps(turner->orientation);
    bool flips_x = orientation_flips_x(turner->orientation);
    bool flips_y = orientation_flips_y(turner->orientation);
    uint32_t columns = swaps ? turner->height : turner->width;
    uint32_t all = swaps ? turner->width : turner->height;

    for (uint32_t i = 0; i < n_rows && turner->n_rows < all; i++, turner->n_rows++) {
        for (uint32_t column = 0; column < columns; column++) {
            uint32_t x = swaps ? turner->n_rows : column;
            uint32_t y = swaps ? column : turner->n_rows;

            if (flips_x)
                x = turner->width - 1 - x;
            if (flips_y)
                y = turner->height - 1 - y;
            memcpy(turner->pixels + ((size_t)y * turner->width + x) * RESIZE_PIXEL,
                   rows[i] + (size_t)column * RESIZE_PIXEL, RESIZE_PIXEL);
        }
    }
}

void turner_end(struct turner *turner, struct resizer *resizer)
{
    for (uint32_t y = 0; y < turner->height; y += ROWS_MAX) {
        const uint8_t *rows[ROWS_MAX];
        uint32_t n = turner->height - y < ROWS_MAX ? turner->height - y : ROWS_MAX;

        for (uint32_t i = 0; i < n; i++)
            rows[i] = turner->pixels + (size_t)(y + i) * turner->width * RESIZE_PIXEL;
        resizer_rows(resizer, rows, n);
    }
}

void turner_deinit(struct turner *turner)
{
    free(turner->pixels);
    *turner = (struct turner){0};
}
