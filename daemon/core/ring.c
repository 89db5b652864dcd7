/*
 * Rings. A ring is charged from the moment it is
 * asked for until no memory of it is left: freed by its device, or, when the
 * device's process is gone, closed by the client that mapped it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "core_private.h"

/* -- one ring ------------------------------------------------------------------------------ */

static uint32_t ring_number(struct core *core)
{
    if (++core->ring_last == 0)
        core->ring_last = 1;
    return core->ring_last;
}

static void ring_end(struct job *job, struct ring *ring)
{
    if (ring == job->ring)
        job->ring = NULL;
    charge_release(&ring->charge);
    *ring = (struct ring){.state = RING_NONE};
}

struct ring *ring_find(struct job *job, uint32_t id)
{
    for (int i = 0; i < RINGS_MAX; i++)
        if (job->rings[i].state != RING_NONE && job->rings[i].id == id)
            return &job->rings[i];
    return NULL;
}

void ring_make(struct job *job, uint64_t now)
{
    struct ring *ring = NULL;
    struct core_action *action;
    struct failure failure;
    uint64_t bytes = (uint64_t)job->depth * job->slot_bytes;
    int rc;

    bytes = (bytes + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
    for (int i = 0; i < RINGS_MAX && !ring; i++)
        if (job->rings[i].state == RING_NONE)
            ring = &job->rings[i];
    if (!ring) {
        failure_set(&failure, -EMFILE,
                    "job %" PRIu64 ": the client has not closed its last %d rings", job->id,
                    RINGS_MAX);
        job_fail(job, &failure, now);
        return;
    }
    rc = charge_acquire(&ring->charge, job->tenant, ACCOUNT_DEVICE, bytes, &failure);
    if (rc < 0) {
        job_fail(job, &failure, now);
        return;
    }
    ring->state = RING_MAKING;
    ring->id = ring_number(job->core);
    ring->delivery = job->delivery;
    ring->bytes = bytes;
    job->ring = ring;
    action = job_emit(job, CORE_RING_MAKE);
    action->ring = ring->id;
    action->delivery = ring->delivery;
    action->bytes = bytes;
}

static void ring_free_unused(struct job *job, struct ring *ring)
{
    if (ring->state != RING_CLOSED || ring->copies)
        return;
    if (!ring->lost)
        job_emit(job, CORE_RING_FREE)->ring = ring->id;
    ring_end(job, ring);
}

void ring_close(struct job *job, struct ring *ring)
{
    ring->state = RING_CLOSED;
    if (ring == job->ring)
        job->ring = NULL;
    ring_free_unused(job, ring);
}

void ring_copied(struct job *job, struct ring *ring)
{
    ring->copies--;
    ring_free_unused(job, ring);
}

bool ring_usable(const struct job *job)
{
    return job->ring && (job->ring->state == RING_OFFERED || job->ring->state == RING_OPEN);
}

bool rings_gone(const struct job *job)
{
    for (int i = 0; i < RINGS_MAX; i++)
        if (job->rings[i].state != RING_NONE)
            return false;
    return true;
}

void rings_reclaim(struct job *job)
{
    for (int i = 0; i < RINGS_MAX; i++)
        if (job->rings[i].state == RING_OFFERED || job->rings[i].state == RING_OPEN)
            ring_close(job, &job->rings[i]);
}

/* -- what device and client say of one ---------------------------------------------------- */

void core_ring_made(struct core *core, uint64_t job_id, uint32_t ring_id, uint64_t now)
{
    struct job *job = core_job_get(core, job_id);
    struct ring *ring = job ? ring_find(job, ring_id) : NULL;

    if (!ring || ring->state != RING_MAKING)
        return;
    if (job_live(job)) {
        ring->state = RING_OFFERED;
        ladder_announce(job, now);
    } else {
        ring_close(job, ring);
    }
    job_advance(job, now);
    schedule_run(core, now);
}

void core_ring_failed(struct core *core, uint64_t job_id, uint32_t ring_id, bool try_next,
                      const struct failure *failure, uint64_t now)
{
    struct job *job = core_job_get(core, job_id);
    struct ring *ring = job ? ring_find(job, ring_id) : NULL;

    if (!ring || ring->state != RING_MAKING)
        return;
    ring_end(job, ring);
    if (job_live(job) && try_next)
        ladder_descend(job, failure->text, failure->code, false, now);
    else if (job_live(job))
        job_fail(job, failure, now);
    job_advance(job, now);
    schedule_run(core, now);
}

int core_ring_opened(struct core *core, uint64_t peer, uint64_t job_id, uint32_t ring_id, bool ok,
                     const char *error, uint64_t now)
{
    struct job *job = core_job_of_peer(core, job_id, peer);
    struct ring *ring = job ? ring_find(job, ring_id) : NULL;
    bool in_use;

    if (!ring || ring->state != RING_OFFERED)
        return -EPROTO;
    in_use = ring == job->ring && job_live(job);
    if (ok) {
        ring->state = RING_OPEN;
        if (in_use && job->state == JOB_OPENING)
            job->state = JOB_RUNNING;
    } else {
        ring_close(job, ring);
        if (in_use) {
            struct failure failure;

            batches_redo(job, ring_id, now);
            failure_set(&failure, -EIO, "the client could not open the ring: %.300s",
                        error && *error ? error : "it gives no reason");
            ladder_descend(job, failure.text, failure.code, false, now);
        }
    }
    job_advance(job, now);
    schedule_run(core, now);
    return 0;
}

int core_ring_closed(struct core *core, uint64_t peer, uint64_t job_id, uint32_t ring_id,
                     uint64_t now)
{
    struct job *job = core_job_of_peer(core, job_id, peer);
    struct ring *ring = job ? ring_find(job, ring_id) : NULL;

    if (!ring || (ring->state != RING_OFFERED && ring->state != RING_OPEN) ||
        batches_held_in(job, ring_id))
        return -EPROTO;
    if (ring == job->ring && job_live(job)) {
        /* The client is about to close the job: there is nothing to be handed off to any more. */
        batches_drop(job, 0, now);
        job->deaf = true;
    }
    ring_close(job, ring);
    job_advance(job, now);
    schedule_run(core, now);
    return 0;
}

/* -- the device ---------------------------------------------------------------------------- */

void rings_lost(struct job *job, const struct failure *failure, uint64_t now)
{
    bool in_use = job->ring != NULL;

    job->ring = NULL;
    for (int i = 0; i < RINGS_MAX; i++) {
        struct ring *ring = &job->rings[i];

        if (ring->state == RING_NONE || ring->lost)
            continue;
        if (ring->state == RING_MAKING) {
            ring_end(job, ring);
            continue;
        }
        batches_uncopy(job, ring->id, now);
        batches_redo(job, ring->id, now);
        ring->lost = true;
        ring->copies = 0;
        ring_free_unused(job, ring);
    }
    if (!in_use || !job_live(job))
        return;
    if (job->pushed && job->announced) {
        struct failure final;

        failure_set(&final, failure->code,
                    "the device was lost, and with it batches that the client had pushed: %.400s",
                    failure->text);
        job_fail(job, &final, now);
    } else if (++job->losses < CORE_DEVICE_RESTARTS_MAX) {
        ring_make(job, now);
    } else {
        struct failure final;

        failure_set(&final, failure->code,
                    "the device was lost %d times without a batch delivered between: %.400s",
                    CORE_DEVICE_RESTARTS_MAX, failure->text);
        job_fail(job, &final, now);
    }
}

void core_device_lost(struct core *core, uint32_t device, const struct failure *failure,
                      uint64_t now)
{
    for (uint32_t i = 0; i < core->n_jobs;) {
        struct job *job = core->jobs[i];

        if (job->device == device) {
            rings_lost(job, failure, now);
            job_advance(job, now);
        }
        /* Its end takes it out of the jobs. */
        if (i < core->n_jobs && core->jobs[i] == job)
            i++;
    }
    schedule_run(core, now);
}

static void rings_refused(struct job *job, const struct failure *failure, uint64_t now)
{
    bool in_use = job->ring && job->ring->state == RING_MAKING;

    for (int i = 0; i < RINGS_MAX; i++)
        if (job->rings[i].state == RING_MAKING)
            ring_end(job, &job->rings[i]);
    if (in_use && job_live(job))
        ladder_descend(job, failure->text, failure->code, true, now);
}

void core_device_refused(struct core *core, uint32_t device, const struct failure *failure,
                         uint64_t now)
{
    for (uint32_t i = 0; i < core->n_jobs;) {
        struct job *job = core->jobs[i];

        if (job->device == device) {
            rings_refused(job, failure, now);
            job_advance(job, now);
        }
        if (i < core->n_jobs && core->jobs[i] == job)
            i++;
    }
    schedule_run(core, now);
}
