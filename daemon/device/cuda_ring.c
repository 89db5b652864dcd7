/*
 * Rings: device memory that another process maps.
 *
 * A new ring is zeroed before it is announced, so that no tenant reads what a
 * former one left in the memory. The zeros come by the copy engine from host
 * memory, on a stream of their own: a memset would be a kernel, which takes time
 * from the trainer's. Copies into the ring that are asked for before it is
 * announced wait for the zeros on the GPU.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda_internal.h"
#include "proto/cleanup.h"
#include "proto/limits.h"
#include "proto/units.h"

#define ZEROS_BYTES ((size_t)RING_ALIGN)

/* What the host function behind the zeros knows; it frees it. */
struct ring_note {
    struct cuda *cuda;
    struct cuda_ring *ring;
    int fd;
    uint8_t ipc_handle[DEVICE_IPC_HANDLE_BYTES];
};

struct cuda_ring *cuda_ring_find(struct cuda *cuda, uint64_t id)
{
    list_for_each(item, &cuda->rings)
    {
        struct cuda_ring *ring = list_entry(item, struct cuda_ring, link);
        if (ring->id == id)
            return ring;
    }
    return NULL;
}

static CUmemAllocationProp ring_properties(const struct cuda *cuda)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device},
    };
}

/* Reserves an address for the ring's memory and maps it there. */
static CUresult ring_map(struct cuda *cuda, struct cuda_ring *ring)
{
    CUmemAccessDesc access = {.location = ring_properties(cuda).location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = driver.cuMemAddressReserve(&ring->address, ring->bytes, 0, 0, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = driver.cuMemMap(ring->address, ring->bytes, 0, ring->handle, 0);
    if (result != CUDA_SUCCESS)
        goto err_reserve;
    result = driver.cuMemSetAccess(ring->address, ring->bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        goto err_map;
    return CUDA_SUCCESS;

err_map:
    driver.cuMemUnmap(ring->address, ring->bytes);
err_reserve:
    driver.cuMemAddressFree(ring->address, ring->bytes);
    ring->address = 0;
    return result;
}

static void ring_free_memory(struct cuda_ring *ring)
{
    if (ring->handle && ring->address) {
        driver.cuMemUnmap(ring->address, ring->bytes);
        driver.cuMemAddressFree(ring->address, ring->bytes);
    } else if (ring->address) {
        driver.cuMemFree(ring->address);
    }
    if (ring->handle)
        driver.cuMemRelease(ring->handle);
}

static CUresult ring_make_fd(struct cuda *cuda, struct cuda_ring *ring, int *fd_p)
{
    CUmemAllocationProp properties = ring_properties(cuda);
    size_t granularity = 0;
    CUresult result;

    if (!cuda_can_export_fd(cuda->device))
        return CUDA_ERROR_NOT_SUPPORTED;
    result = driver.cuMemGetAllocationGranularity(&granularity, &properties,
                                                  CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS)
        return result;
    ring->bytes = (ring->bytes + granularity - 1) / granularity * granularity;
    result = driver.cuMemCreate(&ring->handle, ring->bytes, &properties, 0);
    if (result != CUDA_SUCCESS) {
        ring->handle = 0;
        return result;
    }
    result = ring_map(cuda, ring);
    if (result != CUDA_SUCCESS)
        return result;
    return driver.cuMemExportToShareableHandle(fd_p, ring->handle,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUresult ring_make_ipc(struct cuda_ring *ring, uint8_t *ipc_handle)
{
    CUipcMemHandle handle;
    CUresult result = driver.cuMemAlloc(&ring->address, ring->bytes);

    if (result != CUDA_SUCCESS) {
        ring->address = 0;
        return result;
    }
    result = driver.cuIpcGetMemHandle(&handle, ring->address);
    if (result == CUDA_SUCCESS)
        memcpy(ipc_handle, &handle, DEVICE_IPC_HANDLE_BYTES);
    return result;
}

_Static_assert(sizeof(CUipcMemHandle) == DEVICE_IPC_HANDLE_BYTES, "the handle is handed on whole");

static void CUDA_CB ring_on_zeroed(void *user)
{
    struct ring_note *note = user;

    atomic_store(&note->ring->is_zeroed, true);
    note->cuda->events->ring_made(note->ring->id, note->fd, note->ipc_handle);
    close_fd(&note->fd);
    atomic_fetch_sub(&note->ring->busy, 1);
    atomic_fetch_sub(&note->cuda->busy, 1);
    free(note);
}

static CUresult zeros_make(struct cuda *cuda)
{
    CUresult result;
    void *zeros;

    if (cuda->zeros)
        return CUDA_SUCCESS;
    zeros = mmap(NULL, ZEROS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (zeros == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = driver.cuMemHostRegister(zeros, ZEROS_BYTES, 0);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED) {
        munmap(zeros, ZEROS_BYTES);
        return result;
    }
    cuda->zeros = zeros;
    return CUDA_SUCCESS;
}

void cuda_free_zeros(struct cuda *cuda)
{
    if (!cuda->zeros)
        return;
    driver.cuMemHostUnregister(cuda->zeros);
    munmap(cuda->zeros, ZEROS_BYTES);
    cuda->zeros = NULL;
}

/* Queues the zeros, and behind them the ring's announcement; the note is taken over. */
static CUresult ring_zero(struct cuda *cuda, struct cuda_ring *ring, struct ring_note *note)
{
    CUresult result = zeros_make(cuda);

    if (result == CUDA_SUCCESS)
        result = driver.cuEventCreate(&ring->zeroed, CU_EVENT_DISABLE_TIMING);
    for (size_t offset = 0; result == CUDA_SUCCESS && offset < ring->bytes;) {
        size_t bytes = ring->bytes - offset < ZEROS_BYTES ? ring->bytes - offset : ZEROS_BYTES;

        result =
            driver.cuMemcpyHtoDAsync(ring->address + offset, cuda->zeros, bytes, cuda->zeroing);
        offset += bytes;
    }
    if (result == CUDA_SUCCESS)
        result = driver.cuEventRecord(ring->zeroed, cuda->zeroing);
    if (result != CUDA_SUCCESS)
        return result;
    atomic_fetch_add(&ring->busy, 1);
    atomic_fetch_add(&cuda->busy, 1);
    result = driver.cuLaunchHostFunc(cuda->zeroing, ring_on_zeroed, note);
    if (result != CUDA_SUCCESS) {
        atomic_fetch_sub(&ring->busy, 1);
        atomic_fetch_sub(&cuda->busy, 1);
    }
    return result;
}

static int ring_failure(const struct cuda_ring *ring, enum ring_export export_as, CUresult result,
                        struct failure *failure)
{
    const char *as = export_as == RING_EXPORT_FD ? "a file descriptor" : "an IPC handle";
    char size[32], left[32];
    size_t free_bytes = 0, total = 0;

    units_format_bytes(ring->bytes, size, sizeof size);
    if (result == CUDA_ERROR_OUT_OF_MEMORY &&
        driver.cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS)
        return cuda_failure(failure, result, "a ring of %s does not fit, %s are free", size,
                            units_format_bytes(free_bytes, left, sizeof left));
    return cuda_failure(failure, result, "a ring of %s cannot be made and exported as %s", size,
                        as);
}

int cuda_make_ring(struct cuda *cuda, uint64_t id, enum ring_export export_as, size_t bytes,
                   struct failure *failure)
{
    cleanup_free struct ring_note *note = calloc(1, sizeof *note);
    cleanup_free struct cuda_ring *ring = calloc(1, sizeof *ring);
    CUresult result;

    if (!note || !ring)
        return failure_set(failure, -ENOMEM, "a ring: out of memory");
    if (cuda_ring_find(cuda, id) || !bytes || bytes % RING_ALIGN)
        return failure_set(failure, -EINVAL, "ring %" PRIu64 " of %zu bytes: %s", id, bytes,
                           cuda_ring_find(cuda, id) ? "it is there already"
                                                    : "not a multiple of 2 MiB");
    ring->id = id;
    ring->bytes = bytes;
    *note = (struct ring_note){.cuda = cuda, .ring = ring, .fd = -1};
    result = export_as == RING_EXPORT_FD ? ring_make_fd(cuda, ring, &note->fd)
                                         : ring_make_ipc(ring, note->ipc_handle);
    if (result == CUDA_SUCCESS)
        result = ring_zero(cuda, ring, note);
    if (result != CUDA_SUCCESS) {
        int r = ring_failure(ring, export_as, result, failure);

        driver.cuStreamSynchronize(cuda->zeroing);
        close_fd(&note->fd);
        ring_free_memory(ring);
        if (ring->zeroed)
            driver.cuEventDestroy(ring->zeroed);
        return r;
    }
    (void)steal_ptr(note);
    list_append(&cuda->rings, &ring->link);
    (void)steal_ptr(ring);
    return 0;
}

int cuda_free_ring(struct cuda *cuda, uint64_t id, struct failure *failure)
{
    struct cuda_ring *ring = cuda_ring_find(cuda, id);
    int r;

    if (!ring)
        return failure_set(failure, -ENOENT, "there is no ring %" PRIu64, id);
    r = cuda_wait_idle(cuda, &ring->busy, failure);
    if (r < 0)
        return r;
    ring_free_memory(ring);
    driver.cuEventDestroy(ring->zeroed);
    list_remove(&ring->link);
    free(ring);
    return 0;
}
