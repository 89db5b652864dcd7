/*
 * Batches: step order, credits, epochs, releases, and where a failure is told.
 */
#include "world.h"

static void end(struct world *w)
{
    world_kill(w);
    take_all(w);
    world_deinit(w);
}

/* Batches that are complete out of order are handed off in order, with the ends of epochs. */
static void test_order(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 3);
    struct core_action decodes[3];
    struct core_job_info info;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 3);
    job = job_begin(&w, &spec, 4); /* two steps an epoch */
    expect(&w, CORE_JOB_READY);
    for (int i = 0; i < 3; i++)
        decodes[i] = *expect(&w, CORE_DECODE);
    assert_int_equal(decodes[2].epoch, 1);
    assert_int_equal(decodes[2].step, 0);
    decoded(&w, &decodes[2], NULL);
    decoded(&w, &decodes[1], NULL);
    expect_nothing(&w);
    decoded(&w, &decodes[0], NULL);
    expect_batch(&w, 0, 0);
    expect_batch(&w, 0, 1);
    assert_int_equal(expect(&w, CORE_EPOCH_END)->epoch, 0);
    expect_batch(&w, 1, 0);
    expect_nothing(&w);
    assert_true(core_job_find(w.core, job, &info));
    assert_int_equal(info.leased, 3);
    assert_int_equal(info.delivered, 3);
    assert_int_equal(info.starved, 1);
    assert_int_equal(info.next.epoch, 1);
    assert_int_equal(info.next.step, 1);
    assert_int_equal(info.stages.samples, 6);
    assert_int_equal(info.stages.read_ns, 30);
    assert_int_equal(info.stages.decode_ns, 60);
    end(&w);
}

static void test_start_at_the_end_of_an_epoch(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 1);

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    spec.has_token = true;
    spec.token = (struct order_token){.dataset = "x",
                                      .pipeline = "none",
                                      .fingerprint = 0xabc,
                                      .global_batch = 2,
                                      .epoch = 5,
                                      .position = 4};
    job_begin(&w, &spec, 4);
    expect(&w, CORE_JOB_READY);
    assert_int_equal(expect(&w, CORE_EPOCH_END)->epoch, 5);
    expect_decode(&w, 6, 0);
    decoded(&w, &w.action, NULL);
    expect_batch(&w, 6, 0);
    end(&w);
}

static void test_release(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 1);
    struct core_action batch, decode;
    struct core_job_info info;
    struct core_stages totals;
    uint64_t job, bytes, opened, failed;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    w.now = 100;
    job = job_begin(&w, &spec, 10);
    expect(&w, CORE_JOB_READY);
    decode = *expect(&w, CORE_DECODE);
    decoded(&w, &decode, NULL);
    batch = *expect(&w, CORE_BATCH_READY);
    expect_nothing(&w); /* depth 1: nothing runs ahead */
    assert_int_equal(core_release(w.core, PEER + 1, job, 0, batch.generation, 0), -EPROTO);
    assert_int_equal(core_release(w.core, PEER, job + 1, 0, batch.generation, 0), -EPROTO);
    assert_int_equal(core_release(w.core, PEER, job, 1, batch.generation, 0), -EPROTO);
    assert_int_equal(core_release(w.core, PEER, job, 0, batch.generation + 1, 0), -EPROTO);
    expect_nothing(&w);
    w.now = 150;
    assert_int_equal(release(&w, &batch), 0);
    expect_decode(&w, 0, 1);
    assert_int_equal(w.action.memory, decode.memory);
    assert_int_not_equal(w.action.generation, decode.generation);
    assert_int_equal(release(&w, &batch), -EPROTO);
    decoded(&w, &decode, NULL); /* late: of the generation before */
    expect_nothing(&w);
    decoded(&w, &w.action, NULL);
    expect_batch(&w, 0, 1);
    assert_int_not_equal(w.action.generation, batch.generation);
    assert_true(core_job_find(w.core, job, &info));
    assert_int_equal(info.stages.hold_ns, 50);
    assert_int_equal(info.stages.slot_wait_ns, 0);
    core_totals(w.core, &totals, &bytes, &opened, &failed);
    assert_int_equal(totals.hold_ns, 50);
    assert_int_equal(totals.batches, 2);
    assert_int_equal(bytes, 2 * SLOT_BYTES);
    assert_int_equal(opened, 1);
    assert_int_equal(failed, 0);
    end(&w);
}

/* With a ring, decoding goes on as leases are free, not as slots are. */
static void test_credits(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 2);
    struct core_action batches[2], decode;
    uint32_t ring;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 1);
    job = job_begin(&w, &spec, 20);
    ring = ring_begin(&w, job);
    assert_int_equal(core_ring_opened(w.core, PEER, job, ring, true, NULL, 0), 0);
    decode = *expect(&w, CORE_DECODE);
    for (uint32_t i = 0; i < 2; i++) {
        struct core_action copy;

        decoded(&w, &decode, NULL);
        copy = *expect(&w, CORE_COPY);
        assert_int_equal(copy.lease, i);
        assert_int_equal(copy.bytes, SLOT_BYTES);
        if (i == 0)
            decode = *expect(&w, CORE_DECODE);
        copied(&w, &copy, NULL);
        batches[i] = *expect(&w, CORE_BATCH_READY);
        assert_int_equal(batches[i].lease, copy.lease);
        assert_int_equal(batches[i].generation, copy.generation);
        assert_int_equal(batches[i].ring, ring);
    }
    expect_nothing(&w); /* both slots are free, both leases are held */
    assert_int_equal(release(&w, &batches[1]), 0);
    expect_decode(&w, 0, 2);
    decoded(&w, &w.action, NULL);
    assert_int_equal(expect(&w, CORE_COPY)->lease, batches[1].lease);
    copied(&w, &w.action, NULL);
    expect_batch(&w, 0, 2);
    end(&w);
}

/* Step 1 does not decode: step 0 is delivered first, later ones never. */
static void test_failure_in_step_order(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 3);
    struct core_action decodes[3];
    struct failure bad = failure_make("c1/dog.jpg: cut off"), later = failure_make("later");
    struct core_job_info info;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 3);
    job = job_begin(&w, &spec, 20);
    expect(&w, CORE_JOB_READY);
    for (int i = 0; i < 3; i++)
        decodes[i] = *expect(&w, CORE_DECODE);
    decoded(&w, &decodes[2], &later);
    expect_nothing(&w);
    decoded(&w, &decodes[1], &bad);
    expect_nothing(&w);
    decoded(&w, &decodes[0], NULL);
    expect_batch(&w, 0, 0);
    expect(&w, CORE_JOB_FAILED);
    assert_string_equal(w.action.failure->text, "c1/dog.jpg: cut off");
    expect(&w, CORE_SLOT_FREE);
    expect(&w, CORE_SLOT_FREE);
    expect_nothing(&w);
    assert_true(core_job_find(w.core, job, &info));
    assert_int_equal(info.failure->code, -EIO);
    assert_int_equal(info.leased, 1);
    end(&w);
}

static void test_copy_fails(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 1);
    struct failure bad = failure_make("cuMemcpyHtoDAsync: invalid argument");
    uint32_t ring;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 1);
    job = job_begin(&w, &spec, 20);
    ring = ring_begin(&w, job);
    expect_decode(&w, 0, 0);
    decoded(&w, &w.action, NULL);
    expect(&w, CORE_COPY);
    copied(&w, &w.action, &bad);
    expect(&w, CORE_JOB_FAILED);
    assert_string_equal(w.action.failure->text, "cuMemcpyHtoDAsync: invalid argument");
    expect(&w, CORE_SLOT_FREE);
    assert_int_equal(core_ring_opened(w.core, PEER, job, ring, true, NULL, 0), 0);
    assert_int_equal(core_ring_closed(w.core, PEER, job, ring, 0), 0);
    expect(&w, CORE_RING_FREE);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    expect(&w, CORE_JOB_GONE);
    world_deinit(&w);
}

static void decoded_bad(struct world *w, const struct core_action *decode, uint32_t bad)
{
    core_decoded(w->core, decode->feed, decode->slot, decode->generation, NULL, bad, 10, 20, 0);
}

/* Five bad samples an epoch are borne, seven are not: counted in step order, not as they come, and
 * anew in each epoch. */
static void test_limit_on_bad_samples(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 4);
    struct core_action decodes[4], first, batch;
    struct core_job_info info;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 4);
    spec.order.batch = 4;
    spec.bad_limit = (struct core_bad_limit){.has = true, .samples = 5};
    job = job_begin(&w, &spec, 8); /* two steps an epoch */
    expect(&w, CORE_JOB_READY);
    for (int i = 0; i < 4; i++)
        decodes[i] = *expect(&w, CORE_DECODE);
    decoded_bad(&w, &decodes[3], 3);
    decoded_bad(&w, &decodes[1], 2);
    decoded_bad(&w, &decodes[2], 4);
    expect_nothing(&w);
    decoded_bad(&w, &decodes[0], 3);
    expect_batch(&w, 0, 0);
    first = w.action;
    expect_batch(&w, 0, 1);
    expect(&w, CORE_EPOCH_END);
    expect_batch(&w, 1, 0);
    batch = w.action;
    expect(&w, CORE_JOB_FAILED);
    assert_int_equal(w.action.failure->code, -EBADMSG);
    assert_string_equal(w.action.failure->text,
                        "folder:/photos: with step 1 there are 7 bad samples in epoch 1, the limit "
                        "is 5; pinctl jobs --bad 1 lists them");
    expect(&w, CORE_SLOT_FREE);
    expect_nothing(&w);
    assert_true(core_job_find(w.core, job, &info));
    assert_int_equal(info.bad, 0);
    assert_int_equal(release(&w, &batch), 0);
    assert_true(core_job_find(w.core, job, &info));
    assert_int_equal(info.bad, 4);
    assert_int_equal(core_total_bad(w.core), 4);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    assert_int_equal(release(&w, &first), 0); /* as of a batch that nobody took */
    assert_int_equal(core_total_bad(w.core), 4);
    end(&w);
}

/* A share of the samples of this rank's epoch, rounded down: of 12 samples 30 % are 3. */
static void test_share_of_bad_samples(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 1);
    struct core_action batch;

    (void)state;
    world_init(&w, UINT64_MAX, 1);
    spec.order.batch = 6;
    spec.bad_limit = (struct core_bad_limit){.has = true, .share_ppm = 300000};
    job_begin(&w, &spec, 12);
    expect(&w, CORE_JOB_READY);
    decoded_bad(&w, expect(&w, CORE_DECODE), 3);
    expect_batch(&w, 0, 0);
    batch = w.action;
    release(&w, &batch);
    decoded_bad(&w, expect(&w, CORE_DECODE), 1);
    expect(&w, CORE_JOB_FAILED);
    assert_non_null(strstr(w.action.failure->text, "4 bad samples in epoch 0, the limit is 3"));
    end(&w);
}

/* What was lost with a device and is made again counts once. */
static void test_bad_samples_made_again(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 1);
    struct failure lost = failure_make("it fell off");
    struct core_action batch, decode;
    struct core_job_info info;
    uint32_t ring;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 1);
    spec.bad_limit = (struct core_bad_limit){.has = true, .samples = 1};
    job = job_begin(&w, &spec, 20);
    ring_begin(&w, job);
    decoded_bad(&w, expect(&w, CORE_DECODE), 1);
    copied(&w, expect(&w, CORE_COPY), NULL);
    core_device_lost(w.core, GPU, &lost, 0);
    ring = expect(&w, CORE_RING_MAKE)->ring;
    decoded_bad(&w, expect(&w, CORE_DECODE), 1);
    core_ring_made(w.core, job, ring, 0);
    expect(&w, CORE_RING_REPLACED);
    copied(&w, expect(&w, CORE_COPY), NULL);
    assert_int_equal(core_ring_opened(w.core, PEER, job, ring, true, NULL, 0), 0);
    expect_batch(&w, 0, 0);
    batch = w.action;
    assert_int_equal(release(&w, &batch), 0);
    assert_true(core_job_find(w.core, job, &info));
    assert_int_equal(info.bad, 1);
    decode = *expect(&w, CORE_DECODE);
    world_kill(&w);
    decoded_bad(&w, &decode, 0);
    take_all(&w);
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_start_at_the_end_of_an_epoch),
        cmocka_unit_test(test_release),
        cmocka_unit_test(test_credits),
        cmocka_unit_test(test_failure_in_step_order),
        cmocka_unit_test(test_copy_fails),
        cmocka_unit_test(test_limit_on_bad_samples),
        cmocka_unit_test(test_share_of_bad_samples),
        cmocka_unit_test(test_bad_samples_made_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
