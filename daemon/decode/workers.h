/*
 * Workers: threads bound to one NUMA node that fill slots. At most a few
 * batches are with them at a time; the workers take a batch's samples by an
 * atomic counter, so that all help one batch. They create no threads.
 */
#ifndef PINSERVE_DECODE_WORKERS_H
#define PINSERVE_DECODE_WORKERS_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/order.h"
#include "decode/decode.h"
#include "memory/placement.h"
#include "proto/list.h"
#include "source/reader.h"

/* One batch to fill; zero-initialised. The submitter owns it and keeps it, and what it points to,
 * until done. */
struct work {
    /* Filled in by the submitter. */
    struct source *source;
    const struct pipeline *pipeline;
    const struct layout *layout;
    const struct order *order;
    uint64_t epoch, step;
    uint32_t count;
    uint8_t *slot; /* layout->slot_bytes of it */
    /* Readers fetch what is not in the page cache. NULL: the workers wait for it. */
    struct stream *stream;
    /* Called once, on a worker's thread or in workers_check: post it on, no more. */
    void (*done)(struct work *work);
    /* Called on workers' threads for each sample that is bad, unless order->bad is fail: reason
     * names it. NULL: nobody wants to know. */
    void (*bad)(struct work *work, uint64_t sample, const char *reason);
    void *user;

    atomic_bool cancelled; /* may be set from outside: the rest of the samples is skipped */

    /* Results, once done. failure.code 0: complete; -ECANCELED: cancelled. Of several bad samples
     * the one at the lowest position is told. Times are sums over the samples. */
    struct failure failure;
    uint64_t read_ns, decode_ns;
    _Atomic uint32_t n_bad;           /* samples that are substitutes or blank */
    uint64_t without_end, plain_inks; /* see struct decoder_counts */

    /* The workers' own. */
    struct list link;
    _Atomic uint32_t next; /* first sample that nobody has taken */
    uint32_t failed_at;
    unsigned holders;      /* threads that may touch this */
    struct intake *intake; /* of the stream, until done */
};

struct workers;

/* Starts n threads on the placement's CPUs; topology and placement must outlive them. -errno in
 * words. */
int workers_new(struct topology *topology, const struct placement *placement, unsigned n,
                struct workers **workers_p, struct failure *failure);
/* Every work must be done. Joins the threads. */
void workers_free(struct workers *workers);

unsigned workers_count(const struct workers *workers);
/* Queues a batch, behind those that are there. Never blocks for long. */
void workers_submit(struct workers *workers, struct work *work);

/* A sample of some batch was fetched, or need not be waited for any more: see stream_new. From any
 * thread. */
void workers_wake(struct workers *workers);

/* Looks for a thread that has been in one read for longer than limit_ns: calls stuck(work, sample
 * name, user) once for each and starts a thread in its place, at most a few times. The work's done
 * comes when the read returns. Call about once a second. */
void workers_check(struct workers *workers, uint64_t limit_ns,
                   void (*stuck)(struct work *work, const char *name, void *user), void *user);

#endif
