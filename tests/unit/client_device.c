/*
 * client/device_cuda.c, driver.c and mapping.c, against the driver's stand-in:
 * finding GPUs, rings on both rungs, and releases that wait for streams.
 *
 * The exporter is a process of its own, forked before the driver is loaded: a
 * process cannot open its own IPC handles.
 */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/device.h"
#include "client/dlpack.h"
#include "client/driver.h"
#include "client_peer.h"
#include "proto/limits.h"

#define RING_BYTES RING_ALIGN
#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

/* Calls that only a test and a daemon make. */
static struct {
    __typeof__(&cuMemCreate) mem_create;
    __typeof__(&cuMemExportToShareableHandle) mem_export;
    __typeof__(&cuMemAlloc) mem_alloc;
    __typeof__(&cuIpcGetMemHandle) ipc_get;
    __typeof__(&cuMemcpyHtoD) copy_to;
    __typeof__(&cuStreamBeginCapture) begin_capture;
    __typeof__(&cuStreamEndCapture) end_capture;
} extra;

static void extra_load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

#define LOAD(field, name)                                                                          \
    do {                                                                                           \
        void *call = dlsym(library, DRIVER_NAME(name));                                            \
        memcpy(&extra.field, &call, sizeof call);                                                  \
    } while (0)
    LOAD(mem_create, cuMemCreate);
    LOAD(mem_export, cuMemExportToShareableHandle);
    LOAD(mem_alloc, cuMemAlloc);
    LOAD(ipc_get, cuIpcGetMemHandle);
    LOAD(copy_to, cuMemcpyHtoD);
    LOAD(begin_capture, cuStreamBeginCapture);
    LOAD(end_capture, cuStreamEndCapture);
#undef LOAD
}

/* -- the exporter ------------------------------------------------------------------------------ */

struct exported {
    uint8_t handle[64];
    char uuid[DEVICE_NAME_MAX];
};

static struct exported exported;
static int exported_fd = -1, exporter_socket = -1;
static pid_t exporter_pid;

static void fill(CUdeviceptr address, uint8_t first)
{
    static uint8_t bytes[2 * PEER_SLOT];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(first + i);
    extra.copy_to(address, bytes, sizeof bytes);
}

/* A ring of each kind: the one behind the fd begins with 1, the one behind the handle with 101. */
static int export_rings(int socket_fd)
{
    const struct driver *driver;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CUipcMemHandle handle;
    CUdeviceptr address;
    CUcontext context;
    struct exported out;
    int fd = -1;

    extra_load();
    if (driver_load(&driver, NULL) < 0 || device_resolve("cuda:0", out.uuid, NULL) < 0 ||
        driver->cuDevicePrimaryCtxRetain(&context, 0) || driver->cuCtxPushCurrent(context) ||
        extra.mem_create(&memory, RING_BYTES, &prop, 0) ||
        extra.mem_export(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ||
        driver->cuMemAddressReserve(&address, RING_BYTES, 0, 0, 0) ||
        driver->cuMemMap(address, RING_BYTES, 0, memory, 0) ||
        driver->cuMemSetAccess(address, RING_BYTES, &access, 1))
        return 1;
    fill(address, 1);
    if (extra.mem_alloc(&address, RING_BYTES) || extra.ipc_get(&handle, address))
        return 2;
    fill(address, 101);
    memcpy(out.handle, &handle, sizeof out.handle);

    /* Any message takes fds along; the rest goes as bytes. */
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Done done = PINSERVE__DONE__INIT;
    message.body_case = PINSERVE__MESSAGE__BODY_DONE;
    message.done = &done;
    if (wire_send(socket_fd, &message, &fd, 1, 0) < 0 ||
        send(socket_fd, &out, sizeof out, 0) != sizeof out)
        return 3;
    char byte;
    return recv(socket_fd, &byte, 1, 0) > 0;
}

static int exporter_start(void **state)
{
    struct wire_packet packet = WIRE_PACKET_INIT;
    int pair[2];

    (void)state;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    exporter_pid = fork();
    if (exporter_pid == 0) {
        close(pair[0]);
        _exit(export_rings(pair[1]));
    }
    close(pair[1]);
    exporter_socket = pair[0];
    if (wire_receive(pair[0], &packet, 0) < 0 ||
        recv(pair[0], &exported, sizeof exported, 0) != sizeof exported)
        return -1;
    exported_fd = wire_take_fd(&packet, 0);
    wire_packet_deinit(&packet);
    extra_load();
    return 0;
}

static int exporter_stop(void **state)
{
    int status = 0;

    (void)state;
    close(exported_fd);
    close(exporter_socket);
    waitpid(exporter_pid, &status, 0);
    return status;
}

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

static void offer(struct peer *peer, int i, Pinserve__Delivery delivery, bool broken)
{
    peer->rings[i].delivery = delivery;
    peer->rings[i].bytes = RING_BYTES;
    peer->rings[i].fd = broken ? peer->region_fd : exported_fd;
    memcpy(peer->rings[i].handle, exported.handle, 64);
    if (broken)
        memset(peer->rings[i].handle, 0, 64);
    peer->n_rings = i + 1;
}

static void start(struct peer *peer)
{
    peer_init(peer);
    peer->device = exported.uuid;
    assert_int_equal(peer_connect(peer), 0);
}

static struct pinclient_batch *take(struct peer *peer, struct pinclient_job *job, uint32_t lease,
                                    uint64_t step, uint32_t ring)
{
    struct pinclient_batch *batch = NULL;

    peer_send_batch(peer, lease, 1, 0, step, ring);
    int r = pinclient_next(job, 5000, &batch);
    if (r < 0)
        fail_msg("next: %s", pinclient_error(job));
    return batch;
}

static uint8_t first_byte(const struct pinclient_batch *batch)
{
    struct pinclient_tensor tensor;

    assert_int_equal(pinclient_batch_tensor(batch, "data", &tensor), 0);
    return *(const uint8_t *)tensor.data;
}

static void check_delivery(const struct pinclient_job *job, const char *delivery)
{
    struct pinclient_job_info info;

    pinclient_job_info(job, &info);
    assert_string_equal(info.delivery, delivery);
    assert_string_equal(info.device, exported.uuid);
}

static void test_ring(Pinserve__Delivery delivery, const char *text, uint8_t byte)
{
    struct peer peer;
    struct pinclient_job *job;
    struct pinclient_batch *batch;

    start(&peer);
    offer(&peer, 0, delivery, false);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    assert_string_equal(peer.capabilities, "fd ipc copy host mapped ");
    assert_string_equal(peer.device_asked, exported.uuid);
    check_delivery(job, text);
    batch = take(&peer, job, 1, 0, 1);
    assert_int_equal(first_byte(batch), (uint8_t)(byte + PEER_SLOT));
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
    start(&peer);
    offer(&peer, 0, PINSERVE__DELIVERY__DELIVERY_FD, false);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    batch = take(&peer, job, 0, 0, 1);
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
    start(&peer);
    offer(&peer, 0, PINSERVE__DELIVERY__DELIVERY_FD, true);
    peer.rings[0].bytes = PEER_SLOT;
    offer(&peer, 1, PINSERVE__DELIVERY__DELIVERY_IPC, false);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    check_delivery(job, "ipc");
    assert_false(peer.events[0].ok);
    assert_int_equal(peer.events[0].ring, 1);
    assert_non_null(strstr(peer.events[0].error, "a ring of 4096 bytes for 2 slots"));
    assert_true(peer.events[1].ok);
    assert_int_equal(peer.events[1].ring, 2);
    peer_close(&peer, job);
    peer_deinit(&peer);

    start(&peer);
    offer(&peer, 0, PINSERVE__DELIVERY__DELIVERY_IPC, true);
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
    start(&peer);
    offer(&peer, 0, PINSERVE__DELIVERY__DELIVERY_FD, false);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    old = take(&peer, job, 0, 0, 1);
    offer(&peer, 1, PINSERVE__DELIVERY__DELIVERY_IPC, false);
    peer_send_ring_replaced(&peer, 1, 2);
    new = take(&peer, job, 1, 1, 2);
    assert_true(peer_expect(&peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RING_OPENED);
    assert_true(event.ok);
    check_delivery(job, "ipc");
    assert_int_equal(first_byte(old), 1);
    assert_int_equal(first_byte(new), (uint8_t)(101 + PEER_SLOT));
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

/* -- releases ---------------------------------------------------------------------------------- */

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

static void open_ring_job(struct peer *peer, struct pinclient_job **job_p)
{
    start(peer);
    offer(peer, 0, PINSERVE__DELIVERY__DELIVERY_FD, false);
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
    batch = take(&peer, job, 0, 0, 1);
    busy_start(&busy);
    assert_int_equal(pinclient_release(batch, busy.stream), 0);
    assert_false(peer_expect(&peer, 100, &event));
    busy.go = true;
    assert_true(peer_expect(&peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
    assert_int_equal(event.lease, 0);

    /* A released batch is not the caller's, so it is no reason for -EBUSY. */
    struct pinclient_batch *two[2] = {take(&peer, job, 0, 1, 1), take(&peer, job, 1, 2, 1)};
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
    batch = take(&peer, job, 0, 0, 1);
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
    batch = take(&peer, job, 0, 1, 1);
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
    batch = take(&peer, job, 0, 0, 1);
    assert_int_equal(extra.begin_capture(stream.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    assert_int_equal(pinclient_batch_use(batch, stream.stream), -EBUSY);
    assert_int_equal(pinclient_release(batch, stream.stream), -EBUSY);
    assert_error(job, "captured");
    assert_int_equal(first_byte(batch), 1);
    assert_false(peer_expect(&peer, 50, &event));
    extra.end_capture(stream.stream, &graph);
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
        batch = take(&peer, job, 0, step, 1);
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
            assert_int_equal(extra.begin_capture(busy.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
        data->deleter(data);
        assert_false(peer_expect(&peer, 50, &event));
        if (step == 0) {
            busy.go = true;
        } else {
            extra.end_capture(busy.stream, &graph);
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
    batch = take(&peer, job, 0, 0, 1);
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
    start(&peer);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    check_delivery(job, "host");
    peer.region[0] = 200;
    batch = take(&peer, job, 0, 0, 0);
    assert_int_equal(first_byte(batch), 200);
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
        cmocka_unit_test(test_resolve),
        cmocka_unit_test(test_open_device),
        cmocka_unit_test(test_ring_fd),
        cmocka_unit_test(test_ring_ipc),
        cmocka_unit_test(test_ring_fd_is_read_only),
        cmocka_unit_test(test_ladder),
        cmocka_unit_test(test_ring_replaced),
        cmocka_unit_test(test_release_waits_for_the_stream),
        cmocka_unit_test(test_further_streams),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_deleter_follows),
        cmocka_unit_test(test_close_behind_a_stream),
        cmocka_unit_test(test_host_memory_of_a_gpu),
    };

    setenv("PINSERVE_DRIVER_DEVICES", "2", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    return cmocka_run_group_tests(tests, exporter_start, exporter_stop);
}
