/*
 * The CUDA driver interface, loaded at run time: the calls that the device
 * process makes, under the names that cuda.h gives them.
 */
#ifndef PINSERVE_DEVICE_CUDA_DRIVER_H
#define PINSERVE_DEVICE_CUDA_DRIVER_H

#include <cuda.h>
#include <stdbool.h>

#include "proto/failure.h"

// clang-format off
#define CUDA_DRIVER_CALLS(call)                                                                    \
    call(cuInit) call(cuDriverGetVersion) call(cuGetErrorName) call(cuGetErrorString)              \
    call(cuDeviceGet) call(cuDeviceGetCount) call(cuDeviceGetUuid) call(cuDeviceGetName)           \
    call(cuDeviceGetPCIBusId) call(cuDeviceGetAttribute) call(cuDeviceTotalMem)                    \
    call(cuDevicePrimaryCtxRetain) call(cuDevicePrimaryCtxRelease)                                 \
    call(cuDevicePrimaryCtxSetFlags) call(cuCtxSetCurrent) call(cuMemGetInfo)                      \
    call(cuStreamCreate) call(cuStreamDestroy) call(cuStreamSynchronize) call(cuStreamQuery)       \
    call(cuStreamWaitEvent) call(cuEventCreate) call(cuEventRecord) call(cuEventDestroy)           \
    call(cuLaunchHostFunc) call(cuMemHostRegister) call(cuMemHostUnregister)                       \
    call(cuMemcpyHtoDAsync) call(cuMemAlloc) call(cuMemFree) call(cuIpcGetMemHandle)               \
    call(cuMemCreate) call(cuMemRelease) call(cuMemGetAllocationGranularity)                       \
    call(cuMemExportToShareableHandle) call(cuMemAddressReserve) call(cuMemAddressFree)            \
    call(cuMemMap) call(cuMemUnmap) call(cuMemSetAccess)
// clang-format on

#define CUDA_DRIVER_MEMBER(name) __typeof__(&(name)) name;

struct cuda_driver {
    CUDA_DRIVER_CALLS(CUDA_DRIVER_MEMBER)
};

extern struct cuda_driver driver;

/* Whether the driver copies many pieces by one call (CUDA 12.8), and that call. */
bool cuda_can_copy_batch(void);
CUresult cuda_copy_batch(CUdeviceptr *targets, CUdeviceptr *origins, size_t *sizes, size_t n,
                         CUmemcpyAttributes *attributes, CUstream stream);

/* Loads and initialises it, once; it stays until the process ends. */
int cuda_driver_load(struct failure *failure);

/* Fills failure with the text and the driver's own words for result; the code is the errno that is
 * nearest to result, and returned. */
int cuda_failure(struct failure *failure, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
