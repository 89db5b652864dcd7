/*
 * Batches in the leases of a job: asked for, copied, handed off in step order,
 * released. A lease is free for another batch only when nothing writes to its
 * ring slot any more and the client does not read it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core_private.h"

int batches_init(struct job *job)
{
    job->leases = calloc(job->depth, sizeof *job->leases);
    job->pending = calloc(job->depth, sizeof *job->pending);
    if (!job->leases || !job->pending)
        return -ENOMEM;
    for (uint32_t i = 0; i < job->depth; i++) {
        job->leases[i].generation = 1;
        job->leases[i].slot = NONE;
    }
    job->free = job->depth;
    return 0;
}

void batches_begin(struct job *job, uint64_t now)
{
    for (uint32_t i = 0; i < job->depth; i++)
        job->leases[i].since = now;
}

static void lease_free(struct job *job, struct lease *lease, uint64_t now)
{
    *lease = (struct lease){.generation = lease->generation + 1, .slot = NONE, .since = now};
    job->free++;
}

/* Adds to a stage's sums, the job's and the core's. */
static void stage_add(uint64_t *of_job, uint64_t *of_core, uint64_t since, uint64_t now)
{
    *of_job += now - since;
    *of_core += now - since;
}

/* -- asking for a batch -------------------------------------------------------------------- */

/* Whether it has a lease for another batch. */
static bool batch_due(const struct job *job)
{
    if (!job->announced || !job_live(job))
        return false;
    /* A failed job still makes again what was lost before the step at which it fails. */
    return job->unfilled > 0 || (job->state != JOB_FAILED && job->free > 0);
}

struct job *batch_lender(struct job *job)
{
    if (!batch_due(job) || job->moving)
        return NULL;
    return job->feed.free > 0 ? job : share_lender(job);
}

/* The place of the first lease that is asked for and has no slot; there must be one. */
static uint32_t place_unfilled(const struct job *job)
{
    for (uint32_t place = 0;; place++) {
        const struct lease *lease = &job->leases[job_pending(job, place)];

        if (lease->state == LEASE_FILLING && lease->slot == NONE)
            return place;
    }
}

uint32_t batches_filled(const struct job *job)
{
    return job->unfilled == 0 ? job->depth - job->free : job->handed + place_unfilled(job);
}

/* A free lease for the batch that was never asked for yet. */
static void lease_append(struct job *job)
{
    struct cursor *ahead = &job->feed.ahead;
    uint32_t i = 0;

    while (job->leases[i].state != LEASE_FREE)
        i++;
    job->leases[i].state = LEASE_FILLING;
    job->leases[i].at = *ahead;
    job->leases[i].count = order_count(&job->order, ahead->step);
    job->pending[(job->pending_head + job->pending_count++) % job->depth] = i;
    job->free--;
    job->unfilled++;
    if (++ahead->step == job->steps)
        *ahead = (struct cursor){.epoch = ahead->epoch + 1};
}

static struct lease *lease_unfilled(struct job *job)
{
    return &job->leases[job_pending(job, place_unfilled(job))];
}

static void lease_fill(struct job *job, struct lease *lease, struct job *from, uint32_t slot,
                       uint64_t now)
{
    slot_attach(job, lease, from, slot);
    job->unfilled--;
    stage_add(&job->stages.slot_wait_ns, &job->core->stages.slot_wait_ns, lease->since, now);
}

void batch_start(struct job *job, uint64_t now)
{
    struct job *from = share_lender(job);
    struct lease *lease;
    struct slot *slot;
    struct core_action *action;

    if (job->unfilled == 0)
        lease_append(job);
    lease = lease_unfilled(job);
    lease_fill(job, lease, from, feed_take(from), now);
    slot = lease_slot(lease);
    slot->at = lease->at;
    share_begun(job, slot->at);
    slot->stuck = job->pushed;
    job_node(from)->busy += !job->pushed;
    action = job_emit(from, CORE_DECODE);
    action->slot = lease->slot;
    action->generation = slot->generation;
    action->memory = slot->memory;
    action->lent = from != job;
    action->asker = job->id;
    action->epoch = lease->at.epoch;
    action->step = lease->at.step;
    /* What was pushed and lost may have been less. */
    action->count = lease->count = order_count(&job->order, lease->at.step);
}

bool batch_share(struct job *job, uint64_t now)
{
    struct lease *lease = NULL;
    struct job *from;
    uint32_t index;

    if (job->mates == 0 || job->moving || !batch_due(job))
        return false;
    if (job->unfilled > 0)
        lease = lease_unfilled(job);
    if (!share_find(job, lease ? lease->at : job->feed.ahead, &from, &index))
        return false;
    if (!lease) {
        lease_append(job);
        lease = lease_unfilled(job);
    }
    lease_fill(job, lease, from, index, now);
    job->shared += from != job;
    if (lease_slot(lease)->state == SLOT_DECODED) {
        lease->bad = lease_slot(lease)->bad;
        if (job_in_place(job)) {
            lease->state = LEASE_READY;
            job->ready++;
        }
    }
    job_touch(job);
    return true;
}

/* -- copying ------------------------------------------------------------------------------- */

void batches_copy(struct job *job, uint64_t now)
{
    if (job_in_place(job) || !ring_usable(job))
        return;
    for (uint32_t place = 0; place < job->pending_count; place++) {
        uint32_t index = job_pending(job, place);
        struct lease *lease = &job->leases[index];
        const struct slot *slot = lease_slot(lease);
        struct core_action *action;

        if (!slot || slot->state != SLOT_DECODED || lease->copying)
            continue;
        lease->copying = true;
        lease->ring = job->ring->id;
        lease->since = now;
        job->ring->copies++;
        action = job_emit(job, CORE_COPY);
        action->ring = lease->ring;
        action->lease = index;
        action->generation = lease->generation;
        action->memory = slot->memory;
        action->pool = lease->from->device;
        action->bytes = job->slot_bytes;
    }
}

/* Takes the slot from a lease that it was to fill. */
static void lease_unfill(struct job *job, struct lease *lease)
{
    slot_detach(job, lease);
    lease->ring = 0;
    job->unfilled++;
}

/* A copy is over, one way or another: its slot can be read again, or is free. in_use: it went to
 * the ring that is in use. */
static void lease_copied(struct job *job, struct lease *lease, bool in_use,
                         const struct failure *failure, uint64_t now)
{
    uint32_t index = (uint32_t)(lease - job->leases);

    lease->copying = false;
    if (lease->dropped) {
        slot_detach(job, lease);
        lease_free(job, lease, now);
    } else if (job->moving) {
        lease_unfill(job, lease);
    } else if (!in_use) {
        /* That ring was given up or lost; the bytes are still in the slot. */
        lease->ring = 0;
    } else {
        slot_detach(job, lease);
        if (failure) {
            lease->ring = 0;
            lease->since = now;
            job->unfilled++;
            job_fail_at(job, job_place(job, index), failure, now);
        } else {
            stage_add(&job->stages.copy_ns, &job->core->stages.copy_ns, lease->since, now);
            lease->state = LEASE_READY;
            job->ready++;
        }
    }
}

void core_copied(struct core *core, uint64_t job_id, uint32_t ring, uint32_t lease,
                 uint32_t generation, const struct failure *failure, uint64_t now)
{
    struct job *job = core_job_get(core, job_id);
    struct lease *copied;
    struct ring *into;

    if (!job || lease >= job->depth)
        return;
    copied = &job->leases[lease];
    into = ring_find(job, ring);
    if (!into || copied->state != LEASE_FILLING || copied->generation != generation ||
        copied->ring != ring || !copied->copying)
        return;
    lease_copied(job, copied, into == job->ring, failure, now);
    ring_copied(job, into);
    job_advance(job, now);
    schedule_run(core, now);
}

/* -- handing off --------------------------------------------------------------------------- */

static void lease_hand_off(struct job *job, uint32_t index, uint64_t now)
{
    struct lease *lease = &job->leases[index];
    struct core_action *action = job_emit(job, CORE_BATCH_READY);

    /* With copy a lease says nothing of what the client still has. */
    job->starved += job->handed == 0 && job->delivery != DELIVERY_COPY;
    job->delivered++;
    job->losses = 0;
    job->bad_epoch += lease->bad;
    job->core->bytes += job->slot_bytes;
    lease->state = LEASE_HANDED;
    lease->since = now;
    job->ready--;
    job->handed++;
    if (lease->slot != NONE) {
        action->memory = lease_slot(lease)->memory;
        action->pool = lease->from->device;
    }
    action->lease = index;
    action->generation = lease->generation;
    action->ring = lease->ring;
    action->epoch = lease->at.epoch;
    action->step = lease->at.step;
    action->count = lease->count;
    job->pending_head = (job->pending_head + 1) % job->depth;
    job->pending_count--;
    job->next.step++;
}

/* Whether the batch at the head may be handed off, by the limit on bad samples; else it ends the
 * job. */
static bool batch_bearable(struct job *job, uint64_t now)
{
    const struct lease *lease = &job->leases[job_pending(job, 0)];
    uint64_t bad = job->bad_epoch + lease->bad;
    struct failure failure;

    if (lease->bad == 0 || bad <= job->bad_max)
        return true;
    failure_set(&failure, -EBADMSG,
                "%.300s: with step %" PRIu64 " there are %" PRIu64 " bad samples in epoch %" PRIu64
                ", the limit is %" PRIu64 "; pinctl jobs --bad %" PRIu64 " lists them",
                job->dataset, lease->at.step, bad, lease->at.epoch, job->bad_max, job->id);
    job_fail_at(job, 0, &failure, now);
    return false;
}

void batches_deliver(struct job *job, uint64_t now)
{
    if (!job->announced || job->moving || job->wait != WAIT_NOTHING)
        return;
    if (!job_in_place(job) && (!job->ring || job->ring->state != RING_OPEN))
        return;
    for (;;) {
        if (job->next.step == job->steps) {
            job_emit(job, CORE_EPOCH_END)->epoch = job->next.epoch;
            job->next = (struct cursor){.epoch = job->next.epoch + 1};
            job->bad_epoch = 0;
        } else if (job->pending_count && job->leases[job_pending(job, 0)].state == LEASE_READY &&
                   batch_bearable(job, now)) {
            lease_hand_off(job, job_pending(job, 0), now);
        } else {
            break;
        }
    }
}

int core_release(struct core *core, uint64_t peer, uint64_t job_id, uint32_t lease,
                 uint32_t generation, uint64_t now)
{
    struct job *job = core_job_of_peer(core, job_id, peer);
    struct lease *held;

    if (!job || lease >= job->depth)
        return -EPROTO;
    held = &job->leases[lease];
    if (held->state != LEASE_HANDED || held->generation != generation)
        return -EPROTO;
    stage_add(&job->stages.hold_ns, &job->core->stages.hold_ns, held->since, now);
    if (job->state != JOB_CLOSING) {
        /* What comes back later was taken by nobody. */
        job->bad += held->bad;
        core->bad += held->bad;
    }
    if (held->slot != NONE)
        slot_detach(job, held);
    job->handed--;
    lease_free(job, held, now);
    job_advance(job, now);
    schedule_run(core, now);
    return 0;
}

void batches_reclaim(struct job *job, uint64_t now)
{
    for (uint32_t i = 0; i < job->depth; i++) {
        struct lease *lease = &job->leases[i];

        if (lease->state != LEASE_HANDED)
            continue;
        if (lease->slot != NONE)
            slot_detach(job, lease);
        job->handed--;
        lease_free(job, lease, now);
    }
}

bool batches_held_in(const struct job *job, uint32_t ring)
{
    for (uint32_t i = 0; i < job->depth; i++)
        if (job->leases[i].state == LEASE_HANDED && job->leases[i].ring == ring)
            return true;
    return false;
}

/* -- taking back --------------------------------------------------------------------------- */

/* A lease that is not pending any more. What still writes or reads is waited for. */
static void lease_drop(struct job *job, struct lease *lease, uint64_t now)
{
    if (lease->state == LEASE_READY)
        job->ready--;
    else if (lease->slot == NONE)
        job->unfilled--;
    if (lease->copying) {
        lease->dropped = true;
        return;
    }
    if (lease->slot != NONE)
        slot_detach(job, lease);
    lease_free(job, lease, now);
}

void batches_drop(struct job *job, uint32_t place, uint64_t now)
{
    while (job->pending_count > place)
        lease_drop(job, &job->leases[job_pending(job, --job->pending_count)], now);
}

void batches_redo(struct job *job, uint32_t ring, uint64_t now)
{
    for (uint32_t place = 0; place < job->pending_count; place++) {
        struct lease *lease = &job->leases[job_pending(job, place)];

        if (lease->state != LEASE_READY || lease->ring != ring)
            continue;
        lease->state = LEASE_FILLING;
        lease->ring = 0;
        lease->since = now;
        job->ready--;
        job->unfilled++;
    }
}

void batches_uncopy(struct job *job, uint32_t ring, uint64_t now)
{
    for (uint32_t i = 0; i < job->depth; i++) {
        struct lease *lease = &job->leases[i];

        if (lease->copying && lease->ring == ring)
            lease_copied(job, lease, false, NULL, now);
    }
}

void batches_unfill(struct job *job)
{
    for (uint32_t place = 0; place < job->pending_count; place++) {
        struct lease *lease = &job->leases[job_pending(job, place)];

        /* Of what is copied the end comes. */
        if (lease->slot != NONE && !lease->copying)
            lease_unfill(job, lease);
    }
}
