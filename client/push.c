/*
 * Source push: slots that the caller, or a process of its own, fills. A grant
 * names the batch that the slot is for; batches come back in that order,
 * whatever order they are committed in.
 *
 * Who waits for a slot sets aside what else comes, for pinclient_next.
 */
#include "push.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "copier.h"

/* While copies are under way, which go on by calls: how often to look. */
#define COPIES_STEP_MS 20

struct aside {
    struct list link;
    struct wire_packet packet;
};

struct push {
    struct pinclient_slot granted[DEPTH_MAX]; /* a circle: count of them from head */
    uint32_t head, count;
    uint32_t filling[DEPTH_MAX]; /* of each slot: the generation that the caller fills; 0: none */
    uint32_t most[DEPTH_MAX];    /* samples that it is for */
    uint32_t n_filling;
    uint32_t under_way; /* committed, and not yet returned by pinclient_next */
    uint32_t depth;
    struct list aside;
};

int push_new(struct pinclient_job *job, uint32_t depth, struct failure *failure)
{
    job->push = calloc(1, sizeof *job->push);
    if (!job->push)
        return failure_set(failure, -ENOMEM, "no memory for a job");
    job->push->depth = depth;
    list_init(&job->push->aside);
    return 0;
}

static void aside_free(struct aside *aside)
{
    list_remove(&aside->link);
    wire_packet_deinit(&aside->packet);
    free(aside);
}

void push_free(struct pinclient_job *job)
{
    if (!job->push)
        return;
    list_for_each_safe(item, &job->push->aside)
    {
        aside_free(list_entry(item, struct aside, link));
    }
    free(job->push);
    job->push = NULL;
}

/* -- the daemon's messages ------------------------------------------------------------------- */

int push_take_grant(struct pinclient_job *job, const Pinserve__SlotGranted *granted,
                    struct failure *failure)
{
    struct push *push = job->push;
    const struct region *region = push ? job_find_region(job, granted->region) : NULL;

    if (!region || push->count == push->depth || granted->slot >= push->depth ||
        granted->generation == 0 || push->filling[granted->slot] || granted->count == 0 ||
        granted->count > job->info.batch || granted->offset > region->bytes ||
        region->bytes - granted->offset < job->slot_bytes)
        return failure_set(failure, -EPROTO, "the daemon granted slot %u wrongly", granted->slot);
    push->granted[(push->head + push->count++) % push->depth] = (struct pinclient_slot){
        .number = granted->slot,
        .generation = granted->generation,
        .epoch = granted->epoch,
        .step = granted->step,
        .count = granted->count,
        .data = (uint8_t *)region->address + granted->offset,
        .bytes = job->slot_bytes,
        .fd = region->fd,
        .offset = granted->offset,
        .region = granted->region,
        .region_bytes = region->bytes,
    };
    return 0;
}

void push_forget_grants(struct pinclient_job *job)
{
    if (!job->push)
        return;
    job->push->count = job->push->n_filling = 0;
    memset(job->push->filling, 0, sizeof job->push->filling);
}

bool push_has_aside(const struct pinclient_job *job)
{
    return job->push && !list_empty(&job->push->aside);
}

int push_set_aside(struct pinclient_job *job, struct wire_packet *packet, struct failure *failure)
{
    struct aside *aside = calloc(1, sizeof *aside);

    if (!aside) {
        wire_packet_deinit(packet);
        return failure_set(failure, -ENOMEM, "no memory for a message");
    }
    aside->packet = *packet;
    list_init(&aside->link);
    list_append(&job->push->aside, &aside->link);
    return 0;
}

int push_receive(struct pinclient_job *job, struct wire_packet *packet, struct failure *failure)
{
    if (!push_has_aside(job))
        return connection_receive(job->connection, MSG_DONTWAIT, packet, failure);
    struct aside *aside = list_entry(job->push->aside.next, struct aside, link);
    *packet = aside->packet;
    list_remove(&aside->link);
    free(aside);
    return 0;
}

void push_give_back(struct pinclient_job *job)
{
    if (!job->push)
        return;
    list_for_each_safe(item, &job->push->aside)
    {
        struct aside *aside = list_entry(item, struct aside, link);
        const Pinserve__Message *message = aside->packet.message;
        if (message->body_case == PINSERVE__MESSAGE__BODY_BATCH_READY)
            job_send_release(job, message->batch_ready->lease, message->batch_ready->generation);
        aside_free(aside);
    }
}

void push_taken(struct pinclient_job *job)
{
    if (job->push && job->push->under_way > 0)
        job->push->under_way--;
}

/* -- filling --------------------------------------------------------------------------------- */

/* No slot can come before a batch is taken or released. With delivery copy a batch is in a slot or
 * in a place of the job's own. */
static bool push_is_stuck(const struct pinclient_job *job)
{
    const struct push *push = job->push;

    return job->n_leased + push->n_filling + push->under_way >=
           job->info.depth * (job->copier ? 2 : 1);
}

static int push_wait(struct pinclient_job *job, int timeout_ms, int64_t deadline)
{
    struct pollfd pollfd = {.fd = connection_socket(job->connection), .events = POLLIN};
    struct failure *failure = job->handle.failure;
    int64_t left = -1;

    if (push_is_stuck(job))
        return failure_set(failure, -EBUSY,
                           "all %u slots of the job are being filled, are on their way or leased: "
                           "none can come until a batch is taken and released",
                           job->info.depth);
    if (timeout_ms >= 0) {
        left = timeout_ms > 0 ? deadline - connection_clock_ms() : 0;
        if (left <= 0)
            return failure_set(failure, -ETIMEDOUT, "no slot within %d ms", timeout_ms);
    }
    if (job->copier && (left < 0 || left > COPIES_STEP_MS))
        left = COPIES_STEP_MS;
    pthread_mutex_unlock(job->calls);
    int r = poll(&pollfd, 1, (int)left);
    pthread_mutex_lock(job->calls);
    if (r < 0 && errno == EINTR)
        return failure_set(failure, -EINTR, "a signal interrupted the wait for a slot");
    return r < 0 ? failure_set(failure, -errno, "poll: %s", strerror(errno)) : 0;
}

static int slot_acquire(struct pinclient_job *job, int timeout_ms, struct pinclient_slot *slot_p)
{
    struct push *push = job->push;
    int64_t deadline = timeout_ms > 0 ? connection_clock_ms() + timeout_ms : 0;

    if (!push)
        return failure_set(job->handle.failure, -EINVAL, "the daemon fills this job's batches");
    if (job->final.code < 0)
        return failure_set(job->handle.failure, job->final.code, "%s", job->final.text);
    while (push->count == 0) {
        int r = job_absorb(job);
        if (r == 0 && push->count == 0)
            r = push_wait(job, timeout_ms, deadline);
        if (r < 0)
            return r;
    }
    *slot_p = push->granted[push->head];
    push->head = (push->head + 1) % push->depth;
    push->count--;
    push->filling[slot_p->number] = slot_p->generation;
    push->most[slot_p->number] = slot_p->count;
    push->n_filling++;
    return 0;
}

int pinclient_slot_acquire(struct pinclient_job *job, int timeout_ms, struct pinclient_slot *slot_p)
{
    int r = handle_check(&job->handle);

    if (r < 0)
        return r;
    pthread_mutex_lock(job->calls);
    r = slot_acquire(job, timeout_ms, slot_p);
    job_tell_ahead(job);
    pthread_mutex_unlock(job->calls);
    return r;
}

int pinclient_slot_tensor(const struct pinclient_job *job, const struct pinclient_slot *slot,
                          uint32_t i, struct pinclient_tensor *tensor_p)
{
    if (i >= job->info.n_tensors)
        return failure_set(job->handle.failure, -ERANGE, "tensor %u: there are %u", i,
                           job->info.n_tensors);
    *tensor_p = job->tensors[i].public;
    tensor_p->data = (const uint8_t *)slot->data + job->tensors[i].offset;
    tensor_p->shape[0] = slot->count;
    tensor_p->bytes = tensor_p->bytes / job->info.batch * slot->count;
    return 0;
}

static int slot_commit(struct pinclient_job *job, const struct pinclient_slot *slot,
                       const char *error)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Commit commit = PINSERVE__COMMIT__INIT;
    struct push *push = job->push;

    if (!push || slot->number >= push->depth || slot->generation == 0 ||
        push->filling[slot->number] != slot->generation)
        return failure_set(job->handle.failure, -EINVAL,
                           "slot %u, generation %u, is not being filled", slot->number,
                           slot->generation);
    if (slot->count == 0 || slot->count > push->most[slot->number])
        return failure_set(job->handle.failure, -EINVAL, "slot %u is for 1 to %u samples, not %u",
                           slot->number, push->most[slot->number], slot->count);
    commit.job = job->info.id;
    commit.count = slot->count;
    commit.slot = slot->number;
    commit.generation = slot->generation;
    if (error)
        commit.error = (char *)error;
    message.body_case = PINSERVE__MESSAGE__BODY_COMMIT;
    message.commit = &commit;
    int r = connection_send(job->connection, &message, NULL, 0, job->handle.failure);
    if (r < 0)
        return r;
    push->filling[slot->number] = 0;
    push->n_filling--;
    push->under_way++;
    return 0;
}

int pinclient_slot_commit(struct pinclient_job *job, const struct pinclient_slot *slot,
                          const char *error)
{
    int r = handle_check(&job->handle);

    if (r < 0)
        return r;
    pthread_mutex_lock(job->calls);
    r = slot_commit(job, slot, error);
    pthread_mutex_unlock(job->calls);
    return r;
}
