/*
 * What a pipeline may be, its canonical text, and the layout of the slots that
 * it fills.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "decode/decode.h"
#include "decode/resize.h"
#include "proto/dtype.h"

_Static_assert((int)FILTER_KIND_BICUBIC == (int)RESIZE_BICUBIC, "filters");
_Static_assert((int)TENSOR_BF16 == (int)SAMPLE_BF16 && TENSOR_BF16 + 1 == DTYPES, "element types");

#define SIZE_MAX_PIXELS 8192 /* of a side of the result */
#define RESIZE_MAX_PIXELS 16384
#define PPM 1000000u
#define RATIO_MIN_PPM 10000u     /* 1 : 100 */
#define RATIO_MAX_PPM 100000000u /* 100 : 1 */
#define SLOT_BYTES_MAX ((uint64_t)1 << 40)

static int check_random(struct pipeline *pipeline, struct failure *failure)
{
    if (pipeline->resize != 0)
        return failure_set(failure, -EINVAL, "resize %u: only center-crop resizes before it crops",
                           pipeline->resize);
    if (pipeline->area_min_ppm == 0)
        pipeline->area_min_ppm = 80000;
    if (pipeline->area_max_ppm == 0)
        pipeline->area_max_ppm = PPM;
    if (pipeline->ratio_min_ppm == 0)
        pipeline->ratio_min_ppm = 750000;
    if (pipeline->ratio_max_ppm == 0)
        pipeline->ratio_max_ppm = 1333333;
    if (pipeline->area_min_ppm > pipeline->area_max_ppm || pipeline->area_max_ppm > PPM)
        return failure_set(failure, -EINVAL,
                           "area %u..%u millionths: must ascend and be at most %u",
                           pipeline->area_min_ppm, pipeline->area_max_ppm, PPM);
    if (pipeline->ratio_min_ppm > pipeline->ratio_max_ppm ||
        pipeline->ratio_min_ppm < RATIO_MIN_PPM || pipeline->ratio_max_ppm > RATIO_MAX_PPM)
        return failure_set(
            failure, -EINVAL, "ratio %u..%u millionths: must ascend and be between %u and %u",
            pipeline->ratio_min_ppm, pipeline->ratio_max_ppm, RATIO_MIN_PPM, RATIO_MAX_PPM);
    return 0;
}

static int check_center(struct pipeline *pipeline, struct failure *failure)
{
    if (pipeline->area_min_ppm || pipeline->area_max_ppm)
        return failure_set(failure, -EINVAL, "area %u..%u millionths: only random-crop has one",
                           pipeline->area_min_ppm, pipeline->area_max_ppm);
    if (pipeline->ratio_min_ppm || pipeline->ratio_max_ppm)
        return failure_set(failure, -EINVAL, "ratio %u..%u millionths: only random-crop has one",
                           pipeline->ratio_min_ppm, pipeline->ratio_max_ppm);
    if (pipeline->resize == 0)
        pipeline->resize = (pipeline->size * 8 + 3) / 7;
    if (pipeline->resize < pipeline->size || pipeline->resize > RESIZE_MAX_PIXELS)
        return failure_set(failure, -EINVAL,
                           "resize %u: must be between the crop's size %u and %u pixels",
                           pipeline->resize, pipeline->size, RESIZE_MAX_PIXELS);
    return 0;
}

int pipeline_check(struct pipeline *pipeline, struct failure *failure)
{
    if (pipeline->crop == CROP_KIND_NONE) {
        if (pipeline->size || pipeline->resize || pipeline->area_min_ppm ||
            pipeline->area_max_ppm || pipeline->ratio_min_ppm || pipeline->ratio_max_ppm)
            return failure_set(failure, -EINVAL,
                               "a crop's size, resize, area or ratio is given, "
                               "but no crop");
        if (pipeline->flip_ppm)
            return failure_set(failure, -EINVAL, "flip %u millionths: only images with a crop flip",
                               pipeline->flip_ppm);
        if (pipeline->filter != FILTER_KIND_BILINEAR || pipeline->orient)
            return failure_set(failure, -EINVAL,
                               "a filter or an orientation is given, but no crop");
        return 0;
    }
    if ((unsigned)pipeline->filter > FILTER_KIND_BICUBIC)
        return failure_set(failure, -EINVAL, "filter %d is unknown", (int)pipeline->filter);
    if (pipeline->crop != CROP_KIND_RANDOM && pipeline->crop != CROP_KIND_CENTER)
        return failure_set(failure, -EINVAL, "crop kind %d is unknown", (int)pipeline->crop);
    if (pipeline->size == 0 || pipeline->size > SIZE_MAX_PIXELS)
        return failure_set(failure, -EINVAL, "crop size %u: must be between 1 and %d pixels",
                           pipeline->size, SIZE_MAX_PIXELS);
    if (pipeline->flip_ppm > PPM)
        return failure_set(failure, -EINVAL, "flip %u millionths: must be at most %u",
                           pipeline->flip_ppm, PPM);
    return pipeline->crop == CROP_KIND_RANDOM ? check_random(pipeline, failure)
                                              : check_center(pipeline, failure);
}

const char *pipeline_text(const struct pipeline *pipeline, char *text, size_t size)
{
    const char *filter = pipeline->filter == FILTER_KIND_BICUBIC ? " filter=bicubic" : "";
    const char *orient = pipeline->orient ? " orient=exif" : "";

    switch (pipeline->crop) {
    case CROP_KIND_RANDOM:
        snprintf(text, size, "random-crop:%u area=%u..%u ratio=%u..%u flip=%u%s%s v%d",
                 pipeline->size, pipeline->area_min_ppm, pipeline->area_max_ppm,
                 pipeline->ratio_min_ppm, pipeline->ratio_max_ppm, pipeline->flip_ppm, filter,
                 orient, PIPELINE_VERSION);
        break;
    case CROP_KIND_CENTER:
        snprintf(text, size, "center-crop:%u resize=%u flip=%u%s%s v%d", pipeline->size,
                 pipeline->resize, pipeline->flip_ppm, filter, orient, PIPELINE_VERSION);
        break;
    default:
        snprintf(text, size, "none v%d", PIPELINE_VERSION);
        break;
    }
    return text;
}

/* Appends a tensor of n_dims dimensions a sample. The bytes of a sample are bounded by the slot's
 * limit, so that nothing here wraps. */
int layout_append(struct layout *layout, const char *name, enum tensor_dtype dtype, uint32_t batch,
                  const uint32_t *shape, size_t n_dims, struct failure *failure)
{
    struct tensor *tensor = &layout->tensors[layout->n_tensors++];
    uint64_t bytes = dtype_table[dtype].bytes;

    *tensor = (struct tensor){.name = name, .dtype = dtype, .n_dims = (uint32_t)n_dims + 1};
    tensor->shape[0] = batch;
    for (size_t i = 0; i < n_dims; i++) {
        tensor->shape[i + 1] = shape[i];
        if (__builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes) || bytes > SLOT_BYTES_MAX)
            bytes = SLOT_BYTES_MAX + 1;
    }
    tensor->sample_bytes = bytes;
    tensor->offset = (layout->slot_bytes + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
    if (bytes > SLOT_BYTES_MAX / batch ||
        tensor->offset + bytes * batch > SLOT_BYTES_MAX - SLOT_ALIGN)
        return failure_set(failure, -E2BIG,
                           "a batch of %u samples with %" PRIu64 "%s bytes of %s each is over the "
                           "limit of %" PRIu64 " bytes",
                           batch, bytes, bytes > SLOT_BYTES_MAX ? " or more" : "", name,
                           SLOT_BYTES_MAX);
    layout->slot_bytes = tensor->offset + bytes * batch;
    return 0;
}

void layout_finish(struct layout *layout)
{
    layout->slot_bytes = (layout->slot_bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

/* The tensor of the samples themselves. */
static int layout_add_samples(struct layout *layout, const struct pipeline *pipeline,
                              const struct source *source, uint32_t batch, struct failure *failure)
{
    uint32_t shape[DIMS_MAX - 1] = {0};
    size_t n_dims = 0;
    enum sample_dtype dtype = SAMPLE_U8;
    bool raw = source_shape(source, shape, &n_dims, &dtype) == 0;

    if (raw && pipeline->crop != CROP_KIND_NONE)
        return failure_set(failure, -EINVAL, "%s: holds arrays, no images: nothing to crop",
                           source_name(source));
    if (!raw && pipeline->crop == CROP_KIND_NONE)
        return failure_set(failure, -EINVAL,
                           "%s: holds images of all sizes: a crop has to give them one size",
                           source_name(source));
    if (raw)
        return layout_append(layout, source_tensor(source), (enum tensor_dtype)dtype, batch, shape,
                             n_dims, failure);
    return layout_append(layout, "image", TENSOR_U8, batch,
                         (uint32_t[]){pipeline->size, pipeline->size, 3}, 3, failure);
}

static int layout_add_fields(struct layout *layout, const struct source *source, uint32_t batch,
                             struct failure *failure)
{
    const struct source_field *fields;
    size_t n = source_fields(source, &fields);
    int rc = 0;

    if (n > TENSORS_MAX - TENSOR_FIELDS)
        return failure_set(failure, -E2BIG, "%s: %zu more tensors; %d are possible",
                           source_name(source), n, TENSORS_MAX - TENSOR_FIELDS);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = layout_append(layout, fields[i].name, (enum tensor_dtype)fields[i].dtype, batch,
                           fields[i].shape, fields[i].n_dims, failure);
    return rc;
}

int layout_init(struct layout *layout, const struct pipeline *pipeline, const struct source *source,
                uint32_t batch, struct failure *failure)
{
    int rc;

    *layout = (struct layout){0};
    if (batch == 0 || batch > BATCH_MAX)
        return failure_set(failure, -EINVAL, "batch %u: must be between 1 and %u samples", batch,
                           BATCH_MAX);
    rc = layout_add_samples(layout, pipeline, source, batch, failure);
    if (rc == 0)
        rc = layout_append(layout, "label", TENSOR_I64, batch, NULL, 0, failure);
    if (rc == 0)
        rc = layout_append(layout, "index", TENSOR_U64, batch, NULL, 0, failure);
    if (rc == 0)
        rc = layout_append(layout, "status", TENSOR_U8, batch, NULL, 0, failure);
    if (rc == 0)
        rc = layout_add_fields(layout, source, batch, failure);
    if (rc < 0)
        return rc;
    layout_finish(layout);
    return 0;
}
