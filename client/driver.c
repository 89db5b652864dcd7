/*
 * Loads the CUDA driver. It stays loaded: it has threads of its own.
 */
#include "driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct driver loaded;
static struct failure load_failure;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;

static int driver_find(void *library, const char *name, void *call_p)
{
    void *call = dlsym(library, name);

    if (!call)
        return failure_set(&load_failure, -ENODEV,
                           "the CUDA driver, libcuda.so.1, is too old: it lacks %s", name);
    /* A pointer to a function through a pointer to an object: POSIX has it so. */
    memcpy(call_p, &call, sizeof call);
    return 0;
}

int driver_failed(const struct driver *driver, CUresult result, const char *what,
                  struct failure *failure)
{
    const char *name = NULL, *text = NULL;

    driver->cuGetErrorName(result, &name);
    driver->cuGetErrorString(result, &text);
    return failure_set(failure, -EIO, "%s: CUDA error %d (%s): %s", what, (int)result,
                       name ? name : "unknown", text ? text : "unknown");
}

static void driver_load_once(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (!library) {
        const char *error = dlerror();
        failure_set(&load_failure, -ENODEV, "the CUDA driver could not be loaded: %s",
                    error ? error : "libcuda.so.1");
        return;
    }
#define DRIVER_LOAD(name)                                                                          \
    if (driver_find(library, DRIVER_NAME(name), &loaded.name) < 0)                                 \
        return;
    DRIVER_CALLS(DRIVER_LOAD)
#undef DRIVER_LOAD
    void *call = dlsym(library, DRIVER_NAME(cuThreadExchangeStreamCaptureMode));
    memcpy(&loaded.exchange_capture_mode, &call, sizeof call);

    CUresult result = loaded.cuInit(0);
    if (result == CUDA_ERROR_NO_DEVICE) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        failure_set(&load_failure, -ENODEV, "this process sees no GPU%s%s%s",
                    visible ? " (CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "",
                    visible ? "\")" : "");
    } else if (result != CUDA_SUCCESS) {
        driver_failed(&loaded, result, "the CUDA driver could not be initialised", &load_failure);
        load_failure.code = -ENODEV;
    }
}

int driver_load(const struct driver **driver_p, struct failure *failure)
{
    pthread_once(&load_once, driver_load_once);
    if (load_failure.code < 0)
        return failure_set(failure, load_failure.code, "%s", load_failure.text);
    *driver_p = &loaded;
    return 0;
}
