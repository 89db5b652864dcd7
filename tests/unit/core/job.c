/*
 * The life of a job: refused, opened, failed, closed at every stage.
 */
#include "world.h"

static void expect_refused(struct world *w, struct core_job_spec spec, int code, const char *text)
{
    struct failure failure = {0};
    uint64_t job;

    assert_int_equal(core_job_open(w->core, w->tenant, PEER, &spec, 0, &job, &failure), code);
    assert_int_equal(failure.code, code);
    assert_string_equal(failure.text, text);
    expect_nothing(w);
}

static void test_refused(void **state)
{
    struct world w;
    struct core_job_spec good = spec_make(GPU, 4), spec = good;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    spec.device = 4;
    expect_refused(&w, spec, -EINVAL, "there is no device 4");
    spec = good;
    spec.depth = 0;
    expect_refused(&w, spec, -EINVAL, "depth is 0: it may be 1 to 128");
    spec.depth = DEPTH_MAX + 1;
    expect_refused(&w, spec, -EINVAL, "depth is 129: it may be 1 to 128");
    spec = good;
    spec.order.batch = 0;
    expect_refused(&w, spec, -EINVAL, "batch is 0: a batch has at least one sample");
    spec.order.batch = BATCH_MAX + 1;
    expect_refused(&w, spec, -EINVAL, "batch is 1048577: it may be 1 to 1048576");
    world_deinit(&w);
}

static void test_too_many_jobs(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 1);

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    for (int i = 0; i < 8; i++)
        job_open(&w, &spec);
    expect_refused(&w, spec, -EDQUOT,
                   "tenant uid:1000: the limit is 8 jobs (limits.jobs), 8 are in use and 1 more "
                   "were asked for");
    core_peer_gone(w.core, PEER, 0);
    for (uint64_t job = 1; job <= 8; job++) {
        struct failure failure = failure_make("cancelled");

        assert_int_equal(expect(&w, CORE_INDEX_CANCEL)->job, job);
        core_job_refused(w.core, job, &failure, 0);
    }
    for (uint64_t job = 1; job <= 8; job++)
        assert_int_equal(expect(&w, CORE_JOB_GONE)->job, job);
    world_deinit(&w);
}

/* Opens a job on the host device and expects it to fail with text once it is indexed. */
static void expect_failed(struct world *w, const struct core_job_spec *spec, uint64_t samples,
                          const char *text)
{
    uint64_t job = job_open(w, spec);

    job_index(w, job, samples);
    expect(w, CORE_JOB_FAILED);
    assert_string_equal(w->action.failure->text, text);
    assert_int_equal(core_job_close(w->core, PEER, job, 0), 0);
    expect(w, CORE_JOB_GONE);
}

static void test_plan_fails(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 2);

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    expect_failed(&w, &spec, 0, "folder:/photos: the dataset has no samples");
    expect_failed(&w, &spec, 1,
                  "folder:/photos: a step takes 2 samples (batch 2 on 1 ranks), the dataset has 1: "
                  "with last drop no step is left");
    spec.start.step = 6;
    expect_failed(&w, &spec, 10, "folder:/photos: the start is step 6, an epoch has 5 steps");
    spec.has_token = true;
    spec.token = (struct order_token){.dataset = "tar:x", .pipeline = "none", .fingerprint = 1};
    expect_failed(&w, &spec, 10,
                  "folder:/photos: the token is for dataset tar:x (fingerprint 0000000000000001), "
                  "the job reads folder:/photos (fingerprint 0000000000000abc)");
    world_deinit(&w);
}

static void test_index_refused(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 2);
    struct failure failure = failure_make("/photos: no such directory");
    struct core_job_info info;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_open(&w, &spec);
    core_job_refused(w.core, job, &failure, 0);
    expect(&w, CORE_JOB_FAILED);
    assert_string_equal(w.action.failure->text, "/photos: no such directory");
    assert_true(core_job_find(w.core, job, &info));
    assert_string_equal(info.state_text, "failed");
    core_job_refused(w.core, job, &failure, 0);
    expect_nothing(&w);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    expect(&w, CORE_JOB_GONE);
    world_deinit(&w);
}

static void test_close_while_indexed(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 2);
    struct failure failure = failure_make("cancelled");
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_open(&w, &spec);
    assert_int_equal(core_job_close(w.core, PEER + 1, job, 0), -EPROTO);
    assert_int_equal(core_job_close(w.core, PEER, job + 1, 0), -EPROTO);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), -EPROTO);
    expect(&w, CORE_INDEX_CANCEL);
    expect_nothing(&w);
    core_job_refused(w.core, job, &failure, 0);
    expect(&w, CORE_JOB_GONE);
    /* It may have been done before it heard of the cancelling. */
    job = job_open(&w, &spec);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    expect(&w, CORE_INDEX_CANCEL);
    job_index(&w, job, 10);
    expect(&w, CORE_JOB_GONE);
    world_deinit(&w);
}

static void test_close_while_reserved(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 2);
    uint64_t job, memory[2] = {5, 6};

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_open(&w, &spec);
    job_index(&w, job, 10);
    expect(&w, CORE_RESERVE);
    assert_int_equal(w.action.count, 2);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    expect_nothing(&w);
    core_job_reserved(w.core, job, memory, 0);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, 5);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, 6);
    expect(&w, CORE_JOB_GONE);
    world_deinit(&w);
}

static void test_close_while_ring_is_made(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 1);
    uint32_t ring;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_begin(&w, &spec, 10);
    ring = expect(&w, CORE_RING_MAKE)->ring;
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    expect(&w, CORE_SLOT_FREE);
    expect_nothing(&w);
    core_ring_made(w.core, job, ring, 0);
    assert_int_equal(expect(&w, CORE_RING_FREE)->ring, ring);
    expect(&w, CORE_JOB_GONE);
    world_deinit(&w);
}

/* Everything that is under way is waited for: a decode, a held lease, then the end. */
static void test_close_in_two_phases(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 2);
    struct core_action first, second, batch;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_begin(&w, &spec, 10);
    expect(&w, CORE_JOB_READY);
    first = *expect(&w, CORE_DECODE);
    second = *expect(&w, CORE_DECODE);
    decoded(&w, &first, NULL);
    batch = *expect(&w, CORE_BATCH_READY);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    assert_int_equal(expect(&w, CORE_DECODE_CANCEL)->slot, second.slot);
    expect_nothing(&w);
    decoded(&w, &second, NULL);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, second.memory);
    expect_nothing(&w);
    assert_int_equal(release(&w, &batch), 0);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, first.memory);
    expect(&w, CORE_JOB_GONE);
    assert_int_equal(release(&w, &batch), -EPROTO);
    world_deinit(&w);
}

/* The client's connection ends before its process: what it holds stays until then. */
static void test_peer(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 1);
    struct core_action decode, copy, batch;
    uint32_t ring;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_begin(&w, &spec, 10);
    ring = ring_begin(&w, job);
    decode = *expect(&w, CORE_DECODE);
    decoded(&w, &decode, NULL);
    copy = *expect(&w, CORE_COPY);
    copied(&w, &copy, NULL);
    assert_int_equal(core_ring_opened(w.core, PEER, job, ring, true, NULL, 0), 0);
    batch = *expect(&w, CORE_BATCH_READY);
    expect_nothing(&w);
    core_peer_gone(w.core, PEER + 1, 0);
    expect_nothing(&w);
    core_peer_gone(w.core, PEER, 0);
    expect(&w, CORE_SLOT_FREE);
    expect_nothing(&w);
    assert_int_equal(release(&w, &batch), -EPROTO);
    assert_int_equal(core_device_ring_bytes(w.core, GPU), RING_ALIGN);
    core_peer_dead(w.core, PEER, 0);
    assert_int_equal(expect(&w, CORE_RING_FREE)->ring, ring);
    expect(&w, CORE_JOB_GONE);
    world_deinit(&w);
}

/* It fails at once with what was not handed off, and what its client holds stays. */
static void test_evict(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 3);
    struct failure failure = failure_make("evicted by uid 0 (root)");
    struct core_action decodes[3], batch;
    struct core_job_info info;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 3);
    job = job_begin(&w, &spec, 10);
    expect(&w, CORE_JOB_READY);
    for (int i = 0; i < 3; i++)
        decodes[i] = *expect(&w, CORE_DECODE);
    decoded(&w, &decodes[0], NULL);
    batch = *expect(&w, CORE_BATCH_READY);
    decoded(&w, &decodes[2], NULL); /* ready, but step 1 is not */
    expect_nothing(&w);
    assert_int_equal(core_job_evict(w.core, job + 1, &failure, 0), -ENOENT);
    assert_int_equal(core_job_evict(w.core, job, &failure, 0), 0);
    assert_int_equal(expect(&w, CORE_DECODE_CANCEL)->slot, decodes[1].slot);
    expect(&w, CORE_JOB_FAILED);
    assert_string_equal(w.action.failure->text, failure.text);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, decodes[2].memory);
    expect_nothing(&w);
    assert_true(core_job_find(w.core, job, &info));
    assert_string_equal(info.state_text, "failed");
    assert_true(info.ended);
    assert_int_equal(info.leased, 1);
    assert_int_equal(core_job_evict(w.core, job, &failure, 0), -EALREADY);
    decoded(&w, &decodes[1], NULL);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, decodes[1].memory);
    assert_int_equal(release(&w, &batch), 0);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, decodes[0].memory);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    expect(&w, CORE_JOB_GONE);
    assert_int_equal(core_job_evict(w.core, job, &failure, 0), -ENOENT);
    world_deinit(&w);
}

/* Before it is ready: its index is cancelled, slots and a ring that come later go back at once. */
static void test_evict_while_opening(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 1);
    struct failure failure = failure_make("evicted");
    uint64_t job, memory[1] = {5};
    uint32_t ring;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_open(&w, &spec);
    assert_int_equal(core_job_evict(w.core, job, &failure, 0), 0);
    expect(&w, CORE_INDEX_CANCEL);
    expect(&w, CORE_JOB_FAILED);
    core_job_refused(w.core, job, &failure, 0);
    expect_nothing(&w);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    expect(&w, CORE_JOB_GONE);
    job = job_open(&w, &spec);
    job_index(&w, job, 10);
    expect(&w, CORE_RESERVE);
    assert_int_equal(core_job_evict(w.core, job, &failure, 0), 0);
    expect(&w, CORE_JOB_FAILED);
    core_job_reserved(w.core, job, memory, 0);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, 5);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    expect(&w, CORE_JOB_GONE);
    job = job_begin(&w, &spec, 10);
    ring = expect(&w, CORE_RING_MAKE)->ring;
    assert_int_equal(core_job_evict(w.core, job, &failure, 0), 0);
    expect(&w, CORE_JOB_FAILED);
    expect(&w, CORE_SLOT_FREE);
    core_ring_made(w.core, job, ring, 0);
    assert_int_equal(expect(&w, CORE_RING_FREE)->ring, ring);
    assert_int_equal(core_device_ring_bytes(w.core, GPU), 0);
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    expect(&w, CORE_JOB_GONE);
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_many_jobs),
        cmocka_unit_test(test_plan_fails),
        cmocka_unit_test(test_index_refused),
        cmocka_unit_test(test_close_while_indexed),
        cmocka_unit_test(test_close_while_reserved),
        cmocka_unit_test(test_close_while_ring_is_made),
        cmocka_unit_test(test_close_in_two_phases),
        cmocka_unit_test(test_peer),
        cmocka_unit_test(test_evict),
        cmocka_unit_test(test_evict_while_opening),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
