/*
 * What the tests of jobs that share have in common.
 */
#ifndef PINSERVE_TESTS_UNIT_CORE_MATES_H
#define PINSERVE_TESTS_UNIT_CORE_MATES_H

#include "world.h"

#define DATA 77

static inline void index_same(struct world *w, uint64_t job)
{
    struct core_dataset dataset = {
        .samples = 40, .identity = DATA, .fingerprint = 0xabc, .slot_bytes = SLOT_BYTES};

    core_job_indexed(w->core, job, &dataset, w->now);
}

/* Opened over the data that all have, with slots first, first + 1, ... */
static inline uint64_t mate_begin(struct world *w, const struct core_job_spec *spec, uint64_t first)
{
    uint64_t job = job_open(w, spec), memory[DEPTH_MAX];

    index_same(w, job);
    expect(w, CORE_RESERVE);
    for (uint32_t i = 0; i < w->action.count; i++)
        memory[i] = first + i;
    core_job_reserved(w->core, job, memory, w->now);
    return job;
}

/* Two in place, with slots from 100 and from 200 on; the second waits for what the first decodes.
 */
static inline struct core_action mates_begin(struct world *w, const struct core_job_spec *spec,
                                             uint64_t *a_p, uint64_t *b_p)
{
    struct core_action decode;

    *a_p = mate_begin(w, spec, 100);
    expect(w, CORE_JOB_READY);
    decode = *expect(w, CORE_DECODE);
    *b_p = mate_begin(w, spec, 200);
    expect(w, CORE_JOB_READY);
    return decode;
}

static inline uint64_t shared(struct world *w, uint64_t job)
{
    struct core_job_info info;

    assert_true(core_job_find(w->core, job, &info));
    return info.shared;
}

/* Everything is answered until nothing more is said. */
static inline void world_end(struct world *w)
{
    struct core_action action;

    world_kill(w);
    while (core_next_action(w->core, &action)) {
        if (action.type == CORE_DECODE || action.type == CORE_DECODE_CANCEL)
            decoded(w, &action, NULL);
        else if (action.type == CORE_COPY)
            copied(w, &action, NULL);
    }
}

static inline const struct core_action *expect_of(struct world *w, enum core_action_type type,
                                                  uint64_t job)
{
    expect(w, type);
    assert_int_equal(w->action.job, job);
    return &w->action;
}

#endif
