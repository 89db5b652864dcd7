/*
 * Intakes: the samples of a batch from when a reader is asked for them until
 * they are taken, and the room that their bytes need.
 *
 * A stream may hold its share of the room. What a worker waits for takes room
 * from what the same stream has read ahead, the furthest first; so the oldest
 * sample that is waited for always gets room in the end.
 */
#include <errno.h>
#include <stdlib.h>

#include "source/reader_private.h"

#define WARM_STREAK 256 /* samples found in the page cache that end reading ahead */

/* -- room ------------------------------------------------------------------------------------ */

uint64_t readers_share(const struct readers *readers)
{
    return readers->room / (readers->n_streams > 0 ? readers->n_streams : 1);
}

bool stream_fits(const struct stream *stream, uint64_t more)
{
    const struct readers *readers = stream->readers;

    return stream->held + more <= readers_share(readers) && readers->used + more <= readers->room;
}

void fetch_charge(struct fetch *fetch, uint64_t bytes)
{
    struct stream *stream = fetch->intake->stream;

    stream->held += bytes - fetch->room;
    stream->readers->used += bytes - fetch->room;
    fetch->room = bytes;
}

/* Some room was given back, or a read is over. */
void readers_freed(struct readers *readers)
{
    list_for_each(item, &readers->streams)
    {
        list_entry(item, struct stream, link)->full = false;
    }
    readers_kick(readers);
}

static void fetch_forget_bytes(struct fetch *fetch)
{
    sample_deinit(&fetch->sample);
    fetch_charge(fetch, 0);
}

/* Gives up the bytes of the sample that is furthest ahead. false: there is none. */
bool stream_evict(struct stream *stream)
{
    for (struct list *i = stream->ahead.prev; i != &stream->ahead; i = i->prev) {
        struct intake *intake = list_entry(i, struct intake, link);
        for (struct list *f = intake->fetches.prev; f != &intake->fetches; f = f->prev) {
            struct fetch *fetch = list_entry(f, struct fetch, in_intake);
            if (fetch->state != FETCH_READY || fetch->room == 0)
                continue;
            fetch->taken.how = TAKEN_TRY;
            fetch_forget_bytes(fetch);
            return true;
        }
    }
    return false;
}

/* Charges bytes in all for a sample, if need be at the cost of what is further ahead. */
bool fetch_admit(struct fetch *fetch, uint64_t bytes)
{
    struct stream *stream = fetch->intake->stream;
    bool fits = bytes <= fetch->room;

    while (!fits) {
        fits = stream_fits(stream, bytes - fetch->room);
        if (!fits && (!fetch->intake->owner || !stream_evict(stream)))
            return false;
    }
    fetch_charge(fetch, bytes);
    return true;
}

static int fetch_grow(struct sample *sample, size_t capacity)
{
    struct fetch *fetch = list_entry(sample, struct fetch, sample);
    struct stream *stream = fetch->intake->stream;
    struct readers *readers = stream->readers;

    pthread_mutex_lock(&readers->lock);
    fetch->need = capacity;
    fetch->refused = !fetch_admit(fetch, capacity);
    stream->typical += (uint64_t)((int64_t)(capacity - stream->typical) / 8);
    readers_unlock(readers);
    return fetch->refused ? -ENOBUFS : 0;
}

/* -- samples --------------------------------------------------------------------------------- */

struct fetch *fetch_new(struct intake *intake, uint32_t position)
{
    struct stream *stream = intake->stream;
    struct fetch *fetch = calloc(1, sizeof *fetch);

    if (!fetch)
        return NULL;
    fetch->intake = intake;
    fetch->position = position;
    fetch->index = order_at(&stream->order, intake->at.epoch, intake->at.step, position).sample;
    fetch->need = stream->typical;
    fetch->since = readers_now();
    fetch->sample.grow = fetch_grow;
    list_init(&fetch->link);
    list_append(&intake->fetches, &fetch->in_intake);
    intake->pending++;
    if (!intake->owner)
        stream->ahead_pending++;
    return fetch;
}

/* It is pending no more. */
static void fetch_free(struct fetch *fetch)
{
    struct intake *intake = fetch->intake;

    if (fetch->state == FETCH_READY)
        intake->n_ready--;
    if (!intake->owner && !intake->dead)
        intake->stream->ahead_pending--;
    fetch_forget_bytes(fetch);
    list_remove(&fetch->link);
    list_remove(&fetch->in_intake);
    free(fetch->failure);
    free(fetch);
    intake->pending--;
}

struct intake *intake_new(struct stream *stream, struct cursor at)
{
    struct intake *intake = calloc(1, sizeof *intake);

    if (!intake)
        return NULL;
    stream->refs++;
    intake->stream = stream;
    intake->at = at;
    intake->count = intake->limit = order_count(&stream->order, at.step);
    list_init(&intake->link);
    list_init(&intake->fetches);
    list_init(&intake->ready);
    return intake;
}

static struct stream *intake_destroy(struct intake *intake)
{
    struct stream *stream = intake->stream;

    list_remove(&intake->link);
    free(intake);
    return stream_put(stream);
}

static void intake_drop_from(struct intake *intake, uint32_t from)
{
    if (from < intake->limit)
        intake->limit = from;
    list_for_each_safe(item, &intake->fetches)
    {
        struct fetch *fetch = list_entry(item, struct fetch, in_intake);
        if (fetch->position < from)
            continue;
        if (fetch->state == FETCH_READING)
            fetch->dropped = true;
        else
            fetch_free(fetch);
    }
}

/* Gives up what was read ahead for a batch. The caller holds a reference of the stream. */
void intake_give_up(struct intake *intake)
{
    list_remove(&intake->link);
    intake_drop_from(intake, 0);
    intake->stream->ahead_pending -= intake->pending;
    intake->dead = true;
    if (intake->pending == 0)
        intake_destroy(intake);
}

/* -- reads that are over --------------------------------------------------------------------- */

/* Reading ahead is worth it as long as it finds what is not in the page cache. */
static void stream_note(struct stream *stream, bool warm)
{
    stream->warm = warm ? stream->warm + 1 : 0;
    if (stream->warm >= WARM_STREAK)
        stream->cold = false;
}

static void fetch_ready(struct fetch *fetch, int code, uint64_t read_ns,
                        struct failure *failure_consume)
{
    fetch->taken = (struct taken){.position = fetch->position, .code = code, .read_ns = read_ns};
    fetch->failure = failure_consume;
    if (fetch->refused && fetch->need <= readers_share(fetch->intake->stream->readers))
        fetch->taken.how = TAKEN_TRY;
    else if (fetch->refused || (code < 0 && !failure_consume))
        fetch->taken.how = TAKEN_READ;
    if (code < 0)
        fetch_forget_bytes(fetch);
    else
        fetch_charge(fetch, fetch->sample.capacity);
    fetch->state = FETCH_READY;
    list_append(&fetch->intake->ready, &fetch->link);
    fetch->intake->n_ready++;
}

/* Somebody waits for it, and there will be room. */
static void fetch_again(struct fetch *fetch)
{
    struct stream *stream = fetch->intake->stream;

    fetch_forget_bytes(fetch);
    fetch->sample.grow = fetch_grow;
    fetch->refused = false;
    fetch->state = FETCH_QUEUED;
    list_append(stream->queued.next, &fetch->link);
}

bool fetch_end(struct fetch *fetch, int code, uint64_t read_ns, bool warm,
               struct failure *failure_consume, struct stream **gone_p)
{
    struct intake *intake = fetch->intake;
    struct stream *stream = intake->stream;
    struct readers *readers = stream->readers;
    bool tell = intake->owner != NULL;

    stream->reading--;
    stream_note(stream, warm);
    if (fetch->dropped) {
        free(failure_consume);
        fetch->state = FETCH_QUEUED; /* in no list */
        fetch_free(fetch);
    } else if (fetch->refused && intake->owner && fetch->need <= readers_share(readers)) {
        free(failure_consume);
        fetch_again(fetch);
        tell = false;
    } else {
        fetch_ready(fetch, code, read_ns, failure_consume);
    }
    readers_freed(readers);
    if (intake->dead && intake->pending == 0)
        *gone_p = intake_destroy(intake);
    return tell;
}

/* -- what workers do ------------------------------------------------------------------------- */

void intake_free(struct intake *intake)
{
    if (!intake)
        return;
    struct readers *readers = intake->stream->readers;
    pthread_mutex_lock(&readers->lock);
    struct stream *stream = intake_destroy(intake);
    readers_unlock(readers);
    stream_destroy(stream);
}

uint32_t intake_asked(const struct intake *intake)
{
    return intake->asked;
}

uint32_t intake_pending(const struct intake *intake)
{
    return intake->pending;
}

uint32_t intake_ready(const struct intake *intake)
{
    return intake->n_ready;
}

int intake_ask(struct intake *intake, uint32_t position)
{
    struct stream *stream = intake->stream;
    struct readers *readers = stream->readers;
    struct fetch *fetch;
    int r = 0;

    pthread_mutex_lock(&readers->lock);
    stream->cold = true;
    stream->warm = 0;
    if (position < intake->limit) {
        fetch = fetch_new(intake, position);
        if (fetch) {
            list_append(&stream->queued, &fetch->link);
            readers_kick(readers);
        }
        if (fetch && readers->running == 0) {
            fetch_free(fetch);
            fetch = NULL;
        }
        r = fetch ? 0 : -EAGAIN;
    }
    readers_unlock(readers);
    return r;
}

bool intake_take(struct intake *intake, struct taken *taken_p, struct sample *sample,
                 struct failure *failure)
{
    struct readers *readers = intake->stream->readers;
    uint8_t *old = NULL;

    if (intake->n_ready == 0)
        return false;
    pthread_mutex_lock(&readers->lock);
    bool any = !list_empty(&intake->ready);
    if (any) {
        struct fetch *fetch = list_entry(intake->ready.next, struct fetch, link);
        *taken_p = fetch->taken;
        if (taken_p->how == TAKEN_BYTES && taken_p->code < 0)
            *failure = *fetch->failure;
        if (taken_p->how == TAKEN_BYTES && taken_p->code == 0) {
            old = sample->buffer;
            *sample = fetch->sample;
            sample->grow = NULL;
            fetch->sample = (struct sample){0};
        }
        fetch_free(fetch);
        readers_freed(readers);
    }
    readers_unlock(readers);
    free(old);
    return any;
}

void intake_limit(struct intake *intake, uint32_t from)
{
    struct readers *readers = intake->stream->readers;

    pthread_mutex_lock(&readers->lock);
    intake_drop_from(intake, from);
    readers_freed(readers);
    readers_unlock(readers);
}
