/*
 * A pool of regions that are records without memory: the pool never touches
 * any.
 */
#ifndef PINSERVE_TESTS_POOL_RECORD_H
#define PINSERVE_TESTS_POOL_RECORD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "memory/pool.h"
#include "proto/limits.h"

#define PAGE ((uint64_t)SLOT_ALIGN)

static const struct account_limits unlimited = {
    .max = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};

/* A record of a region whose memory is not needed; address is only a number. */
static inline struct region *record_make(uint64_t bytes, struct account *payer)
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

static inline struct region *record_add(struct pool *pool, uint64_t bytes, struct account *payer,
                                        uint64_t now)
{
    struct region *region = record_make(bytes, payer);

    pool_add_region(pool, region, now);
    return region;
}

static inline void pool_empty(struct pool *pool)
{
    struct region *region;

    while ((region = pool_take_idle(pool, UINT64_MAX, 0, 0)) != NULL)
        region_free(region);
    assert_null(pool_region_next(pool, 0));
    pool_free(pool);
}

/* Takes and grows as a caller does. */
static inline void take(struct pool *pool, struct account *tenant, uint64_t bytes, uint32_t count,
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

#endif
