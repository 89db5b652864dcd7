/*
 * Loading the CUDA driver. Nothing of it is linked: a machine without one runs
 * the same programs, and hears here what is missing.
 */
#include "cuda_driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"
#define OLDEST_VERSION 12000

struct call {
    const char *name;
    size_t offset;
};

#define CALL_ENTRY(name) {#name, offsetof(struct cuda_driver, name)},

static const struct call calls[] = {CUDA_DRIVER_CALLS(CALL_ENTRY)};

struct cuda_driver driver;

static int errno_of(CUresult result)
{
    switch ((int)result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return -ENOMEM;
    case CUDA_ERROR_INVALID_VALUE:
        return -EINVAL;
    case CUDA_ERROR_DEVICE_UNAVAILABLE: /* the mode of the GPU allows one process */
        return -EBUSY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
        return -ENODEV;
    case CUDA_ERROR_NOT_SUPPORTED:
        return -EOPNOTSUPP;
    case CUDA_ERROR_NOT_PERMITTED:
        return -EPERM;
    default:
        return -EIO;
    }
}

int cuda_failure(struct failure *failure, CUresult result, const char *format, ...)
{
    const char *name = NULL, *text = NULL;
    struct failure what;
    va_list args;

    va_start(args, format);
    failure_vset(&what, 0, format, args);
    va_end(args);
    if (driver.cuGetErrorName)
        driver.cuGetErrorName(result, &name);
    if (driver.cuGetErrorString)
        driver.cuGetErrorString(result, &text);
    what.text[sizeof what.text - 128] = '\0';
    return failure_set(failure, errno_of(result), "%s: %s (%s, %d)", what.text,
                       text ? text : "unknown error", name ? name : "no name", (int)result);
}

int cuda_driver_load(struct failure *failure)
{
    __typeof__(&cuGetProcAddress) get;
    void *library, *function;
    CUresult result;

    if (driver.cuInit)
        return 0;
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return failure_set(failure, -ELIBACC, "no CUDA driver: %s", dlerror());
    function = dlsym(library, "cuGetProcAddress_v2");
    if (!function)
        return failure_set(failure, -ELIBBAD, "%s is older than CUDA %d.%d", LIBRARY,
                           OLDEST_VERSION / 1000, OLDEST_VERSION % 1000 / 10);
    memcpy(&get, &function, sizeof get);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        result = get(calls[i].name, &function, OLDEST_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
        if (result != CUDA_SUCCESS || !function)
            return failure_set(failure, -ELIBBAD, "%s lacks %s", LIBRARY, calls[i].name);
        memcpy((char *)&driver + calls[i].offset, &function, sizeof function);
    }
    result = driver.cuInit(0);
    if (result != CUDA_SUCCESS)
        return cuda_failure(failure, result, "%s cannot be initialised", LIBRARY);
    return 0;
}
