/*
 * The model: each action of the core is carried out on it, and refused when the
 * world does not allow it.
 */
#include <string.h>

#include "model.h"

struct sim_job *sim_job_find(struct sim *sim, uint64_t id)
{
    for (int i = 0; i < SIM_JOBS; i++)
        if (sim->jobs[i].used && sim->jobs[i].id == id)
            return &sim->jobs[i];
    return NULL;
}

struct sim_ring *sim_ring_find(struct sim_job *job, uint32_t id)
{
    for (int i = 0; i < SIM_RINGS; i++)
        if (job->rings[i].used && job->rings[i].id == id)
            return &job->rings[i];
    return NULL;
}

struct sim_memory *sim_memory_find(struct sim_job *job, uint64_t handle)
{
    for (int i = 0; i < SIM_DEPTH; i++)
        if (job->memory[i].owned && job->memory[i].handle == handle)
            return &job->memory[i];
    return NULL;
}

struct sim_memory *sim_memory_of(struct sim *sim, uint64_t handle, struct sim_job **owner_p)
{
    for (int i = 0; i < SIM_JOBS; i++) {
        struct sim_memory *memory =
            sim->jobs[i].used ? sim_memory_find(&sim->jobs[i], handle) : NULL;

        *owner_p = &sim->jobs[i];
        if (memory)
            return memory;
    }
    return NULL;
}

bool sim_mates(const struct sim_job *a, const struct sim_job *b)
{
    return a != b && a->used && b->used && a->identity != 0 && a->identity == b->identity &&
           a->tenant == b->tenant && !a->spec.pushed && !b->spec.pushed;
}

bool sim_job_live(const struct sim_job *job)
{
    return !job->closing && !job->told && !job->deaf;
}

bool sim_ring_usable(const struct sim_ring *ring)
{
    return ring->used && ring->made && !ring->lost && ring->mapping != MAPPING_NONE;
}

uint32_t sim_job_held(const struct sim_job *job)
{
    uint32_t count = 0;

    for (int i = 0; i < SIM_DEPTH; i++)
        count += job->leases[i].held;
    return count;
}

struct task *model_task_add(struct sim *sim, enum task_type type, const struct core_action *action)
{
    struct task *task;

    EXPECT(sim, sim->n_tasks < SIM_TASKS, "more than %d tasks are under way", SIM_TASKS);
    task = &sim->tasks[sim->n_tasks++];
    *task = (struct task){.type = type,
                          .job = action->job,
                          .feed = action->feed,
                          .device = action->device,
                          .ring = action->ring,
                          .slot = action->slot,
                          .lease = action->lease,
                          .generation = action->generation,
                          .memory = action->memory,
                          .epoch = action->epoch,
                          .step = action->step,
                          .lent = action->lent};
    return task;
}

static struct task *task_find(struct sim *sim, enum task_type type, uint64_t job)
{
    for (uint32_t i = 0; i < sim->n_tasks; i++)
        if (sim->tasks[i].type == type && sim->tasks[i].job == job)
            return &sim->tasks[i];
    return NULL;
}

/* -- what the core may ask for ------------------------------------------------------------- */

static void act_ring_make(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    struct sim_ring *free = NULL;
    uint64_t need = job->spec.depth * job->slot_bytes;

    EXPECT(sim, sim_job_live(job) && job->losses < CORE_DEVICE_RESTARTS_MAX,
           JOB "a ring is made for a job that has ended", job->id);
    EXPECT(sim,
           sim->devices[job->spec.device].has_ring && !sim->devices[job->spec.device].rings_off &&
               !job->spec.no_ring,
           JOB "a ring where none may be", job->id);
    EXPECT(sim,
           action->bytes >= need && action->bytes < need + RING_ALIGN &&
               action->bytes % RING_ALIGN == 0,
           JOB "a ring of %" PRIu64 " bytes for %" PRIu64, job->id, action->bytes, need);
    EXPECT(sim,
           action->delivery == DELIVERY_FD
               ? job->spec.client_fd
               : action->delivery == DELIVERY_IPC && job->spec.client_ipc &&
                     sim->devices[job->spec.device].allow_ipc,
           JOB "a ring by delivery %d", job->id, (int)action->delivery);
    for (int i = 0; i < SIM_RINGS; i++) {
        struct sim_ring *ring = &job->rings[i];

        EXPECT(sim, !ring->used || ring->lost || ring->mapping == MAPPING_NONE,
               JOB "a ring is made beside ring %" PRIu32, job->id, ring->id);
        EXPECT(sim, !ring->used || ring->id != action->ring, JOB "ring %" PRIu32 " is made twice",
               job->id, action->ring);
        if (!ring->used && !free)
            free = ring;
    }
    EXPECT(sim, free && action->ring, JOB "too many rings", job->id);
    *free = (struct sim_ring){
        .used = true, .id = action->ring, .delivery = action->delivery, .bytes = action->bytes};
    model_task_add(sim, TASK_RING, action);
}

static void act_ring_free(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    struct sim_ring *ring = sim_ring_find(job, action->ring);

    EXPECT(sim, ring && ring->made && !ring->lost, JOB "ring %" PRIu32 " is freed, there is none",
           job->id, action->ring);
    EXPECT(sim, !ring->offered || ring->mapping == MAPPING_NONE,
           JOB "ring %" PRIu32 " is freed under its client", job->id, ring->id);
    EXPECT(sim, ring->copies == 0, JOB "ring %" PRIu32 " is freed under %" PRIu32 " copies",
           job->id, ring->id, ring->copies);
    ring->used = false;
}

static void act_announce(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    struct sim_ring *ring = action->ring ? sim_ring_find(job, action->ring) : NULL;

    EXPECT(sim, sim_job_live(job), JOB "it is announced after its end", job->id);
    EXPECT(sim, job->announced == (action->type == CORE_RING_REPLACED),
           JOB "ready twice, or replaced before", job->id);
    EXPECT(sim, action->why && *action->why, JOB "the rung has no why", job->id);
    if (delivery_in_place(action->delivery)) {
        EXPECT(sim, action->ring == 0, JOB "a ring with delivery %d", job->id,
               (int)action->delivery);
        EXPECT(sim, action->delivery == job->reserved, JOB "slots of another delivery", job->id);
        EXPECT(sim, action->type == CORE_JOB_READY || sim_job_may_move(sim, job),
               JOB "it leaves its ring", job->id);
    } else {
        EXPECT(sim, ring && sim_ring_usable(ring) && !ring->offered,
               JOB "ring %" PRIu32 " is announced and not there", job->id, action->ring);
        EXPECT(sim, ring->delivery == action->delivery, JOB "another delivery", job->id);
        ring->offered = true;
    }
    job->announced = true;
}

/* A job of delivery auto whose rings do not work may come to delivery copy. */
bool sim_job_may_move(const struct sim *sim, const struct sim_job *job)
{
    for (int i = 0; i < SIM_RINGS; i++)
        if (sim_ring_usable(&job->rings[i]))
            return false;
    return job->spec.delivery == DELIVERY_AUTO && sim->devices[job->spec.device].has_ring &&
           job->spec.client_copy;
}

static void act_epoch_end(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    EXPECT(sim, sim_job_live(job) && !job->peer_gone, JOB "an epoch ends for nobody", job->id);
    EXPECT(sim, job->next.step == job->steps && job->next.epoch == action->epoch,
           JOB "epoch %" PRIu64 " ends at %" PRIu64 ":%" PRIu64, job->id, action->epoch,
           job->next.epoch, job->next.step);
    job->next = (struct cursor){.epoch = job->next.epoch + 1};
    job->bad_epoch = 0;
}

/* The failure of a batch is told when all before it were delivered. Such failures name it. */
static void act_job_failed(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    uint64_t epoch, step;

    EXPECT(sim, sim_job_live(job) && !job->peer_gone, JOB "it fails for nobody", job->id);
    EXPECT(sim, action->failure && action->failure->code < 0 && *action->failure->text,
           JOB "it fails without a reason", job->id);
    sim_log(sim, "      %s\n", action->failure->text);
    if (sscanf(action->failure->text, "batch %" SCNu64 ":%" SCNu64, &epoch, &step) == 2)
        EXPECT(sim, epoch == job->next.epoch && step == job->next.step,
               JOB "the failure of %" PRIu64 ":%" PRIu64 " is told at %" PRIu64 ":%" PRIu64,
               job->id, epoch, step, job->next.epoch, job->next.step);
    EXPECT(sim,
           !strstr(action->failure->text, "fell off") || job->spec.pushed ||
               job->losses >= CORE_DEVICE_RESTARTS_MAX,
           JOB "it fails after %u losses", job->id, job->losses);
    if (strstr(action->failure->text, "bad samples"))
        EXPECT(sim, job->bad_epoch + sim_bad(job, job->delivered) > sim_bad_max(job),
               JOB "%" PRIu64 " bad samples are too many", job->id, job->bad_epoch);
    job->told = true;
}

static void act_reserve(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    EXPECT(sim, sim_job_live(job) && job->plan_ok, JOB "it reserves in vain", job->id);
    EXPECT(sim, action->count == job->spec.depth && action->bytes == job->slot_bytes,
           JOB "it reserves %" PRIu32 " slots", job->id, action->count);
    for (int i = 0; i < SIM_DEPTH; i++)
        EXPECT(sim, !job->memory[i].owned, JOB "it reserves beside slots that it has", job->id);
    EXPECT(sim,
           job->reserved == DELIVERY_AUTO ||
               (action->delivery == DELIVERY_COPY && sim_job_may_move(sim, job)),
           JOB "it reserves twice", job->id);
    job->reserved = action->delivery;
    model_task_add(sim, TASK_RESERVE, action);
}

static void act_slot_free(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    struct sim_memory *memory = sim_memory_find(job, action->memory);

    EXPECT(sim, memory, JOB "memory %" PRIu64 " is given back twice", job->id, action->memory);
    EXPECT(sim, !sim_job_live(job) || sim_job_may_move(sim, job),
           JOB "memory is given back by a job that goes on", job->id);
    EXPECT(sim, memory->content != CONTENT_DECODING && !memory->copying && !memory->leased,
           JOB "memory %" PRIu64 " is given back early", job->id, action->memory);
    memory->owned = false;
}

static void act_job_gone(struct sim *sim, struct sim_job *job)
{
    EXPECT(sim, job->closing, JOB "it is gone and was not closed", job->id);
    for (uint32_t i = 0; i < sim->n_tasks; i++)
        EXPECT(sim, sim->tasks[i].job != job->id, JOB "it is gone before task %d", job->id,
               (int)sim->tasks[i].type);
    for (int i = 0; i < SIM_DEPTH; i++)
        EXPECT(sim, !job->memory[i].owned && !job->leases[i].held,
               JOB "it is gone and something of it is left", job->id);
    for (int i = 0; i < SIM_RINGS; i++)
        EXPECT(sim, !job->rings[i].used, JOB "it is gone before ring %" PRIu32, job->id,
               job->rings[i].id);
    job->used = false;
}

static void act(struct sim *sim, struct sim_job *job, const struct core_action *action)
{
    switch (action->type) {
    case CORE_INDEX:
        model_task_add(sim, TASK_INDEX, action);
        break;
    case CORE_INDEX_CANCEL:
        EXPECT(sim, task_find(sim, TASK_INDEX, job->id), JOB "no index is under way", job->id);
        break;
    case CORE_RESERVE:
        act_reserve(sim, job, action);
        break;
    case CORE_RING_MAKE:
        act_ring_make(sim, job, action);
        break;
    case CORE_RING_FREE:
        act_ring_free(sim, job, action);
        break;
    case CORE_JOB_READY:
    case CORE_RING_REPLACED:
        act_announce(sim, job, action);
        break;
    case CORE_DECODE:
        model_decode(sim, job, action);
        break;
    case CORE_DECODE_CANCEL:
        model_decode_cancel(sim, job, action);
        break;
    case CORE_COPY:
        model_copy(sim, job, action);
        break;
    case CORE_BATCH_READY:
        model_batch_ready(sim, job, action);
        break;
    case CORE_EPOCH_END:
        act_epoch_end(sim, job, action);
        break;
    case CORE_JOB_FAILED:
        act_job_failed(sim, job, action);
        break;
    case CORE_SLOT_FREE:
        act_slot_free(sim, job, action);
        break;
    case CORE_JOB_GONE:
        act_job_gone(sim, job);
        break;
    }
}

void sim_drain(struct sim *sim)
{
    static const char *const names[] = {
        [CORE_INDEX] = "INDEX",
        [CORE_INDEX_CANCEL] = "INDEX_CANCEL",
        [CORE_RESERVE] = "RESERVE",
        [CORE_RING_MAKE] = "RING_MAKE",
        [CORE_RING_FREE] = "RING_FREE",
        [CORE_JOB_READY] = "JOB_READY",
        [CORE_RING_REPLACED] = "RING_REPLACED",
        [CORE_DECODE] = "DECODE",
        [CORE_DECODE_CANCEL] = "DECODE_CANCEL",
        [CORE_COPY] = "COPY",
        [CORE_BATCH_READY] = "BATCH_READY",
        [CORE_EPOCH_END] = "EPOCH_END",
        [CORE_JOB_FAILED] = "JOB_FAILED",
        [CORE_SLOT_FREE] = "SLOT_FREE",
        [CORE_JOB_GONE] = "JOB_GONE",
    };
    struct core_action action;

    sim->actions = 0;
    while (core_next_action(sim->core, &action)) {
        struct sim_job *job = sim_job_find(sim, action.job);

        sim_log(sim,
                "    %s job %" PRIu64 " ring %" PRIu32 " slot %" PRIu32 " lease %" PRIu32
                " gen %" PRIu32 " memory %" PRIu64 " at %" PRIu64 ":%" PRIu64 "\n",
                names[action.type], action.job, action.ring, action.slot, action.lease,
                action.generation, action.memory, action.epoch, action.step);
        EXPECT(sim, job, "action %s for job %" PRIu64 ", which is gone", names[action.type],
               action.job);
        EXPECT(sim, action.feed == job->feed || !job->feed, JOB "another feed", job->id);
        job->feed = action.feed;
        act(sim, job, &action);
        sim->actions++;
    }
}
