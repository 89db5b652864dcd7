/*
 * GPUs through the CUDA driver. A device holds a reference to the primary
 * context, which is the one that the CUDA runtime uses, and makes it current
 * for the time of a call only: the caller's context stays as it was.
 */
#include "device_cuda.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/cleanup.h"

struct device_event {
    struct device_event *next; /* of the free ones */
    CUevent event;
};

static const char follow_failed[] = "cannot follow the stream";

static void uuid_format(const CUuuid *uuid, char text[UUID_TEXT_BYTES])
{
    size_t used = (size_t)snprintf(text, UUID_TEXT_BYTES, "GPU-");

    for (int i = 0; i < 16; i++)
        used += (size_t)snprintf(text + used, UUID_TEXT_BYTES - used, "%s%02x",
                                 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                                 (unsigned char)uuid->bytes[i]);
}

/* The UUIDs that this process sees, in its order; -ENODEV: there are none, and why. */
struct visible {
    int n;
    char (*uuids)[UUID_TEXT_BYTES];
};

static void visible_deinit(struct visible *visible)
{
    free(visible->uuids);
}

static int visible_list(struct visible *visible, struct failure *failure)
{
    const struct driver *driver;
    int r = driver_load(&driver, failure);
    int n = 0;

    if (r < 0)
        return r;
    CUresult result = driver->cuDeviceGetCount(&n);
    if (result != CUDA_SUCCESS)
        return driver_failed(driver, result, "cannot count GPUs", failure);
    if (n == 0)
        return failure_set(failure, -ENODEV, "this process sees no GPU");
    visible->uuids = calloc((size_t)n, sizeof *visible->uuids);
    if (!visible->uuids)
        return failure_set(failure, -ENOMEM, "no memory for %d GPUs", n);
    for (visible->n = 0; visible->n < n; visible->n++) {
        CUdevice device;
        CUuuid uuid;
        result = driver->cuDeviceGet(&device, visible->n);
        if (result == CUDA_SUCCESS)
            result = driver->cuDeviceGetUuid(&uuid, device);
        if (result != CUDA_SUCCESS)
            return driver_failed(driver, result, "cannot identify a GPU", failure);
        uuid_format(&uuid, visible->uuids[visible->n]);
    }
    return 0;
}

/* Whether a UUID begins so. The part of a GPU is known as MIG-, and its UUID here as any other. */
static bool uuid_begins(const char *uuid, const char *prefix)
{
    if (strncmp(prefix, "MIG-", 4) == 0) {
        uuid += 4;
        prefix += 4;
    }
    return strncasecmp(uuid, prefix, strlen(prefix)) == 0;
}

/* "cuda:0 GPU-..., cuda:1 GPU-...": of all, or of those that begin with prefix. */
static const char *visible_text(const struct visible *visible, const char *prefix, char *text,
                                size_t size)
{
    size_t used = 0;

    *text = '\0';
    for (int i = 0; i < visible->n && used < size; i++) {
        if (uuid_begins(visible->uuids[i], prefix))
            used += (size_t)snprintf(text + used, size - used, "%scuda:%d %s", used ? ", " : "", i,
                                     visible->uuids[i]);
    }
    return text;
}

static int resolve_number(const char *wanted, const struct visible *visible,
                          char name[DEVICE_NAME_MAX], struct failure *failure)
{
    char list[FAILURE_TEXT_MAX];
    char *end;
    long number = strtol(wanted + 5, &end, 10);

    if (*end || number < 0 || number >= visible->n)
        return failure_set(failure, -ENODEV, "device %s: this process sees %s", wanted,
                           visible_text(visible, "", list, sizeof list));
    snprintf(name, DEVICE_NAME_MAX, "%s", visible->uuids[number]);
    return 0;
}

static int resolve_prefix(const char *wanted, const struct visible *visible,
                          char name[DEVICE_NAME_MAX], struct failure *failure)
{
    char list[FAILURE_TEXT_MAX];
    int found = -1;

    for (int i = 0; i < visible->n; i++) {
        if (!uuid_begins(visible->uuids[i], wanted))
            continue;
        if (found >= 0)
            return failure_set(failure, -EINVAL, "device %s is the beginning of several: %s",
                               wanted, visible_text(visible, wanted, list, sizeof list));
        found = i;
    }
    snprintf(name, DEVICE_NAME_MAX, "%s", found >= 0 ? visible->uuids[found] : wanted);
    return 0;
}

int device_resolve(const char *wanted, char name[DEVICE_NAME_MAX], struct failure *failure)
{
    cleanup(visible_deinit) struct visible visible = {0};
    struct failure why;

    if (strcmp(wanted, "host") == 0) {
        snprintf(name, DEVICE_NAME_MAX, "host");
        return 0;
    }
    int r = visible_list(&visible, &why);
    if (strcmp(wanted, "auto") == 0 && (r == 0 || r == -ENODEV)) {
        snprintf(name, DEVICE_NAME_MAX, "%s", r == 0 ? visible.uuids[0] : "host");
        return 0;
    }
    if (strncmp(wanted, "cuda:", 5) == 0 || strcmp(wanted, "auto") == 0) {
        if (r < 0)
            return failure_set(failure, r, "device %s: %s; there is host", wanted, why.text);
        return resolve_number(wanted, &visible, name, failure);
    }
    return resolve_prefix(wanted, &visible, name, failure);
}

int device_enter(struct device *device, const char *what, struct failure *failure)
{
    CUresult result = device->driver->cuCtxPushCurrent(device->context);

    return result == CUDA_SUCCESS ? 0 : driver_failed(device->driver, result, what, failure);
}

void device_leave(struct device *device)
{
    CUcontext context;

    device->driver->cuCtxPopCurrent(&context);
}

void device_relax_capture(struct device *device, CUstreamCaptureMode *mode)
{
    if (device->driver->exchange_capture_mode)
        device->driver->exchange_capture_mode(mode);
}

static int device_start(struct device *device, struct failure *failure)
{
    const struct driver *driver = device->driver;
    int can_fd = 0;

    CUresult result = driver->cuDevicePrimaryCtxRetain(&device->context, device->number);
    if (result != CUDA_SUCCESS) {
        device->context = NULL;
        return driver_failed(driver, result, "no context on the GPU", failure);
    }
    int r = device_enter(device, "no context on the GPU", failure);
    if (r < 0)
        return r;
    result = driver->cuStreamCreate(&device->stream, CU_STREAM_NON_BLOCKING);
    device_leave(device);
    if (result != CUDA_SUCCESS) {
        device->stream = NULL;
        return driver_failed(driver, result, "no stream on the GPU", failure);
    }
    driver->cuDeviceGetAttribute(
        &can_fd, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device->number);
    device->can_fd = can_fd != 0;
    return 0;
}

static void device_close_p(struct device **device)
{
    device_close(*device);
}

int device_open(const char *uuid, struct device **device_p, struct failure *failure)
{
    cleanup(visible_deinit) struct visible visible = {0};
    cleanup(device_close_p) struct device *device = NULL;
    char list[FAILURE_TEXT_MAX];
    struct failure why;
    int r = visible_list(&visible, &why);
    int i = 0;

    if (r < 0)
        return failure_set(failure, r, "device %s: %s", uuid, why.text);
    while (i < visible.n && strcasecmp(visible.uuids[i], uuid) != 0)
        i++;
    if (i == visible.n)
        return failure_set(failure, -ENODEV, "device %s: this process sees %s", uuid,
                           visible_text(&visible, "", list, sizeof list));
    device = calloc(1, sizeof *device);
    if (!device)
        return failure_set(failure, -ENOMEM, "device %s: no memory", uuid);
    r = driver_load(&device->driver, failure);
    if (r < 0)
        return r;
    CUresult result = device->driver->cuDeviceGet(&device->number, i);
    if (result != CUDA_SUCCESS)
        r = driver_failed(device->driver, result, "no such GPU", &why);
    else
        r = device_start(device, &why);
    if (r < 0)
        return failure_set(failure, r, "device %s: %s", uuid, why.text);
    memcpy(device->uuid, visible.uuids[i], sizeof device->uuid);
    *device_p = steal_ptr(device);
    return 0;
}

void device_close(struct device *device)
{
    if (!device)
        return;
    const struct driver *driver = device->driver;
    if (device->context && device_enter(device, "", NULL) == 0) {
        while (device->free_events) {
            struct device_event *event = device->free_events;
            device->free_events = event->next;
            driver->cuEventDestroy(event->event);
            free(event);
        }
        device_forget_kernels(device);
        if (device->stream)
            driver->cuStreamDestroy(device->stream);
        device_leave(device);
    }
    if (device->context)
        driver->cuDevicePrimaryCtxRelease(device->number);
    free(device);
}

int device_number(const struct device *device)
{
    return device->number;
}

bool device_can_fd(const struct device *device)
{
    return device->can_fd;
}

/* Reserves addresses and maps memory there; the mapping keeps the memory, handle is the caller's.
 */
static CUresult ring_map(const struct device *device, CUmemGenericAllocationHandle handle,
                         size_t bytes, CUdeviceptr *address_p)
{
    const struct driver *driver = device->driver;
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->number},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READ,
    };
    CUdeviceptr address;

    CUresult result = driver->cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemMap(address, bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS)
        goto err_free;
    result = driver->cuMemSetAccess(address, bytes, &access, 1);
    if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE) {
        /* Some drivers know no read-only mappings. */
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        result = driver->cuMemSetAccess(address, bytes, &access, 1);
    }
    if (result != CUDA_SUCCESS)
        goto err_unmap;
    *address_p = address;
    return CUDA_SUCCESS;

err_unmap:
    driver->cuMemUnmap(address, bytes);
err_free:
    driver->cuMemAddressFree(address, bytes);
    return result;
}

static CUresult ring_open_fd(const struct device *device, int fd, size_t bytes,
                             CUdeviceptr *address_p)
{
    const struct driver *driver = device->driver;
    CUmemGenericAllocationHandle handle;

    CUresult result = driver->cuMemImportFromShareableHandle(
        &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return result;
    result = ring_map(device, handle, bytes, address_p);
    driver->cuMemRelease(handle);
    return result;
}

static CUresult ring_open_ipc(const struct device *device, const uint8_t *ipc_handle,
                              CUdeviceptr *address_p)
{
    CUipcMemHandle handle;

    _Static_assert(sizeof handle == DEVICE_IPC_HANDLE_BYTES, "an IPC handle is copied whole");
    memcpy(&handle, ipc_handle, sizeof handle);
    return device->driver->cuIpcOpenMemHandle(address_p, handle,
                                              CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

int device_ring_open(struct device *device, int fd, const uint8_t *ipc_handle, size_t bytes,
                     struct device_ring *ring_p, struct failure *failure)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    char what[UUID_TEXT_BYTES + 64];
    CUdeviceptr address = 0;
    CUresult result;

    snprintf(what, sizeof what, "cannot map the ring on %s from its %s", device->uuid,
             fd >= 0 ? "file descriptor" : "IPC handle");
    int r = device_enter(device, what, failure);
    if (r < 0)
        return r;
    device_relax_capture(device, &mode);
    if (fd >= 0)
        result = ring_open_fd(device, fd, bytes, &address);
    else
        result = ring_open_ipc(device, ipc_handle, &address);
    device_relax_capture(device, &mode);
    device_leave(device);
    if (result != CUDA_SUCCESS)
        return driver_failed(device->driver, result, what, failure);
    *ring_p = (struct device_ring){
        .address = (void *)(uintptr_t)address, .bytes = bytes, .from_fd = fd >= 0};
    return 0;
}

void device_ring_close(struct device *device, struct device_ring *ring)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)ring->address;

    if (!ring->address || device_enter(device, "", NULL) < 0)
        return;
    device_relax_capture(device, &mode);
    if (ring->from_fd) {
        device->driver->cuMemUnmap(address, ring->bytes);
        device->driver->cuMemAddressFree(address, ring->bytes);
    } else {
        device->driver->cuIpcCloseMemHandle(address);
    }
    device_relax_capture(device, &mode);
    device_leave(device);
    ring->address = NULL;
}

bool device_register(struct device *device, const void *address, size_t bytes)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (device_enter(device, "", NULL) < 0)
        return false;
    device_relax_capture(device, &mode);
    CUresult result = device->driver->cuMemHostRegister(
        (void *)address, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY);
    device_relax_capture(device, &mode);
    device_leave(device);
    return result == CUDA_SUCCESS;
}

void device_unregister(struct device *device, const void *address)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (device_enter(device, "", NULL) < 0)
        return;
    device_relax_capture(device, &mode);
    device->driver->cuMemHostUnregister((void *)address);
    device_relax_capture(device, &mode);
    device_leave(device);
}

/* One from the pool, or a new one. */
static CUresult event_take(struct device *device, struct device_event **event_p)
{
    struct device_event *event = device->free_events;

    if (event) {
        device->free_events = event->next;
        *event_p = event;
        return CUDA_SUCCESS;
    }
    event = calloc(1, sizeof *event);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = device->driver->cuEventCreate(&event->event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        free(event);
        return result;
    }
    *event_p = event;
    return CUDA_SUCCESS;
}

void device_event_free(struct device *device, struct device_event *event)
{
    event->next = device->free_events;
    device->free_events = event;
}

/* 0, -EBUSY, -EIO. With the context current. */
static int stream_check(const struct device *device, void *stream, struct failure *failure)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = device->driver->cuStreamIsCapturing(stream, &capturing);

    /* Implicit: the default stream, while a stream that synchronises with it is captured. */
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
        (result == CUDA_SUCCESS && capturing != CU_STREAM_CAPTURE_STATUS_NONE))
        return failure_set(failure, -EBUSY,
                           "the stream is being captured: a batch cannot be released, nor named as "
                           "used, inside a graph");
    return result == CUDA_SUCCESS ? 0
                                  : driver_failed(device->driver, result, follow_failed, failure);
}

int device_stream_check(struct device *device, void *stream, struct failure *failure)
{
    int r = device_enter(device, follow_failed, failure);

    if (r < 0)
        return r;
    r = stream_check(device, stream, failure);
    device_leave(device);
    return r;
}

int device_event_record(struct device *device, void *stream, struct device_event **event_p,
                        struct failure *failure)
{
    const struct driver *driver = device->driver;
    struct device_event *event;

    int r = device_enter(device, follow_failed, failure);
    if (r < 0)
        return r;
    r = stream_check(device, stream, failure);
    if (r < 0) {
        device_leave(device);
        return r;
    }
    CUresult result = event_take(device, &event);
    if (result == CUDA_SUCCESS) {
        result = driver->cuEventRecord(event->event, stream);
        if (result != CUDA_SUCCESS)
            device_event_free(device, event);
    }
    device_leave(device);
    if (result != CUDA_SUCCESS)
        return driver_failed(driver, result, follow_failed, failure);
    *event_p = event;
    return 0;
}

int device_call_behind(struct device *device, struct device_event *const *events, size_t n,
                       void (*function)(void *), void *argument, struct failure *failure)
{
    static const char what[] = "cannot wait for the stream";
    const struct driver *driver = device->driver;
    CUresult result = CUDA_SUCCESS;

    int r = device_enter(device, what, failure);
    if (r < 0)
        return r;
    for (size_t i = 0; result == CUDA_SUCCESS && i < n; i++)
        result = driver->cuStreamWaitEvent(device->stream, events[i]->event, 0);
    if (result == CUDA_SUCCESS)
        result = driver->cuLaunchHostFunc(device->stream, function, argument);
    device_leave(device);
    return result == CUDA_SUCCESS ? 0 : driver_failed(driver, result, what, failure);
}

void device_drain(struct device *device)
{
    if (device_enter(device, "", NULL) < 0)
        return;
    device->driver->cuCtxSynchronize();
    device_leave(device);
}
