/*
 * The book of a pool.
 *
 * An entry is one region and the extents in it that are slots, sorted by
 * offset; what lies between them is free. Entries are sorted by region id,
 * which only grows. Slots are taken first-fit: of the regions that the tenant
 * has already, then of those that nobody has.
 *
 * Whose a region is:
 *   - with slots, or once mapped by a client: the tenant of its first slot,
 *     for good when mapped;
 *   - else nobody's. Its charge then rests with the parent of the account that
 *     it was made for (the node's), which always has room for it, and moves to
 *     the next tenant with that one's first slot. A region that was just made
 *     for a tenant waits for it.
 */
#include "memory/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "proto/cleanup.h"
#include "proto/limits.h"

struct extent {
    uint32_t start, pages; /* in units of SLOT_ALIGN */
};

struct entry {
    struct region *region;
    struct account *tenant; /* NULL: nobody's */
    struct extent *slots;   /* sorted by start */
    size_t n_slots, room;
    uint64_t used; /* bytes */
    uint64_t idle_since;
    uint32_t holders; /* jobs whose clients have it */
    bool mapped;
    bool soiled; /* its tenant before may have left batches in it */
};

struct pool {
    uint64_t region_bytes;
    struct entry **entries; /* sorted by region id */
    size_t n_entries, room;
    uint32_t first_id, *next_id; /* the former while it has its own count */
};

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

struct pool *pool_new(uint64_t region_bytes)
{
    struct pool *pool = calloc(1, sizeof(*pool));

    if (!pool)
        return NULL;
    pool->region_bytes = round_up(region_bytes ? region_bytes : 1, SLOT_ALIGN);
    pool->first_id = 1;
    pool->next_id = &pool->first_id;
    return pool;
}

void pool_number_with(struct pool *pool, uint32_t *next_id)
{
    pool->next_id = next_id;
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    if (pool->n_entries > 0)
        log_error("pool: ends with %zu regions in it", pool->n_entries);
    for (size_t i = 0; i < pool->n_entries; i++) {
        free(pool->entries[i]->slots);
        free(pool->entries[i]);
    }
    free(pool->entries);
    free(pool);
}

/* Makes room for `need` members; false without memory. */
static bool array_reserve(void *array_p, size_t member, size_t *room, size_t need)
{
    size_t larger = *room ? *room : 8;
    void *array;

    if (need <= *room)
        return true;
    while (larger < need)
        larger *= 2;
    memcpy(&array, array_p, sizeof(array));
    array = realloc(array, larger * member);
    if (!array)
        return false;
    memcpy(array_p, &array, sizeof(array));
    *room = larger;
    return true;
}

/* -- finding --------------------------------------------------------------------------------- */

/* The first entry whose region id is at least id; n_entries when there is none. */
static size_t entry_index(const struct pool *pool, uint32_t id)
{
    size_t low = 0, high = pool->n_entries;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pool->entries[middle]->region->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct entry *entry_find(const struct pool *pool, uint32_t id)
{
    size_t i = entry_index(pool, id);

    if (i == pool->n_entries || pool->entries[i]->region->id != id)
        return NULL;
    return pool->entries[i];
}

/* The slot that starts there; n_slots when none does. */
static size_t slot_index(const struct entry *entry, uint32_t start)
{
    size_t low = 0, high = entry->n_slots;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (entry->slots[middle].start < start)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < entry->n_slots && entry->slots[low].start == start)
        return low;
    return entry->n_slots;
}

struct region *pool_region(struct pool *pool, uint32_t region)
{
    struct entry *entry = entry_find(pool, region);

    return entry ? entry->region : NULL;
}

struct region *pool_region_next(struct pool *pool, uint32_t from)
{
    size_t i = entry_index(pool, from);

    return i < pool->n_entries ? pool->entries[i]->region : NULL;
}

struct region *pool_slot(struct pool *pool, uint64_t memory, void **address_p, uint64_t *offset_p)
{
    struct entry *entry = entry_find(pool, memory_region(memory));
    uint64_t offset = (uint64_t)(uint32_t)memory * SLOT_ALIGN;

    if (!entry || slot_index(entry, (uint32_t)memory) == entry->n_slots)
        return NULL;
    if (address_p)
        *address_p = (char *)entry->region->address + offset;
    if (offset_p)
        *offset_p = offset;
    return entry->region;
}

/* -- taking ---------------------------------------------------------------------------------- */

static uint32_t entry_pages(const struct entry *entry)
{
    return (uint32_t)(entry->region->bytes / SLOT_ALIGN);
}

/* The end of the free room before slot i, or of the region behind the last one. */
static uint32_t gap_end(const struct entry *entry, size_t i)
{
    return i < entry->n_slots ? entry->slots[i].start : entry_pages(entry);
}

/* How many slots of so many pages fit, at most `most`. */
static uint32_t entry_fits(const struct entry *entry, uint32_t pages, uint32_t most)
{
    uint32_t fits = 0, start = 0;

    for (size_t i = 0; i <= entry->n_slots && fits < most; i++) {
        fits += (gap_end(entry, i) - start) / pages;
        if (i < entry->n_slots)
            start = entry->slots[i].start + entry->slots[i].pages;
    }
    return fits < most ? fits : most;
}

/* Takes count slots, which fit and have room in the array; writes their handles. */
static void entry_take(struct entry *entry, uint32_t pages, uint32_t count, uint64_t *memory_p)
{
    uint32_t start = 0;

    for (size_t i = 0; count > 0; i++) {
        if (gap_end(entry, i) - start >= pages) {
            memmove(&entry->slots[i + 1], &entry->slots[i],
                    (entry->n_slots - i) * sizeof(*entry->slots));
            entry->slots[i] = (struct extent){.start = start, .pages = pages};
            entry->n_slots++;
            entry->used += (uint64_t)pages * SLOT_ALIGN;
            *memory_p++ = (uint64_t)entry->region->id << 32 | start;
            count--;
        }
        start = entry->slots[i].start + entry->slots[i].pages;
    }
}

/* Its own, or made for it and waiting. */
static bool entry_is_own(const struct entry *entry, const struct account *tenant)
{
    if (entry->n_slots > 0 || entry->mapped || !tenant)
        return entry->tenant == tenant;
    return entry->tenant == tenant || entry->region->charge.account == tenant;
}

/* Nobody's, and charged to nobody or to the account above the tenant's. */
static bool entry_is_open(const struct entry *entry, const struct account *tenant)
{
    const struct account *payer = entry->region->charge.account;

    return !entry->tenant && !entry->mapped && entry->n_slots == 0 && tenant &&
           (!payer || payer == tenant->parent);
}

/* Moves the charge of a region to another account; the old one keeps it on error. */
static int charge_move(struct charge *charge, struct account *to)
{
    struct account *from = charge->account;
    enum account_kind kind = charge->kind;
    uint64_t amount = charge->amount;

    if (!from || from == to)
        return 0;
    if (from->parent)
        from->refs++; /* its last reference may be the charge */
    charge_release(charge);
    int error = charge_acquire(charge, to, kind, amount, NULL);
    if (error)
        charge_acquire(charge, from, kind, amount, NULL);
    account_unref(from);
    return error;
}

/* Nobody's any more: the charge goes up. */
static void entry_disown(struct entry *entry)
{
    struct account *payer = entry->region->charge.account;

    entry->tenant = NULL;
    if (payer && payer->parent)
        charge_move(&entry->region->charge, payer->parent);
}

/* A share of a request that one region serves. */
struct share {
    struct entry *entry;
    uint32_t count;
};

/* Adds shares of the entries that may serve until count slots are found. Returns how many are still
 * missing, or a negative errno. */
static int64_t shares_add(struct pool *pool, struct account *tenant, uint64_t owner,
                          bool (*may)(const struct entry *, const struct account *), bool mapped,
                          uint32_t pages, uint32_t count, struct share *shares, size_t *n_shares)
{
    for (size_t i = 0; i < pool->n_entries && count > 0; i++) {
        struct entry *entry = pool->entries[i];
        if (entry->region->owner != owner || !may(entry, tenant) || (mapped && entry->soiled))
            continue;
        uint32_t fits = entry_fits(entry, pages, count);
        if (fits == 0)
            continue;
        if (!array_reserve(&entry->slots, sizeof(*entry->slots), &entry->room,
                           entry->n_slots + fits))
            return -ENOMEM;
        shares[(*n_shares)++] = (struct share){.entry = entry, .count = fits};
        count -= fits;
    }
    return count;
}

/* Charges the tenant for the regions that become its own; all of them, or none. */
static int shares_charge(struct share *shares, size_t n_shares, struct account *tenant)
{
    for (size_t i = 0; i < n_shares; i++) {
        int error = charge_move(&shares[i].entry->region->charge, tenant);
        if (!error)
            continue;
        while (i-- > 0)
            if (!shares[i].entry->tenant)
                entry_disown(shares[i].entry);
        return error;
    }
    return 0;
}

static int slots_take(struct pool *pool, struct account *tenant, uint64_t owner, bool mapped,
                      uint64_t bytes, uint32_t count, uint64_t *memory_p, uint32_t *regions_p,
                      uint64_t *region_bytes_p)
{
    uint64_t wide = round_up(bytes ? bytes : 1, SLOT_ALIGN) / SLOT_ALIGN;
    size_t n_shares = 0;

    if (wide > UINT32_MAX - 1)
        return -EINVAL;
    uint32_t pages = (uint32_t)wide;
    cleanup_free struct share *shares = calloc(pool->n_entries + 1, sizeof(*shares));
    if (!shares)
        return -ENOMEM;
    int64_t missing =
        shares_add(pool, tenant, owner, entry_is_own, mapped, pages, count, shares, &n_shares);
    int64_t own_missing = missing;
    if (missing > 0)
        missing = shares_add(pool, tenant, owner, entry_is_open, mapped, pages, (uint32_t)missing,
                             shares, &n_shares);
    if (missing < 0)
        return (int)missing;
    /* A tenant whose limit forbids it another's region is told so when it asks for a new one. */
    if (missing == 0 && shares_charge(shares, n_shares, tenant))
        missing = own_missing;
    if (missing > 0) {
        uint64_t region_bytes = round_up(wide * SLOT_ALIGN, pool->region_bytes);
        uint64_t each = region_bytes / SLOT_ALIGN / pages;
        *regions_p = (uint32_t)(((uint64_t)missing + each - 1) / each);
        *region_bytes_p = region_bytes;
        return 1;
    }
    for (size_t i = 0; i < n_shares; i++) {
        shares[i].entry->tenant = tenant;
        entry_take(shares[i].entry, pages, shares[i].count, memory_p);
        memory_p += shares[i].count;
    }
    return 0;
}

int pool_take(struct pool *pool, struct account *tenant, bool mapped, uint64_t bytes,
              uint32_t count, uint64_t *memory_p, uint32_t *regions_p, uint64_t *region_bytes_p)
{
    return slots_take(pool, tenant, 0, mapped, bytes, count, memory_p, regions_p, region_bytes_p);
}

int pool_take_pushed(struct pool *pool, struct account *tenant, uint64_t owner, uint64_t bytes,
                     uint32_t count, uint64_t *memory_p, uint32_t *regions_p,
                     uint64_t *region_bytes_p)
{
    return slots_take(pool, tenant, owner, true, bytes, count, memory_p, regions_p, region_bytes_p);
}

void pool_give(struct pool *pool, uint64_t memory, uint64_t now)
{
    struct entry *entry = entry_find(pool, memory_region(memory));
    size_t i = entry ? slot_index(entry, (uint32_t)memory) : 0;

    /* The book stays right; whoever gives twice has a bug that must be seen. */
    if (!entry || i == entry->n_slots) {
        log_error("pool: slot %" PRIu32 ":%" PRIu32 " was given back, but is not taken",
                  memory_region(memory), (uint32_t)memory);
        return;
    }
    entry->used -= (uint64_t)entry->slots[i].pages * SLOT_ALIGN;
    entry->n_slots--;
    memmove(&entry->slots[i], &entry->slots[i + 1], (entry->n_slots - i) * sizeof(*entry->slots));
    if (entry->n_slots > 0)
        return;
    entry->idle_since = now;
    if (entry->mapped)
        return;
    entry->soiled = true;
    entry_disown(entry);
}

/* -- regions --------------------------------------------------------------------------------- */

void pool_add_region(struct pool *pool, struct region *region, uint64_t now)
{
    struct entry *entry = calloc(1, sizeof(*entry));

    if (!entry ||
        !array_reserve(&pool->entries, sizeof(struct entry *), &pool->room, pool->n_entries + 1)) {
        log_error("pool: no memory for the record of a region of %zu bytes", region->bytes);
        free(entry);
        region_destroy(region);
        region_free(region);
        return;
    }
    region->id = (*pool->next_id)++;
    entry->region = region;
    entry->idle_since = now;
    pool->entries[pool->n_entries++] = entry;
}

void pool_set_mapped(struct pool *pool, uint32_t region)
{
    struct entry *entry = entry_find(pool, region);

    if (entry)
        entry->mapped = true;
}

void pool_hold(struct pool *pool, uint32_t region, bool more)
{
    struct entry *entry = entry_find(pool, region);

    if (entry)
        entry->holders += more ? 1 : -1u;
}

static uint64_t pool_bytes(const struct pool *pool)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < pool->n_entries; i++)
        bytes += pool->entries[i]->region->bytes;
    return bytes;
}

/* What was mapped serves no other tenant and is not worth keeping. */
static bool entry_is_kept(const struct entry *entry, uint64_t bytes, uint64_t keep_bytes)
{
    return !entry->mapped && !entry->region->owner && bytes - entry->region->bytes < keep_bytes;
}

bool pool_can_shrink(struct pool *pool, uint64_t keep_bytes)
{
    uint64_t bytes = pool_bytes(pool);

    for (size_t i = 0; i < pool->n_entries; i++) {
        if (!entry_is_kept(pool->entries[i], bytes, keep_bytes))
            return true;
    }
    return false;
}

struct region *pool_take_idle(struct pool *pool, uint64_t now, uint64_t idle_ns,
                              uint64_t keep_bytes)
{
    uint64_t bytes = pool_bytes(pool);
    size_t best = pool->n_entries;

    for (size_t i = 0; i < pool->n_entries; i++) {
        const struct entry *entry = pool->entries[i];
        uint64_t idle = now > entry->idle_since ? now - entry->idle_since : 0;
        uint64_t enough = entry->region->owner ? 0 : idle_ns;
        if (entry->n_slots > 0 || entry->holders > 0 || idle < enough ||
            entry_is_kept(entry, bytes, keep_bytes))
            continue;
        if (best == pool->n_entries || entry->idle_since < pool->entries[best]->idle_since)
            best = i;
    }
    if (best == pool->n_entries)
        return NULL;
    struct entry *entry = pool->entries[best];
    struct region *region = entry->region;
    pool->n_entries--;
    memmove(&pool->entries[best], &pool->entries[best + 1],
            (pool->n_entries - best) * sizeof(struct entry *));
    free(entry->slots);
    free(entry);
    return region;
}

void pool_info_get(struct pool *pool, struct pool_info *info_p)
{
    struct pool_info info = {.numa_node = -1};

    info.regions = (uint32_t)pool->n_entries;
    for (size_t i = 0; i < pool->n_entries; i++) {
        const struct entry *entry = pool->entries[i];
        const struct region *region = entry->region;
        info.slots += (uint32_t)entry->n_slots;
        info.bytes += region->bytes;
        info.used_bytes += entry->used;
        info.locked_bytes += region->locked ? region->bytes : 0;
        info.pages += region->pages;
        info.pages_local += region->pages_local;
        if (i == 0)
            info.numa_node = region->numa_node;
        if (!info.bind_failure && region->bind_failure.code)
            info.bind_failure = &region->bind_failure;
    }
    *info_p = info;
}
