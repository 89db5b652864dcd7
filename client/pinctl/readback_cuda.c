/*
 * Reads from a GPU through the driver that the library has loaded. A readback holds a reference to
 * the device's primary context, in which the library maps the rings, and makes it current for the
 * time of a copy.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/driver.h"
#include "readback.h"

#define UUID_TEXT_BYTES 41 /* "GPU-", 32 digits, 4 dashes and the NUL */

struct readback {
    const struct driver *driver;
    __typeof__(&cuMemcpy) copy; /* batches may also lie in host memory that the GPU uses */
    CUdevice device;
    CUcontext context;
};

static int load(struct readback *readback, struct failure *failure)
{
    int rc = driver_load(&readback->driver, failure);
    if (rc < 0)
        return rc;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *call = library ? dlsym(library, DRIVER_NAME(cuMemcpy)) : NULL;
    if (library)
        dlclose(library);
    if (!call)
        return failure_set(failure, -ENODEV, "the CUDA driver, libcuda.so.1, lacks %s",
                           DRIVER_NAME(cuMemcpy));
    memcpy(&readback->copy, &call, sizeof(call));
    return 0;
}

static void format_uuid(const CUuuid *uuid, char text[UUID_TEXT_BYTES])
{
    size_t n = (size_t)snprintf(text, UUID_TEXT_BYTES, "GPU-");

    for (size_t i = 0; i < sizeof(uuid->bytes); i++)
        n += (size_t)snprintf(text + n, UUID_TEXT_BYTES - n, "%s%02x",
                              i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                              (unsigned char)uuid->bytes[i]);
}

static int find_device(const struct driver *driver, const char *uuid, CUdevice *device_p,
                       struct failure *failure)
{
    int n = 0;
    CUresult result = driver->cuDeviceGetCount(&n);

    for (int i = 0; result == CUDA_SUCCESS && i < n; i++) {
        char text[UUID_TEXT_BYTES];
        CUdevice device = 0;
        CUuuid bytes = {{0}};
        result = driver->cuDeviceGet(&device, i);
        if (result == CUDA_SUCCESS)
            result = driver->cuDeviceGetUuid(&bytes, device);
        if (result != CUDA_SUCCESS)
            break;
        format_uuid(&bytes, text);
        if (strcasecmp(text, uuid) == 0) {
            *device_p = device;
            return 0;
        }
    }
    if (result != CUDA_SUCCESS)
        return driver_failed(driver, result, "cannot list GPUs", failure);
    return failure_set(failure, -ENODEV, "cannot read from GPU %s: this process does not see it",
                       uuid);
}

int readback_new(const char *uuid, struct readback **readback_p, struct failure *failure)
{
    struct readback *readback = calloc(1, sizeof(*readback));
    if (!readback)
        return failure_set(failure, -ENOMEM, "no memory to read from GPU %s", uuid);

    int rc = load(readback, failure);
    if (rc == 0)
        rc = find_device(readback->driver, uuid, &readback->device, failure);
    if (rc < 0)
        goto err_readback;
    CUresult result =
        readback->driver->cuDevicePrimaryCtxRetain(&readback->context, readback->device);
    if (result != CUDA_SUCCESS) {
        rc = driver_failed(readback->driver, result, "cannot use the GPU", failure);
        goto err_readback;
    }
    *readback_p = readback;
    return 0;

err_readback:
    free(readback);
    return rc;
}

void readback_free(struct readback *readback)
{
    if (!readback)
        return;
    readback->driver->cuDevicePrimaryCtxRelease(readback->device);
    free(readback);
}

int readback_copy(struct readback *readback, void *target, const void *address, size_t bytes,
                  struct failure *failure)
{
    CUcontext popped = NULL;
    CUresult result = readback->driver->cuCtxPushCurrent(readback->context);

    if (result == CUDA_SUCCESS) {
        result =
            readback->copy((CUdeviceptr)(uintptr_t)target, (CUdeviceptr)(uintptr_t)address, bytes);
        readback->driver->cuCtxPopCurrent(&popped);
    }
    if (result != CUDA_SUCCESS)
        return driver_failed(readback->driver, result, "cannot read a batch from the GPU", failure);
    return 0;
}
