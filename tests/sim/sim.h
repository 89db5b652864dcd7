/*
 * A simulation of the core: random histories of events, and a model of the
 * world around it (workers, devices, clients, pools) that knows what the core
 * may ask for. The model holds its own view of who uses which memory and which
 * ring slot, and never looks into the core.
 *
 * A history is a pure function of its seed.
 */
#ifndef PINSERVE_TESTS_SIM_H
#define PINSERVE_TESTS_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/core.h"
#include "proto/limits.h"

#define SIM_JOBS 8
#define SIM_PEERS 5
#define SIM_TENANTS 3
#define SIM_DEVICES 5
#define SIM_DEPTH 6
#define SIM_RINGS 16
#define SIM_TASKS 256
#define SIM_PAST 64
#define SIM_NUMA 2

/* What the core asked for and has no answer to yet. */
enum task_type { TASK_INDEX, TASK_RESERVE, TASK_RING, TASK_DECODE, TASK_COPY };

struct task {
    enum task_type type;
    uint64_t job, feed;
    uint32_t device, ring, slot, lease, generation;
    uint64_t memory;
    int64_t batch; /* its number since the job's start */
    uint64_t epoch, step;
    bool cancelled, stuck, lent;
};

enum content { CONTENT_NONE, CONTENT_DECODING, CONTENT_FULL };

/* One slot's memory. */
struct sim_memory {
    bool owned; /* the core has it */
    uint64_t handle;
    enum content content;
    bool part; /* FULL, but for other jobs than its own: see core_gathered */
    struct cursor at;
    int64_t batch;    /* its number for its own job */
    uint32_t copying; /* devices that read it */
    bool copied;      /* its bytes are in a ring */
    uint32_t leased;  /* clients that read it */
};

enum mapping { MAPPING_UNKNOWN, MAPPING_OPEN, MAPPING_NONE };

struct sim_ring {
    bool used; /* memory of it is left, so it is charged */
    uint32_t id;
    enum delivery delivery;
    bool made, offered, lost;
    enum mapping mapping; /* the client's */
    uint32_t copies;
    uint64_t bytes;
    struct {
        bool copying, full;
        int64_t batch;
    } slots[SIM_DEPTH];
};

struct sim_lease {
    bool held;
    uint32_t generation; /* of the last hand-off */
    uint32_t ring;
    uint64_t memory;
    int64_t batch;
};

struct sim_job {
    bool used;
    uint64_t id, feed, peer;
    unsigned tenant;
    struct core_job_spec spec;
    uint64_t samples, slot_bytes;
    uint64_t identity; /* of the data: may be another job's; 0: has no mates */
    bool gathers;
    uint64_t steps;
    bool plan_ok; /* the order fits the dataset */
    bool announced, closing, told, deaf, failing, peer_gone;
    enum delivery reserved; /* that its slots are for; auto: none were asked for */
    struct cursor next;
    uint64_t bad, bad_epoch;  /* samples released; handed off in the epoch of next */
    unsigned losses;          /* of its ring with the device, without a batch handed off between */
    int64_t delivered, asked; /* number of the next batch to be handed off, to be decoded first */
    struct sim_memory memory[SIM_DEPTH];
    struct sim_ring rings[SIM_RINGS];
    struct sim_lease leases[SIM_DEPTH];
};

struct sim_peer {
    uint64_t id; /* a new one after each death */
    bool gone;
    struct account *account;
};

struct sim {
    uint64_t seed, random, now, event;
    uint64_t events_total;
    bool verbose;
    uint32_t batches_per_numa;
    struct accounts accounts;
    struct core *core;
    struct core_device_spec devices[SIM_DEVICES];
    struct sim_peer peers[SIM_PEERS];
    struct sim_job jobs[SIM_JOBS];
    struct task tasks[SIM_TASKS], past[SIM_PAST];
    uint32_t n_tasks, n_past;
    uint64_t memory_last, peer_last;
    uint64_t actions; /* drained after the last event */
};

/* Says which history failed and how to see it again, and ends the program. */
_Noreturn void sim_fail(const struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_log(const struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define EXPECT(sim, condition, ...)                                                                \
    do {                                                                                           \
        if (!(condition))                                                                          \
            sim_fail(sim, __VA_ARGS__);                                                            \
    } while (0)

/* Below n, which is at least 1. */
uint32_t sim_random(struct sim *sim, uint32_t n);
bool sim_chance(struct sim *sim, uint32_t percent);

/* -- model.c -- */

struct sim_job *sim_job_find(struct sim *sim, uint64_t id);
struct sim_ring *sim_ring_find(struct sim_job *job, uint32_t id);
struct sim_memory *sim_memory_find(struct sim_job *job, uint64_t handle);
/* Of any job, which is *owner_p. */
struct sim_memory *sim_memory_of(struct sim *sim, uint64_t handle, struct sim_job **owner_p);
/* Whether they want the same batches. */
bool sim_mates(const struct sim_job *a, const struct sim_job *b);
/* Neither closing, nor told to have failed, nor without a taker. */
bool sim_job_live(const struct sim_job *job);
/* Samples of a batch that its client fills, at most. */
uint32_t sim_pushed_count(const struct sim_job *job, int64_t batch);
/* Leases that the client holds. */
uint32_t sim_job_held(const struct sim_job *job);
/* No ring of it works, and it may do without. */
bool sim_job_may_move(const struct sim *sim, const struct sim_job *job);
/* A ring that batches can be copied to. */
bool sim_ring_usable(const struct sim_ring *ring);
/* Takes all actions of the core and checks each against the model. */
void sim_drain(struct sim *sim);

/* -- compare.c -- */

/* Compares what the core says of itself with the model. */
void sim_check(struct sim *sim);

/* -- events.c -- */

void sim_setup(struct sim *sim);
/* One random event. */
void sim_step(struct sim *sim);
/* A time without faults: every job that can go on must. */
void sim_settle(struct sim *sim);
/* Everything ends, and everything must be zero. */
void sim_end(struct sim *sim);

/* -- answers.c -- */

/* Bad samples of a batch; how many of them an epoch may have. */
uint32_t sim_bad(const struct sim_job *job, int64_t batch);
uint64_t sim_bad_max(const struct sim_job *job);

enum outcome { OUTCOME_OK, OUTCOME_FAILED, OUTCOME_STUCK };

/* Answers task i. STUCK keeps a decode's task. */
void sim_answer(struct sim *sim, uint32_t i, enum outcome outcome);
/* Reports again what was reported before: nothing may come of it. */
void sim_repeat(struct sim *sim);
void sim_device_lost(struct sim *sim, uint32_t device);
/* Its process cannot be had. */
void sim_device_refused(struct sim *sim, uint32_t device);
void sim_peer_gone(struct sim *sim, struct sim_peer *peer);
void sim_peer_dead(struct sim *sim, struct sim_peer *peer);
void sim_job_close(struct sim *sim, struct sim_job *job, uint64_t peer);
/* An operator ends it. */
void sim_job_evict(struct sim *sim, uint64_t id);
void sim_ring_answer(struct sim *sim, struct sim_job *job, uint64_t peer, uint32_t ring, bool ok);
void sim_ring_close(struct sim *sim, struct sim_job *job, uint64_t peer, uint32_t ring);
void sim_release(struct sim *sim, struct sim_job *job, uint64_t peer, uint32_t lease,
                 uint32_t generation);

#endif
