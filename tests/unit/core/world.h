/*
 * What the tests of the core share: a core with a host device and three GPUs, and
 * the actions that it asks for, one after the other.
 */
#ifndef PINSERVE_TESTS_UNIT_CORE_WORLD_H
#define PINSERVE_TESTS_UNIT_CORE_WORLD_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/core.h"
#include "proto/limits.h"

enum { HOST, GPU, GPU_FD_ONLY, GPU_RINGS_OFF };

#define PEER 7
#define SLOT_BYTES 4096

struct world {
    struct accounts accounts;
    struct account *tenant;
    struct core *core;
    struct core_action action; /* the last one taken */
    uint64_t now;
};

static inline void world_init(struct world *w, uint64_t device_bytes, uint32_t batches_per_numa)
{
    struct account_limits limits = {{UINT64_MAX, device_bytes, 8, UINT64_MAX}};
    struct core_device_spec devices[] = {
        {.has_ring = false, .numa = 0},
        {.has_ring = true, .allow_ipc = true, .numa = 0},
        {.has_ring = true, .allow_ipc = false, .numa = 1},
        {.has_ring = true, .allow_ipc = true, .rings_off = true, .numa = 0},
    };
    uint32_t number;

    memset(w, 0, sizeof *w);
    accounts_init(&w->accounts, &limits, &limits);
    w->tenant = account_ref(&w->accounts, "uid:1000");
    w->core = core_new(&w->accounts, batches_per_numa);
    assert_non_null(w->core);
    for (uint32_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        assert_int_equal(core_device_add(w->core, &devices[i], &number), 0);
        assert_int_equal(number, i);
    }
}

/* Everything must have ended by then. */
static inline void world_deinit(struct world *w)
{
    struct core_action action;

    assert_false(core_next_action(w->core, &action));
    assert_int_equal(core_free(w->core), 0);
    account_unref(w->tenant);
    assert_int_equal(accounts_deinit(&w->accounts), 0);
}

static inline void check(struct world *w)
{
    struct failure failure;

    if (core_check(w->core, &failure) < 0)
        fail_msg("core_check: %s", failure.text);
}

/* The next action must be of this type. */
static inline const struct core_action *expect(struct world *w, enum core_action_type type)
{
    check(w);
    assert_true(core_next_action(w->core, &w->action));
    assert_int_equal(w->action.type, type);
    return &w->action;
}

static inline void expect_nothing(struct world *w)
{
    struct core_action action;

    check(w);
    if (core_next_action(w->core, &action))
        fail_msg("an action of type %d is left", (int)action.type);
}

static inline void expect_decode(struct world *w, uint64_t epoch, uint64_t step)
{
    expect(w, CORE_DECODE);
    assert_int_equal(w->action.epoch, epoch);
    assert_int_equal(w->action.step, step);
}

static inline void expect_batch(struct world *w, uint64_t epoch, uint64_t step)
{
    expect(w, CORE_BATCH_READY);
    assert_int_equal(w->action.epoch, epoch);
    assert_int_equal(w->action.step, step);
}

static inline struct core_job_spec spec_make(uint32_t device, uint32_t depth)
{
    return (struct core_job_spec){
        .order = {.shuffle = ORDER_SHUFFLE_FULL, .last = ORDER_LAST_DROP, .batch = 2, .world = 1},
        .depth = depth,
        .device = device,
        .delivery = DELIVERY_AUTO,
        .dataset = "folder:/photos",
        .pipeline = "none",
        .client_fd = true,
        .client_ipc = true,
    };
}

static inline uint64_t job_open(struct world *w, const struct core_job_spec *spec)
{
    struct failure failure = {0};
    uint64_t job = 0;

    if (core_job_open(w->core, w->tenant, PEER, spec, w->now, &job, &failure) < 0)
        fail_msg("core_job_open: %s", failure.text);
    expect(w, CORE_INDEX);
    assert_int_equal(w->action.job, job);
    return job;
}

static inline void job_index(struct world *w, uint64_t job, uint64_t samples)
{
    struct core_dataset dataset = {
        .samples = samples, .fingerprint = 0xabc, .slot_bytes = SLOT_BYTES};

    core_job_indexed(w->core, job, &dataset, w->now);
}

/* Gives it memory 100, 101, ... */
static inline void job_reserve(struct world *w, uint64_t job)
{
    uint64_t memory[DEPTH_MAX];

    expect(w, CORE_RESERVE);
    assert_int_equal(w->action.bytes, SLOT_BYTES);
    for (uint32_t i = 0; i < w->action.count; i++)
        memory[i] = 100 + i;
    core_job_reserved(w->core, job, memory, w->now);
}

/* Opened, indexed and reserved; nothing after that is taken. */
static inline uint64_t job_begin(struct world *w, const struct core_job_spec *spec,
                                 uint64_t samples)
{
    uint64_t job = job_open(w, spec);

    job_index(w, job, samples);
    job_reserve(w, job);
    return job;
}

/* Up to JOB_READY on a GPU; returns the ring. */
static inline uint32_t ring_begin(struct world *w, uint64_t job)
{
    uint32_t ring = expect(w, CORE_RING_MAKE)->ring;

    core_ring_made(w->core, job, ring, w->now);
    expect(w, CORE_JOB_READY);
    assert_int_equal(w->action.ring, ring);
    return ring;
}

static inline void decoded(struct world *w, const struct core_action *decode,
                           const struct failure *failure)
{
    core_decoded(w->core, decode->feed, decode->slot, decode->generation, failure, 0, 10, 20,
                 w->now);
}

static inline void copied(struct world *w, const struct core_action *copy,
                          const struct failure *failure)
{
    core_copied(w->core, copy->job, copy->ring, copy->lease, copy->generation, failure, w->now);
}

static inline int release(struct world *w, const struct core_action *batch)
{
    return core_release(w->core, PEER, batch->job, batch->lease, batch->generation, w->now);
}

static inline struct failure failure_make(const char *text)
{
    struct failure failure;

    failure_set(&failure, -EIO, "%s", text);
    return failure;
}

/* The client dies; takes whatever is said until nothing is left, answering decodes and copies. */
static inline void world_kill(struct world *w)
{
    core_peer_gone(w->core, PEER, w->now);
    core_peer_dead(w->core, PEER, w->now);
}

static inline uint32_t take_all(struct world *w)
{
    uint32_t count = 0;

    check(w);
    while (core_next_action(w->core, &w->action))
        count++;
    return count;
}

#endif
