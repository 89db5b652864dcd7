/*
 * What the driver says of the GPUs, with no context made.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_attributes.h"
#include "cuda_driver.h"
#include "device/cuda.h"

void cuda_uuid_format(const CUuuid *uuid, char *text, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)uuid->bytes;

    snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
             bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]);
}

static int attribute_get(CUdevice device, CUdevice_attribute attribute)
{
    int value = 0;

    return driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

bool cuda_can_export_fd(CUdevice device)
{
    return attribute_get(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
           attribute_get(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

/* The driver has no attribute for IPC memory alone: where events can be shared, memory can. */
bool cuda_can_export_ipc(CUdevice device)
{
    return attribute_get(device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) &&
           attribute_get(device, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
}

bool cuda_can_register_read_only(CUdevice device)
{
    return attribute_get(device, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
}

static int device_describe(CUdevice device, struct cuda_device *described, struct failure *failure)
{
    struct device_info *info = &described->info;
    CUuuid uuid;
    CUresult result = driver.cuDeviceGetUuid(&uuid, device);

    if (result == CUDA_SUCCESS)
        result = driver.cuDeviceGetName(info->name, sizeof info->name, device);
    if (result == CUDA_SUCCESS)
        result = driver.cuDeviceGetPCIBusId(info->pci, sizeof info->pci, device);
    if (result == CUDA_SUCCESS)
        result = driver.cuDeviceTotalMem(&described->memory, device);
    if (result != CUDA_SUCCESS)
        return cuda_failure(failure, result, "device %d", device);
    cuda_uuid_format(&uuid, info->uuid, sizeof info->uuid);
    for (char *letter = info->pci; *letter; letter++)
        *letter = (char)tolower((unsigned char)*letter);
    info->numa_node = -1;
    described->compute_major = attribute_get(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    described->compute_minor = attribute_get(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    described->can_export_fd = cuda_can_export_fd(device);
    described->can_export_ipc = cuda_can_export_ipc(device);
    return 0;
}

int cuda_list(struct cuda_device *devices, size_t max, size_t *n_p, struct failure *failure)
{
    int count = 0;
    CUresult result;
    int r;

    /* What is there, not what a trainer's environment makes visible. */
    unsetenv("CUDA_VISIBLE_DEVICES");
    r = cuda_driver_load(failure);
    if (r < 0)
        return r;
    result = driver.cuDeviceGetCount(&count);
    if (result != CUDA_SUCCESS)
        return cuda_failure(failure, result, "the devices cannot be counted");
    for (int i = 0; i < count && (size_t)i < max; i++) {
        CUdevice device;

        result = driver.cuDeviceGet(&device, i);
        if (result != CUDA_SUCCESS)
            return cuda_failure(failure, result, "device %d", i);
        r = device_describe(device, &devices[i], failure);
        if (r < 0)
            return r;
    }
    *n_p = (size_t)count;
    return 0;
}
