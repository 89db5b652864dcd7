/*
 * The search for a daemon that is gone. The thread and the caller each hold the
 * search; the thread alone holds the job that it opens until it hands it over.
 * It takes no signals, and ends by itself: nobody has to wait for it.
 */
#include "seek.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "proto/cleanup.h"

/* Between attempts: doubled from the first to the last. */
#define PAUSE_FIRST_MS 10
#define PAUSE_LAST_MS 500
/* What a daemon or its predecessor on its way out lacks for a moment: how long it may. */
#define SCARCE_MS 5000
/* How long the end waits for the thread. */
#define STOP_MS 1000

struct seek {
    char *socket;
    struct pinclient_spec *spec;
    int ended_fd, stop_fd; /* eventfds: the thread's, and the caller's to it */

    pthread_mutex_t lock; /* guards all below */
    unsigned holders;
    bool stopped, ended;
    struct pinclient_job *job;
    struct failure failure; /* of the last attempt; final once the search has ended */
};

static void seek_unref(struct seek *seek)
{
    pthread_mutex_lock(&seek->lock);
    bool last = --seek->holders == 0;
    pthread_mutex_unlock(&seek->lock);

    if (!last)
        return;
    pthread_mutex_destroy(&seek->lock);
    close_fd(&seek->ended_fd);
    close_fd(&seek->stop_fd);
    pinclient_spec_free(seek->spec);
    free(seek->socket);
    free(seek);
}

static void event_set(int fd)
{
    uint64_t one = 1;

    if (write(fd, &one, sizeof one) < 0) {
        /* It is readable already. */
    }
}

/* -- the thread ------------------------------------------------------------------------------ */

/* Whether the search was stopped within so many milliseconds, or until something can be read. */
static bool seek_wait(const struct seek *seek, int fd, int timeout_ms)
{
    struct pollfd fds[] = {{.fd = seek->stop_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};

    return poll(fds, 2, timeout_ms) > 0 && fds[0].revents;
}

static int seek_await_ready(const struct seek *seek, struct pinclient_job *job,
                            struct failure *failure)
{
    struct wire_packet packet = WIRE_PACKET_INIT;
    int r = 0;

    while (r == 0) {
        r = connection_receive(job->connection, MSG_DONTWAIT, &packet, failure);
        if (r == -EAGAIN || r == -EINTR) {
            r = 0;
            if (seek_wait(seek, connection_socket(job->connection), -1))
                r = failure_set(failure, -ECANCELED, "the job is being closed");
        } else if (r == 0) {
            r = job_opening_event(job, &packet, failure);
            wire_packet_deinit(&packet);
        }
    }
    return r < 0 ? r : 0;
}

/* May pass while a daemon starts or ends, or once what another one left is gone. */
static bool is_scarce(int code, bool connected)
{
    switch (code) {
    case -ENOMEM:
    case -EDQUOT:
    case -EMFILE:
    case -ENFILE:
    case -ENOBUFS:
    case -ETOOMANYREFS:
    case -ESHUTDOWN: /* of a daemon that is ending; or of a device, for longer */
        return true;
    case -EACCES: /* a socket gets its mode behind its name */
        return !connected;
    default:
        return false;
    }
}

static bool is_absent(int code, bool connected)
{
    switch (code) {
    case -EPIPE:
    case -ECONNRESET:
    case -ETIMEDOUT:
        return true;
    case -ENOENT:
    case -ECONNREFUSED:
    case -EAGAIN:
        return !connected;
    default:
        return false;
    }
}

/* One attempt. *job_p, with its device, is kept as long as it has no connection. */
static int seek_try(const struct seek *seek, struct pinclient_job **job_p, struct failure *failure)
{
    struct pinclient_job *job = *job_p;
    int r = 0;

    if (!job) {
        job = *job_p = job_new(failure);
        r = job ? job_open_device(job, seek->spec, failure) : -ENOMEM;
    }
    if (r == 0)
        r = job_connect(job, seek->socket, failure);
    if (r == 0)
        r = job_ask(job, seek->spec, failure);
    if (r == 0)
        r = seek_await_ready(seek, job, failure);
    return r;
}

static void job_drop(struct pinclient_job *job)
{
    if (job && job->info.id != 0 && !connection_is_gone(job->connection))
        job_say_close(job);
    if (job)
        job_unref(job, false);
}

/* Tries until it went well, or never will. */
static int seek_run(struct seek *seek, struct pinclient_job **job_p)
{
    struct failure failure = {.code = 0};
    int64_t scarce_since = 0;
    int pause = PAUSE_FIRST_MS;

    for (;;) {
        int r = seek_try(seek, job_p, &failure);
        if (r == 0)
            return 0;
        bool connected = *job_p && (*job_p)->connection;
        bool again = is_absent(r, connected);
        if (!again && is_scarce(r, connected)) {
            if (scarce_since == 0)
                scarce_since = connection_clock_ms();
            again = connection_clock_ms() - scarce_since < SCARCE_MS;
        }
        if (connected || !again)
            job_drop(steal_ptr(*job_p));
        pthread_mutex_lock(&seek->lock);
        if (again)
            seek->failure = failure;
        else
            failure_set(&seek->failure, r, "after reconnecting: %s", failure.text);
        pthread_mutex_unlock(&seek->lock);
        if (!again || seek_wait(seek, -1, pause))
            return r;
        pause = pause * 2 < PAUSE_LAST_MS ? pause * 2 : PAUSE_LAST_MS;
    }
}

static void *seek_thread(void *argument)
{
    struct seek *seek = argument;
    struct pinclient_job *job = NULL;
    int r = seek_run(seek, &job);

    pthread_mutex_lock(&seek->lock);
    seek->ended = true;
    if (r == 0 && !seek->stopped)
        seek->job = steal_ptr(job);
    pthread_mutex_unlock(&seek->lock);
    job_drop(job);
    event_set(seek->ended_fd);
    seek_unref(seek);
    return NULL;
}

static int thread_start(struct seek *seek)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;

    sigfillset(&all);
    int r = pthread_attr_init(&attributes);
    if (r != 0)
        return -r;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&thread, &attributes, seek_thread, seek);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -r;
}

/* -- the caller ------------------------------------------------------------------------------ */

int seek_start(const char *socket, struct pinclient_spec *spec_consume, struct seek **seek_p,
               struct failure *failure)
{
    struct seek *seek = calloc(1, sizeof *seek);

    if (!seek) {
        pinclient_spec_free(spec_consume);
        return failure_set(failure, -ENOMEM, "no memory to reconnect");
    }
    pthread_mutex_init(&seek->lock, NULL);
    seek->holders = 1;
    seek->spec = spec_consume;
    seek->socket = strdup(socket);
    seek->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    seek->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = seek->socket ? 0 : -ENOMEM;
    if (r == 0 && (seek->ended_fd < 0 || seek->stop_fd < 0))
        r = -errno;
    if (r == 0) {
        seek->holders = 2;
        r = thread_start(seek);
    }
    if (r < 0) {
        failure_set(failure, -ENOMEM, "no thread to reconnect: %s", strerror(-r));
        seek->holders = 1;
        seek_unref(seek);
        return -ENOMEM;
    }
    *seek_p = seek;
    return 0;
}

int seek_fd(const struct seek *seek)
{
    return seek->ended_fd;
}

int seek_result(struct seek *seek, struct pinclient_job **job_p, struct failure *why)
{
    int r = -EAGAIN;

    pthread_mutex_lock(&seek->lock);
    *why = seek->failure;
    if (seek->ended && seek->job) {
        *job_p = steal_ptr(seek->job);
        r = 0;
    } else if (seek->ended) {
        r = why->code;
    }
    pthread_mutex_unlock(&seek->lock);
    return r;
}

void seek_stop(struct seek *seek)
{
    if (!seek)
        return;
    struct pollfd pollfd = {.fd = seek->ended_fd, .events = POLLIN};
    pthread_mutex_lock(&seek->lock);
    seek->stopped = true;
    struct pinclient_job *job = steal_ptr(seek->job);
    pthread_mutex_unlock(&seek->lock);
    event_set(seek->stop_fd);
    job_drop(job);
    poll(&pollfd, 1, STOP_MS);
    seek_unref(seek);
}

void seek_close_fds(struct seek *seek)
{
    if (!seek)
        return;
    close_fd(&seek->ended_fd);
    close_fd(&seek->stop_fd);
}
