/*
 * Mates: which slots a batch may be taken from, what a slot is used for next, and
 * who is served first.
 */
#include "mates.h"

/* A decode that is not wanted any more may have been cut short. */
static void test_cancelled(void **state)
{
    struct core_job_spec spec = spec_make(HOST, 1);
    struct world w;
    struct core_action decode;
    uint64_t a;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    a = mate_begin(&w, &spec, 100);
    expect(&w, CORE_JOB_READY);
    decode = *expect(&w, CORE_DECODE);
    assert_int_equal(core_job_close(w.core, PEER, a, 0), 0);
    expect(&w, CORE_DECODE_CANCEL);
    mate_begin(&w, &spec, 200);
    expect(&w, CORE_JOB_READY);
    expect_decode(&w, 0, 0);
    assert_int_equal(w.action.memory, 200);
    decoded(&w, &decode, NULL);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, 100);
    world_end(&w);
    world_deinit(&w);
}

/* A slot that a job brought for its ring may lie where no client may look, and a job that leaves
 * its ring has to give its slots back: in place it shares only afterwards. */
static void test_moving(void **state)
{
    struct core_job_spec spec = spec_make(GPU, 1), host = spec_make(HOST, 1);
    struct world w;
    struct core_action copy, taken;
    uint64_t moving, ring, other;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    other = mate_begin(&w, &spec, 300);
    ring_begin(&w, other);
    spec.client_ipc = false;
    spec.client_copy = true;
    decoded(&w, expect(&w, CORE_DECODE), NULL);
    copied(&w, expect_of(&w, CORE_COPY, other), NULL);
    moving = mate_begin(&w, &spec, 100);
    ring = ring_begin(&w, moving);
    copy = *expect_of(&w, CORE_COPY, moving); /* of the other's slot */
    assert_int_equal(copy.memory, 300);
    assert_int_equal(core_ring_opened(w.core, PEER, moving, (uint32_t)ring, false, "no", 0), 0);
    expect_nothing(&w); /* it owes a slot */
    mate_begin(&w, &host, 200);
    expect(&w, CORE_JOB_READY);
    expect_decode(&w, 0, 0);
    assert_int_equal(w.action.memory, 200);
    decoded(&w, &w.action, NULL);
    taken = *expect(&w, CORE_BATCH_READY);
    assert_int_equal(taken.memory, 200);
    expect_nothing(&w);
    copied(&w, &copy, NULL);
    expect_of(&w, CORE_RING_FREE, moving);
    assert_int_equal(expect_of(&w, CORE_SLOT_FREE, moving)->memory, 100);
    expect_of(&w, CORE_RESERVE, moving);
    core_job_reserved(w.core, moving, (const uint64_t[]){400}, 0);
    expect_of(&w, CORE_RING_REPLACED, moving);
    assert_int_equal(expect_of(&w, CORE_BATCH_READY, moving)->memory, 200);
    world_end(&w);
    world_deinit(&w);
}

/* Neither is it lent anything, nor does it lend: what it waits for has to end. */
static void test_moving_lender(void **state)
{
    struct core_job_spec spec = spec_make(GPU, 2), other = spec_make(GPU, 1),
                         host = spec_make(HOST, 3);
    struct core_action decodes[2], copies[2];
    struct world w;
    uint64_t moving, copying, in_place;
    uint32_t ring;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    spec.client_ipc = false;
    spec.client_copy = true;
    moving = mate_begin(&w, &spec, 100);
    ring = ring_begin(&w, moving);
    for (int i = 0; i < 2; i++)
        decodes[i] = *expect(&w, CORE_DECODE);
    copying = mate_begin(&w, &other, 300);
    ring_begin(&w, copying);
    decoded(&w, &decodes[0], NULL);
    for (int i = 0; i < 2; i++)
        copies[i] = *expect_of(&w, CORE_COPY, i == 0 ? moving : copying);
    assert_int_equal(core_ring_opened(w.core, PEER, moving, ring, false, "no", 0), 0);
    expect(&w, CORE_DECODE_CANCEL);
    decoded(&w, &decodes[1], NULL);
    assert_int_equal(expect_of(&w, CORE_SLOT_FREE, moving)->memory, 101);

    in_place = mate_begin(&w, &host, 200);
    expect(&w, CORE_JOB_READY);
    for (int i = 0; i < 2; i++) {
        decodes[i] = *expect(&w, CORE_DECODE);
        assert_int_equal(decodes[i].memory, 200 + i);
    }
    decoded(&w, &decodes[0], NULL);
    assert_int_equal(expect_of(&w, CORE_BATCH_READY, in_place)->memory, 200);
    expect_decode(&w, 0, 2);
    assert_false(w.action.lent);
    expect_nothing(&w);

    copied(&w, &copies[0], NULL);
    expect_of(&w, CORE_RING_FREE, moving);
    copied(&w, &copies[1], NULL);
    assert_int_equal(expect_of(&w, CORE_SLOT_FREE, moving)->memory, 100);
    expect_of(&w, CORE_RESERVE, moving);
    core_job_reserved(w.core, moving, (const uint64_t[]){400, 401}, 0);
    world_end(&w);
    world_deinit(&w);
}

/* Two that are level again decode each batch once: the one behind goes first. */
static void test_catches_up(void **state)
{
    struct core_job_spec spec = spec_make(HOST, 2);
    struct core_action held;
    struct world w;
    uint64_t b;

    (void)state;
    world_init(&w, UINT64_MAX, 1);
    spec.start = (struct cursor){1, 1};
    mate_begin(&w, &spec, 100);
    expect(&w, CORE_JOB_READY);
    held = *expect(&w, CORE_DECODE);
    spec.start = (struct cursor){0, 19}; /* of 20 */
    b = mate_begin(&w, &spec, 200);
    expect(&w, CORE_JOB_READY);
    decoded(&w, &held, NULL);
    expect_batch(&w, 1, 1);
    expect_decode(&w, 0, 19);
    decoded(&w, &w.action, NULL);
    held = *expect_of(&w, CORE_BATCH_READY, b);
    expect(&w, CORE_EPOCH_END);
    expect_decode(&w, 1, 0);
    decoded(&w, &w.action, NULL);
    expect_batch(&w, 1, 0);
    expect_decode(&w, 1, 2); /* the other has no lease left */
    assert_int_equal(release(&w, &held), 0);
    assert_int_equal(expect_of(&w, CORE_BATCH_READY, b)->memory, 100);
    assert_int_equal(w.action.step, 1);
    world_end(&w);
    world_deinit(&w);
}

/* Of two that are level the same one asks each time, unless it has no lease for another batch. */
static void test_one_leads(void **state)
{
    struct core_job_spec spec = spec_make(HOST, 2);
    struct core_action decode, held;
    struct world w;
    uint64_t a, b;

    (void)state;
    world_init(&w, UINT64_MAX, 1);
    a = mate_begin(&w, &spec, 100);
    expect(&w, CORE_JOB_READY);
    decode = *expect(&w, CORE_DECODE);
    b = mate_begin(&w, &spec, 200);
    expect(&w, CORE_JOB_READY);
    for (uint64_t step = 0; step < 2; step++) {
        assert_int_equal(decode.step, step);
        assert_int_equal(decode.memory, 100 + step);
        decoded(&w, &decode, NULL);
        expect_of(&w, CORE_BATCH_READY, a);
        held = *expect_of(&w, CORE_BATCH_READY, b);
        if (step == 0)
            decode = *expect(&w, CORE_DECODE);
    }
    assert_int_equal(release(&w, &held), 0);
    expect_decode(&w, 0, 2);
    assert_int_equal(w.action.memory, 200);
    world_end(&w);
    world_deinit(&w);
}

/* The decode of a step, into this memory, is done, and its batch released by the job. */
static void step_of(struct world *w, uint64_t job, uint64_t step, uint64_t memory)
{
    struct core_action batch;

    assert_int_equal(w->action.type, CORE_DECODE);
    assert_int_equal(w->action.step, step);
    assert_int_equal(w->action.memory, memory);
    decoded(w, &w->action, NULL);
    batch = *expect_of(w, CORE_BATCH_READY, job);
    assert_int_equal(batch.step, step);
    expect(w, CORE_DECODE);
    assert_int_equal(release(w, &batch), 0);
}

/* Of what a mate that is behind will need, the batch that it needs last is overwritten first; what
 * it does not need any more goes before. */
static void test_what_is_overwritten(void **state)
{
    struct core_job_spec spec = spec_make(HOST, 4), behind = spec_make(HOST, 1);
    struct core_action mine, held;
    struct world w;
    uint64_t a, b;

    (void)state;
    world_init(&w, UINT64_MAX, 1);
    a = mate_begin(&w, &spec, 100);
    expect(&w, CORE_JOB_READY);
    expect_decode(&w, 0, 0);
    held = w.action;
    b = mate_begin(&w, &behind, 200);
    expect(&w, CORE_JOB_READY);
    decoded(&w, &held, NULL);
    mine = *expect_of(&w, CORE_BATCH_READY, a);
    held = *expect_of(&w, CORE_BATCH_READY, b);
    expect(&w, CORE_DECODE);
    assert_int_equal(release(&w, &mine), 0);
    step_of(&w, a, 1, 101);
    step_of(&w, a, 2, 102);
    step_of(&w, a, 3, 103);
    step_of(&w, a, 4, 102);
    assert_int_equal(w.action.memory, 103);
    mine = w.action; /* the decode of step 5 */
    assert_int_equal(release(&w, &held), 0);
    assert_int_equal(expect_of(&w, CORE_BATCH_READY, b)->memory, 101);
    w.action = mine;
    step_of(&w, a, 5, 103);
    assert_int_equal(w.action.memory, 100);
    world_end(&w);
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancelled),     cmocka_unit_test(test_moving),
        cmocka_unit_test(test_moving_lender), cmocka_unit_test(test_catches_up),
        cmocka_unit_test(test_one_leads),     cmocka_unit_test(test_what_is_overwritten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
