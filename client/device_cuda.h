/*
 * A GPU's insides, for the files that call the driver: device_cuda.c, which owns
 * it, and device_transform.c.
 */
#ifndef PINSERVE_CLIENT_DEVICE_CUDA_H
#define PINSERVE_CLIENT_DEVICE_CUDA_H

#include "device.h"
#include "driver.h"

#define UUID_TEXT_BYTES 41 /* "GPU-", 32 digits, 4 dashes and the NUL */

struct device {
    const struct driver *driver;
    CUdevice number;
    CUcontext context;
    CUstream stream; /* waits for the trainer's streams, so that these wait for nothing */
    bool can_fd;
    char uuid[UUID_TEXT_BYTES];
    struct device_event *free_events;
    struct kernels *kernels; /* of its context, once one was wanted; NULL */
};

/* Makes the context current; every 0 needs a device_leave. */
int device_enter(struct device *device, const char *what, struct failure *failure);
void device_leave(struct device *device);

/* Mapping and loading are allowed while some other thread captures a stream: they are no part of
 * any graph. Called in pairs. */
void device_relax_capture(struct device *device, CUstreamCaptureMode *mode);

/* Gives the kernels back. With the context current. */
void device_forget_kernels(struct device *device);

#endif
