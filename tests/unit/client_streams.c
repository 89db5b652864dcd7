/*
 * Releases that wait for streams, against the driver's stand-in.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "client/dlpack.h"
#include "client/driver.h"
#include "client_exporter.h"
#include "client_peer.h"

#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

/* A stream that is busy until the test lets it go. */
struct busy_stream {
    CUstream stream;
    _Atomic bool go;
};

static const struct driver *driver;

static void wait_for_go(void *argument)
{
    struct busy_stream *busy = argument;
    struct timespec pause = {.tv_nsec = 1000000};

    while (!busy->go)
        nanosleep(&pause, NULL);
}

static void busy_init(struct busy_stream *busy)
{
    CUcontext context;

    assert_int_equal(driver_load(&driver, NULL), 0);
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(driver->cuCtxPushCurrent(context), 0);
    assert_int_equal(driver->cuStreamCreate(&busy->stream, CU_STREAM_NON_BLOCKING), 0);
    busy->go = false;
}

static void busy_start(struct busy_stream *busy)
{
    busy->go = false;
    assert_int_equal(driver->cuLaunchHostFunc(busy->stream, wait_for_go, busy), 0);
}

static void busy_deinit(struct busy_stream *busy)
{
    CUcontext context;

    busy->go = true;
    driver->cuStreamDestroy(busy->stream);
    driver->cuCtxPopCurrent(&context);
    driver->cuDevicePrimaryCtxRelease(0);
}

static void ready_at_step_2(Pinserve__JobReady *ready)
{
    ready->step = 2;
}

static void open_ring_job(struct peer *peer, struct pinclient_job **job_p)
{
    exporter_connect(peer);
    exporter_offer(peer, 0, PINSERVE__DELIVERY__DELIVERY_FD, false);
    assert_int_equal(peer_open_default(peer, job_p), 0);
}

static void test_release_waits_for_the_stream(void **state)
{
    struct busy_stream busy;
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;
    struct peer_event event;

    (void)state;
    busy_init(&busy);
    open_ring_job(&peer, &job);
    batch = peer_take(&peer, job, 0, 0, 1);
    busy_start(&busy);
    assert_int_equal(pinclient_release(batch, busy.stream), 0);
    assert_false(peer_expect(&peer, 100, &event));
    busy.go = true;
    assert_true(peer_expect(&peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
    assert_int_equal(event.lease, 0);

    /* A released batch is not the caller's, so it is no reason for -EBUSY. */
    struct pinclient_batch *two[2] = {peer_take(&peer, job, 0, 1, 1),
                                      peer_take(&peer, job, 1, 2, 1)};
    busy_start(&busy);
    assert_int_equal(pinclient_release(two[0], busy.stream), 0);
    assert_int_equal(pinclient_next(job, 0, &batch), -ETIMEDOUT);
    busy.go = true;
    assert_int_equal(pinclient_release(two[1], NULL), 0);
    peer_close(&peer, job);
    busy_deinit(&busy);
    peer_deinit(&peer);
}

static void test_further_streams(void **state)
{
    struct busy_stream busy, other;
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;
    struct peer_event event;

    (void)state;
    busy_init(&busy);
    busy_init(&other);
    open_ring_job(&peer, &job);
    batch = peer_take(&peer, job, 0, 0, 1);
    busy_start(&busy);
    busy_start(&other);
    assert_int_equal(pinclient_batch_use(batch, busy.stream), 0);
    assert_int_equal(pinclient_batch_use(batch, busy.stream), 0);
    assert_int_equal(pinclient_batch_use(batch, PINCLIENT_NO_STREAM), 0);
    assert_int_equal(pinclient_release(batch, other.stream), 0);
    other.go = true;
    assert_false(peer_expect(&peer, 100, &event));
    busy.go = true;
    assert_true(peer_expect(&peer, 5000, &event));

    /* Without a stream of its own, too, a release waits for those that were named. */
    batch = peer_take(&peer, job, 0, 1, 1);
    busy_start(&busy);
    assert_int_equal(pinclient_batch_use(batch, busy.stream), 0);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    assert_false(peer_expect(&peer, 100, &event));
    busy.go = true;
    assert_true(peer_expect(&peer, 5000, &event));
    peer_close(&peer, job);
    busy_deinit(&other);
    busy_deinit(&busy);
    peer_deinit(&peer);
}

static void test_capture(void **state)
{
    struct busy_stream stream;
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;
    struct peer_event event;
    CUgraph graph;

    (void)state;
    busy_init(&stream);
    open_ring_job(&peer, &job);
    batch = peer_take(&peer, job, 0, 0, 1);
    assert_int_equal(exporter_driver.begin_capture(stream.stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    assert_int_equal(pinclient_batch_use(batch, stream.stream), -EBUSY);
    assert_int_equal(pinclient_release(batch, stream.stream), -EBUSY);
    assert_error(job, "captured");
    assert_int_equal(peer_first_byte(batch), 1);
    assert_false(peer_expect(&peer, 50, &event));
    exporter_driver.end_capture(stream.stream, &graph);
    assert_int_equal(pinclient_release(batch, stream.stream), 0);
    assert_true(peer_expect(&peer, 5000, &event));
    peer_close(&peer, job);
    busy_deinit(&stream);
    peer_deinit(&peer);
}

/* A tensor's deleter knows no stream: the batch waits for those that are followed, as they are
 * then; and when one is being captured then, for a later call. */
static void test_deleter_follows(void **state)
{
    struct busy_stream busy;
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;
    struct peer_event event;
    CUgraph graph;
    void *managed;

    (void)state;
    busy_init(&busy);
    open_ring_job(&peer, &job);
    for (uint64_t step = 0; step < 2; step++) {
        batch = peer_take(&peer, job, 0, step, 1);
        assert_int_equal(pinclient_batch_dlpack(batch, "data", 0, &managed), 0);
        struct dlpack_managed *data = managed;
        assert_int_equal(data->tensor.device.kind, DLPACK_CUDA);
        assert_int_equal(data->tensor.device.number, 0);
        assert_int_equal(pinclient_batch_follow(batch, busy.stream), 0);
        assert_int_equal(pinclient_batch_follow(batch, busy.stream), 0);
        assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
        if (step == 0)
            busy_start(&busy);
        else
            assert_int_equal(
                exporter_driver.begin_capture(busy.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
        data->deleter(data);
        assert_false(peer_expect(&peer, 50, &event));
        if (step == 0) {
            busy.go = true;
        } else {
            exporter_driver.end_capture(busy.stream, &graph);
            assert_int_equal(pinclient_next(job, 0, &batch), -ETIMEDOUT);
        }
        assert_true(peer_expect(&peer, 5000, &event));
        assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
    }
    peer_close(&peer, job);
    busy_deinit(&busy);
    peer_deinit(&peer);
}

/* The job outlives its close until the stream has passed, and close does not wait. */
static void test_close_behind_a_stream(void **state)
{
    struct busy_stream busy;
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;

    (void)state;
    busy_init(&busy);
    open_ring_job(&peer, &job);
    batch = peer_take(&peer, job, 0, 0, 1);
    busy_start(&busy);
    assert_int_equal(pinclient_release(batch, busy.stream), 0);
    peer_close_start(&peer);
    pinclient_job_close(job);
    busy.go = true;
    peer_close_end(&peer);
    assert_int_equal(peer.n_events, 4); /* after RingOpened */
    assert_int_equal(peer.events[1].kind, PINSERVE__MESSAGE__BODY_CLOSE_JOB);
    assert_int_equal(peer.events[2].kind, PINSERVE__MESSAGE__BODY_RELEASE);
    assert_int_equal(peer.events[3].kind, PINSERVE__MESSAGE__BODY_RING_CLOSED);
    busy_deinit(&busy);
    peer_deinit(&peer);
}

/* A ring outlives its daemon until its last batch has gone, behind streams and captures as ever,
 * and the next daemon, whose ring has the same number, hears nothing of it. */
static void test_a_lost_daemon(void **state)
{
    struct busy_stream busy;
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *held, *released, *none;
    struct peer_event event;
    CUgraph graph;
    void *managed;

    (void)state;
    busy_init(&busy);
    exporter_connect(&peer);
    exporter_offer(&peer, 0, PINSERVE__DELIVERY__DELIVERY_FD, false);
    peer.reconnect = true;
    assert_int_equal(peer_open_default(&peer, &job), 0);
    held = peer_take(&peer, job, 0, 0, 1);
    assert_int_equal(pinclient_batch_dlpack(held, "data", 0, &managed), 0);
    assert_int_equal(pinclient_batch_follow(held, busy.stream), 0);
    released = peer_take(&peer, job, 1, 1, 1);
    busy_start(&busy);
    assert_int_equal(pinclient_release(released, busy.stream), 0);
    peer_hang_up(&peer);
    assert_int_equal(pinclient_next(job, 0, &none), -ETIMEDOUT);
    peer.ready = ready_at_step_2;
    peer_open_start(&peer);
    peer_open_end(&peer);

    assert_int_equal(pinclient_release(peer_take(&peer, job, 0, 2, 1), PINCLIENT_NO_STREAM), 0);
    assert_true(peer_expect(&peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
    busy.go = true;
    assert_int_equal(peer_first_byte(held), 1);
    assert_int_equal(pinclient_release(held, PINCLIENT_NO_STREAM), 0);
    assert_int_equal(exporter_driver.begin_capture(busy.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    ((struct dlpack_managed *)managed)->deleter(managed);
    exporter_driver.end_capture(busy.stream, &graph);
    assert_int_equal(pinclient_next(job, 0, &none), -ETIMEDOUT);
    assert_false(peer_expect(&peer, 50, &event));
    peer_close(&peer, job);
    assert_int_equal(peer_count(&peer, PINSERVE__MESSAGE__BODY_RING_CLOSED), 1);
    busy_deinit(&busy);
    peer_deinit(&peer);
}

/* Batches in host memory for a GPU: the mapping is registered, and releases follow streams. */
static void test_host_memory_of_a_gpu(void **state)
{
    struct busy_stream busy;
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;
    struct peer_event event;

    (void)state;
    busy_init(&busy);
    exporter_connect(&peer);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    exporter_check(job, "host");
    peer.region[0] = 200;
    batch = peer_take(&peer, job, 0, 0, 0);
    assert_int_equal(peer_first_byte(batch), 200);
    busy_start(&busy);
    assert_int_equal(pinclient_release(batch, busy.stream), 0);
    assert_false(peer_expect(&peer, 50, &event));
    busy.go = true;
    assert_true(peer_expect(&peer, 5000, &event));
    peer_close(&peer, job);
    busy_deinit(&busy);
    peer_deinit(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_release_waits_for_the_stream),
        cmocka_unit_test(test_further_streams),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_deleter_follows),
        cmocka_unit_test(test_close_behind_a_stream),
        cmocka_unit_test(test_a_lost_daemon),
        cmocka_unit_test(test_host_memory_of_a_gpu),
    };

    return cmocka_run_group_tests(tests, exporter_start, exporter_stop);
}
