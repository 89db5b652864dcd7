/*
 * The core as a container: looking up, the queue of actions, the end.
 */
#include "world.h"

static void test_looking(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 2);
    struct core_job_info info;
    uint64_t first, second;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    assert_false(core_job_next(w.core, 0, &info));
    first = job_open(&w, &spec);
    second = job_open(&w, &spec);
    assert_true(second > first);
    assert_true(core_job_next(w.core, 0, &info));
    assert_int_equal(info.id, first);
    assert_true(core_job_next(w.core, info.id + 1, &info));
    assert_int_equal(info.id, second);
    assert_string_equal(info.state_text, "opening");
    assert_string_equal(info.dataset, "folder:/photos");
    assert_int_equal(info.delivery, DELIVERY_AUTO);
    assert_int_equal(info.depth, 2);
    assert_int_equal(info.failure->code, 0);
    assert_false(core_job_next(w.core, second + 1, &info));
    assert_int_equal(core_device_jobs(w.core, GPU), 2);
    assert_int_equal(core_device_jobs(w.core, HOST), 0);
    world_kill(&w);
    for (uint64_t job = first; job <= second; job++) {
        struct failure failure = failure_make("cancelled");

        core_job_refused(w.core, job, &failure, 0);
    }
    assert_int_equal(take_all(&w), 4);
    assert_false(core_job_find(w.core, first, &info));
    world_deinit(&w);
}

/* Everything of a deep job may end in one event. */
static void test_many_actions(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, DEPTH_MAX);
    struct core_action *decodes = calloc(DEPTH_MAX, sizeof *decodes);
    uint64_t job;

    (void)state;
    assert_non_null(decodes);
    world_init(&w, UINT64_MAX, DEPTH_MAX);
    job = job_begin(&w, &spec, 2);
    expect(&w, CORE_JOB_READY);
    for (int i = 0; i < DEPTH_MAX; i++)
        decodes[i] = *expect(&w, CORE_DECODE);
    for (int i = DEPTH_MAX - 1; i >= 0; i--)
        decoded(&w, &decodes[i], NULL);
    for (uint64_t epoch = 0; epoch < DEPTH_MAX; epoch++) { /* one step an epoch */
        expect_batch(&w, epoch, 0);
        assert_int_equal(expect(&w, CORE_EPOCH_END)->epoch, epoch);
    }
    expect_nothing(&w);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    expect_nothing(&w);
    core_peer_gone(w.core, PEER, 0);
    core_peer_dead(w.core, PEER, 0);
    assert_int_equal(take_all(&w), DEPTH_MAX + 1);
    world_deinit(&w);
    free(decodes);
}

static void test_jobs_left(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 2);

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job_begin(&w, &spec, 10);
    expect(&w, CORE_RING_MAKE);
    job_open(&w, &spec);
    assert_int_equal(core_free(w.core), 2);
    account_unref(w.tenant);
    assert_int_equal(accounts_deinit(&w.accounts), 0);
}

/* What an action points to lasts until it is taken, also when its job ends before. */
static void test_failure_outlives_its_job(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 1);
    struct failure failure = failure_make("no such directory");
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_open(&w, &spec);
    core_job_refused(w.core, job, &failure, 0);
    world_kill(&w);
    expect(&w, CORE_JOB_FAILED);
    assert_string_equal(w.action.failure->text, "no such directory");
    expect(&w, CORE_JOB_GONE);
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_looking),
        cmocka_unit_test(test_many_actions),
        cmocka_unit_test(test_jobs_left),
        cmocka_unit_test(test_failure_outlives_its_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
