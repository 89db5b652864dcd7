/*
 * The core as a container: devices, the jobs by their ids, the queue of
 * actions, and what can be looked up. The queue always has room for all that
 * its jobs may want done between two drains; that room is made when a job is
 * opened, and it is there that memory may run out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core_private.h"

/* Between two drains a job says each thing about itself, each of its rings, slots and leases once,
 * but for copies and rings, which the loss of a device may repeat CORE_DEVICE_RESTARTS_MAX times,
 * and for what a job says of its slots when it leaves rings. */
#define ACTIONS_JOB 64
#define ACTIONS_DEPTH 16

struct core *core_new(struct accounts *accounts, uint32_t batches_per_numa)
{
    struct core *core = calloc(1, sizeof *core);

    if (!core)
        return NULL;
    core->accounts = accounts;
    core->batches_per_numa = batches_per_numa;
    list_init(&core->gone);
    return core;
}

unsigned core_free(struct core *core)
{
    unsigned left;

    if (!core)
        return 0;
    left = core->n_jobs;
    for (uint32_t i = 0; i < core->n_jobs; i++)
        job_free(core->jobs[i]);
    list_for_each_safe(link, &core->gone)
    {
        list_remove(link);
        job_free(list_entry(link, struct job, link));
    }
    free(core->jobs);
    free(core->devices);
    free(core->nodes);
    free(core->actions);
    free(core);
    return left;
}

int core_device_add(struct core *core, const struct core_device_spec *spec, uint32_t *device_p)
{
    struct device *devices;
    struct node *nodes;
    uint32_t node;

    devices = realloc(core->devices, (core->n_devices + 1) * sizeof *devices);
    if (!devices)
        return -ENOMEM;
    core->devices = devices;
    for (node = 0; node < core->n_nodes; node++)
        if (core->nodes[node].numa == spec->numa)
            break;
    if (node == core->n_nodes) {
        nodes = realloc(core->nodes, (core->n_nodes + 1) * sizeof *nodes);
        if (!nodes)
            return -ENOMEM;
        core->nodes = nodes;
        core->nodes[core->n_nodes++] = (struct node){.numa = spec->numa};
    }
    core->devices[core->n_devices] = (struct device){.spec = *spec, .node = node};
    *device_p = core->n_devices++;
    return 0;
}

/* -- actions ------------------------------------------------------------------------------- */

static uint64_t actions_of(uint32_t depth)
{
    return ACTIONS_JOB + (uint64_t)ACTIONS_DEPTH * depth;
}

int core_actions_reserve(struct core *core, uint32_t depth)
{
    uint64_t due = core->actions_due + actions_of(depth), need = core->actions_count + due;
    uint64_t room = core->actions_room ? core->actions_room : 256;
    struct core_action *actions;

    if (need > core->actions_room) {
        while (room < need)
            room *= 2;
        actions = calloc(room, sizeof *actions);
        if (!actions)
            return -ENOMEM;
        for (uint64_t i = 0; i < core->actions_count; i++)
            actions[i] = core->actions[(core->actions_head + i) & (core->actions_room - 1)];
        free(core->actions);
        core->actions = actions;
        core->actions_head = 0;
        core->actions_room = room;
    }
    core->actions_due = due;
    return 0;
}

void core_actions_unreserve(struct core *core, uint32_t depth)
{
    core->actions_due -= actions_of(depth);
}

struct core_action *job_emit(struct job *job, enum core_action_type type)
{
    struct core *core = job->core;
    struct core_action *action;

    /* The room was made when the job was opened; without it nothing right could be done. */
    if (core->actions_count == core->actions_room)
        abort();
    action = &core->actions[(core->actions_head + core->actions_count) & (core->actions_room - 1)];
    core->actions_count++;
    *action = (struct core_action){.type = type,
                                   .job = job->id,
                                   .feed = job->feed.id,
                                   .device = job->device,
                                   .pool = job->device};
    return action;
}

bool core_next_action(struct core *core, struct core_action *action_p)
{
    if (core->actions_count == 0)
        return false;
    *action_p = core->actions[core->actions_head];
    core->actions_head = (core->actions_head + 1) & (core->actions_room - 1);
    core->actions_count--;
    if (action_p->type == CORE_JOB_GONE) {
        struct list *first = core->gone.next; /* jobs go in the order in which it is said */

        list_remove(first);
        job_free(list_entry(first, struct job, link));
    }
    return true;
}

/* -- jobs by id ---------------------------------------------------------------------------- */

int core_jobs_reserve(struct core *core)
{
    uint32_t room = core->jobs_room ? 2 * core->jobs_room : 16;
    struct job **jobs;

    if (core->n_jobs < core->jobs_room)
        return 0;
    jobs = realloc(core->jobs, room * sizeof *jobs);
    if (!jobs)
        return -ENOMEM;
    core->jobs = jobs;
    core->jobs_room = room;
    return 0;
}

/* Index of the first job whose id is at least this. */
static uint32_t jobs_lower_bound(const struct core *core, uint64_t id)
{
    uint32_t low = 0, high = core->n_jobs;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (core->jobs[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void core_jobs_append(struct core *core, struct job *job)
{
    job->id = ++core->job_last;
    job->feed.id = ++core->feed_last;
    job->group = job->id;
    core->jobs[core->n_jobs++] = job;
}

void core_jobs_remove(struct core *core, struct job *job)
{
    uint32_t at = jobs_lower_bound(core, job->id);

    core->n_jobs--;
    memmove(&core->jobs[at], &core->jobs[at + 1], (core->n_jobs - at) * sizeof(struct job *));
    list_append(&core->gone, &job->link);
}

struct job *core_job_get(const struct core *core, uint64_t id)
{
    uint32_t at = jobs_lower_bound(core, id);

    return at < core->n_jobs && core->jobs[at]->id == id ? core->jobs[at] : NULL;
}

struct job *core_feed_get(const struct core *core, uint64_t id)
{
    uint32_t low = 0, high = core->n_jobs;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (core->jobs[middle]->feed.id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < core->n_jobs && core->jobs[low]->feed.id == id ? core->jobs[low] : NULL;
}

struct job *core_job_of_peer(const struct core *core, uint64_t id, uint64_t peer)
{
    struct job *job = core_job_get(core, id);

    return job && job->peer == peer && !job->peer_gone ? job : NULL;
}

/* -- looking ------------------------------------------------------------------------------- */

static uint64_t job_ring_bytes(const struct job *job)
{
    uint64_t bytes = 0;

    for (int i = 0; i < RINGS_MAX; i++)
        bytes += job->rings[i].charge.amount;
    return bytes;
}

static void job_info(const struct job *job, struct core_job_info *info_p)
{
    static const char *const states[] = {
        [JOB_OPENING] = "opening",
        [JOB_RUNNING] = "running",
        [JOB_FAILED] = "failed",
        [JOB_CLOSING] = "closing",
    };

    *info_p = (struct core_job_info){
        .id = job->id,
        .feed = job->feed.id,
        .mates = job->mates,
        .shared = job->shared,
        .state = job->state,
        .state_text = states[job->state],
        .ended = job_ended(job),
        .delivery = job->state == JOB_OPENING ? DELIVERY_AUTO : job->delivery,
        .why = job->why,
        .next = job->next,
        .start = job->start,
        .order = job->order,
        .dataset = job->dataset,
        .pipeline = job->pipeline,
        .fingerprint = job->fingerprint,
        .steps = job->steps,
        .slot_bytes = job->slot_bytes,
        .depth = job->depth,
        .device = job->device,
        .ready = job->ready + job->handed,
        .leased = job->handed,
        .ring = job->ring ? job->ring->id : 0,
        .ring_bytes = job_ring_bytes(job),
        .bad = job->bad,
        .delivered = job->delivered,
        .starved = job->starved,
        .stages = job->stages,
        .failure = &job->failure,
    };
}

bool core_job_next(const struct core *core, uint64_t job, struct core_job_info *info_p)
{
    uint32_t at = jobs_lower_bound(core, job);

    if (at == core->n_jobs)
        return false;
    job_info(core->jobs[at], info_p);
    return true;
}

bool core_job_find(const struct core *core, uint64_t job, struct core_job_info *info_p)
{
    const struct job *found = core_job_get(core, job);

    if (!found)
        return false;
    job_info(found, info_p);
    return true;
}

uint32_t core_device_jobs(const struct core *core, uint32_t device)
{
    uint32_t jobs = 0;

    for (uint32_t i = 0; i < core->n_jobs; i++)
        jobs += core->jobs[i]->device == device;
    return jobs;
}

uint64_t core_device_ring_bytes(const struct core *core, uint32_t device)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < core->n_jobs; i++)
        if (core->jobs[i]->device == device)
            bytes += job_ring_bytes(core->jobs[i]);
    return bytes;
}

void core_totals(const struct core *core, struct core_stages *stages_p, uint64_t *bytes_p,
                 uint64_t *opened_p, uint64_t *failed_p)
{
    *stages_p = core->stages;
    *bytes_p = core->bytes;
    *opened_p = core->opened;
    *failed_p = core->failed;
}

uint64_t core_total_bad(const struct core *core)
{
    return core->bad;
}
