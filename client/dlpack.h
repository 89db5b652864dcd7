/*
 * DLPack's structs, as its specification lays them out: how libraries hand each
 * other tensors in memory. Its versions 1.x keep the layout.
 */
#ifndef PINSERVE_CLIENT_DLPACK_H
#define PINSERVE_CLIENT_DLPACK_H

#include <stdint.h>

enum dlpack_device_kind {
    DLPACK_CPU = 1,
    DLPACK_CUDA = 2,
};

enum dlpack_type_code {
    DLPACK_INT = 0,
    DLPACK_UINT = 1,
    DLPACK_FLOAT = 2,
    DLPACK_BFLOAT = 4,
};

#define DLPACK_READ_ONLY UINT64_C(1)

struct dlpack_tensor {
    void *data;
    struct {
        int32_t kind, number;
    } device;
    int32_t n_dims;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* in elements */
    uint64_t byte_offset;
};

struct dlpack_managed {
    struct dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *self);
};

struct dlpack_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct dlpack_versioned *self);
    uint64_t flags;
    struct dlpack_tensor tensor;
};

#endif
