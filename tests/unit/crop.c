/*
 * Crops: the distribution of torchvision's RandomResizedCrop, computed here once
 * more with floating point and another generator, and the sizes of its Resize
 * and CenterCrop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode/image.h"

#define BOXES 100000
/* Two samples of one distribution differ by more than this once in 10,000 times: 2.23 * sqrt(2/n).
 */
#define KS_MAX 0.00998

static struct pipeline checked(enum crop_kind crop, uint32_t size, uint32_t flip_ppm)
{
    struct pipeline pipeline = {.crop = crop, .size = size, .flip_ppm = flip_ppm};

    assert_int_equal(pipeline_check(&pipeline, NULL), 0);
    return pipeline;
}

/* RandomResizedCrop.get_params, line by line. */
static struct box reference_box(uint32_t w, uint32_t h)
{
    double ratio_min = 3.0 / 4, ratio_max = 4.0 / 3, ratio = (double)w / h;
    double box_w = w, box_h = h;

    for (int i = 0; i < 10; i++) {
        double area = (double)w * h * (0.08 + 0.92 * drand48());
        double aspect = exp(log(ratio_min) + (log(ratio_max) - log(ratio_min)) * drand48());

        box_w = round(sqrt(area * aspect));
        box_h = round(sqrt(area / aspect));
        if (box_w > 0 && box_w <= w && box_h > 0 && box_h <= h)
            return (struct box){(uint32_t)(drand48() * (w - box_w + 1)),
                                (uint32_t)(drand48() * (h - box_h + 1)), (uint32_t)box_w,
                                (uint32_t)box_h};
    }
    box_w = w;
    box_h = h;
    if (ratio < ratio_min)
        box_h = round(w / ratio_min);
    else if (ratio > ratio_max)
        box_w = round(h * ratio_max);
    return (struct box){(uint32_t)((w - box_w) / 2), (uint32_t)((h - box_h) / 2), (uint32_t)box_w,
                        (uint32_t)box_h};
}

enum { SHARE, RATIO, LEFT, TOP, FEATURES };

static void features(struct box box, uint32_t w, uint32_t h, double *feature[FEATURES], size_t i)
{
    feature[SHARE][i] = (double)box.w * box.h / ((double)w * h);
    feature[RATIO][i] = log((double)box.w / box.h);
    feature[LEFT][i] = box.w < w ? (double)box.x / (w - box.w) : 0.5;
    feature[TOP][i] = box.h < h ? (double)box.y / (h - box.h) : 0.5;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The largest distance of the two distribution functions (Kolmogorov and Smirnov). */
static double distance(double *a, double *b)
{
    size_t i = 0, k = 0;
    double largest = 0;

    qsort(a, BOXES, sizeof *a, compare);
    qsort(b, BOXES, sizeof *b, compare);
    while (i < BOXES && k < BOXES) {
        double at = a[i] < b[k] ? a[i] : b[k], apart;

        while (i < BOXES && a[i] <= at)
            i++;
        while (k < BOXES && b[k] <= at)
            k++;
        apart = fabs((double)i - (double)k) / BOXES;
        largest = apart > largest ? apart : largest;
    }
    return largest;
}

static double mean(const double *values)
{
    double sum = 0;

    for (size_t i = 0; i < BOXES; i++)
        sum += values[i];
    return sum / BOXES;
}

static void check_distribution(uint32_t w, uint32_t h)
{
    static const char *const names[FEATURES] = {"share of the area", "log ratio", "x", "y"};
    struct pipeline pipeline = checked(CROP_KIND_RANDOM, 224, 0);
    double *ours[FEATURES], *theirs[FEATURES];

    for (int f = 0; f < FEATURES; f++) {
        ours[f] = malloc(BOXES * sizeof(double));
        theirs[f] = malloc(BOXES * sizeof(double));
        assert_non_null(ours[f]);
        assert_non_null(theirs[f]);
    }
    srand48(w * 7 + h);
    for (size_t i = 0; i < BOXES; i++) {
        struct box box = crop_random(&pipeline, w, h, 11, i / 1000, i % 1000);

        assert_in_range(box.w, 1, w);
        assert_in_range(box.h, 1, h);
        assert_in_range(box.x, 0, w - box.w);
        assert_in_range(box.y, 0, h - box.h);
        features(box, w, h, ours, i);
        features(reference_box(w, h), w, h, theirs, i);
    }
    for (int f = 0; f < FEATURES; f++) {
        double means = fabs(mean(ours[f]) - mean(theirs[f])), apart = distance(ours[f], theirs[f]);

        if (apart > KS_MAX || means > 0.006)
            fail_msg("%ux%u, %s: distance %.4f, means apart by %.4f", w, h, names[f], apart, means);
        free(ours[f]);
        free(theirs[f]);
    }
}

static void test_distribution(void **state)
{
    (void)state;
    check_distribution(500, 375);
    check_distribution(375, 500);
    check_distribution(224, 224);
    check_distribution(900, 410);
    check_distribution(6000, 4000);
}

static void assert_box(struct box box, uint32_t x, uint32_t y, uint32_t w, uint32_t h)
{
    assert_int_equal(box.x, x);
    assert_int_equal(box.y, y);
    assert_int_equal(box.w, w);
    assert_int_equal(box.h, h);
}

/* No box of the wanted ratio and area fits: the centre, as torchvision's fallback. */
static void test_fallback(void **state)
{
    struct pipeline pipeline = checked(CROP_KIND_RANDOM, 224, 0);

    (void)state;
    for (uint64_t sample = 0; sample < 100; sample++) {
        assert_box(crop_random(&pipeline, 1000, 10, 1, 0, sample), 493, 0, 13, 10);
        assert_box(crop_random(&pipeline, 10, 1000, 1, 0, sample), 0, 493, 10, 13);
        assert_box(crop_random(&pipeline, 65500, 1, 1, 0, sample), 32749, 0, 1, 1);
        assert_box(crop_random(&pipeline, 1, 65500, 1, 0, sample), 0, 32749, 1, 1);
        assert_box(crop_random(&pipeline, 1, 1, 1, 0, sample), 0, 0, 1, 1);
    }
    /* All of it, in the wanted range of ratios, but no smaller box: the whole image. */
    pipeline.area_min_ppm = pipeline.area_max_ppm = 1000000;
    pipeline.ratio_min_ppm = 1000000;
    pipeline.ratio_max_ppm = 1333333;
    for (uint64_t sample = 0; sample < 100; sample++) {
        struct box box = crop_random(&pipeline, 500, 400, 1, 0, sample);

        assert_in_range(box.w, 499, 500);
        assert_in_range(box.h, 399, 400);
    }
}

/* The largest images: nothing overflows. */
static void test_large(void **state)
{
    struct pipeline pipeline = checked(CROP_KIND_RANDOM, 224, 0);

    (void)state;
    pipeline.ratio_min_ppm = 10000;
    pipeline.ratio_max_ppm = 100000000;
    for (uint64_t sample = 0; sample < 10000; sample++) {
        struct box box = crop_random(&pipeline, 65500, 65500, 1, 0, sample);
        double share = (double)box.w * box.h / (65500.0 * 65500.0);

        assert_true(box.x + box.w <= 65500 && box.y + box.h <= 65500);
        assert_true(share > 0.0799 && share <= 1.0);
    }
}

/* Results for ever: another value is another PIPELINE_VERSION. */
static void test_pure(void **state)
{
    struct pipeline pipeline = checked(CROP_KIND_RANDOM, 224, 500000);
    struct box one = crop_random(&pipeline, 500, 375, 42, 3, 7);
    unsigned same_epoch = 0, same_sample = 0, same_seed = 0;

    (void)state;
    assert_box(one, 135, 15, 274, 248);
    for (uint64_t i = 1; i <= 1000; i++) {
        struct box again = crop_random(&pipeline, 500, 375, 42, 3, 7);
        struct box epoch = crop_random(&pipeline, 500, 375, 42, 3 + i, 7);
        struct box sample = crop_random(&pipeline, 500, 375, 42, 3, 7 + i);
        struct box seed = crop_random(&pipeline, 500, 375, 42 + (i << 32), 3, 7);

        assert_memory_equal(&one, &again, sizeof one);
        same_epoch += memcmp(&one, &epoch, sizeof one) == 0;
        same_sample += memcmp(&one, &sample, sizeof one) == 0;
        same_seed += memcmp(&one, &seed, sizeof one) == 0;
    }
    assert_true(same_epoch + same_sample + same_seed <= 1);
}

static void test_flip(void **state)
{
    struct pipeline pipeline = checked(CROP_KIND_CENTER, 224, 0);
    unsigned flips = 0;

    (void)state;
    for (uint64_t sample = 0; sample < 1000; sample++)
        assert_false(crop_flip(&pipeline, 1, 2, sample));
    pipeline.flip_ppm = 1000000;
    for (uint64_t sample = 0; sample < 1000; sample++)
        assert_true(crop_flip(&pipeline, 1, 2, sample));
    pipeline.flip_ppm = 300000;
    for (uint64_t sample = 0; sample < BOXES; sample++)
        flips += crop_flip(&pipeline, 1, 2, sample);
    assert_in_range(flips, 29400, 30600); /* four standard deviations */
}

static void test_center(void **state)
{
    struct pipeline pipeline = checked(CROP_KIND_CENTER, 224, 0);
    struct view view = crop_view(&pipeline, 500, 375, 0, 0, 0);

    (void)state;
    assert_box(view.box, 0, 0, 500, 375);
    assert_int_equal(view.width, 341); /* int(256 * 500 / 375) */
    assert_int_equal(view.height, 256);
    assert_int_equal(view.x, 58); /* round(117 / 2.0): to even */
    assert_int_equal(view.y, 16);
    view = crop_view(&pipeline, 375, 503, 0, 0, 0);
    assert_int_equal(view.width, 256);
    assert_int_equal(view.height, 343);
    assert_int_equal(view.y, 60); /* round(119 / 2.0): to even */
    view = crop_view(&pipeline, 16, 16, 0, 0, 0);
    assert_int_equal(view.width, 256);
    assert_int_equal(view.height, 256);
    pipeline.resize = 16384;
    view = crop_view(&pipeline, 1, 65500, 0, 0, 0);
    assert_int_equal(view.height, 16384u * 65500u);
    assert_int_equal(view.y, (16384u * 65500u - 224) / 2);
}

static void test_scale(void **state)
{
    struct view view = {.width = 224, .height = 224};
    static const struct {
        uint32_t w, h;
        unsigned scale;
    } cases[] = {{895, 4000, 0},  {896, 896, 1},     {4000, 895, 0},
                 {1791, 1792, 1}, {1792, 1792, 2},   {3583, 4000, 2},
                 {3584, 3584, 3}, {65500, 65500, 3}, {1, 1, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        view.box.w = cases[i].w;
        view.box.h = cases[i].h;
        assert_int_equal(crop_scale(&view), cases[i].scale);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distribution), cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_large),        cmocka_unit_test(test_pure),
        cmocka_unit_test(test_flip),         cmocka_unit_test(test_center),
        cmocka_unit_test(test_scale),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
