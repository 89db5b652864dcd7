/*
 * The readers' threads. One is woken or started whenever there is something to
 * read; whoever takes a sample sees to the next thread, so that as many read at
 * a time as have something to read. A thread that is stuck in a read is not
 * counted: another may be started in its place.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "source/reader_private.h"

#define IDLE_S 10 /* then a thread without work ends */
#define STACK_BYTES ((size_t)1 << 20)

uint64_t readers_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void readers_signal(struct readers *readers, unsigned n)
{
    for (; n > 0; n--)
        pthread_cond_signal(&readers->wake);
}

void readers_unlock(struct readers *readers)
{
    unsigned n = readers->signals;

    readers->signals = 0;
    pthread_mutex_unlock(&readers->lock);
    /* Only now: who is woken wants the lock. */
    readers_signal(readers, n);
}

/* Reads without the lock; it is held before and after. */
static void reader_read(struct reader *reader, struct fetch *fetch)
{
    struct readers *readers = reader->readers;
    struct stream *stream = fetch->intake->stream;
    void (*ready)(void *user) = stream->ready;
    void *user = stream->user;
    struct failure failure = {0};
    struct failure *kept = NULL;
    struct stream *gone = NULL;
    uint64_t began = fetch->since;
    struct sample_key key = {stream->order.seed, fetch->intake->at.epoch,
                             stream->order.shuffle == ORDER_SHUFFLE_FULL};

    reader->fetch = fetch;
    readers->reading++;
    readers_kick(readers);
    readers_unlock(readers);

    int code = source_fetch(stream->source, fetch->index, key, false, &fetch->sample, &failure);
    bool warm = code == 0;
    if (code > 0)
        code = source_fetch(stream->source, fetch->index, key, true, &fetch->sample, &failure);
    if (code < 0 && (kept = malloc(sizeof *kept)))
        *kept = failure;

    pthread_mutex_lock(&readers->lock);
    reader->fetch = NULL;
    readers->reading--;
    if (reader->stuck) {
        reader->stuck = false;
        readers->stuck--;
        stream->stuck--;
    }
    bool tell = fetch_end(fetch, code, readers_now() - began, warm, kept, &gone);
    readers_unlock(readers);
    if (tell)
        ready(user);
    stream_destroy(gone);
    pthread_mutex_lock(&readers->lock);
}

/* Waits for something to do. false: the thread is to end. Lock held before and after. */
static bool reader_sleep(struct readers *readers)
{
    struct timespec until;
    int r = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_S;
    readers->idle++;
    readers_signal(readers, readers->signals);
    readers->signals = 0;
    while (readers->wakeups == 0 && !readers->ending && r == 0)
        r = pthread_cond_timedwait(&readers->wake, &readers->lock, &until);
    readers->idle--;
    if (readers->wakeups > 0) {
        readers->wakeups--;
        return true;
    }
    return !readers->ending && r == 0;
}

static void *reader_run(void *argument)
{
    struct reader *reader = argument;
    struct readers *readers = reader->readers;

    pthread_setname_np(pthread_self(), "pinserve-reader");
    pthread_mutex_lock(&readers->lock);
    /* Those that took the place of stuck ones end when these are back. */
    while (readers->running - readers->stuck <= readers->max) {
        struct fetch *fetch = readers_next(readers);
        if (fetch)
            reader_read(reader, fetch);
        else if (!reader_sleep(readers))
            break;
    }
    readers->running--;
    reader->state = READER_ENDED;
    /* What this one was woken for is another's now. */
    readers_kick(readers);
    readers_unlock(readers);
    return NULL;
}

static int reader_create(struct readers *readers, struct reader *reader)
{
    sigset_t all, before;
    pthread_attr_t attr;

    int error = pthread_attr_init(&attr);
    if (error)
        return -error;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setaffinity_np(&attr, sizeof readers->cpus, &readers->cpus);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&reader->thread, &attr, reader_run, reader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return -error;
}

/* Starts one more thread, if there may be one. Lock held. */
static void readers_start(struct readers *readers)
{
    struct reader *reader = NULL;

    if (readers->ending || readers->running - readers->stuck >= readers->max)
        return;
    for (unsigned i = 0; i < readers->places && !reader; i++) {
        if (readers->reader[i].state != READER_RUNNING)
            reader = &readers->reader[i];
    }
    if (!reader)
        return;
    if (reader->state == READER_ENDED)
        pthread_join(reader->thread, NULL);
    *reader = (struct reader){.readers = readers};
    int r = reader_create(readers, reader);
    if (r < 0) {
        log_warning("no thread more than %u for reading: %s", readers->running, strerror(-r));
        return;
    }
    reader->state = READER_RUNNING;
    readers->running++;
}

void readers_kick(struct readers *readers)
{
    if (!readers_have(readers))
        return;
    if (readers->wakeups < readers->idle) {
        readers->wakeups++;
        readers->signals++;
    } else if (readers->wakeups == 0) {
        readers_start(readers);
    }
}

static int readers_init(struct readers *readers)
{
    pthread_condattr_t attr;

    if (sched_getaffinity(0, sizeof readers->cpus, &readers->cpus) < 0)
        return -errno;
    int error = pthread_condattr_init(&attr);
    if (error)
        return -error;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    error = pthread_cond_init(&readers->wake, &attr);
    pthread_condattr_destroy(&attr);
    return error ? -error : -pthread_mutex_init(&readers->lock, NULL);
}

int readers_new(unsigned threads, uint64_t ahead, struct readers **readers_p,
                struct failure *failure)
{
    unsigned places = threads + (threads + 1) / 2;
    struct readers *readers = calloc(1, sizeof *readers + places * sizeof readers->reader[0]);

    if (!readers)
        return failure_set(failure, -ENOMEM, "no memory for %u readers", threads);
    readers->max = threads;
    readers->places = places;
    readers->room = ahead;
    list_init(&readers->streams);
    int r = readers_init(readers);
    if (r < 0) {
        free(readers);
        return failure_set(failure, r, "no readers: %s", strerror(-r));
    }
    *readers_p = readers;
    return 0;
}

void readers_free(struct readers *readers)
{
    if (!readers)
        return;
    pthread_mutex_lock(&readers->lock);
    readers->ending = true;
    pthread_cond_broadcast(&readers->wake);
    for (unsigned i = 0; i < readers->places; i++) {
        bool any = readers->reader[i].state != READER_ABSENT;
        readers_unlock(readers);
        if (any)
            pthread_join(readers->reader[i].thread, NULL);
        pthread_mutex_lock(&readers->lock);
    }
    readers_unlock(readers);
    pthread_cond_destroy(&readers->wake);
    pthread_mutex_destroy(&readers->lock);
    free(readers);
}

void readers_info_get(struct readers *readers, struct readers_info *info_p)
{
    pthread_mutex_lock(&readers->lock);
    *info_p = (struct readers_info){.threads = readers->running,
                                    .stuck = readers->stuck,
                                    .reading = readers->reading,
                                    .streams = readers->n_streams,
                                    .bytes = readers->used};
    readers_unlock(readers);
}

/* -- stuck reads ----------------------------------------------------------------------------- */

/* Whom to tell that a sample does not come, and its name; NULL: nobody, or told before. */
static void *fetch_stuck(struct fetch *fetch, char *name, size_t size)
{
    struct intake *intake = fetch->intake;

    if (intake->told || fetch->dropped || !intake->owner)
        return NULL;
    intake->told = true;
    source_sample_name(intake->stream->source, fetch->index, name, size);
    return intake->owner;
}

static void reader_set_stuck(struct reader *reader)
{
    if (reader->stuck)
        return;
    reader->stuck = true;
    reader->readers->stuck++;
    reader->fetch->intake->stream->stuck++;
    readers_kick(reader->readers);
}

/* What no thread is left for: all there may be are stuck, in other jobs' reads perhaps. */
static void *readers_waiting(struct readers *readers, uint64_t before, char *name, size_t size)
{
    if (readers->stuck == 0 || readers->stuck < readers->running)
        return NULL;
    list_for_each(item, &readers->streams)
    {
        struct stream *stream = list_entry(item, struct stream, link);
        list_for_each(queued, &stream->queued)
        {
            struct fetch *fetch = list_entry(queued, struct fetch, link);
            void *owner = fetch->since < before ? fetch_stuck(fetch, name, size) : NULL;
            if (owner)
                return owner;
        }
    }
    return NULL;
}

void readers_check(struct readers *readers, uint64_t limit_ns,
                   void (*stuck)(void *owner, const char *name, void *user), void *user)
{
    uint64_t now = readers_now();
    uint64_t before = now > limit_ns ? now - limit_ns : 0;
    char name[FAILURE_TEXT_MAX];
    void *owner;

    pthread_mutex_lock(&readers->lock);
    for (unsigned i = 0; i < readers->places; i++) {
        struct reader *reader = &readers->reader[i];
        if (!reader->fetch || reader->fetch->since >= before)
            continue;
        reader_set_stuck(reader);
        owner = fetch_stuck(reader->fetch, name, sizeof name);
        if (!owner)
            continue;
        readers_unlock(readers);
        stuck(owner, name, user);
        pthread_mutex_lock(&readers->lock);
    }
    while ((owner = readers_waiting(readers, before, name, sizeof name))) {
        readers_unlock(readers);
        stuck(owner, name, user);
        pthread_mutex_lock(&readers->lock);
    }
    readers_unlock(readers);
}
