/*
 * Regions of a pool and their tenants: who may have what another left, and who
 * pays.
 */
#include "memory/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool_record.h"

/* What most tests have: a pool without regions, and two tenants. */
static struct pool *pool;
static struct accounts accounts;
static struct account *one, *two;

static int pool_setup(void **state)
{
    (void)state;
    pool = pool_new(8 * PAGE);
    accounts_init(&accounts, &unlimited, &unlimited);
    one = account_ref(&accounts, "one");
    two = account_ref(&accounts, "two");
    return 0;
}

/* Every slot is back by then. */
static int pool_teardown(void **state)
{
    (void)state;
    pool_empty(pool);
    account_unref(one);
    account_unref(two);
    return accounts_deinit(&accounts) ? -1 : 0;
}

static void test_region_holds_one_tenant(void **state)
{
    uint64_t a[2], b[2];

    (void)state;
    take(pool, one, PAGE, 1, a);
    take(pool, two, PAGE, 1, b);
    assert_int_equal(memory_region(a[0]), 1);
    assert_int_equal(memory_region(b[0]), 2);
    assert_int_equal(one->used[ACCOUNT_PINNED], 8 * PAGE);
    assert_int_equal(two->used[ACCOUNT_PINNED], 8 * PAGE);

    /* Without slots it is nobody's: the node pays, until the next tenant does. */
    pool_give(pool, a[0], 0);
    assert_int_equal(one->used[ACCOUNT_PINNED], 0);
    assert_int_equal(accounts.node.used[ACCOUNT_PINNED], 16 * PAGE);
    take(pool, two, 5 * PAGE, 2, b); /* 7 pages are free in region 2, and 8 in region 1 */
    assert_int_equal(memory_region(b[0]), 2);
    assert_int_equal(memory_region(b[1]), 1);
    assert_int_equal(two->used[ACCOUNT_PINNED], 16 * PAGE);
    assert_int_equal(accounts.node.used[ACCOUNT_PINNED], 16 * PAGE);

    pool_give(pool, b[0], 0);
    pool_give(pool, b[1], 0);
    pool_give(pool, UINT64_C(2) << 32, 0);
}

static void test_mapped_region_never_changes_hands(void **state)
{
    uint64_t a, b;

    (void)state;
    take(pool, one, PAGE, 1, &a);
    pool_set_mapped(pool, 1);
    pool_set_mapped(pool, 99);
    pool_give(pool, a, 100);
    assert_int_equal(one->used[ACCOUNT_PINNED], 8 * PAGE); /* still charged */
    take(pool, two, PAGE, 1, &b);
    assert_int_equal(memory_region(b), 2);
    take(pool, one, PAGE, 1, &a);
    assert_int_equal(memory_region(a), 1); /* its own it may have again */
    pool_give(pool, a, 200);
    /* Taken out in spite of pool.min, which keeps the other. */
    pool_give(pool, b, 200);
    /* Not while a job's client has it: its memory would stay. */
    pool_hold(pool, 1, true);
    assert_null(pool_take_idle(pool, 300, 100, 16 * PAGE));
    pool_hold(pool, 1, false);
    struct region *region = pool_take_idle(pool, 300, 100, 16 * PAGE);
    assert_non_null(region);
    assert_int_equal(region->id, 1);
    region_free(region);
    assert_null(pool_take_idle(pool, 300, 100, 8 * PAGE));
    assert_int_equal(one->used[ACCOUNT_PINNED], 0);
}

static void test_region_made_for_a_tenant_waits_for_it(void **state)
{
    uint64_t memory, region_bytes;
    uint32_t regions;

    (void)state;
    record_add(pool, 8 * PAGE, one, 0);
    assert_int_equal(pool_take(pool, two, false, PAGE, 1, &memory, &regions, &region_bytes), 1);
    assert_int_equal(pool_take(pool, one, false, PAGE, 1, &memory, &regions, &region_bytes), 0);
    pool_give(pool, memory, 0);
    /* One of the node's (pool.min) is for anybody. */
    assert_int_equal(pool_take(pool, two, false, PAGE, 1, &memory, &regions, &region_bytes), 0);
    pool_give(pool, memory, 0);
}

/* Memory that one tenant's batches were copied from can serve another's copies, but no client of
 * another may look at it; nor at its own tenant's newer batches beside the old ones. */
static void test_what_a_tenant_left_is_shown_to_no_other(void **state)
{
    uint64_t copied, shown, region_bytes;
    uint32_t regions;

    (void)state;
    record_add(pool, 8 * PAGE, &accounts.node, 0);
    assert_int_equal(pool_take(pool, one, false, PAGE, 1, &copied, &regions, &region_bytes), 0);
    pool_give(pool, copied, 0);
    assert_int_equal(pool_take(pool, two, true, PAGE, 1, &shown, &regions, &region_bytes), 1);
    assert_int_equal(pool_take(pool, two, false, PAGE, 1, &copied, &regions, &region_bytes), 0);
    assert_int_equal(pool_take(pool, two, true, PAGE, 1, &shown, &regions, &region_bytes), 1);
    assert_int_equal(regions, 1);
    record_add(pool, region_bytes, two, 0);
    assert_int_equal(pool_take(pool, two, true, PAGE, 1, &shown, &regions, &region_bytes), 0);
    assert_int_equal(memory_region(shown), 2);
    pool_give(pool, copied, 0);
    pool_give(pool, shown, 0);
}

/* Another's idle region is larger than the limit allows: a smaller one of its own serves, and
 * asking again does not ask for more. */
static void test_limit_forbids_an_idle_region(void **state)
{
    struct account_limits limits = unlimited;
    struct pool *limited_pool = pool_new(8 * PAGE);
    struct accounts limited;
    uint64_t memory, region_bytes = 0;
    uint32_t regions = 0;

    (void)state;
    limits.max[ACCOUNT_PINNED] = 12 * PAGE;
    accounts_init(&limited, &unlimited, &limits);
    struct account *tenant = account_ref(&limited, "one");
    struct region *large = record_add(limited_pool, 16 * PAGE, &limited.node, 0);
    assert_int_equal(
        pool_take(limited_pool, tenant, false, PAGE, 1, &memory, &regions, &region_bytes), 1);
    assert_int_equal(regions, 1);
    assert_int_equal(region_bytes, 8 * PAGE);
    assert_ptr_equal(large->charge.account, &limited.node);
    record_add(limited_pool, region_bytes, tenant, 0);
    assert_int_equal(
        pool_take(limited_pool, tenant, false, PAGE, 1, &memory, &regions, &region_bytes), 0);
    assert_int_equal(memory_region(memory), 2);
    assert_int_equal(tenant->used[ACCOUNT_PINNED], 8 * PAGE);
    pool_give(limited_pool, memory, 0);
    pool_empty(limited_pool);
    account_unref(tenant);
    assert_int_equal(accounts_deinit(&limited), 0);
}

#define pool_test(f) cmocka_unit_test_setup_teardown(f, pool_setup, pool_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        pool_test(test_region_holds_one_tenant),
        pool_test(test_mapped_region_never_changes_hands),
        pool_test(test_region_made_for_a_tenant_waits_for_it),
        pool_test(test_what_a_tenant_left_is_shown_to_no_other),
        cmocka_unit_test(test_limit_forbids_an_idle_region),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
