/*
 * The kernels of transform.cu on a GPU: loaded once a context, when first
 * wanted, and queued on the trainer's stream. Devices of one context share them.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_cuda.h"
#include "proto/list.h"
#include "transform.h"

#define OUT_TYPES 3

static const char what[] = "cannot transform on the GPU";

struct kernels {
    struct list link;
    CUcontext context;
    unsigned users; /* devices */
    CUmodule module;
    CUfunction functions[OUT_TYPES][TRANSFORM_KERNELS];
};

static pthread_mutex_t loaded_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list loaded = {&loaded, &loaded};

static CUresult functions_find(const struct driver *driver, struct kernels *kernels)
{
    static const char *const types[OUT_TYPES] = {"f32", "f16", "bf16"};
    static const char *const names[TRANSFORM_KERNELS] = {
        [TRANSFORM_NCHW_1] = "nchw_1", [TRANSFORM_NCHW_3] = "nchw_3", [TRANSFORM_NCHW_4] = "nchw_4",
        [TRANSFORM_NHWC_3] = "nhwc_3", [TRANSFORM_NHWC_4] = "nhwc_4", [TRANSFORM_ANY] = "any",
    };
    CUresult result = CUDA_SUCCESS;

    for (size_t i = 0; i < OUT_TYPES; i++) {
        for (size_t j = 0; j < TRANSFORM_KERNELS && result == CUDA_SUCCESS; j++) {
            char name[32];
            snprintf(name, sizeof name, "transform_%s_%s", types[i], names[j]);
            result = driver->cuModuleGetFunction(&kernels->functions[i][j], kernels->module, name);
        }
    }
    return result;
}

static CUfunction function_of(const struct kernels *kernels, enum pinclient_dtype dtype,
                              enum transform_kernel kernel)
{
    int type = dtype == PINCLIENT_F32 ? 0 : dtype == PINCLIENT_F16 ? 1 : 2;

    return kernels->functions[type][kernel];
}

static int load_failed(const struct device *device, CUresult result, struct failure *failure)
{
    const struct driver *driver = device->driver;
    const char *name = NULL;
    int major = 0, minor = 0;

    if (result != CUDA_ERROR_NO_BINARY_FOR_GPU && result != CUDA_ERROR_UNSUPPORTED_PTX_VERSION &&
        result != CUDA_ERROR_INVALID_PTX && result != CUDA_ERROR_JIT_COMPILER_NOT_FOUND &&
        result != CUDA_ERROR_JIT_COMPILATION_DISABLED)
        return driver_failed(driver, result, "cannot load the transform's kernels", failure);
    driver->cuGetErrorName(result, &name);
    driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                 device->number);
    driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                 device->number);
    return failure_set(failure, -EOPNOTSUPP,
                       "transform: this libpinclient has no kernel for %s, of compute capability "
                       "%d.%d: CUDA error %d (%s)",
                       device->uuid, major, minor, (int)result, name ? name : "unknown");
}

/* With the lock held. */
static int kernels_load(const struct device *device, struct kernels **kernels_p,
                        struct failure *failure)
{
    const struct driver *driver = device->driver;
    struct kernels *kernels = calloc(1, sizeof *kernels);

    if (!kernels)
        return failure_set(failure, -ENOMEM, "transform: no memory for its kernels");
    CUresult result = driver->cuModuleLoadData(&kernels->module, transform_image);
    if (result != CUDA_SUCCESS)
        goto err_free;
    result = functions_find(driver, kernels);
    if (result != CUDA_SUCCESS)
        goto err_unload;
    kernels->context = device->context;
    list_append(&loaded, &kernels->link);
    *kernels_p = kernels;
    return 0;

err_unload:
    driver->cuModuleUnload(kernels->module);
err_free:
    free(kernels);
    return load_failed(device, result, failure);
}

/* Those of the context; NULL: none yet. With the lock held. */
static struct kernels *kernels_find(CUcontext context)
{
    for (struct list *i = loaded.next; i != &loaded; i = i->next) {
        struct kernels *kernels = list_entry(i, struct kernels, link);
        if (kernels->context == context)
            return kernels;
    }
    return NULL;
}

/* With the context current, which the device keeps alive as long as it uses the kernels. */
static int device_want_kernels(struct device *device, struct failure *failure)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    int r = 0;

    if (device->kernels)
        return 0;
    if (!transform_image)
        return failure_set(failure, -EOPNOTSUPP,
                           "transform: this libpinclient was built without nvcc, so without "
                           "kernels");
    pthread_mutex_lock(&loaded_lock);
    struct kernels *kernels = kernels_find(device->context);
    if (!kernels) {
        device_relax_capture(device, &mode);
        r = kernels_load(device, &kernels, failure);
        device_relax_capture(device, &mode);
    }
    if (kernels) {
        kernels->users++;
        device->kernels = kernels;
    }
    pthread_mutex_unlock(&loaded_lock);
    return r;
}

void device_forget_kernels(struct device *device)
{
    struct kernels *kernels = device->kernels;

    if (!kernels)
        return;
    device->kernels = NULL;
    pthread_mutex_lock(&loaded_lock);
    if (--kernels->users == 0) {
        device->driver->cuModuleUnload(kernels->module);
        list_remove(&kernels->link);
        free(kernels);
    }
    pthread_mutex_unlock(&loaded_lock);
}

/* What address is in: CU_MEMORYTYPE_DEVICE, managed memory included; CU_MEMORYTYPE_HOST, allocated
 * by CUDA or registered with it; or 0, memory that the driver does not know. */
static CUmemorytype memory_type(const struct driver *driver, const void *address)
{
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED};
    unsigned type = 0, managed = 0;
    void *answers[] = {&type, &managed};

    if (driver->cuPointerGetAttributes(2, asked, answers, (CUdeviceptr)(uintptr_t)address) !=
        CUDA_SUCCESS)
        return (CUmemorytype)0;
    return managed ? CU_MEMORYTYPE_DEVICE : (CUmemorytype)type;
}

/* Where the flags are read from: the GPU's memory by the kernel, the host's here. */
static bool flip_is_on_gpu(const struct driver *driver, const uint8_t *flip)
{
    return flip && memory_type(driver, flip) == CU_MEMORYTYPE_DEVICE;
}

static void flips_set(struct transform_args *args, const uint8_t *flip)
{
    for (uint32_t i = 0; i < (args->samples + 31) / 32; i++)
        args->flips[i] = 0;
    for (uint32_t i = 0; flip && i < args->samples; i++)
        args->flips[i / 32] |= (uint32_t)(flip[i] != 0) << i % 32;
}

/* One launch, or as many as there are times the samples of one. */
static CUresult work_launch(const struct device *device, const struct transform_work *work,
                            void *stream)
{
    struct transform_any_args args = {
        .planes = work->layout == PINCLIENT_NCHW,
        .by_table = !work->plan->by_line,
    };
    struct transform_args *base = &args.base;
    enum transform_kernel kernel = transform_cut(work, base);
    CUfunction function = function_of(device->kernels, work->plan->dtype, kernel);
    const bool on_gpu = flip_is_on_gpu(device->driver, work->flip);
    const uint64_t out_stride = (uint64_t)work->height * work->width * work->plan->channels *
                                transform_dtype_bytes(work->plan->dtype);
    CUresult result = CUDA_SUCCESS;

    if (kernel == TRANSFORM_ANY && args.by_table)
        memcpy(args.table, work->plan->table, sizeof args.table);
    for (uint64_t i = 0; i < work->samples && result == CUDA_SUCCESS; i += base->samples) {
        void *parameters[] = {&args}; /* which begins with base */
        const uint8_t *flip = work->flip ? work->flip + i : NULL;
        base->samples = (uint32_t)(work->samples - i < TRANSFORM_SAMPLES ? work->samples - i
                                                                         : TRANSFORM_SAMPLES);
        base->in = work->in + i * work->in_stride;
        base->out = (uint8_t *)work->out + i * out_stride;
        base->flip = on_gpu ? flip : NULL;
        flips_set(base, on_gpu ? NULL : flip);
        result = device->driver->cuLaunchKernel(function, base->tiles_down, base->tiles_across,
                                                base->samples, TRANSFORM_THREADS, 1, 1, 0, stream,
                                                parameters, NULL);
    }
    return result;
}

int device_transform(struct device *device, const struct transform_work *work, void *stream,
                     struct failure *failure)
{
    int r = device_enter(device, what, failure);

    if (r < 0)
        return r;
    r = device_want_kernels(device, failure);
    if (r == 0 && memory_type(device->driver, work->out) == 0)
        r = failure_set(failure, -EINVAL,
                        "transform: out (%p) is not memory that the GPU can write to", work->out);
    if (r == 0) {
        CUresult result = work_launch(device, work, stream);
        if (result != CUDA_SUCCESS)
            r = driver_failed(device->driver, result, what, failure);
    }
    device_leave(device);
    return r;
}
