/*
 * Rings of a GPU, for tests: see client_exporter.h.
 */
#include "client_exporter.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct exporter_driver exporter_driver;
struct exported exported;
int exported_fd = -1;

static int exporter_socket = -1;
static pid_t exporter_pid;

static void exporter_load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

#define LOAD(field, name)                                                                          \
    do {                                                                                           \
        void *call = dlsym(library, DRIVER_NAME(name));                                            \
        memcpy(&exporter_driver.field, &call, sizeof call);                                        \
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

static void fill(CUdeviceptr address, uint8_t first)
{
    static uint8_t bytes[2 * PEER_SLOT];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(first + i);
    exporter_driver.copy_to(address, bytes, sizeof bytes);
}

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

    exporter_load();
    if (driver_load(&driver, NULL) < 0 || device_resolve("cuda:0", out.uuid, NULL) < 0 ||
        driver->cuDevicePrimaryCtxRetain(&context, 0) || driver->cuCtxPushCurrent(context) ||
        exporter_driver.mem_create(&memory, RING_BYTES, &prop, 0) ||
        exporter_driver.mem_export(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ||
        driver->cuMemAddressReserve(&address, RING_BYTES, 0, 0, 0) ||
        driver->cuMemMap(address, RING_BYTES, 0, memory, 0) ||
        driver->cuMemSetAccess(address, RING_BYTES, &access, 1))
        return 1;
    fill(address, 1);
    if (exporter_driver.mem_alloc(&address, RING_BYTES) ||
        exporter_driver.ipc_get(&handle, address))
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

int exporter_start(void **state)
{
    struct wire_packet packet = WIRE_PACKET_INIT;
    int pair[2];

    (void)state;
    setenv("PINSERVE_DRIVER_DEVICES", "2", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
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
    exporter_load();
    return 0;
}

int exporter_stop(void **state)
{
    int status = 0;

    (void)state;
    close(exported_fd);
    close(exporter_socket);
    waitpid(exporter_pid, &status, 0);
    return status;
}

void exporter_connect(struct peer *peer)
{
    peer_init(peer);
    peer->device = exported.uuid;
    assert_int_equal(peer_connect(peer), 0);
}

void exporter_offer(struct peer *peer, int i, Pinserve__Delivery delivery, bool broken)
{
    peer->rings[i].delivery = delivery;
    peer->rings[i].bytes = RING_BYTES;
    peer->rings[i].fd = broken ? peer->region_fd : exported_fd;
    memcpy(peer->rings[i].handle, exported.handle, 64);
    if (broken)
        memset(peer->rings[i].handle, 0, 64);
    peer->n_rings = i + 1;
}

void exporter_check(const struct pinclient_job *job, const char *delivery)
{
    struct pinclient_job_info info;

    pinclient_job_info(job, &info);
    assert_string_equal(info.delivery, delivery);
    assert_string_equal(info.device, exported.uuid);
}
