/*
 * The core's actions, carried out: each is one call on a station, the workers
 * or a peer. What fails at once is answered to the core like what fails later.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "control/peer.h"
#include "log.h"
#include "proto/limits.h"
#include "server.h"

static uint64_t ring_number(uint64_t job, uint32_t ring)
{
    return job << 32 | ring;
}

static void act_reserve(struct server *server, struct task *task, const struct core_action *action)
{
    struct failure failure = {0};

    task->mapped = delivery_in_place(action->delivery) || task->push;
    if (task->mapped)
        gather_detach(task);
    if (!task->push && station_crew(task->station, &failure) < 0) {
        core_job_refused(server->core, action->job, &failure, server_now(server));
        return;
    }
    growth_reserve(task, action->bytes, action->count);
}

static void act_ring_make(struct server *server, struct task *task,
                          const struct core_action *action)
{
    struct station *station = task->station;
    const struct device_ops *ops = station->device->ops;
    struct failure failure = {0};

    if (station->closing)
        return; /* the core asks again when the process is gone */
    int r = station_open(station, &failure);
    for (uint32_t i = 0; r == 0 && i < task->depth; i++) {
        struct region *region = pool_region(station->pool, memory_region(task->memory[i]));
        r = station_register(station, region);
        if (r < 0)
            failure_set(&failure, r, "device %s: region %" PRIu32 " not registered: %s",
                        station->device->info.uuid, region->id, strerror(-r));
    }
    if (r == 0) {
        r = ops->make_ring(station->device, ring_number(action->job, action->ring),
                           action->delivery == DELIVERY_IPC ? RING_EXPORT_IPC : RING_EXPORT_FD,
                           action->bytes);
        if (r < 0)
            failure_set(&failure, r, "device %s: ring of %" PRIu64 " bytes: %s",
                        station->device->info.uuid, action->bytes, strerror(-r));
    }
    if (r < 0)
        core_ring_failed(server->core, action->job, action->ring, false, &failure,
                         server_now(server));
    else
        gather_attach(task);
    station_poll(station);
}

/* The batch may be in the pool of another device, which a mate of the job is on. */
static void act_copy(struct server *server, struct task *task, const struct core_action *action)
{
    struct station *station = task->station;
    const struct station *from = &server->stations[action->pool];
    struct copy *copy = &task->copies[action->lease];
    uint64_t offset = 0;
    struct failure failure;

    struct region *region = pool_slot(from->pool, action->memory, NULL, &offset);
    copy->ring = action->ring;
    copy->lease = action->lease;
    copy->generation = action->generation;
    copy->bytes = action->bytes;
    struct copy_place place = {
        .region = region->id,
        .offset = offset,
        .ring = ring_number(action->job, action->ring),
        .ring_offset = action->lease * task->layout.slot_bytes,
    };
    int r = station_register(station, region);
    if (r == 0)
        r = gather_copy(task, action, copy, &place);
    if (r == 0)
        r = station->device->ops->copy(station->device, place.region, place.offset, place.ring,
                                       place.ring_offset, action->bytes, (uint64_t)(uintptr_t)copy);
    if (r < 0) {
        failure_set(&failure, r, "device %s: copy of %" PRIu64 " bytes: %s",
                    station->device->info.uuid, action->bytes, strerror(-r));
        core_copied(server->core, action->job, action->ring, action->lease, action->generation,
                    &failure, server_now(server));
    }
    station_poll(station);
}

static void act_job_gone(struct server *server, struct task *task)
{
    uint64_t peer = task->peer_id;

    log_info("job %" PRIu64 ": ended", task->job);
    task_free(task);
    peers_forget(server, peer);
    server_check_stopped(server);
}

static void act_job_failed(struct task *task, const struct core_action *action)
{
    log_warning("job %" PRIu64 " (%s): failed: %s", task->job, task->source_name,
                action->failure->text);
    task_forget_regions(task);
    if (task->peer)
        peer_send_job_failed(task->peer, action);
}

static void server_do(struct server *server, struct task *task, const struct core_action *action)
{
    switch (action->type) {
    case CORE_INDEX:
        task_index(task);
        break;
    case CORE_INDEX_CANCEL:
        task_index_cancel(task);
        break;
    case CORE_RESERVE:
        act_reserve(server, task, action);
        break;
    case CORE_RING_MAKE:
        act_ring_make(server, task, action);
        break;
    case CORE_RING_FREE:
        if (task->station->up)
            task->station->device->ops->free_ring(task->station->device,
                                                  ring_number(action->job, action->ring));
        station_poll(task->station);
        break;
    case CORE_JOB_READY:
        if (task->peer)
            peer_send_job_ready(task->peer, task, action);
        break;
    case CORE_RING_REPLACED:
        if (task->peer)
            peer_send_ring_replaced(task->peer, task, action);
        break;
    case CORE_DECODE:
        task_decode(task, action);
        break;
    case CORE_DECODE_CANCEL:
        if (task->push)
            push_cancel(task, action);
        else
            atomic_store(&task->works[action->slot].cancelled, true);
        break;
    case CORE_COPY:
        act_copy(server, task, action);
        break;
    case CORE_BATCH_READY:
        if (task->peer)
            peer_send_batch_ready(task->peer, task, action);
        break;
    case CORE_EPOCH_END:
        if (task->peer)
            peer_send_epoch_end(task->peer, action);
        break;
    case CORE_JOB_FAILED:
        act_job_failed(task, action);
        break;
    case CORE_SLOT_FREE:
        pool_give(task->station->pool, action->memory, server_now(server));
        break;
    case CORE_JOB_GONE:
        act_job_gone(server, task);
        break;
    }
}

void server_act(struct server *server)
{
    struct core_action action;

    /* An action's answer can come at once, from inside it: the loop below takes what follows. */
    if (server->acting)
        return;
    server->acting = true;
    while (core_next_action(server->core, &action)) {
        struct task *task = task_find(server, action.job);
        if (!task)
            log_error("the core asks for action %d on job %" PRIu64 ", which is unknown",
                      (int)action.type, action.job);
        else
            server_do(server, task, &action);
    }
    server->acting = false;
    server_wake(server);
}
