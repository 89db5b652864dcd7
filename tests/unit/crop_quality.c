/*
 * Crops and flips of neighbours are independent: of samples next to each other,
 * of the same sample in successive epochs and with the next seed, whatever of
 * the one is compared with whatever of the other. Statistics as statistics.h has
 * them; draws themselves are tested in draw.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "decode/image.h"
#include "unit/statistics.h"

#define W 500u
#define H 375u
#define DRAWS 20000
#define BINS 8

enum { SHARE, RATIO, LEFT, TOP, FLIP, FEATURES };

static const char *const features[] = {"area", "ratio", "x", "y", "flip"};
static const uint32_t bins_of[] = {BINS, BINS, BINS, BINS, 2};

typedef struct view viewing(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch,
                            uint64_t sample);

static uint32_t bin(double value, double low, double high)
{
    double at = (value - low) / (high - low) * BINS;

    return at < 0 ? 0 : at >= BINS ? BINS - 1 : (uint32_t)at;
}

static void take_features(const struct view *view, uint32_t feature[FEATURES])
{
    const struct box *box = &view->box;

    feature[SHARE] = bin((double)box->w * box->h, 0.08 * W * H, 1.0 * W * H);
    feature[RATIO] = bin(log((double)box->w / box->h), log(0.75), log(1.3334));
    feature[LEFT] = bin(box->x, 0, W - box->w + 1.0);
    feature[TOP] = bin(box->y, 0, H - box->h + 1.0);
    feature[FLIP] = view->flip;
}

/* What lies beside (seed, epoch, sample). */
static const struct neighbour {
    const char *name;
    uint64_t seed, epoch, sample;
} neighbours[] = {
    {"the next sample", 0, 0, 1},
    {"the sample after the next", 0, 0, 2},
    {"the next epoch", 0, 1, 0},
    {"the next sample in the next epoch", 0, 1, 1},
    {"the next seed", 1, 0, 0},
    {"an epoch on, a seed back", UINT64_MAX, 1, 0},
    {"a sample 2^32 on", 0, 0, UINT64_C(1) << 32},
};

static void measure(viewing *views, const struct pipeline *pipeline,
                    const struct neighbour *neighbour, struct verdict *verdict)
{
    static uint32_t tables[FEATURES][FEATURES][BINS * BINS];

    memset(tables, 0, sizeof tables);
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint64_t seed = 100 + i / 5000, epoch = i / 100 % 50, sample = i % 100;
        struct view a = views(pipeline, seed, epoch, sample);
        struct view b = views(pipeline, seed + neighbour->seed, epoch + neighbour->epoch,
                              sample + neighbour->sample);
        uint32_t of_a[FEATURES], of_b[FEATURES];

        take_features(&a, of_a);
        take_features(&b, of_b);
        for (int j = 0; j < FEATURES; j++)
            for (int k = 0; k < FEATURES; k++)
                tables[j][k][of_a[j] * bins_of[k] + of_b[k]]++;
    }
    for (int j = 0; j < FEATURES; j++)
        for (int k = 0; k < FEATURES; k++)
            verdict_add(verdict, table_z(tables[j][k], bins_of[j], bins_of[k]), "%s and %s of %s",
                        features[j], features[k], neighbour->name);
}

/* Of one crop: the place tells nothing of the size, the flip nothing of either. */
static void measure_one(viewing *views, const struct pipeline *pipeline, struct verdict *verdict)
{
    static const int pairs[][2] = {
        {LEFT, TOP}, {FLIP, SHARE}, {FLIP, RATIO}, {FLIP, LEFT}, {FLIP, TOP}};
    static uint32_t tables[5][BINS * BINS];

    memset(tables, 0, sizeof tables);
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct view view = views(pipeline, 1, i / 1000, i % 1000);
        uint32_t feature[FEATURES];

        take_features(&view, feature);
        for (int p = 0; p < 5; p++)
            tables[p][feature[pairs[p][0]] * bins_of[pairs[p][1]] + feature[pairs[p][1]]]++;
    }
    for (int p = 0; p < 5; p++)
        verdict_add(verdict, table_z(tables[p], bins_of[pairs[p][0]], bins_of[pairs[p][1]]),
                    "%s and %s of one crop", features[pairs[p][0]], features[pairs[p][1]]);
}

static struct verdict judge(viewing *views)
{
    struct pipeline pipeline = {.crop = CROP_KIND_RANDOM, .size = 224, .flip_ppm = 500000};
    struct verdict verdict = {0};

    assert_int_equal(pipeline_check(&pipeline, NULL), 0);
    for (size_t i = 0; i < sizeof neighbours / sizeof *neighbours; i++)
        measure(views, &pipeline, &neighbours[i], &verdict);
    measure_one(views, &pipeline, &verdict);
    return verdict;
}

static struct view ours(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch,
                        uint64_t sample)
{
    return crop_view(pipeline, W, H, seed, epoch, sample);
}

static void test_independent(void **state)
{
    struct verdict verdict = judge(ours);

    (void)state;
    assert_int_equal(verdict.count, 7 * 25 + 5);
    if (!(verdict.worst < Z_MAX))
        fail_msg("%s: z %.1f", verdict.what, verdict.worst);
}

/* -- what is seen ---------------------------------------------------------------------------- */

static struct view same_each_epoch(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch,
                                   uint64_t sample)
{
    (void)epoch;
    return crop_view(pipeline, W, H, seed, 0, sample);
}

static struct view epoch_added(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch,
                               uint64_t sample)
{
    return crop_view(pipeline, W, H, seed + epoch, 0, sample);
}

/* One crop in ten is that of the sample before. */
static struct view sometimes_again(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch,
                                   uint64_t sample)
{
    return crop_view(pipeline, W, H, seed, epoch, sample % 10 ? sample : sample + 1);
}

static struct view flip_of_x(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch,
                             uint64_t sample)
{
    struct view view = crop_view(pipeline, W, H, seed, epoch, sample);

    view.flip = view.box.x & 64;
    return view;
}

static void test_what_hangs_together_is_seen(void **state)
{
    viewing *const weak[] = {same_each_epoch, epoch_added, sometimes_again, flip_of_x};

    (void)state;
    for (size_t i = 0; i < sizeof weak / sizeof *weak; i++) {
        struct verdict verdict = judge(weak[i]);

        print_message("  z %.1f: %s\n", verdict.worst, verdict.what);
        assert_true(verdict.worst > 2 * Z_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_independent),
        cmocka_unit_test(test_what_hangs_together_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
