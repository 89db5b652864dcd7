/*
 * client/copier.c and device_copy.c, against the driver's stand-in, in which
 * each copy takes COPY_MS: batches are copied ahead, handed out in order and
 * only when they are there, and a place is used again only behind the streams
 * that work on it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "client/driver.h"
#include "client_peer.h"

#define COPY_MS 30
#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

struct fixture {
    struct peer peer;
    struct pinclient_job *job;
    const struct driver *driver;
    CUcontext context;
    CUstream stream;
};

static double now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void set_copy(Pinserve__JobReady *ready)
{
    ready->delivery = PINSERVE__DELIVERY__DELIVERY_COPY;
}

static void set_mapped(Pinserve__JobReady *ready)
{
    ready->delivery = PINSERVE__DELIVERY__DELIVERY_MAPPED;
}

static void open_job(struct fixture *f, void (*ready)(Pinserve__JobReady *))
{
    memset(f, 0, sizeof *f);
    peer_init(&f->peer);
    f->peer.device = "cuda:0";
    f->peer.ready = ready;
    for (uint32_t i = 0; i < 16; i++)
        memset(f->peer.region + i * PEER_SLOT, (int)i + 1, PEER_SLOT);
    assert_int_equal(peer_connect(&f->peer), 0);
    if (peer_open_default(&f->peer, &f->job) < 0)
        fail_msg("open: %s", pinclient_error(f->peer.client));
    assert_int_equal(driver_load(&f->driver, NULL), 0);
    assert_int_equal(f->driver->cuDevicePrimaryCtxRetain(&f->context, 0), 0);
    assert_int_equal(f->driver->cuCtxPushCurrent(f->context), 0);
    assert_int_equal(f->driver->cuStreamCreate(&f->stream, CU_STREAM_NON_BLOCKING), 0);
}

static void close_job(struct fixture *f)
{
    CUcontext popped;

    peer_close(&f->peer, f->job);
    f->driver->cuStreamDestroy(f->stream);
    f->driver->cuCtxPopCurrent(&popped);
    f->driver->cuDevicePrimaryCtxRelease(0);
    peer_deinit(&f->peer);
}

static struct pinclient_batch *take(struct fixture *f, uint64_t step, uint8_t byte)
{
    struct pinclient_batch_info info;
    struct pinclient_batch *batch;

    if (pinclient_next(f->job, 5000, &batch) != 0)
        fail_msg("next: %s", pinclient_error(f->job));
    pinclient_batch_info(batch, &info);
    assert_int_equal(info.step, step);
    assert_int_equal(peer_first_byte(batch), byte);
    return batch;
}

static void expect_release(struct fixture *f, uint32_t lease, uint32_t generation)
{
    struct peer_event event;

    assert_true(peer_expect(&f->peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
    assert_int_equal(event.lease, lease);
    assert_int_equal(event.generation, generation);
}

static bool is_readable(const struct pinclient_job *job, int timeout_ms)
{
    struct pollfd pollfd = {.fd = pinclient_get_fd(job), .events = POLLIN};

    return poll(&pollfd, 1, timeout_ms) == 1;
}

static void test_copied_ahead(void **state)
{
    struct fixture f;
    struct pinclient_batch *batches[2], *none;
    struct pinclient_job_info info;
    const uint8_t *first;
    struct pinclient_tensor tensor;

    (void)state;
    open_job(&f, set_copy);
    pinclient_job_info(f.job, &info);
    assert_string_equal(info.delivery, "copy");
    peer_send_batch(&f.peer, 0, 7, 0, 0, 0);
    peer_send_batch(&f.peer, 1, 8, 0, 1, 0);
    /* Not there yet, but both are on their way. */
    assert_int_equal(pinclient_next(f.job, 0, &none), -ETIMEDOUT);
    expect_release(&f, 0, 7);
    expect_release(&f, 1, 8);
    batches[0] = take(&f, 0, 1);
    batches[1] = take(&f, 1, 2);
    assert_int_equal(pinclient_batch_tensor(batches[0], "data", &tensor), 0);
    first = tensor.data;
    assert_true(first < f.peer.region || first >= f.peer.region + 16 * PEER_SLOT);
    /* The daemon's slots are its own again, and nothing of that is seen here. */
    memset(f.peer.region, 0xee, 2 * PEER_SLOT);
    assert_int_equal(first[0], 1);
    assert_int_equal(pinclient_next(f.job, -1, &none), -EBUSY);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pinclient_release(batches[i], PINCLIENT_NO_STREAM), 0);
    close_job(&f);
    assert_int_equal(peer_count(&f.peer, PINSERVE__MESSAGE__BODY_RELEASE), 2);
}

static void CUDA_CB wait_for_flag(void *flag)
{
    while (!__atomic_load_n((int *)flag, __ATOMIC_ACQUIRE)) {
        struct timespec moment = {0, 1000000};
        nanosleep(&moment, NULL);
    }
}

/* A place is copied to again only when the stream that works on its batch has passed. */
static void test_stream_order(void **state)
{
    struct fixture f;
    struct pinclient_batch *batches[2], *none;
    struct pinclient_tensor tensor;
    struct peer_event event;
    int flag = 0;

    (void)state;
    open_job(&f, set_copy);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    peer_send_batch(&f.peer, 1, 1, 0, 1, 0);
    batches[0] = take(&f, 0, 1);
    batches[1] = take(&f, 1, 2);
    expect_release(&f, 0, 1);
    expect_release(&f, 1, 1);
    assert_int_equal(pinclient_batch_tensor(batches[0], "data", &tensor), 0);
    assert_int_equal(f.driver->cuLaunchHostFunc(f.stream, wait_for_flag, &flag), 0);
    double began = now_ms();
    assert_int_equal(pinclient_release(batches[0], f.stream), 0);
    assert_true(now_ms() - began < 1000);
    memset(f.peer.region, 9, PEER_SLOT);
    peer_send_batch(&f.peer, 0, 2, 0, 2, 0);
    assert_int_equal(pinclient_next(f.job, 3 * COPY_MS, &none), -ETIMEDOUT);
    assert_false(peer_expect(&f.peer, 0, &event)); /* the slot is still needed */
    assert_int_equal(*(const uint8_t *)tensor.data, 1);
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    batches[0] = take(&f, 2, 9);
    expect_release(&f, 0, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pinclient_release(batches[i], PINCLIENT_NO_STREAM), 0);
    close_job(&f);
}

/* The job's fd: readable for what is announced, then for what is copied, not between. */
static void test_fd(void **state)
{
    struct fixture f;
    struct pinclient_batch *batch;

    (void)state;
    open_job(&f, set_copy);
    assert_false(is_readable(f.job, 0));
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    assert_true(is_readable(f.job, 1000));
    assert_int_equal(pinclient_next(f.job, 0, &batch), -ETIMEDOUT);
    assert_false(is_readable(f.job, 0));
    assert_true(is_readable(f.job, 5000));
    assert_int_equal(pinclient_next(f.job, 0, &batch), 0);
    assert_false(is_readable(f.job, 0));
    peer_send_batch(&f.peer, 1, 1, 0, 1, 0);
    assert_true(is_readable(f.job, 1000));
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    batch = take(&f, 1, 2);
    /* The place that became free made it readable, once more than there was something. */
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    assert_int_equal(pinclient_next(f.job, 0, &batch), -ETIMEDOUT);
    assert_false(is_readable(f.job, 2 * COPY_MS));
    /* Two are copied: readable until both were taken. */
    peer_send_batch(&f.peer, 0, 2, 0, 2, 0);
    peer_send_epoch_end(&f.peer, 0);
    peer_send_batch(&f.peer, 1, 2, 1, 0, 0);
    assert_int_equal(pinclient_next(f.job, 0, &batch), -ETIMEDOUT);
    expect_release(&f, 0, 1);
    expect_release(&f, 1, 1);
    expect_release(&f, 0, 2);
    expect_release(&f, 1, 2);
    for (int i = 0; i < 3; i++) {
        assert_true(is_readable(f.job, 1000));
        assert_int_equal(pinclient_next(f.job, 0, &batch), i == 1 ? PINCLIENT_EPOCH_END : 0);
        if (i != 1)
            assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    }
    close_job(&f);
}

/* A final error comes behind what was announced before it; so does the daemon's death. */
static void test_ends(void **state)
{
    struct fixture f;
    struct pinclient_batch *batches[3];

    (void)state;
    for (int death = 0; death < 2; death++) {
        open_job(&f, set_copy);
        peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
        peer_send_batch(&f.peer, 1, 1, 0, 1, 0);
        if (death)
            peer_hang_up(&f.peer);
        else
            peer_send_failed(&f.peer, -EBADMSG, "c1/b.JPEG: cut short");
        assert_int_equal(pinclient_next(f.job, 0, &batches[0]), -ETIMEDOUT);
        assert_false(is_readable(f.job, 0));
        batches[0] = take(&f, 0, 1);
        batches[1] = take(&f, 1, 2);
        for (int i = 0; i < 2; i++) {
            assert_true(is_readable(f.job, 0));
            assert_int_equal(pinclient_next(f.job, 5000, &batches[2]), death ? -EPIPE : -EBADMSG);
            assert_error(f.job, death ? "is gone" : "cut short");
        }
        for (int i = 0; i < 2; i++)
            pinclient_release(batches[i], PINCLIENT_NO_STREAM);
        if (death)
            pinclient_job_close(f.job);
        else
            peer_close(&f.peer, f.job);
        peer_deinit(&f.peer);
    }
}

/* A closed job's batches stay valid; what was announced and not copied goes back. */
static void test_close(void **state)
{
    struct fixture f;
    struct pinclient_batch *batches[2], *none;
    struct pinclient_tensor tensor;

    (void)state;
    open_job(&f, set_copy);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    peer_send_batch(&f.peer, 1, 1, 0, 1, 0);
    batches[0] = take(&f, 0, 1);
    batches[1] = take(&f, 1, 2);
    expect_release(&f, 0, 1);
    expect_release(&f, 1, 1);
    peer_send_batch(&f.peer, 0, 2, 0, 2, 0);
    assert_int_equal(pinclient_next(f.job, 0, &none), -EBUSY);
    peer_close_start(&f.peer);
    pinclient_job_close(f.job);
    assert_int_equal(pinclient_batch_tensor(batches[0], "data", &tensor), 0);
    assert_int_equal(*(const uint8_t *)tensor.data, 1);
    assert_int_equal(pinclient_release(batches[0], f.stream), 0);
    assert_int_equal(pinclient_release(batches[1], NULL), 0);
    peer_close_end(&f.peer);
    assert_int_equal(peer_count(&f.peer, PINSERVE__MESSAGE__BODY_RELEASE), 3);
    assert_int_equal(f.peer.events[2].kind, PINSERVE__MESSAGE__BODY_RELEASE);
    assert_int_equal(f.peer.events[2].generation, 2);
    peer_deinit(&f.peer);
}

static void test_contradictions(void **state)
{
    struct fixture f;
    struct pinclient_batch *batch, *none;

    (void)state;
    open_job(&f, set_copy);
    peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
    peer_send_batch(&f.peer, 0, 1, 0, 1, 0);
    batch = take(&f, 0, 1);
    assert_int_equal(pinclient_next(f.job, 5000, &none), -EPROTO);
    assert_error(f.job, "lease 0, which is not free");
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    close_job(&f);
    open_job(&f, set_copy);
    peer_send_batch(&f.peer, 0, 1, 0, 2, 0);
    assert_int_equal(pinclient_next(f.job, 5000, &none), -EPROTO);
    assert_error(f.job, "step 2 of epoch 0 in place of step 0");
    close_job(&f);
}

static void test_mapped(void **state)
{
    struct fixture f;
    struct pinclient_batch *batch;
    struct peer_event event;
    int flag = 0;

    (void)state;
    open_job(&f, set_mapped);
    peer_send_batch(&f.peer, 1, 5, 0, 0, 0);
    batch = take(&f, 0, 2);
    f.peer.region[PEER_SLOT + 1] = 77; /* the same memory */
    struct pinclient_tensor tensor;
    assert_int_equal(pinclient_batch_tensor(batch, "data", &tensor), 0);
    assert_int_equal(((const uint8_t *)tensor.data)[1], 77);
    assert_int_equal(f.driver->cuLaunchHostFunc(f.stream, wait_for_flag, &flag), 0);
    assert_int_equal(pinclient_release(batch, f.stream), 0);
    assert_false(peer_expect(&f.peer, 50, &event));
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    expect_release(&f, 1, 5);
    close_job(&f);
}

/* A batch of another job's slots. */
static void test_late_region(void **state)
{
    void (*const how[])(Pinserve__JobReady *) = {set_copy, set_mapped};

    (void)state;
    for (int i = 0; i < 2; i++) {
        Pinserve__Message added = PINSERVE__MESSAGE__INIT, batch = PINSERVE__MESSAGE__INIT;
        Pinserve__RegionAdded region = PINSERVE__REGION_ADDED__INIT;
        Pinserve__BatchReady ready = PINSERVE__BATCH_READY__INIT;
        struct pinclient_batch *taken[2];
        struct fixture f;

        open_job(&f, how[i]);
        region.job = ready.job = PEER_JOB;
        region.region = ready.region = PEER_REGION + 1;
        region.bytes = 8 * PEER_SLOT;
        added.body_case = PINSERVE__MESSAGE__BODY_REGION_ADDED;
        added.region_added = &region;
        ready.lease = ready.generation = 1;
        ready.step = 1;
        ready.count = f.peer.batch;
        ready.offset = 7 * PEER_SLOT;
        batch.body_case = PINSERVE__MESSAGE__BODY_BATCH_READY;
        batch.batch_ready = &ready;
        peer_send_batch(&f.peer, 0, 1, 0, 0, 0);
        peer_send(&f.peer, &added, f.peer.region_fd);
        peer_send(&f.peer, &batch, -1);
        taken[0] = take(&f, 0, 1);
        taken[1] = take(&f, 1, 8);
        for (int k = 0; k < 2; k++)
            assert_int_equal(pinclient_release(taken[k], PINCLIENT_NO_STREAM), 0);
        close_job(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copied_ahead), cmocka_unit_test(test_stream_order),
        cmocka_unit_test(test_fd),           cmocka_unit_test(test_ends),
        cmocka_unit_test(test_close),        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_mapped),       cmocka_unit_test(test_late_region),
    };

    setenv("PINSERVE_DRIVER_COPY_DELAY_US", "30000", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
