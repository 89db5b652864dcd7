/*
 * Source push: the client fills the batches. The core asks for a batch as it
 * does of any job; here that is a grant, which tells the client the slot, and
 * its Commit is the answer. The slots lie in push regions of the job, which the
 * client may write to at any time: nothing here reads them.
 *
 * A grant is out until it is committed or taken back; a Commit of one that was
 * taken back was on its way and is ignored.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/peer.h"
#include "proto/dtype.h"

#define TENSOR_NAME_MAX 64

struct push {
    char names[TENSORS_MAX][TENSOR_NAME_MAX];
    uint32_t *granted; /* of each slot: samples, 0: it is not out; task->generations tells which */
};

/* -- opening --------------------------------------------------------------------------------- */

static int tensor_check(const struct task *task, const Pinserve__PushTensor *tensor,
                        struct failure *failure)
{
    size_t length = strlen(tensor->name);

    if (length == 0 || length >= TENSOR_NAME_MAX)
        return failure_set(failure, -EINVAL, "push: a tensor's name has 1 to %d bytes, not %zu",
                           TENSOR_NAME_MAX - 1, length);
    for (uint32_t i = 0; i < task->layout.n_tensors; i++) {
        if (strcmp(task->layout.tensors[i].name, tensor->name) == 0)
            return failure_set(failure, -EINVAL, "push: there are two tensors \"%s\"",
                               tensor->name);
    }
    if ((unsigned)tensor->dtype >= DTYPES)
        return failure_set(failure, -EINVAL, "push: tensor \"%s\": type %d is unknown",
                           tensor->name, (int)tensor->dtype);
    if (tensor->n_shape > DIMS_MAX - 1)
        return failure_set(
            failure, -EINVAL,
            "push: tensor \"%s\": samples of %zu dimensions; at most %d are possible", tensor->name,
            tensor->n_shape, DIMS_MAX - 1);
    for (size_t i = 0; i < tensor->n_shape; i++) {
        if (tensor->shape[i] == 0)
            return failure_set(failure, -EINVAL, "push: tensor \"%s\": dimension %zu is 0",
                               tensor->name, i + 1);
    }
    return 0;
}

static int layout_take(struct task *task, const Pinserve__Source *source, struct failure *failure)
{
    if (source->n_tensors == 0 || source->n_tensors > TENSORS_MAX)
        return failure_set(failure, -EINVAL, "push: %zu tensors; 1 to %d are possible",
                           source->n_tensors, TENSORS_MAX);
    for (size_t i = 0; i < source->n_tensors; i++) {
        const Pinserve__PushTensor *tensor = source->tensors[i];
        int r = tensor_check(task, tensor, failure);
        if (r < 0)
            return r;
        memcpy(task->push->names[i], tensor->name, strlen(tensor->name) + 1);
        r = layout_append(&task->layout, task->push->names[i], (enum tensor_dtype)tensor->dtype,
                          task->order.batch, tensor->shape, tensor->n_shape, failure);
        if (r < 0)
            return r;
    }
    layout_finish(&task->layout);
    return 0;
}

int push_open(struct task *task, const Pinserve__OpenJob *open, struct failure *failure)
{
    if (task->order.shuffle != ORDER_SHUFFLE_NONE || task->order.last == ORDER_LAST_PAD ||
        task->order.world != 1)
        return failure_set(failure, -EINVAL,
                           "push: the order is the client's: shuffle none, last drop or partial, "
                           "rank 0 of 1");
    if (open->start != PINSERVE__START__START_CURSOR || task->pipeline.crop != CROP_KIND_NONE)
        return failure_set(failure, -EINVAL,
                           "push: what a client pushes is neither resumed from a "
                           "token nor decoded");
    task->push = calloc(1, sizeof *task->push);
    if (task->push)
        task->push->granted = calloc(task->depth, sizeof *task->push->granted);
    if (!task->push || !task->push->granted)
        return failure_set(failure, -ENOMEM, "no memory for a job of depth %" PRIu32, task->depth);
    return layout_take(task, open->source, failure);
}

void push_free(struct push *push)
{
    if (!push)
        return;
    free(push->granted);
    free(push);
}

/* -- slots ----------------------------------------------------------------------------------- */

void push_grant(struct task *task, const struct core_action *action)
{
    Pinserve__SlotGranted granted = PINSERVE__SLOT_GRANTED__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    uint64_t offset = 0;

    task->push->granted[action->slot] = action->count;
    task->generations[action->slot] = action->generation;
    if (!task->peer)
        return;
    pool_slot(task->station->pool, action->memory, NULL, &offset);
    granted.job = task->job;
    granted.slot = action->slot;
    granted.generation = action->generation;
    granted.epoch = action->epoch;
    granted.step = action->step;
    granted.count = action->count;
    granted.region = memory_region(action->memory);
    granted.offset = offset;
    message.body_case = PINSERVE__MESSAGE__BODY_SLOT_GRANTED;
    message.slot_granted = &granted;
    peer_send(task->peer, &message, NULL, 0);
}

static void push_end(struct task *task, uint32_t slot, uint32_t count,
                     const struct failure *failure)
{
    task->push->granted[slot] = 0;
    core_pushed(task->server->core, task->job, slot, task->generations[slot], count, failure,
                server_now(task->server));
}

void push_cancel(struct task *task, const struct core_action *action)
{
    if (task->push->granted[action->slot])
        push_end(task, action->slot, 0, NULL);
}

/* A client's words, for one line. */
static void words_take(const char *words, struct failure *failure)
{
    failure_set(failure, -EIO, "the client gave a batch up: %.400s", words);
    for (char *c = failure->text; *c; c++) {
        if (iscntrl((unsigned char)*c))
            *c = ' ';
    }
}

int peer_handle_commit(struct peer *peer, const Pinserve__Commit *commit, struct failure *reason)
{
    struct task *task = task_find(peer->server, commit->job);
    struct failure failure;

    if (!task || task->peer != peer || !task->push || commit->slot >= task->depth ||
        commit->generation > task->generations[commit->slot])
        return failure_set(reason, -EPROTO,
                           "Commit of slot %u, generation %u, of job %" PRIu64
                           ", which it was not granted",
                           commit->slot, commit->generation, commit->job);
    if (!task->push->granted[commit->slot] || commit->generation < task->generations[commit->slot])
        return 0;
    if (commit->count == 0 || commit->count > task->push->granted[commit->slot])
        return failure_set(
            reason, -EPROTO, "Commit of %u samples in slot %u of job %" PRIu64 ", which is for %u",
            commit->count, commit->slot, commit->job, task->push->granted[commit->slot]);
    if (*commit->error)
        words_take(commit->error, &failure);
    push_end(task, commit->slot, commit->count, *commit->error ? &failure : NULL);
    return 0;
}
