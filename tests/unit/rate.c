/*
 * The rate of a counter over the last second or so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rate.h"

#define MS UINT64_C(1000000)

static void test_rate_is_of_the_last_second(void **state)
{
    struct rate rate = {0};
    uint64_t now = 77 * MS, total = 0;

    (void)state;
    assert_int_equal(rate_get(&rate, now, 5000), 0);
    for (int i = 0; i < 40; i++, now += 250 * MS, total += 250000)
        rate_sample(&rate, now, total);
    assert_int_equal(rate_get(&rate, now, total), 1000000);
    for (int i = 0; i < 40; i++, now += 250 * MS, total += 500000)
        rate_sample(&rate, now, total);
    assert_int_equal(rate_get(&rate, now, total), 2000000);
}

static void test_rate_falls_to_zero(void **state)
{
    struct rate rate = {0};
    uint64_t now = 1, total = 1 << 20, last = UINT64_MAX;

    (void)state;
    rate_sample(&rate, now, 0);
    rate_sample(&rate, now + 250 * MS, total);
    for (int i = 0; i < 5; i++) {
        now += 300 * MS;
        uint64_t rate_now = rate_get(&rate, now, total);
        assert_true(rate_now < last && rate_now > 0);
        last = rate_now;
    }
    assert_int_equal(rate_get(&rate, now + 300 * MS, total), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_is_of_the_last_second),
        cmocka_unit_test(test_rate_falls_to_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
