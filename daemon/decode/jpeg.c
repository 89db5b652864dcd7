/*
 * JPEG: decodes the rows and columns that the result needs, at a smaller scale
 * where that is exact enough, and nothing else. One decompressor is kept and
 * reused; libjpeg reports errors by a jump, so whatever has to survive one lives
 * in struct jpeg.
 *
 * What counts as bad: anything that makes libjpeg invent pixels. A file that
 * lacks nothing but its EOI marker is whole.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
/* Needs what jpeglib.h includes. */
#include <jerror.h>

#include "decode/image.h"

#define SCANS_MAX 100 /* of a progressive image: each costs a pass over it */

struct jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    int code;   /* what the jump was for */
    bool ended; /* an EOI marker is there */
    char message[JMSG_LENGTH_MAX];
};

_Noreturn static void jpeg_fail(struct jpeg *jpeg, int code)
{
    jpeg->code = code;
    longjmp(jpeg->jump, 1);
}

static void on_error(j_common_ptr common)
{
    struct jpeg *jpeg = common->client_data;

    common->err->format_message(common, jpeg->message);
    switch (common->err->msg_code) {
    case JERR_OUT_OF_MEMORY:
        jpeg_fail(jpeg, -ENOMEM);
    case JERR_IMAGE_TOO_BIG:
        jpeg_fail(jpeg, -EFBIG);
    default:
        jpeg_fail(jpeg, -EBADMSG);
    }
}

/* level -1: a warning; above it, traces. */
static void on_message(j_common_ptr common, int level)
{
    if (level >= 0)
        return;
    switch (common->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
        on_error(common);
        break;
    default:
        break;
    }
}

static void on_output(j_common_ptr common)
{
    (void)common;
}

static void on_progress(j_common_ptr common)
{
    struct jpeg *jpeg = common->client_data;

    if (jpeg->info.input_scan_number > SCANS_MAX) {
        snprintf(jpeg->message, sizeof jpeg->message, "more than %d scans", SCANS_MAX);
        jpeg_fail(jpeg, -EBADMSG);
    }
}

/* What of making a decompressor may jump. */
static int create(struct jpeg *jpeg)
{
    if (setjmp(jpeg->jump))
        return jpeg->code;
    jpeg_create_decompress(&jpeg->info);
    return 0;
}

struct jpeg *jpeg_new(void)
{
    struct jpeg *jpeg = calloc(1, sizeof *jpeg);

    if (!jpeg)
        return NULL;
    jpeg->info.err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = on_error;
    jpeg->errors.emit_message = on_message;
    jpeg->errors.output_message = on_output;
    jpeg->progress.progress_monitor = on_progress;
    jpeg->info.client_data = jpeg;
    if (create(jpeg) < 0) {
        jpeg_free(jpeg);
        return NULL;
    }
    jpeg->info.progress = &jpeg->progress;
    return jpeg;
}

void jpeg_free(struct jpeg *jpeg)
{
    if (!jpeg)
        return;
    jpeg_destroy_decompress(&jpeg->info);
    free(jpeg);
}

/* Whether an EOI marker lies in the compressed data. Two bytes FF D9 occur in it as nothing else,
 * and thumbnails with one of their own are behind the reader by now. */
static bool has_end(const struct jpeg *jpeg)
{
    const uint8_t *bytes = jpeg->info.src->next_input_byte;
    size_t left = jpeg->info.src->bytes_in_buffer;

    while (left > 1) {
        const uint8_t *at = memrchr(bytes, 0xff, left - 1);

        if (!at)
            return false;
        if (at[1] == JPEG_EOI)
            return true;
        left = (size_t)(at - bytes) + 1;
    }
    return false;
}

/* Whether every coefficient came, of a file whose end is missing and whose rows were all read.
 * Arithmetic code does not show where it was cut: what is missing is read as zeros. */
static bool is_complete(const struct jpeg *jpeg)
{
    const struct jpeg_decompress_struct *info = &jpeg->info;

    if (info->arith_code)
        return false;
    for (int i = 0; i < info->num_components; i++) {
        /* Set when the first scan of a component starts. */
        if (!info->comp_info[i].quant_table)
            return false;
        for (int k = 0; info->progressive_mode && k < DCTSIZE2; k++)
            if (info->coef_bits[i][k] != 0)
                return false;
    }
    return true;
}

/* Inks to light, as Pillow does it. Adobe's files hold inks inverted, others do not. */
static void convert_cmyk(uint8_t *row, size_t pixels, bool inverted)
{
    uint8_t invert = inverted ? 0xff : 0;

    for (size_t i = 0; i < pixels; i++, row += 4) {
        unsigned white = 0xffu - (uint8_t)(row[3] ^ invert);

        for (int c = 0; c < 3; c++) {
            unsigned dark = (uint8_t)(row[c] ^ invert) * white + 128;

            dark = ((dark >> 8) + dark) >> 8;
            row[c] = (uint8_t)(white > dark ? white - dark : 0);
        }
    }
}

static void choose_colors(struct jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;

    switch (info->jpeg_color_space) {
    case JCS_CMYK:
    case JCS_YCCK:
        info->out_color_space = JCS_CMYK;
        break;
    case JCS_GRAYSCALE:
    case JCS_RGB:
    case JCS_YCbCr:
        info->out_color_space = JCS_EXT_RGBX;
        break;
    default:
        snprintf(jpeg->message, sizeof jpeg->message, "%d components of unknown colours",
                 info->num_components);
        jpeg_fail(jpeg, -EBADMSG);
    }
}

/* Reads up to ROWS_MAX rows, for the resizer or (discard) for nothing. */
static void read_rows(struct decoder *decoder, uint32_t n, uint32_t column, bool discard)
{
    struct jpeg_decompress_struct *info = &decoder->jpeg->info;
    const uint8_t *rows[ROWS_MAX];
    uint32_t got = 0;

    while (got < n)
        got += jpeg_read_scanlines(info, decoder->rows.row + got, n - got);
    if (discard)
        return;
    for (uint32_t i = 0; i < n; i++) {
        if (info->out_color_space == JCS_CMYK)
            convert_cmyk(decoder->rows.row[i], info->output_width, info->saw_Adobe_marker);
        rows[i] = decoder->rows.row[i] + (size_t)column * RESIZE_PIXEL;
    }
    image_rows(decoder, rows, n);
}

static uint32_t at_most(uint32_t n, uint32_t limit)
{
    return n < limit ? n : limit;
}

/* Whether libjpeg can leave out columns: it forgets that it decodes a component at a larger scale
 * than the others when it is to be enlarged sideways all the same. */
static bool can_crop(const struct jpeg_decompress_struct *info)
{
    for (int i = 0; i < info->num_components; i++) {
        const jpeg_component_info *component = &info->comp_info[i];

        if (component->DCT_scaled_size != info->min_DCT_scaled_size &&
            component->DCT_scaled_size * component->h_samp_factor !=
                info->min_DCT_scaled_size * info->max_h_samp_factor)
            return false;
    }
    return true;
}

/* The rows and columns of decoder->region, after jpeg_start_decompress. */
static int read_region(struct decoder *decoder, bool ended)
{
    struct jpeg *jpeg = decoder->jpeg;
    struct jpeg_decompress_struct *info = &jpeg->info;
    const struct region *region = &decoder->region;
    JDIMENSION left = 0;

    /* Colours of a pixel depend on the columns beside it; at the edge of what is decoded they are
     * made up, so one column more is decoded on either side. */
    if (ended && can_crop(info) && region->right - region->left + 2 < info->output_width) {
        JDIMENSION right = at_most(region->right + 1, info->output_width), width;

        left = region->left > 0 ? region->left - 1 : 0;
        width = right - left;
        jpeg_crop_scanline(info, &left, &width);
    }
    if (rows_reserve(&decoder->rows, info->output_width) < 0) {
        snprintf(jpeg->message, sizeof jpeg->message, "no memory for rows of %u pixels",
                 info->output_width);
        return -ENOMEM;
    }
    if (ended && region->top > 0)
        jpeg_skip_scanlines(info, region->top);
    while (info->output_scanline < region->top)
        read_rows(decoder, at_most(region->top - info->output_scanline, ROWS_MAX), 0, true);
    while (info->output_scanline < region->bottom)
        read_rows(decoder, at_most(region->bottom - info->output_scanline, ROWS_MAX),
                  region->left - left, false);
    if (ended)
        return 0;
    while (info->output_scanline < info->output_height)
        read_rows(decoder, at_most(info->output_height - info->output_scanline, ROWS_MAX), 0, true);
    if (is_complete(jpeg))
        return 0;
    snprintf(jpeg->message, sizeof jpeg->message, "premature end of file");
    return -EBADMSG;
}

static void tell_facts(const struct jpeg *jpeg, struct image_facts *facts)
{
    static const char *const spaces[] = {
        [JCS_GRAYSCALE] = "gray", [JCS_RGB] = "rgb",   [JCS_YCbCr] = "ycbcr",
        [JCS_CMYK] = "cmyk",      [JCS_YCCK] = "ycck",
    };
    const struct jpeg_decompress_struct *info = &jpeg->info;
    const jpeg_component_info *first = info->comp_info;
    const char *space = NULL;
    char sampling[16] = "";

    if (!facts)
        return;
    facts->width = info->image_width;
    facts->height = info->image_height;
    if ((size_t)info->jpeg_color_space < sizeof spaces / sizeof *spaces)
        space = spaces[info->jpeg_color_space];
    if (info->jpeg_color_space == JCS_YCbCr || info->jpeg_color_space == JCS_YCCK)
        snprintf(sampling, sizeof sampling, " %dx%d", first->h_samp_factor, first->v_samp_factor);
    snprintf(facts->mode, sizeof facts->mode, "%s%s%s%s", space ? space : "unknown", sampling,
             info->progressive_mode ? ", progressive" : "", info->arith_code ? ", arithmetic" : "");
}

/* Everything that may jump. */
static int decode(struct decoder *decoder, const struct request *request)
{
    struct jpeg *jpeg = decoder->jpeg;
    struct jpeg_decompress_struct *info = &jpeg->info;
    int rc;

    jpeg_mem_src(info, request->bytes, request->size);
    jpeg_read_header(info, TRUE);
    tell_facts(jpeg, request->facts);
    rc = image_check_size(request, info->image_width, info->image_height,
                          jpeg_has_multiple_scans(info));
    if (rc < 0)
        return rc;
    choose_colors(jpeg);
    jpeg->ended = has_end(jpeg);
    rc = image_plan(decoder, request, info->image_width, info->image_height, 3);
    if (rc < 0)
        return rc;
    info->scale_num = 1;
    info->scale_denom = 1u << decoder->scale;
    info->dct_method = JDCT_ISLOW;
    info->do_fancy_upsampling = TRUE;
    jpeg_start_decompress(info);
    return read_region(decoder, jpeg->ended);
}

int jpeg_decode(struct decoder *decoder, const struct request *request)
{
    struct jpeg *jpeg = decoder->jpeg;
    int rc;

    jpeg->code = 0;
    jpeg->message[0] = 0;
    if (setjmp(jpeg->jump))
        rc = jpeg->code;
    else
        rc = decode(decoder, request);
    jpeg_abort_decompress(&jpeg->info);
    if (rc < 0 && jpeg->message[0])
        return failure_set(request->failure, rc, "%s: JPEG: %s", request->name, jpeg->message);
    if (rc < 0)
        return rc;
    decoder->counts.jpeg[decoder->scale]++;
    decoder->counts.without_end += !jpeg->ended;
    if (request->facts)
        request->facts->without_end = !jpeg->ended;
    decoder->counts.plain_inks +=
        jpeg->info.out_color_space == JCS_CMYK && !jpeg->info.saw_Adobe_marker;
    return 0;
}
