/*
 * The schedule: the emptiest ring first, a few batches a NUMA node at a time.
 */
#include "world.h"

/* A job of delivery host, ready, nothing decoded by then but what the workers take at once. */
static uint64_t begin(struct world *w, uint32_t device, uint32_t depth)
{
    struct core_job_spec spec = spec_make(device, depth);
    uint64_t job;

    spec.delivery = DELIVERY_HOST;
    job = job_begin(w, &spec, 1000);
    expect(w, CORE_JOB_READY);
    return job;
}

static struct core_action expect_decode_of(struct world *w, uint64_t job)
{
    expect(w, CORE_DECODE);
    assert_int_equal(w->action.job, job);
    return w->action;
}

static void end(struct world *w)
{
    world_kill(w);
    while (core_next_action(w->core, &w->action))
        if (w->action.type == CORE_DECODE_CANCEL)
            core_decoded(w->core, w->action.feed, w->action.slot, w->action.generation, NULL, 0, 0,
                         0, 0);
    world_deinit(w);
}

static void test_emptiest_first(void **state)
{
    struct world w;
    uint64_t deep, shallow;
    struct core_action decode, batch;

    (void)state;
    world_init(&w, UINT64_MAX, 1);
    deep = begin(&w, HOST, 8);
    decode = expect_decode_of(&w, deep); /* 1/8 */
    shallow = begin(&w, HOST, 2);
    decoded(&w, &decode, NULL);
    expect(&w, CORE_BATCH_READY);
    decode = expect_decode_of(&w, shallow); /* 1/8, 1/2 */
    decoded(&w, &decode, NULL);
    batch = *expect(&w, CORE_BATCH_READY);
    for (int i = 2; i <= 4; i++) { /* up to 4/8 */
        decode = expect_decode_of(&w, deep);
        decoded(&w, &decode, NULL);
        expect(&w, CORE_BATCH_READY);
    }
    decode = expect_decode_of(&w, shallow); /* a tie: it was served longer ago */
    assert_int_equal(release(&w, &batch), 0);
    decoded(&w, &decode, NULL);
    expect(&w, CORE_BATCH_READY);
    expect_decode_of(&w, deep); /* 4/8 against 1/2, and longer ago */
    end(&w);
}

static void test_numa_nodes(void **state)
{
    struct world w;
    uint64_t a, b;
    struct core_action first;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    a = begin(&w, HOST, 4);
    first = expect_decode_of(&w, a);
    expect_decode_of(&w, a);
    expect_nothing(&w);
    begin(&w, GPU, 4); /* the same NUMA node: its workers are busy */
    expect_nothing(&w);
    b = begin(&w, GPU_FD_ONLY, 4);
    expect_decode_of(&w, b);
    expect_decode_of(&w, b);
    expect_nothing(&w);
    decoded(&w, &first, NULL);
    expect(&w, CORE_BATCH_READY);
    expect_decode_of(&w, a + 1);
    expect_nothing(&w);
    end(&w);
}

/* What a client fills is asked for at once, in all slots, and keeps no other from the workers. */
static void test_pushed_jobs_need_no_workers(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 3);
    struct core_action grants[3];
    uint64_t pushed, other;

    (void)state;
    world_init(&w, UINT64_MAX, 1);
    spec.delivery = DELIVERY_HOST;
    spec.pushed = true;
    pushed = job_begin(&w, &spec, 1000);
    expect(&w, CORE_JOB_READY);
    for (int i = 0; i < 3; i++)
        grants[i] = expect_decode_of(&w, pushed);
    expect_nothing(&w);
    other = begin(&w, HOST, 4);
    expect_decode_of(&w, other);
    expect_nothing(&w);
    core_pushed(w.core, grants[1].feed, grants[1].slot, grants[1].generation, grants[1].count, NULL,
                0);
    expect_nothing(&w);
    core_pushed(w.core, grants[0].feed, grants[0].slot, grants[0].generation, 1, NULL, 0);
    expect(&w, CORE_BATCH_READY);
    assert_int_equal(w.action.step, 0);
    assert_int_equal(w.action.count, 1);
    expect(&w, CORE_BATCH_READY);
    assert_int_equal(w.action.step, 1);
    assert_int_equal(w.action.count, grants[1].count);
    expect_nothing(&w);
    check(&w);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_emptiest_first),
        cmocka_unit_test(test_pushed_jobs_need_no_workers),
        cmocka_unit_test(test_numa_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
