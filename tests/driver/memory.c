/*
 * The stand-in's plain allocations, IPC handles, registrations of host memory and
 * synchronous copies.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ipc.h"
#include "range.h"

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    CUresult result = lock_enter();

    if (result != CUDA_SUCCESS)
        return result;
    *total = driver_settings.memory;
    *free_bytes = driver_settings.memory - memory_used;
    return leave(CUDA_SUCCESS);
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t bytes)
{
    size_t rounded = (bytes + DRIVER_GRANULARITY - 1) & ~(DRIVER_GRANULARITY - 1);
    struct memory *memory;
    CUresult result = bytes ? lock_enter() : CUDA_ERROR_INVALID_VALUE;

    if (result != CUDA_SUCCESS)
        return result;
    memory = memory_new(rounded);
    result = memory ? range_map(RANGE_ALLOCATED, memory, pointer) : CUDA_ERROR_OUT_OF_MEMORY;
    if (memory && result != CUDA_SUCCESS)
        memory_unref(memory);
    return leave(result);
}

CUresult cuMemFree(CUdeviceptr pointer)
{
    CUresult result = lock_enter();

    return result == CUDA_SUCCESS ? leave(range_unmap(RANGE_ALLOCATED, pointer)) : result;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    const struct range *range;
    CUresult result = driver_settings.no_ipc ? CUDA_ERROR_NOT_SUPPORTED : lock_enter();

    if (result != CUDA_SUCCESS)
        return result;
    range = range_find(RANGE_ALLOCATED, pointer);
    if (!range)
        return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(ipc_offer(range->memory->fd, range->memory->bytes, handle->reserved)
                     ? CUDA_SUCCESS
                     : CUDA_ERROR_UNKNOWN);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
    struct memory *memory;
    size_t bytes;
    CUresult result = driver_settings.no_ipc ? CUDA_ERROR_NOT_SUPPORTED : driver_enter(true);
    int fd;

    if (result != CUDA_SUCCESS)
        return result;
    if (driver_settings.no_import)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || ipc_is_own(handle.reserved))
        return flags ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    fd = ipc_take(handle.reserved, &bytes);
    pthread_mutex_lock(&driver_lock);
    memory = memory_adopt(fd, bytes);
    result = memory ? range_map(RANGE_IPC, memory, pointer) : CUDA_ERROR_INVALID_VALUE;
    if (memory && result != CUDA_SUCCESS)
        memory_unref(memory);
    return leave(result);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    CUresult result = lock_enter();

    return result == CUDA_SUCCESS ? leave(range_unmap(RANGE_IPC, pointer)) : result;
}

/* Whether all of [first, end) is mapped, and for writing if asked. */
static bool is_mapped(uintptr_t first, uintptr_t end, bool to_write)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    bool found = false;

    if (!maps)
        return false;
    while (!found && first < end && fgets(line, sizeof line, maps)) {
        char *rest;
        uintptr_t from = strtoul(line, &rest, 16);
        uintptr_t to = *rest == '-' ? strtoul(rest + 1, &rest, 16) : 0;

        if (from > first || to <= first || strlen(rest) < 4)
            continue;
        if (rest[1] != 'r' || (to_write && rest[2] != 'w'))
            break;
        first = to;
        found = first >= end;
    }
    fclose(maps);
    return found;
}

/* A byte more in a file that a test counts. */
static void register_count(void)
{
    const char *path = getenv("PINSERVE_DRIVER_REGISTERED");
    FILE *file = path ? fopen(path, "ae") : NULL;

    if (!file)
        return;
    putc('.', file);
    fclose(file);
}

CUresult cuMemHostRegister(void *address, size_t bytes, unsigned int flags)
{
    bool read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY;
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    if (driver_settings.no_register || (read_only && driver_settings.no_read_only))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (read_only)
        usleep(driver_settings.register_delay_ms * 1000);
    if (!bytes || !is_mapped((uintptr_t)address, (uintptr_t)address + bytes, !read_only))
        return CUDA_ERROR_INVALID_VALUE;
    if (driver_host_memory(address, bytes) != HOST_MEMORY_PAGEABLE)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    register_count();
    pthread_mutex_lock(&driver_lock);
    return leave(range_new(RANGE_REGISTERED, (uintptr_t)address, bytes) ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuMemHostUnregister(void *address)
{
    struct range *range;
    CUresult result = lock_enter();

    if (result != CUDA_SUCCESS)
        return result;
    range = range_find(RANGE_REGISTERED, (uintptr_t)address);
    if (!range || range->address != (uintptr_t)address)
        return leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    range_free(range);
    return leave(CUDA_SUCCESS);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *pointer, void *address, unsigned int flags)
{
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    if (flags || driver_host_memory(address, 1) != HOST_MEMORY_LOCKED)
        return CUDA_ERROR_INVALID_VALUE;
    *pointer = (CUdeviceptr)(uintptr_t)address;
    return CUDA_SUCCESS;
}

static CUresult copy_now(void *target, const void *origin, size_t bytes, CUdeviceptr device,
                         bool to_device)
{
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    if (!driver_is_device_memory(device, bytes, to_device))
        return CUDA_ERROR_INVALID_VALUE;
    driver_wait_for_streams();
    memcpy(target, origin, bytes);
    return driver_enter(true);
}

CUresult cuMemcpyHtoD(CUdeviceptr target, const void *origin, size_t bytes)
{
    return copy_now((void *)(uintptr_t)target, origin, bytes, target, true);
}

CUresult cuMemcpyDtoH(void *target, CUdeviceptr origin, size_t bytes)
{
    return copy_now(target, (const void *)(uintptr_t)origin, bytes, origin, false);
}

/* Tells what the pointers are from their values. */
CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr origin, size_t bytes)
{
    bool from_device = driver_is_device_memory(origin, bytes, false);

    return copy_now((void *)(uintptr_t)target, (const void *)(uintptr_t)origin, bytes,
                    from_device ? origin : target, !from_device);
}
