/*
 * Random takes and gives of a pool, each checked against a list of what is held.
 */
#include "memory/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "pool_record.h"

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
        cmocka_unit_test(test_thousands_of_random_takes_and_gives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
