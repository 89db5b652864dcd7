/*
 * The model of batches: what the core may have decoded, copied and handed off,
 * and when.
 */
#include "model.h"

/* The number of the batch at (epoch, step), from the job's start on. */
static int64_t batch_number(const struct sim_job *job, uint64_t epoch, uint64_t step)
{
    return (int64_t)((epoch - job->spec.start.epoch) * job->steps + step - job->spec.start.step);
}

static uint32_t expected_count(const struct sim_job *job, uint64_t step)
{
    uint64_t left = job->samples - step * job->spec.order.batch;

    if (job->spec.order.last != ORDER_LAST_PARTIAL || left > job->spec.order.batch)
        return job->spec.order.batch;
    return (uint32_t)left;
}

/* What a client filled. */
uint32_t sim_pushed_count(const struct sim_job *job, int64_t batch)
{
    return 1 + (uint32_t)((uint64_t)batch * 7 % job->spec.order.batch);
}

static uint32_t handed_count(const struct sim_job *job, uint64_t step)
{
    uint32_t count = expected_count(job, step), pushed = sim_pushed_count(job, job->delivered);

    return job->spec.pushed && pushed < count ? pushed : count;
}

static void expect_workers(struct sim *sim, const struct sim_job *job)
{
    uint32_t numa = sim->devices[job->spec.device].numa, busy = 0;

    for (uint32_t i = 0; i < sim->n_tasks; i++)
        busy += sim->tasks[i].type == TASK_DECODE && !sim->tasks[i].stuck &&
                !sim_job_find(sim, sim->tasks[i].job)->spec.pushed &&
                sim->devices[sim->tasks[i].device].numa == numa;
    EXPECT(sim, busy <= sim->batches_per_numa,
           "the workers of %" PRIu32 " have %" PRIu32 " batches", numa, busy);
}

/* Whether one of them may use the other's slots. */
static bool may_share(const struct sim *sim, const struct sim_job *a, const struct sim_job *b)
{
    return sim_mates(a, b) && !sim_job_may_move(sim, a) && !sim_job_may_move(sim, b) &&
           delivery_in_place(a->reserved) == delivery_in_place(b->reserved);
}

static bool is_at(struct cursor at, const struct core_action *action)
{
    return at.epoch == action->epoch && at.step == action->step;
}

/* A batch that a mate has, or is about to have, is not decoded. */
static void expect_unshared(struct sim *sim, const struct sim_job *job,
                            const struct core_action *action)
{
    for (uint32_t i = 0; i < sim->n_tasks; i++) {
        const struct task *task = &sim->tasks[i];

        EXPECT(sim,
               task->type != TASK_DECODE || task->cancelled || task->stuck ||
                   !may_share(sim, job, sim_job_find(sim, task->job)) ||
                   task->epoch != action->epoch || task->step != action->step,
               JOB "a batch is decoded that job %" PRIu64 " has decoded now", job->id, task->job);
    }
    for (int i = 0; i < SIM_JOBS; i++) {
        const struct sim_job *mate = &sim->jobs[i];

        for (int k = 0; may_share(sim, job, mate) && k < SIM_DEPTH; k++)
            EXPECT(sim,
                   !mate->memory[k].owned || mate->memory[k].content != CONTENT_FULL ||
                       mate->memory[k].part || !is_at(mate->memory[k].at, action),
                   JOB "a batch is decoded that job %" PRIu64 " has", job->id, mate->id);
    }
}

/* A batch that was asked for before may be made again only where it was lost. */
static void expect_lost(struct sim *sim, struct sim_job *job, int64_t batch)
{
    EXPECT(sim, batch >= job->delivered, JOB "batch %" PRId64 " is decoded after its hand-off",
           job->id, batch);
    for (uint32_t i = 0; i < sim->n_tasks; i++) {
        const struct task *task = &sim->tasks[i];

        EXPECT(sim,
               task->type != TASK_DECODE || task->job != job->id || task->batch != batch ||
                   task->cancelled,
               JOB "batch %" PRId64 " is decoded twice at a time", job->id, batch);
    }
    for (int i = 0; i < SIM_DEPTH; i++) {
        const struct sim_memory *memory = &job->memory[i];

        EXPECT(sim,
               !memory->owned || memory->content != CONTENT_FULL || memory->copied ||
                   memory->batch != batch,
               JOB "batch %" PRId64 " is decoded and still in a slot", job->id, batch);
    }
    for (int i = 0; i < SIM_RINGS; i++)
        for (int k = 0; sim_ring_usable(&job->rings[i]) && k < SIM_DEPTH; k++)
            EXPECT(sim, !job->rings[i].slots[k].full || job->rings[i].slots[k].batch != batch,
                   JOB "batch %" PRId64 " is decoded and still in a ring", job->id, batch);
}

/* Of a job without mates all is known. */
static void expect_decode(struct sim *sim, struct sim_job *job, const struct sim_memory *memory,
                          int64_t batch)
{
    EXPECT(sim, sim_job_live(job) && job->announced, JOB "a batch is decoded for nobody", job->id);
    EXPECT(sim,
           memory->content != CONTENT_FULL || memory->copied || job->failing ||
               memory->batch < job->delivered,
           JOB "memory %" PRIu64 " with batch %" PRId64 " is overwritten", job->id, memory->handle,
           memory->batch);
    EXPECT(sim, batch <= job->asked, JOB "batch %" PRId64 " is asked for before %" PRId64, job->id,
           batch, job->asked);
    if (batch < job->asked)
        expect_lost(sim, job, batch);
    else
        job->asked++;
    EXPECT(sim, job->asked - job->delivered + sim_job_held(job) <= job->spec.depth,
           JOB "more batches than leases", job->id);
}

void model_decode(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    struct sim_memory *memory = sim_memory_find(job, action->memory);
    int64_t batch = batch_number(job, action->epoch, action->step);
    struct task *task;

    EXPECT(sim, memory, JOB "memory %" PRIu64 " is not its own", job->id, action->memory);
    EXPECT(sim, memory->content != CONTENT_DECODING && !memory->copying && !memory->leased,
           JOB "memory %" PRIu64 " is used early (%s)", job->id, action->memory,
           memory->leased    ? "leased"
           : memory->copying ? "copied"
                             : "decoded");
    EXPECT(sim, action->step < job->steps && action->count == expected_count(job, action->step),
           JOB "step %" PRIu64 " of %" PRIu32 " samples", job->id, action->step, action->count);
    if (job->identity)
        expect_unshared(sim, job, action);
    else
        expect_decode(sim, job, memory, batch);
    memory->content = CONTENT_DECODING;
    memory->at = (struct cursor){action->epoch, action->step};
    memory->batch = batch;
    memory->copied = false;
    task = model_task_add(sim, TASK_DECODE, action);
    task->batch = batch;
    expect_workers(sim, job);
}

void model_decode_cancel(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    for (uint32_t i = 0; i < sim->n_tasks; i++) {
        struct task *task = &sim->tasks[i];

        if (task->type != TASK_DECODE || task->feed != action->feed || task->slot != action->slot ||
            task->generation != action->generation)
            continue;
        EXPECT(sim, !task->cancelled, JOB "a decode is cancelled twice", job->id);
        task->cancelled = true;
        return;
    }
    sim_fail(sim, JOB "a decode is cancelled that is not under way", job->id);
}

/* The memory that a job is to have a batch from: its own, or a mate's. */
static struct sim_memory *memory_for(struct sim *sim, struct sim_job *job,
                                     const struct core_action *action)
{
    struct sim_job *owner;
    struct sim_memory *memory = sim_memory_of(sim, action->memory, &owner);

    EXPECT(sim, memory && memory->content == CONTENT_FULL,
           JOB "memory %" PRIu64 " has no batch for it", job->id, action->memory);
    EXPECT(sim, owner == job || (sim_mates(owner, job) && !memory->part),
           JOB "memory %" PRIu64 " is of job %" PRIu64, job->id, action->memory, owner->id);
    EXPECT(sim, action->pool == owner->spec.device, JOB "memory %" PRIu64 " is of another pool",
           job->id, action->memory);
    EXPECT(sim,
           !delivery_in_place(job->reserved) || delivery_in_place(owner->reserved) ||
               action->type != CORE_BATCH_READY,
           JOB "memory %" PRIu64 " is not for clients", job->id, action->memory);
    return memory;
}

void model_copy(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    struct sim_memory *memory = memory_for(sim, job, action);
    struct sim_ring *ring = sim_ring_find(job, action->ring);
    int64_t batch = batch_number(job, memory->at.epoch, memory->at.step);
    uint32_t lease = action->lease;
    struct task *task;

    EXPECT(sim, sim_job_live(job), JOB "a batch is copied for nobody", job->id);
    EXPECT(sim, job->identity || (!memory->copied && !memory->copying),
           JOB "memory %" PRIu64 " is copied twice", job->id, action->memory);
    EXPECT(sim, batch >= job->delivered && batch < job->delivered + job->spec.depth,
           JOB "batch %" PRId64 " is copied at %" PRId64, job->id, batch, job->delivered);
    EXPECT(sim, ring && sim_ring_usable(ring) && lease < job->spec.depth,
           JOB "a copy to ring %" PRIu32 " slot %" PRIu32, job->id, action->ring, lease);
    EXPECT(sim, action->bytes == job->slot_bytes, JOB "a copy of %" PRIu64 " bytes", job->id,
           action->bytes);
    EXPECT(sim, !ring->slots[lease].copying, JOB "two copies to ring slot %" PRIu32, job->id,
           lease);
    EXPECT(sim, !job->leases[lease].held, JOB "a copy to lease %" PRIu32 ", which is held", job->id,
           lease);
    EXPECT(sim, !ring->slots[lease].full || ring->slots[lease].batch < job->delivered,
           JOB "a copy over batch %" PRId64, job->id, ring->slots[lease].batch);
    memory->copying++;
    ring->copies++;
    ring->slots[lease].copying = true;
    ring->slots[lease].full = false;
    ring->slots[lease].batch = batch;
    task = model_task_add(sim, TASK_COPY, action);
    task->batch = batch;
}

void model_batch_ready(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    struct sim_memory *memory = action->ring ? NULL : memory_for(sim, job, action);
    struct sim_ring *ring = action->ring ? sim_ring_find(job, action->ring) : NULL;
    struct sim_lease *lease = &job->leases[action->lease];

    EXPECT(sim, sim_job_live(job) && job->announced && !job->peer_gone,
           JOB "a batch is handed to nobody", job->id);
    EXPECT(sim, action->epoch == job->next.epoch && action->step == job->next.step,
           JOB "step %" PRIu64 ":%" PRIu64 " is handed off instead of %" PRIu64 ":%" PRIu64,
           job->id, action->epoch, action->step, job->next.epoch, job->next.step);
    EXPECT(sim, action->step < job->steps && action->count == handed_count(job, action->step),
           JOB "step %" PRIu64 " of %" PRIu32 " samples", job->id, action->step, action->count);
    EXPECT(sim,
           action->lease < job->spec.depth && !lease->held &&
               action->generation > lease->generation,
           JOB "lease %" PRIu32 " is used early", job->id, action->lease);
    if (!memory) {
        EXPECT(sim,
               ring && sim_ring_usable(ring) && ring->mapping == MAPPING_OPEN &&
                   ring->slots[action->lease].full &&
                   ring->slots[action->lease].batch == job->delivered,
               JOB "batch %" PRId64 " is handed off and not in its ring slot", job->id,
               job->delivered);
    } else {
        EXPECT(sim,
               (job->identity || !memory->leased) &&
                   batch_number(job, memory->at.epoch, memory->at.step) == job->delivered,
               JOB "batch %" PRId64 " is handed off and not in its slot", job->id, job->delivered);
        memory->leased++;
    }
    *lease = (struct sim_lease){.held = true,
                                .generation = action->generation,
                                .ring = action->ring,
                                .memory = action->memory,
                                .batch = job->delivered};
    job->bad_epoch += sim_bad(job, job->delivered);
    EXPECT(sim, job->bad_epoch <= sim_bad_max(job), JOB "%" PRIu64 " bad samples are handed off",
           job->id, job->bad_epoch);
    job->losses = 0;
    job->delivered++;
    job->next.step++;
}
