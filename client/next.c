/*
 * What the daemon announces: batches, the ends of epochs, new memory, and the
 * end of the job. Batches are pushed ahead, and what waits on the socket is
 * taken in one go: most calls find their batch without a system call.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "copier.h"
#include "proto/token.h"
#include "push.h"
#include "reconnect.h"

/* More than any result of pinclient_next: the message brought nothing for the caller. */
#define NEXT_MORE 1000

/* While copies are under way: how often to ask whether they still can end. */
#define COPIES_CHECK_MS 500

int job_end(struct pinclient_job *job, const struct failure *failure)
{
    uint64_t one = 1;

    job->final = *failure;
    if (write(job->event_fd, &one, sizeof one) < 0) {
        /* It is readable already. */
    }
    return failure_set(job->handle.failure, failure->code, "%s", failure->text);
}

/* What was read ahead is not on the socket any more: event_fd is readable in its place. */
void job_tell_ahead(struct pinclient_job *job)
{
    uint64_t count = 1;

    if (!job->fd_wanted || job->copier || job->final.code < 0)
        return;
    bool ahead = connection_has_ahead(job->connection) || push_has_aside(job);
    if (ahead == job->fd_tells)
        return;
    if (ahead ? write(job->event_fd, &count, sizeof count) < 0
              : read(job->event_fd, &count, sizeof count) < 0)
        return;
    job->fd_tells = ahead;
}

static int epoch_end(struct pinclient_job *job, const Pinserve__EpochEnd *end,
                     struct failure *failure)
{
    int r = job_judge_end(job, &job->next, end, failure);

    if (r < 0)
        return r;
    job->next = (struct job_cursor){job->next.epoch + 1, 0};
    return PINCLIENT_EPOCH_END;
}

/* 0: *batch_p is set; PINCLIENT_EPOCH_END; NEXT_MORE; or an error that ends the job. */
static int job_take_event(struct pinclient_job *job, struct wire_packet *packet,
                          struct pinclient_batch **batch_p, struct failure *failure)
{
    const Pinserve__Message *message = packet->message;
    int r;

    switch (message->body_case) {
    case PINSERVE__MESSAGE__BODY_BATCH_READY:
        if (!job->copier)
            return job_lease(job, message->batch_ready, batch_p, failure);
        r = copier_announce(job, message->batch_ready, failure);
        return r < 0 ? r : NEXT_MORE;
    case PINSERVE__MESSAGE__BODY_EPOCH_END:
        if (!job->copier)
            return epoch_end(job, message->epoch_end, failure);
        r = copier_end_epoch(job, message->epoch_end, failure);
        return r < 0 ? r : NEXT_MORE;
    case PINSERVE__MESSAGE__BODY_JOB_FAILED:
        return failure_set(failure, connection_code(message->job_failed->code), "%s",
                           message->job_failed->text);
    case PINSERVE__MESSAGE__BODY_REGION_ADDED:
        r = job_add_region(job, packet, failure);
        return r < 0 ? r : NEXT_MORE;
    case PINSERVE__MESSAGE__BODY_RING_REPLACED:
        if (!message->ring_replaced->ring)
            break;
        r = job_replace_ring(job, message->ring_replaced->ring, packet, failure);
        return r < 0 ? r : NEXT_MORE;
    case PINSERVE__MESSAGE__BODY_SLOT_GRANTED:
        r = push_take_grant(job, message->slot_granted, failure);
        return r < 0 ? r : NEXT_MORE;
    case PINSERVE__MESSAGE__BODY_PROGRESS:
    case PINSERVE__MESSAGE__BODY_GOODBYE:
    case PINSERVE__MESSAGE__BODY_ERROR:
        /* The connection keeps its last words; its end follows. */
        return NEXT_MORE;
    default:
        break;
    }
    return failure_set(failure, -EPROTO, "the daemon sent message %d, which a job does not expect",
                       (int)message->body_case);
}

/* Takes what waits on the socket: one message for the caller, or with delivery copy all that there
 * are. As job_take_event, or -EAGAIN: nothing is there yet. */
static int job_take_events(struct pinclient_job *job, struct pinclient_batch **batch_p,
                           struct failure *failure)
{
    struct wire_packet packet = WIRE_PACKET_INIT;
    int r = 0;

    while (!job->copier || !copier_failure(job->copier)) {
        bool ahead = connection_has_ahead(job->connection);
        r = push_receive(job, &packet, failure);
        if (r == 0) {
            r = job_take_event(job, &packet, batch_p, failure);
            wire_packet_deinit(&packet);
            /* The calls after this one find what is there now without a system call. */
            if (r == 0 && !ahead && !job->copier)
                connection_read_ahead(job->connection);
        }
        if (r == NEXT_MORE)
            continue;
        if (r == -EINTR)
            r = -EAGAIN;
        if (!job->copier || r == -EAGAIN)
            break;
        copier_fail(job, failure);
    }
    return r;
}

/* As job_take_events; with delivery copy the copies are started. */
static int job_receive(struct pinclient_job *job, struct pinclient_batch **batch_p,
                       struct failure *failure)
{
    int r = job_take_events(job, batch_p, failure);

    if (!job->copier)
        return r;
    copier_start(job);
    r = copier_take(job, batch_p);
    /* No place is free for what a lost daemon announced: its successor has places of its own. */
    if (r == -EAGAIN && job->front && job->n_leased == job->info.depth &&
        connection_is_gone(job->connection))
        copier_give_back(job);
    if (r == -EAGAIN && copier_failure(job->copier) && !copier_pending(job->copier)) {
        *failure = *copier_failure(job->copier);
        r = failure->code;
    }
    return r;
}

int job_absorb(struct pinclient_job *job)
{
    struct failure failure = {.code = 0};
    struct wire_packet packet = WIRE_PACKET_INIT;
    int r = 0;

    if (job->final.code < 0)
        return failure_set(job->handle.failure, job->final.code, "%s", job->final.text);
    if (job->copier) {
        job_take_events(job, NULL, &failure);
        copier_start(job);
        if (!copier_failure(job->copier))
            return 0;
        failure = *copier_failure(job->copier);
        return failure_set(job->handle.failure, failure.code, "%s", failure.text);
    }
    while (r == 0) {
        r = connection_receive(job->connection, MSG_DONTWAIT, &packet, &failure);
        if (r < 0)
            break;
        if (packet.message->body_case != PINSERVE__MESSAGE__BODY_SLOT_GRANTED) {
            r = push_set_aside(job, &packet, &failure);
            continue;
        }
        r = push_take_grant(job, packet.message->slot_granted, &failure);
        wire_packet_deinit(&packet);
    }
    if (r == -EAGAIN || r == -EINTR)
        return 0;
    /* What came before the end is still to be had. */
    return push_has_aside(job) ? failure_set(job->handle.failure, r, "%s", failure.text)
                               : job_end(job, &failure);
}

/* Waits for the socket, and for what a copier does. 0 when there may be something. */
static int job_wait(struct pinclient_job *job, int timeout_ms, int64_t deadline)
{
    struct failure *failure = job->handle.failure;
    struct pollfd pollfd = {.fd = job->copier ? job->epoll_fd : connection_socket(job->connection),
                            .events = POLLIN};
    int64_t left = -1;

    /* The end of an epoch needs no lease. */
    if (job->n_leased == job->info.depth && job->next.step != job->info.steps)
        return failure_set(failure, -EBUSY,
                           "all %u batches of the job are leased: none can come until one is "
                           "released",
                           job->info.depth);
    if (timeout_ms >= 0) {
        left = timeout_ms > 0 ? deadline - connection_clock_ms() : 0;
        if (left <= 0)
            return failure_set(failure, -ETIMEDOUT, "no batch within %d ms", timeout_ms);
    }
    if (job->copier && copier_busy(job) && (left < 0 || left > COPIES_CHECK_MS))
        left = COPIES_CHECK_MS;
    pthread_mutex_unlock(job->calls);
    int r = poll(&pollfd, 1, (int)left);
    pthread_mutex_lock(job->calls);
    if (r < 0 && errno == EINTR)
        return failure_set(failure, -EINTR, "a signal interrupted the wait for a batch");
    if (r < 0)
        return failure_set(failure, -errno, "poll: %s", strerror(errno));
    return 0;
}

static int job_next(struct pinclient_job *job, int timeout_ms, struct pinclient_batch **batch_p)
{
    struct failure failure = {.code = 0};
    int64_t deadline = 0;
    int r;

    job_drop_late(job);
    if (job->final.code < 0)
        return failure_set(job->handle.failure, job->final.code, "%s", job->final.text);
    job_reap_rings(job);
    for (;;) {
        r = job_receive(job, batch_p, &failure);
        if (r >= 0)
            return r;
        if (r != -EAGAIN)
            return job_end(job, &failure);
        if (timeout_ms > 0 && deadline == 0)
            deadline = connection_clock_ms() + timeout_ms;
        r = job_wait(job, timeout_ms, deadline);
        if (r < 0)
            return r;
        if (job->copier && copier_busy(job) && copier_check(job, &failure) < 0)
            return job_end(job, &failure);
    }
}

int job_take(struct pinclient_job *job, int timeout_ms, struct pinclient_batch **batch_p)
{
    int r = job_next(job, timeout_ms, batch_p);

    if (r == 0)
        push_taken(job);
    job_tell_ahead(job);
    return r;
}

int pinclient_next(struct pinclient_job *job, int timeout_ms, struct pinclient_batch **batch_p)
{
    int r = handle_check(&job->handle);

    if (r < 0)
        return r;
    pthread_mutex_lock(job->calls);
    r = job->reconnect ? reconnect_next(job, timeout_ms, batch_p)
                       : job_take(job, timeout_ms, batch_p);
    pthread_mutex_unlock(job->calls);
    return r;
}

int pinclient_get_fd(const struct pinclient_job *job)
{
    struct pinclient_job *changed = (struct pinclient_job *)job;
    int r = handle_check(&job->handle);

    if (r < 0)
        return r;
    /* Only now does what is read ahead have to show: it costs a call now and then. */
    pthread_mutex_lock(changed->calls);
    if (job->reconnect) {
        reconnect_want_fd(changed);
    } else {
        changed->fd_wanted = true;
        job_tell_ahead(changed);
    }
    pthread_mutex_unlock(changed->calls);
    return job->epoll_fd;
}

int pinclient_job_token(const struct pinclient_job *job, char *text, size_t *size_p)
{
    Pinserve__ResumeToken token;
    size_t room = *size_p;
    int r = handle_check(&job->handle);

    if (r < 0)
        return r;
    if (job->reconnect)
        return reconnect_token(job, text, size_p);
    token = *job->token;
    token.epoch = job->next.epoch;
    token.position = job->next.step * token.global_batch;
    r = token_format(&token, text, size_p);
    if (r == -ENOSPC)
        return failure_set(job->handle.failure, r, "a token needs %zu bytes, and there are %zu",
                           *size_p, room);
    return r;
}
