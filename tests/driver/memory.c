/*
 * The stand-in's memory: every allocation is a memfd, every mapping of one, and
 * every registration of host memory, is a range in one list. A memory lives as
 * long as its handle or a mapping does.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"
#include "ipc.h"
#include "proto/list.h"

enum range_kind { RANGE_RESERVED, RANGE_MAPPED, RANGE_ALLOCATED, RANGE_IPC, RANGE_REGISTERED };

struct memory {
    unsigned references;
    int fd;
    size_t bytes;
    bool exportable, charged;
};

struct range {
    struct list link;
    enum range_kind kind;
    uintptr_t address;
    size_t bytes;
    bool readable, writable;
    struct memory *memory;
};

static struct list ranges = {&ranges, &ranges};
static size_t used;

/* Everything static here is called with the lock held. */

static void memory_unref(struct memory *memory)
{
    if (--memory->references)
        return;
    if (memory->charged)
        used -= memory->bytes;
    close(memory->fd);
    free(memory);
}

static struct memory *memory_adopt(int fd, size_t bytes)
{
    struct memory *memory = fd < 0 ? NULL : calloc(1, sizeof *memory);

    if (!memory) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    memory->references = 1;
    memory->fd = fd;
    memory->bytes = bytes;
    return memory;
}

static struct memory *memory_new(size_t bytes)
{
    int fd;
    struct memory *memory;

    if (bytes > driver_settings.memory - used)
        return NULL;
    fd = memfd_create("pinserve-driver", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
        close(fd);
        return NULL;
    }
    memory = memory_adopt(fd, bytes);
    if (memory) {
        memory->charged = true;
        used += bytes;
    }
    return memory;
}

static struct range *range_new(enum range_kind kind, uintptr_t address, size_t bytes)
{
    struct range *range = calloc(1, sizeof *range);

    if (!range)
        return NULL;
    range->kind = kind;
    range->address = address;
    range->bytes = bytes;
    list_append(&ranges, &range->link);
    return range;
}

static void range_free(struct range *range)
{
    list_remove(&range->link);
    if (range->memory)
        memory_unref(range->memory);
    free(range);
}

/* The range of this kind that holds address. */
static struct range *range_find(enum range_kind kind, uintptr_t address)
{
    list_for_each(item, &ranges)
    {
        struct range *range = list_entry(item, struct range, link);

        if (range->kind == kind && address >= range->address &&
            address < range->address + range->bytes)
            return range;
    }
    return NULL;
}

/* Maps memory as a range that owns it: a whole allocation with full access. */
static CUresult range_map(enum range_kind kind, struct memory *memory, CUdeviceptr *pointer_p)
{
    void *address = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    struct range *range;

    if (address == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range = range_new(kind, (uintptr_t)address, memory->bytes);
    if (!range) {
        munmap(address, memory->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->readable = range->writable = true;
    range->memory = memory;
    *pointer_p = range->address;
    return CUDA_SUCCESS;
}

static CUresult range_unmap(enum range_kind kind, CUdeviceptr pointer)
{
    struct range *range = range_find(kind, pointer);

    if (!range || range->address != pointer)
        return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)range->address, range->bytes);
    range_free(range);
    return CUDA_SUCCESS;
}

static CUresult lock_enter(void)
{
    CUresult result = driver_enter(true);

    if (result == CUDA_SUCCESS)
        pthread_mutex_lock(&driver_lock);
    return result;
}

static CUresult leave(CUresult result)
{
    pthread_mutex_unlock(&driver_lock);
    return result;
}

bool driver_is_device_memory(CUdeviceptr address, size_t bytes, bool to_write)
{
    bool found = false;

    pthread_mutex_lock(&driver_lock);
    for (int kind = RANGE_MAPPED; kind <= RANGE_IPC; kind++) {
        const struct range *range = range_find((enum range_kind)kind, address);

        if (range)
            found = bytes <= range->address + range->bytes - address &&
                    (to_write ? range->writable : range->readable);
    }
    pthread_mutex_unlock(&driver_lock);
    return found;
}

enum host_memory driver_host_memory(const void *address, size_t bytes)
{
    enum host_memory result = HOST_MEMORY_PAGEABLE;
    uintptr_t first = (uintptr_t)address, end = first + bytes;

    pthread_mutex_lock(&driver_lock);
    list_for_each(item, &ranges)
    {
        const struct range *range = list_entry(item, struct range, link);
        uintptr_t range_end = range->address + range->bytes;

        if (range->kind == RANGE_REGISTERED && first < range_end && end > range->address)
            result = first >= range->address && end <= range_end ? HOST_MEMORY_LOCKED
                                                                 : HOST_MEMORY_SPLIT;
    }
    pthread_mutex_unlock(&driver_lock);
    return result;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    CUresult result = lock_enter();

    if (result != CUDA_SUCCESS)
        return result;
    *total = driver_settings.memory;
    *free_bytes = driver_settings.memory - used;
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

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    (void)properties, (void)option;
    *granularity = DRIVER_GRANULARITY;
    return driver_enter(false);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    struct memory *memory;
    CUresult result = driver_enter(false);

    if (result != CUDA_SUCCESS)
        return result;
    if (flags || !bytes || bytes % DRIVER_GRANULARITY ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (driver_settings.no_fd)
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&driver_lock);
    memory = memory_new(bytes);
    if (memory)
        memory->exportable =
            properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)memory;
    return leave(memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = driver_enter(false);

    if (result != CUDA_SUCCESS || !handle)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver_lock);
    memory_unref((struct memory *)(uintptr_t)handle);
    return leave(CUDA_SUCCESS);
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    const struct memory *memory = (const struct memory *)(uintptr_t)handle;
    CUresult result = driver_enter(false);
    int fd;

    if (result != CUDA_SUCCESS)
        return result;
    if (flags || !memory->exportable || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return CUDA_ERROR_UNKNOWN;
    *(int *)shareable = fd;
    return CUDA_SUCCESS;
}

/* The caller keeps its fd. */
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    struct memory *memory;
    struct stat status;
    CUresult result = driver_enter(false);

    if (result != CUDA_SUCCESS)
        return result;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        fstat((int)(intptr_t)shareable, &status) || status.st_size % (off_t)DRIVER_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver_lock);
    memory =
        memory_adopt(fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 3), (size_t)status.st_size);
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)memory;
    return leave(memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                             CUdeviceptr address, unsigned long long flags)
{
    CUresult result = driver_enter(false);
    void *reserved;

    (void)alignment, (void)address;
    if (result != CUDA_SUCCESS)
        return result;
    if (flags || !bytes || bytes % DRIVER_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    reserved = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&driver_lock);
    if (!range_new(RANGE_RESERVED, (uintptr_t)reserved, bytes)) {
        munmap(reserved, bytes);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    *pointer = (CUdeviceptr)(uintptr_t)reserved;
    return leave(CUDA_SUCCESS);
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    const struct range *range;
    CUresult result = driver_enter(false);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    range = range_find(RANGE_RESERVED, pointer);
    if (!range || range->bytes != bytes || range_find(RANGE_MAPPED, pointer))
        return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(range_unmap(RANGE_RESERVED, pointer));
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct memory *memory = (struct memory *)(uintptr_t)handle;
    const struct range *reserved;
    struct range *range;
    CUresult result = driver_enter(false);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    reserved = range_find(RANGE_RESERVED, pointer);
    if (flags || offset || !memory || bytes > memory->bytes || !reserved ||
        bytes > reserved->address + reserved->bytes - pointer || range_find(RANGE_MAPPED, pointer))
        return leave(CUDA_ERROR_INVALID_VALUE);
    range = range_new(RANGE_MAPPED, pointer, bytes);
    if (!range)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    if (mmap((void *)(uintptr_t)pointer, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->fd, 0) ==
        MAP_FAILED) {
        range_free(range);
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    range->memory = memory;
    memory->references++;
    return leave(CUDA_SUCCESS);
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    struct range *range;
    CUresult result = driver_enter(false);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    range = range_find(RANGE_MAPPED, pointer);
    if (!range || range->address != pointer || range->bytes != bytes)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (mmap((void *)(uintptr_t)pointer, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return leave(CUDA_ERROR_UNKNOWN);
    range_free(range);
    return leave(CUDA_SUCCESS);
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access,
                        size_t count)
{
    struct range *range;
    CUresult result = driver_enter(false);
    int protection;

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    range = range_find(RANGE_MAPPED, pointer);
    if (!range || range->address != pointer || range->bytes != bytes || count != 1)
        return leave(CUDA_ERROR_INVALID_VALUE);
    range->writable = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    range->readable = range->writable || access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ;
    protection = (range->readable ? PROT_READ : 0) | (range->writable ? PROT_WRITE : 0);
    if (mprotect((void *)(uintptr_t)pointer, bytes, protection))
        return leave(CUDA_ERROR_UNKNOWN);
    return leave(CUDA_SUCCESS);
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

CUresult cuMemHostRegister(void *address, size_t bytes, unsigned int flags)
{
    bool read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY;
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    if (driver_settings.no_register || (read_only && driver_settings.no_read_only))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!bytes || !is_mapped((uintptr_t)address, (uintptr_t)address + bytes, !read_only))
        return CUDA_ERROR_INVALID_VALUE;
    if (driver_host_memory(address, bytes) != HOST_MEMORY_PAGEABLE)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
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
