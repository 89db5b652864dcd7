/*
 * WebP: lossy and lossless still images, decoded whole; alpha is left out.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <webp/decode.h>

#include "decode/image.h"
#include "proto/cleanup.h"

static int webp_failure(const struct request *request, VP8StatusCode status)
{
    static const char *const texts[] = {
        [VP8_STATUS_OUT_OF_MEMORY] = "no memory",
        [VP8_STATUS_INVALID_PARAM] = "no image",
        [VP8_STATUS_BITSTREAM_ERROR] = "damaged",
        [VP8_STATUS_UNSUPPORTED_FEATURE] = "of an unknown kind",
        [VP8_STATUS_SUSPENDED] = "premature end of file",
        [VP8_STATUS_NOT_ENOUGH_DATA] = "premature end of file",
    };
    const char *text = NULL;

    if ((size_t)status < sizeof texts / sizeof *texts)
        text = texts[status];
    return failure_set(request->failure, status == VP8_STATUS_OUT_OF_MEMORY ? -ENOMEM : -EBADMSG,
                       "%s: WebP: %s", request->name, text ? text : "cannot be decoded");
}

static void tell_facts(const struct request *request, const WebPBitstreamFeatures *features)
{
    struct image_facts *facts = request->facts;

    if (!facts)
        return;
    facts->width = (uint32_t)features->width;
    facts->height = (uint32_t)features->height;
    snprintf(facts->mode, sizeof facts->mode, "%s%s",
             features->format == 1   ? "lossy"
             : features->format == 2 ? "lossless"
                                     : "mixed",
             features->has_alpha ? ", alpha" : "");
}

/* Feeds the rows that are needed of an RGBA image. */
static void feed(struct decoder *decoder, const uint8_t *pixels, size_t stride)
{
    const struct region *region = &decoder->region;

    for (uint32_t y = region->top; y < region->bottom; y += ROWS_MAX) {
        const uint8_t *rows[ROWS_MAX];
        uint32_t n = region->bottom - y < ROWS_MAX ? region->bottom - y : ROWS_MAX;

        for (uint32_t i = 0; i < n; i++)
            rows[i] = pixels + (y + i) * stride + (size_t)region->left * RESIZE_PIXEL;
        image_rows(decoder, rows, n);
    }
}

int webp_decode(struct decoder *decoder, const struct request *request)
{
    WebPDecoderConfig config;
    cleanup_free uint8_t *pixels = NULL;
    size_t stride, bytes;
    VP8StatusCode status;
    int rc;

    if (!WebPInitDecoderConfig(&config))
        return webp_failure(request, VP8_STATUS_UNSUPPORTED_FEATURE);
    status = WebPGetFeatures(request->bytes, request->size, &config.input);
    if (status != VP8_STATUS_OK)
        return webp_failure(request, status);
    tell_facts(request, &config.input);
    rc = image_check_size(request, (uint64_t)config.input.width, (uint64_t)config.input.height,
                          true);
    if (rc < 0)
        return rc;
    if (config.input.has_animation)
        return failure_set(request->failure, -EBADMSG,
                           "%s: WebP: animated; only still images are decoded", request->name);
    rc = image_plan(decoder, request, (uint32_t)config.input.width, (uint32_t)config.input.height,
                    0);
    if (rc < 0)
        return rc;
    stride = (size_t)config.input.width * RESIZE_PIXEL;
    bytes = stride * (size_t)config.input.height;
    pixels = malloc(bytes + RESIZE_SLACK);
    if (!pixels)
        return webp_failure(request, VP8_STATUS_OUT_OF_MEMORY);
    config.output.colorspace = MODE_RGBA;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = (WebPRGBABuffer){.rgba = pixels, .stride = (int)stride, .size = bytes};
    status = WebPDecode(request->bytes, request->size, &config);
    if (status != VP8_STATUS_OK)
        return webp_failure(request, status);
    feed(decoder, pixels, stride);
    decoder->counts.webp++;
    return 0;
}
