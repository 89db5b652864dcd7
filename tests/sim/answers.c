/*
 * What workers, devices and clients say to the core: the model first, then the
 * core, and its answer is what the model expects.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "sim.h"

/* Copies that a device ends, and what they leave in the model. */
static void copy_ended(struct sim *sim, struct sim_ring *ring, const struct task *task, bool ok)
{
    struct sim_job *owner;
    struct sim_memory *memory = sim_memory_of(sim, task->memory, &owner);

    memory->copying--;
    ring->copies--;
    ring->slots[task->lease].copying = false;
    ring->slots[task->lease].full = ok;
    /* Into a ring that the client refused meanwhile, the bytes are of no use. */
    memory->copied = ring->mapping != MAPPING_NONE;
}

static void task_remove(struct sim *sim, uint32_t i)
{
    sim->past[sim->n_past++ % SIM_PAST] = sim->tasks[i];
    sim->n_tasks--;
    memmove(&sim->tasks[i], &sim->tasks[i + 1], (sim->n_tasks - i) * sizeof *sim->tasks);
}

static void batch_failure(const struct task *task, const char *what, struct failure *failure)
{
    failure_set(failure, -EIO, "batch %" PRIu64 ":%" PRIu64 " %s", task->epoch, task->step, what);
}

/* Where the furthest of its mates is. */
static void start_live(struct sim *sim, struct sim_job *job)
{
    struct cursor *start = &job->spec.start;

    for (int i = 0; i < SIM_JOBS; i++) {
        const struct sim_job *mate = &sim->jobs[i];

        if (sim_mates(job, mate) && sim_job_live(mate) && mate->reserved &&
            (mate->next.epoch > start->epoch ||
             (mate->next.epoch == start->epoch && mate->next.step > start->step)))
            *start = mate->next;
    }
    job->next = *start;
    job->plan_ok = job->steps > 0 && start->step <= job->steps;
}

static void answer_index(struct sim *sim, struct sim_job *job, enum outcome outcome)
{
    struct core_dataset dataset = {.samples = job->samples,
                                   .identity = job->identity,
                                   .fingerprint = 17,
                                   .slot_bytes = job->slot_bytes};
    struct failure failure;

    if (outcome == OUTCOME_OK) {
        if (job->spec.live && sim_job_live(job) && job->steps > 0)
            start_live(sim, job);
        core_job_indexed(sim->core, job->id, &dataset, sim->now);
        return;
    }
    failure_set(&failure, job->closing ? -ECANCELED : -ENOENT, "no such dataset");
    core_job_refused(sim->core, job->id, &failure, sim->now);
}

static void answer_reserve(struct sim *sim, struct sim_job *job, enum outcome outcome)
{
    uint64_t handles[SIM_DEPTH];
    struct failure failure;

    if (outcome != OUTCOME_OK) {
        failure_set(&failure, -ENOMEM, "no memory for slots");
        core_job_refused(sim->core, job->id, &failure, sim->now);
        return;
    }
    for (uint32_t i = 0; i < job->spec.depth; i++) {
        handles[i] = ++sim->memory_last;
        job->memory[i] = (struct sim_memory){.owned = true, .handle = handles[i]};
    }
    core_job_reserved(sim->core, job->id, handles, sim->now);
}

static void answer_ring(struct sim *sim, struct sim_job *job, const struct task *task,
                        enum outcome outcome)
{
    struct sim_ring *ring = sim_ring_find(job, task->ring);
    struct failure failure;

    if (outcome == OUTCOME_OK) {
        ring->made = true;
        core_ring_made(sim->core, job->id, ring->id, sim->now);
        return;
    }
    ring->used = false;
    failure_set(&failure, -ENOTSUP, "no ring");
    core_ring_failed(sim->core, job->id, task->ring, sim_chance(sim, 70), &failure, sim->now);
}

/* Every third batch or so has some: the same ones, however often it is made. */
uint32_t sim_bad(const struct sim_job *job, int64_t batch)
{
    uint64_t at = job->spec.start.epoch * job->steps + job->spec.start.step + (uint64_t)batch;
    uint64_t of = job->identity ? job->identity : job->id;
    uint64_t number = (at + of) * UINT64_C(0x9e3779b97f4a7c15) >> 60;

    return number < 5 && !job->spec.pushed ? (uint32_t)(number % job->spec.order.batch + 1) : 0;
}

/* More than that in an epoch end the job. */
uint64_t sim_bad_max(const struct sim_job *job)
{
    const struct core_bad_limit *limit = &job->spec.bad_limit;
    uint64_t samples = job->steps * job->spec.order.batch;

    if (!limit->has)
        return UINT64_MAX;
    if (job->spec.order.last == ORDER_LAST_PARTIAL)
        samples = job->samples;
    return limit->share_ppm ? samples * limit->share_ppm / 1000000 : limit->samples;
}

static void answer_decode(struct sim *sim, struct sim_job *job, const struct task *task,
                          enum outcome outcome)
{
    struct sim_memory *memory = sim_memory_find(job, task->memory);
    struct failure failure;

    memory->content = outcome == OUTCOME_OK && !task->cancelled ? CONTENT_FULL : CONTENT_NONE;
    memory->part =
        outcome == OUTCOME_OK && job->gathers && !task->lent && sim_bad(job, task->batch) == 0;
    /* Of one with mates it is not known which of them fail. */
    job->failing |= outcome != OUTCOME_OK && !task->cancelled && !job->identity;
    batch_failure(task, "does not decode", &failure);
    if (memory->part) {
        core_gathered(sim->core, task->feed, task->slot, task->generation, sim->now);
        return;
    }
    if (job->spec.pushed) {
        core_pushed(sim->core, task->feed, task->slot, task->generation,
                    sim_pushed_count(job, task->batch), outcome == OUTCOME_OK ? NULL : &failure,
                    sim->now);
        return;
    }
    core_decoded(sim->core, task->feed, task->slot, task->generation,
                 outcome == OUTCOME_OK ? NULL : &failure, sim_bad(job, task->batch), 5, 7,
                 sim->now);
}

static void answer_copy(struct sim *sim, struct sim_job *job, const struct task *task,
                        enum outcome outcome)
{
    struct sim_ring *ring = sim_ring_find(job, task->ring);
    struct task named = *task;
    struct failure failure;

    copy_ended(sim, ring, task, outcome == OUTCOME_OK);
    job->failing |= outcome != OUTCOME_OK && sim_job_live(job) && ring->mapping != MAPPING_NONE;
    named.epoch = job->spec.start.epoch + (task->batch + job->spec.start.step) / job->steps;
    named.step = (task->batch + job->spec.start.step) % job->steps;
    batch_failure(&named, "does not copy", &failure);
    core_copied(sim->core, job->id, task->ring, task->lease, task->generation,
                outcome == OUTCOME_OK ? NULL : &failure, sim->now);
}

/* A read of it hangs: the workers' thread is replaced, the task stays. */
static void decode_stuck(struct sim *sim, struct sim_job *job, struct task *task)
{
    struct failure failure;

    job->failing |= !task->cancelled && !job->identity;
    task->stuck = true;
    batch_failure(task, "hangs", &failure);
    core_stuck(sim->core, task->feed, task->slot, task->generation, &failure, sim->now);
}

void sim_answer(struct sim *sim, uint32_t i, enum outcome outcome)
{
    static const char *const names[] = {"index", "reserve", "ring", "decode", "copy"};
    struct task task = sim->tasks[i];
    struct sim_job *job = sim_job_find(sim, task.job);

    sim_log(sim, "  %s of job %" PRIu64 " ends: %s\n", names[task.type], task.job,
            outcome == OUTCOME_OK       ? "ok"
            : outcome == OUTCOME_FAILED ? "failed"
                                        : "stuck");
    if (outcome == OUTCOME_STUCK && task.type == TASK_DECODE && !job->spec.pushed) {
        decode_stuck(sim, job, &sim->tasks[i]);
        return;
    }
    task_remove(sim, i);
    switch (task.type) {
    case TASK_INDEX:
        answer_index(sim, job, outcome);
        break;
    case TASK_RESERVE:
        answer_reserve(sim, job, outcome);
        break;
    case TASK_RING:
        answer_ring(sim, job, &task, outcome);
        break;
    case TASK_DECODE:
        answer_decode(sim, job, &task, outcome);
        break;
    case TASK_COPY:
        answer_copy(sim, job, &task, outcome);
        break;
    }
}

void sim_repeat(struct sim *sim)
{
    uint32_t past = sim->n_past < SIM_PAST ? sim->n_past : SIM_PAST;
    uint64_t memory[SIM_DEPTH] = {0};
    struct core_dataset dataset = {.samples = 9, .slot_bytes = 4096};
    struct failure failure, *reported = sim_chance(sim, 50) ? &failure : NULL;
    struct task task;

    if (past == 0)
        return;
    task = sim->past[sim_random(sim, past)];
    for (uint32_t i = 0; task.type == TASK_RESERVE && i < sim->n_tasks; i++)
        if (sim->tasks[i].type == TASK_RESERVE && sim->tasks[i].job == task.job)
            return; /* of two reservations the pool answers each once */
    failure_set(&failure, -EIO, "reported again");
    sim_log(sim, "  task %d of job %" PRIu64 " is reported again\n", (int)task.type, task.job);
    switch (task.type) {
    case TASK_INDEX:
        core_job_indexed(sim->core, task.job, &dataset, sim->now);
        break;
    case TASK_RESERVE:
        core_job_reserved(sim->core, task.job, memory, sim->now);
        break;
    case TASK_RING:
        if (reported)
            core_ring_failed(sim->core, task.job, task.ring, true, reported, sim->now);
        else
            core_ring_made(sim->core, task.job, task.ring, sim->now);
        break;
    case TASK_DECODE:
        if (sim_chance(sim, 30))
            core_stuck(sim->core, task.feed, task.slot, task.generation, &failure, sim->now);
        else
            core_decoded(sim->core, task.feed, task.slot, task.generation, reported, 1, 1, 1,
                         sim->now);
        break;
    case TASK_COPY:
        core_copied(sim->core, task.job, task.ring, task.lease, task.generation, reported,
                    sim->now);
        break;
    }
    sim_drain(sim);
    EXPECT(sim, sim->actions == 0, "a report that came again had an effect");
}

/* -- devices ------------------------------------------------------------------------------- */

void sim_device_lost(struct sim *sim, uint32_t device)
{
    struct failure failure;

    sim_log(sim, "  device %" PRIu32 " is lost\n", device);
    for (uint32_t i = 0; i < sim->n_tasks;) {
        struct task *task = &sim->tasks[i];
        struct sim_job *job = sim_job_find(sim, task->job);

        if (task->device != device || (task->type != TASK_RING && task->type != TASK_COPY)) {
            i++;
            continue;
        }
        if (task->type == TASK_COPY) {
            struct sim_job *owner;

            copy_ended(sim, sim_ring_find(job, task->ring), task, false);
            sim_memory_of(sim, task->memory, &owner)->copied = false;
        }
        task_remove(sim, i);
    }
    for (int i = 0; i < SIM_JOBS; i++)
        for (int k = 0; k < SIM_RINGS; k++) {
            struct sim_ring *ring = &sim->jobs[i].rings[k];

            if (!sim->jobs[i].used || sim->jobs[i].spec.device != device || !ring->used)
                continue;
            sim->jobs[i].losses += !ring->lost && ring->mapping != MAPPING_NONE;
            ring->lost = true;
            ring->used = ring->made && ring->mapping != MAPPING_NONE;
        }
    failure_set(&failure, -EIO, "device %" PRIu32 " fell off the bus", device);
    core_device_lost(sim->core, device, &failure, sim->now);
}

void sim_device_refused(struct sim *sim, uint32_t device)
{
    struct failure failure;

    sim_log(sim, "  device %" PRIu32 " is refused\n", device);
    for (uint32_t i = 0; i < sim->n_tasks;) {
        const struct task *task = &sim->tasks[i];

        if (task->device != device || task->type != TASK_RING) {
            i++;
            continue;
        }
        sim_ring_find(sim_job_find(sim, task->job), task->ring)->used = false;
        task_remove(sim, i);
    }
    failure_set(&failure, -EOPNOTSUPP, "device %" PRIu32 " is another process's alone", device);
    core_device_refused(sim->core, device, &failure, sim->now);
}

/* -- clients ------------------------------------------------------------------------------- */

/* The client has no mapping of it, now or ever. */
static void ring_unmapped(struct sim_ring *ring)
{
    ring->mapping = MAPPING_NONE;
    if (ring->lost)
        ring->used = false;
}

static void lease_end(struct sim *sim, struct sim_lease *lease)
{
    struct sim_job *owner;
    struct sim_memory *memory =
        lease->held && !lease->ring ? sim_memory_of(sim, lease->memory, &owner) : NULL;

    lease->held = false;
    if (memory)
        memory->leased--;
}

void sim_peer_gone(struct sim *sim, struct sim_peer *peer)
{
    sim_log(sim, "  peer %" PRIu64 " is gone\n", peer->id);
    peer->gone = true;
    for (int i = 0; i < SIM_JOBS; i++)
        if (sim->jobs[i].used && sim->jobs[i].peer == peer->id)
            sim->jobs[i].closing = sim->jobs[i].peer_gone = true;
    core_peer_gone(sim->core, peer->id, sim->now);
}

void sim_peer_dead(struct sim *sim, struct sim_peer *peer)
{
    sim_log(sim, "  peer %" PRIu64 " is dead\n", peer->id);
    for (int i = 0; i < SIM_JOBS; i++) {
        struct sim_job *job = &sim->jobs[i];

        if (!job->used || job->peer != peer->id)
            continue;
        for (int k = 0; k < SIM_DEPTH; k++)
            lease_end(sim, &job->leases[k]);
        for (int k = 0; k < SIM_RINGS; k++)
            if (job->rings[k].used && job->rings[k].offered)
                ring_unmapped(&job->rings[k]);
    }
    core_peer_dead(sim->core, peer->id, sim->now);
    account_unref(peer->account);
    peer->account = NULL;
    peer->id = 0;
}

void sim_job_close(struct sim *sim, struct sim_job *job, uint64_t peer)
{
    bool right = peer == job->peer && !job->peer_gone && !job->closing;
    int rc;

    sim_log(sim, "  peer %" PRIu64 " closes job %" PRIu64 "\n", peer, job->id);
    job->closing |= right;
    rc = core_job_close(sim->core, peer, job->id, sim->now);
    EXPECT(sim, rc == (right ? 0 : -EPROTO), "closing job %" PRIu64 " gave %d", job->id, rc);
}

void sim_job_evict(struct sim *sim, uint64_t id)
{
    const struct sim_job *job = sim_job_find(sim, id);
    int rc, right = !job ? -ENOENT : sim_job_live(job) ? 0 : -EALREADY;
    struct failure failure;

    sim_log(sim, "  job %" PRIu64 " is evicted\n", id);
    failure_set(&failure, -ECANCELED, "evicted");
    rc = core_job_evict(sim->core, id, &failure, sim->now);
    EXPECT(sim, rc == right, "evicting job %" PRIu64 " gave %d", id, rc);
    sim_drain(sim);
    EXPECT(sim, rc < 0 || job->told, "job %" PRIu64 " was evicted and is not told so", id);
}

void sim_ring_answer(struct sim *sim, struct sim_job *job, uint64_t peer, uint32_t id, bool ok)
{
    struct sim_ring *ring = sim_ring_find(job, id);
    bool right = peer == job->peer && !job->peer_gone && ring && ring->offered &&
                 ring->mapping == MAPPING_UNKNOWN;
    int rc;

    sim_log(sim, "  ring %" PRIu32 " of job %" PRIu64 " is %s\n", id, job->id,
            ok ? "opened" : "refused");
    if (right && ok)
        ring->mapping = MAPPING_OPEN;
    else if (right)
        ring_unmapped(ring);
    rc = core_ring_opened(sim->core, peer, job->id, id, ok, ok ? NULL : "no", sim->now);
    EXPECT(sim, rc == (right ? 0 : -EPROTO), "opening ring %" PRIu32 " gave %d", id, rc);
}

void sim_ring_close(struct sim *sim, struct sim_job *job, uint64_t peer, uint32_t id)
{
    struct sim_ring *ring = sim_ring_find(job, id);
    bool right = peer == job->peer && !job->peer_gone && ring && ring->offered &&
                 ring->mapping != MAPPING_NONE;
    int rc;

    sim_log(sim, "  ring %" PRIu32 " of job %" PRIu64 " is closed\n", id, job->id);
    for (int i = 0; i < SIM_DEPTH; i++)
        right = right && !(job->leases[i].held && job->leases[i].ring == id);
    if (right) {
        job->deaf |= !ring->lost && sim_job_live(job);
        ring_unmapped(ring);
    }
    rc = core_ring_closed(sim->core, peer, job->id, id, sim->now);
    EXPECT(sim, rc == (right ? 0 : -EPROTO), "closing ring %" PRIu32 " gave %d", id, rc);
}

void sim_release(struct sim *sim, struct sim_job *job, uint64_t peer, uint32_t index,
                 uint32_t generation)
{
    struct sim_lease *lease = index < SIM_DEPTH ? &job->leases[index] : NULL;
    bool right = peer == job->peer && !job->peer_gone && lease && lease->held &&
                 lease->generation == generation;
    int rc;

    sim_log(sim, "  lease %" PRIu32 " of job %" PRIu64 " is released\n", index, job->id);
    if (right) {
        lease_end(sim, lease);
        job->bad += job->closing ? 0 : sim_bad(job, lease->batch);
    }
    rc = core_release(sim->core, peer, job->id, index, generation, sim->now);
    EXPECT(sim, rc == (right ? 0 : -EPROTO), "releasing lease %" PRIu32 " gave %d", index, rc);
}
