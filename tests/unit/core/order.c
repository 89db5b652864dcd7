/*
 * The order: a permutation, the ranks' shares of it, the ends of epochs, and
 * where a token resumes.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/order.h"

static void test_permutation(void **state)
{
    static const uint64_t sizes[] = {1,  2,  3,  4,   5,    7,    8,    9,
                                     15, 16, 17, 100, 1000, 1023, 4097, 65536};
    unsigned char *seen = malloc(65536);

    (void)state;
    assert_non_null(seen);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (uint64_t seed = 0; seed < 5; seed++) {
            memset(seen, 0, sizes[k]);
            for (uint64_t i = 0; i < sizes[k]; i++) {
                uint64_t at = order_permute(seed, seed * 3, sizes[k], i);

                assert_true(at < sizes[k]);
                assert_int_equal(seen[at], 0);
                seen[at] = 1;
            }
        }
    free(seen);
}

static void test_permutation_large(void **state)
{
    static const uint64_t sizes[] = {UINT64_C(1) << 63, (UINT64_C(1) << 63) - 1,
                                     (UINT64_C(1) << 62) + 1, UINT64_C(1000000007)};

    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t at = order_permute(1, 2, sizes[k], sizes[k] - 1 - i);

            assert_true(at < sizes[k]);
            assert_int_not_equal(at, order_permute(1, 2, sizes[k], i));
        }
}

/* Any change here changes what jobs get: it needs a new ORDER_VERSION. */
static void test_permutation_version_1(void **state)
{
    static const uint64_t first[] = {352, 182, 702, 417, 810, 855, 808, 774, 916, 661};

    (void)state;
    assert_int_equal(ORDER_VERSION, 1);
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(order_permute(42, 3, 1000, i), first[i]);
    assert_int_equal(order_permute(0, 0, UINT64_C(1) << 40, 12345), UINT64_C(276034988269));
}

/* Pearson's statistic of differences of neighbours, of the same position in two epochs, and of the
 * places of two samples over the seeds. With 63 degrees of freedom it is above 126 once in 200,000.
 */
static double chi_square(const uint32_t *counts, unsigned n, double expected)
{
    double sum = 0;

    for (unsigned i = 0; i < n; i++)
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    return sum;
}

static void test_no_structure(void **state)
{
    const uint64_t n = 65536;
    uint32_t neighbours[64], epochs[64], seeds[64] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        memset(neighbours, 0, sizeof neighbours);
        memset(epochs, 0, sizeof epochs);
        for (uint64_t i = 0; i + 1 < n; i++) {
            uint64_t at = order_permute(seed, 0, n, i);

            neighbours[((order_permute(seed, 0, n, i + 1) - at) & (n - 1)) / 1024]++;
            epochs[((order_permute(seed, 1, n, i) - at) & (n - 1)) / 1024]++;
        }
        assert_true(chi_square(neighbours, 64, (double)(n - 1) / 64) < 126);
        assert_true(chi_square(epochs, 64, (double)(n - 1) / 64) < 126);
    }
    for (uint64_t seed = 0; seed < 64000; seed++)
        seeds[order_permute(seed, 0, 8, 0) * 8 + order_permute(seed, 1, 8, 0)]++;
    assert_true(chi_square(seeds, 64, 1000) < 126);
}

static void expect_refused(struct order order, const char *text)
{
    struct failure failure;

    assert_int_equal(order_check(&order, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, text));
}

static void test_check(void **state)
{
    struct order good = {.samples = 10, .batch = 5, .world = 2, .rank = 1};
    struct order order = good;

    (void)state;
    assert_int_equal(order_check(&good, NULL), 0);
    order.samples = 0;
    expect_refused(order, "no samples");
    order.samples = (UINT64_C(1) << 63) + 1;
    expect_refused(order, "more than 2^63");
    order = good;
    order.batch = 0;
    expect_refused(order, "batch is 0");
    order = good;
    order.world = 0;
    expect_refused(order, "world is 0");
    order = good;
    order.rank = 2;
    expect_refused(order, "rank 2 is not below world 2");
    order = good;
    order.last = ORDER_LAST_PARTIAL;
    expect_refused(order, "world is 2");
    order = good;
    order.shuffle = (enum order_shuffle)9;
    expect_refused(order, "shuffle 9");
    order = good;
    order.last = (enum order_last)9;
    expect_refused(order, "last 9");
    order = good;
    order.bad = (enum order_bad)9;
    expect_refused(order, "bad 9");
}

static void test_batch_larger_than_the_data(void **state)
{
    struct order order = {.samples = 5, .batch = 8, .world = 1};

    (void)state;
    expect_refused(order, "a step takes 8 samples (batch 8 on 1 ranks), the dataset has 5");
    order.last = ORDER_LAST_PARTIAL;
    assert_int_equal(order_check(&order, NULL), 0);
    assert_int_equal(order_steps(&order), 1);
    assert_int_equal(order_count(&order, 0), 5);
    order.last = ORDER_LAST_PAD;
    assert_int_equal(order_steps(&order), 1);
    assert_int_equal(order_count(&order, 0), 8);
    assert_int_equal(order_at(&order, 0, 0, 7).status, SAMPLE_PADDING);
}

/* 26 samples on 4 ranks, batch 6: the same number of steps on each, whatever is left over. */
static void test_uneven_shards(void **state)
{
    struct order order = {
        .samples = 26, .batch = 6, .world = 4, .last = ORDER_LAST_DROP, .seed = 9};
    unsigned seen[26] = {0}, padding = 0;

    (void)state;
    for (order.rank = 0; order.rank < 4; order.rank++)
        assert_int_equal(order_steps(&order), 1);
    order.last = ORDER_LAST_PAD;
    for (order.rank = 0; order.rank < 4; order.rank++) {
        assert_int_equal(order_steps(&order), 2);
        for (uint64_t step = 0; step < 2; step++)
            for (uint32_t i = 0; i < order_count(&order, step); i++) {
                struct order_item item = order_at(&order, 1, step, i);

                if (item.status == SAMPLE_PADDING)
                    padding++;
                else
                    seen[item.sample]++;
            }
    }
    assert_int_equal(padding, 48 - 26);
    for (int i = 0; i < 26; i++)
        assert_int_equal(seen[i], 1);
}

static void test_ranks(void **state)
{
    struct order order = {.shuffle = ORDER_SHUFFLE_NONE, .samples = 100, .batch = 3, .world = 2};

    (void)state;
    for (order.rank = 0; order.rank < 2; order.rank++)
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(order_at(&order, 5, 4, i).sample, 4 * 6 + 2 * i + order.rank);
    order.last = ORDER_LAST_PAD;
    order.rank = 1;
    assert_int_equal(order_steps(&order), 17);
    assert_int_equal(order_at(&order, 0, 16, 2).sample, 1); /* position 101 */
    assert_int_equal(order_at(&order, 0, 16, 2).status, SAMPLE_PADDING);
    assert_int_equal(order_at(&order, 0, 16, 1).status, SAMPLE_OK);
}

/* The global batch is the same set of samples for any world with the same batch * world. */
static void test_other_world(void **state)
{
    struct order two = {.samples = 50, .batch = 6, .world = 2, .seed = 3};
    struct order three = {.samples = 50, .batch = 4, .world = 3, .seed = 3};
    uint64_t sum_two = 0, sum_three = 0;

    (void)state;
    for (uint64_t step = 0; step < order_steps(&two); step++) {
        for (two.rank = 0; two.rank < 2; two.rank++)
            for (uint32_t i = 0; i < 6; i++)
                sum_two += UINT64_C(1) << order_at(&two, 1, step, i).sample;
        for (three.rank = 0; three.rank < 3; three.rank++)
            for (uint32_t i = 0; i < 4; i++)
                sum_three += UINT64_C(1) << order_at(&three, 1, step, i).sample;
        assert_int_equal(sum_two, sum_three);
    }
}

static void test_partial(void **state)
{
    struct order order = {.samples = 10, .batch = 4, .world = 1, .last = ORDER_LAST_PARTIAL};

    (void)state;
    assert_int_equal(order_steps(&order), 3);
    assert_int_equal(order_count(&order, 0), 4);
    assert_int_equal(order_count(&order, 2), 2);
    order.samples = 8;
    assert_int_equal(order_steps(&order), 2);
    assert_int_equal(order_count(&order, 1), 4);
}

/* The samples behind a bad one in the epoch's order, across ranks, steps and the epoch's end. */
static void test_substitutes(void **state)
{
    struct order order = {.samples = 26,
                          .batch = 6,
                          .world = 4,
                          .rank = 3,
                          .last = ORDER_LAST_PAD,
                          .shuffle = ORDER_SHUFFLE_NONE};
    uint64_t sample = 0;

    (void)state;
    for (uint32_t n = 1; n < 26; n++) {
        assert_true(order_substitute(&order, 0, 0, 5, n, &sample));
        assert_int_equal(sample, (23 + n) % 26);
    }
    assert_false(order_substitute(&order, 0, 0, 5, 26, &sample));
    assert_true(order_substitute(&order, 0, 1, 0, 1, &sample)); /* padding, of position 27 % 26 */
    assert_int_equal(sample, 2);

    order.shuffle = ORDER_SHUFFLE_FULL;
    order.samples = 1000;
    for (uint32_t n = 1; n <= ORDER_SUBSTITUTES_MAX; n++) {
        struct order other = order;

        other.rank = (order.rank + n) % 4;
        assert_true(order_substitute(&order, 7, 2, 1, n, &sample));
        assert_int_equal(sample, order_permute(0, 7, 1000, 2 * 24 + 4 + 3 + n));
        if (n == 1)
            assert_int_equal(sample, order_at(&other, 7, 2, 2).sample);
    }
    assert_false(order_substitute(&order, 7, 2, 1, ORDER_SUBSTITUTES_MAX + 1, &sample));
    order.samples = 1;
    assert_false(order_substitute(&order, 0, 0, 0, 1, &sample));
}

static void test_samples_of_a_rank(void **state)
{
    struct order order = {.samples = 26, .batch = 6, .world = 4};

    (void)state;
    assert_int_equal(order_samples(&order), 6);
    order.last = ORDER_LAST_PAD;
    assert_int_equal(order_samples(&order), 12);
    order.world = 1;
    assert_int_equal(order_samples(&order), 30);
    order.last = ORDER_LAST_PARTIAL;
    assert_int_equal(order_samples(&order), 26);
}

static void test_resume(void **state)
{
    struct order order = {.samples = 50, .batch = 6, .world = 2, .seed = 3, .rank = 1};
    struct order_token token = {.dataset = "a",
                                .pipeline = "p",
                                .fingerprint = 1,
                                .seed = 3,
                                .global_batch = 12,
                                .epoch = 7,
                                .position = 24};
    struct order_token other;
    struct cursor at;
    struct failure failure;

    (void)state;
    assert_int_equal(order_resume(&order, "b", 1, "p", &token, &at, &failure), 0);
    assert_int_equal(at.epoch, 7);
    assert_int_equal(at.step, 2);
    order.world = 3;
    order.batch = 4;
    assert_int_equal(order_resume(&order, "b", 1, "p", &token, &at, &failure), 0);
    order.batch = 6;
    assert_int_equal(order_resume(&order, "b", 1, "p", &token, &at, &failure), -EINVAL);
    assert_string_equal(failure.text, "the token is for a global batch of 12 samples, the job has "
                                      "18 (batch 6 on 3 ranks)");
    order.batch = 4;
    assert_int_equal(order_resume(&order, "b", 2, "p", &token, &at, &failure), -EINVAL);
    assert_null(strstr(failure.text, "are others"));
    assert_non_null(
        strstr(failure.text, "dataset a (fingerprint 0000000000000001), the job reads b"));
    assert_int_equal(order_resume(&order, "a", 2, "p", &token, &at, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, "its files, their sizes, seq or an option are others"));
    assert_int_equal(order_resume(&order, "b", 1, "q", &token, &at, &failure), -EINVAL);
    assert_string_equal(failure.text, "the token is for pipeline p, the job has pipeline q");
    other = token;
    other.seed = 4;
    assert_int_equal(order_resume(&order, "b", 1, "p", &other, &at, &failure), -EINVAL);
    assert_string_equal(failure.text, "the token is for seed 4, the job has seed 3");
    other = token;
    other.last = ORDER_LAST_PAD;
    assert_int_equal(order_resume(&order, "b", 1, "p", &other, &at, &failure), -EINVAL);
    assert_string_equal(failure.text, "the token is for shuffle full and last pad, the job has "
                                      "shuffle full and last drop");
    other = token;
    other.bad = ORDER_BAD_SUBSTITUTE;
    assert_int_equal(order_resume(&order, "b", 1, "p", &other, &at, &failure), -EINVAL);
    assert_string_equal(failure.text, "the token is for bad samples substitute, the job has bad "
                                      "samples fail");
    other = token;
    other.position = 25;
    assert_int_equal(order_resume(&order, "b", 1, "p", &other, &at, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, "position 25 is not between two steps"));
    other.position = 48; /* after the last batch */
    assert_int_equal(order_resume(&order, "b", 1, "p", &other, &at, &failure), 0);
    assert_int_equal(at.step, order_steps(&order));
    assert_int_equal(order_position(&order, at.step), 48);
    other.position = 60;
    assert_int_equal(order_resume(&order, "b", 1, "p", &other, &at, &failure), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation),
        cmocka_unit_test(test_permutation_large),
        cmocka_unit_test(test_permutation_version_1),
        cmocka_unit_test(test_no_structure),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_batch_larger_than_the_data),
        cmocka_unit_test(test_uneven_shards),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_other_world),
        cmocka_unit_test(test_partial),
        cmocka_unit_test(test_substitutes),
        cmocka_unit_test(test_samples_of_a_rank),
        cmocka_unit_test(test_resume),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
