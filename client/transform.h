/*
 * Images turned into normalised floats: the values (transform_plan.c), the work
 * on the CPU (transform_host.c) and on a GPU (device_transform.c, transform.cu).
 */
#ifndef PINSERVE_CLIENT_TRANSFORM_H
#define PINSERVE_CLIENT_TRANSFORM_H

#include <stdbool.h>
#include <stddef.h>

#include "pinclient.h"
#include "proto/failure.h"
#include "transform_kernel.h"

/* What each byte of each channel becomes. A function of dtype, channels, mean and std. */
struct transform_plan {
    enum pinclient_dtype dtype;
    uint32_t channels;
    double mean[PINCLIENT_CHANNELS_MAX], std[PINCLIENT_CHANNELS_MAX];
    uint32_t table[PINCLIENT_CHANNELS_MAX][256]; /* the bits of the values */
    struct transform_line line[PINCLIENT_CHANNELS_MAX];
    bool by_line; /* the lines give exactly the table */
};

/* Images of one size, dense but for the step from sample to sample. */
struct transform_work {
    const struct transform_plan *plan;
    const uint8_t *in;
    void *out;
    const uint8_t *flip; /* NULL: none */
    uint64_t in_stride;
    uint64_t samples;
    uint32_t height, width;
    enum pinclient_layout layout;
};

/* Bytes of an output type; 0: it is none. */
size_t transform_dtype_bytes(enum pinclient_dtype dtype);

/* Whether plan is the one for these. */
bool transform_plan_fits(const struct transform_plan *plan, enum pinclient_dtype dtype,
                         uint32_t channels, const double *mean, const double *std);
/* Fills it. Every std is finite and not 0, every mean finite. */
void transform_plan_make(struct transform_plan *plan, enum pinclient_dtype dtype, uint32_t channels,
                         const double *mean, const double *std);

/* Does it on the CPU. */
void transform_host(const struct transform_work *work);

/* The kernels of each output type, by name transform_TYPE_KERNEL. */
enum transform_kernel {
    TRANSFORM_NCHW_1,
    TRANSFORM_NCHW_3,
    TRANSFORM_NCHW_4,
    TRANSFORM_NHWC_3,
    TRANSFORM_NHWC_4,
    TRANSFORM_ANY, /* takes struct transform_any_args */
    TRANSFORM_KERNELS,
};

/* Chooses the kernel, and sets what of args is the same for all samples: not samples, flip and
 * flips. */
enum transform_kernel transform_cut(const struct transform_work *work, struct transform_args *args);

/* The kernels as cuModuleLoadData takes them; NULL: built without nvcc. */
extern const void *const transform_image;

#endif
