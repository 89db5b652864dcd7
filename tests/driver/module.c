/*
 * Kernels: the stand-in runs none. No image fits its devices, as when a library
 * was built for others.
 */
#include "range.h"

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    CUresult result = lock_enter();

    (void)module;
    if (result != CUDA_SUCCESS)
        return result;
    return leave(image ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuModuleUnload(CUmodule module)
{
    (void)module;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)function, (void)module, (void)name;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void **parameters, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z;
    (void)block_x, (void)block_y, (void)block_z, (void)shared;
    (void)stream, (void)parameters, (void)extra;
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr pointer)
{
    CUresult result = lock_enter();

    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned i = 0; i < n; i++) {
        unsigned value = 0;
        if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
            if (driver_is_device_memory(pointer, 1, false))
                value = CU_MEMORYTYPE_DEVICE;
            else if (driver_host_memory((const void *)pointer, 1) == HOST_MEMORY_LOCKED)
                value = CU_MEMORYTYPE_HOST;
        } else if (attributes[i] != CU_POINTER_ATTRIBUTE_IS_MANAGED) {
            return leave(CUDA_ERROR_INVALID_VALUE);
        }
        *(unsigned *)data[i] = value;
    }
    return leave(CUDA_SUCCESS);
}
