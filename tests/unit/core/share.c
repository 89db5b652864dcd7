/*
 * Mates: a batch is decoded once, nobody waits for another, and nothing is taken
 * from a stranger.
 */
#include "mates.h"

/* Two GPUs: one decode, and a copy to each, from the same memory of the first one's pool. */
static void test_decoded_once(void **state)
{
    struct core_job_spec spec = spec_make(GPU, 1), other = spec_make(GPU_FD_ONLY, 1);
    struct world w;
    struct core_action decode, copies[2];
    uint64_t a, b, ring_a, ring_b;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    a = mate_begin(&w, &spec, 100);
    ring_a = ring_begin(&w, a);
    expect_decode(&w, 0, 0);
    decode = w.action;
    assert_false(decode.lent);
    b = mate_begin(&w, &other, 200);
    ring_b = ring_begin(&w, b);
    expect_nothing(&w); /* it waits for the decode that is under way */
    assert_int_equal(shared(&w, b), 1);
    core_ring_opened(w.core, PEER, a, (uint32_t)ring_a, true, NULL, 0);
    core_ring_opened(w.core, PEER, b, (uint32_t)ring_b, true, NULL, 0);
    decoded(&w, &decode, NULL);
    for (int i = 0; i < 2; i++) {
        copies[i] = *expect_of(&w, CORE_COPY, i == 0 ? a : b);
        assert_int_equal(copies[i].memory, 100);
        assert_int_equal(copies[i].pool, GPU);
        assert_int_equal(copies[i].device, i == 0 ? GPU : GPU_FD_ONLY);
    }
    expect_nothing(&w); /* it is read, and not decoded into */
    for (int i = 0; i < 2; i++) {
        copied(&w, &copies[i], NULL);
        expect_of(&w, CORE_BATCH_READY, i == 0 ? a : b);
    }
    world_end(&w);
    world_deinit(&w);
}

/* A slot that nobody uses keeps its batch for a mate that comes later. */
static void test_kept(void **state)
{
    struct core_job_spec spec = spec_make(HOST, 2);
    struct world w;
    struct core_action decodes[2], batch;
    uint64_t a, b;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    a = mate_begin(&w, &spec, 100);
    expect(&w, CORE_JOB_READY);
    for (int i = 0; i < 2; i++)
        decodes[i] = *expect(&w, CORE_DECODE);
    decoded(&w, &decodes[0], NULL);
    batch = *expect(&w, CORE_BATCH_READY);
    decoded(&w, &decodes[1], NULL);
    expect(&w, CORE_BATCH_READY);
    b = mate_begin(&w, &spec, 200);
    expect(&w, CORE_JOB_READY);
    expect_batch(&w, 0, 0);
    assert_int_equal(w.action.memory, decodes[0].memory);
    expect_batch(&w, 0, 1);
    assert_int_equal(w.action.memory, decodes[1].memory);
    assert_int_equal(shared(&w, b), 2);
    expect_nothing(&w);

    /* Its slots are read by the other: it goes on in the other's. */
    assert_int_equal(release(&w, &batch), 0);
    expect_decode(&w, 0, 2);
    assert_true(w.action.lent);
    assert_int_equal(w.action.job, b);
    assert_int_equal(w.action.asker, a);
    assert_int_equal(w.action.memory, 200);
    decoded(&w, &w.action, NULL);
    expect_batch(&w, 0, 2);
    assert_int_equal(w.action.memory, 200);
    expect_nothing(&w);
    world_end(&w);
    world_deinit(&w);
}

/* What the client of a closed job holds of another's slots is made good. */
static void test_debt(void **state)
{
    struct core_job_spec spec = spec_make(HOST, 1);
    struct core_job_info info;
    struct world w;
    struct core_action decode, held, mine;
    uint64_t a, b;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    decode = mates_begin(&w, &spec, &a, &b);
    decoded(&w, &decode, NULL);
    mine = *expect_of(&w, CORE_BATCH_READY, a);
    held = *expect_of(&w, CORE_BATCH_READY, b);
    assert_int_equal(core_job_close(w.core, PEER, b, 0), 0);
    expect_nothing(&w); /* not even its free slot */
    assert_int_equal(release(&w, &mine), 0);
    expect_decode(&w, 0, 1);
    assert_int_equal(w.action.memory, 200);
    decoded(&w, &w.action, NULL);
    mine = *expect_of(&w, CORE_BATCH_READY, a);
    assert_int_equal(release(&w, &held), 0);
    expect_nothing(&w);
    assert_int_equal(release(&w, &mine), 0);
    assert_int_equal(expect_of(&w, CORE_SLOT_FREE, b)->memory, 200);
    expect_of(&w, CORE_JOB_GONE, b);
    assert_true(core_job_find(w.core, a, &info));
    assert_int_equal(info.mates, 0);
    expect_decode(&w, 0, 2);
    assert_int_equal(w.action.memory, 100);
    world_end(&w);
    world_deinit(&w);
}

static void test_failure_is_of_both(void **state)
{
    struct core_job_spec spec = spec_make(HOST, 1);
    struct failure failure = failure_make("c1/dog.jpg is cut off");
    struct world w;
    struct core_action decode;
    uint64_t a, b;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    decode = mates_begin(&w, &spec, &a, &b);
    decoded(&w, &decode, &failure);
    for (int i = 0; i < 2; i++) {
        expect_of(&w, CORE_JOB_FAILED, i == 0 ? a : b);
        assert_string_equal(w.action.failure->text, failure.text);
        assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, i == 0 ? 100 : 200);
    }
    world_end(&w);
    world_deinit(&w);
}

/* The slot of an evicted job that its mate waits for is filled and given to the mate. */
static void test_eviction_is_of_one(void **state)
{
    struct core_job_spec spec = spec_make(HOST, 1);
    struct failure failure = failure_make("evicted");
    struct world w;
    struct core_action decode, batch;
    uint64_t a, b;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    decode = mates_begin(&w, &spec, &a, &b);
    assert_int_equal(core_job_evict(w.core, a, &failure, 0), 0);
    expect_of(&w, CORE_JOB_FAILED, a);
    expect_nothing(&w); /* the decode is not cancelled */
    decoded(&w, &decode, NULL);
    batch = *expect_of(&w, CORE_BATCH_READY, b);
    assert_int_equal(batch.memory, 100);
    assert_int_equal(core_job_close(w.core, PEER, a, 0), 0);
    expect_nothing(&w);
    assert_int_equal(release(&w, &batch), 0);
    assert_int_equal(expect_of(&w, CORE_SLOT_FREE, a)->memory, 100);
    expect_of(&w, CORE_JOB_GONE, a);
    expect_decode(&w, 0, 1);
    assert_int_equal(w.action.memory, 200);
    world_end(&w);
    world_deinit(&w);
}

/* A batch that is only gathered to the device of its job is of no use to another. */
static void test_gathered(void **state)
{
    struct core_job_spec spec = spec_make(GPU, 1);
    struct world w;
    struct core_action decode, copy;
    uint64_t a, b;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    a = mate_begin(&w, &spec, 100);
    ring_begin(&w, a);
    decode = *expect(&w, CORE_DECODE);
    b = mate_begin(&w, &spec, 200);
    ring_begin(&w, b);
    assert_int_equal(shared(&w, b), 1);
    core_gathered(w.core, decode.feed, decode.slot, decode.generation, 0);
    copy = *expect_of(&w, CORE_COPY, a);
    expect_decode(&w, 0, 0);
    assert_int_equal(w.action.memory, 200);
    assert_int_equal(shared(&w, b), 0);
    decoded(&w, &w.action, NULL);
    copied(&w, expect_of(&w, CORE_COPY, b), NULL);
    copied(&w, &copy, NULL);
    world_end(&w);
    world_deinit(&w);
}

/* One that joins starts at what comes next for the furthest. */
static void test_live(void **state)
{
    struct core_job_spec spec = spec_make(HOST, 2);
    struct core_job_info info;
    struct core_action decodes[2];
    struct world w;
    uint64_t b;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    spec.start = (struct cursor){3, 5};
    mate_begin(&w, &spec, 100);
    expect(&w, CORE_JOB_READY);
    for (int i = 0; i < 2; i++)
        decodes[i] = *expect(&w, CORE_DECODE);
    for (int i = 0; i < 2; i++) {
        decoded(&w, &decodes[i], NULL);
        expect(&w, CORE_BATCH_READY);
    }
    spec.start = (struct cursor){0, 0};
    spec.live = true;
    b = mate_begin(&w, &spec, 200);
    expect(&w, CORE_JOB_READY);
    assert_true(core_job_find(w.core, b, &info));
    assert_int_equal(info.start.epoch, 3);
    assert_int_equal(info.start.step, 7);
    expect_decode(&w, 3, 7);
    world_end(&w);
    world_deinit(&w);
}

/* One that is still opening, from a token perhaps, is joined where it will start. */
static void test_live_while_opening(void **state)
{
    struct core_job_spec spec = spec_make(GPU, 1);
    struct world w;
    uint64_t a;
    uint32_t ring;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    spec.start = (struct cursor){3, 5};
    a = mate_begin(&w, &spec, 100);
    ring = expect(&w, CORE_RING_MAKE)->ring;
    spec = spec_make(HOST, 1);
    spec.live = true;
    mate_begin(&w, &spec, 200);
    expect(&w, CORE_JOB_READY);
    expect_decode(&w, 3, 5);
    decoded(&w, &w.action, NULL);
    expect_batch(&w, 3, 5);
    core_ring_made(w.core, a, ring, 0);
    world_end(&w);
    world_deinit(&w);
}

static void expect_stranger(struct world *w, const struct core_job_spec *spec)
{
    uint64_t job = mate_begin(w, spec, 200);

    expect(w, CORE_JOB_READY);
    expect_decode(w, 0, 0);
    assert_int_equal(shared(w, job), 0);
    assert_int_equal(core_job_close(w->core, PEER, job, 0), 0);
    expect(w, CORE_DECODE_CANCEL);
    decoded(w, &w->action, NULL);
    take_all(w);
}

static void test_strangers(void **state)
{
    struct core_job_spec spec = spec_make(HOST, 1), other;
    struct account *tenant;
    struct world w;

    (void)state;
    world_init(&w, UINT64_MAX, 8);
    spec.order.world = 2;
    mate_begin(&w, &spec, 100);
    expect(&w, CORE_JOB_READY);
    decoded(&w, expect(&w, CORE_DECODE), NULL);
    expect(&w, CORE_BATCH_READY);

    other = spec;
    other.order.seed = 1;
    expect_stranger(&w, &other);
    other = spec;
    other.order.batch = 4;
    expect_stranger(&w, &other);
    other = spec;
    other.order.world = 4;
    expect_stranger(&w, &other);
    other = spec;
    other.order.rank = 1;
    expect_stranger(&w, &other);
    other = spec;
    other.order.shuffle = ORDER_SHUFFLE_NONE;
    expect_stranger(&w, &other);
    other = spec;
    other.order.last = ORDER_LAST_PAD;
    expect_stranger(&w, &other);
    other = spec;
    other.order.bad = ORDER_BAD_BLANK;
    expect_stranger(&w, &other);
    other = spec;
    other.pipeline = "center-crop:224";
    expect_stranger(&w, &other);
    tenant = w.tenant;
    w.tenant = account_ref(&w.accounts, "uid:1001");
    expect_stranger(&w, &spec);
    account_unref(w.tenant);
    w.tenant = tenant;
    world_end(&w);
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decoded_once),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_debt),
        cmocka_unit_test(test_failure_is_of_both),
        cmocka_unit_test(test_gathered),
        cmocka_unit_test(test_live),
        cmocka_unit_test(test_live_while_opening),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_eviction_is_of_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
