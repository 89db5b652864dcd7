/*
 * Antialiased resizing of RGB images, bilinear or bicubic: a horizontal pass over each row
 * as it is decoded, then a vertical pass into the result. Fixed point with the
 * rounding of Pillow's 8-bit resize, and bit-identical to it.
 *
 * Source rows are RGBX, four bytes a pixel, the fourth ignored; the result is
 * RGB. Coefficients come from double +, -, *, / alone, so that every compiler
 * and machine gets the same.
 */
#ifndef PINSERVE_DECODE_RESIZE_H
#define PINSERVE_DECODE_RESIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESIZE_PIXEL 4  /* bytes of a source pixel */
#define RESIZE_SLACK 64 /* readable bytes behind the last source pixel of a row */

/* Numbered as enum filter_kind. */
enum resize_filter { RESIZE_BILINEAR, RESIZE_BICUBIC };

/* What one direction does. All in pixels of the source, relative to origin. */
struct resize_span {
    uint32_t origin; /* first source pixel that may count */
    uint32_t size;   /* source pixels that may count */
    double from;     /* start of the box within them */
    double length;   /* of the box */
    uint32_t full;   /* pixels that the box is resized to */
    uint32_t window; /* first of them that is wanted */
    uint32_t count;  /* how many are wanted */
    bool mirrored;   /* the wanted ones come out last first */
    enum resize_filter filter;
};

/* The coefficients of one direction, for each output. */
struct resize_axis {
    uint32_t count;
    uint32_t first, last;  /* source pixels [first, last) are needed, absolute */
    uint32_t taps;         /* coefficients an output, a multiple of 4, zeros behind those in use */
    uint32_t *start;       /* first source pixel of an output, relative to first */
    uint32_t *used;        /* coefficients in use */
    int32_t *coefficients; /* count * taps, scaled by 2^RESIZE_BITS */
    int32_t *split;  /* count * taps: for pairs of taps, two 16-bit high parts, two low parts */
    double *weights; /* scratch of one output */
    size_t count_room, coefficient_room;
};

#define RESIZE_BITS 22
#define RESIZE_SPLIT_BITS 11 /* coefficient = high << RESIZE_SPLIT_BITS | low */

/* How the passes are computed; every kind gives the same bytes. */
struct resize_kernel {
    const char *name;
    /* Rows of RGBX, each starting at axis->first, to RGB rows of axis->count pixels at out, stride
     * bytes apart; may write 16 bytes behind a row. */
    void (*horizontal)(const struct resize_axis *axis, const uint8_t *const *rows, uint32_t n_rows,
                       uint8_t *out, size_t stride);
    /* Rows of `bytes` bytes, stride apart, from axis->first on, to axis->count rows that lie
     * densely at out; writes nothing behind them. */
    void (*vertical)(const struct resize_axis *axis, const uint8_t *rows, size_t stride,
                     size_t bytes, uint8_t *out);
};

extern const struct resize_kernel resize_kernel_plain;
/* The fastest that this processor runs. */
const struct resize_kernel *resize_kernel_best(void);
/* NULL where the processor or the compiler's target lacks it. */
const struct resize_kernel *resize_kernel_avx2(void);

/* One image at a time; its memory is reused and only grows. Zero-initialise; set kernel or leave
 * NULL for the best. */
struct resizer {
    const struct resize_kernel *kernel;
    struct resize_axis x, y;
    uint8_t *rows; /* results of the horizontal pass */
    size_t room, stride;
    uint32_t n_rows; /* of these that are there */
};

/* Plans; then x.first .. x.last and y.first .. y.last tell what is needed. -ENOMEM. */
int resizer_begin(struct resizer *resizer, const struct resize_span *x,
                  const struct resize_span *y);
/* The next rows, from y.first on; rows[i] points to pixel x.first of a row. Rows beyond y.last are
 * ignored. */
void resizer_rows(struct resizer *resizer, const uint8_t *const *rows, uint32_t n_rows);
/* After all rows: writes x.count * y.count * 3 bytes. */
void resizer_end(struct resizer *resizer, uint8_t *out);
void resizer_deinit(struct resizer *resizer);

/* Buffers for a few decoded rows, on their way to the resizer. */
#define ROWS_MAX 16
struct rows {
    uint8_t *row[ROWS_MAX];
    uint8_t *memory;
    size_t room;
};
/* Makes room for ROWS_MAX rows of `pixels` pixels and the slack. -ENOMEM. */
int rows_reserve(struct rows *rows, size_t pixels);
void rows_deinit(struct rows *rows);

#endif
