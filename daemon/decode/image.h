/*
 * Inside the decoders: what one sample asks for, the view of its image that
 * becomes the result, and the decoder that all image formats share. A format
 * reads a header, has the view planned, and feeds rows to the resizer.
 */
#ifndef PINSERVE_DECODE_IMAGE_H
#define PINSERVE_DECODE_IMAGE_H

#include "decode/decode.h"
#include "decode/resize.h"
#include "decode/turn.h"

#define IMAGE_SIDE_MAX 65500        /* pixels: the JPEG library's own bound */
#define IMAGE_PIXELS_MAX (1u << 28) /* width * height */
/* Progressive JPEG, interlaced PNG, WebP and what is turned have to be held whole, so they may be
 * less large. */
#define IMAGE_PIXELS_HELD_MAX (1u << 26)

/* A box of the image, resized to width x height; of that the window at (x, y), size x size pixels,
 * is the result, mirrored when flip says so. */
struct view {
    struct box box;
    uint32_t width, height;
    uint32_t x, y;
    bool flip;
};

/* What a pipeline takes of a w x h image: a pure function. */
struct view crop_view(const struct pipeline *pipeline, uint32_t w, uint32_t h, uint64_t seed,
                      uint64_t epoch, uint64_t sample);

/* 0..3: the image may be decoded at 1/1 .. 1/8 of its size, because the scaled box is still at
 * least twice as large as what it is resized to. */
unsigned crop_scale(const struct view *view);

/* One call of decoder_image. */
struct request {
    const struct pipeline *pipeline;
    const uint8_t *bytes;
    size_t size;
    uint64_t seed, epoch, sample;
    const char *name;
    struct failure *failure;
    /* decoder_whole: no pipeline, all of the image; facts NULL: nobody wants them. */
    bool whole, keep;
    struct image_facts *facts;
};

struct jpeg;

struct decoder {
    struct jpeg *jpeg;
    struct resizer resizer;
    struct turner turner;
    struct rows rows;
    struct view view; /* of the last image whose header was read */
    unsigned scale;
    unsigned orientation;
    struct region region; /* what of the decoded image is needed, as stored */
    struct decoder_counts counts;
};

/* Refuses images over the bounds. held: the whole image will be in memory. */
int image_check_size(const struct request *request, uint64_t w, uint64_t h, bool held);

/* Plans the view of a w x h image (as stored) into decoder->view, ->scale, ->region and ->resizer;
 * scale_max 0 for formats that cannot be decoded at a smaller scale. */
int image_plan(struct decoder *decoder, const struct request *request, uint32_t w, uint32_t h,
               unsigned scale_max);

/* The next rows of decoder->region, from the top; rows[i] points to the region's first pixel. */
void image_rows(struct decoder *decoder, const uint8_t *const *rows, uint32_t n_rows);

/* Tells the format by the first bytes and decodes into decoder->resizer. */
int image_decode(struct decoder *decoder, const struct request *request);

/* Plans a whole image: see decoder_whole. */
int image_plan_whole(struct decoder *decoder, const struct request *request, uint32_t w,
                     uint32_t h);

struct jpeg *jpeg_new(void);
void jpeg_free(struct jpeg *jpeg);

/* Give image_rows all rows of the region. */
int jpeg_decode(struct decoder *decoder, const struct request *request);
int png_decode(struct decoder *decoder, const struct request *request);
int webp_decode(struct decoder *decoder, const struct request *request);

#endif
