/*
 * Feeds: slots are given back when nothing uses them, whatever reports come.
 */
#include "world.h"

static void test_cancelled_decode(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 2);
    struct core_action decodes[2];
    struct failure failure = failure_make("cancelled");
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_begin(&w, &spec, 20);
    expect(&w, CORE_JOB_READY);
    for (int i = 0; i < 2; i++)
        decodes[i] = *expect(&w, CORE_DECODE);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    for (int i = 1; i >= 0; i--) {
        expect(&w, CORE_DECODE_CANCEL);
        assert_int_equal(w.action.slot, decodes[i].slot);
        assert_int_equal(w.action.generation, decodes[i].generation);
    }
    expect_nothing(&w);
    decoded(&w, &decodes[0], &failure);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, decodes[0].memory);
    decoded(&w, &decodes[0], NULL); /* twice */
    expect_nothing(&w);
    decoded(&w, &decodes[1], NULL);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, decodes[1].memory);
    expect(&w, CORE_JOB_GONE);
    decoded(&w, &decodes[1], NULL); /* of a feed that is no more */
    world_deinit(&w);
}

static void test_reports_of_nothing(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 1);
    struct core_action decode;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job_begin(&w, &spec, 20);
    expect(&w, CORE_JOB_READY);
    decode = *expect(&w, CORE_DECODE);
    core_decoded(w.core, decode.feed + 1, decode.slot, decode.generation, NULL, 0, 0, 0, 0);
    core_decoded(w.core, decode.feed, decode.slot + 1, decode.generation, NULL, 0, 0, 0, 0);
    core_decoded(w.core, decode.feed, decode.slot, decode.generation + 1, NULL, 0, 0, 0, 0);
    core_copied(w.core, decode.job, 1, 0, 1, NULL, 0);
    core_ring_made(w.core, decode.job, 1, 0);
    expect_nothing(&w);
    world_kill(&w);
    take_all(&w);
    decoded(&w, &decode, NULL);
    take_all(&w);
    world_deinit(&w);
}

/* A read hangs: the job fails at once, the workers serve others, the slot stays until it is back.
 */
static void test_stuck(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 1);
    struct core_action stuck;
    struct failure failure = failure_make("c1/dog.jpg: no answer for 5 s");
    uint64_t first, second;

    (void)state;
    world_init(&w, UINT64_MAX, 1);
    first = job_begin(&w, &spec, 20);
    expect(&w, CORE_JOB_READY);
    stuck = *expect(&w, CORE_DECODE);
    second = job_begin(&w, &spec, 20);
    expect(&w, CORE_JOB_READY);
    expect_nothing(&w);
    core_stuck(w.core, stuck.feed, stuck.slot, stuck.generation, &failure, 0);
    expect(&w, CORE_DECODE_CANCEL);
    expect(&w, CORE_JOB_FAILED);
    assert_int_equal(w.action.job, first);
    assert_string_equal(w.action.failure->text, "c1/dog.jpg: no answer for 5 s");
    expect(&w, CORE_DECODE);
    assert_int_equal(w.action.job, second);
    core_stuck(w.core, stuck.feed, stuck.slot, stuck.generation, &failure, 0);
    expect_nothing(&w);
    assert_int_equal(core_job_close(w.core, PEER, first, 0), 0);
    expect_nothing(&w);
    decoded(&w, &stuck, &failure);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, stuck.memory);
    expect(&w, CORE_JOB_GONE);
    world_kill(&w);
    expect(&w, CORE_DECODE_CANCEL);
    core_decoded(w.core, w.action.feed, w.action.slot, w.action.generation, NULL, 0, 0, 0, 0);
    take_all(&w);
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancelled_decode),
        cmocka_unit_test(test_reports_of_nothing),
        cmocka_unit_test(test_stuck),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
