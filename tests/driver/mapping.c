/*
 * The stand-in's memory that is made, mapped and exported in steps: handles,
 * reserved addresses, and access by mapping.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "range.h"

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
    if (driver_settings.no_import)
        return CUDA_ERROR_NOT_SUPPORTED;
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
