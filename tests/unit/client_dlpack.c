/*
 * client/dlpack.c: what is exported, and that the last of those who hold a
 * batch gives it back. What follows streams is in client_streams.c.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/dlpack.h"
#include "client_peer.h"

#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

static void open_job(struct peer *peer, struct pinclient_job **job_p)
{
    peer_init(peer);
    assert_int_equal(peer_connect(peer), 0);
    assert_int_equal(peer_open_default(peer, job_p), 0);
}

static void test_managed(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_tensor tensor;
    void *managed;

    (void)state;
    open_job(&peer, &job);
    struct pinclient_batch *batch = peer_take(&peer, job, 1, 0, 0);
    assert_int_equal(pinclient_batch_dlpack(batch, "data", 0, &managed), 0);
    assert_int_equal(pinclient_batch_tensor(batch, "data", &tensor), 0);
    struct dlpack_managed *data = managed;
    assert_ptr_equal(data->tensor.data, tensor.data);
    assert_int_equal(data->tensor.device.kind, DLPACK_CPU);
    assert_int_equal(data->tensor.device.number, 0);
    assert_int_equal(data->tensor.dtype.code, DLPACK_UINT);
    assert_int_equal(data->tensor.dtype.bits, 8);
    assert_int_equal(data->tensor.dtype.lanes, 1);
    assert_int_equal(data->tensor.n_dims, 2);
    assert_int_equal(data->tensor.shape[0], 4);
    assert_int_equal(data->tensor.shape[1], 4);
    assert_int_equal(data->tensor.strides[0], 4);
    assert_int_equal(data->tensor.strides[1], 1);
    assert_int_equal(data->tensor.byte_offset, 0);
    data->deleter(data);
    assert_int_equal(pinclient_batch_dlpack(batch, "image", 0, &managed), -ENOENT);
    assert_error(job, "there are data, index");
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    peer_close(&peer, job);
    peer_deinit(&peer);
}

static void test_versioned(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    void *managed;

    (void)state;
    open_job(&peer, &job);
    struct pinclient_batch *batch = peer_take(&peer, job, 0, 0, 0);
    assert_int_equal(pinclient_batch_dlpack(batch, "index", PINCLIENT_DLPACK_VERSIONED, &managed),
                     0);
    struct dlpack_versioned *index = managed;
    assert_int_equal(index->version.major, 1);
    assert_int_equal(index->flags, DLPACK_READ_ONLY);
    assert_int_equal(index->tensor.dtype.code, DLPACK_INT);
    assert_int_equal(index->tensor.dtype.bits, 64);
    assert_int_equal(index->tensor.strides[0], 1);
    index->deleter(index);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    peer_close(&peer, job);
    peer_deinit(&peer);
}

/* Released first or last: the batch goes with the last of those who hold it. */
static void test_the_last_one_gives_back(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct peer_event event;
    void *managed[2];

    (void)state;
    open_job(&peer, &job);
    for (uint64_t step = 0; step < 2; step++) {
        struct pinclient_batch *batch = peer_take(&peer, job, 0, step, 0);
        assert_int_equal(pinclient_batch_dlpack(batch, "data", 0, &managed[0]), 0);
        assert_int_equal(pinclient_batch_dlpack(batch, "index", 0, &managed[1]), 0);
        struct dlpack_managed *first = managed[step], *second = managed[1 - step];
        if (step == 0)
            assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
        first->deleter(first);
        assert_false(peer_expect(&peer, 20, &event));
        if (step == 0)
            assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), -EINVAL);
        second->deleter(second);
        if (step == 1) {
            assert_false(peer_expect(&peer, 20, &event));
            assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
        }
        assert_true(peer_expect(&peer, 5000, &event));
        assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
        assert_int_equal(pinclient_batch_dlpack(batch, "data", 0, &managed[0]), -EINVAL);
        assert_error(job, "given back already");
    }
    peer_close(&peer, job);
    peer_deinit(&peer);
}

/* Exported tensors count as leased. */
static void test_all_are_held(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *none;
    void *managed[2];

    (void)state;
    open_job(&peer, &job);
    for (uint32_t i = 0; i < 2; i++) {
        struct pinclient_batch *batch = peer_take(&peer, job, i, i, 0);
        assert_int_equal(pinclient_batch_dlpack(batch, "data", 0, &managed[i]), 0);
        assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    }
    assert_int_equal(pinclient_next(job, 1000, &none), -EBUSY);
    for (uint32_t i = 0; i < 2; i++) {
        struct dlpack_managed *data = managed[i];
        data->deleter(data);
    }
    assert_int_equal(pinclient_next(job, 0, &none), -ETIMEDOUT);
    peer_close(&peer, job);
    peer_deinit(&peer);
}

static void *delete_in_thread(void *managed)
{
    struct dlpack_managed *data = managed;

    assert_int_equal(((const uint8_t *)data->tensor.data)[0], 77);
    data->deleter(data);
    return NULL;
}

/* A tensor keeps its memory after the job's close, and the job ends with it, in any thread. */
static void test_a_tensor_outlives_the_job(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    pthread_t thread;
    void *managed;

    (void)state;
    open_job(&peer, &job);
    peer.region[0] = 77;
    struct pinclient_batch *batch = peer_take(&peer, job, 0, 0, 0);
    assert_int_equal(pinclient_batch_dlpack(batch, "data", 0, &managed), 0);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    peer_close_start(&peer);
    pinclient_job_close(job);
    assert_int_equal(pthread_create(&thread, NULL, delete_in_thread, managed), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    peer_close_end(&peer);
    assert_int_equal(peer.n_events, 2);
    assert_int_equal(peer.events[1].kind, PINSERVE__MESSAGE__BODY_RELEASE);
    peer_deinit(&peer);
}

/* One thread takes and releases while another one deletes. */
static void test_deleting_beside_next(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;
    pthread_t thread;
    void *managed;

    (void)state;
    open_job(&peer, &job);
    peer.region[0] = peer.region[PEER_SLOT] = 77;
    batch = peer_take(&peer, job, 0, 0, 0);
    assert_int_equal(pinclient_batch_dlpack(batch, "data", 0, &managed), 0);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    assert_int_equal(pthread_create(&thread, NULL, delete_in_thread, managed), 0);
    assert_int_equal(pinclient_next(job, 50, &batch), -ETIMEDOUT);
    batch = peer_take(&peer, job, 1, 1, 0);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    peer_close(&peer, job);
    assert_int_equal(peer_count(&peer, PINSERVE__MESSAGE__BODY_RELEASE), 2);
    peer_deinit(&peer);
}

static void test_fork(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct peer_event event;
    void *managed, *other;
    int status;

    (void)state;
    open_job(&peer, &job);
    struct pinclient_batch *batch = peer_take(&peer, job, 0, 0, 0);
    assert_int_equal(pinclient_batch_dlpack(batch, "data", 0, &managed), 0);
    struct dlpack_managed *data = managed;
    pid_t pid = fork();
    if (pid == 0) {
        int r = pinclient_batch_dlpack(batch, "data", 0, &other);
        data->deleter(data);
        _exit(r == -EPERM ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    assert_false(peer_expect(&peer, 20, &event));
    data->deleter(data);
    assert_true(peer_expect(&peer, 5000, &event));
    peer_close(&peer, job);
    peer_deinit(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_managed),
        cmocka_unit_test(test_versioned),
        cmocka_unit_test(test_the_last_one_gives_back),
        cmocka_unit_test(test_all_are_held),
        cmocka_unit_test(test_a_tensor_outlives_the_job),
        cmocka_unit_test(test_deleting_beside_next),
        cmocka_unit_test(test_fork),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
