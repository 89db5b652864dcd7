/*
 * The decoder: tells the format by the first bytes, never by a name, and plans
 * what of the image is needed.
 */
#include "decode/image.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct decoder *decoder_new(void)
{
    struct decoder *decoder = calloc(1, sizeof *decoder);

    if (!decoder)
        return NULL;
    decoder->jpeg = jpeg_new();
    if (!decoder->jpeg) {
        free(decoder);
        return NULL;
    }
    return decoder;
}

void decoder_free(struct decoder *decoder)
{
    if (!decoder)
        return;
    jpeg_free(decoder->jpeg);
    resizer_deinit(&decoder->resizer);
    rows_deinit(&decoder->rows);
    free(decoder);
}

void decoder_counts_get(const struct decoder *decoder, struct decoder_counts *counts_p)
{
    *counts_p = decoder->counts;
}

int image_check_size(const struct request *request, uint64_t w, uint64_t h, bool held)
{
    uint64_t limit = held ? IMAGE_PIXELS_HELD_MAX : IMAGE_PIXELS_MAX;

    if (w == 0 || h == 0)
        return failure_set(request->failure, -EBADMSG, "%s: an image of %" PRIu64 "x%" PRIu64,
                           request->name, w, h);
    if (w * h > limit)
        return failure_set(request->failure, -EFBIG,
                           "%s: %" PRIu64 "x%" PRIu64 " = %" PRIu64 " pixels; the limit is %" PRIu64
                           "%s",
                           request->name, w, h, w * h, limit,
                           held ? " for progressive and interlaced images" : "");
    if (w > IMAGE_SIDE_MAX || h > IMAGE_SIDE_MAX)
        return failure_set(request->failure, -EFBIG,
                           "%s: %" PRIu64 "x%" PRIu64 " pixels; the limit is %d a side",
                           request->name, w, h, IMAGE_SIDE_MAX);
    return 0;
}

/* One direction of the box [start, start + length), decoded at 1 / 2^scale. The box may start and
 * end within a decoded pixel then. */
static struct resize_span span_make(uint32_t start, uint32_t length, unsigned scale)
{
    uint32_t unit = 1u << scale;
    uint32_t origin = start / unit;

    return (struct resize_span){
        .origin = origin,
        .size = (start + length + unit - 1) / unit - origin,
        .from = (double)(start - origin * unit) / unit,
        .length = (double)length / unit,
    };
}

int image_plan(struct decoder *decoder, const struct request *request, uint32_t w, uint32_t h,
               unsigned scale_max)
{
    struct view *view = &decoder->view;
    struct resize_span x, y;

    *view = crop_view(request->pipeline, w, h, request->seed, request->epoch, request->sample);
    decoder->scale = crop_scale(view);
    if (decoder->scale > scale_max)
        decoder->scale = scale_max;
    x = span_make(view->box.x, view->box.w, decoder->scale);
    x.full = view->width;
    x.window = view->x;
    x.count = request->pipeline->size;
    x.mirrored = view->flip;
    y = span_make(view->box.y, view->box.h, decoder->scale);
    y.full = view->height;
    y.window = view->y;
    y.count = request->pipeline->size;
    if (resizer_begin(&decoder->resizer, &x, &y) < 0)
        return failure_set(request->failure, -ENOMEM,
                           "%s: no memory to resize %ux%u pixels to %ux%u", request->name,
                           view->box.w, view->box.h, view->width, view->height);
    return 0;
}

struct signature {
    const char *bytes;
    size_t size;
    const char *name;
};

/* Formats that are told apart but not decoded. */
static const char *foreign_format(const uint8_t *bytes, size_t size)
{
    static const struct signature signatures[] = {
        {"BM", 2, "BMP"},
        {"\x1f\x8b", 2, "gzip"},
        {"\x28\xb5\x2f\xfd", 4, "zstd"},
        {"GIF8", 4, "GIF"},
        {"II*\0", 4, "TIFF"},
        {"MM\0*", 4, "TIFF"},
        {"\0\0\0\x0cjP  ", 8, "JPEG 2000"},
        {"\xff\x0a", 2, "JPEG XL"},
        {"PK\x03\x04", 4, "zip"},
        {"8BPS", 4, "Photoshop"},
        {"%PDF", 4, "PDF"},
        {"\x93NUMPY", 6, "npy"},
    };

    if (size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return "WebP";
    if (size >= 12 && memcmp(bytes + 4, "ftypavif", 8) == 0)
        return "AVIF";
    if (size >= 12 && memcmp(bytes + 4, "ftyphei", 7) == 0)
        return "HEIF";
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++)
        if (size >= signatures[i].size &&
            memcmp(bytes, signatures[i].bytes, signatures[i].size) == 0)
            return signatures[i].name;
    return NULL;
}

static int refuse_format(const struct request *request)
{
    const uint8_t *bytes = request->bytes;
    const char *format = foreign_format(bytes, request->size);

    if (format)
        return failure_set(request->failure, -EBADMSG,
                           "%s: is %s data; only JPEG and PNG are decoded", request->name, format);
    if (request->size < 4)
        return failure_set(request->failure, -EBADMSG, "%s: %zu bytes are no image", request->name,
                           request->size);
    return failure_set(request->failure, -EBADMSG,
                       "%s: neither JPEG nor PNG; starts with bytes %02x %02x %02x %02x",
                       request->name, bytes[0], bytes[1], bytes[2], bytes[3]);
}

int decoder_image(struct decoder *decoder, const struct pipeline *pipeline, const uint8_t *bytes,
                  size_t size, uint64_t seed, uint64_t epoch, uint64_t sample, uint8_t *out,
                  const char *name, struct failure *failure)
{
    static const uint8_t png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    struct request request = {.pipeline = pipeline,
                              .bytes = bytes,
                              .size = size,
                              .seed = seed,
                              .epoch = epoch,
                              .sample = sample,
                              .name = name,
                              .failure = failure};
    int rc;

    if (size == 0)
        return failure_set(failure, -EBADMSG, "%s: empty file", name);
    if (size >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff)
        rc = jpeg_decode(decoder, &request);
    else if (size >= sizeof png && memcmp(bytes, png, sizeof png) == 0)
        rc = png_decode(decoder, &request);
    else if (size < sizeof png && memcmp(bytes, png, size) == 0)
        return failure_set(failure, -EBADMSG, "%s: PNG: cut off after %zu bytes", name, size);
    else
        return refuse_format(&request);
    if (rc < 0)
        return rc;
    resizer_end(&decoder->resizer, out);
    return 0;
}
