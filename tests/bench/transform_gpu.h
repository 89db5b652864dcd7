/*
 * For bench_transform: the GPU that it opens as the client library does, and
 * the driver's calls that the library has no need of.
 */
#ifndef PINSERVE_BENCH_TRANSFORM_GPU_H
#define PINSERVE_BENCH_TRANSFORM_GPU_H

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/device.h"
#include "client/transform.h"

extern void *gpu_library;

#define GPU_STRING_OF(name) #name
#define GPU_STRING(name) GPU_STRING_OF(name)
#define GPU_CALL(name) ((__typeof__(&(name)))dlsym(gpu_library, GPU_STRING(name)))
#define GPU_CHECK(call)                                                                            \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            fprintf(stderr, "bench_transform: %s: CUDA error %d\n", #call, (int)result_);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Queues it; exits with the library's words when it cannot. */
void gpu_transform(struct device *device, const struct transform_work *work, CUstream stream);

/* Checks every element of many shapes against the formula in double precision; the count of shapes
 * that differ. */
unsigned check_all(struct device *device, CUstream stream);

#endif
