/*
 * Batches: what lies in one, and giving it back behind the streams that work
 * on it. A batch's memory is reused as soon as the daemon has its Release, so
 * that message goes last.
 */
#include <stdio.h>
#include <stdlib.h>

#include "copier.h"

#define USES_FEW 8 /* streams of a batch that need no allocation to be followed */

int job_send_release(const struct pinclient_job *job, uint32_t lease, uint32_t generation)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Release release = PINSERVE__RELEASE__INIT;

    release.job = job->info.id;
    release.lease = lease;
    release.generation = generation;
    message.body_case = PINSERVE__MESSAGE__BODY_RELEASE;
    message.release = &release;
    return connection_post(job->connection, &message);
}

/* Where the batch lies; NULL: nowhere that the job knows. Ring set when in one. */
static const uint8_t *batch_place(const struct pinclient_job *job,
                                  const Pinserve__BatchReady *ready, struct ring **ring_p)
{
    *ring_p = NULL;
    if (ready->ring) {
        struct ring *ring = job_find_ring(job, ready->ring);
        if (!ring)
            return NULL;
        *ring_p = ring;
        return (const uint8_t *)ring->mapping.address + ready->lease * job->slot_bytes;
    }
    const struct region *region = job_find_region(job, ready->region);
    if (!region || region->bytes < job->slot_bytes ||
        ready->offset > region->bytes - job->slot_bytes)
        return NULL;
    if (job->delivery == PINSERVE__DELIVERY__DELIVERY_MAPPED)
        return (const uint8_t *)region->device_address + ready->offset;
    return (const uint8_t *)region->address + ready->offset;
}

int job_judge(const struct pinclient_job *job, const struct job_cursor *cursor,
              const Pinserve__BatchReady *ready, const uint8_t **data_p, struct ring **ring_p,
              struct failure *failure)
{
    *data_p = NULL;
    if (ready->epoch != cursor->epoch || ready->step != cursor->step ||
        cursor->step >= job->info.steps)
        return failure_set(failure, -EPROTO,
                           "the daemon announced step %llu of epoch %llu in place of step %llu of "
                           "epoch %llu",
                           (unsigned long long)ready->step, (unsigned long long)ready->epoch,
                           (unsigned long long)cursor->step, (unsigned long long)cursor->epoch);
    if (ready->lease < job->info.depth && ready->count >= 1 && ready->count <= job->info.batch)
        *data_p = batch_place(job, ready, ring_p);
    if (!*data_p)
        return failure_set(failure, -EPROTO,
                           "the daemon announced a batch that lies nowhere: lease %u of %u, %u "
                           "samples of %u, ring %u, region %u, offset %llu",
                           ready->lease, job->info.depth, ready->count, job->info.batch,
                           ready->ring, ready->region, (unsigned long long)ready->offset);
    return 0;
}

int job_judge_end(const struct pinclient_job *job, const struct job_cursor *cursor,
                  const Pinserve__EpochEnd *end, struct failure *failure)
{
    if (end->epoch == cursor->epoch && cursor->step == job->info.steps)
        return 0;
    return failure_set(failure, -EPROTO,
                       "the daemon ended epoch %llu before step %llu of epoch %llu",
                       (unsigned long long)end->epoch, (unsigned long long)cursor->step,
                       (unsigned long long)cursor->epoch);
}

void batch_begin(struct pinclient_batch *batch)
{
    struct pinclient_job *job = batch->job;

    batch->on_device =
        batch->ring || batch->copied || job->delivery == PINSERVE__DELIVERY__DELIVERY_MAPPED;
    batch->n_uses = batch->n_follows = 0;
    batch->holds = 1;
    batch->owned = true;
    batch->late = batch->unfollowed = false;
    job->n_leased++;
    job->next.step++;
}

int job_lease(struct pinclient_job *job, const Pinserve__BatchReady *ready,
              struct pinclient_batch **batch_p, struct failure *failure)
{
    struct ring *ring = NULL;
    const uint8_t *data = NULL;
    bool taken = false;

    int r = job_judge(job, &job->next, ready, &data, &ring, failure);
    if (r < 0)
        return r;
    struct pinclient_batch *batch = &job->batches[ready->lease];
    pthread_mutex_lock(&job->lock);
    if (batch->state == BATCH_FREE) {
        batch->state = BATCH_LEASED;
        job->references++;
        if (ring)
            ring->leases++;
        taken = true;
    }
    pthread_mutex_unlock(&job->lock);
    if (!taken)
        return failure_set(failure, -EPROTO, "the daemon announced lease %u, which is not free",
                           ready->lease);
    batch->lease = ready->lease;
    batch->generation = ready->generation;
    batch->count = ready->count;
    batch->epoch = ready->epoch;
    batch->step = ready->step;
    batch->data = data;
    batch->ring = ring;
    batch->copied = false;
    batch_begin(batch);
    *batch_p = batch;
    return 0;
}

int pinclient_batch_info(const struct pinclient_batch *batch, struct pinclient_batch_info *info_p)
{
    *info_p = (struct pinclient_batch_info){
        .epoch = batch->epoch, .step = batch->step, .count = batch->count};
    return 0;
}

int pinclient_batch_tensor_at(const struct pinclient_batch *batch, uint32_t i,
                              struct pinclient_tensor *tensor_p)
{
    const struct pinclient_job *job = batch->job;

    if (i >= job->info.n_tensors)
        return failure_set(job->handle.failure, -ERANGE, "tensor %u: a batch has %u", i,
                           job->info.n_tensors);
    *tensor_p = job->tensors[i].public;
    tensor_p->data = batch->data + job->tensors[i].offset;
    tensor_p->bytes = tensor_p->bytes / job->info.batch * batch->count;
    tensor_p->shape[0] = batch->count;
    return 0;
}

int pinclient_batch_tensor(const struct pinclient_batch *batch, const char *name,
                           struct pinclient_tensor *tensor_p)
{
    const struct pinclient_job *job = batch->job;
    char list[256] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < job->info.n_tensors; i++) {
        if (strcmp(job->tensors[i].public.name, name) == 0)
            return pinclient_batch_tensor_at(batch, i, tensor_p);
    }
    for (uint32_t i = 0; i < job->info.n_tensors && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 job->tensors[i].public.name);
    return failure_set(job->handle.failure, -ENOENT, "no tensor \"%.64s\": there are %s", name,
                       list);
}

static int batch_use(struct pinclient_batch *batch, void *stream)
{
    struct pinclient_job *job = batch->job;
    struct failure *failure = job->handle.failure;
    struct device_event *event;
    int r;

    if (!job->device || stream == PINCLIENT_NO_STREAM)
        return 0;
    if (batch->n_uses == batch->n_uses_room) {
        size_t room = batch->n_uses_room * 2 + 2;
        struct batch_use *uses = reallocarray(batch->uses, room, sizeof *uses);
        if (!uses)
            return failure_set(failure, -ENOMEM, "no memory for another stream of a batch");
        batch->uses = uses;
        batch->n_uses_room = room;
    }
    r = device_event_record(job->device, stream, &event, failure);
    if (r < 0)
        return r;
    for (size_t i = 0; i < batch->n_uses; i++) {
        if (batch->uses[i].stream == stream) {
            /* The later place in a stream holds for the earlier one. */
            device_event_free(job->device, batch->uses[i].event);
            batch->uses[i].event = event;
            return 0;
        }
    }
    batch->uses[batch->n_uses++] = (struct batch_use){stream, event};
    return 0;
}

int pinclient_batch_use(struct pinclient_batch *batch, void *stream)
{
    struct pinclient_job *job = batch->job;
    int r = handle_check(&job->handle);

    if (r < 0)
        return r;
    pthread_mutex_lock(job->calls);
    r = batch_use(batch, stream);
    pthread_mutex_unlock(job->calls);
    return r;
}

/* Where all streams are now that were to be followed to the end, and stream. */
static int batch_use_all(struct pinclient_batch *batch, void *stream)
{
    int r = batch_use(batch, stream);

    for (size_t i = 0; r == 0 && i < batch->n_follows; i++)
        r = batch_use(batch, batch->follows[i]);
    if (r == 0 && batch->unfollowed)
        r = -EIO; /* told when it happened */
    return r;
}

/* Hands the lease back to the daemon. The batch may be leased anew as soon as it has the message,
 * and the job end with the reference: nothing of them is touched behind that. The ring's count goes
 * down behind the message, because RingClosed must not overtake it. */
static int batch_give_back(struct pinclient_batch *batch, bool in_driver)
{
    struct pinclient_job *job = batch->job;
    struct ring *ring = batch->ring;
    uint32_t lease = batch->lease, generation = batch->generation;
    bool copied = batch->copied;
    int r = 0;

    pthread_mutex_lock(&job->lock);
    batch->state = BATCH_FREE;
    pthread_mutex_unlock(&job->lock);
    if (copied)
        copier_wake(job);
    else
        r = job_send_release(job, lease, generation);
    if (ring) {
        pthread_mutex_lock(&job->lock);
        ring->leases--;
        pthread_mutex_unlock(&job->lock);
    }
    job_unref(job, in_driver);
    return r;
}

static void batch_passed(void *batch)
{
    batch_give_back(batch, true);
}

/* Follows stream as one more use, then has the driver give the batch back behind all of them. What
 * CUDA refuses is waited for here instead. */
static int batch_give_back_behind(struct pinclient_batch *batch, void *stream)
{
    struct pinclient_job *job = batch->job;
    struct failure *failure = job->handle.failure;
    int r = batch_use_all(batch, stream);

    if (r == -EBUSY)
        return r;
    size_t n = batch->n_uses;
    struct device_event *few[USES_FEW];
    struct device_event **events = few;
    if (n > USES_FEW)
        events = malloc(n * sizeof(struct device_event *));
    if (!events && r == 0)
        r = failure_set(failure, -EIO, "no memory to follow %zu streams", n);
    for (size_t i = 0; events && i < n; i++)
        events[i] = batch->uses[i].event;
    batch->n_uses = 0;
    job->n_leased--;
    pthread_mutex_lock(&job->lock);
    batch->state = BATCH_RELEASING;
    pthread_mutex_unlock(&job->lock);
    if (r == 0)
        r = device_call_behind(job->device, events, n, batch_passed, batch, failure);
    if (r < 0) {
        device_drain(job->device);
        batch_give_back(batch, false);
        r = -EIO;
    }
    for (size_t i = 0; events && i < n; i++)
        device_event_free(job->device, events[i]);
    if (events != few)
        free(events);
    return r;
}

int batch_drop(struct pinclient_batch *batch, void *stream)
{
    struct pinclient_job *job = batch->job;
    int r;

    if (batch->holds > 1) {
        r = batch_use(batch, stream);
        if (r == -EBUSY)
            return r;
        batch->unfollowed |= r < 0;
        batch->holds--;
        return r;
    }
    if (job->device && (stream != PINCLIENT_NO_STREAM || batch->n_uses > 0 ||
                        batch->n_follows > 0 || batch->unfollowed)) {
        r = batch_give_back_behind(batch, stream);
    } else {
        job->n_leased--;
        r = batch_give_back(batch, false);
    }
    if (r == -EBUSY)
        return r;
    if (r == 0)
        job_reap_rings(job);
    bool gone = r == -EPIPE || r == -ECONNRESET || (r == 0 && job->final.code == -EPIPE);
    if (gone && job->front)
        r = 0; /* nobody is left to be told, and the job goes on */
    else if (gone)
        r = failure_set(job->handle.failure, -EPIPE, "the daemon at %s is gone",
                        connection_path(job->connection));
    else if (r < 0 && r != -EIO)
        r = failure_set(job->handle.failure, -EIO, "cannot send to the daemon: %s", strerror(-r));
    return r;
}

void job_drop_late(struct pinclient_job *job)
{
    for (uint32_t i = 0; job->n_late > 0 && i < job->info.depth; i++) {
        struct pinclient_batch *batch = &job->batches[i];
        if (!batch->late)
            continue;
        batch->late = false;
        if (batch_drop(batch, PINCLIENT_NO_STREAM) == -EBUSY)
            batch->late = true;
        else
            job->n_late--;
    }
}

int pinclient_release(struct pinclient_batch *batch, void *stream)
{
    struct pinclient_job *job = batch->job;
    int r = handle_check(&job->handle);

    if (r < 0)
        return r;
    /* What follows may give back the last reference of a closed job. */
    job_ref(job);
    pthread_mutex_lock(job->calls);
    if (batch->state == BATCH_LEASED && batch->owned) {
        batch->owned = false;
        r = batch_drop(batch, stream);
        if (r == -EBUSY)
            batch->owned = true;
    } else {
        r = failure_set(job->handle.failure, -EINVAL, "this batch was released already");
    }
    pthread_mutex_unlock(job->calls);
    job_unref(job, false);
    return r;
}
