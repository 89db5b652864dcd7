/*
 * Events about a job, as messages to its peer.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/peer.h"
#include "log.h"
#include "proto/cleanup.h"

#define MESSAGE(name, tag, member, value)                                                          \
    Pinserve__Message name = PINSERVE__MESSAGE__INIT;                                              \
    (name).body_case = PINSERVE__MESSAGE__BODY_##tag;                                              \
    (name).member = (value)

/* proto's enum and the core's list the same deliveries in the same order. */
static Pinserve__Delivery delivery_to_wire(enum delivery delivery)
{
    return (Pinserve__Delivery)delivery;
}

_Static_assert((int)DELIVERY_MAPPED == (int)PINSERVE__DELIVERY__DELIVERY_MAPPED, "deliveries");
_Static_assert((int)DELIVERY_HOST == (int)PINSERVE__DELIVERY__DELIVERY_HOST, "deliveries");
_Static_assert((int)TENSOR_U64 == (int)PINSERVE__DTYPE__DTYPE_U64, "element types");
_Static_assert((int)TENSOR_F32 == (int)PINSERVE__DTYPE__DTYPE_F32, "element types");
_Static_assert((int)TENSOR_I32 == (int)PINSERVE__DTYPE__DTYPE_I32, "element types");
_Static_assert((int)TENSOR_BF16 == (int)PINSERVE__DTYPE__DTYPE_BF16, "element types");

void peer_send_progress(struct peer *peer, uint64_t job, uint64_t indexed)
{
    Pinserve__Progress progress = PINSERVE__PROGRESS__INIT;
    MESSAGE(message, PROGRESS, progress, &progress);

    if (!list_empty(&peer->queue))
        return; /* it has enough to read; the next one says more */
    progress.job = job;
    progress.indexed = indexed;
    peer_send(peer, &message, NULL, 0);
}

static bool is_told(const struct task *task, uint32_t region)
{
    for (uint32_t i = 0; i < task->n_told; i++)
        if (task->told_regions[i] == region)
            return true;
    return false;
}

/* Gives the client a description of its own of a region that batches of it lie in. */
static int task_tell_region(struct peer *peer, struct task *task, const struct station *station,
                            uint32_t id)
{
    Pinserve__RegionAdded added = PINSERVE__REGION_ADDED__INIT;
    MESSAGE(message, REGION_ADDED, region_added, &added);
    struct region *region = pool_region(station->pool, id);
    cleanup_fd int fd = -1;

    if (is_told(task, id))
        return 0;
    uint32_t *told = reallocarray(task->told_regions, task->n_told + 1, sizeof *told);
    if (!told)
        return -ENOMEM;
    task->told_regions = told;
    int r = task->push ? region_open_writable(region, &fd) : region_open_readonly(region, &fd);
    if (r < 0) {
        log_error("job %" PRIu64 ": region %" PRIu32 ": %s", task->job, id, strerror(-r));
        return r;
    }
    added.job = task->job;
    added.region = id;
    added.bytes = region->bytes;
    pool_set_mapped(station->pool, id);
    pool_hold(station->pool, id, true);
    task->told_regions[task->n_told++] = id;
    peer_send(peer, &message, &fd, 1);
    return 0;
}

/* All regions that the task's slots are in. */
static int task_tell_regions(struct peer *peer, struct task *task)
{
    for (uint32_t i = 0; i < task->depth; i++) {
        int r = task_tell_region(peer, task, task->station, memory_region(task->memory[i]));
        if (r < 0)
            return r;
    }
    return 0;
}

struct ring_message {
    Pinserve__Ring ring;
    int fd;
};

static void ring_to_wire(struct task *task, const struct core_action *action,
                         const struct core_job_info *info, struct ring_message *out)
{
    Pinserve__Ring *ring = &out->ring;

    pinserve__ring__init(ring);
    ring->ring = action->ring;
    ring->delivery = delivery_to_wire(action->delivery);
    if (action->ring > 0)
        ring->bytes = (info->slot_bytes * info->depth + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
    ring->why = (char *)(action->why ? action->why : "");
    out->fd = -1;
    if (action->delivery == DELIVERY_FD) {
        out->fd = steal_fd(&task->ring_fd);
    } else if (action->delivery == DELIVERY_IPC) {
        ring->ipc_handle.data = task->ipc_handle;
        ring->ipc_handle.len = sizeof task->ipc_handle;
    }
}

static void tensor_to_wire(const struct tensor *tensor, Pinserve__Tensor *out, uint64_t *strides)
{
    uint64_t bytes = tensor->sample_bytes;

    pinserve__tensor__init(out);
    out->name = (char *)tensor->name;
    out->dtype = (Pinserve__DType)tensor->dtype;
    out->n_shape = out->n_strides = tensor->n_dims;
    out->shape = (uint32_t *)tensor->shape;
    out->offset = tensor->offset;
    out->strides = strides;
    strides[0] = bytes;
    for (uint32_t i = 1; i < tensor->n_dims; i++) {
        bytes = tensor->shape[i] ? bytes / tensor->shape[i] : 0;
        strides[i] = bytes;
    }
}

static void token_to_wire(const struct task *task, const struct core_job_info *info,
                          Pinserve__ResumeToken *token)
{
    pinserve__resume_token__init(token);
    token->version = 1;
    token->dataset = task->source_name;
    token->fingerprint = info->fingerprint;
    token->pipeline = task->pipeline_name;
    token->seed = info->order.seed;
    token->shuffle = (Pinserve__Shuffle)info->order.shuffle;
    token->last = (Pinserve__Last)info->order.last;
    token->bad = (Pinserve__BadSamples)info->order.bad;
    token->global_batch = (uint64_t)info->order.batch * info->order.world;
    token->epoch = info->start.epoch;
    token->position = order_position(&info->order, info->start.step);
}

void peer_send_job_ready(struct peer *peer, struct task *task, const struct core_action *action)
{
    Pinserve__JobReady ready = PINSERVE__JOB_READY__INIT;
    Pinserve__ResumeToken token;
    Pinserve__Tensor tensors[TENSORS_MAX], *tensor_list[TENSORS_MAX];
    uint64_t strides[TENSORS_MAX][DIMS_MAX];
    struct ring_message ring = {.fd = -1};
    struct core_job_info info;
    MESSAGE(message, JOB_READY, job_ready, &ready);

    if (!core_job_find(peer->server->core, task->job, &info))
        return;
    if ((action->ring == 0 || task->push) && task_tell_regions(peer, task) < 0) {
        peer_break(peer);
        return;
    }
    for (uint32_t i = 0; i < task->layout.n_tensors; i++) {
        tensor_to_wire(&task->layout.tensors[i], &tensors[i], strides[i]);
        tensor_list[i] = &tensors[i];
    }
    token_to_wire(task, &info, &token);
    ready.job = task->job;
    ready.n_tensors = task->layout.n_tensors;
    ready.tensors = tensor_list;
    ready.slot_bytes = info.slot_bytes;
    ready.batch = info.order.batch;
    ready.depth = info.depth;
    ready.steps = info.steps;
    ready.samples = info.order.samples;
    ready.token = &token;
    ready.epoch = info.start.epoch;
    ready.step = info.start.step;
    ready.device = task->device_text;
    ready.delivery = delivery_to_wire(action->delivery);
    if (action->ring > 0) {
        ring_to_wire(task, action, &info, &ring);
        ready.ring = &ring.ring;
    }
    peer_send(peer, &message, &ring.fd, ring.fd >= 0 ? 1 : 0);
    close_fd(&ring.fd);
}

void peer_send_ring_replaced(struct peer *peer, struct task *task, const struct core_action *action)
{
    Pinserve__RingReplaced replaced = PINSERVE__RING_REPLACED__INIT;
    struct ring_message ring;
    struct core_job_info info;
    MESSAGE(message, RING_REPLACED, ring_replaced, &replaced);

    if (!core_job_find(peer->server->core, task->job, &info))
        return;
    if ((action->ring == 0 || task->push) && task_tell_regions(peer, task) < 0) {
        peer_break(peer);
        return;
    }
    ring_to_wire(task, action, &info, &ring);
    replaced.job = task->job;
    replaced.ring = &ring.ring;
    peer_send(peer, &message, &ring.fd, ring.fd >= 0 ? 1 : 0);
    close_fd(&ring.fd);
}

void peer_send_batch_ready(struct peer *peer, struct task *task, const struct core_action *action)
{
    Pinserve__BatchReady ready = PINSERVE__BATCH_READY__INIT;
    MESSAGE(message, BATCH_READY, batch_ready, &ready);

    ready.job = action->job;
    ready.lease = action->lease;
    ready.generation = action->generation;
    ready.epoch = action->epoch;
    ready.step = action->step;
    ready.count = action->count;
    ready.ring = action->ring;
    if (action->ring == 0) {
        const struct station *from = &peer->server->stations[action->pool];
        uint64_t offset = 0;
        if (task_tell_region(peer, task, from, memory_region(action->memory)) < 0) {
            peer_break(peer);
            return;
        }
        pool_slot(from->pool, action->memory, NULL, &offset);
        ready.region = memory_region(action->memory);
        ready.offset = offset;
    }
    peer_send(peer, &message, NULL, 0);
}

void peer_send_epoch_end(struct peer *peer, const struct core_action *action)
{
    Pinserve__EpochEnd end = PINSERVE__EPOCH_END__INIT;
    MESSAGE(message, EPOCH_END, epoch_end, &end);

    end.job = action->job;
    end.epoch = action->epoch;
    peer_send(peer, &message, NULL, 0);
}

void peer_send_job_failed(struct peer *peer, const struct core_action *action)
{
    Pinserve__JobFailed failed = PINSERVE__JOB_FAILED__INIT;
    MESSAGE(message, JOB_FAILED, job_failed, &failed);

    failed.job = action->job;
    failed.code = action->failure->code;
    failed.text = (char *)action->failure->text;
    peer_send(peer, &message, NULL, 0);
}
