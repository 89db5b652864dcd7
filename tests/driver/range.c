/*
 * The stand-in's record of memory: see range.h.
 */
#include "range.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct list ranges = {&ranges, &ranges};
size_t memory_used;

void memory_unref(struct memory *memory)
{
    if (--memory->references)
        return;
    if (memory->charged)
        memory_used -= memory->bytes;
    close(memory->fd);
    free(memory);
}

struct memory *memory_adopt(int fd, size_t bytes)
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

struct memory *memory_new(size_t bytes)
{
    int fd;
    struct memory *memory;

    if (bytes > driver_settings.memory - memory_used)
        return NULL;
    fd = memfd_create("pinserve-driver", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
        close(fd);
        return NULL;
    }
    memory = memory_adopt(fd, bytes);
    if (memory) {
        memory->charged = true;
        memory_used += bytes;
    }
    return memory;
}

struct range *range_new(enum range_kind kind, uintptr_t address, size_t bytes)
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

void range_free(struct range *range)
{
    list_remove(&range->link);
    if (range->memory)
        memory_unref(range->memory);
    free(range);
}

struct range *range_find(enum range_kind kind, uintptr_t address)
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

CUresult range_map(enum range_kind kind, struct memory *memory, CUdeviceptr *pointer_p)
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

CUresult range_unmap(enum range_kind kind, CUdeviceptr pointer)
{
    struct range *range = range_find(kind, pointer);

    if (!range || range->address != pointer)
        return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)range->address, range->bytes);
    range_free(range);
    return CUDA_SUCCESS;
}

CUresult lock_enter(void)
{
    CUresult result = driver_enter(true);

    if (result == CUDA_SUCCESS)
        pthread_mutex_lock(&driver_lock);
    return result;
}

CUresult leave(CUresult result)
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
    /* Registered host memory has a device address, which is its own. */
    const struct range *host = range_find(RANGE_REGISTERED, address);

    if (host && !to_write)
        found = found || bytes <= host->address + host->bytes - address;
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
