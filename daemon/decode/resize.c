/*
 * The resizer: coefficients of both directions, the plain kernel, and the rows
 * between the two passes.
 */
#include "decode/resize.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROUND (1 << (RESIZE_BITS - 1))

/* The triangle of bilinear filtering. */
static double triangle(double x)
{
    if (x < 0.0)
        x = -x;
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Keys' cubic with a = -1/2. The order of operations is part of the result. */
static double cubic(double x)
{
    if (x < 0.0)
        x = -x;
    if (x < 1.0)
        return (1.5 * x - 2.5) * x * x + 1.0;
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5 : 0.0;
}

static int axis_reserve(struct resize_axis *axis, size_t count, size_t taps)
{
    if (axis->count_room < count) {
        free(axis->start);
        free(axis->used);
        axis->count_room = 0;
        axis->start = malloc(count * sizeof *axis->start);
        axis->used = malloc(count * sizeof *axis->used);
        if (!axis->start || !axis->used)
            return -ENOMEM;
        axis->count_room = count;
    }
    if (axis->coefficient_room < count * taps) {
        free(axis->coefficients);
        free(axis->split);
        free(axis->weights);
        axis->coefficient_room = 0;
        axis->coefficients = malloc(count * taps * sizeof *axis->coefficients);
        axis->split = malloc(count * taps * sizeof *axis->split);
        axis->weights = malloc(count * taps * sizeof *axis->weights);
        if (!axis->coefficients || !axis->split || !axis->weights)
            return -ENOMEM;
        axis->coefficient_room = count * taps;
    }
    return 0;
}

static void axis_deinit(struct resize_axis *axis)
{
    free(axis->start);
    free(axis->used);
    free(axis->coefficients);
    free(axis->split);
    free(axis->weights);
    *axis = (struct resize_axis){0};
}

/* Output i, centred at center and reaching reach source pixels to both sides. Order and kind of the
 * floating-point operations are part of the result. */
static void axis_set(struct resize_axis *axis, uint32_t i, double center, double reach,
                     double sharpness, const struct resize_span *span)
{
    int32_t *coefficients = axis->coefficients + (size_t)i * axis->taps;
    int64_t low = (int64_t)(center - reach + 0.5);
    int64_t high = (int64_t)(center + reach + 0.5);
    double total = 0.0;
    uint32_t n, skip = 0;

    if (low < 0)
        low = 0;
    if (high > span->size)
        high = span->size;
    n = (uint32_t)(high - low);
    for (uint32_t k = 0; k < n; k++) {
        double x = ((double)(k + low) - center + 0.5) * sharpness;

        axis->weights[k] = span->filter == RESIZE_BICUBIC ? cubic(x) : triangle(x);
        total += axis->weights[k];
    }
    for (uint32_t k = 0; k < n; k++) {
        double scaled = axis->weights[k] / total * (1 << RESIZE_BITS);

        coefficients[k] = (int32_t)(scaled < 0.0 ? scaled - 0.5 : scaled + 0.5);
    }
    while (n > 1 && coefficients[n - 1] == 0)
        n--;
    while (skip + 1 < n && coefficients[skip] == 0)
        skip++;
    memmove(coefficients, coefficients + skip, (n - skip) * sizeof *coefficients);
    memset(coefficients + n - skip, 0, (axis->taps - n + skip) * sizeof *coefficients);
    axis->start[i] = (uint32_t)low + skip;
    axis->used[i] = n - skip;
}

/* High and low parts of two coefficients side by side, as 16-bit multiplications take them. */
static void axis_split(struct resize_axis *axis)
{
    size_t n = (size_t)axis->count * axis->taps;
    uint32_t mask = (1u << RESIZE_SPLIT_BITS) - 1;

    for (size_t k = 0; k < n; k += 2) {
        uint32_t a = (uint32_t)axis->coefficients[k], b = (uint32_t)axis->coefficients[k + 1];

        /* A negative coefficient has a negative high part. */
        axis->split[k] =
            (int32_t)((a >> RESIZE_SPLIT_BITS & 0xffff) | (b >> RESIZE_SPLIT_BITS) << 16);
        axis->split[k + 1] = (int32_t)((a & mask) | (b & mask) << 16);
    }
}

static int axis_init(struct resize_axis *axis, const struct resize_span *span)
{
    double scale = span->length / span->full;
    double stretch = scale < 1.0 ? 1.0 : scale;
    double reach = stretch * (span->filter == RESIZE_BICUBIC ? 2.0 : 1.0); /* in source pixels */
    double sharpness = 1.0 / stretch;
    uint32_t taps = ((uint32_t)reach + 1) * 2 + 1;
    uint32_t first = UINT32_MAX, last = 0;
    int rc;

    axis->taps = (taps + 3) / 4 * 4;
    axis->count = span->count;
    rc = axis_reserve(axis, span->count, axis->taps);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < span->count; i++) {
        uint32_t at = span->window + (span->mirrored ? span->count - 1 - i : i);

        axis_set(axis, i, span->from + (at + 0.5) * scale, reach, sharpness, span);
        if (axis->start[i] < first)
            first = axis->start[i];
        if (axis->start[i] + axis->used[i] > last)
            last = axis->start[i] + axis->used[i];
    }
    for (uint32_t i = 0; i < span->count; i++)
        axis->start[i] -= first;
    axis->first = span->origin + first;
    axis->last = span->origin + last;
    axis_split(axis);
    return 0;
}

static uint8_t clamp(int32_t value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void plain_horizontal(const struct resize_axis *axis, const uint8_t *const *rows,
                             uint32_t n_rows, uint8_t *out, size_t stride)
{
    for (uint32_t row = 0; row < n_rows; row++) {
        uint8_t *to = out + row * stride;

        for (uint32_t i = 0; i < axis->count; i++, to += 3) {
            const uint8_t *from = rows[row] + (size_t)axis->start[i] * RESIZE_PIXEL;
            const int32_t *coefficients = axis->coefficients + (size_t)i * axis->taps;
            int32_t r = ROUND, g = ROUND, b = ROUND;

            for (uint32_t k = 0; k < axis->used[i]; k++, from += RESIZE_PIXEL) {
                r += coefficients[k] * from[0];
                g += coefficients[k] * from[1];
                b += coefficients[k] * from[2];
            }
            r >>= RESIZE_BITS;
            g >>= RESIZE_BITS;
            b >>= RESIZE_BITS;
            to[0] = clamp(r);
            to[1] = clamp(g);
            to[2] = clamp(b);
        }
    }
}

static void plain_vertical(const struct resize_axis *axis, const uint8_t *rows, size_t stride,
                           size_t bytes, uint8_t *out)
{
    for (uint32_t i = 0; i < axis->count; i++, out += bytes) {
        const uint8_t *from = rows + axis->start[i] * stride;
        const int32_t *coefficients = axis->coefficients + (size_t)i * axis->taps;

        for (size_t at = 0; at < bytes; at++) {
            int32_t sum = ROUND;

            for (uint32_t k = 0; k < axis->used[i]; k++)
                sum += coefficients[k] * from[k * stride + at];
            sum >>= RESIZE_BITS;
            out[at] = clamp(sum);
        }
    }
}

const struct resize_kernel resize_kernel_plain = {
    .name = "plain",
    .horizontal = plain_horizontal,
    .vertical = plain_vertical,
};

const struct resize_kernel *resize_kernel_best(void)
{
    const struct resize_kernel *avx2 = resize_kernel_avx2();

    return avx2 ? avx2 : &resize_kernel_plain;
}

int resizer_begin(struct resizer *resizer, const struct resize_span *x, const struct resize_span *y)
{
    size_t need;
    int rc = axis_init(&resizer->x, x);

    if (rc == 0)
        rc = axis_init(&resizer->y, y);
    if (rc < 0)
        return rc;
    if (!resizer->kernel)
        resizer->kernel = resize_kernel_best();
    resizer->n_rows = 0;
    resizer->stride = ((size_t)x->count * 3 + 63) / 32 * 32;
    need = (size_t)(resizer->y.last - resizer->y.first) * resizer->stride;
    if (resizer->room < need) {
        free(resizer->rows);
        resizer->room = 0;
        resizer->rows = malloc(need);
        if (!resizer->rows)
            return -ENOMEM;
        resizer->room = need;
    }
    return 0;
}

void resizer_rows(struct resizer *resizer, const uint8_t *const *rows, uint32_t n_rows)
{
    uint32_t left = resizer->y.last - resizer->y.first - resizer->n_rows;

    if (n_rows > left)
        n_rows = left;
    if (n_rows == 0)
        return;
    resizer->kernel->horizontal(&resizer->x, rows, n_rows,
                                resizer->rows + resizer->n_rows * resizer->stride, resizer->stride);
    resizer->n_rows += n_rows;
}

void resizer_end(struct resizer *resizer, uint8_t *out)
{
    resizer->kernel->vertical(&resizer->y, resizer->rows, resizer->stride,
                              (size_t)resizer->x.count * 3, out);
}

void resizer_deinit(struct resizer *resizer)
{
    axis_deinit(&resizer->x);
    axis_deinit(&resizer->y);
    free(resizer->rows);
    *resizer = (struct resizer){0};
}

int rows_reserve(struct rows *rows, size_t pixels)
{
    size_t stride = (pixels * RESIZE_PIXEL + RESIZE_SLACK + 63) / 64 * 64;

    if (rows->room < stride) {
        free(rows->memory);
        rows->room = 0;
        rows->memory = calloc(ROWS_MAX, stride);
        if (!rows->memory)
            return -ENOMEM;
        rows->room = stride;
    }
    /* As close together as the image allows: the fewer cache lines the better. */
    for (size_t i = 0; i < ROWS_MAX; i++)
        rows->row[i] = rows->memory + i * stride;
    return 0;
}

void rows_deinit(struct rows *rows)
{
    free(rows->memory);
    *rows = (struct rows){0};
}
