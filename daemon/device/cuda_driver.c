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
#define BATCH_VERSION 12080
#define BATCH_V2_VERSION 13000

struct call {
    const char *name;
    size_t offset;
};

#define CALL_ENTRY(name) {#name, offsetof(struct cuda_driver, name)},

static const struct call calls[] = {CUDA_DRIVER_CALLS(CALL_ENTRY)};

struct cuda_driver driver;

/* The two forms that the call for many copies has had, by hand: headers know one of them each. */
typedef CUresult CUDAAPI copy_batch_v1(CUdeviceptr *targets, CUdeviceptr *origins, size_t *sizes,
                                       size_t n, CUmemcpyAttributes *attributes, size_t *indices,
                                       size_t n_attributes, size_t *failed, CUstream stream);
typedef CUresult CUDAAPI copy_batch_v2(CUdeviceptr *targets, CUdeviceptr *origins, size_t *sizes,
                                       size_t n, CUmemcpyAttributes *attributes, size_t *indices,
                                       size_t n_attributes, CUstream stream);
static copy_batch_v1 *batch_v1;
static copy_batch_v2 *batch_v2;

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

bool cuda_can_copy_batch(void)
{
    return batch_v1 || batch_v2;
}

CUresult cuda_copy_batch(CUdeviceptr *targets, CUdeviceptr *origins, size_t *sizes, size_t n,
                         CUmemcpyAttributes *attributes, CUstream stream)
{
    size_t first = 0, failed = 0;

    if (batch_v2)
        return batch_v2(targets, origins, sizes, n, attributes, &first, 1, stream);
    return batch_v1(targets, origins, sizes, n, attributes, &first, 1, &failed, stream);
}

/* What a newer driver has in addition. */
static void load_batch(__typeof__(&cuGetProcAddress) get)
{
    static const int versions[] = {BATCH_V2_VERSION, BATCH_VERSION};
    int version = 0;

    driver.cuDriverGetVersion(&version);
    for (int i = 0; i < 2; i++) {
        void *function = NULL;

        if (version < versions[i] || get("cuMemcpyBatchAsync", &function, versions[i],
                                         CU_GET_PROC_ADDRESS_DEFAULT, NULL) != CUDA_SUCCESS)
            continue;
        if (!function)
            continue;
        if (i == 0)
            memcpy(&batch_v2, &function, sizeof function);
        else
            memcpy(&batch_v1, &function, sizeof function);
        return;
    }
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
    load_batch(get);
    result = driver.cuInit(0);
    if (result != CUDA_SUCCESS)
        return cuda_failure(failure, result, "%s cannot be initialised", LIBRARY);
    return 0;
}
