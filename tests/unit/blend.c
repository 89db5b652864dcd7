/*
 * Blends: shares, how evenly they are spread, and that every sample of a part
 * has its turn.
 */
#include "source/blend.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PARTS_MAX 64

static struct arena arena = {.name = "tokens:blend"};

static void blend_make(struct blend *blend, const uint64_t *weights, const uint64_t *samples,
                       size_t n)
{
    struct failure failure = {0};

    *blend = (struct blend){0};
    if (blend_init(blend, weights, samples, n, &arena, &failure) < 0)
        fail_msg("%s", failure.text);
}

static const struct blend_place *table_of(const struct blend *blend)
{
    return blend->places.items;
}

static void check_shares(const uint64_t *weights, size_t n, uint32_t period, const uint32_t *shares)
{
    uint32_t got[PARTS_MAX], got_period;

    blend_weights(weights, n, &got_period, got);
    assert_int_equal(got_period, period);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got[i], shares[i]);
}

static void weights_become_the_smallest_whole_numbers(void **state)
{
    (void)state;
    check_shares((uint64_t[]){5}, 1, 1, (uint32_t[]){1});
    check_shares((uint64_t[]){700000000, 250000000, 50000000}, 3, 20, (uint32_t[]){14, 5, 1});
    check_shares((uint64_t[]){65535, 1}, 2, 65536, (uint32_t[]){65535, 1});
    check_shares((uint64_t[]){UINT64_MAX, UINT64_MAX}, 2, 2, (uint32_t[]){1, 1});
}

static void others_are_shared_out_by_remainder(void **state)
{
    (void)state;
    check_shares((uint64_t[]){32768, 32769}, 2, 65536, (uint32_t[]){32768, 32768});
    check_shares((uint64_t[]){65536, 1}, 2, 65536, (uint32_t[]){65535, 1});
    /* Four times 13,107.1, and 13,107.5, which gets what is left. */
    check_shares((uint64_t[]){40001, 40001, 40001, 40001, 40002}, 5, 65536,
                 (uint32_t[]){13107, 13107, 13107, 13107, 13108});
    /* One that gets nothing takes from the largest, the first of equal ones. */
    check_shares((uint64_t[]){99999, 1, 99999, 1, 50000}, 5, 65536,
                 (uint32_t[]){26213, 1, 26214, 1, 13107});
    /* 65,535.9 and twice nearly nothing: each gets one. */
    check_shares((uint64_t[]){UINT64_MAX, 1, 1}, 3, 65536, (uint32_t[]){65534, 1, 1});
    /* 65536 * 3/7 etc. of a sum too large: .43, .14, .43; the first of equal ones. */
    check_shares((uint64_t[]){300000000001, 100000000000, 300000000001}, 3, 65536,
                 (uint32_t[]){28087, 9362, 28087});
}

/* At every place of the table each part has what is due to it, but for less than one. */
static void check_even(const uint64_t *weights, size_t n)
{
    uint64_t samples[PARTS_MAX], counts[PARTS_MAX] = {0};
    struct blend blend;

    for (size_t k = 0; k < n; k++)
        samples[k] = 100;
    blend_make(&blend, weights, samples, n);
    for (uint64_t p = 0; p < blend.period; p++) {
        const struct blend_place *place = &table_of(&blend)[p];
        assert_true(place->part < n);
        assert_int_equal(place->rank, counts[place->part]++);
        for (size_t k = 0; k < n; k++) {
            int64_t off =
                (int64_t)(counts[k] * blend.period) - (int64_t)((p + 1) * blend.parts[k].weight);
            if (off >= (int64_t)blend.period || off <= -(int64_t)blend.period)
                fail_msg("part %d of %d is off by %d/%u at %d", (int)k, (int)n, (int)off,
                         blend.period, (int)p);
        }
    }
    for (size_t k = 0; k < n; k++)
        assert_int_equal(counts[k], blend.parts[k].weight);
    blend_deinit(&blend);
}

static void shares_hold_at_every_prefix(void **state)
{
    uint64_t weights[PARTS_MAX], random = 1;

    (void)state;
    check_even((uint64_t[]){1}, 1);
    check_even((uint64_t[]){1, 1, 1}, 3);
    check_even((uint64_t[]){70, 25, 5}, 3);
    check_even((uint64_t[]){4, 4, 4, 1, 1, 1, 1, 1, 1, 1}, 10);
    check_even((uint64_t[]){1000, 1, 1, 1, 1, 1}, 6);
    check_even((uint64_t[]){UINT64_MAX, 1, 1u << 31, 12345678901}, 4);
    for (size_t round = 0; round < 200; round++) {
        size_t n = 2 + round % 11;
        for (size_t k = 0; k < n; k++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            weights[k] = 1 + (random >> 33) % (round % 3 == 0 ? 7 : 150);
        }
        check_even(weights, n);
    }
}

/* Of each part the draws of successive epochs, in their order, are passes over its samples. */
static void check_passes(bool shuffled)
{
    static const uint64_t weights[] = {70, 25, 5}, samples[] = {61, 7, 103};
    uint64_t seen[3][103] = {{0}}, draws[3] = {0};
    bool permuted = false;
    struct blend blend;

    blend_make(&blend, weights, samples, 3);
    assert_int_equal(blend.samples, 171);
    for (uint64_t epoch = 0; epoch < 40; epoch++) {
        uint64_t before[3];
        memcpy(before, draws, sizeof before);
        for (uint64_t s = 0; s < blend.samples; s++) {
            struct blend_draw draw = blend_at(&blend, s, (struct sample_key){9, epoch, shuffled});
            uint64_t pass = draws[draw.part] / samples[draw.part];
            uint64_t place = draws[draw.part]++ % samples[draw.part];
            assert_true(draw.sample < samples[draw.part]);
            assert_int_equal(seen[draw.part][draw.sample]++, pass);
            permuted |= draw.sample != place;
        }
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(draws[k] - before[k], blend.parts[k].draws);
    }
    assert_int_equal(draws[0] + draws[1] + draws[2], 40 * 171);
    assert_true(draws[1] > 40 * 7 * 5);
    assert_true(draws[2] < 40 * 103 / 10);
    assert_int_equal(permuted, shuffled);
    blend_deinit(&blend);
}

static void every_sample_once_a_pass(void **state)
{
    (void)state;
    check_passes(false);
    check_passes(true);
}

/* Changes of these need another BLEND_VERSION: tokens to resume from hold on to them. */
static void draws_are_these(void **state)
{
    static const uint64_t weights[] = {70, 25, 5}, samples[] = {61, 7, 103};
    static const unsigned parts[] = {0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0,
                                     0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 1, 0};
    static const unsigned first[] = {0, 1, 0, 2, 3, 4, 1, 5, 6, 2, 7, 8};
    static const unsigned shuffled[] = {15, 41, 2,  30, 17, 7,  3, 57, 19, 5,
                                        5,  33, 11, 6,  39, 12, 3, 35, 56, 99};
    struct blend blend;

    (void)state;
    blend_make(&blend, weights, samples, 3);
    for (size_t s = 0; s < sizeof parts / sizeof *parts; s++) {
        struct blend_draw draw = blend_at(&blend, s, (struct sample_key){0, 0, false});
        assert_int_equal(draw.part, parts[s]);
        if (s < sizeof first / sizeof *first)
            assert_int_equal(draw.sample, first[s]);
    }
    for (size_t s = 0; s < sizeof shuffled / sizeof *shuffled; s++)
        assert_int_equal(blend_at(&blend, s, (struct sample_key){5, 3, true}).sample, shuffled[s]);
    blend_deinit(&blend);
}

/* Products of an epoch and its draws are wider than 64 bits. */
static void huge_parts_in_late_epochs(void **state)
{
    static const uint64_t weights[] = {3, 1}, samples[] = {UINT64_C(1) << 61, 1000003};
    struct blend blend;

    (void)state;
    blend_make(&blend, weights, samples, 2);
    uint64_t last = blend.samples - 1;
    for (uint64_t s = last - 100; s <= last; s++) {
        struct blend_draw draw = blend_at(&blend, s, (struct sample_key){1, UINT64_MAX, false});
        unsigned __int128 wide = (unsigned __int128)UINT64_MAX * blend.parts[draw.part].draws +
                                 s / 4 * blend.parts[draw.part].weight +
                                 table_of(&blend)[s % 4].rank;
        assert_int_equal(draw.sample, (uint64_t)(wide % samples[draw.part]));
        draw = blend_at(&blend, s, (struct sample_key){1, UINT64_MAX, true});
        assert_true(draw.sample < samples[draw.part]);
    }
    blend_deinit(&blend);
}

static void check_refused(const uint64_t *weights, const uint64_t *samples, size_t n, int code,
                          const char *why)
{
    struct failure failure = {0};
    struct blend blend = {0};
    struct arena small = {.name = "tokens:x", .max = 1000};

    assert_int_equal(blend_init(&blend, weights, samples, n, &small, &failure), code);
    if (!strstr(failure.text, why))
        fail_msg("\"%s\" lacks \"%s\"", failure.text, why);
    blend_deinit(&blend);
}

static void what_cannot_be_blended(void **state)
{
    (void)state;
    check_refused((uint64_t[]){1, 0}, (uint64_t[]){1, 1}, 2, -EINVAL,
                  "part 2 of the blend has no weight");
    check_refused((uint64_t[]){1, 1}, (uint64_t[]){0, 1}, 2, -EINVAL,
                  "part 1 of the blend has no samples");
    check_refused(NULL, NULL, 0, -EINVAL, "0 parts");
    check_refused((uint64_t[]){1, 1}, (uint64_t[]){UINT64_MAX, 1}, 2, -E2BIG, "2^64 samples");
    check_refused((uint64_t[]){1000, 1}, (uint64_t[]){1, 1}, 2, -E2BIG,
                  "tokens:x: its index would be larger");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_become_the_smallest_whole_numbers),
        cmocka_unit_test(others_are_shared_out_by_remainder),
        cmocka_unit_test(shares_hold_at_every_prefix),
        cmocka_unit_test(every_sample_once_a_pass),
        cmocka_unit_test(draws_are_these),
        cmocka_unit_test(huge_parts_in_late_epochs),
        cmocka_unit_test(what_cannot_be_blended),
    };

    return cmocka_run_group_tests_name("blend", tests, NULL, NULL);
}
