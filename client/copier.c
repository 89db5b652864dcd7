/*
 * Delivery copy: batches lie in regions, and are copied into memory of the GPU
 * that is the job's own, `depth` places of a batch each. What the daemon
 * announces is taken from the socket ahead of pinclient_next and its copies are
 * started at once, as far as there are places; the pool's slot is released as
 * soon as its copy has ended, by the driver's thread that sees it, and
 * pinclient_next hands a batch out only then.
 *
 * job->batches are the places here: a place is FREE, COPYING, COPIED, LEASED,
 * RELEASING. A copy under way holds a reference to the job. The end of a copy,
 * and a place that becomes free, make job->event_fd readable.
 */
#include "copier.h"

#include <stdlib.h>
#include <sys/epoll.h>

/* In the order in which it was announced. */
struct arrival {
    bool is_batch; /* false: the end of an epoch */
    uint32_t lease, generation, count;
    uint64_t epoch, step;
    const uint8_t *origin;         /* in a region */
    struct pinclient_batch *place; /* that it is copied to; NULL: it waits for one */
};

struct copier {
    struct device_copies *copies;
    struct job_cursor ahead; /* the next to be announced */
    struct failure failure;  /* behind all arrivals; code 0: none */
    bool *held;              /* leases of the daemon's that are not released; under job->lock */
    uint32_t copying;        /* under job->lock */
    uint32_t room, head, count, started;
    struct arrival arrivals[]; /* a circle of room places: count of them, `started` with a place */
};

int copier_new(struct pinclient_job *job, struct failure *failure)
{
    /* A batch has a lease of the daemon's or a place here, and is followed by one end at most. */
    uint32_t room = 4 * job->info.depth + 2;
    struct copier *copier = calloc(1, sizeof *copier + room * sizeof copier->arrivals[0]);
    int r;

    if (!copier)
        return failure_set(failure, -ENOMEM, "no memory to copy batches");
    copier->room = room;
    copier->ahead = job->next;
    copier->held = calloc(job->info.depth, sizeof *copier->held);
    r = copier->held ? device_copies_new(job->device, job->info.depth * job->slot_bytes,
                                         &copier->copies, failure)
                     : failure_set(failure, -ENOMEM, "no memory to copy batches");
    if (r < 0) {
        free(copier->held);
        free(copier);
        return r;
    }
    job->copier = copier;
    return 0;
}

void copier_free(struct pinclient_job *job)
{
    struct copier *copier = job->copier;

    if (!copier)
        return;
    device_copies_free(job->device, copier->copies);
    free(copier->held);
    free(copier);
    job->copier = NULL;
}

void copier_wake(const struct pinclient_job *job)
{
    uint64_t one = 1;

    if (write(job->event_fd, &one, sizeof one) < 0) {
        /* It is readable already. */
    }
}

/* -- what is announced ----------------------------------------------------------------------- */

static struct arrival *arrival_at(struct copier *copier, uint32_t place)
{
    return &copier->arrivals[(copier->head + place) % copier->room];
}

static int arrival_add(struct copier *copier, const struct arrival *arrival,
                       struct failure *failure)
{
    if (copier->count == copier->room)
        return failure_set(failure, -EPROTO, "the daemon announces more than the job can lease");
    *arrival_at(copier, copier->count++) = *arrival;
    return 0;
}

int copier_announce(struct pinclient_job *job, const Pinserve__BatchReady *ready,
                    struct failure *failure)
{
    struct copier *copier = job->copier;
    struct arrival arrival = {
        .is_batch = true,
        .lease = ready->lease,
        .generation = ready->generation,
        .count = ready->count,
        .epoch = ready->epoch,
        .step = ready->step,
    };
    struct ring *ring;

    int r = job_judge(job, &copier->ahead, ready, &arrival.origin, &ring, failure);
    if (r < 0)
        return r;
    if (ring)
        return failure_set(failure, -EPROTO,
                           "the daemon announced a batch in ring %u of a job "
                           "that has none",
                           ready->ring);
    pthread_mutex_lock(&job->lock);
    bool held = copier->held[ready->lease];
    copier->held[ready->lease] = true;
    pthread_mutex_unlock(&job->lock);
    if (held)
        return failure_set(failure, -EPROTO, "the daemon announced lease %u, which is not free",
                           ready->lease);
    copier->ahead.step++;
    return arrival_add(copier, &arrival, failure);
}

int copier_end_epoch(struct pinclient_job *job, const Pinserve__EpochEnd *end,
                     struct failure *failure)
{
    struct copier *copier = job->copier;
    struct arrival arrival = {.epoch = end->epoch};

    int r = job_judge_end(job, &copier->ahead, end, failure);
    if (r < 0)
        return r;
    copier->ahead = (struct job_cursor){end->epoch + 1, 0};
    return arrival_add(copier, &arrival, failure);
}

void copier_fail(struct pinclient_job *job, const struct failure *failure)
{
    job->copier->failure = *failure;
    /* An end of the connection stays readable, and is known now. */
    epoll_ctl(job->epoll_fd, EPOLL_CTL_DEL, connection_socket(job->connection), NULL);
}

const struct failure *copier_failure(const struct copier *copier)
{
    return copier->failure.code < 0 ? &copier->failure : NULL;
}

bool copier_pending(const struct copier *copier)
{
    return copier->count > 0;
}

/* -- copying --------------------------------------------------------------------------------- */

/* On a thread of the driver's. */
static void copy_done(void *argument)
{
    struct pinclient_batch *place = argument;
    struct pinclient_job *job = place->job;
    uint32_t lease = place->lease, generation = place->generation;

    pthread_mutex_lock(&job->lock);
    place->state = BATCH_COPIED;
    job->copier->held[lease] = false;
    job->copier->copying--;
    pthread_mutex_unlock(&job->lock);
    job_send_release(job, lease, generation);
    copier_wake(job);
    job_unref(job, true);
}

static struct pinclient_batch *place_take(struct pinclient_job *job)
{
    struct pinclient_batch *found = NULL;

    pthread_mutex_lock(&job->lock);
    for (uint32_t i = 0; !found && i < job->info.depth; i++)
        if (job->batches[i].state == BATCH_FREE)
            found = &job->batches[i];
    if (found) {
        found->state = BATCH_COPYING;
        job->copier->copying++;
        job->references++;
    }
    pthread_mutex_unlock(&job->lock);
    return found;
}

static int copy_start(struct pinclient_job *job, struct arrival *arrival,
                      struct pinclient_batch *place)
{
    struct device_copies *copies = job->copier->copies;
    size_t offset = (size_t)(place - job->batches) * job->slot_bytes;
    struct failure failure;

    arrival->place = place;
    place->lease = arrival->lease;
    place->generation = arrival->generation;
    place->data = (const uint8_t *)device_copies_address(copies) + offset;
    int r = device_copies_start(job->device, copies, offset, arrival->origin, job->slot_bytes,
                                copy_done, place, &failure);
    if (r == 0)
        return 0;
    arrival->place = NULL;
    pthread_mutex_lock(&job->lock);
    place->state = BATCH_FREE;
    job->copier->copying--;
    job->references--; /* not the last: the caller has one */
    pthread_mutex_unlock(&job->lock);
    if (!copier_failure(job->copier))
        copier_fail(job, &failure);
    job->copier->failure = failure;
    return r;
}

void copier_give_back(struct pinclient_job *job)
{
    struct copier *copier = job->copier;

    for (uint32_t i = copier->started; i < copier->count; i++) {
        const struct arrival *arrival = arrival_at(copier, i);

        if (arrival->is_batch)
            job_send_release(job, arrival->lease, arrival->generation);
    }
    copier->count = copier->started;
}

void copier_start(struct pinclient_job *job)
{
    struct copier *copier = job->copier;

    for (; copier->started < copier->count; copier->started++) {
        struct arrival *arrival = arrival_at(copier, copier->started);
        struct pinclient_batch *place;

        if (!arrival->is_batch)
            continue;
        place = place_take(job);
        if (!place)
            return;
        if (copy_start(job, arrival, place) < 0) {
            copier_give_back(job);
            return;
        }
    }
}

bool copier_busy(struct pinclient_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool busy = job->copier->copying > 0;
    pthread_mutex_unlock(&job->lock);
    return busy;
}

int copier_check(struct pinclient_job *job, struct failure *failure)
{
    return device_copies_check(job->device, job->copier->copies, failure);
}

/* -- handing out ----------------------------------------------------------------------------- */

/* Whether the first arrival can be taken. */
static bool arrival_is_due(struct pinclient_job *job)
{
    struct copier *copier = job->copier;
    const struct arrival *first = arrival_at(copier, 0);

    if (copier->count == 0)
        return copier->failure.code < 0;
    if (!first->is_batch)
        return true;
    if (!first->place)
        return false;
    pthread_mutex_lock(&job->lock);
    bool copied = first->place->state == BATCH_COPIED;
    pthread_mutex_unlock(&job->lock);
    return copied;
}

int copier_take(struct pinclient_job *job, struct pinclient_batch **batch_p)
{
    struct copier *copier = job->copier;
    uint64_t passed;

    if (read(job->event_fd, &passed, sizeof passed) < 0) {
        /* Nothing has happened. */
    }
    if (copier->count == 0 || !arrival_is_due(job))
        return -EAGAIN;
    struct arrival first = *arrival_at(copier, 0);
    copier->head = (copier->head + 1) % copier->room;
    copier->count--;
    copier->started -= copier->started > 0;
    if (first.is_batch) {
        pthread_mutex_lock(&job->lock);
        first.place->state = BATCH_LEASED;
        job->references++;
        pthread_mutex_unlock(&job->lock);
        first.place->count = first.count;
        first.place->epoch = first.epoch;
        first.place->step = first.step;
        first.place->ring = NULL;
        first.place->copied = true;
        batch_begin(first.place);
        *batch_p = first.place;
    } else {
        job->next = (struct job_cursor){first.epoch + 1, 0};
    }
    if (arrival_is_due(job))
        copier_wake(job);
    return first.is_batch ? 0 : PINCLIENT_EPOCH_END;
}
