/*
 * The CUDA driver, loaded with dlopen: its calls as a table. Types come from
 * the toolkit's header, nothing is linked.
 */
#ifndef PINSERVE_CLIENT_DRIVER_H
#define PINSERVE_CLIENT_DRIVER_H

#include <cuda.h>

#include "proto/failure.h"

/* The header's macros give each call the name of its current version. */
#define DRIVER_CALLS(CALL)                                                                         \
    CALL(cuInit)                                                                                   \
    CALL(cuGetErrorName)                                                                           \
    CALL(cuGetErrorString)                                                                         \
    CALL(cuDeviceGetCount)                                                                         \
    CALL(cuDeviceGet)                                                                              \
    CALL(cuDeviceGetUuid)                                                                          \
    CALL(cuDeviceGetAttribute)                                                                     \
    CALL(cuDeviceGetPCIBusId)                                                                      \
    CALL(cuDevicePrimaryCtxRetain)                                                                 \
    CALL(cuDevicePrimaryCtxRelease)                                                                \
    CALL(cuCtxPushCurrent)                                                                         \
    CALL(cuCtxPopCurrent)                                                                          \
    CALL(cuCtxSynchronize)                                                                         \
    CALL(cuStreamCreate)                                                                           \
    CALL(cuStreamDestroy)                                                                          \
    CALL(cuStreamIsCapturing)                                                                      \
    CALL(cuStreamQuery)                                                                            \
    CALL(cuStreamWaitEvent)                                                                        \
    CALL(cuEventCreate)                                                                            \
    CALL(cuEventDestroy)                                                                           \
    CALL(cuEventRecord)                                                                            \
    CALL(cuLaunchHostFunc)                                                                         \
    CALL(cuMemImportFromShareableHandle)                                                           \
    CALL(cuMemAddressReserve)                                                                      \
    CALL(cuMemAddressFree)                                                                         \
    CALL(cuMemMap)                                                                                 \
    CALL(cuMemUnmap)                                                                               \
    CALL(cuMemSetAccess)                                                                           \
    CALL(cuMemRelease)                                                                             \
    CALL(cuIpcOpenMemHandle)                                                                       \
    CALL(cuIpcCloseMemHandle)                                                                      \
    CALL(cuMemAlloc)                                                                               \
    CALL(cuMemFree)                                                                                \
    CALL(cuMemcpyHtoDAsync)                                                                        \
    CALL(cuMemHostGetDevicePointer)                                                                \
    CALL(cuMemHostRegister)                                                                        \
    CALL(cuMemHostUnregister)                                                                      \
    CALL(cuPointerGetAttributes)                                                                   \
    CALL(cuModuleLoadData)                                                                         \
    CALL(cuModuleUnload)                                                                           \
    CALL(cuModuleGetFunction)                                                                      \
    CALL(cuLaunchKernel)

#define DRIVER_NAME(name) DRIVER_NAME_EXPANDED(name)
#define DRIVER_NAME_EXPANDED(name) #name

struct driver {
#define DRIVER_FIELD(name) __typeof__ (&(name))(name);
    DRIVER_CALLS(DRIVER_FIELD)
#undef DRIVER_FIELD
    /* May be absent; then a capture elsewhere in the process can refuse mapping a ring. */
    __typeof__(&cuThreadExchangeStreamCaptureMode) exchange_capture_mode;
};

/* Loads and initialises it, once a process. -ENODEV says why not: no libcuda.so.1, one that lacks a
 * call, or no GPU that this process may use. */
int driver_load(const struct driver **driver_p, struct failure *failure);

/* -EIO with CUDA's words, what being what was tried. */
int driver_failed(const struct driver *driver, CUresult result, const char *what,
                  struct failure *failure);

#endif
