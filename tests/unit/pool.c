/*
 * The book of a pool. Most regions here are records without memory: the pool
 * never touches any. Rounding and idle regions are tested on real ones, too.
 */
#include "memory/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/limits.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)
#define PAGE ((uint64_t)SLOT_ALIGN)

static const struct account_limits unlimited = {
    .max = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};

/* A record of a region whose memory is not needed; address is only a number. */
static struct region *record_make(uint64_t bytes, struct account *payer)
{
    struct region *region = calloc(1, sizeof(*region));

    assert_non_null(region);
    region->fd = region->linger_fd = -1;
    region->bytes = bytes;
    region->numa_node = -1;
    if (payer)
        assert_int_equal(charge_acquire(&region->charge, payer, ACCOUNT_PINNED, bytes, NULL), 0);
    return region;
}

static struct region *record_add(struct pool *pool, uint64_t bytes, struct account *payer,
                                 uint64_t now)
{
    struct region *region = record_make(bytes, payer);

    pool_add_region(pool, region, now);
    return region;
}

static void pool_empty(struct pool *pool)
{
    struct region *region;

    while ((region = pool_take_idle(pool, UINT64_MAX, 0, 0)) != NULL)
        region_free(region);
    assert_null(pool_region_next(pool, 0));
    pool_free(pool);
}

/* Takes and grows as a caller does. */
static void take(struct pool *pool, struct account *tenant, uint64_t bytes, uint32_t count,
                 uint64_t *memory)
{
    uint32_t regions = 0;
    uint64_t region_bytes = 0;

    if (pool_take(pool, tenant, false, bytes, count, memory, &regions, &region_bytes) == 0)
        return;
    for (uint32_t i = 0; i < regions; i++)
        record_add(pool, region_bytes, tenant, 0);
    assert_int_equal(pool_take(pool, tenant, false, bytes, count, memory, &regions, &region_bytes),
                     0);
}

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

static void test_region_holds_one_tenant(void **state)
{
    struct pool *pool = pool_new(8 * PAGE);
    struct accounts accounts;
    uint64_t a[2], b[2];

    (void)state;
    accounts_init(&accounts, &unlimited, &unlimited);
    struct account *one = account_ref(&accounts, "one"), *two = account_ref(&accounts, "two");
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
    pool_empty(pool);
    account_unref(one);
    account_unref(two);
    assert_int_equal(accounts_deinit(&accounts), 0);
}

static void test_mapped_region_never_changes_hands(void **state)
{
    struct pool *pool = pool_new(8 * PAGE);
    struct accounts accounts;
    uint64_t a, b;

    (void)state;
    accounts_init(&accounts, &unlimited, &unlimited);
    struct account *one = account_ref(&accounts, "one"), *two = account_ref(&accounts, "two");
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
    struct region *region = pool_take_idle(pool, 300, 100, 16 * PAGE);
    assert_non_null(region);
    assert_int_equal(region->id, 1);
    region_free(region);
    assert_null(pool_take_idle(pool, 300, 100, 8 * PAGE));
    assert_int_equal(one->used[ACCOUNT_PINNED], 0);
    pool_empty(pool);
    account_unref(one);
    account_unref(two);
    assert_int_equal(accounts_deinit(&accounts), 0);
}

static void test_region_made_for_a_tenant_waits_for_it(void **state)
{
    struct pool *pool = pool_new(8 * PAGE);
    struct accounts accounts;
    uint64_t memory, region_bytes;
    uint32_t regions;

    (void)state;
    accounts_init(&accounts, &unlimited, &unlimited);
    struct account *one = account_ref(&accounts, "one"), *two = account_ref(&accounts, "two");
    record_add(pool, 8 * PAGE, one, 0);
    assert_int_equal(pool_take(pool, two, false, PAGE, 1, &memory, &regions, &region_bytes), 1);
    assert_int_equal(pool_take(pool, one, false, PAGE, 1, &memory, &regions, &region_bytes), 0);
    pool_give(pool, memory, 0);
    /* One of the node's (pool.min) is for anybody. */
    assert_int_equal(pool_take(pool, two, false, PAGE, 1, &memory, &regions, &region_bytes), 0);
    pool_give(pool, memory, 0);
    pool_empty(pool);
    account_unref(one);
    account_unref(two);
    assert_int_equal(accounts_deinit(&accounts), 0);
}

/* Memory that one tenant's batches were copied from can serve another's copies, but no client of
 * another may look at it; nor at its own tenant's newer batches beside the old ones. */
static void test_what_a_tenant_left_is_shown_to_no_other(void **state)
{
    struct pool *pool = pool_new(8 * PAGE);
    struct accounts accounts;
    uint64_t copied, shown, region_bytes;
    uint32_t regions;

    (void)state;
    accounts_init(&accounts, &unlimited, &unlimited);
    struct account *one = account_ref(&accounts, "one"), *two = account_ref(&accounts, "two");
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
    pool_empty(pool);
    account_unref(one);
    account_unref(two);
    assert_int_equal(accounts_deinit(&accounts), 0);
}

/* Another's idle region is larger than the limit allows: a smaller one of its own serves, and
 * asking again does not ask for more. */
static void test_limit_forbids_an_idle_region(void **state)
{
    struct account_limits limits = unlimited;
    struct pool *pool = pool_new(8 * PAGE);
    struct accounts accounts;
    uint64_t memory, region_bytes = 0;
    uint32_t regions = 0;

    (void)state;
    limits.max[ACCOUNT_PINNED] = 12 * PAGE;
    accounts_init(&accounts, &unlimited, &limits);
    struct account *tenant = account_ref(&accounts, "one");
    struct region *large = record_add(pool, 16 * PAGE, &accounts.node, 0);
    assert_int_equal(pool_take(pool, tenant, false, PAGE, 1, &memory, &regions, &region_bytes), 1);
    assert_int_equal(regions, 1);
    assert_int_equal(region_bytes, 8 * PAGE);
    assert_ptr_equal(large->charge.account, &accounts.node);
    record_add(pool, region_bytes, tenant, 0);
    assert_int_equal(pool_take(pool, tenant, false, PAGE, 1, &memory, &regions, &region_bytes), 0);
    assert_int_equal(memory_region(memory), 2);
    assert_int_equal(tenant->used[ACCOUNT_PINNED], 8 * PAGE);
    pool_give(pool, memory, 0);
    pool_empty(pool);
    account_unref(tenant);
    assert_int_equal(accounts_deinit(&accounts), 0);
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

/* -- random histories ------------------------------------------------------------------------ */

#define TENANTS 3
#define SLOTS_MAX 400
#define REGION_PAGES 32
#define REGIONS_SEEN 20000

struct held {
    uint64_t memory;
    uint32_t pages;
    int tenant;
};

static uint64_t random_state = 42;

static uint32_t random_below(uint32_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % bound);
}

/* No two slots overlap, none spans its region's end, no region has two tenants, and the sums are
 * right. */
static void check_held(struct pool *pool, const struct held *held, uint32_t n_held,
                       const struct accounts *accounts)
{
    static int owner[REGIONS_SEEN];
    static uint64_t taken[REGIONS_SEEN];
    struct pool_info info;
    uint64_t used = 0, bytes = 0;

    for (struct region *region = pool_region_next(pool, 0); region;
         region = pool_region_next(pool, region->id + 1)) {
        assert_true(region->id < REGIONS_SEEN);
        owner[region->id] = -1;
        taken[region->id] = 0;
        bytes += region->bytes;
    }
    for (uint32_t i = 0; i < n_held; i++) {
        struct region *region = pool_slot(pool, held[i].memory, NULL, NULL);
        uint32_t start = (uint32_t)held[i].memory;
        assert_non_null(region);
        assert_true((start + held[i].pages) * PAGE <= region->bytes);
        assert_true(region->bytes <= 64 * PAGE);
        for (uint32_t page = start; page < start + held[i].pages; page++) {
            assert_false(taken[region->id] >> page & 1);
            taken[region->id] |= UINT64_C(1) << page;
        }
        assert_true(owner[region->id] == -1 || owner[region->id] == held[i].tenant);
        owner[region->id] = held[i].tenant;
        used += held[i].pages * PAGE;
    }
    pool_info_get(pool, &info);
    assert_int_equal(info.slots, n_held);
    assert_int_equal(info.used_bytes, used);
    assert_int_equal(info.bytes, bytes);
    assert_int_equal(accounts->node.used[ACCOUNT_PINNED], bytes);
}

static void test_thousands_of_random_takes_and_gives(void **state)
{
    static struct held held[SLOTS_MAX];
    struct pool *pool = pool_new(REGION_PAGES * PAGE);
    struct accounts accounts;
    struct account *tenants[TENANTS];
    char key[32];
    uint32_t n_held = 0;
    uint64_t memory[16];

    (void)state;
    accounts_init(&accounts, &unlimited, &unlimited);
    for (int i = 0; i < TENANTS; i++) {
        snprintf(key, sizeof(key), "uid %d", i);
        tenants[i] = account_ref(&accounts, key);
    }
    for (uint64_t now = 0; now < 10000; now++) {
        uint32_t what = random_below(100);
        uint32_t count = 1 + random_below(16);
        if (what < 30 && n_held + count <= SLOTS_MAX) {
            int tenant = (int)random_below(TENANTS);
            uint32_t pages = 1 + random_below(random_below(10) ? 12 : 40);
            take(pool, tenants[tenant], pages * PAGE, count, memory);
            for (uint32_t i = 0; i < count; i++)
                held[n_held++] = (struct held){memory[i], pages, tenant};
        } else if (what < 95 && n_held > 0) {
            for (uint32_t i = 0; i < 4 && n_held > 0; i++) {
                uint32_t which = random_below(n_held);
                pool_give(pool, held[which].memory, now);
                held[which] = held[--n_held];
            }
        } else if (what < 97 && n_held > 0) {
            pool_set_mapped(pool, memory_region(held[random_below(n_held)].memory));
        } else {
            region_free(pool_take_idle(pool, now, 20, 2 * REGION_PAGES * PAGE));
        }
        check_held(pool, held, n_held, &accounts);
    }
    while (n_held > 0)
        pool_give(pool, held[--n_held].memory, 10000);
    check_held(pool, held, 0, &accounts);
    pool_empty(pool);
    for (int i = 0; i < TENANTS; i++) {
        assert_int_equal(tenants[i]->used[ACCOUNT_PINNED], 0);
        account_unref(tenants[i]);
    }
    assert_int_equal(accounts_deinit(&accounts), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starts_empty_and_says_what_is_needed),
        cmocka_unit_test(test_rounding_counts_what_is_pinned),
        cmocka_unit_test(test_first_fit_within_regions),
        cmocka_unit_test(test_all_or_nothing),
        cmocka_unit_test(test_giving_twice_changes_nothing),
        cmocka_unit_test(test_region_holds_one_tenant),
        cmocka_unit_test(test_mapped_region_never_changes_hands),
        cmocka_unit_test(test_region_made_for_a_tenant_waits_for_it),
        cmocka_unit_test(test_what_a_tenant_left_is_shown_to_no_other),
        cmocka_unit_test(test_limit_forbids_an_idle_region),
        cmocka_unit_test(test_idle_regions),
        cmocka_unit_test(test_info_sums_regions),
        cmocka_unit_test(test_thousands_of_random_takes_and_gives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
