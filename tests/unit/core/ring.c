/*
 * Rings: the client's answer, the loss of a device. Which delivery is taken and
 * why is in ladder.c.
 */
#include "world.h"

/* The client cannot open the first ring while a copy into it is under way. */
static void test_client_refuses(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 2);
    struct core_action decodes[2], copies[2], again;
    uint32_t ring, next;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_begin(&w, &spec, 10);
    ring = ring_begin(&w, job);
    for (int i = 0; i < 2; i++)
        decodes[i] = *expect(&w, CORE_DECODE);
    for (int i = 0; i < 2; i++) {
        decoded(&w, &decodes[i], NULL);
        copies[i] = *expect(&w, CORE_COPY);
        assert_int_equal(copies[i].ring, ring);
    }
    copied(&w, &copies[0], NULL); /* step 0 is ready in a ring that will be refused */
    expect_nothing(&w);
    assert_int_equal(core_ring_opened(w.core, PEER, job, ring + 1, false, "x", 0), -EPROTO);
    assert_int_equal(core_ring_opened(w.core, PEER, job, ring, false, "wrong driver", 0), 0);
    next = expect(&w, CORE_RING_MAKE)->ring;
    assert_int_equal(w.action.delivery, DELIVERY_IPC);
    expect_decode(&w, 0, 0);
    again = w.action;
    assert_int_equal(core_device_ring_bytes(w.core, GPU), 2 * RING_ALIGN);
    copied(&w, &copies[1], NULL);
    assert_int_equal(expect(&w, CORE_RING_FREE)->ring, ring);
    core_ring_made(w.core, job, next, 0);
    expect(&w, CORE_RING_REPLACED);
    assert_string_equal(w.action.why,
                        "fd does not work: the client could not open the ring: wrong driver");
    /* Step 1 is still in its slot and only copied again. */
    expect(&w, CORE_COPY);
    assert_int_equal(w.action.memory, copies[1].memory);
    assert_int_equal(w.action.ring, next);
    copied(&w, &copies[1], NULL); /* late: of the other ring */
    expect_nothing(&w);
    assert_int_equal(core_ring_opened(w.core, PEER, job, next, true, NULL, 0), 0);
    assert_int_equal(core_ring_opened(w.core, PEER, job, next, true, NULL, 0), -EPROTO);
    decoded(&w, &again, NULL);
    expect(&w, CORE_COPY);
    copied(&w, &w.action, NULL);
    expect_batch(&w, 0, 0);
    world_kill(&w);
    take_all(&w);
    core_device_lost(w.core, GPU, &(struct failure){.code = -EIO}, 0);
    take_all(&w);
    world_deinit(&w);
}

static void test_quota(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 1);

    (void)state;
    world_init(&w, RING_ALIGN, 2);
    job_begin(&w, &spec, 10);
    expect(&w, CORE_RING_MAKE);
    job_begin(&w, &spec, 10);
    expect(&w, CORE_JOB_FAILED);
    assert_int_equal(w.action.failure->code, -EDQUOT);
    assert_string_equal(w.action.failure->text,
                        "tenant uid:1000: the limit is 2097152 bytes of device memory "
                        "(limits.device), 2097152 are in use and 2097152 more were asked for");
    expect(&w, CORE_SLOT_FREE);
    world_kill(&w);
    take_all(&w);
    core_ring_made(w.core, 1, 1, 0);
    take_all(&w);
    world_deinit(&w);
}

/* Runs a job of depth 2 with step 0 handed off, step 1 ready to be copied. */
struct lost {
    struct world w;
    uint64_t job;
    uint32_t ring;
    struct core_action batch, copy;
    struct failure failure;
};

static void lost_init(struct lost *l)
{
    struct core_job_spec spec = spec_make(GPU, 2);
    struct core_action decodes[2];

    world_init(&l->w, UINT64_MAX, 2);
    l->job = job_begin(&l->w, &spec, 10);
    l->ring = ring_begin(&l->w, l->job);
    for (int i = 0; i < 2; i++)
        decodes[i] = *expect(&l->w, CORE_DECODE);
    assert_int_equal(core_ring_opened(l->w.core, PEER, l->job, l->ring, true, NULL, 0), 0);
    decoded(&l->w, &decodes[0], NULL);
    expect(&l->w, CORE_COPY);
    copied(&l->w, &l->w.action, NULL);
    l->batch = *expect(&l->w, CORE_BATCH_READY);
    decoded(&l->w, &decodes[1], NULL);
    l->copy = *expect(&l->w, CORE_COPY);
    expect_nothing(&l->w);
    l->failure = failure_make("GPU-1: XID 79");
}

static void test_device_lost(void **state)
{
    struct lost l;
    uint32_t ring;

    (void)state;
    lost_init(&l);
    core_device_lost(l.w.core, GPU, &l.failure, 0);
    ring = expect(&l.w, CORE_RING_MAKE)->ring;
    assert_int_equal(core_device_ring_bytes(l.w.core, GPU), 2 * RING_ALIGN);
    core_ring_made(l.w.core, l.job, ring, 0);
    expect(&l.w, CORE_RING_REPLACED);
    assert_int_equal(l.w.action.ring, ring);
    expect(&l.w, CORE_COPY);
    assert_int_equal(l.w.action.memory, l.copy.memory);
    copied(&l.w, &l.w.action, NULL);
    expect_nothing(&l.w); /* the client has not opened it yet */
    assert_int_equal(core_ring_opened(l.w.core, PEER, l.job, ring, true, NULL, 0), 0);
    expect_batch(&l.w, 0, 1);
    assert_int_equal(l.w.action.ring, ring);
    /* Step 0 is still read in the old ring. */
    assert_int_equal(core_ring_closed(l.w.core, PEER, l.job, l.ring, 0), -EPROTO);
    assert_int_equal(release(&l.w, &l.batch), 0);
    expect_decode(&l.w, 0, 2);
    assert_int_equal(core_ring_closed(l.w.core, PEER, l.job, l.ring, 0), 0);
    assert_int_equal(core_ring_closed(l.w.core, PEER, l.job, l.ring, 0), -EPROTO);
    expect_nothing(&l.w); /* lost with its process: nothing to free */
    assert_int_equal(core_device_ring_bytes(l.w.core, GPU), RING_ALIGN);
    core_decoded(l.w.core, l.w.action.feed, l.w.action.slot, l.w.action.generation, NULL, 0, 0, 0,
                 0);
    world_kill(&l.w);
    take_all(&l.w);
    core_device_lost(l.w.core, GPU, &l.failure, 0);
    take_all(&l.w);
    world_deinit(&l.w);
}

static void test_device_lost_too_often(void **state)
{
    struct lost l;

    (void)state;
    lost_init(&l);
    for (int i = 1; i < CORE_DEVICE_RESTARTS_MAX; i++) {
        core_device_lost(l.w.core, GPU, &l.failure, 0);
        expect(&l.w, CORE_RING_MAKE);
    }
    core_device_lost(l.w.core, GPU_FD_ONLY, &l.failure, 0);
    expect_nothing(&l.w);
    core_device_lost(l.w.core, GPU, &l.failure, 0);
    expect(&l.w, CORE_JOB_FAILED);
    assert_string_equal(
        l.w.action.failure->text,
        "the device was lost 3 times without a batch delivered between: GPU-1: XID 79");
    take_all(&l.w);
    /* What the client holds is still its own. */
    assert_int_equal(release(&l.w, &l.batch), 0);
    assert_int_equal(core_ring_closed(l.w.core, PEER, l.job, l.ring, 0), 0);
    assert_int_equal(core_job_close(l.w.core, PEER, l.job, 0), 0);
    expect(&l.w, CORE_JOB_GONE);
    world_deinit(&l.w);
}

/* A client that never closes old rings is stopped. */
static void test_too_many_rings(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 1);
    struct failure failure = failure_make("reset");
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_begin(&w, &spec, 100);
    for (uint32_t made = 1; made <= 8; made++) {
        uint32_t ring = expect(&w, CORE_RING_MAKE)->ring;

        core_ring_made(w.core, job, ring, 0);
        take_all(&w);
        assert_int_equal(core_ring_opened(w.core, PEER, job, ring, true, NULL, 0), 0);
        /* A batch is delivered between, so the losses do not count up. */
        core_decoded(w.core, w.action.feed, 0, made, NULL, 0, 0, 0, 0);
        expect(&w, CORE_COPY);
        copied(&w, &w.action, NULL);
        expect(&w, CORE_BATCH_READY);
        assert_int_equal(release(&w, &w.action), 0);
        expect(&w, CORE_DECODE);
        core_device_lost(w.core, GPU, &failure, 0);
    }
    expect(&w, CORE_DECODE_CANCEL);
    expect(&w, CORE_JOB_FAILED);
    assert_int_equal(w.action.failure->code, -EMFILE);
    assert_string_equal(w.action.failure->text,
                        "job 1: the client has not closed its last 8 rings");
    take_all(&w);
    world_kill(&w);
    take_all(&w);
    core_decoded(w.core, 1, 0, 9, NULL, 0, 0, 0, 0);
    take_all(&w);
    world_deinit(&w);
}

/* Closing the ring in use ends hand-offs; the job then waits to be closed. */
static void test_ring_in_use_closed(void **state)
{
    struct lost l;

    (void)state;
    lost_init(&l);
    assert_int_equal(release(&l.w, &l.batch), 0);
    expect_decode(&l.w, 0, 2);
    assert_int_equal(core_ring_closed(l.w.core, PEER, l.job, l.ring, 0), 0);
    expect(&l.w, CORE_DECODE_CANCEL);
    expect_nothing(&l.w); /* a copy is under way */
    copied(&l.w, &l.copy, NULL);
    assert_int_equal(expect(&l.w, CORE_RING_FREE)->ring, l.ring);
    expect(&l.w, CORE_SLOT_FREE);
    core_device_lost(l.w.core, GPU, &l.failure, 0);
    expect_nothing(&l.w);
    assert_int_equal(core_job_close(l.w.core, PEER, l.job, 0), 0);
    expect_nothing(&l.w);
    core_decoded(l.w.core, l.batch.feed, 0, 2, NULL, 0, 0, 0, 0);
    expect(&l.w, CORE_SLOT_FREE);
    expect(&l.w, CORE_JOB_GONE);
    world_deinit(&l.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_refuses), cmocka_unit_test(test_quota),
        cmocka_unit_test(test_device_lost),    cmocka_unit_test(test_device_lost_too_often),
        cmocka_unit_test(test_too_many_rings), cmocka_unit_test(test_ring_in_use_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
