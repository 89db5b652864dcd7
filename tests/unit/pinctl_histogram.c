/*
 * The histogram of durations: exact where it promises so, off by less than 0.4 % elsewhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/pinctl/histogram.h"

static struct histogram histogram, other;

static int reset(void **state)
{
    (void)state;
    memset(&histogram, 0, sizeof(histogram));
    memset(&other, 0, sizeof(other));
    return 0;
}

static void test_empty(void **state)
{
    (void)state;
    assert_int_equal(histogram_percentile(&histogram, 0.5), 0);
    assert_true(histogram_mean(&histogram) == 0);
}

static void test_small_values_are_exact(void **state)
{
    (void)state;
    for (uint64_t value = 1; value <= 200; value++)
        histogram_add(&histogram, value);
    assert_int_equal(histogram_percentile(&histogram, 0), 1);
    assert_int_equal(histogram_percentile(&histogram, 0.5), 100);
    assert_int_equal(histogram_percentile(&histogram, 0.99), 198);
    assert_int_equal(histogram_percentile(&histogram, 1), 200);
    assert_int_equal(histogram.sum, 20100);
    assert_true(histogram_mean(&histogram) == 100.5);
}

/* Every power of two, its neighbours and what lies between, over all 64 bits. */
static void test_error_is_bounded(void **state)
{
    (void)state;
    for (unsigned int bit = 0; bit < 64; bit++) {
        uint64_t power = UINT64_C(1) << bit;
        const uint64_t values[] = {
            power - 1, power, power + 1, power + power / 3, power + power / 2, power + (power - 1)};
        for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
            memset(&histogram, 0, sizeof(histogram));
            histogram_add(&histogram, values[i]);
            histogram.max = UINT64_MAX; /* which would hide an error */
            uint64_t got = histogram_percentile(&histogram, 0.5);
            uint64_t error = got > values[i] ? got - values[i] : values[i] - got;
            assert_true((double)error <= (double)values[i] * 0.004);
        }
    }
}

static void test_percentile_does_not_exceed_the_maximum(void **state)
{
    (void)state;
    histogram_add(&histogram, 1000000);
    assert_int_equal(histogram_percentile(&histogram, 1) <= 1000000, 1);
    assert_int_equal(histogram.max, 1000000);
}

static void test_merge(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 99; i++)
        histogram_add(&histogram, 10);
    histogram_add(&other, 50000);
    histogram_merge(&histogram, &other);
    assert_int_equal(histogram.count, 100);
    assert_int_equal(histogram.sum, 99 * 10 + 50000);
    assert_int_equal(histogram.max, 50000);
    assert_int_equal(histogram_percentile(&histogram, 0.99), 10);
    assert_in_range(histogram_percentile(&histogram, 1), 49800, 50000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_empty, reset),
        cmocka_unit_test_setup(test_small_values_are_exact, reset),
        cmocka_unit_test_setup(test_error_is_bounded, reset),
        cmocka_unit_test_setup(test_percentile_does_not_exceed_the_maximum, reset),
        cmocka_unit_test_setup(test_merge, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
