/*
 * No GPU: for builds without CUDA's headers. Nothing can be opened, so what
 * takes a device is never called.
 */
#include "device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int device_resolve(const char *wanted, char name[DEVICE_NAME_MAX], struct failure *failure)
{
    if (strncmp(wanted, "cuda:", 5) == 0)
        return failure_set(failure, -ENODEV,
                           "device %s: this libpinclient was built without CUDA; there is host",
                           wanted);
    snprintf(name, DEVICE_NAME_MAX, "%s", strcmp(wanted, "auto") == 0 ? "host" : wanted);
    return 0;
}

int device_open(const char *uuid, struct device **device_p, struct failure *failure)
{
    (void)device_p;
    return failure_set(failure, -ENODEV, "device %s: this libpinclient was built without CUDA",
                       uuid);
}

void device_close(struct device *device)
{
    (void)device;
}

int device_number(const struct device *device)
{
    (void)device;
    return 0;
}

bool device_can_fd(const struct device *device)
{
    (void)device;
    return false;
}

int device_ring_open(struct device *device, int fd, const uint8_t *ipc_handle, size_t bytes,
                     struct device_ring *ring_p, struct failure *failure)
{
    (void)device, (void)fd, (void)ipc_handle, (void)bytes, (void)ring_p;
    return failure_set(failure, -ENODEV, "this libpinclient was built without CUDA");
}

void device_ring_close(struct device *device, struct device_ring *ring)
{
    (void)device, (void)ring;
}

bool device_register(struct device *device, const void *address, size_t bytes)
{
    (void)device, (void)address, (void)bytes;
    return false;
}

void device_unregister(struct device *device, const void *address)
{
    (void)device, (void)address;
}

int device_stream_check(struct device *device, void *stream, struct failure *failure)
{
    (void)device, (void)stream;
    return failure_set(failure, -EIO, "this libpinclient was built without CUDA");
}

int device_event_record(struct device *device, void *stream, struct device_event **event_p,
                        struct failure *failure)
{
    (void)device, (void)stream, (void)event_p;
    return failure_set(failure, -EIO, "this libpinclient was built without CUDA");
}

void device_event_free(struct device *device, struct device_event *event)
{
    (void)device, (void)event;
}

int device_call_behind(struct device *device, struct device_event *const *events, size_t n,
                       void (*function)(void *), void *argument, struct failure *failure)
{
    (void)device, (void)events, (void)n, (void)function, (void)argument;
    return failure_set(failure, -EIO, "this libpinclient was built without CUDA");
}

int device_transform(struct device *device, const struct transform_work *work, void *stream,
                     struct failure *failure)
{
    (void)device, (void)work, (void)stream;
    return failure_set(failure, -EOPNOTSUPP, "this libpinclient was built without CUDA");
}

void device_drain(struct device *device)
{
    (void)device;
}

const char *device_uuid(const struct device *device)
{
    (void)device;
    return "";
}

void device_pci(const struct device *device, char pci[DEVICE_PCI_MAX])
{
    (void)device;
    pci[0] = '\0';
}

bool device_can_map(const struct device *device)
{
    (void)device;
    return false;
}

bool device_is_coherent(const struct device *device)
{
    (void)device;
    return false;
}

const void *device_host_address(struct device *device, const void *address, bool registered)
{
    (void)device, (void)address, (void)registered;
    return NULL;
}

int device_copies_new(struct device *device, size_t bytes, struct device_copies **copies_p,
                      struct failure *failure)
{
    (void)device, (void)bytes, (void)copies_p;
    return failure_set(failure, -ENODEV, "this libpinclient was built without CUDA");
}

void device_copies_free(struct device *device, struct device_copies *copies)
{
    (void)device, (void)copies;
}

const void *device_copies_address(const struct device_copies *copies)
{
    (void)copies;
    return NULL;
}

int device_copies_start(struct device *device, struct device_copies *copies, size_t offset,
                        const void *origin, size_t bytes, void (*done)(void *), void *argument,
                        struct failure *failure)
{
    (void)device, (void)copies, (void)offset, (void)origin, (void)bytes, (void)done, (void)argument;
    return failure_set(failure, -ENODEV, "this libpinclient was built without CUDA");
}

int device_copies_check(struct device *device, struct device_copies *copies,
                        struct failure *failure)
{
    (void)device, (void)copies;
    return failure_set(failure, -ENODEV, "this libpinclient was built without CUDA");
}
