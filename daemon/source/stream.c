/*
 * Streams: what readers read next. First what workers wait for, then the
 * batches that come after, as long as storage is cold.
 */
#include <stdlib.h>

#include "source/reader_private.h"

#define AHEAD_SAMPLES_MAX 4096 /* pending in a stream's batches without an owner */
#define TYPICAL_START ((uint64_t)128 << 10)

static struct cursor cursor_next(const struct stream *stream, struct cursor at)
{
    if (at.step + 1 >= stream->steps)
        return (struct cursor){.epoch = at.epoch + 1};
    return (struct cursor){.epoch = at.epoch, .step = at.step + 1};
}

/* -- what is read next ----------------------------------------------------------------------- */

static bool stream_may_read(const struct stream *stream)
{
    return stream->reading < (stream->readers->max + 1) / 2;
}

static bool stream_has_queued(const struct stream *stream)
{
    return stream_may_read(stream) && !stream->full && !list_empty(&stream->queued);
}

/* The batch that is being read ahead, if there is more of it to read. */
static struct intake *stream_front(const struct stream *stream)
{
    if (list_empty(&stream->ahead))
        return NULL;
    struct intake *intake = list_entry(stream->ahead.prev, struct intake, link);
    return intake->asked < intake->count ? intake : NULL;
}

static bool stream_has_ahead(const struct stream *stream)
{
    /* How large a sample is shows when it is opened: some of the share is left for that. */
    uint64_t spare = readers_share(stream->readers) / 8;

    return stream->cold && !stream->stopped && stream->stuck == 0 && stream_may_read(stream) &&
           stream->ahead_pending < AHEAD_SAMPLES_MAX && list_empty(&stream->queued) &&
           stream_fits(stream, stream->typical + spare);
}

bool readers_have(struct readers *readers)
{
    list_for_each(item, &readers->streams)
    {
        const struct stream *stream = list_entry(item, struct stream, link);
        if (stream_has_queued(stream) || stream_has_ahead(stream))
            return true;
    }
    return false;
}

/* The oldest sample that was asked for, if it gets room. */
static struct fetch *stream_take_queued(struct stream *stream)
{
    struct fetch *fetch = list_entry(stream->queued.next, struct fetch, link);

    if (fetch_admit(fetch, fetch->need)) {
        list_remove(&fetch->link);
        return fetch;
    }
    if (fetch->need > readers_share(stream->readers) && stream->held == 0) {
        /* It never fits: whether it is really that large is seen when it is opened. */
        list_remove(&fetch->link);
        return fetch;
    }
    stream->full = true;
    return NULL;
}

static struct fetch *stream_take_ahead(struct stream *stream)
{
    struct intake *intake = stream_front(stream);

    if (!intake) {
        intake = intake_new(stream, stream->tail);
        if (!intake)
            return NULL;
        list_append(&stream->ahead, &intake->link);
        stream->tail = cursor_next(stream, stream->tail);
    }
    struct fetch *fetch = fetch_new(intake, intake->asked);
    if (!fetch)
        return NULL;
    intake->asked++;
    fetch_charge(fetch, fetch->need);
    return fetch;
}

struct fetch *readers_next(struct readers *readers)
{
    struct fetch *fetch = NULL;

    for (int pass = 0; pass < 2 && !fetch; pass++) {
        list_for_each_safe(item, &readers->streams)
        {
            struct stream *stream = list_entry(item, struct stream, link);
            if (pass == 0 && stream_has_queued(stream))
                fetch = stream_take_queued(stream);
            else if (pass == 1 && stream_has_ahead(stream))
                fetch = stream_take_ahead(stream);
            if (!fetch)
                continue;
            stream->reading++;
            list_remove(&stream->link);
            list_append(&readers->streams, &stream->link);
            fetch->state = FETCH_READING;
            fetch->since = readers_now();
            break;
        }
    }
    return fetch;
}

/* -- streams --------------------------------------------------------------------------------- */

struct stream *stream_new(struct readers *readers, struct source *source, const struct order *order,
                          void (*ready)(void *user), void *user)
{
    struct stream *stream = calloc(1, sizeof *stream);

    if (!stream)
        return NULL;
    *stream = (struct stream){.readers = readers,
                              .source = source_ref(source),
                              .order = *order,
                              .steps = order_steps(order),
                              .ready = ready,
                              .user = user,
                              .refs = 1,
                              .typical = TYPICAL_START};
    list_init(&stream->queued);
    list_init(&stream->ahead);
    pthread_mutex_lock(&readers->lock);
    readers->n_streams++;
    /* Each has a smaller share now. */
    list_for_each(item, &readers->streams)
    {
        struct stream *other = list_entry(item, struct stream, link);
        while (other->held > readers_share(readers) && stream_evict(other))
            ;
    }
    list_append(&readers->streams, &stream->link);
    readers_unlock(readers);
    return stream;
}

struct stream *stream_put(struct stream *stream)
{
    if (--stream->refs > 0)
        return NULL;
    list_remove(&stream->link);
    stream->readers->n_streams--;
    readers_freed(stream->readers);
    return stream;
}

void stream_destroy(struct stream *stream)
{
    if (!stream)
        return;
    source_unref(stream->source);
    free(stream);
}

static void stream_drop_ahead(struct stream *stream)
{
    list_for_each_safe(item, &stream->ahead)
    {
        intake_give_up(list_entry(item, struct intake, link));
    }
}

void stream_stop(struct stream *stream)
{
    struct readers *readers = stream->readers;

    pthread_mutex_lock(&readers->lock);
    stream->stopped = true;
    stream_drop_ahead(stream);
    readers_freed(readers);
    readers_unlock(readers);
}

void stream_close(struct stream *stream)
{
    if (!stream)
        return;
    struct readers *readers = stream->readers;
    stream_stop(stream);
    pthread_mutex_lock(&readers->lock);
    stream = stream_put(stream);
    readers_unlock(readers);
    stream_destroy(stream);
}

struct intake *stream_want(struct stream *stream, struct cursor at, void *owner)
{
    struct readers *readers = stream->readers;
    struct intake *wanted = NULL;

    pthread_mutex_lock(&readers->lock);
    list_for_each_safe(item, &stream->ahead)
    {
        struct intake *intake = list_entry(item, struct intake, link);
        if (cursor_before(at, intake->at))
            break;
        if (cursor_before(intake->at, at)) {
            intake_give_up(intake); /* passed over */
            continue;
        }
        wanted = intake;
        list_remove(&wanted->link);
        stream->ahead_pending -= wanted->pending;
        break;
    }
    if (!wanted)
        wanted = intake_new(stream, at);
    if (wanted)
        wanted->owner = owner;
    if (cursor_before(stream->tail, cursor_next(stream, at)))
        stream->tail = cursor_next(stream, at);
    readers_kick(readers);
    readers_unlock(readers);
    return wanted;
}
