/*
 * The ladder: which delivery is taken and why, what comes when it does not
 * work, and the way from rings to regions.
 */
#include "world.h"

static void expect_refused(struct world *w, struct core_job_spec spec, int code, const char *text)
{
    struct failure failure = {0};
    uint64_t job;

    assert_int_equal(core_job_open(w->core, w->tenant, PEER, &spec, 0, &job, &failure), code);
    assert_string_equal(failure.text, text);
}

static void test_delivery_refused(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(HOST, 1);

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    spec.delivery = DELIVERY_FD;
    expect_refused(&w, spec, -EINVAL,
                   "delivery fd needs a GPU: the host device delivers by host only");
    spec.delivery = DELIVERY_IPC;
    expect_refused(&w, spec, -EINVAL,
                   "delivery ipc needs a GPU: the host device delivers by host only");
    spec.delivery = DELIVERY_COPY;
    expect_refused(&w, spec, -EINVAL,
                   "delivery copy needs a GPU: the host device delivers by host only");
    spec.delivery = DELIVERY_MAPPED;
    expect_refused(&w, spec, -EINVAL,
                   "delivery mapped needs a GPU: the host device delivers by host only");
    spec.delivery = (enum delivery)99;
    expect_refused(&w, spec, -EINVAL, "delivery 99 is unknown");
    spec = spec_make(GPU_FD_ONLY, 1);
    spec.delivery = DELIVERY_IPC;
    expect_refused(&w, spec, -EINVAL, "delivery ipc: ipc is off for this device (device.ipc)");
    spec.delivery = DELIVERY_AUTO;
    spec.client_fd = false;
    expect_refused(&w, spec, -EOPNOTSUPP,
                   "delivery auto finds no way to the device: the client cannot take fd; ipc is "
                   "off for this device (device.ipc); the client cannot take copy");
    spec.delivery = DELIVERY_FD;
    expect_refused(&w, spec, -EINVAL, "delivery fd: the client cannot take fd");
    spec = spec_make(GPU, 1);
    spec.delivery = DELIVERY_IPC;
    spec.client_ipc = false;
    expect_refused(&w, spec, -EINVAL, "delivery ipc: the client cannot take ipc");
    spec.delivery = DELIVERY_COPY;
    expect_refused(&w, spec, -EINVAL, "delivery copy: the client cannot take copy");
    spec.delivery = DELIVERY_MAPPED;
    expect_refused(&w, spec, -EINVAL, "delivery mapped: the client cannot take mapped");
    spec = spec_make(GPU_RINGS_OFF, 1);
    spec.client_coherent = true; /* of no use without mapped */
    expect_refused(&w, spec, -EOPNOTSUPP,
                   "delivery auto finds no way to the device: rings are off for this device "
                   "(device.rings); the client cannot take copy");
    spec.delivery = DELIVERY_FD;
    expect_refused(&w, spec, -EINVAL, "delivery fd: rings are off for this device (device.rings)");
    world_deinit(&w);
}

static void end(struct world *w)
{
    world_kill(w);
    take_all(w);
    world_deinit(w);
}

static void test_host_on_gpu(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 1);
    struct core_action decode;

    (void)state;
    world_init(&w, 0, 2); /* no device byte is needed */
    spec.delivery = DELIVERY_HOST;
    job_begin(&w, &spec, 10);
    expect(&w, CORE_JOB_READY);
    assert_int_equal(w.action.ring, 0);
    assert_int_equal(w.action.delivery, DELIVERY_HOST);
    assert_string_equal(w.action.why, "asked for");
    decode = *expect(&w, CORE_DECODE);
    decoded(&w, &decode, NULL);
    expect_batch(&w, 0, 0);
    assert_int_equal(w.action.memory, decode.memory);
    assert_int_equal(w.action.ring, 0);
    end(&w);
}

static void test_ladder(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 3);
    struct failure failure = failure_make("cuMemExportToShareableHandle: not supported");
    struct core_job_info info;
    uint64_t job;
    uint32_t ring;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_begin(&w, &spec, 10);
    ring = expect(&w, CORE_RING_MAKE)->ring;
    assert_int_equal(w.action.delivery, DELIVERY_FD);
    assert_int_equal(w.action.bytes, RING_ALIGN); /* 3 slots of 4,096 bytes, rounded up */
    core_ring_failed(w.core, job, ring, true, &failure, 0);
    expect(&w, CORE_RING_MAKE);
    assert_int_not_equal(w.action.ring, ring);
    assert_int_equal(w.action.delivery, DELIVERY_IPC);
    ring = w.action.ring;
    assert_int_equal(core_device_ring_bytes(w.core, GPU), RING_ALIGN);
    core_ring_made(w.core, job, ring, 0);
    expect(&w, CORE_JOB_READY);
    assert_string_equal(w.action.why,
                        "fd does not work: cuMemExportToShareableHandle: not supported");
    assert_int_equal(core_ring_opened(w.core, PEER, job, ring, true, NULL, 0), 0);
    assert_true(core_job_find(w.core, job, &info));
    assert_int_equal(info.delivery, DELIVERY_IPC);
    assert_string_equal(info.state_text, "running");
    take_all(&w);
    core_peer_gone(w.core, PEER, 0);
    take_all(&w);
    assert_int_equal(core_ring_closed(w.core, PEER, job, ring, 0), -EPROTO);
    core_peer_dead(w.core, PEER, 0);
    take_all(&w);
    core_decoded(w.core, info.feed, 0, 1, NULL, 0, 0, 0, 0);
    core_decoded(w.core, info.feed, 1, 1, NULL, 0, 0, 0, 0);
    take_all(&w);
    world_deinit(&w);
}

static void test_ladder_ends(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU_FD_ONLY, 1);
    struct failure failure = failure_make("no export");
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = job_begin(&w, &spec, 10);
    expect(&w, CORE_RING_MAKE);
    core_ring_failed(w.core, job, w.action.ring, true, &failure, 0);
    expect(&w, CORE_JOB_FAILED);
    assert_string_equal(w.action.failure->text,
                        "delivery fd: no export; ipc is off for this device (device.ipc)");
    expect(&w, CORE_SLOT_FREE);
    spec = spec_make(GPU, 1);
    job = job_begin(&w, &spec, 10);
    expect(&w, CORE_RING_MAKE);
    core_ring_failed(w.core, job, w.action.ring, false, &failure, 0);
    expect(&w, CORE_JOB_FAILED);
    assert_string_equal(w.action.failure->text, "no export");
    end(&w);
}

/* What auto takes at once, where a client or a device leaves rungs out. */
static void test_auto(void **state)
{
    static const struct {
        uint32_t device;
        bool no_fd, no_ipc, coherent;
        const char *no_ring;
        enum delivery delivery;
        const char *why;
    } cases[] = {
        {GPU, false, false, false, NULL, DELIVERY_FD, "the first of the ladder"},
        {GPU, true, false, false, NULL, DELIVERY_IPC, "the client cannot take fd"},
        {GPU, true, true, false, NULL, DELIVERY_COPY,
         "the client cannot take fd; the client cannot take ipc"},
        {GPU_FD_ONLY, true, false, false, NULL, DELIVERY_COPY,
         "the client cannot take fd; ipc is off for this device (device.ipc)"},
        {GPU_RINGS_OFF, false, false, false, NULL, DELIVERY_COPY,
         "rings are off for this device (device.rings)"},
        {GPU, false, false, false, "a part of a GPU", DELIVERY_COPY, "a part of a GPU"},
        {GPU, false, false, true, NULL, DELIVERY_MAPPED, "the GPU shares the host's memory"},
        {GPU_RINGS_OFF, false, false, true, NULL, DELIVERY_MAPPED,
         "the GPU shares the host's memory"},
        {HOST, false, false, true, NULL, DELIVERY_HOST, "the host device has no other"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world w;
        struct core_job_spec spec = spec_make(cases[i].device, 2);
        bool ring = cases[i].delivery == DELIVERY_FD || cases[i].delivery == DELIVERY_IPC;

        world_init(&w, UINT64_MAX, 2);
        spec.client_fd = !cases[i].no_fd;
        spec.client_ipc = !cases[i].no_ipc;
        spec.client_copy = spec.client_mapped = true;
        spec.client_coherent = cases[i].coherent;
        spec.no_ring = cases[i].no_ring;
        job_index(&w, job_open(&w, &spec), 10);
        job_reserve(&w, 1);
        assert_int_equal(w.action.delivery, cases[i].delivery);
        if (ring)
            ring_begin(&w, 1);
        else
            assert_int_equal(expect(&w, CORE_JOB_READY)->ring, 0);
        assert_int_equal(w.action.delivery, cases[i].delivery);
        assert_string_equal(w.action.why, cases[i].why);
        world_kill(&w);
        take_all(&w);
        for (uint32_t slot = 0; slot < 2; slot++)
            core_decoded(w.core, 1, slot, 1, NULL, 0, 0, 0, 0);
        take_all(&w);
        world_deinit(&w);
    }
}

/* Everything that refuses the rings in turn; then the slots are reserved anew, for a client. */
static void test_all_rings_fail(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 2);
    struct failure failure = failure_make("no export");
    uint64_t memory[] = {200, 201};
    struct core_job_info info;
    struct core_action decode;
    uint32_t ring;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    spec.client_copy = true;
    job = job_begin(&w, &spec, 10);
    core_ring_failed(w.core, job, expect(&w, CORE_RING_MAKE)->ring, true, &failure, 0);
    ring = ring_begin(&w, job);
    decode = *expect(&w, CORE_DECODE); /* step 0 is decoded, step 1 with the workers */
    expect_decode(&w, 0, 1);
    decoded(&w, &decode, NULL);
    expect(&w, CORE_COPY);
    assert_int_equal(core_ring_opened(w.core, PEER, job, ring, false, "invalid device context", 0),
                     0);
    expect(&w, CORE_DECODE_CANCEL);
    expect_nothing(&w); /* a copy reads slot 0 */
    core_copied(w.core, job, ring, 0, 1, NULL, 0);
    expect(&w, CORE_RING_FREE);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, 100);
    expect_nothing(&w);
    core_decoded(w.core, decode.feed, 1, 1, NULL, 0, 0, 0, 0);
    assert_int_equal(expect(&w, CORE_SLOT_FREE)->memory, 101);
    assert_int_equal(expect(&w, CORE_RESERVE)->delivery, DELIVERY_COPY);
    core_job_reserved(w.core, job, memory, 0);
    expect(&w, CORE_RING_REPLACED);
    assert_int_equal(w.action.ring, 0);
    assert_int_equal(w.action.bytes, 0);
    assert_int_equal(w.action.delivery, DELIVERY_COPY);
    assert_string_equal(w.action.why,
                        "fd does not work: no export; ipc does not work: the client could not open "
                        "the ring: invalid device context");
    expect_decode(&w, 0, 0);
    assert_int_equal(w.action.memory, 200);
    decode = w.action;
    expect_decode(&w, 0, 1);
    decoded(&w, &decode, NULL);
    expect_batch(&w, 0, 0);
    assert_int_equal(w.action.memory, 200);
    assert_int_equal(w.action.ring, 0);
    assert_true(core_job_find(w.core, job, &info));
    assert_int_equal(info.delivery, DELIVERY_COPY);
    assert_string_equal(info.state_text, "running");
    assert_int_equal(info.ring_bytes, 0);
    assert_int_equal(info.delivered, 1);
    assert_int_equal(info.starved, 0);
    /* The loss of the device is nothing to it. */
    core_device_lost(w.core, GPU, &failure, 0);
    expect_nothing(&w);
    assert_int_equal(release(&w, &w.action), 0);
    expect_decode(&w, 0, 2);
    world_kill(&w);
    take_all(&w);
    core_decoded(w.core, 1, 1, 2, NULL, 0, 0, 0, 0);
    core_decoded(w.core, 1, 0, 3, NULL, 0, 0, 0, 0);
    take_all(&w);
    world_deinit(&w);
}

/* A running job loses its device, which cannot be had again: it goes on by copy, and what was
 * handed off before stays valid. */
static void test_device_refused(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 1);
    struct failure failure = failure_make("GPU-1: another process has it alone");
    uint64_t memory = 200;
    struct core_action batch;
    uint32_t ring;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    spec.client_copy = true;
    job = job_begin(&w, &spec, 10);
    ring = ring_begin(&w, job);
    assert_int_equal(core_ring_opened(w.core, PEER, job, ring, true, NULL, 0), 0);
    decoded(&w, expect(&w, CORE_DECODE), NULL);
    copied(&w, expect(&w, CORE_COPY), NULL);
    expect_batch(&w, 0, 0);
    batch = w.action;
    core_device_lost(w.core, GPU, &failure, 0);
    expect(&w, CORE_RING_MAKE);
    core_device_refused(w.core, GPU, &failure, 0);
    expect(&w, CORE_SLOT_FREE);
    expect(&w, CORE_RESERVE);
    core_job_reserved(w.core, job, &memory, 0);
    expect(&w, CORE_RING_REPLACED);
    assert_int_equal(w.action.delivery, DELIVERY_COPY);
    assert_string_equal(w.action.why, "fd does not work: GPU-1: another process has it alone");
    expect_nothing(&w); /* the only lease is held */
    assert_int_equal(core_ring_closed(w.core, PEER, job, ring, 0), -EPROTO);
    assert_int_equal(release(&w, &batch), 0);
    assert_int_equal(core_ring_closed(w.core, PEER, job, ring, 0), 0);
    expect_decode(&w, 0, 1);
    decoded(&w, &w.action, NULL);
    expect_batch(&w, 0, 1);
    assert_int_equal(w.action.memory, 200);
    /* A delivery by name has no other. */
    spec.delivery = DELIVERY_IPC;
    job_begin(&w, &spec, 10);
    expect(&w, CORE_RING_MAKE);
    core_device_refused(w.core, GPU, &failure, 0);
    expect(&w, CORE_JOB_FAILED);
    assert_string_equal(w.action.failure->text,
                        "delivery ipc: GPU-1: another process has it alone");
    end(&w);
}

/* A failed batch, and a client that closes, on the way from rings to regions. */
static void test_ends_on_the_way(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU_FD_ONLY, 2);
    struct failure failure = failure_make("cut short"), hangs = failure_make("a read hangs");
    uint64_t memory[] = {200, 201};
    struct core_action first;
    uint32_t ring;
    uint64_t job;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    spec.client_copy = true;
    job = job_begin(&w, &spec, 10);
    ring = ring_begin(&w, job);
    first = *expect(&w, CORE_DECODE);
    decoded(&w, expect(&w, CORE_DECODE), &failure); /* step 1 fails the job, behind step 0 */
    assert_int_equal(core_ring_opened(w.core, PEER, job, ring, false, "no", 0), 0);
    expect(&w, CORE_RING_FREE);
    expect(&w, CORE_DECODE_CANCEL);
    expect(&w, CORE_SLOT_FREE);
    decoded(&w, &first, NULL);
    expect(&w, CORE_SLOT_FREE);
    expect(&w, CORE_RESERVE);
    core_job_reserved(w.core, job, memory, 0);
    expect(&w, CORE_RING_REPLACED);
    decoded(&w, expect(&w, CORE_DECODE), NULL);
    expect_batch(&w, 0, 0);
    expect(&w, CORE_JOB_FAILED);
    assert_string_equal(w.action.failure->text, "cut short");
    world_kill(&w);
    take_all(&w);

    job = job_begin(&w, &spec, 10);
    ring = ring_begin(&w, job);
    first = *expect(&w, CORE_DECODE);
    expect(&w, CORE_DECODE);
    assert_int_equal(core_ring_opened(w.core, PEER, job, ring, false, "no", 0), 0);
    expect(&w, CORE_RING_FREE);
    expect(&w, CORE_DECODE_CANCEL);
    expect(&w, CORE_DECODE_CANCEL);
    expect_nothing(&w);
    core_stuck(w.core, first.feed, first.slot, first.generation, &hangs, 0);
    expect(&w, CORE_JOB_FAILED);
    assert_string_equal(w.action.failure->text, "the way to delivery copy hangs: a read hangs");
    assert_int_equal(core_job_close(w.core, PEER, job, 0), 0);
    expect_nothing(&w);
    decoded(&w, &first, NULL);
    expect(&w, CORE_SLOT_FREE);
    core_decoded(w.core, first.feed, 1, 1, NULL, 0, 0, 0, 0);
    expect(&w, CORE_SLOT_FREE);
    expect(&w, CORE_JOB_GONE);
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delivery_refused),
        cmocka_unit_test(test_host_on_gpu),
        cmocka_unit_test(test_ladder),
        cmocka_unit_test(test_ladder_ends),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_all_rings_fail),
        cmocka_unit_test(test_device_refused),
        cmocka_unit_test(test_ends_on_the_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
