/*
 * Questions about a CUdevice that listing and serving both ask.
 */
#ifndef PINSERVE_DEVICE_CUDA_ATTRIBUTES_H
#define PINSERVE_DEVICE_CUDA_ATTRIBUTES_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

/* As nvidia-smi prints it: "GPU-01234567-89ab-...". */
void cuda_uuid_format(const CUuuid *uuid, char *text, size_t size);

bool cuda_can_export_fd(CUdevice device);
bool cuda_can_export_ipc(CUdevice device);
bool cuda_can_register_read_only(CUdevice device);

#endif
