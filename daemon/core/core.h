/*
 * The core: jobs, feeds, batches, the order of work and what each is charged,
 * as plain state. Events come in as calls, what is to be done goes out as
 * actions; after each event the caller drains core_next_action. No I/O, no
 * clock, no thread: time is an argument, in nanoseconds.
 *
 * A job brings `depth` slots of a pool (opaque numbers given by whoever runs
 * the pools), which batches are decoded into, and has `depth` leases, one a ring
 * slot. Jobs of a tenant that want the same batches are mates: together they
 * are one feed, and a batch that one has decoded, or has decoded now, the
 * others take from its slot. A slot that nobody uses keeps its batch until its
 * job needs it for another; a mate that comes later than that decodes for
 * itself. So nobody waits for a slower mate, and mates at about the same step
 * decode each batch once. A job whose slots are used by mates takes free ones of
 * theirs: there are as many slots as leases, so what one client holds keeps no
 * other waiting.
 *
 *   slot of a job      FREE -> DECODING -> DECODED -> FREE
 *   lease of a job     FREE -> FILLING -> READY -> HANDED -> FREE
 *
 * A slot is DECODED as long as leases use it: wait for it to be copied, have it
 * copied, or (in place) give it to their client. A lease is FILLING from the
 * moment its batch is asked for until the batch is complete where the client
 * reads it; READY until all earlier steps have been handed off and the client
 * has confirmed the ring.
 *
 * Every slot and every lease has a generation that travels with each message
 * about it and changes when it becomes FREE, so that late and duplicate
 * messages are told apart. Late reports from workers and devices are normal
 * and ignored; a wrong release is the client's fault and -EPROTO.
 *
 * An action's pointers are valid until the next event.
 */
#ifndef PINSERVE_CORE_CORE_H
#define PINSERVE_CORE_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "account.h"
#include "order.h"
#include "proto/failure.h"

struct core;

enum delivery {
    DELIVERY_AUTO,
    DELIVERY_FD,
    DELIVERY_IPC,
    DELIVERY_COPY,
    DELIVERY_HOST,
    DELIVERY_MAPPED,
};

/* The client reads the pool's slots themselves: there is no ring. */
static inline bool delivery_in_place(enum delivery delivery)
{
    return delivery == DELIVERY_HOST || delivery == DELIVERY_COPY || delivery == DELIVERY_MAPPED;
}

enum job_state {
    JOB_OPENING, /* indexed, reserved, its ring made and offered */
    JOB_RUNNING,
    JOB_FAILED,  /* told so, or to be told once all earlier steps are delivered */
    JOB_CLOSING, /* no new work; waits for reads, decodes, copies, leases and the ring's end */
};

enum core_action_type {
    CORE_INDEX,        /* job: answer core_job_indexed or core_job_refused */
    CORE_INDEX_CANCEL, /* job: closed or evicted while it was indexed, perhaps both;
                          core_job_refused must still come */
    CORE_RESERVE,      /* job, device, delivery, count slots of bytes each: answer core_job_reserved
                          or core_job_refused. In place, a client is to map them. Once more when
                          the job leaves rings for `copy`: the slots before were given back */
    CORE_RING_MAKE,    /* job, device, ring, delivery (a rung: fd or ipc), bytes: answer
                          core_ring_made or core_ring_failed */
    CORE_RING_FREE,    /* job, device, ring: no client can read it any more. Not said of a ring that
                          was lost with its device's process: there is nothing to free */
    CORE_JOB_READY,    /* job, ring, delivery, why, bytes of the ring: tell the client, once; ring 0
                          in place */
    CORE_RING_REPLACED, /* job, ring, delivery, why, bytes: tell the client. Also when it could not
                           open the ring before it, and this one is of the next rung; ring 0: no
                           ring any more, but delivery `copy` */
    CORE_DECODE,        /* feed, slot, generation, memory, epoch, step, count: answer
                           core_decoded exactly once, or late. Of a job that is pushed, the client
                           is to fill the slot */
    CORE_DECODE_CANCEL, /* feed, slot, generation: its result is not wanted; core_decoded must
                           still come */
    CORE_COPY,          /* job, device, ring, lease, generation, memory, bytes: copy memory to the
                           ring slot `lease`; answer core_copied */
    CORE_BATCH_READY,   /* job, lease, generation, memory, ring (0: in place), epoch, step, count */
    CORE_EPOCH_END,     /* job, epoch */
    CORE_JOB_FAILED,    /* job, failure */
    CORE_SLOT_FREE,     /* feed, memory: give the slot back to its pool */
    CORE_JOB_GONE,      /* job: ended, nothing refers to it any more */
};

struct core_action {
    enum core_action_type type;
    uint64_t job;
    uint64_t feed;
    uint32_t device;
    uint32_t ring;
    enum delivery delivery;
    const char *why; /* of the rung */
    uint32_t pool;   /* the device whose pool memory is of: not always that of the job */
    uint32_t slot;   /* of the feed */
    uint32_t lease;  /* of the job */
    uint32_t generation;
    uint64_t memory; /* of the slot, as core_job_reserved gave it */
    uint64_t epoch, step;
    uint32_t count;
    bool lent;      /* DECODE: for a mate, so core_gathered is no answer */
    uint64_t asker; /* DECODE: that mate, or the job itself */
    uint64_t bytes;
    const struct failure *failure;
};

/* How many bad samples a job endures in an epoch, from its start on. */
struct core_bad_limit {
    bool has;
    uint64_t samples;   /* unless */
    uint32_t share_ppm; /* is not 0: of the rank's samples of an epoch, rounded down */
};

struct core_job_spec {
    struct order order;     /* samples still 0: comes with core_job_indexed */
    uint32_t depth;         /* 1 .. DEPTH_MAX */
    uint32_t device;        /* as core_device_add gave it */
    enum delivery delivery; /* asked for */
    struct core_bad_limit bad_limit;
    struct cursor start; /* unless has_token */
    bool live;           /* start where the furthest of its mates is, if it has any */
    bool has_token;
    struct order_token token; /* its strings are copied */
    const char *dataset;      /* as the user wrote it; copied */
    const char *pipeline;     /* canonical text of what decides a sample's bytes; copied */
    bool client_fd, client_ipc, client_copy, client_mapped; /* what the client can take */
    bool client_coherent; /* its GPU shares the host's memory: auto is `mapped` */
    const char *no_ring;  /* why this job can have no ring; static. NULL: it can */
    bool pushed; /* its client fills its slots, not the workers. What is in them cannot be made
                    again: with a ring that is lost, the job fails */
};

struct core_dataset {
    uint64_t samples;
    uint64_t identity; /* of the data: jobs with the same may be mates. 0: none may */
    uint64_t fingerprint;
    uint64_t slot_bytes; /* a multiple of SLOT_ALIGN */
};

struct core_device_spec {
    bool has_ring;  /* false: host */
    bool allow_ipc; /* device.ipc */
    bool rings_off; /* device.rings = off: no process of it is wanted */
    uint32_t numa;  /* workers' index: devices with the same one share workers */
};

/* Sums of nanoseconds; means are taken by the reader. */
struct core_stages {
    uint64_t samples, batches;
    uint64_t read_ns, decode_ns;             /* a sample */
    uint64_t slot_wait_ns, copy_ns, hold_ns; /* a batch */
};

/* What pinctl shows of a job. */
struct core_job_info {
    uint64_t id, feed;
    uint32_t mates;  /* jobs that it shares batches with */
    uint64_t shared; /* batches that a mate had decoded */
    enum job_state state;
    const char *state_text; /* "opening", "running", ... ; static */
    bool ended;             /* it will ask for nothing any more */
    enum delivery delivery; /* in force; auto while opening */
    const char *why;
    struct cursor next;  /* to be handed off */
    struct cursor start; /* where it began */
    struct order order;
    const char *dataset, *pipeline;
    uint64_t fingerprint;
    uint64_t steps;
    uint64_t slot_bytes;
    uint32_t depth, device;
    uint32_t ready, leased;      /* leases READY or HANDED; HANDED */
    uint32_t ring;               /* 0: none */
    uint64_t ring_bytes;         /* charged, old rings too */
    uint64_t bad;                /* samples, of batches released before it is closed */
    uint64_t delivered, starved; /* starved: not known with delivery copy, 0 */
    struct core_stages stages;
    const struct failure *failure; /* code 0: none */
};

/* batches_per_numa: with the workers of one NUMA node at a time. */
struct core *core_new(struct accounts *accounts, uint32_t batches_per_numa);
/* Frees the core; returns how many jobs were left, which is 0 after an orderly end. */
unsigned core_free(struct core *core);

/* Devices are added at start (or on the way) and never taken out. Returns the number. */
int core_device_add(struct core *core, const struct core_device_spec *spec, uint32_t *device_p);

/* Takes the oldest action; false when there is none. */
bool core_next_action(struct core *core, struct core_action *action_p);

/* -- jobs: events from control ------------------------------------------------------------- */

/* Registers a job of tenant, on behalf of peer (any number). -EINVAL, -EDQUOT, -EOPNOTSUPP in
 * words; on success the job is OPENING and CORE_INDEX follows. */
int core_job_open(struct core *core, struct account *tenant, uint64_t peer,
                  const struct core_job_spec *spec, uint64_t now, uint64_t *job_p,
                  struct failure *failure);

/* The client closes it: -EPROTO when there is no such job of this peer, or when it is closed. */
int core_job_close(struct core *core, uint64_t peer, uint64_t job, uint64_t now);

/* An operator ends it: it fails now, with what was not handed off yet. -ENOENT: no such job;
 * -EALREADY: it has failed, is closed, or takes nothing any more. */
int core_job_evict(struct core *core, uint64_t job, const struct failure *failure, uint64_t now);

/* The client could, or could not, open the ring that was offered. -EPROTO: no such ring on offer.
 */
int core_ring_opened(struct core *core, uint64_t peer, uint64_t job, uint32_t ring, bool ok,
                     const char *error, uint64_t now);

/* The client has no mapping of the ring any more, or will not open the one that was offered. A job
 * whose ring in use is closed is handed nothing any more; it waits to be closed. -EPROTO: no such
 * ring, it is closed already, or leases in it are still held. */
int core_ring_closed(struct core *core, uint64_t peer, uint64_t job, uint32_t ring, uint64_t now);

/* The client gives a lease back. -EPROTO: no such lease, or another generation. */
int core_release(struct core *core, uint64_t peer, uint64_t job, uint32_t lease,
                 uint32_t generation, uint64_t now);

/* The peer's socket is closed: no message to it any more, its jobs close, but what it leases or
 * maps stays until the process is gone. */
void core_peer_gone(struct core *core, uint64_t peer, uint64_t now);

/* The peer's process is gone (after core_peer_gone): its leases and mappings are, too. */
void core_peer_dead(struct core *core, uint64_t peer, uint64_t now);

/* -- jobs: answers to actions -------------------------------------------------------------- */

void core_job_indexed(struct core *core, uint64_t job, const struct core_dataset *dataset,
                      uint64_t now);
/* memory: one number a slot, spec.depth of them. Ownership passes to the core until
 * CORE_SLOT_FREE, which also comes when the job was closed meanwhile. */
void core_job_reserved(struct core *core, uint64_t job, const uint64_t *memory, uint64_t now);
/* Indexing or reserving failed (or was cancelled). */
void core_job_refused(struct core *core, uint64_t job, const struct failure *failure, uint64_t now);
void core_ring_made(struct core *core, uint64_t job, uint32_t ring, uint64_t now);
/* try_next: the next rung may work (auto takes it); false: the job fails. */
void core_ring_failed(struct core *core, uint64_t job, uint32_t ring, bool try_next,
                      const struct failure *failure, uint64_t now);

/* -- batches ------------------------------------------------------------------------------- */

/* The workers are done with a slot. failure NULL: the batch is complete; bad of its samples are
 * substitutes or blank. When it is to be handed off and there are more than the job's limit in the
 * epoch, the job fails instead. read_ns and decode_ns are sums over its samples. */
void core_decoded(struct core *core, uint64_t feed, uint32_t slot, uint32_t generation,
                  const struct failure *failure, uint32_t bad, uint64_t read_ns, uint64_t decode_ns,
                  uint64_t now);

/* As core_decoded without a failure, of a batch that is not in the slot as mates would need it:
 * they decode for themselves. */
void core_gathered(struct core *core, uint64_t feed, uint32_t slot, uint32_t generation,
                   uint64_t now);

/* As core_decoded, of a slot that the client filled with count samples: at most those that were
 * asked for. */
void core_pushed(struct core *core, uint64_t feed, uint32_t slot, uint32_t generation,
                 uint32_t count, const struct failure *failure, uint64_t now);

/* A read of the slot hangs: its job fails now, the slot stays until core_decoded. */
void core_stuck(struct core *core, uint64_t feed, uint32_t slot, uint32_t generation,
                const struct failure *failure, uint64_t now);

/* A copy has ended; failure NULL: the bytes are there. */
void core_copied(struct core *core, uint64_t job, uint32_t ring, uint32_t lease,
                 uint32_t generation, const struct failure *failure, uint64_t now);

/* -- devices ------------------------------------------------------------------------------- */

/* The device's process is gone, and with it every copy under way and every ring that was not
 * opened by a client. Its jobs get a new ring and go on at the same step; after
 * CORE_DEVICE_RESTARTS_MAX losses without a delivered batch between, they fail with failure. */
#define CORE_DEVICE_RESTARTS_MAX 3
void core_device_lost(struct core *core, uint32_t device, const struct failure *failure,
                      uint64_t now);

/* The device's process cannot be had: rings that it was to make will not be, by no rung. Jobs that
 * may go on by `copy`, the others fail with failure. */
void core_device_refused(struct core *core, uint32_t device, const struct failure *failure,
                         uint64_t now);

/* -- looking ------------------------------------------------------------------------------- */

/* Jobs in the order of their opening: fills info of the first whose id is at least *job_p; false
 * when there is none. */
bool core_job_next(const struct core *core, uint64_t job, struct core_job_info *info_p);
bool core_job_find(const struct core *core, uint64_t job, struct core_job_info *info_p);
uint32_t core_device_jobs(const struct core *core, uint32_t device);
uint64_t core_device_ring_bytes(const struct core *core, uint32_t device);
/* Over all jobs since the core was made. */
void core_totals(const struct core *core, struct core_stages *stages_p, uint64_t *bytes_p,
                 uint64_t *opened_p, uint64_t *failed_p);
/* The bad of all jobs since the core was made. */
uint64_t core_total_bad(const struct core *core);

/* Walks all state and checks it against itself: slots in one state and each accounted for, leases'
 * batches where they should be, steps in order, accounts equal to the sum of their objects. 0, or
 * -EINVAL with what is wrong. For the simulation and debugging. */
int core_check(const struct core *core, struct failure *failure);

#endif
