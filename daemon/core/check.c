/*
 * The core checked against itself: every count is taken again by walking, every
 * reference followed to where it must lead. Nothing here is needed for the
 * core to work.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core_private.h"

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return failure_set(failure, -EINVAL, __VA_ARGS__);                                     \
    } while (0)

#define JOB "job %" PRIu64 ": "

static bool same(struct cursor a, struct cursor b)
{
    return a.epoch == b.epoch && a.step == b.step;
}

/* The cursor as a batch has it: the end of an epoch is the start of the next. */
static struct cursor batch_cursor(const struct job *job, struct cursor at)
{
    return at.step == job->steps ? (struct cursor){.epoch = at.epoch + 1} : at;
}

static bool is_pending(const struct lease *lease)
{
    return lease->state == LEASE_READY || (lease->state == LEASE_FILLING && !lease->dropped);
}

/* Leases of all jobs that use a slot. */
static uint32_t slot_users(const struct job *job, uint32_t index)
{
    const struct core *core = job->core;
    uint32_t users = 0;

    for (uint32_t i = 0; i < core->n_jobs; i++)
        for (uint32_t k = 0; k < core->jobs[i]->depth; k++)
            users += core->jobs[i]->leases[k].slot == index && core->jobs[i]->leases[k].from == job;
    return users;
}

static int check_slot(const struct job *job, uint32_t index, struct failure *failure)
{
    const struct slot *slot = &job->feed.slots[index];
    const struct lease *lease = slot->lease == NONE ? NULL : &job->leases[slot->lease];
    uint32_t users = slot_users(job, index);

    CHECK(!lease || (slot->lease < job->depth && lease->slot == index && lease->from == job),
          JOB "slot %" PRIu32 " fills lease %" PRIu32 ", which knows nothing of it", job->id, index,
          slot->lease);
    CHECK(users == slot->others + (lease ? 1 : 0),
          JOB "slot %" PRIu32 " is used by %" PRIu32 " leases, it counts %" PRIu32 " of others",
          job->id, index, users, slot->others);
    CHECK(!slot->stuck || slot->state == SLOT_DECODING, JOB "slot %" PRIu32 " is stuck in state %d",
          job->id, index, (int)slot->state);
    CHECK(!slot->whole || slot->state == SLOT_FREE || slot->state == SLOT_DECODED,
          JOB "slot %" PRIu32 " is whole in state %d", job->id, index, (int)slot->state);
    if (slot->state == SLOT_ABSENT || slot->state == SLOT_FREE)
        CHECK(!users, JOB "slot %" PRIu32 " is free and used", job->id, index);
    if (slot->state == SLOT_DECODED)
        CHECK(users, JOB "slot %" PRIu32 " is decoded and nobody uses it", job->id, index);
    return 0;
}

/* What a lease may do with its slot. */
static int check_use(const struct job *job, uint32_t index, struct failure *failure)
{
    const struct lease *lease = &job->leases[index];
    const struct slot *slot = lease_slot(lease);

    CHECK(slot || !lease->copying, JOB "lease %" PRIu32 " is copied from nowhere", job->id, index);
    if (!slot)
        return 0;
    CHECK(lease->from == job || job_is_mate(job, lease->from),
          JOB "lease %" PRIu32 " is in a slot of a stranger", job->id, index);
    CHECK(same(slot->at, lease->at), JOB "lease %" PRIu32 " is in a slot with another batch",
          job->id, index);
    CHECK(slot->state == SLOT_DECODING || slot->state == SLOT_DECODED,
          JOB "lease %" PRIu32 " is in a slot in state %d", job->id, index, (int)slot->state);
    if (slot->state == SLOT_DECODING)
        CHECK(lease->state == LEASE_FILLING && !lease->dropped && !lease->ring,
              JOB "lease %" PRIu32 " is being decoded in state %d", job->id, index,
              (int)lease->state);
    else if (lease->copying)
        CHECK(lease->state == LEASE_FILLING && lease->ring && (!job_in_place(job) || job->moving),
              JOB "lease %" PRIu32 " is copied in state %d", job->id, index, (int)lease->state);
    else if (lease->state == LEASE_FILLING)
        CHECK(!lease->dropped && !lease->ring && !job_in_place(job),
              JOB "lease %" PRIu32 " is decoded and not waiting", job->id, index);
    else
        CHECK(job_in_place(job), JOB "lease %" PRIu32 " holds a slot in state %d", job->id, index,
              (int)lease->state);
    CHECK(!job_in_place(job) || job->moving || job_in_place(lease->from),
          JOB "lease %" PRIu32 " is in memory that its client may not map", job->id, index);
    return 0;
}

static int check_feed(const struct job *job, struct failure *failure)
{
    uint32_t free = 0, held = 0;

    for (uint32_t i = 0; i < job->feed.n_slots; i++) {
        int rc = check_slot(job, i, failure);

        if (rc < 0)
            return rc;
        free += job->feed.slots[i].state == SLOT_FREE;
        held += job->feed.slots[i].state != SLOT_ABSENT;
    }
    CHECK(free == job->feed.free && held == job->feed.held,
          JOB "%" PRIu32 " slots are free and %" PRIu32 " held, the feed counts %" PRIu32
              " and %" PRIu32,
          job->id, free, held, job->feed.free, job->feed.held);
    CHECK(!(job_ended(job) || job->moving) || free <= job->debts,
          JOB "it has ended or moves and keeps %" PRIu32 " free slots", job->id, free);
    return 0;
}

static int check_lease(const struct job *job, uint32_t index, struct failure *failure)
{
    const struct lease *lease = &job->leases[index];
    uint32_t places = 0;

    for (uint32_t place = 0; place < job->pending_count; place++)
        places += job_pending(job, place) == index;
    CHECK(places == (is_pending(lease) ? 1 : 0),
          JOB "lease %" PRIu32 " in state %d is pending %" PRIu32 " times", job->id, index,
          (int)lease->state, places);
    CHECK((lease->slot == NONE) == !lease->from &&
              (lease->from != job || job->feed.slots[lease->slot].lease == index),
          JOB "lease %" PRIu32 " is in slot %" PRIu32 ", which fills another", job->id, index,
          lease->slot);
    CHECK(!lease->dropped || lease->copying,
          JOB "lease %" PRIu32 " is dropped and waits for nothing", job->id, index);
    if (lease->state == LEASE_FREE)
        CHECK(lease->slot == NONE && !lease->ring, JOB "lease %" PRIu32 " is free and has a place",
              job->id, index);
    if (lease->state == LEASE_READY)
        CHECK(job_in_place(job) == (lease->slot != NONE),
              JOB "lease %" PRIu32 " is ready by another delivery", job->id, index);
    /* What a job that moved had handed off stays where it was. */
    if (lease->state == LEASE_READY || lease->state == LEASE_HANDED)
        CHECK((lease->slot == NONE) == (lease->ring != 0),
              JOB "lease %" PRIu32 " is complete and nowhere", job->id, index);
    if (lease->state == LEASE_READY && lease->ring)
        CHECK(job->ring && job->ring->id == lease->ring,
              JOB "lease %" PRIu32 " is ready in ring %" PRIu32 ", which is not in use", job->id,
              index, lease->ring);
    if (is_pending(lease))
        CHECK(lease->count == order_count(&job->order, lease->at.step) ||
                  (job->pushed && lease->count < order_count(&job->order, lease->at.step)),
              JOB "lease %" PRIu32 " has %" PRIu32 " samples", job->id, index, lease->count);
    return check_use(job, index, failure);
}

static int check_pending(const struct job *job, struct failure *failure)
{
    struct cursor at;

    CHECK(job->pending_count == 0 || !job_ended(job),
          JOB "it has ended and %" PRIu32 " are pending", job->id, job->pending_count);
    if (!job->announced || job_ended(job))
        return 0;
    at = batch_cursor(job, job->next);
    for (uint32_t place = 0; place < job->pending_count; place++) {
        const struct lease *lease = &job->leases[job_pending(job, place)];

        CHECK(same(lease->at, at),
              JOB "step %" PRIu64 ":%" PRIu64 " is pending where %" PRIu64 ":%" PRIu64 " should be",
              job->id, lease->at.epoch, lease->at.step, at.epoch, at.step);
        at.step++;
        at = batch_cursor(job, at);
    }
    CHECK(same(at, job->state == JOB_FAILED ? job->fail_at : job->feed.ahead),
          JOB "what is pending ends before %" PRIu64 ":%" PRIu64, job->id, at.epoch, at.step);
    return 0;
}

static int check_leases(const struct job *job, struct failure *failure)
{
    uint32_t states[4] = {0}, unfilled = 0, debts = 0;

    for (uint32_t i = 0; i < job->depth; i++) {
        int rc = check_lease(job, i, failure);

        if (rc < 0)
            return rc;
        states[job->leases[i].state]++;
        unfilled += job->leases[i].state == LEASE_FILLING && job->leases[i].slot == NONE;
        debts += job->leases[i].from && job->leases[i].from != job;
    }
    CHECK(debts == job->debts, JOB "it has %" PRIu32 " slots of others, counted %" PRIu32, job->id,
          debts, job->debts);
    CHECK(states[LEASE_FREE] == job->free && states[LEASE_READY] == job->ready &&
              states[LEASE_HANDED] == job->handed && unfilled == job->unfilled,
          JOB "leases free, ready, handed, unfilled are %" PRIu32 ", %" PRIu32 ", %" PRIu32
              ", %" PRIu32 ", counted %" PRIu32 ", %" PRIu32 ", %" PRIu32 ", %" PRIu32,
          job->id, states[LEASE_FREE], states[LEASE_READY], states[LEASE_HANDED], unfilled,
          job->free, job->ready, job->handed, job->unfilled);
    return check_pending(job, failure);
}

static int check_rings(const struct job *job, struct failure *failure)
{
    for (int i = 0; i < RINGS_MAX; i++) {
        const struct ring *ring = &job->rings[i];
        uint32_t copies = 0;

        if (ring->state == RING_NONE) {
            CHECK(!ring->charge.account && ring != job->ring, JOB "ring %d is none and is charged",
                  job->id, i);
            continue;
        }
        for (uint32_t lease = 0; lease < job->depth; lease++)
            copies += job->leases[lease].ring == ring->id && job->leases[lease].copying;
        CHECK(ring->copies == copies,
              JOB "%" PRIu32 " copies go to ring %" PRIu32 ", which counts %" PRIu32, job->id,
              copies, ring->id, ring->copies);
        CHECK(!ring->lost || (ring != job->ring && ring->state != RING_MAKING),
              JOB "ring %" PRIu32 " is lost and in use", job->id, ring->id);
        CHECK(ring->state != RING_CLOSED || (copies && ring != job->ring),
              JOB "ring %" PRIu32 " is closed and not freed", job->id, ring->id);
        CHECK(ring->charge.account == job->tenant && ring->charge.amount == ring->bytes &&
                  ring->charge.kind == ACCOUNT_DEVICE,
              JOB "ring %" PRIu32 " of %" PRIu64 " bytes is charged %" PRIu64, job->id, ring->id,
              ring->bytes, ring->charge.amount);
    }
    return 0;
}

static int check_job(const struct job *job, struct failure *failure)
{
    int rc = check_feed(job, failure);

    if (rc == 0)
        rc = check_leases(job, failure);
    if (rc == 0)
        rc = check_rings(job, failure);
    if (rc < 0)
        return rc;
    CHECK(job->charge.account == job->tenant && job->charge.amount == 1, JOB "it is not charged",
          job->id);
    CHECK(!job->told || job->failure.code < 0, JOB "it was told a failure without a code", job->id);
    CHECK(!job->moving || (job_in_place(job) && !job->ring), JOB "it moves to a ring", job->id);
    CHECK(!job->touched, JOB "it was not advanced", job->id);
    CHECK(job->wait == WAIT_NOTHING || job->feed.held == 0, JOB "it waits and has slots", job->id);
    return 0;
}

static int check_nodes(const struct core *core, struct failure *failure)
{
    for (uint32_t i = 0; i < core->n_nodes; i++) {
        uint32_t busy = 0;

        for (uint32_t j = 0; j < core->n_jobs; j++) {
            const struct job *job = core->jobs[j];

            for (uint32_t k = 0; job_node(job) == &core->nodes[i] && k < job->feed.n_slots; k++)
                busy += job->feed.slots[k].state == SLOT_DECODING && !job->feed.slots[k].stuck;
        }
        CHECK(busy == core->nodes[i].busy && busy <= core->batches_per_numa,
              "NUMA node %" PRIu32 ": the workers have %" PRIu32 " batches, counted %" PRIu32
              ", at most %" PRIu32,
              core->nodes[i].numa, busy, core->nodes[i].busy, core->batches_per_numa);
    }
    return 0;
}

/* Device bytes and jobs are charged by the core alone. */
static int check_account(const struct core *core, const struct account *account, bool all,
                         struct failure *failure)
{
    uint64_t bytes = 0, jobs = 0;

    for (uint32_t i = 0; i < core->n_jobs; i++) {
        const struct job *job = core->jobs[i];

        if (!all && job->tenant != account)
            continue;
        jobs++;
        for (int k = 0; k < RINGS_MAX; k++)
            bytes += job->rings[k].charge.amount;
    }
    CHECK(account->used[ACCOUNT_DEVICE] == bytes && account->used[ACCOUNT_JOBS] == jobs,
          "%s is charged %" PRIu64 " device bytes and %" PRIu64 " jobs, there are %" PRIu64
          " and %" PRIu64,
          account->key, account->used[ACCOUNT_DEVICE], account->used[ACCOUNT_JOBS], bytes, jobs);
    return 0;
}

int core_check(const struct core *core, struct failure *failure)
{
    int rc = check_nodes(core, failure);

    for (uint32_t i = 0; rc == 0 && i < core->n_jobs; i++)
        rc = check_job(core->jobs[i], failure);
    if (rc == 0)
        rc = check_account(core, &core->accounts->node, true, failure);
    list_for_each(link, &core->accounts->tenants)
    {
        if (rc == 0)
            rc = check_account(core, list_entry(link, struct account, link), false, failure);
    }
    return rc;
}
