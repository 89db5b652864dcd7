/*
 * One GPU: the primary context, and what lives in it.
 *
 * Copies go out on one stream, back to back. Behind each, an event lets a second
 * stream run a host function that reports the end: so the copy engine never waits
 * for a thread to wake.
 *
 * Gathers are in cuda_gather.c, the files that they read in cuda_files.c.
 *
 * Every ring and region counts the work that uses it, and waits for that before
 * it goes. The counters are all that the driver's threads share with ours.
 */
#include "cuda.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda_internal.h"
#include "log.h"
#include "proto/cleanup.h"
#include "range.h"

#define GATHER_CHECK_MS 200

/* What a host function knows; it frees it. */
struct copy_note {
    uint64_t range;
    struct cuda *cuda;
    struct cuda_region *region;
    struct cuda_ring *ring;
    uint64_t cookie;
};

struct cuda_region *cuda_region_find(struct cuda *cuda, uint32_t id)
{
    list_for_each(item, &cuda->regions)
    {
        struct cuda_region *region = list_entry(item, struct cuda_region, link);
        if (region->id == id)
            return region;
    }
    return NULL;
}

bool cuda_is_busy(struct cuda *cuda)
{
    return atomic_load(&cuda->busy) > 0 || cuda->is_lost;
}

int cuda_check(struct cuda *cuda, struct failure *failure)
{
    CUresult result = driver.cuStreamQuery(cuda->copies);

    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return 0;
    return cuda_failure(failure, result, "the context is lost");
}

/* Gathers that wait for their windows end by the command loop's own doing. */
static int gathers_wait(struct cuda *cuda, const atomic_uint *busy, struct failure *failure)
{
    struct pollfd poll_fd = {.fd = cuda_get_fd(cuda), .events = POLLIN};

    while (atomic_load(busy) && !list_empty(&cuda->gathers)) {
        if (poll(&poll_fd, 1, GATHER_CHECK_MS) == 0 && cuda_check(cuda, failure) < 0)
            return -EIO;
        cuda_dispatch(cuda);
    }
    return 0;
}

/* Waits until nothing uses what *busy counts. */
int cuda_wait_idle(struct cuda *cuda, atomic_uint *busy, struct failure *failure)
{
    CUresult result;
    int r = gathers_wait(cuda, busy, failure);

    if (r < 0 || !atomic_load(busy))
        return r;
    result = driver.cuStreamSynchronize(cuda->zeroing);
    if (result == CUDA_SUCCESS)
        result = driver.cuStreamSynchronize(cuda->reports);
    if (result != CUDA_SUCCESS)
        return cuda_failure(failure, result, "copies under way cannot be waited for");
    return 0;
}

/* -- the context ------------------------------------------------------------------------------ */

static int device_open(struct cuda *cuda, struct failure *failure)
{
    char found[DEVICE_UUID_MAX];
    CUuuid uuid;
    CUresult result;
    int r;

    /* The driver then initialises this device alone, and a MIG instance can be named at all. */
    if (setenv("CUDA_VISIBLE_DEVICES", cuda->uuid, 1))
        return failure_set(failure, -ENOMEM, "out of memory");
    r = cuda_driver_load(failure);
    if (r < 0)
        return r;
    result = driver.cuDeviceGet(&cuda->device, 0);
    if (result == CUDA_SUCCESS)
        result = driver.cuDeviceGetUuid(&uuid, cuda->device);
    if (result != CUDA_SUCCESS)
        return cuda_failure(failure, result, "the device cannot be found");
    cuda_uuid_format(&uuid, found, sizeof found);
    if (!strncmp(cuda->uuid, "GPU-", 4) && strcmp(found, cuda->uuid) != 0)
        return failure_set(failure, -ENODEV, "the driver shows %s instead", found);
    return 0;
}

static int streams_create(struct cuda *cuda, struct failure *failure)
{
    CUresult result = driver.cuStreamCreate(&cuda->copies, CU_STREAM_NON_BLOCKING);

    if (result == CUDA_SUCCESS)
        result = driver.cuStreamCreate(&cuda->reports, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = driver.cuStreamCreate(&cuda->zeroing, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = driver.cuEventCreate(&cuda->copied, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return cuda_failure(failure, result, "its streams cannot be made");
    return 0;
}

static int context_create(struct cuda *cuda, struct failure *failure)
{
    CUresult result;

    /* Refused where another part of the process made the context: its flags stay, no harm. */
    driver.cuDevicePrimaryCtxSetFlags(cuda->device, CU_CTX_SCHED_BLOCKING_SYNC);
    result = driver.cuDevicePrimaryCtxRetain(&cuda->context, cuda->device);
    if (result == CUDA_SUCCESS)
        result = driver.cuCtxSetCurrent(cuda->context);
    if (result != CUDA_SUCCESS)
        return cuda_failure(failure, result, "no context can be made");
    cuda->read_only_registers = cuda_can_register_read_only(cuda->device);
    cuda->files.registrar.context = cuda->context;
    return streams_create(cuda, failure);
}

int cuda_new(const char *uuid, uint64_t gather_max, const struct cuda_events *events,
             struct cuda **cuda_p, struct failure *failure)
{
    struct cuda *cuda = calloc(1, sizeof *cuda);
    int r;

    if (!cuda)
        return failure_set(failure, -ENOMEM, "out of memory");
    snprintf(cuda->uuid, sizeof cuda->uuid, "%s", uuid);
    cuda->events = events;
    list_init(&cuda->regions);
    list_init(&cuda->rings);
    list_init(&cuda->gathers);
    r = cuda_files_init(&cuda->files, gather_max, failure);
    if (r == 0)
        r = device_open(cuda, failure);
    if (r == 0)
        r = context_create(cuda, failure);
    if (r < 0) {
        cuda_free(cuda);
        return r;
    }
    *cuda_p = cuda;
    return 0;
}

bool cuda_free(struct cuda *cuda)
{
    /* Nobody hears of gathers that still wait for a window, which may take any time. */
    if (!list_empty(&cuda->gathers))
        return false;
    cuda_wait_idle(cuda, &cuda->busy, NULL);
    if (!cuda_files_deinit(&cuda->files))
        return false;
    list_for_each_safe(item, &cuda->rings)
        cuda_free_ring(cuda, list_entry(item, struct cuda_ring, link)->id, NULL);
    list_for_each_safe(item, &cuda->regions)
        cuda_remove_region(cuda, list_entry(item, struct cuda_region, link)->id, NULL);
    cuda_free_zeros(cuda);
    if (cuda->copied)
        driver.cuEventDestroy(cuda->copied);
    if (cuda->zeroing)
        driver.cuStreamDestroy(cuda->zeroing);
    if (cuda->reports)
        driver.cuStreamDestroy(cuda->reports);
    if (cuda->copies)
        driver.cuStreamDestroy(cuda->copies);
    if (cuda->context)
        driver.cuDevicePrimaryCtxRelease(cuda->device);
    free(cuda);
    return true;
}

/* -- regions ---------------------------------------------------------------------------------- */

/* The mapping is read-only, which a registration must be told; drivers that do not know the flag
 * may take it without. Unregistered memory is copied too, through the driver's own buffers. */
static void region_register(struct cuda *cuda, struct cuda_region *region)
{
    struct failure failure;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;

    if (cuda->read_only_registers)
        result =
            driver.cuMemHostRegister(region->address, region->bytes, CU_MEMHOSTREGISTER_READ_ONLY);
    if (result != CUDA_SUCCESS)
        result = driver.cuMemHostRegister(region->address, region->bytes, 0);
    region->registered = result == CUDA_SUCCESS;
    if (!region->registered) {
        cuda_failure(&failure, result,
                     "device %s: region %" PRIu32
                     " cannot be registered, its copies are slow: cuMemHostRegister",
                     cuda->uuid, region->id);
        log_warning("%s", failure.text);
    }
}

int cuda_add_region(struct cuda *cuda, uint32_t id, int fd_consume, size_t bytes,
                    struct failure *failure)
{
    cleanup_fd int fd = fd_consume;
    struct cuda_region *region;
    void *address;

    if (cuda_region_find(cuda, id))
        return failure_set(failure, -EEXIST, "region %" PRIu32 " is there already", id);
    region = calloc(1, sizeof *region);
    if (!region)
        return failure_set(failure, -ENOMEM, "region %" PRIu32 ": out of memory", id);
    region->id = id;
    region->bytes = bytes;
    list_append(&cuda->regions, &region->link);
    address = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        int code = -errno;
        failure_set(&region->failure, code, "region %" PRIu32 " cannot be mapped: %s", id,
                    strerror(-code));
        return failure_set(failure, code, "%s", region->failure.text);
    }
    region->address = address;
    region_register(cuda, region);
    return 0;
}

int cuda_remove_region(struct cuda *cuda, uint32_t id, struct failure *failure)
{
    struct cuda_region *region = cuda_region_find(cuda, id);
    CUresult result = CUDA_SUCCESS;
    int r;

    if (!region)
        return failure_set(failure, -ENOENT, "there is no region %" PRIu32, id);
    r = cuda_wait_idle(cuda, &region->busy, failure);
    if (r < 0)
        return r;
    if (region->registered)
        result = driver.cuMemHostUnregister(region->address);
    if (region->address)
        munmap(region->address, region->bytes);
    list_remove(&region->link);
    free(region);
    if (result != CUDA_SUCCESS)
        return cuda_failure(failure, result, "region %" PRIu32 ": cuMemHostUnregister", id);
    return 0;
}

/* -- copies ----------------------------------------------------------------------------------- */

static void CUDA_CB copy_on_done(void *user)
{
    struct copy_note *note = user;

    range_end(note->range);
    note->cuda->events->copied(note->cookie, NULL);
    atomic_fetch_sub(&note->region->busy, 1);
    atomic_fetch_sub(&note->ring->busy, 1);
    atomic_fetch_sub(&note->cuda->busy, 1);
    free(note);
}

/* On a stream of its own: the copies need not wait for a thread to wake. */
CUresult cuda_report(struct cuda *cuda, CUhostFn function, void *user)
{
    CUresult result = driver.cuEventRecord(cuda->copied, cuda->copies);

    if (result == CUDA_SUCCESS)
        result = driver.cuStreamWaitEvent(cuda->reports, cuda->copied, 0);
    if (result == CUDA_SUCCESS)
        result = driver.cuLaunchHostFunc(cuda->reports, function, user);
    return result;
}

static CUresult copy_queue(struct cuda *cuda, const struct copy_note *what, size_t offset,
                           size_t ring_offset, size_t bytes)
{
    struct copy_note *note = malloc(sizeof *note);
    CUresult result = CUDA_SUCCESS;

    if (!note)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *note = *what;
    note->range = range_begin(RANGE_COPY, bytes);
    atomic_fetch_add(&what->region->busy, 1);
    atomic_fetch_add(&what->ring->busy, 1);
    atomic_fetch_add(&cuda->busy, 1);
    if (!atomic_load(&what->ring->is_zeroed))
        result = driver.cuStreamWaitEvent(cuda->copies, what->ring->zeroed, 0);
    if (result == CUDA_SUCCESS)
        result = driver.cuMemcpyHtoDAsync(what->ring->address + ring_offset,
                                          (const char *)what->region->address + offset, bytes,
                                          cuda->copies);
    if (result == CUDA_SUCCESS)
        result = cuda_report(cuda, copy_on_done, note);
    if (result != CUDA_SUCCESS) {
        atomic_fetch_sub(&what->region->busy, 1);
        atomic_fetch_sub(&what->ring->busy, 1);
        atomic_fetch_sub(&cuda->busy, 1);
        range_end(note->range);
        free(note);
    }
    return result;
}

int cuda_copy_check(const struct cuda_region *region, uint64_t offset, const struct cuda_ring *ring,
                    uint64_t ring_offset, uint64_t bytes, struct failure *failure)
{
    if (!region->address)
        return failure_set(failure, region->failure.code, "%s", region->failure.text);
    if (bytes && offset <= region->bytes && bytes <= region->bytes - offset &&
        ring_offset <= ring->bytes && bytes <= ring->bytes - ring_offset)
        return 0;
    return failure_set(
        failure, -EINVAL,
        "a copy of %" PRIu64 " bytes from %" PRIu64 " of region %" PRIu32 " (%zu bytes) to %" PRIu64
        " of ring %" PRIu64 " (%zu bytes) is out of bounds",
        bytes, offset, region->id, region->bytes, ring_offset, ring->id, ring->bytes);
}

int cuda_copy(struct cuda *cuda, uint32_t region_id, size_t offset, uint64_t ring_id,
              size_t ring_offset, size_t bytes, uint64_t cookie, struct failure *failure)
{
    struct cuda_region *region = cuda_region_find(cuda, region_id);
    struct cuda_ring *ring = cuda_ring_find(cuda, ring_id);
    struct copy_note note = {.cuda = cuda, .region = region, .ring = ring, .cookie = cookie};
    CUresult result;

    if (!region || !ring)
        return failure_set(failure, -ENOENT,
                           "a copy from region %" PRIu32 " to ring %" PRIu64
                           ": there is no such %s",
                           region_id, ring_id, region ? "ring" : "region");
    int r = cuda_copy_check(region, offset, ring, ring_offset, bytes, failure);
    if (r < 0)
        return r;
    result = copy_queue(cuda, &note, offset, ring_offset, bytes);
    if (result != CUDA_SUCCESS)
        return cuda_failure(failure, result,
                            "a copy of %zu bytes from %zu of region %" PRIu32 " to %zu of ring "
                            "%" PRIu64,
                            bytes, offset, region_id, ring_offset, ring_id);
    return 0;
}
