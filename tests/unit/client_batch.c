/*
 * client/batch.c: what lies in a batch, and giving it back. The release behind
 * streams is in client_streams.c.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client_peer.h"

#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

static void open_job(struct peer *peer, struct pinclient_job **job_p)
{
    peer_init(peer);
    assert_int_equal(peer_connect(peer), 0);
    assert_int_equal(peer_open_default(peer, job_p), 0);
}

static void test_tensors(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;
    struct pinclient_tensor tensor;
    uint64_t index[4] = {9, 8, 7, 6};

    (void)state;
    open_job(&peer, &job);
    memcpy(peer.region + PEER_SLOT, "abcdefghijklmnop", 16);
    memcpy(peer.region + PEER_SLOT + 512, index, sizeof index);
    peer_send_batch(&peer, 1, 1, 0, 0, 0);
    assert_int_equal(pinclient_next(job, 5000, &batch), 0);

    assert_int_equal(pinclient_batch_tensor(batch, "data", &tensor), 0);
    assert_string_equal(tensor.name, "data");
    assert_int_equal(tensor.dtype, PINCLIENT_U8);
    assert_int_equal(tensor.n_dims, 2);
    assert_int_equal(tensor.shape[0], 4);
    assert_int_equal(tensor.shape[1], 4);
    assert_int_equal(tensor.strides[0], 4);
    assert_int_equal(tensor.bytes, 16);
    assert_memory_equal(tensor.data, "abcdefghijklmnop", 16);

    assert_int_equal(pinclient_batch_tensor_at(batch, 1, &tensor), 0);
    assert_string_equal(tensor.name, "index");
    assert_int_equal(tensor.dtype, PINCLIENT_U64);
    assert_int_equal(tensor.bytes, 32);
    assert_memory_equal(tensor.data, index, 32);

    assert_int_equal(pinclient_batch_tensor_at(batch, 2, &tensor), -ERANGE);
    assert_error(job, "tensor 2: a batch has 2");
    assert_int_equal(pinclient_batch_tensor(batch, "image", &tensor), -ENOENT);
    assert_error(job, "no tensor \"image\": there are data, index");
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    peer_close(&peer, job);
    peer_deinit(&peer);
}

/* The last batch of `partial`: fewer samples than asked for. */
static void test_short_batch(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;
    struct pinclient_batch_info info;
    struct pinclient_tensor tensor;

    (void)state;
    open_job(&peer, &job);
    peer.batch = 3;
    peer_send_batch(&peer, 0, 1, 0, 0, 0);
    assert_int_equal(pinclient_next(job, 5000, &batch), 0);
    pinclient_batch_info(batch, &info);
    assert_int_equal(info.count, 3);
    assert_int_equal(pinclient_batch_tensor(batch, "data", &tensor), 0);
    assert_int_equal(tensor.shape[0], 3);
    assert_int_equal(tensor.bytes, 12);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    peer.batch = 5;
    peer_send_batch(&peer, 0, 2, 0, 1, 0);
    assert_int_equal(pinclient_next(job, 5000, &batch), -EPROTO);
    assert_error(job, "5 samples of 4");
    peer_close(&peer, job);
    peer_deinit(&peer);
}

static void test_release(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;
    struct peer_event event;

    (void)state;
    open_job(&peer, &job);
    peer_send_batch(&peer, 1, 77, 0, 0, 0);
    assert_int_equal(pinclient_next(job, 5000, &batch), 0);
    /* Host memory, no GPU: any stream is none. */
    assert_int_equal(pinclient_batch_use(batch, &peer), 0);
    assert_int_equal(pinclient_release(batch, &peer), 0);
    assert_true(peer_expect(&peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
    assert_int_equal(event.lease, 1);
    assert_int_equal(event.generation, 77);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), -EINVAL);
    assert_error(job, "released already");
    assert_false(peer_expect(&peer, 20, &event));
    peer_close(&peer, job);
    peer_deinit(&peer);
}

/* A closed job's batches stay valid until they are released, and are given back then. */
static void test_release_after_close(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batches[2];
    struct pinclient_tensor tensor;
    struct peer_event event;

    (void)state;
    open_job(&peer, &job);
    peer.region[0] = 31;
    for (uint32_t i = 0; i < 2; i++) {
        peer_send_batch(&peer, i, 40 + i, 0, i, 0);
        assert_int_equal(pinclient_next(job, 5000, &batches[i]), 0);
    }
    peer_close_start(&peer);
    pinclient_job_close(job);
    assert_int_equal(pinclient_batch_tensor(batches[0], "data", &tensor), 0);
    assert_int_equal(*(const uint8_t *)tensor.data, 31);
    assert_int_equal(pinclient_release(batches[1], PINCLIENT_NO_STREAM), 0);
    assert_int_equal(*(const uint8_t *)tensor.data, 31);
    assert_int_equal(pinclient_release(batches[0], PINCLIENT_NO_STREAM), 0);
    peer_close_end(&peer);
    assert_int_equal(peer.n_events, 3);
    assert_int_equal(peer.events[0].kind, PINSERVE__MESSAGE__BODY_CLOSE_JOB);
    event = peer.events[1];
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
    assert_int_equal(event.generation, 41);
    assert_int_equal(peer.events[2].generation, 40);
    peer_deinit(&peer);
}

/* Batches that were announced and never taken are given back by close. */
static void test_close_gives_back(void **state)
{
    struct peer peer;
    struct pinclient_job *job;

    (void)state;
    open_job(&peer, &job);
    peer_send_batch(&peer, 0, 50, 0, 0, 0);
    peer_send_batch(&peer, 1, 51, 0, 1, 0);
    peer_close(&peer, job);
    assert_int_equal(peer_count(&peer, PINSERVE__MESSAGE__BODY_RELEASE), 2);
    assert_int_equal(peer.events[1].generation, 50);
    assert_int_equal(peer.events[2].generation, 51);
    peer_deinit(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),          cmocka_unit_test(test_short_batch),
        cmocka_unit_test(test_release),          cmocka_unit_test(test_release_after_close),
        cmocka_unit_test(test_close_gives_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
