/*
 * The decoder: tells the format by the first bytes, never by a name, and plans
 * what of the image is needed.
 */
#include "decode/image.h"
#include "decode/exif.h"

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
    turner_deinit(&decoder->turner);
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
                           held ? " for progressive, interlaced, turned and WebP images" : "");
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

/* How far an axis of `length` pixels that is read backwards is shifted: its last decoded pixel may
 * lie partly outside of the image. */
static uint32_t shift_backwards(uint32_t length, unsigned scale)
{
    uint32_t unit = 1u << scale;

    return (unit - length % unit) % unit;
}

/* What the resizer needs, as it is stored. w, h: of the decoded image. */
static struct region stored_region(const struct resizer *resizer, unsigned orientation, uint32_t w,
                                   uint32_t h)
{
    bool swaps = orientation_swaps(orientation);
    uint32_t x[2] = {resizer->x.first, resizer->x.last};
    uint32_t y[2] = {resizer->y.first, resizer->y.last};
    uint32_t wide = swaps ? h : w, high = swaps ? w : h;

    if (orientation_flips_x(orientation)) {
        x[0] = wide - resizer->x.last;
        x[1] = wide - resizer->x.first;
    }
    if (orientation_flips_y(orientation)) {
        y[0] = high - resizer->y.last;
        y[1] = high - resizer->y.first;
    }
    return swaps ? (struct region){y[0], y[1], x[0], x[1]}
                 : (struct region){x[0], x[1], y[0], y[1]};
}

/* From the view to the resizer. w, h: of the upright image. */
static int plan_resizer(struct decoder *decoder, const struct request *request, uint32_t w,
                        uint32_t h)
{
    const struct view *view = &decoder->view;
    const struct pipeline *pipeline = request->pipeline;
    unsigned scale = decoder->scale, orientation = decoder->orientation;
    uint32_t shift_x = orientation_flips_x(orientation) ? shift_backwards(w, scale) : 0;
    uint32_t shift_y = orientation_flips_y(orientation) ? shift_backwards(h, scale) : 0;
    struct resize_span x = span_make(view->box.x + shift_x, view->box.w, scale);
    struct resize_span y = span_make(view->box.y + shift_y, view->box.h, scale);

    x.full = view->width;
    x.window = view->x;
    x.mirrored = view->flip;
    y.full = view->height;
    y.window = view->y;
    x.count = y.count = pipeline->size;
    x.filter = y.filter = (enum resize_filter)pipeline->filter;
    if (resizer_begin(&decoder->resizer, &x, &y) < 0)
        return failure_set(request->failure, -ENOMEM,
                           "%s: no memory to resize %ux%u pixels to %ux%u", request->name,
                           view->box.w, view->box.h, view->width, view->height);
    return 0;
}

/* w, h: as stored. */
static int plan_turner(struct decoder *decoder, const struct request *request, uint32_t w,
                       uint32_t h)
{
    const struct resizer *resizer = &decoder->resizer;
    uint32_t up = (1u << decoder->scale) - 1;

    decoder->region = stored_region(resizer, decoder->orientation, (w + up) >> decoder->scale,
                                    (h + up) >> decoder->scale);
    if (decoder->orientation == 1)
        return 0;
    if (turner_begin(&decoder->turner, decoder->orientation, resizer->x.last - resizer->x.first,
                     resizer->y.last - resizer->y.first) < 0)
        return failure_set(request->failure, -ENOMEM, "%s: no memory to turn %ux%u pixels",
                           request->name, w, h);
    return 0;
}

int image_plan(struct decoder *decoder, const struct request *request, uint32_t w, uint32_t h,
               unsigned scale_max)
{
    int rc = 0;

    if (request->whole)
        return image_plan_whole(decoder, request, w, h);
    decoder->orientation =
        request->pipeline->orient ? exif_orientation(request->bytes, request->size) : 1;
    if (decoder->orientation != 1)
        rc = image_check_size(request, w, h, true);
    if (rc < 0)
        return rc;
    bool swaps = orientation_swaps(decoder->orientation);
    uint32_t wide = swaps ? h : w, high = swaps ? w : h;

    decoder->view =
        crop_view(request->pipeline, wide, high, request->seed, request->epoch, request->sample);
    decoder->scale = crop_scale(&decoder->view);
    if (decoder->scale > scale_max)
        decoder->scale = scale_max;
    rc = plan_resizer(decoder, request, wide, high);
    return rc < 0 ? rc : plan_turner(decoder, request, w, h);
}

void image_rows(struct decoder *decoder, const uint8_t *const *rows, uint32_t n_rows)
{
    if (decoder->orientation == 1)
        resizer_rows(&decoder->resizer, rows, n_rows);
    else
        turner_rows(&decoder->turner, rows, n_rows);
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
                           "%s: is %s data; only JPEG, PNG and WebP are decoded", request->name,
                           format);
    if (request->size < 4)
        return failure_set(request->failure, -EBADMSG, "%s: %zu bytes are no image", request->name,
                           request->size);
    return failure_set(request->failure, -EBADMSG,
                       "%s: neither JPEG, PNG nor WebP; starts with bytes %02x %02x %02x %02x",
                       request->name, bytes[0], bytes[1], bytes[2], bytes[3]);
}

/* Notes the format for those who want facts, whatever comes of the rest. */
static void tell_format(const struct request *request, const char *format)
{
    if (request->facts)
        request->facts->format = format;
}

int image_decode(struct decoder *decoder, const struct request *request)
{
    static const uint8_t png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    const uint8_t *bytes = request->bytes;
    size_t size = request->size;

    if (size == 0)
        return failure_set(request->failure, -EBADMSG, "%s: empty file", request->name);
    if (size >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff) {
        tell_format(request, "jpeg");
        return jpeg_decode(decoder, request);
    }
    if (size >= sizeof png && memcmp(bytes, png, sizeof png) == 0) {
        tell_format(request, "png");
        return png_decode(decoder, request);
    }
    if (size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0) {
        tell_format(request, "webp");
        return webp_decode(decoder, request);
    }
    if (size < sizeof png && memcmp(bytes, png, size) == 0)
        return failure_set(request->failure, -EBADMSG, "%s: PNG: cut off after %zu bytes",
                           request->name, size);
    return refuse_format(request);
}

int decoder_image(struct decoder *decoder, const struct pipeline *pipeline, const uint8_t *bytes,
                  size_t size, uint64_t seed, uint64_t epoch, uint64_t sample, uint8_t *out,
                  const char *name, struct failure *failure)
{
    struct request request = {.pipeline = pipeline,
                              .bytes = bytes,
                              .size = size,
                              .seed = seed,
                              .epoch = epoch,
                              .sample = sample,
                              .name = name,
                              .failure = failure};
    int rc = image_decode(decoder, &request);

    if (rc < 0)
        return rc;
    if (decoder->orientation != 1)
        turner_end(&decoder->turner, &decoder->resizer);
    resizer_end(&decoder->resizer, out);
    return 0;
}
