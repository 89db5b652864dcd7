/*
 * Readers: threads that fetch samples' bytes from storage, many at a time and
 * ahead of the workers. There is none until a worker finds a sample that is not
 * in the page cache; one without work for a while ends.
 *
 * A stream is what is read for one job, in its order; an intake holds the
 * samples of one batch that readers fetch. While a stream is cold (samples were
 * not in the page cache of late) readers go on to the batches after those that
 * the workers have. Bytes that are read and not taken yet are bounded over all
 * streams, with an equal share for each.
 *
 * A fetched sample is taken from its intake by a worker, together with its
 * memory. Every function may be called from any thread.
 */
#ifndef PINSERVE_SOURCE_READER_H
#define PINSERVE_SOURCE_READER_H

#include "core/order.h"
#include "source/source.h"

#define INTAKE_PENDING_MAX 4096 /* of one intake: a worker asks for no more */

struct readers;
struct stream;
struct intake;

/* At most `threads` threads (each stream has at most half of them) and `ahead` bytes. */
int readers_new(unsigned threads, uint64_t ahead, struct readers **readers_p,
                struct failure *failure);
/* Every stream must be closed. Waits for reads that are under way. */
void readers_free(struct readers *readers);

struct readers_info {
    unsigned threads, stuck; /* that there are; of these */
    unsigned reading;        /* in a read */
    unsigned streams;        /* also closed ones that a read still holds */
    uint64_t bytes;          /* of room that is taken */
};
void readers_info_get(struct readers *readers, struct readers_info *info_p);

/* Looks for threads that have been in one read for longer than limit_ns: each gets another one in
 * its place, at most half as many as there may be threads, and its stream reads no further ahead.
 * Calls stuck(owner, sample name, user), once for each intake that has an owner. Call about once a
 * second, from the thread that frees owners. */
void readers_check(struct readers *readers, uint64_t limit_ns,
                   void (*stuck)(void *owner, const char *name, void *user), void *user);

/* order is copied. ready(user) is called from readers' threads whenever an intake with an owner has
 * one sample more or one pending less. NULL: no memory. */
struct stream *stream_new(struct readers *readers, struct source *source, const struct order *order,
                          void (*ready)(void *user), void *user);
/* Reads no further ahead and drops what was. */
void stream_stop(struct stream *stream);
/* Goes once every intake is freed and the reads under way are back. */
void stream_close(struct stream *stream);

/* The batch at `at` goes to the workers: what is fetched of it already, or an empty intake. NULL:
 * no memory. Not NULL: intake_free it. */
struct intake *stream_want(struct stream *stream, struct cursor at, void *owner);
/* Nothing may be pending. */
void intake_free(struct intake *intake);

/* The first position that no reader was asked for, when it was wanted; from there on the owner asks
 * itself. */
uint32_t intake_asked(const struct intake *intake);
/* Samples that were asked for and not taken; those of them that can be taken at once. */
uint32_t intake_pending(const struct intake *intake);
uint32_t intake_ready(const struct intake *intake);

/* Asks readers for the sample at a position, which is not in the page cache: from now on it is
 * pending, unless intake_limit says that it is not wanted. -EAGAIN: nobody can read it, the caller
 * has to. */
int intake_ask(struct intake *intake, uint32_t position);

enum taken_how {
    TAKEN_BYTES, /* code 0: its bytes are in the sample; else failure says why not */
    TAKEN_TRY,   /* its bytes were given up, but may be in the page cache */
    TAKEN_READ,  /* it does not fit into the room: the caller has to read it */
};

struct taken {
    uint32_t position;
    enum taken_how how;
    int code;
    uint64_t read_ns;
};

/* Takes a sample that is ready. sample's own buffer is freed for the one that comes. false: none is
 * ready. */
bool intake_take(struct intake *intake, struct taken *taken_p, struct sample *sample,
                 struct failure *failure);

/* Samples at position `from` and behind are not wanted; what is being read stays pending until it
 * is back. */
void intake_limit(struct intake *intake, uint32_t from);

#endif
