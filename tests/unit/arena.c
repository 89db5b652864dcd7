/*
 * Memory of an index: arrays keep their items while they grow, and the bound
 * holds.
 */
#include "source/arena.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void items_stay_while_it_grows(void **state)
{
    struct arena arena = {.name = "test"};
    struct array array = {0};

    (void)state;
    for (uint32_t i = 0; i < 10000; i++) {
        assert_int_equal(array_reserve(&array, 1, sizeof i, &arena, NULL), 0);
        ((uint32_t *)array.items)[array.n++] = i;
    }
    assert_int_equal(arena.used, array.capacity * sizeof(uint32_t));
    for (uint32_t i = 0; i < 10000; i++)
        assert_int_equal(((uint32_t *)array.items)[i], i);
    array_trim(&array, sizeof(uint32_t));
    assert_int_equal(array.capacity, 10000);
    assert_int_equal(((uint32_t *)array.items)[9999], 9999);
    array_deinit(&array);
    assert_null(array.items);
}

static void strings_have_positions(void **state)
{
    struct arena arena = {.name = "test"};
    struct array text = {0};
    uint64_t a = 9;
    uint64_t b = 9;

    (void)state;
    assert_int_equal(array_append_string(&text, "one", &arena, &a, NULL), 0);
    assert_int_equal(array_append_string(&text, "", &arena, &b, NULL), 0);
    assert_int_equal(a, 0);
    assert_int_equal(b, 4);
    assert_int_equal(text.n, 5);
    assert_string_equal((char *)text.items, "one");
    array_deinit(&text);
}

static void the_bound_is_for_all_arrays_together(void **state)
{
    struct arena arena = {.name = "photos", .max = 1000};
    struct array one = {0};
    struct array two = {0};
    struct failure failure = {0};

    (void)state;
    assert_int_equal(array_reserve(&one, 600, 1, &arena, &failure), 0);
    one.n = 600;
    assert_int_equal(array_reserve(&two, 101, 4, &arena, &failure), -E2BIG);
    assert_non_null(strstr(failure.text, "source photos"));
    assert_non_null(strstr(failure.text, "1000 B (limits.index)"));
    /* Growing by half is not granted, what is needed is. */
    assert_int_equal(array_reserve(&one, 400, 1, &arena, &failure), 0);
    assert_int_equal(one.capacity, 1000);
    assert_int_equal(arena.used, 1000);
    one.n = 1000;
    assert_int_equal(array_reserve(&one, 1, 1, &arena, &failure), -E2BIG);
    array_deinit(&one);
    array_deinit(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_stay_while_it_grows),
        cmocka_unit_test(strings_have_positions),
        cmocka_unit_test(the_bound_is_for_all_arrays_together),
    };

    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
