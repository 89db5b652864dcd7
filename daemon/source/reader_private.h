/*
 * What reader.c (threads), stream.c (what they read next) and intake.c (what they
 * have read) share. One lock, of the readers, guards all of it but for the counts
 * that workers look at; it is never held during a read or a call of ready.
 */
#ifndef PINSERVE_SOURCE_READER_PRIVATE_H
#define PINSERVE_SOURCE_READER_PRIVATE_H

#include <pthread.h>
#include <sched.h>

#include "proto/list.h"
#include "source/reader.h"

enum fetch_state { FETCH_QUEUED, FETCH_READING, FETCH_READY };

/* One sample, from when a reader is asked for it until it is taken or dropped. */
struct fetch {
    struct list link;      /* QUEUED: in stream->queued; READY: in intake->ready */
    struct list in_intake; /* in intake->fetches */
    struct intake *intake;
    enum fetch_state state;
    bool dropped; /* while READING: not wanted any more */
    bool refused; /* its bytes did not fit into the room */
    uint32_t position;
    uint64_t index; /* of the sample */
    uint64_t since; /* ns: when it was asked for; while READING: when that began */
    uint64_t room;  /* bytes charged for it */
    uint64_t need;  /* bytes: what it is expected to be charged */
    struct sample sample;
    struct taken taken;      /* once READY */
    struct failure *failure; /* owned; when taken.code is < 0 */
};

struct intake {
    struct list link; /* in stream->ahead, in order, while it has no owner; else in none */
    struct stream *stream;
    struct cursor at;
    void *owner; /* NULL: read ahead, or given up */
    uint32_t count, asked, limit;
    _Atomic uint32_t pending, n_ready;
    struct list fetches; /* all that are pending */
    struct list ready;
    bool dead; /* given up: goes with its last read */
    bool told; /* as stuck */
};

struct stream {
    struct list link; /* in readers->streams */
    struct readers *readers;
    struct source *source;
    struct order order;
    uint64_t steps;
    void (*ready)(void *user);
    void *user;
    unsigned refs; /* whoever opened it, and its intakes */
    bool cold;     /* samples were not in the page cache of late */
    bool stopped;
    bool full;          /* what is queued does not fit: waits until some room is given back */
    unsigned warm;      /* samples read ahead that were in the page cache, in a row */
    struct list queued; /* fetches that were asked for, and no reader has taken */
    struct list ahead;  /* intakes */
    uint64_t ahead_pending;
    struct cursor tail; /* the batch after the last wanted or read ahead */
    unsigned reading, stuck;
    uint64_t held;    /* bytes of room */
    uint64_t typical; /* bytes of a sample, of late */
};

enum reader_state { READER_ABSENT, READER_RUNNING, READER_ENDED };

struct reader {
    struct readers *readers;
    pthread_t thread;
    enum reader_state state;
    struct fetch *fetch; /* in whose read it is */
    bool stuck;
};

struct readers {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    cpu_set_t
        cpus; /* of whoever made this: readers go where the process may, not where workers do */
    unsigned max, places;
    unsigned running, idle, stuck, reading;
    unsigned wakeups; /* of idle threads, meant and not taken yet */
    unsigned signals; /* of these, to be sent with readers_unlock */
    bool ending;
    uint64_t room, used; /* bytes */
    struct list streams; /* the one whose turn it is first */
    unsigned n_streams;
    struct reader reader[]; /* places */
};

/* reader.c ------------------------------------------------------------------------------------- */

uint64_t readers_now(void);
void readers_unlock(struct readers *readers);
/* Wakes or starts a reader when there is something for it. Lock held. */
void readers_kick(struct readers *readers);

/* stream.c, with the lock held ------------------------------------------------------------------
 */

/* Whether readers_next would find something. */
bool readers_have(struct readers *readers);
/* The sample to be read next, now READING; NULL: none. */
struct fetch *readers_next(struct readers *readers);
/* One reference less; the stream to be destroyed without the lock, or NULL. */
struct stream *stream_put(struct stream *stream);
/* Without the lock; NULL is allowed. */
void stream_destroy(struct stream *stream);

/* intake.c, with the lock held ------------------------------------------------------------------
 */

/* Each stream's. */
uint64_t readers_share(const struct readers *readers);
/* Some room was given back, or a read is over: who waited for it may go on. */
void readers_freed(struct readers *readers);
bool stream_fits(const struct stream *stream, uint64_t more);
/* Gives up the bytes of the sample that is furthest ahead. false: there is none. */
bool stream_evict(struct stream *stream);
/* Charges bytes in all for a sample. */
void fetch_charge(struct fetch *fetch, uint64_t bytes);
/* The same if they fit, for one that is waited for also at the cost of what is further ahead. */
bool fetch_admit(struct fetch *fetch, uint64_t bytes);
/* Makes a sample pending. NULL: no memory. */
struct fetch *fetch_new(struct intake *intake, uint32_t position);
/* A read is over. failure_consume: why, if code < 0 and there was memory for it. When this returns
 * true the stream's ready is to be called, without the lock; *gone_p, if it is set, is to be
 * destroyed so. */
bool fetch_end(struct fetch *fetch, int code, uint64_t read_ns, bool warm,
               struct failure *failure_consume, struct stream **gone_p);
struct intake *intake_new(struct stream *stream, struct cursor at);
/* Gives up what was read ahead for a batch. The caller holds a reference of the stream. */
void intake_give_up(struct intake *intake);

#endif
