/*
 * PNG: decoded to 8 bits a channel; of 16 bits the high byte; palettes and gray
 * become RGB, alpha and gamma are left out. Rows go to the resizer one by one;
 * only interlaced images are held whole. All of the file is read, so that a
 * damaged one is bad whatever the crop.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <spng.h>

#include "decode/image.h"
#include "proto/cleanup.h"

#define CHUNK_BYTES_MAX (16u << 20) /* of texts, profiles and the like, unpacked */

static void free_context(spng_ctx **context)
{
    spng_ctx_free(*context);
}

static int png_failure(const struct request *request, int error)
{
    int code = error == SPNG_EMEM ? -ENOMEM : -EBADMSG;
    const char *text = error == SPNG_IO_EOF ? "premature end of file" : spng_strerror(error);

    return failure_set(request->failure, code, "%s: PNG: %s", request->name, text);
}

/* Rows on their way to the resizer, which takes several at a time with less effort. */
struct pending {
    const uint8_t *row[ROWS_MAX];
    uint32_t n;
};

static void flush_rows(struct decoder *decoder, struct pending *pending)
{
    image_rows(decoder, pending->row, pending->n);
    pending->n = 0;
}

/* Row y of the image, counted from 0; it has to stay until it is flushed. */
static void feed_row(struct decoder *decoder, struct pending *pending, uint32_t y,
                     const uint8_t *row)
{
    const struct region *region = &decoder->region;

    if (y < region->top || y >= region->bottom)
        return;
    pending->row[pending->n++] = row + (size_t)region->left * RESIZE_PIXEL;
    if (pending->n == ROWS_MAX)
        flush_rows(decoder, pending);
}

static int decode_rows(struct decoder *decoder, const struct request *request, spng_ctx *context,
                       const struct spng_ihdr *header)
{
    struct pending pending = {.n = 0};
    int error;

    if (rows_reserve(&decoder->rows, header->width) < 0)
        return png_failure(request, SPNG_EMEM);
    error = spng_decode_image(context, NULL, 0, SPNG_FMT_RGBA8, SPNG_DECODE_PROGRESSIVE);
    if (error)
        return png_failure(request, error);
    for (uint32_t y = 0; y < header->height; y++) {
        uint8_t *row = decoder->rows.row[pending.n];

        error = spng_decode_row(context, row, (size_t)header->width * 4);
        if (error && (error != SPNG_EOI || y + 1 != header->height))
            return png_failure(request, error == SPNG_EOI ? SPNG_IO_EOF : error);
        feed_row(decoder, &pending, y, row);
    }
    flush_rows(decoder, &pending);
    return 0;
}

static int decode_whole(struct decoder *decoder, const struct request *request, spng_ctx *context,
                        const struct spng_ihdr *header)
{
    size_t stride = (size_t)header->width * 4;
    cleanup_free uint8_t *image = malloc(stride * header->height + RESIZE_SLACK);
    struct pending pending = {.n = 0};
    int error;

    if (!image)
        return png_failure(request, SPNG_EMEM);
    error = spng_decode_image(context, image, stride * header->height, SPNG_FMT_RGBA8, 0);
    if (error)
        return png_failure(request, error);
    for (uint32_t y = 0; y < header->height; y++)
        feed_row(decoder, &pending, y, image + y * stride);
    flush_rows(decoder, &pending);
    return 0;
}

static void tell_facts(const struct request *request, const struct spng_ihdr *header)
{
    static const char *const types[] = {
        [SPNG_COLOR_TYPE_GRAYSCALE] = "gray",
        [SPNG_COLOR_TYPE_TRUECOLOR] = "rgb",
        [SPNG_COLOR_TYPE_INDEXED] = "palette",
        [SPNG_COLOR_TYPE_GRAYSCALE_ALPHA] = "gray and alpha",
        [SPNG_COLOR_TYPE_TRUECOLOR_ALPHA] = "rgb and alpha",
    };
    struct image_facts *facts = request->facts;

    if (!facts)
        return;
    facts->width = header->width;
    facts->height = header->height;
    snprintf(facts->mode, sizeof facts->mode, "%s, %u bits%s", types[header->color_type],
             header->bit_depth, header->interlace_method ? ", interlaced" : "");
}

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

int png_decode(struct decoder *decoder, const struct request *request)
{
    cleanup(free_context) spng_ctx *context = spng_ctx_new(0);
    struct spng_ihdr header;
    bool interlaced;
    int error, rc;

    if (!context)
        return png_failure(request, SPNG_EMEM);
    error = spng_set_png_buffer(context, request->bytes, request->size);
    if (error == 0)
        error = spng_set_chunk_limits(context, CHUNK_BYTES_MAX, CHUNK_BYTES_MAX);
    if (error == 0)
        error = spng_set_crc_action(context, SPNG_CRC_ERROR, SPNG_CRC_DISCARD);
    if (error == 0)
        error = spng_get_ihdr(context, &header);
    if (error == SPNG_EOVERFLOW) {
        rc = image_check_size(request, big_endian(request->bytes + 16),
                              big_endian(request->bytes + 20), false);
        if (rc < 0)
            return rc;
    }
    if (error)
        return png_failure(request, error);
    tell_facts(request, &header);
    interlaced = header.interlace_method != 0;
    rc = image_check_size(request, header.width, header.height, interlaced);
    if (rc == 0)
        rc = image_plan(decoder, request, header.width, header.height, 0);
    if (rc == 0)
        rc = (interlaced ? decode_whole : decode_rows)(decoder, request, context, &header);
    if (rc == 0)
        decoder->counts.png++;
    return rc;
}
