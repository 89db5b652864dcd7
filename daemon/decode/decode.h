/*
 * Pipelines: from a sample's bytes to the final pixels in a slot, and the
 * layout of the slot. A result is a pure function of (bytes, pipeline, seed,
 * epoch, sample number); what decides it has a version, which is in the
 * pipeline's canonical text.
 */
#ifndef PINSERVE_DECODE_DECODE_H
#define PINSERVE_DECODE_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/failure.h"
#include "proto/limits.h"
#include "source/source.h"

#define PIPELINE_VERSION 1

enum crop_kind { CROP_KIND_NONE, CROP_KIND_RANDOM, CROP_KIND_CENTER };
enum filter_kind { FILTER_KIND_BILINEAR, FILTER_KIND_BICUBIC };

struct pipeline {
    enum crop_kind crop;
    uint32_t size;   /* pixels, width and height of the result */
    uint32_t resize; /* pixels, shorter side before a center crop */
    uint32_t area_min_ppm, area_max_ppm;
    uint32_t ratio_min_ppm, ratio_max_ppm; /* width / height */
    uint32_t flip_ppm;
    enum filter_kind filter;
    bool orient; /* upright as EXIF says, before anything else; else as stored */
};

/* Checks ranges and fills defaults for zeros (area 80000..1000000, ratio 750000..1333333; resize 0:
 * size * 8 / 7 rounded to nearest, 256 for 224). -EINVAL names the value. */
int pipeline_check(struct pipeline *pipeline, struct failure *failure);

/* "random-crop:224 area=80000..1000000 ratio=750000..1333333 flip=500000 v1": equal text, equal
 * pixels. " filter=bicubic" and " orient=exif" come before the version. Returns text. */
const char *pipeline_text(const struct pipeline *pipeline, char *text, size_t size);

/* Numbered as in proto/dtype.h, and as the samples' types. */
enum tensor_dtype {
    TENSOR_U8,
    TENSOR_F32,
    TENSOR_I64,
    TENSOR_U64,
    TENSOR_I8,
    TENSOR_U16,
    TENSOR_I16,
    TENSOR_U32,
    TENSOR_I32,
    TENSOR_F16,
    TENSOR_F64,
    TENSOR_BF16,
};

struct tensor {
    const char *name; /* static */
    enum tensor_dtype dtype;
    uint32_t n_dims; /* the batch included */
    uint32_t shape[DIMS_MAX];
    uint64_t offset;       /* bytes, in the slot; a multiple of TENSOR_ALIGN */
    uint64_t sample_bytes; /* of one sample; samples lie densely */
};

/* The tensors that every layout of a source begins with. */
enum { TENSOR_SAMPLE, TENSOR_LABEL, TENSOR_INDEX, TENSOR_STATUS, TENSOR_FIELDS };

/* Tensors: "image" u8 [B,S,S,3], or the source's first ("data", "tokens", ...) of its shape without
 * a crop; "label" i64 [B], -1 for none; "index" u64 [B]; "status" u8 [B]; then the source's other
 * fields. */
struct layout {
    uint32_t n_tensors;
    struct tensor tensors[TENSORS_MAX];
    uint64_t slot_bytes; /* a multiple of SLOT_ALIGN */
};

/* -EINVAL when pipeline and source do not go together (images without a crop, raw samples with
 * one), -E2BIG when a slot would overflow; in words. */
int layout_init(struct layout *layout, const struct pipeline *pipeline, const struct source *source,
                uint32_t batch, struct failure *failure);

/* A layout of a client's own, tensor by tensor and then finished; names are borrowed. -E2BIG. */
int layout_append(struct layout *layout, const char *name, enum tensor_dtype dtype, uint32_t batch,
                  const uint32_t *shape, size_t n_dims, struct failure *failure);
void layout_finish(struct layout *layout);

/* What one thread decodes with: decompressors and scratch, reused from sample to sample. */
struct decoder;
struct decoder *decoder_new(void);
void decoder_free(struct decoder *decoder);

/* Counts over a decoder's life, for tests and bench: how many images were decoded with each DCT
 * scale, index 0 for 1/1 .. 3 for 1/8; png in png. Of the JPEG files: without_end lacked their EOI
 * marker and nothing else; plain_inks held CMYK without Adobe's marker, taken as not inverted. */
struct decoder_counts {
    uint64_t jpeg[4], png, webp;
    uint64_t without_end, plain_inks;
};
void decoder_counts_get(const struct decoder *decoder, struct decoder_counts *counts_p);

/* One encoded image to size x size x 3 bytes at out (HWC, RGB). name is for failures.
 * -EBADMSG: the bytes are bad; -EFBIG: over the bound on dimensions; both name it. */
int decoder_image(struct decoder *decoder, const struct pipeline *pipeline, const uint8_t *bytes,
                  size_t size, uint64_t seed, uint64_t epoch, uint64_t sample, uint8_t *out,
                  const char *name, struct failure *failure);

/* What an image is, as far as its header could be read. */
struct image_facts {
    const char *format;     /* "jpeg", "png", "webp"; NULL: none of these */
    uint32_t width, height; /* as stored; 0: unknown */
    unsigned orientation;   /* 1..8, 1 also where EXIF says nothing */
    char mode[64];          /* "ycbcr 4:2:0, progressive"; "" unknown */
    bool without_end;       /* a JPEG file that lacks nothing but its EOI marker */
};

/* Decodes a whole image as it is stored, at its own size, for what is wrong with it; with keep set
 * its pixels can be had from decoder_whole_pixels afterwards. Failures as decoder_image's; the
 * facts are set in any case. */
int decoder_whole(struct decoder *decoder, const uint8_t *bytes, size_t size, bool keep,
                  const char *name, struct image_facts *facts_p, struct failure *failure);
/* width * height * 3 bytes, RGB. */
void decoder_whole_pixels(struct decoder *decoder, uint8_t *out);

/* A box of pixels in the image, in its own coordinates. */
struct box {
    uint32_t x, y, w, h;
};

/* The box and flip of a random crop of a w x h image, as torchvision's RandomResizedCrop
 * distributes them: integer arithmetic throughout. */
struct box crop_random(const struct pipeline *pipeline, uint32_t w, uint32_t h, uint64_t seed,
                       uint64_t epoch, uint64_t sample);
bool crop_flip(const struct pipeline *pipeline, uint64_t seed, uint64_t epoch, uint64_t sample);

#endif
