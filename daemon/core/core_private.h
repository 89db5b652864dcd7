/*
 * What the files of the core share. The core owns its jobs; a job owns its
 * slots, its leases and its rings, all of it allocated when the job is opened,
 * so that no event after that can fail for want of memory.
 *
 * A lease knows the slot that it uses and whose that is. A slot knows the lease
 * of its own job that uses it, and how many of mates do. The leases of a job
 * that are asked for and not handed off stand in `pending`, in the order of
 * their steps.
 */
#ifndef PINSERVE_CORE_PRIVATE_H
#define PINSERVE_CORE_PRIVATE_H

#include "core.h"
#include "proto/limits.h"
#include "proto/list.h"

#define NONE UINT32_MAX
#define RINGS_MAX 8 /* of a job: one in use, and old ones that the client has not closed */

enum slot_state {
    SLOT_ABSENT, /* the pool's: not given yet, or given back */
    SLOT_FREE,
    SLOT_DECODING,
    SLOT_DECODED,
};

struct slot {
    enum slot_state state;
    uint32_t generation;
    uint32_t lease;  /* of its job, that uses it; NONE */
    uint32_t others; /* leases of mates that use it. DECODING without any: it is not wanted */
    bool stuck;      /* DECODING, and not counted as with the workers: a read of it hangs, or it is
                        the client that fills it */
    bool whole;      /* FREE, DECODED: the batch `at` is in it */
    struct cursor at;
    uint32_t bad; /* of its samples */
    uint64_t memory;
};

/* What a job brings to its feed. */
struct feed {
    uint64_t id;
    struct cursor ahead; /* the next batch that was never asked for */
    struct slot *slots;
    uint32_t n_slots;
    uint32_t free, held; /* FREE; not ABSENT */
};

enum lease_state { LEASE_FREE, LEASE_FILLING, LEASE_READY, LEASE_HANDED };

struct lease {
    enum lease_state state;
    uint32_t generation;
    struct job *from; /* whose slot */
    uint32_t slot;    /* fills it, or (in place) holds it; NONE */
    uint32_t ring;    /* that its bytes are in or on the way to; 0 */
    bool copying;     /* FILLING, and its slot is read by the device */
    bool dropped;     /* FILLING, not pending: nothing but the end of its copy is waited for */
    struct cursor at;
    uint32_t count;
    uint32_t bad;   /* of its samples */
    uint64_t since; /* of what it is in: wanting a batch, being copied, being held */
};

enum ring_state {
    RING_NONE,
    RING_MAKING,
    RING_OFFERED, /* announced; the client may have mapped it, or not */
    RING_OPEN,    /* mapped by the client */
    RING_CLOSED,  /* no client can read it; copies into it may be under way */
};

struct ring {
    enum ring_state state;
    uint32_t id;
    enum delivery delivery;
    bool lost; /* with its device's process: only the client's mapping is left of it */
    uint32_t copies;
    uint64_t bytes;
    struct charge charge;
};

enum job_wait { WAIT_NOTHING, WAIT_INDEX, WAIT_RESERVE };

struct job {
    struct core *core;
    struct list link; /* in core->gone, once it is */
    uint64_t id, peer;
    bool peer_gone;
    bool touched; /* something of it changed in another job's event: it is to advance */
    struct account *tenant;
    struct charge charge;

    enum job_state state;
    enum job_wait wait;
    bool announced; /* JOB_READY was said: batches are made */
    bool moving;    /* from rings to regions: gives its slots back, to reserve others */
    bool pushed;    /* the client fills its slots */
    bool deaf;      /* the client closed the ring in use: it takes nothing any more */
    bool told;      /* JOB_FAILED was said */
    struct failure failure;
    struct cursor fail_at; /* said when this is next */

    struct order order;
    uint32_t device, depth;
    enum delivery asked, delivery;             /* delivery: in force, or tried */
    const char *refusals[DELIVERY_MAPPED + 1]; /* why it cannot have these; NULL: it can */
    bool coherent;
    char why[FAILURE_TEXT_MAX + 64];
    char *dataset, *pipeline, *token_dataset, *token_pipeline;
    bool has_token;
    struct order_token token;
    uint64_t fingerprint, steps, slot_bytes;
    struct cursor start, next; /* next: to be handed off */
    struct core_bad_limit bad_limit;
    uint64_t bad_max;        /* in an epoch */
    uint64_t bad, bad_epoch; /* released; handed off in the epoch of next */

    uint64_t identity; /* of the data */
    uint64_t group;    /* the same for all mates, and for nobody else */
    uint32_t mates;
    bool missing; /* none of them has the batch `missed`, and none has it decoded */
    struct cursor missed;
    uint32_t debts; /* leases that use slots of mates */
    uint64_t shared;
    bool live;

    struct feed feed;
    struct lease *leases;
    uint32_t *pending; /* leases FILLING or READY in step order: a circle of depth places */
    uint32_t pending_head, pending_count;
    uint32_t free, ready, handed; /* leases in these states */
    uint32_t unfilled;            /* pending, FILLING and without a slot */
    uint64_t served;              /* the core's turn when it was last given the workers */

    struct ring rings[RINGS_MAX];
    struct ring *ring; /* in use, or being made to be; NULL */
    uint32_t losses;   /* of the device, without a delivered batch between */
    uint64_t delivered, starved;
    struct core_stages stages;
};

struct device {
    struct core_device_spec spec;
    uint32_t node; /* index of its NUMA node in core->nodes */
};

struct node {
    uint32_t numa;
    uint32_t busy; /* batches with its workers */
};

struct core {
    struct accounts *accounts;
    uint32_t batches_per_numa;
    struct device *devices;
    struct node *nodes;
    uint32_t n_devices, n_nodes;

    struct job **jobs; /* by id, and so by the id of their feeds */
    uint32_t n_jobs, jobs_room;
    struct list gone; /* jobs that are out of jobs, until CORE_JOB_GONE is taken */
    uint64_t job_last, feed_last, turn;
    uint32_t ring_last;
    bool touched; /* some job is */

    struct core_action *actions; /* a circle */
    uint64_t actions_room, actions_head, actions_count;
    uint64_t actions_due; /* what the jobs there are may have in it between two drains */

    struct core_stages stages;
    uint64_t bytes, opened, failed, bad;
};

/* The lease at a place among the pending, of which the first is 0. */
static inline uint32_t job_pending(const struct job *job, uint32_t place)
{
    uint32_t at = job->pending_head + place;

    return job->pending[at < job->depth ? at : at - job->depth];
}

/* The place of a lease, which must be one of the pending. */
static inline uint32_t job_place(const struct job *job, uint32_t lease)
{
    uint32_t place = 0;

    while (job_pending(job, place) != lease)
        place++;
    return place;
}

/* Whether they want the same batches. */
static inline bool job_is_mate(const struct job *a, const struct job *b)
{
    return a->group == b->group && a != b;
}

/* The slot that a lease uses; NULL. */
static inline struct slot *lease_slot(const struct lease *lease)
{
    return lease->slot == NONE ? NULL : &lease->from->feed.slots[lease->slot];
}

static inline bool slot_used(const struct slot *slot)
{
    return slot->lease != NONE || slot->others > 0;
}

static inline bool cursor_same(struct cursor a, struct cursor b)
{
    return a.step == b.step && a.epoch == b.epoch;
}

/* -- core.c -- */

/* Sees to it that the actions of one more job of depth fit. -ENOMEM. */
int core_actions_reserve(struct core *core, uint32_t depth);
void core_actions_unreserve(struct core *core, uint32_t depth);
int core_jobs_reserve(struct core *core);
void core_jobs_append(struct core *core, struct job *job);
void core_jobs_remove(struct core *core, struct job *job);
struct job *core_job_get(const struct core *core, uint64_t id);
struct job *core_feed_get(const struct core *core, uint64_t id);
/* The job that a message of peer is about; NULL when it is none of its. */
struct job *core_job_of_peer(const struct core *core, uint64_t id, uint64_t peer);

/* Queues an action of the job, to be filled in. Never fails. */
struct core_action *job_emit(struct job *job, enum core_action_type type);

static inline struct device *job_device(const struct job *job)
{
    return &job->core->devices[job->device];
}

static inline struct node *job_node(const struct job *job)
{
    return &job->core->nodes[job_device(job)->node];
}

/* -- job.c -- */

void job_free(struct job *job);

/* Not closing, and with steps to deliver: failed only at a later one. */
bool job_live(const struct job *job);
/* Will never ask for a batch again. */
static inline bool job_ended(const struct job *job)
{
    return job->state == JOB_CLOSING || job->told || job->deaf;
}

/* Fails the job from the pending batch at place on, once those before it are delivered. */
void job_fail_at(struct job *job, uint32_t place, const struct failure *failure, uint64_t now);
/* Fails it with what is pending. */
void job_fail(struct job *job, const struct failure *failure, uint64_t now);

/* Does what has become possible: copies, hand-offs, telling of a failure, giving back, the end. To
 * be called at the end of each event of a job. The job may be gone then, but is not freed yet. */
void job_advance(struct job *job, uint64_t now);
/* Has it advance at the end of the event. */
void job_touch(struct job *job);
/* Advances the jobs that are touched. */
void jobs_settle(struct core *core, uint64_t now);

/* -- feed.c -- */

int feed_init(struct feed *feed, uint32_t n_slots);
void feed_deinit(struct feed *feed);
/* Takes the slots over from the pool. */
void feed_fill(struct feed *feed, const uint64_t *memory);
/* A FREE slot of the job, which becomes DECODING; there must be one. What mates will need is kept
 * as long as there is another. */
uint32_t feed_take(struct job *job);
/* The lease uses the slot. */
void slot_attach(struct job *job, struct lease *lease, struct job *from, uint32_t slot);
/* It does no more: a slot that nobody uses is FREE, or its decode is not wanted. */
void slot_detach(struct job *job, struct lease *lease);
/* The job wants no more: FREE slots go back to the pool, but for as many as it has of mates. */
void feed_give_back(struct job *job);

/* -- batch.c -- */

int batches_init(struct job *job);
/* Sets all leases to be wanting since now: the job is ready. */
void batches_begin(struct job *job, uint64_t now);
/* Whether the job has a batch for the workers: whose slot it would be decoded into; NULL. */
struct job *batch_lender(struct job *job);
/* Leases that need nothing from the workers, up to the first batch that does. */
uint32_t batches_filled(const struct job *job);
/* Asks for the next batch. */
void batch_start(struct job *job, uint64_t now);
/* Takes the next batch from a mate; false: none has it, or it needs none. */
bool batch_share(struct job *job, uint64_t now);
/* Starts the copies that the ring in use allows. */
void batches_copy(struct job *job, uint64_t now);
/* Hands off what is complete, in step order, with the ends of epochs. */
void batches_deliver(struct job *job, uint64_t now);
/* Takes back what is pending from place on. */
void batches_drop(struct job *job, uint32_t place, uint64_t now);
/* The client is dead: what it held is free. */
void batches_reclaim(struct job *job, uint64_t now);
/* What is READY in the ring is lost: it is made again. */
void batches_redo(struct job *job, uint32_t ring, uint64_t now);
/* Copies into the ring have ended with its device. */
void batches_uncopy(struct job *job, uint32_t ring, uint64_t now);
bool batches_held_in(const struct job *job, uint32_t ring);

/* What is pending is wanted anew, in slots that the job does not have yet. */
void batches_unfill(struct job *job);

/* -- share.c -- */

/* Finds every job's mates anew. */
void mates_find(struct core *core);
/* Where a lease of the job can have the batch from: a slot that has it, or will. What is not found
 * is not looked for again before a mate has it decoded. */
bool share_find(struct job *job, struct cursor at, struct job **from_p, uint32_t *slot_p);
/* The batch is decoded now, for the job: its mates may look for it. */
void share_begun(const struct job *job, struct cursor at);
/* A job with a FREE slot that the job may decode into: itself, or, when mates use its own, one of
 * these; NULL. */
struct job *share_lender(struct job *job);
/* Who is to ask for the batch that the job, which has a lender, would ask for next: the oldest of
 * its mates that would do the same, of the same workers. */
struct job *share_leader(struct job *job);
/* The first batch that a mate has yet to ask for; false: none asks for any. */
bool share_needed(const struct job *job, struct cursor *first_p);
/* Where a job that joins its mates starts: at what comes next for the furthest. */
void share_join(const struct job *job, struct cursor *start_p);
/* Calls use for each lease that uses a slot of the job. */
void slot_each_lease(struct job *job, uint32_t slot,
                     void (*use)(struct job *job, struct lease *lease, void *user), void *user);

/* -- ladder.c -- */

/* Checks the delivery that a job asks for against its device and its client, in words, and chooses
 * the first that it is to have. */
int ladder_choose(struct job *job, const struct core_job_spec *spec, struct failure *failure);
/* The rung in use does not work, or with no_device no ring at all: the next one, or the end of the
 * job. */
void ladder_descend(struct job *job, const char *text, int code, bool no_device, uint64_t now);
/* Asks for slots. */
void ladder_reserve(struct job *job);
/* Says JOB_READY, or RING_REPLACED when that was said before. */
void ladder_announce(struct job *job, uint64_t now);

/* -- ring.c -- */

/* Makes a ring by job->delivery, or fails the job. */
void ring_make(struct job *job, uint64_t now);
/* No client can read it any more: frees it when no copy is under way. */
void ring_close(struct job *job, struct ring *ring);
/* The end of a copy. */
void ring_copied(struct job *job, struct ring *ring);
struct ring *ring_find(struct job *job, uint32_t id);
/* All rings that the client may have mapped: it is dead. */
void rings_reclaim(struct job *job);
void rings_lost(struct job *job, const struct failure *failure, uint64_t now);
bool rings_gone(const struct job *job);
/* Copies may go to the ring in use. */
bool ring_usable(const struct job *job);

static inline bool job_in_place(const struct job *job)
{
    return delivery_in_place(job->delivery);
}

/* -- schedule.c -- */

/* Gives the workers of each NUMA node what they can take. At the end of every event. */
void schedule_run(struct core *core, uint64_t now);

#endif
