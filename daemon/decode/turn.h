/*
 * Turning: the part of a stored image that an oriented result needs, held until
 * all of it is there. An image whose orientation is 1 does not come here.
 */
#ifndef PINSERVE_DECODE_TURN_H
#define PINSERVE_DECODE_TURN_H

#include "decode/resize.h"

/* Pixels of the decoded image, [left, right) x [top, bottom). */
struct region {
    uint32_t left, right, top, bottom;
};

/* How orientation 1..8 maps oriented to stored coordinates: axes exchanged, then read backwards. */
bool orientation_swaps(unsigned orientation);
bool orientation_flips_x(unsigned orientation); /* the oriented x */
bool orientation_flips_y(unsigned orientation);

/* Zero-initialised; memory is reused and only grows. */
struct turner {
    unsigned orientation;
    uint32_t width, height; /* oriented, of the part */
    uint32_t n_rows;        /* stored ones that are there */
    uint8_t *pixels;        /* RGBX, dense */
    size_t room;
};

/* For width x height oriented pixels. -ENOMEM. */
int turner_begin(struct turner *turner, unsigned orientation, uint32_t width, uint32_t height);
/* The next stored rows of the part. Rows beyond it are ignored. */
void turner_rows(struct turner *turner, const uint8_t *const *rows, uint32_t n_rows);
/* After all rows: hands them on, upright. */
void turner_end(struct turner *turner, struct resizer *resizer);
void turner_deinit(struct turner *turner);

#endif
