/*
 * The book of a pool. Most regions here are records without memory; rounding is
 * tested on a real one, too.
 */
#include "memory/pool.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pool_record.h"

#define MIB (UINT64_C(1) << 20)

static void test_starts_empty_and_says_what_is_needed(void **state)
{
    struct pool *pool = pool_new(64 * MIB);
    struct pool_info info;
    uint64_t memory[8], region_bytes = 0;
    uint32_t regions = 0;

    (void)state;
    pool_info_get(pool, &info);
    assert_int_equal(info.regions, 0);
    assert_int_equal(info.bytes, 0);
    assert_int_equal(info.numa_node, -1);
    assert_null(info.bind_failure);
    /* Two slots of 30 MiB fit in one region: five slots need three. */
    assert_int_equal(pool_take(pool, NULL, false, 30 * MIB, 5, memory, &regions, &region_bytes), 1);
    assert_int_equal(regions, 3);
    assert_int_equal(region_bytes, 64 * MIB);
    /* A slot larger than a region: each has one of its own, a multiple. */
    assert_int_equal(pool_take(pool, NULL, false, 65 * MIB, 2, memory, &regions, &region_bytes), 1);
    assert_int_equal(regions, 2);
    assert_int_equal(region_bytes, 128 * MIB);
    /* What is there counts. */
    record_add(pool, 64 * MIB, NULL, 0);
    assert_int_equal(pool_take(pool, NULL, false, 30 * MIB, 5, memory, &regions, &region_bytes), 1);
    assert_int_equal(regions, 2);
    pool_info_get(pool, &info);
    assert_int_equal(info.slots, 0);
    assert_int_equal(info.used_bytes, 0);
    assert_int_equal(pool_take(pool, NULL, false, 1, 0, memory, &regions, &region_bytes), 0);
    assert_int_equal(
        pool_take(pool, NULL, false, UINT64_C(1) << 60, 1, memory, &regions, &region_bytes),
        -EINVAL);
    pool_empty(pool);
}

static void test_push_regions_are_one_owners(void **state)
{
    struct pool *pool = pool_new(4 * PAGE);
    uint64_t memory[8], region_bytes = 0;
    uint32_t regions = 0;

    (void)state;
    struct region *pushed = record_add(pool, 4 * PAGE, NULL, 0);
    pushed->owner = 5;
    assert_int_equal(pool_take(pool, NULL, false, PAGE, 1, memory, &regions, &region_bytes), 1);
    assert_int_equal(pool_take_pushed(pool, NULL, 6, PAGE, 1, memory, &regions, &region_bytes), 1);
    assert_int_equal(pool_take_pushed(pool, NULL, 5, PAGE, 4, memory, &regions, &region_bytes), 0);
    assert_int_equal(memory_region(memory[3]), pushed->id);
    struct region *other = record_add(pool, 4 * PAGE, NULL, 0);
    assert_int_equal(pool_take_pushed(pool, NULL, 5, PAGE, 1, memory + 4, &regions, &region_bytes),
                     1);
    assert_int_equal(pool_take(pool, NULL, false, PAGE, 1, memory + 4, &regions, &region_bytes), 0);
    assert_int_equal(memory_region(memory[4]), other->id);
    /* Without slots it is not kept, whatever is kept of others. */
    for (int i = 0; i < 5; i++)
        pool_give(pool, memory[i], 10);
    assert_true(pool_can_shrink(pool, UINT64_MAX));
    assert_ptr_equal(pool_take_idle(pool, 10, UINT64_MAX, UINT64_MAX), pushed);
    assert_null(pool_take_idle(pool, 10, UINT64_MAX, UINT64_MAX));
    region_free(pushed);
    pool_empty(pool);
}

static void test_rounding_counts_what_is_pinned(void **state)
{
    struct pool *pool = pool_new(4 * MIB);
    struct topology *topology;
    struct placement placement;
    struct accounts accounts;
    struct failure failure = {0};
    struct region *region;
    struct pool_info info;
    uint64_t memory, region_bytes = 0, offset;
    uint32_t regions = 0;
    void *address;

    (void)state;
    accounts_init(&accounts, &unlimited, &unlimited);
    struct account *tenant = account_ref(&accounts, "uid 1000");
    assert_int_equal(topology_new(NULL, &topology, &failure), 0);
    assert_int_equal(placement_find(topology, NULL, -1, &placement, &failure), 0);
    assert_int_equal(
        pool_take(pool, tenant, false, 10 * MIB + 1, 1, &memory, &regions, &region_bytes), 1);
    assert_int_equal(regions, 1);
    assert_int_equal(region_bytes, 12 * MIB);
    struct region_spec spec = {.bytes = region_bytes,
                               .lock = REGION_LOCK_OFF,
                               .placement = &placement,
                               .topology = topology};
    assert_int_equal(region_new(&spec, &region, &failure), 0);
    assert_int_equal(
        charge_acquire(&region->charge, tenant, ACCOUNT_PINNED, region->bytes, &failure), 0);
    pool_add_region(pool, region, 0);
    assert_int_equal(
        pool_take(pool, tenant, false, 10 * MIB + 1, 1, &memory, &regions, &region_bytes), 0);
    pool_info_get(pool, &info);
    assert_int_equal(info.bytes, 12 * MIB);
    assert_int_equal(info.used_bytes, 10 * MIB + PAGE);
    assert_int_equal(info.locked_bytes, 0);
    assert_int_equal(info.pages_local, info.pages);
    assert_int_equal(info.numa_node, placement.memory_node);
    assert_int_equal(tenant->used[ACCOUNT_PINNED], 12 * MIB);
    assert_ptr_equal(pool_slot(pool, memory, &address, &offset), region);
    assert_int_equal(offset, 0);
    memset(address, 5, 10 * MIB + 1);
    pool_give(pool, memory, 7);
    assert_ptr_equal(pool_take_idle(pool, 7, 0, 0), region);
    assert_true(region_destroy(region));
    region_free(region);
    assert_int_equal(tenant->used[ACCOUNT_PINNED], 0);
    account_unref(tenant);
    assert_int_equal(accounts_deinit(&accounts), 0);
    pool_free(pool);
    placement_deinit(&placement);
    topology_free(topology);
}

static void test_first_fit_within_regions(void **state)
{
    struct pool *pool = pool_new(8 * PAGE);
    uint64_t memory[8], more[4], offset;
    uint32_t regions;
    uint64_t region_bytes;
    void *address;

    (void)state;
    struct region *first = record_add(pool, 8 * PAGE, NULL, 0);
    struct region *second = record_add(pool, 8 * PAGE, NULL, 0);
    first->address = (void *)(uintptr_t)0x100000;
    assert_int_equal(first->id, 1);
    assert_int_equal(second->id, 2);
    /* Three pages each: two in a region, the last two pages of it stay free. */
    assert_int_equal(pool_take(pool, NULL, false, 3 * PAGE, 4, memory, &regions, &region_bytes), 0);
    assert_int_equal(memory[0], UINT64_C(1) << 32 | 0);
    assert_int_equal(memory[1], UINT64_C(1) << 32 | 3);
    assert_int_equal(memory[2], UINT64_C(2) << 32 | 0);
    assert_int_equal(memory[3], UINT64_C(2) << 32 | 3);
    assert_ptr_equal(pool_slot(pool, memory[1], &address, &offset), first);
    assert_int_equal(offset, 3 * PAGE);
    assert_ptr_equal(address, (void *)(uintptr_t)(0x100000 + 3 * PAGE));
    assert_ptr_equal(pool_slot(pool, memory[3], NULL, NULL), second);
    assert_null(pool_slot(pool, memory[1] + 1, NULL, NULL));
    assert_null(pool_slot(pool, UINT64_C(3) << 32, NULL, NULL));
    /* The gap in front is used before the end, and never for what does not fit. */
    pool_give(pool, memory[0], 0);
    assert_null(pool_slot(pool, memory[0], NULL, NULL));
    assert_int_equal(pool_take(pool, NULL, false, 2 * PAGE, 3, more, &regions, &region_bytes), 0);
    assert_int_equal(more[0], UINT64_C(1) << 32 | 0);
    assert_int_equal(more[1], UINT64_C(1) << 32 | 6);
    assert_int_equal(more[2], UINT64_C(2) << 32 | 6);
    assert_int_equal(pool_take(pool, NULL, false, 2 * PAGE, 1, more + 3, &regions, &region_bytes),
                     1);
    assert_int_equal(pool_take(pool, NULL, false, PAGE, 1, more + 3, &regions, &region_bytes), 0);
    assert_int_equal(more[3], UINT64_C(1) << 32 | 2);
    for (int i = 1; i < 4; i++)
        pool_give(pool, memory[i], 0);
    for (int i = 0; i < 4; i++)
        pool_give(pool, more[i], 0);
    assert_ptr_equal(pool_region(pool, 1), first);
    assert_ptr_equal(pool_region_next(pool, 2), second);
    assert_null(pool_region(pool, 3));
    first->address = NULL;
    pool_empty(pool);
}

static void test_all_or_nothing(void **state)
{
    struct pool *pool = pool_new(8 * PAGE);
    struct pool_info info;
    uint64_t memory[10] = {0};
    uint32_t regions;
    uint64_t region_bytes;

    (void)state;
    record_add(pool, 8 * PAGE, NULL, 0);
    assert_int_equal(pool_take(pool, NULL, false, PAGE, 9, memory, &regions, &region_bytes), 1);
    assert_int_equal(regions, 1);
    assert_int_equal(memory[0], 0);
    pool_info_get(pool, &info);
    assert_int_equal(info.slots, 0);
    assert_int_equal(pool_take(pool, NULL, false, PAGE, 8, memory, &regions, &region_bytes), 0);
    for (int i = 0; i < 8; i++)
        pool_give(pool, memory[i], 0);
    pool_empty(pool);
}

static void test_giving_twice_changes_nothing(void **state)
{
    struct pool *pool = pool_new(8 * PAGE);
    struct pool_info info;
    uint64_t memory[2];

    (void)state;
    take(pool, NULL, 2 * PAGE, 2, memory);
    pool_give(pool, memory[0], 0);
    pool_give(pool, memory[0], 0);
    pool_give(pool, memory[1] + 1, 0);
    pool_give(pool, UINT64_C(77) << 32, 0);
    pool_info_get(pool, &info);
    assert_int_equal(info.slots, 1);
    assert_int_equal(info.used_bytes, 2 * PAGE);
    pool_give(pool, memory[1], 0);
    pool_empty(pool);
}

static void test_idle_regions(void **state)
{
    struct pool *pool = pool_new(8 * PAGE);
    uint64_t memory[2];
    struct region *region;

    (void)state;
    for (uint64_t i = 0; i < 3; i++)
        record_add(pool, 8 * PAGE, NULL, 100 + i);
    take(pool, NULL, 8 * PAGE, 2, memory);                 /* regions 1 and 2 */
    assert_null(pool_take_idle(pool, 111, 10, 24 * PAGE)); /* all are to be kept */
    assert_null(pool_take_idle(pool, 111, 10, 0));         /* idle for 9 */
    assert_null(pool_take_idle(pool, 50, 10, 0));          /* a clock behind */
    region = pool_take_idle(pool, 112, 10, 16 * PAGE);
    assert_non_null(region);
    assert_int_equal(region->id, 3);
    region_free(region);
    /* The one that is idle for longest goes first; ids are not used again. */
    pool_give(pool, memory[1], 200);
    pool_give(pool, memory[0], 300);
    region = pool_take_idle(pool, 400, 10, 0);
    assert_non_null(region);
    assert_int_equal(region->id, 2);
    region_free(region);
    assert_int_equal(record_add(pool, 8 * PAGE, NULL, 0)->id, 4);
    pool_empty(pool);
    pool_free(NULL);
}

static void test_info_sums_regions(void **state)
{
    struct pool *pool = pool_new(8 * PAGE);
    struct pool_info info;
    struct region *first = record_add(pool, 8 * PAGE, NULL, 0);
    struct region *second = record_add(pool, 16 * PAGE, NULL, 0);
    uint64_t memory[2];

    (void)state;
    first->locked = true;
    first->numa_node = second->numa_node = 1;
    first->pages = 8;
    first->pages_local = 6;
    second->pages = second->pages_local = 16;
    failure_set(&second->bind_failure, -EPERM, "mbind refused");
    take(pool, NULL, 5 * PAGE, 2, memory);
    pool_info_get(pool, &info);
    assert_int_equal(info.regions, 2);
    assert_int_equal(info.slots, 2);
    assert_int_equal(info.bytes, 24 * PAGE);
    assert_int_equal(info.used_bytes, 10 * PAGE);
    assert_int_equal(info.locked_bytes, 8 * PAGE);
    assert_int_equal(info.pages, 24);
    assert_int_equal(info.pages_local, 22);
    assert_int_equal(info.numa_node, 1);
    assert_string_equal(info.bind_failure->text, "mbind refused");
    pool_give(pool, memory[0], 0);
    pool_give(pool, memory[1], 0);
    pool_empty(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starts_empty_and_says_what_is_needed),
        cmocka_unit_test(test_push_regions_are_one_owners),
        cmocka_unit_test(test_rounding_counts_what_is_pinned),
        cmocka_unit_test(test_first_fit_within_regions),
        cmocka_unit_test(test_all_or_nothing),
        cmocka_unit_test(test_giving_twice_changes_nothing),
        cmocka_unit_test(test_idle_regions),
        cmocka_unit_test(test_info_sums_regions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
