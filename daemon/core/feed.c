/*
 * Feeds: the slots that batches are decoded into, and their states. A slot is
 * the feed's from core_job_reserved until CORE_SLOT_FREE; while something
 * writes to it or reads from it, it is neither free nor given back.
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

uint32_t feed_take(struct feed *feed, uint32_t lease)
{
    uint32_t i = 0;

    while (feed->slots[i].state != SLOT_FREE)
        i++;
    feed->slots[i].state = SLOT_DECODING;
    feed->slots[i].lease = lease;
    feed->free--;
    return i;
}

void feed_release(struct feed *feed, uint32_t slot)
{
    feed->slots[slot].state = SLOT_FREE;
    feed->slots[slot].generation++;
    feed->slots[slot].lease = NONE;
    feed->free++;
}

void feed_give_back(struct job *job)
{
    struct feed *feed = &job->feed;

    for (uint32_t i = 0; feed->free > 0 && i < feed->n_slots; i++) {
        if (feed->slots[i].state != SLOT_FREE)
            continue;
        feed->slots[i].state = SLOT_ABSENT;
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

static void slot_filled(struct job *job, struct slot *slot, uint32_t bad, uint64_t read_ns,
                        uint64_t decode_ns)
{
    struct lease *lease = &job->leases[slot->lease];
    struct core_stages *sums[] = {&job->stages, &job->core->stages};

    for (int i = 0; i < 2; i++) {
        sums[i]->samples += lease->count;
        sums[i]->batches++;
        sums[i]->read_ns += read_ns;
        sums[i]->decode_ns += decode_ns;
    }
    lease->bad = bad;
    slot->state = SLOT_DECODED;
    if (job_in_place(job)) {
        lease->state = LEASE_READY;
        job->ready++;
    }
}

void core_decoded(struct core *core, uint64_t feed, uint32_t slot, uint32_t generation,
                  const struct failure *failure, uint32_t bad, uint64_t read_ns, uint64_t decode_ns,
                  uint64_t now)
{
    struct job *job = core_feed_get(core, feed);
    struct slot *decoded = slot_reported(job, slot, generation);

    if (!decoded)
        return;
    if (!decoded->stuck)
        job_node(job)->busy--;
    decoded->stuck = false;
    if (decoded->lease == NONE) {
        feed_release(&job->feed, slot);
    } else if (failure) {
        uint32_t place = job_place(job, decoded->lease);

        job->leases[decoded->lease].slot = NONE;
        job->unfilled++;
        feed_release(&job->feed, slot);
        job_fail_at(job, place, failure, now);
    } else {
        slot_filled(job, decoded, bad, read_ns, decode_ns);
    }
    job_advance(job, now);
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
    if (stuck->lease != NONE) {
        job_fail_at(job, job_place(job, stuck->lease), failure, now);
    } else if (job->moving && job_live(job)) {
        struct failure final;

        failure_set(&final, failure->code, "the way to delivery copy hangs: %.450s", failure->text);
        job_fail(job, &final, now);
    }
    job_advance(job, now);
    schedule_run(core, now);
}
