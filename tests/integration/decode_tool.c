/*
 * Decodes images as it is told on standard input, for the pixel test. A line
 *
 *     random-crop|center-crop[,bicubic][,exif] SIZE RESIZE FLIP_PPM SEED EPOCH SAMPLE PATH
 *
 * is answered by a line, "X Y W H FLIP SCALE" (the box, whether it is mirrored,
 * and 0..3 for DCT scale 1/1..1/8) and SIZE * SIZE * 3 bytes, or by "error TEXT". A line
 *
 *     whole PATH
 *
 * is answered by "W H ORIENTATION WITHOUT_END FORMAT MODE" and W * H * 3 bytes.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode/image.h"
#include "proto/cleanup.h"

static void close_file(FILE **file)
{
    if (*file)
        fclose(*file);
}

static int read_file(const char *path, uint8_t **bytes_p, size_t *size_p, struct failure *failure)
{
    cleanup(close_file) FILE *file = fopen(path, "rb");
    cleanup_free uint8_t *bytes = NULL;
    long size;

    if (!file)
        return failure_set(failure, -errno, "%s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    bytes = malloc((size_t)size + 1);
    if (!bytes || fread(bytes, 1, (size_t)size, file) != (size_t)size)
        return failure_set(failure, -EIO, "%s: cannot be read", path);
    *bytes_p = steal_ptr(bytes);
    *size_p = (size_t)size;
    return 0;
}

static int answer(struct decoder *decoder, const char *line, struct failure *failure)
{
    struct pipeline pipeline = {0};
    char crop[32], path[4096];
    uint64_t seed, epoch, sample;
    cleanup_free uint8_t *bytes = NULL, *out = NULL;
    const struct view *view = &decoder->view;
    size_t size = 0, out_size;
    int rc;

    /* NOLINTNEXTLINE(cert-err34-c) */
    if (sscanf(line,
               "%31s %" SCNu32 " %" SCNu32 " %" SCNu32 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %4095[^\n]",
               crop, &pipeline.size, &pipeline.resize, &pipeline.flip_ppm, &seed, &epoch, &sample,
               path) != 8)
        return failure_set(failure, -EINVAL, "not understood: %s", line);
    pipeline.crop = strncmp(crop, "center-crop", 11) == 0 ? CROP_KIND_CENTER : CROP_KIND_RANDOM;
    pipeline.filter = strstr(crop, ",bicubic") ? FILTER_KIND_BICUBIC : FILTER_KIND_BILINEAR;
    pipeline.orient = strstr(crop, ",exif");
    rc = pipeline_check(&pipeline, failure);
    if (rc == 0)
        rc = read_file(path, &bytes, &size, failure);
    if (rc < 0)
        return rc;
    out_size = (size_t)pipeline.size * pipeline.size * 3;
    out = malloc(out_size);
    if (!out)
        return failure_set(failure, -ENOMEM, "no memory");
    rc = decoder_image(decoder, &pipeline, bytes, size, seed, epoch, sample, out, path, failure);
    if (rc < 0)
        return rc;
    printf("%u %u %u %u %d %u\n", view->box.x, view->box.y, view->box.w, view->box.h, view->flip,
           decoder->scale);
    fwrite(out, 1, out_size, stdout);
    return 0;
}

static int answer_whole(struct decoder *decoder, const char *path, struct failure *failure)
{
    cleanup_free uint8_t *bytes = NULL, *out = NULL;
    struct image_facts facts = {0};
    size_t size = 0, out_size;
    int rc = read_file(path, &bytes, &size, failure);

    if (rc == 0)
        rc = decoder_whole(decoder, bytes, size, true, path, &facts, failure);
    if (rc < 0)
        return rc;
    out_size = (size_t)facts.width * facts.height * 3;
    out = malloc(out_size + 1);
    if (!out)
        return failure_set(failure, -ENOMEM, "no memory");
    decoder_whole_pixels(decoder, out);
    printf("%u %u %u %d %s %s\n", facts.width, facts.height, facts.orientation, facts.without_end,
           facts.format, facts.mode);
    fwrite(out, 1, out_size, stdout);
    return 0;
}

int main(void)
{
    struct decoder *decoder = decoder_new();
    struct failure failure;
    char line[8192];

    if (!decoder)
        return 1;
    while (fgets(line, sizeof line, stdin)) {
        bool whole = strncmp(line, "whole ", 6) == 0;

        line[strcspn(line, "\n")] = 0;
        if ((whole ? answer_whole(decoder, line + 6, &failure) : answer(decoder, line, &failure)) <
            0)
            printf("error %s\n", failure.text);
        fflush(stdout);
    }
    decoder_free(decoder);
    return 0;
}
