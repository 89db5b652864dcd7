/*
 * A pool: all regions of one device, and the slots in them. A region holds
 * slots of one tenant; a slot never spans regions. Nothing here blocks or
 * touches memory: growing is the caller's, off the loop thread, with
 * region_new; this keeps the book.
 *
 * A slot is named by one number, its handle: region id << 32 | offset in pages
 * of SLOT_ALIGN bytes.
 */
#ifndef PINSERVE_MEMORY_POOL_H
#define PINSERVE_MEMORY_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/region.h"
#include "proto/list.h"

struct pool;

struct pool_info {
    uint32_t regions;
    uint32_t slots;
    uint64_t bytes, used_bytes, locked_bytes;
    uint64_t pages, pages_local;
    int numa_node;
    const struct failure *bind_failure; /* of some region, or NULL */
};

/* region_bytes: pool.region; regions are multiples of it. */
struct pool *pool_new(uint64_t region_bytes);
/* Its regions are numbered together with those of other pools, from *next_id on. */
void pool_number_with(struct pool *pool, uint32_t *next_id);
/* Every slot must be free and every region gone. */
void pool_free(struct pool *pool);

/* Takes count slots of bytes each (rounded up to SLOT_ALIGN) from regions of this tenant, or of
 * none. 0: memory_p has count handles. 1: too little room; *regions_p regions of *region_bytes_p
 * each are to be made, charged to the tenant, added with pool_add_region, and then this is asked
 * again. Nothing is taken then, nor with -ENOMEM or -EINVAL (no region can be so large).
 *
 * mapped: a client of the tenant is to map the slots' regions. Such a region never held batches of
 * another tenant: what these left in it could be read.
 *
 * The charge of a region follows its slots: with its first slot it moves to the tenant (a region
 * whose move the tenant's limit forbids counts as no room), with its last it goes back to the
 * tenant's parent, unless the region is mapped. A region without a charge is left without. */
int pool_take(struct pool *pool, struct account *tenant, bool mapped, uint64_t bytes,
              uint32_t count, uint64_t *memory_p, uint32_t *regions_p, uint64_t *region_bytes_p);

/* The same from push regions of one owner (never 0) and from no others; pool_take takes from none
 * of these. Such a region is not kept when its slots are gone. */
int pool_take_pushed(struct pool *pool, struct account *tenant, uint64_t owner, uint64_t bytes,
                     uint32_t count, uint64_t *memory_p, uint32_t *regions_p,
                     uint64_t *region_bytes_p);

/* Gives a slot back at time now (ns). What is no taken slot is logged as an error and changes
 * nothing. */
void pool_give(struct pool *pool, uint64_t memory, uint64_t now);

/* Adds a region, which becomes the pool's; without memory for its record it is ended at once. Until
 * its first slot it is for the tenant that it is charged to, or for any when that is the node. */
void pool_add_region(struct pool *pool, struct region *region, uint64_t now);

/* Takes out the region that has been without slots for longest, at least idle_ns, as long as
 * keep_bytes remain; NULL when there is none. It is the caller's then, to destroy. A region that a
 * client ever mapped (see pool_set_mapped) never passes to another tenant, and is taken out
 * whatever remains. */
struct region *pool_take_idle(struct pool *pool, uint64_t now, uint64_t idle_ns,
                              uint64_t keep_bytes);

/* Whether pool_take_idle could ever find one. */
bool pool_can_shrink(struct pool *pool, uint64_t keep_bytes);

/* The region's pages were given to a client of its tenant. */
void pool_set_mapped(struct pool *pool, uint32_t region);
/* The client of one job more, or of one less, has the region: while any has it, it is not taken
 * out, because its memory would not come back, and its tenant's next jobs can use it. */
void pool_hold(struct pool *pool, uint32_t region, bool more);

/* The region of an id, or of a taken slot, with the slot's address and its offset in the region
 * (both may be NULL); NULL when there is none. */
struct region *pool_region(struct pool *pool, uint32_t region);
struct region *pool_slot(struct pool *pool, uint64_t memory, void **address_p, uint64_t *offset_p);
/* Regions one after the other: id at least `from`. */
struct region *pool_region_next(struct pool *pool, uint32_t from);

void pool_info_get(struct pool *pool, struct pool_info *info_p);

static inline uint32_t memory_region(uint64_t memory)
{
    return (uint32_t)(memory >> 32);
}

#endif
