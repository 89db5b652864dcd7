/*
 * Images for tests, made in memory: pixels that are smooth in places and rough
 * in others, as JPEG of any make and as PNG.
 */
#ifndef PINSERVE_TESTS_IMAGES_H
#define PINSERVE_TESTS_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <spng.h>

struct jpeg_make {
    uint32_t w, h;
    int horizontal, vertical; /* sampling factors of the first component */
    int components;           /* 1, 3, or 4 (inks) */
    J_COLOR_SPACE stored;     /* 0: the usual; JCS_YCCK or JCS_CMYK of 4 components, JCS_RGB of 3 */
    bool progressive, arithmetic;
    bool separate_scans; /* sequential, a scan for each component */
    bool no_adobe;
    unsigned restart_rows;
    int quality;
};

static inline uint32_t image_noise(uint32_t x)
{
    x = (x ^ 61) ^ (x >> 16);
    x *= 9;
    x ^= x >> 4;
    x *= 0x27d4eb2d;
    return x ^ x >> 15;
}

static inline uint8_t image_value(uint32_t x, uint32_t y, uint32_t channel)
{
    uint32_t smooth = x * (3 + channel) / 2 + y * (5 - channel) / 2 + channel * 70;
    uint32_t rough = image_noise(y * 4099 + x * 3 + channel) % 160;

    return (uint8_t)((x / 16 + y / 16) % 2 ? smooth : rough + 40 * channel);
}

static inline uint8_t *image_pixels(uint32_t w, uint32_t h, uint32_t channels)
{
    uint8_t *pixels = malloc((size_t)w * h * channels);

    for (uint32_t y = 0; pixels && y < h; y++)
        for (uint32_t x = 0; x < w; x++)
            for (uint32_t c = 0; c < channels; c++)
                pixels[((size_t)y * w + x) * channels + c] = image_value(x, y, c);
    return pixels;
}

/* One scan a component: what jpeg_simple_progression does not offer. */
static const jpeg_scan_info image_scans[3] = {
    {1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};

/* pixels may be NULL. Returns bytes to be freed. */
static inline uint8_t *image_jpeg(const struct jpeg_make *make, const uint8_t *pixels,
                                  size_t *size_p)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    uint8_t *made = pixels ? NULL : image_pixels(make->w, make->h, (uint32_t)make->components);
    const uint8_t *from = pixels ? pixels : made;
    unsigned char *bytes = NULL;
    unsigned long size = 0;

    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &bytes, &size);
    info.image_width = make->w;
    info.image_height = make->h;
    info.input_components = make->components;
    info.in_color_space = make->components == 1   ? JCS_GRAYSCALE
                          : make->components == 3 ? JCS_RGB
                                                  : JCS_CMYK;
    jpeg_set_defaults(&info);
    if (make->stored)
        jpeg_set_colorspace(&info, make->stored);
    if (make->no_adobe)
        info.write_Adobe_marker = FALSE;
    info.arith_code = make->arithmetic;
    jpeg_set_quality(&info, make->quality ? make->quality : 90, TRUE);
    if (make->horizontal) {
        info.comp_info[0].h_samp_factor = make->horizontal;
        info.comp_info[0].v_samp_factor = make->vertical;
    }
    if (make->progressive)
        jpeg_simple_progression(&info);
    if (make->separate_scans) {
        info.scan_info = image_scans;
        info.num_scans = 3;
    }
    info.restart_in_rows = (int)make->restart_rows;
    jpeg_start_compress(&info, TRUE);
    while (info.next_scanline < info.image_height) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(from + (size_t)info.next_scanline * make->w *
                                                        (unsigned)make->components);

        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    free(made);
    *size_p = size;
    return bytes;
}

struct png_make {
    uint32_t w, h;
    uint8_t color_type, bit_depth;
    bool interlaced;
    const struct spng_plte *palette;
    double gamma; /* 0: no gAMA */
};

static inline uint8_t *image_png(const struct png_make *make, const uint8_t *pixels, size_t bytes,
                                 size_t *size_p)
{
    spng_ctx *context = spng_ctx_new(SPNG_CTX_ENCODER);
    struct spng_ihdr header = {.width = make->w,
                               .height = make->h,
                               .bit_depth = make->bit_depth,
                               .color_type = make->color_type,
                               .interlace_method = make->interlaced};
    struct spng_plte palette;
    void *png = NULL;
    int error;

    *size_p = 0;
    spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
    error = spng_set_ihdr(context, &header);
    if (make->palette) {
        palette = *make->palette;
        error = error ? error : spng_set_plte(context, &palette);
    }
    if (make->gamma > 0)
        error = error ? error : spng_set_gama(context, make->gamma);
    error = error ? error
                  : spng_encode_image(context, pixels, bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    if (error == 0)
        png = spng_get_png_buffer(context, size_p, &error);
    else
        fprintf(stderr, "making a PNG: %s\n", spng_strerror(error));
    spng_ctx_free(context);
    return png;
}

#endif
