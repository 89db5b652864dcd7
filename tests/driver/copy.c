/*
 * The stand-in's asynchronous copies, which a stream carries out.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "stream.h"

static unsigned copies;

/* As a copy engine does, from pages that are pinned: those of a file that was cut off since have
 * some content still, here zeros, and raise no signal. */
static void copy_bytes(char *target, const char *origin, size_t bytes)
{
    while (bytes > 0) {
        size_t page = DRIVER_PAGE - (uintptr_t)origin % DRIVER_PAGE;
        struct iovec to = {target, bytes}, from = {(void *)(uintptr_t)origin, bytes};
        ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);

        if (n < 0 && errno != EFAULT) {
            memcpy(target, origin, bytes);
            return;
        }
        if (n <= 0) {
            n = (ssize_t)(page < bytes ? page : bytes);
            memset(target, 0, (size_t)n);
        }
        target += n;
        origin += n;
        bytes -= (size_t)n;
    }
}

void copy_run(const struct operation *operation)
{
    if (driver_settings.copy_delay_us && !operation->is_prompt) {
        struct timespec delay = {driver_settings.copy_delay_us / 1000000,
                                 (long)(driver_settings.copy_delay_us % 1000000) * 1000};

        nanosleep(&delay, NULL);
    }
    copy_bytes(operation->target, operation->origin, operation->bytes);
}

/* Counts an asynchronous copy, and says what is to become of it. */
static CUresult copy_count(void)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&driver_lock);
    copies++;
    if (driver_settings.break_copy && copies == driver_settings.break_copy)
        driver_break(CUDA_ERROR_ILLEGAL_ADDRESS);
    else if (driver_settings.fail_copy && copies == driver_settings.fail_copy)
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&driver_lock);
    return result;
}

/* Pageable memory is read, or written, before the call returns. */
static CUresult copy_queue(CUstream stream, void *target, const void *origin, size_t bytes,
                           const void *host)
{
    struct operation operation = {
        .kind = OPERATION_COPY, .target = target, .origin = origin, .bytes = bytes};
    enum host_memory memory = driver_host_memory(host, bytes);
    CUresult result;

    if (memory == HOST_MEMORY_SPLIT)
        return CUDA_ERROR_INVALID_VALUE;
    result = copy_count();
    if (result != CUDA_SUCCESS)
        return result;
    result = stream_queue_locked(stream, &operation);
    if (result == CUDA_SUCCESS && memory == HOST_MEMORY_PAGEABLE)
        result = cuStreamSynchronize(stream);
    return result;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void *origin, size_t bytes, CUstream stream)
{
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    if (!driver_is_device_memory(target, bytes, true))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_queue(stream, (void *)(uintptr_t)target, origin, bytes, origin);
}

/* In stream order, as one copy of the count. */
CUresult cuMemcpyBatchAsync(CUdeviceptr *targets, CUdeviceptr *origins, size_t *sizes, size_t n,
                            CUmemcpyAttributes *attributes, size_t *indices, size_t n_attributes,
                            CUstream stream)
{
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    if (!n || n_attributes != 1 || indices[0] || !stream ||
        attributes->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++)
        if (!sizes[i] || !driver_is_device_memory(targets[i], sizes[i], true) ||
            driver_host_memory((const void *)origins[i], sizes[i]) != HOST_MEMORY_LOCKED)
            return CUDA_ERROR_INVALID_VALUE;
    result = copy_count();
    for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
        struct operation operation = {.kind = OPERATION_COPY,
                                      .target = (void *)targets[i],
                                      .origin = (const void *)origins[i],
                                      .bytes = sizes[i],
                                      .is_prompt = i > 0};

        result = stream_queue_locked(stream, &operation);
    }
    return result;
}

/* The call's first form, of CUDA 12.8. */
#undef cuMemcpyBatchAsync
CUresult cuMemcpyBatchAsync(CUdeviceptr *targets, CUdeviceptr *origins, size_t *sizes, size_t n,
                            CUmemcpyAttributes *attributes, size_t *indices, size_t n_attributes,
                            size_t *failed, CUstream stream);
CUresult cuMemcpyBatchAsync(CUdeviceptr *targets, CUdeviceptr *origins, size_t *sizes, size_t n,
                            CUmemcpyAttributes *attributes, size_t *indices, size_t n_attributes,
                            size_t *failed, CUstream stream)
{
    *failed = SIZE_MAX;
    return cuMemcpyBatchAsync_v2(targets, origins, sizes, n, attributes, indices, n_attributes,
                                 stream);
}

CUresult cuMemcpyDtoHAsync(void *target, CUdeviceptr origin, size_t bytes, CUstream stream)
{
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    if (!driver_is_device_memory(origin, bytes, false))
        return CUDA_ERROR_INVALID_VALUE;
    return copy_queue(stream, target, (const void *)(uintptr_t)origin, bytes, target);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr origin, size_t bytes, CUstream stream)
{
    struct operation operation = {.kind = OPERATION_COPY,
                                  .target = (void *)(uintptr_t)target,
                                  .origin = (const void *)(uintptr_t)origin,
                                  .bytes = bytes};
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    if (!driver_is_device_memory(target, bytes, true) ||
        !driver_is_device_memory(origin, bytes, false))
        return CUDA_ERROR_INVALID_VALUE;
    return stream_queue_locked(stream, &operation);
}
