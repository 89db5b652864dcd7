/*
 * Jobs that outlive their daemon: who is in force, and the change from one to
 * the next.
 */
#include "reconnect.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "copier.h"
#include "proto/cleanup.h"
#include "proto/token.h"
#include "seek.h"

struct reconnect {
    char *socket;
    struct pinclient_spec *spec;
    struct pinclient_job *now;  /* NULL: the daemon is gone */
    struct seek *seek;          /* for the next one; NULL: none is needed, or the end is final */
    struct pinclient_job *late; /* those with batches that a capture holds up, each held */
    char *token;                /* behind the last batch of the last one that was lost */
    struct job_cursor next;
    struct pinclient_job_info info; /* of the first, and later of the last one that was lost */
    char device[DEVICE_NAME_MAX];
    bool fd_wanted;
};

static int watch_change(const struct pinclient_job *front, int operation, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(front->epoll_fd, operation, fd, &event);
}

/* -- one takes another's place --------------------------------------------------------------- */

/* The job does its work under the front's name from now on. */
static void front_take(struct pinclient_job *front, struct pinclient_job *job)
{
    struct reconnect *reconnect = front->reconnect;

    job->handle.failure = front->handle.failure;
    job->calls = front->calls;
    job->front = front;
    job_ref(front);
    reconnect->now = job;
    if (reconnect->fd_wanted) {
        job->fd_wanted = true;
        job_tell_ahead(job);
    }
}

static void reconnect_end(struct reconnect *reconnect_consume)
{
    if (!reconnect_consume)
        return;
    pinclient_spec_free(reconnect_consume->spec);
    free(reconnect_consume->socket);
    free(reconnect_consume->token);
    free(reconnect_consume);
}

/* What is to be known of a job for the next one; NULL: no memory. */
static struct reconnect *reconnect_of(const struct pinclient_job *job,
                                      const struct pinclient_spec *spec)
{
    struct reconnect *reconnect = calloc(1, sizeof *reconnect);

    if (!reconnect)
        return NULL;
    reconnect->info = job->info;
    memcpy(reconnect->device, job->device_name, sizeof reconnect->device);
    reconnect->socket = strdup(connection_path(job->connection));
    reconnect->spec = spec_clone(spec);
    /* The device by its name: "auto" must not become another one. */
    if (!reconnect->socket || !reconnect->spec ||
        spec_text_replace(reconnect->spec, &reconnect->spec->device, job->device_name) < 0) {
        reconnect_end(reconnect);
        return NULL;
    }
    return reconnect;
}

int reconnect_new(struct pinclient_job *job, const struct pinclient_spec *spec,
                  struct pinclient_job **front_p, struct failure *failure)
{
    struct pinclient_job *front = job_new(failure);

    if (!front)
        return -ENOMEM;
    front->reconnect = reconnect_of(job, spec);
    if (!front->reconnect) {
        job_unref(front, false);
        return failure_set(failure, -ENOMEM, "no memory for a job that reconnects");
    }
    front->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    front->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (front->epoll_fd < 0 || front->event_fd < 0 ||
        watch_change(front, EPOLL_CTL_ADD, front->event_fd) < 0 ||
        watch_change(front, EPOLL_CTL_ADD, job->epoll_fd) < 0) {
        int error = errno;
        job_unref(front, false);
        return failure_set(failure, -error, "no file descriptor for a job: %s", strerror(error));
    }
    front_take(front, job);
    *front_p = front;
    return 0;
}

void reconnect_free(struct pinclient_job *job)
{
    reconnect_end(steal_ptr(job->reconnect));
}

static int token_keep(struct reconnect *reconnect, const struct pinclient_job *job,
                      struct failure *failure)
{
    size_t size = 0;

    pinclient_job_token(job, NULL, &size);
    char *token = malloc(size);
    if (!token || pinclient_job_token(job, token, &size) < 0) {
        free(token);
        return failure_set(failure, -ENOMEM, "no memory for the token to reconnect with");
    }
    free(reconnect->token);
    reconnect->token = token;
    return 0;
}

static int seek_begin(struct pinclient_job *front, struct failure *failure)
{
    struct reconnect *reconnect = front->reconnect;
    struct pinclient_spec *spec = spec_clone(reconnect->spec);

    if (!spec || pinclient_spec_token(spec, reconnect->token) < 0) {
        pinclient_spec_free(spec);
        return failure_set(failure, -ENOMEM, "no memory to reconnect");
    }
    int r = seek_start(reconnect->socket, spec, &reconnect->seek, failure);
    if (r == 0)
        watch_change(front, EPOLL_CTL_ADD, seek_fd(reconnect->seek));
    return r;
}

void reconnect_note_late(struct pinclient_job *job)
{
    struct reconnect *reconnect = job->front->reconnect;

    if (job->noted_late)
        return;
    job->noted_late = true;
    job->next_late = reconnect->late;
    reconnect->late = job;
    job_ref(job);
}

/* Drops what could not go while a stream was being captured; at the end no more is tried then. */
static void late_drop(struct reconnect *reconnect, bool at_end)
{
    struct pinclient_job **place = &reconnect->late;

    while (*place) {
        struct pinclient_job *job = *place;
        job_drop_late(job);
        if (job->n_late > 0 && !at_end) {
            place = &job->next_late;
            continue;
        }
        *place = job->next_late;
        job->noted_late = false;
        job_unref(job, false);
    }
}

/* The job in force has lost its daemon. Its batches keep it, and it its memory. */
static int front_lose(struct pinclient_job *front)
{
    struct reconnect *reconnect = front->reconnect;
    struct pinclient_job *job = steal_ptr(reconnect->now);
    struct failure failure = {.code = 0};

    watch_change(front, EPOLL_CTL_DEL, job->epoll_fd);
    reconnect->info = job->info;
    reconnect->next = job->next;
    int r = token_keep(reconnect, job, &failure);
    if (job->copier)
        copier_give_back(job);
    job_unref(job, false);
    if (r == 0)
        r = seek_begin(front, &failure);
    return r < 0 ? job_end(front, &failure) : 0;
}

/* Whether the daemon understood the same by the token. */
static int found_check(const struct reconnect *reconnect, const struct pinclient_job *job,
                       struct failure *failure)
{
    const struct pinclient_job_info *before = &reconnect->info, *after = &job->info;
    const struct job_cursor *from = &reconnect->next, *to = &job->next;

    if (to->epoch == from->epoch && to->step == from->step && after->steps == before->steps &&
        after->samples == before->samples && after->batch == before->batch &&
        after->n_tensors == before->n_tensors)
        return 0;
    return failure_set(failure, -EPROTO,
                       "after reconnecting: the daemon at %s goes on at step %llu of epoch %llu in "
                       "place of step %llu of epoch %llu, or with other batches",
                       reconnect->socket, (unsigned long long)to->step,
                       (unsigned long long)to->epoch, (unsigned long long)from->step,
                       (unsigned long long)from->epoch);
}

/* 0: there is a job in force again; -EAGAIN: not yet, and why tells; or a final error. */
static int front_find(struct pinclient_job *front, struct failure *why)
{
    struct reconnect *reconnect = front->reconnect;
    struct pinclient_job *job = NULL;
    int r = seek_result(reconnect->seek, &job, why);

    if (r == -EAGAIN)
        return r;
    if (r < 0)
        return job_end(front, why);
    r = found_check(reconnect, job, why);
    if (r == 0 && watch_change(front, EPOLL_CTL_ADD, job->epoll_fd) < 0)
        r = failure_set(why, -errno, "after reconnecting: the job cannot be watched: %s",
                        strerror(errno));
    if (r < 0) {
        pinclient_job_close(job);
        return job_end(front, why);
    }
    front_take(front, job);
    watch_change(front, EPOLL_CTL_DEL, seek_fd(reconnect->seek));
    seek_stop(steal_ptr(reconnect->seek));
    return 0;
}

/* -- as the public functions ----------------------------------------------------------------- */

static int front_wait(struct pinclient_job *front, int timeout_ms, int64_t deadline,
                      const struct failure *why)
{
    struct pollfd pollfd = {.fd = seek_fd(front->reconnect->seek), .events = POLLIN};
    struct failure *failure = front->handle.failure;
    int64_t left = -1;

    if (timeout_ms >= 0) {
        left = timeout_ms > 0 ? deadline - connection_clock_ms() : 0;
        if (left <= 0)
            return failure_set(
                failure, -ETIMEDOUT, "no batch within %d ms: the daemon at %s is gone%s%.300s",
                timeout_ms, front->reconnect->socket, *why->text ? ": " : "", why->text);
    }
    pthread_mutex_unlock(front->calls);
    int r = poll(&pollfd, 1, (int)left);
    pthread_mutex_lock(front->calls);
    if (r < 0 && errno == EINTR)
        return failure_set(failure, -EINTR, "a signal interrupted the wait for the daemon");
    return r < 0 ? failure_set(failure, -errno, "poll: %s", strerror(errno)) : 0;
}

static int time_left(int timeout_ms, int64_t deadline)
{
    if (timeout_ms <= 0)
        return timeout_ms;
    int64_t left = deadline - connection_clock_ms();
    return left > 0 ? (int)left : 0;
}

int reconnect_next(struct pinclient_job *front, int timeout_ms, struct pinclient_batch **batch_p)
{
    struct reconnect *reconnect = front->reconnect;
    int64_t deadline = timeout_ms > 0 ? connection_clock_ms() + timeout_ms : 0;
    struct failure why;
    int left = timeout_ms, r;

    late_drop(reconnect, false);
    for (;;) {
        if (front->final.code < 0)
            return failure_set(front->handle.failure, front->final.code, "%s", front->final.text);
        if (reconnect->now) {
            r = job_take(reconnect->now, left, batch_p);
            if (r != -EPIPE || !connection_is_gone(reconnect->now->connection))
                return r;
            r = front_lose(front);
        } else {
            r = front_find(front, &why);
            if (r == -EAGAIN)
                r = front_wait(front, timeout_ms, deadline, &why);
            left = time_left(timeout_ms, deadline);
        }
        if (r < 0)
            return r;
    }
}

void reconnect_want_fd(struct pinclient_job *front)
{
    struct pinclient_job *now = front->reconnect->now;

    front->reconnect->fd_wanted = true;
    if (!now)
        return;
    now->fd_wanted = true;
    job_tell_ahead(now);
}

int reconnect_token(const struct pinclient_job *front, char *text, size_t *size_p)
{
    const struct reconnect *reconnect = front->reconnect;
    size_t room = *size_p;

    if (reconnect->now)
        return pinclient_job_token(reconnect->now, text, size_p);
    if (!reconnect->token)
        return failure_set(front->handle.failure, -ENOMEM, "there was no memory for the token");
    *size_p = strlen(reconnect->token) + 1;
    if (*size_p > room)
        return failure_set(front->handle.failure, -ENOSPC,
                           "a token needs %zu bytes, and there are %zu", *size_p, room);
    memcpy(text, reconnect->token, *size_p);
    return 0;
}

void reconnect_info(const struct pinclient_job *front, struct pinclient_job_info *info_p)
{
    const struct reconnect *reconnect = front->reconnect;

    *info_p = reconnect->now ? reconnect->now->info : reconnect->info;
    info_p->device = reconnect->device;
}

void reconnect_close(struct pinclient_job *front)
{
    struct reconnect *reconnect = front->reconnect;

    seek_stop(steal_ptr(reconnect->seek));
    pthread_mutex_lock(front->calls);
    late_drop(reconnect, true);
    pthread_mutex_unlock(front->calls);
    if (reconnect->now)
        pinclient_job_close(steal_ptr(reconnect->now));
    job_unref(front, false);
}

void reconnect_close_fds(struct pinclient_job *front)
{
    struct reconnect *reconnect = front->reconnect;

    seek_close_fds(reconnect->seek);
    if (reconnect->now)
        job_close_fds(reconnect->now);
}
