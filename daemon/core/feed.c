/*
 * Feeds: the slots that batches are decoded into, and their states. A slot is
 * its job's from core_job_reserved until CORE_SLOT_FREE; while something writes
 * to it or reads from it, it is neither free nor given back.
 */
#include <errno.h>
#include <stdlib.h>

#include "core_private.h"

int feed_init(struct feed *feed, uint32_t n_slots)
{
    feed->slots = calloc(n_slots, sizeof *feed->slots);
    if (!feed->slots)
        return -ENOMEM;
    feed->n_slots = n_slots;
    for (uint32_t i = 0; i < n_slots; i++) {
        feed->slots[i].generation = 1;
        feed->slots[i].lease = NONE;
    }
    return 0;
}

void feed_deinit(struct feed *feed)
{
    free(feed->slots);
    feed->slots = NULL;
}

void feed_fill(struct feed *feed, const uint64_t *memory)
{
    for (uint32_t i = 0; i < feed->n_slots; i++) {
        feed->slots[i].memory = memory[i];
        feed->slots[i].state = SLOT_FREE;
    }
    feed->free = feed->held = feed->n_slots;
}

/* How little a FREE slot is missed when its batch is overwritten: 2 it has none, 1 no mate needs
 * it, 0 a mate will. needed: the first that is; NULL: none is. */
static int slot_worthless(const struct slot *slot, const struct cursor *needed)
{
    if (!slot->whole || !needed)
        return 2;
    return cursor_before(slot->at, *needed) ? 1 : 0;
}

/* Of batches that are needed the one that is needed last goes. */
uint32_t feed_take(struct job *job)
{
    struct feed *feed = &job->feed;
    struct cursor first;
    const struct cursor *needed = share_needed(job, &first) ? &first : NULL;
    uint32_t best = NONE;
    int best_worthless = -1;

    for (uint32_t i = 0; i < feed->n_slots && best_worthless < 2; i++) {
        const struct slot *slot = &feed->slots[i];

        if (slot->state != SLOT_FREE)
            continue;
        int worthless = slot_worthless(slot, needed);
        if (worthless > best_worthless ||
            (worthless == best_worthless && cursor_before(feed->slots[best].at, slot->at))) {
            best = i;
            best_worthless = worthless;
        }
    }
    feed->slots[best].state = SLOT_DECODING;
    feed->slots[best].whole = false;
    feed->free--;
    return best;
}

/* Makes it FREE under a new generation. */
static void feed_release(struct feed *feed, uint32_t slot)
{
    feed->slots[slot].state = SLOT_FREE;
    feed->slots[slot].generation++;
    feed->free++;
}

void slot_attach(struct job *job, struct lease *lease, struct job *from, uint32_t slot)
{
    struct slot *used = &from->feed.slots[slot];

    if (used->state == SLOT_FREE) {
        used->state = SLOT_DECODED;
        from->feed.free--;
    }
    if (from == job) {
        used->lease = (uint32_t)(lease - job->leases);
    } else {
        used->others++;
        job->debts++;
    }
    lease->from = from;
    lease->slot = slot;
}

/* The slot's result is not wanted; the slot stays the workers' until they say so. */
static void slot_cancel(struct job *job, uint32_t index)
{
    struct core_action *action = job_emit(job, CORE_DECODE_CANCEL);

    action->slot = index;
    action->generation = job->feed.slots[index].generation;
}

void slot_detach(struct job *job, struct lease *lease)
{
    struct job *from = lease->from;
    struct slot *slot = lease_slot(lease);
    uint32_t index = lease->slot;

    lease->from = NULL;
    lease->slot = NONE;
    if (from == job) {
        slot->lease = NONE;
    } else {
        slot->others--;
        job->debts--;
    }
    if (slot_used(slot))
        return;
    if (slot->state == SLOT_DECODING)
        slot_cancel(from, index);
    else
        feed_release(&from->feed, index);
    if (from != job)
        job_touch(from);
}

void feed_give_back(struct job *job)
{
    struct feed *feed = &job->feed;

    for (uint32_t i = 0; feed->free > job->debts && i < feed->n_slots; i++) {
        if (feed->slots[i].state != SLOT_FREE)
            continue;
        feed->slots[i].state = SLOT_ABSENT;
        feed->slots[i].whole = false;
        feed->free--;
        feed->held--;
        job_emit(job, CORE_SLOT_FREE)->memory = feed->slots[i].memory;
    }
}

/* The slot that a report is about; NULL: the report is late, or a second one. */
static struct slot *slot_reported(struct job *job, uint32_t slot, uint32_t generation)
{
    struct slot *found;

    if (!job || slot >= job->feed.n_slots)
        return NULL;
    found = &job->feed.slots[slot];
    return found->state == SLOT_DECODING && found->generation == generation ? found : NULL;
}

static void lease_filled(struct job *job, struct lease *lease, void *user)
{
    const struct slot *slot = user;

    lease->bad = slot->bad;
    if (job_in_place(job)) {
        lease->state = LEASE_READY;
        job->ready++;
    }
    job_touch(job);
}

static void slot_filled(struct job *job, uint32_t index, bool whole, uint32_t bad, uint64_t read_ns,
                        uint64_t decode_ns)
{
    struct slot *slot = &job->feed.slots[index];
    struct core_stages *sums[] = {&job->stages, &job->core->stages};

    for (int i = 0; i < 2; i++) {
        sums[i]->samples += order_count(&job->order, slot->at.step);
        sums[i]->batches++;
        sums[i]->read_ns += read_ns;
        sums[i]->decode_ns += decode_ns;
    }
    slot->bad = bad;
    slot->state = SLOT_DECODED;
    slot->whole = whole;
    slot_each_lease(job, index, lease_filled, slot);
}

struct fate {
    const struct failure *failure;
    uint64_t now;
};

/* Also of a slot that is stuck, and stays DECODING. */
static void lease_failed(struct job *job, struct lease *lease, void *user)
{
    const struct fate *fate = user;

    job_fail_at(job, job_place(job, (uint32_t)(lease - job->leases)), fate->failure, fate->now);
    job_touch(job);
}

/* The workers have it no more. */
static void decode_ended(struct job *job, struct slot *slot)
{
    if (!slot->stuck)
        job_node(job)->busy--;
    slot->stuck = false;
    job_touch(job);
}

void core_decoded(struct core *core, uint64_t feed, uint32_t slot, uint32_t generation,
                  const struct failure *failure, uint32_t bad, uint64_t read_ns, uint64_t decode_ns,
                  uint64_t now)
{
    struct job *job = core_feed_get(core, feed);
    struct slot *decoded = slot_reported(job, slot, generation);

    if (!decoded)
        return;
    decode_ended(job, decoded);
    if (!slot_used(decoded)) {
        feed_release(&job->feed, slot);
    } else if (failure) {
        decoded->state = SLOT_DECODED; /* with nothing in it: free when its leases are dropped */
        slot_each_lease(job, slot, lease_failed, &(struct fate){failure, now});
    } else {
        slot_filled(job, slot, true, bad, read_ns, decode_ns);
    }
    schedule_run(core, now);
}

/* What is not in the slot is of no use to a mate. */
static void lease_unshare(struct job *job, struct lease *lease, void *user)
{
    if (job == user)
        return;
    slot_detach(job, lease);
    job->unfilled++;
    job->shared--;
}

void core_gathered(struct core *core, uint64_t feed, uint32_t slot, uint32_t generation,
                   uint64_t now)
{
    struct job *job = core_feed_get(core, feed);
    struct slot *gathered = slot_reported(job, slot, generation);

    if (!gathered)
        return;
    decode_ended(job, gathered);
    gathered->state = SLOT_DECODED;
    slot_each_lease(job, slot, lease_unshare, job);
    if (gathered->lease != NONE)
        slot_filled(job, slot, false, 0, 0, 0);
    else if (gathered->state == SLOT_DECODED)
        feed_release(&job->feed, slot);
    schedule_run(core, now);
}

void core_pushed(struct core *core, uint64_t feed, uint32_t slot, uint32_t generation,
                 uint32_t count, const struct failure *failure, uint64_t now)
{
    struct job *job = core_feed_get(core, feed);
    const struct slot *pushed = slot_reported(job, slot, generation);

    if (pushed && pushed->lease != NONE && count < job->leases[pushed->lease].count)
        job->leases[pushed->lease].count = count;
    core_decoded(core, feed, slot, generation, failure, 0, 0, 0, now);
}

void core_stuck(struct core *core, uint64_t feed, uint32_t slot, uint32_t generation,
                const struct failure *failure, uint64_t now)
{
    struct job *job = core_feed_get(core, feed);
    struct slot *stuck = slot_reported(job, slot, generation);

    if (!stuck || stuck->stuck)
        return;
    /* The thread has been replaced: the slot must not keep others from the workers. */
    stuck->stuck = true;
    job_node(job)->busy--;
    if (slot_used(stuck)) {
        slot_each_lease(job, slot, lease_failed, &(struct fate){failure, now});
    } else if (job->moving && job_live(job)) {
        struct failure final;

        failure_set(&final, failure->code, "the way to delivery copy hangs: %.450s", failure->text);
        job_fail(job, &final, now);
    }
    job_touch(job);
    schedule_run(core, now);
}
