/*
 * Host memory as a GPU reaches it: copied to memory of this process's own, on a
 * stream of its own, or used where it lies.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "device_cuda.h"
#include "proto/cleanup.h"

/* Copies go out on one stream, back to back. Behind each, an event lets a second stream call the
 * function that is told of the end: so the copy engine never waits for a thread to wake. */
struct device_copies {
    CUdeviceptr memory;
    CUstream copies, reports;
    CUevent copied;
};

static bool device_has(const struct device *device, CUdevice_attribute attribute)
{
    int value = 0;

    return device->driver->cuDeviceGetAttribute(&value, attribute, device->number) ==
               CUDA_SUCCESS &&
           value != 0;
}

bool device_is_coherent(const struct device *device)
{
    return device_has(device, CU_DEVICE_ATTRIBUTE_INTEGRATED) ||
           device_has(device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
}

/* Regions are mapped read-only, which a registration must be told; with the host's page tables none
 * is needed. */
bool device_can_map(const struct device *device)
{
    return (device_has(device, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) &&
            device_has(device, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)) ||
           device_has(device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
}

void device_pci(const struct device *device, char pci[DEVICE_PCI_MAX])
{
    if (device->driver->cuDeviceGetPCIBusId(pci, DEVICE_PCI_MAX, device->number) != CUDA_SUCCESS)
        pci[0] = '\0';
    for (char *letter = pci; *letter; letter++)
        *letter = (char)tolower((unsigned char)*letter);
}

const char *device_uuid(const struct device *device)
{
    return device->uuid;
}

const void *device_host_address(struct device *device, const void *address, bool registered)
{
    CUdeviceptr pointer = 0;

    if (!registered)
        return device_has(device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)
                   ? address
                   : NULL;
    if (device_enter(device, "", NULL) < 0)
        return NULL;
    CUresult result = device->driver->cuMemHostGetDevicePointer(&pointer, (void *)address, 0);
    device_leave(device);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a device address is a pointer for its user
    return result == CUDA_SUCCESS ? (const void *)(uintptr_t)pointer : NULL;
}

/* With the context current. */
static void copies_deinit(const struct driver *driver, struct device_copies *copies)
{
    if (copies->memory)
        driver->cuMemFree(copies->memory);
    if (copies->copied)
        driver->cuEventDestroy(copies->copied);
    if (copies->reports)
        driver->cuStreamDestroy(copies->reports);
    if (copies->copies)
        driver->cuStreamDestroy(copies->copies);
}

static CUresult copies_init(const struct driver *driver, struct device_copies *copies, size_t bytes)
{
    CUresult result = driver->cuStreamCreate(&copies->copies, CU_STREAM_NON_BLOCKING);

    if (result == CUDA_SUCCESS)
        result = driver->cuStreamCreate(&copies->reports, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = driver->cuEventCreate(&copies->copied, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemAlloc(&copies->memory, bytes);
    if (result != CUDA_SUCCESS)
        copies_deinit(driver, copies);
    return result;
}

int device_copies_new(struct device *device, size_t bytes, struct device_copies **copies_p,
                      struct failure *failure)
{
    const struct driver *driver = device->driver;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cleanup_free struct device_copies *copies = calloc(1, sizeof *copies);
    char what[UUID_TEXT_BYTES + 64];

    if (!copies)
        return failure_set(failure, -ENOMEM, "no memory to copy batches");
    snprintf(what, sizeof what, "no %zu bytes on %s to copy batches to", bytes, device->uuid);
    int r = device_enter(device, what, failure);
    if (r < 0)
        return r;
    device_relax_capture(device, &mode);
    CUresult result = copies_init(driver, copies, bytes);
    device_relax_capture(device, &mode);
    device_leave(device);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return failure_set(failure, -ENOMEM, "%s: out of memory", what);
    if (result != CUDA_SUCCESS)
        return driver_failed(driver, result, what, failure);
    *copies_p = steal_ptr(copies);
    return 0;
}

void device_copies_free(struct device *device, struct device_copies *copies)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (device_enter(device, "", NULL) == 0) {
        device_relax_capture(device, &mode);
        copies_deinit(device->driver, copies);
        device_relax_capture(device, &mode);
        device_leave(device);
    }
    free(copies);
}

const void *device_copies_address(const struct device_copies *copies)
{
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a device address is a pointer for its user
    return (const void *)(uintptr_t)copies->memory;
}

int device_copies_start(struct device *device, struct device_copies *copies, size_t offset,
                        const void *origin, size_t bytes, void (*done)(void *), void *argument,
                        struct failure *failure)
{
    static const char what[] = "cannot copy a batch to the GPU";
    const struct driver *driver = device->driver;

    int r = device_enter(device, what, failure);
    if (r < 0)
        return r;
    CUresult result =
        driver->cuMemcpyHtoDAsync(copies->memory + offset, origin, bytes, copies->copies);
    if (result == CUDA_SUCCESS) {
        result = driver->cuEventRecord(copies->copied, copies->copies);
        if (result == CUDA_SUCCESS)
            result = driver->cuStreamWaitEvent(copies->reports, copies->copied, 0);
        if (result == CUDA_SUCCESS)
            result = driver->cuLaunchHostFunc(copies->reports, done, argument);
        /* Nobody would be told of its end. */
        if (result != CUDA_SUCCESS)
            driver->cuCtxSynchronize();
    }
    device_leave(device);
    return result == CUDA_SUCCESS ? 0 : driver_failed(driver, result, what, failure);
}

int device_copies_check(struct device *device, struct device_copies *copies,
                        struct failure *failure)
{
    static const char what[] = "copies to the GPU do not end";
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    int r = device_enter(device, what, failure);
    if (r < 0)
        return r;
    device_relax_capture(device, &mode);
    CUresult result = device->driver->cuStreamQuery(copies->copies);
    device_relax_capture(device, &mode);
    device_leave(device);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return 0;
    return driver_failed(device->driver, result, what, failure);
}
