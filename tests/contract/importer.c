/*
 * Opens one ring at a time in the manner of a client: an fd with read access
 * only, or an IPC handle; and reads it with the driver's copies.
 */
#include "contract/importer.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALLS(call)                                                                                \
    call(cuInit);                                                                                  \
    call(cuDeviceGet);                                                                             \
    call(cuDevicePrimaryCtxRetain);                                                                \
    call(cuCtxSetCurrent);                                                                         \
    call(cuGetErrorName);                                                                          \
    call(cuMemImportFromShareableHandle);                                                          \
    call(cuMemAddressReserve);                                                                     \
    call(cuMemAddressFree);                                                                        \
    call(cuMemMap);                                                                                \
    call(cuMemUnmap);                                                                              \
    call(cuMemSetAccess);                                                                          \
    call(cuMemRelease);                                                                            \
    call(cuIpcOpenMemHandle);                                                                      \
    call(cuIpcCloseMemHandle);                                                                     \
    call(cuMemcpyDtoH);                                                                            \
    call(cuMemcpyHtoD)

#define MEMBER(name) __typeof__(&(name)) name

static struct {
    CALLS(MEMBER);
} driver;

static struct {
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle; /* 0: an IPC handle's */
} ring;

static void load(void *library, const char *name, void *function_p)
{
    __typeof__(&cuGetProcAddress) get;
    void *function = dlsym(library, "cuGetProcAddress_v2");

    memcpy(&get, &function, sizeof get);
    if (!function || get(name, &function, 12000, 0, NULL) != CUDA_SUCCESS || !function) {
        fprintf(stderr, "the driver lacks %s\n", name);
        exit(EXIT_FAILURE);
    }
    memcpy(function_p, &function, sizeof function);
}

#define LOAD(name) load(library, #name, &driver.name)

static CUresult start(const char *uuid)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CUcontext context;
    CUresult result;

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(EXIT_FAILURE);
    }
    CALLS(LOAD);
    setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
    result = driver.cuInit(0);
    if (result == CUDA_SUCCESS)
        result = driver.cuDevicePrimaryCtxRetain(&context, 0);
    return result == CUDA_SUCCESS ? driver.cuCtxSetCurrent(context) : result;
}

static CUresult open_fd(int fd, size_t bytes)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    CUresult result = driver.cuMemImportFromShareableHandle(
        &ring.handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

    if (result == CUDA_SUCCESS)
        result = driver.cuMemAddressReserve(&ring.address, bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS)
        result = driver.cuMemMap(ring.address, bytes, 0, ring.handle, 0);
    if (result == CUDA_SUCCESS)
        result = driver.cuMemSetAccess(ring.address, bytes, &access, 1);
    return result;
}

static CUresult request_open(const struct importer_request *request, int fd)
{
    CUipcMemHandle handle;

    ring.bytes = request->bytes;
    if (request->export_as == RING_EXPORT_FD)
        return open_fd(fd, request->bytes);
    memcpy(&handle, request->ipc_handle, sizeof handle);
    return driver.cuIpcOpenMemHandle(&ring.address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static CUresult request_close(void)
{
    CUmemGenericAllocationHandle handle = ring.handle;

    ring.handle = 0;
    if (!handle)
        return driver.cuIpcCloseMemHandle(ring.address);
    CUresult result = driver.cuMemUnmap(ring.address, ring.bytes);
    if (result == CUDA_SUCCESS)
        result = driver.cuMemAddressFree(ring.address, ring.bytes);
    if (result == CUDA_SUCCESS)
        result = driver.cuMemRelease(handle);
    return result;
}

/* A request and the fd beside it; false at the end. */
static bool receive(struct importer_request *request, int *fd_p)
{
    struct iovec data = {request, sizeof *request};
    char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    const struct cmsghdr *header;

    if (recvmsg(STDIN_FILENO, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *request)
        return false;
    header = CMSG_FIRSTHDR(&message);
    *fd_p = -1;
    if (header)
        memcpy(fd_p, CMSG_DATA(header), sizeof *fd_p);
    return true;
}

static CUresult carry_out(const struct importer_request *request, int fd, uint8_t *data)
{
    switch (request->kind) {
    case IMPORTER_OPEN:
        return request_open(request, fd);
    case IMPORTER_READ:
        return driver.cuMemcpyDtoH(data, ring.address + request->offset, request->bytes);
    case IMPORTER_WRITE:
        return driver.cuMemcpyHtoD(ring.address + request->offset, "x", 1);
    default:
        return request_close();
    }
}

int main(int argc, char **argv)
{
    static struct importer_answer answer;
    struct importer_request request;
    int fd;

    if (argc != 2)
        return 2;
    CUresult started = start(argv[1]);
    while (receive(&request, &fd)) {
        CUresult result = started == CUDA_SUCCESS ? carry_out(&request, fd, answer.data) : started;
        const char *name = NULL;

        if (fd >= 0)
            close(fd);
        answer.result = (int32_t)result;
        driver.cuGetErrorName(result, &name);
        snprintf(answer.text, sizeof answer.text, "%s", name ? name : "?");
        if (send(STDIN_FILENO, &answer, sizeof answer, MSG_NOSIGNAL) < 0)
            break;
    }
    return 0;
}
