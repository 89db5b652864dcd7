/*
 * client/device_cuda.c, driver.c and mapping.c, against the driver's stand-in:
 * finding GPUs, and rings on both rungs.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/device.h"
#include "client_exporter.h"
#include "client_peer.h"

/* -- which GPU --------------------------------------------------------------------------------- */

static void test_resolve(void **state)
{
    char name[DEVICE_NAME_MAX], second[DEVICE_NAME_MAX], wanted[DEVICE_NAME_MAX];
    struct failure failure;

    (void)state;
    assert_int_equal(device_resolve("host", name, &failure), 0);
    assert_string_equal(name, "host");
    assert_int_equal(device_resolve("auto", name, &failure), 0);
    assert_string_equal(name, exported.uuid);
    assert_int_equal(device_resolve("cuda:0", name, &failure), 0);
    assert_string_equal(name, exported.uuid);
    assert_int_equal(device_resolve("cuda:1", second, &failure), 0);
    assert_string_not_equal(second, exported.uuid);

    assert_int_equal(device_resolve("cuda:2", name, &failure), -ENODEV);
    assert_non_null(strstr(failure.text, "cuda:2"));
    assert_non_null(strstr(failure.text, exported.uuid));
    assert_non_null(strstr(failure.text, second));

    /* The stand-in's UUIDs differ in the last digits only. */
    snprintf(wanted, sizeof wanted, "%.20s", exported.uuid);
    assert_int_equal(device_resolve(wanted, name, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, "several"));
    assert_non_null(strstr(failure.text, second));
    assert_int_equal(device_resolve(second, name, &failure), 0);
    assert_string_equal(name, second);
    assert_int_equal(device_resolve("gpu-12345678", name, &failure), 0);
    assert_string_equal(name, "gpu-12345678");
    assert_int_equal(device_resolve("MIG-1234", name, &failure), 0);
    assert_string_equal(name, "MIG-1234");
}

static void test_open_device(void **state)
{
    struct device *device = NULL;
    struct failure failure;

    (void)state;
    assert_int_equal(device_open("GPU-12345678", &device, &failure), -ENODEV);
    assert_null(device);
    assert_non_null(strstr(failure.text, "GPU-12345678"));
    assert_non_null(strstr(failure.text, exported.uuid));
    assert_int_equal(device_open(exported.uuid, &device, &failure), 0);
    assert_true(device_can_fd(device));
    device_close(device);
    device_close(NULL);
}

/* -- rings ------------------------------------------------------------------------------------- */

static void test_ring(Pinserve__Delivery delivery, const char *text, uint8_t byte)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;

    exporter_connect(&peer);
    exporter_offer(&peer, 0, delivery, false);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    assert_string_equal(peer.capabilities, "fd ipc copy host mapped ");
    assert_string_equal(peer.device_asked, exported.uuid);
    exporter_check(job, text);
    batch = peer_take(&peer, job, 1, 0, 1);
    assert_int_equal(peer_first_byte(batch), (uint8_t)(byte + PEER_SLOT));
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    peer_close(&peer, job);
    assert_int_equal(peer_count(&peer, PINSERVE__MESSAGE__BODY_RELEASE), 1);
    assert_int_equal(peer.events[peer.n_events - 1].kind, PINSERVE__MESSAGE__BODY_RING_CLOSED);
    assert_int_equal(peer.events[peer.n_events - 1].ring, 1);
    peer_deinit(&peer);
}

static void test_ring_fd(void **state)
{
    (void)state;
    test_ring(PINSERVE__DELIVERY__DELIVERY_FD, "fd", 1);
}

static void test_ring_ipc(void **state)
{
    (void)state;
    test_ring(PINSERVE__DELIVERY__DELIVERY_IPC, "ipc", 101);
}

/* Writing to a ring that came as an fd must not work. */
static void test_ring_fd_is_read_only(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;
    struct pinclient_tensor tensor;
    int status;

    (void)state;
    exporter_connect(&peer);
    exporter_offer(&peer, 0, PINSERVE__DELIVERY__DELIVERY_FD, false);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    batch = peer_take(&peer, job, 0, 0, 1);
    assert_int_equal(pinclient_batch_tensor(batch, "data", &tensor), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigaction(SIGSEGV, &action, NULL);
        *(volatile uint8_t *)tensor.data = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    peer_close(&peer, job);
    peer_deinit(&peer);
}

/* A rung that fails is answered in words, and the next one is taken. */
static void test_ladder(void **state)
{
    struct peer peer;
    struct pinclient_job *job;

    (void)state;
    exporter_connect(&peer);
    exporter_offer(&peer, 0, PINSERVE__DELIVERY__DELIVERY_FD, true);
    peer.rings[0].bytes = PEER_SLOT;
    exporter_offer(&peer, 1, PINSERVE__DELIVERY__DELIVERY_IPC, false);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    exporter_check(job, "ipc");
    assert_false(peer.events[0].ok);
    assert_int_equal(peer.events[0].ring, 1);
    assert_non_null(strstr(peer.events[0].error, "a ring of 4096 bytes for 2 slots"));
    assert_true(peer.events[1].ok);
    assert_int_equal(peer.events[1].ring, 2);
    peer_close(&peer, job);
    peer_deinit(&peer);

    exporter_connect(&peer);
    exporter_offer(&peer, 0, PINSERVE__DELIVERY__DELIVERY_IPC, true);
    peer.opening_fails = true;
    assert_int_equal(peer_open_default(&peer, &job), -EIO);
    assert_string_equal(pinclient_error(peer.client), "no rung works");
    assert_non_null(strstr(peer.events[0].error, "IPC handle: CUDA error"));
    assert_non_null(strstr(peer.events[0].error, exported.uuid));
    peer_deinit(&peer);
}

/* Batches of the ring before stay valid; it is unmapped, and the daemon told, behind the last. */
static void test_ring_replaced(void **state)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *old, *new, *none;
    struct peer_event event;

    (void)state;
    exporter_connect(&peer);
    exporter_offer(&peer, 0, PINSERVE__DELIVERY__DELIVERY_FD, false);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    old = peer_take(&peer, job, 0, 0, 1);
    exporter_offer(&peer, 1, PINSERVE__DELIVERY__DELIVERY_IPC, false);
    peer_send_ring_replaced(&peer, 1, 2);
    new = peer_take(&peer, job, 1, 1, 2);
    assert_true(peer_expect(&peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RING_OPENED);
    assert_true(event.ok);
    exporter_check(job, "ipc");
    assert_int_equal(peer_first_byte(old), 1);
    assert_int_equal(peer_first_byte(new), (uint8_t)(101 + PEER_SLOT));
    assert_int_equal(pinclient_next(job, 0, &none), -EBUSY);
    assert_int_equal(pinclient_release(old, PINCLIENT_NO_STREAM), 0);
    assert_true(peer_expect(&peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
    assert_true(peer_expect(&peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RING_CLOSED);
    assert_int_equal(event.ring, 1);
    assert_int_equal(pinclient_release(new, PINCLIENT_NO_STREAM), 0);
    peer_close(&peer, job);
    assert_int_equal(peer.events[peer.n_events - 1].ring, 2);
    peer_deinit(&peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resolve),
        cmocka_unit_test(test_open_device),
        cmocka_unit_test(test_ring_fd),
        cmocka_unit_test(test_ring_ipc),
        cmocka_unit_test(test_ring_fd_is_read_only),
        cmocka_unit_test(test_ladder),
        cmocka_unit_test(test_ring_replaced),
    };

    return cmocka_run_group_tests(tests, exporter_start, exporter_stop);
}
