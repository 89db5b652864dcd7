/*
 * Fuzz target: any bytes as an image, by every crop, upright and as stored,
 * and whole. libFuzzer calls it, or replay.c with the files of a corpus.
 */
#include <stdint.h>
#include <stdlib.h>

#include "decode/decode.h"
#include "fuzz.h"

#define SIZE 24

static void decode_crops(struct decoder *decoder, const uint8_t *bytes, size_t size)
{
    struct pipeline pipelines[] = {
        {.crop = CROP_KIND_RANDOM, .size = SIZE, .orient = true, .filter = FILTER_KIND_BICUBIC},
        {.crop = CROP_KIND_CENTER, .size = SIZE / 2, .orient = true},
        {.crop = CROP_KIND_RANDOM, .size = SIZE / 3, .flip_ppm = 500000},
    };
    static uint8_t out[SIZE * SIZE * 3];
    struct failure failure;

    for (size_t i = 0; i < sizeof pipelines / sizeof *pipelines; i++) {
        if (pipeline_check(&pipelines[i], NULL) < 0)
            abort();
        decoder_image(decoder, &pipelines[i], bytes, size, 1, 2, size + i, out, "x", &failure);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct decoder *decoder; /* one that has seen other files, as a worker's */
    struct image_facts facts;
    struct failure failure;

    if (!decoder)
        decoder = decoder_new();
    if (!decoder)
        abort();
    decode_crops(decoder, bytes, size);
    if (decoder_whole(decoder, bytes, size, true, "x", &facts, &failure) < 0)
        return 0;
    uint8_t *pixels = malloc((size_t)facts.width * facts.height * 3);

    if (!pixels)
        abort();
    decoder_whole_pixels(decoder, pixels);
    free(pixels);
    return 0;
}
