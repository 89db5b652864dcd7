/*
 * Whole images: decoded to their last row at their own size, to tell what they
 * are and what is wrong with them.
 */
#include "decode/exif.h"
#include "decode/image.h"

#include <errno.h>

/* One direction as it is, or all of it in one pixel. */
static struct resize_span span_whole(uint32_t length, bool keep)
{
    uint32_t count = keep ? length : 1;

    return (struct resize_span){.size = length, .length = length, .full = count, .count = count};
}

int image_plan_whole(struct decoder *decoder, const struct request *request, uint32_t w, uint32_t h)
{
    struct resize_span x = span_whole(w, request->keep), y = span_whole(h, request->keep);
    int rc = request->keep ? image_check_size(request, w, h, true) : 0;

    if (rc < 0)
        return rc;
    decoder->view = (struct view){.box = {0, 0, w, h}, .width = x.full, .height = y.full};
    decoder->scale = 0;
    decoder->orientation = 1;
    decoder->region = (struct region){0, w, 0, h};
    if (resizer_begin(&decoder->resizer, &x, &y) < 0)
        return failure_set(request->failure, -ENOMEM, "%s: no memory to hold %ux%u pixels",
                           request->name, w, h);
    return 0;
}

int decoder_whole(struct decoder *decoder, const uint8_t *bytes, size_t size, bool keep,
                  const char *name, struct image_facts *facts_p, struct failure *failure)
{
    struct request request = {.bytes = bytes,
                              .size = size,
                              .name = name,
                              .failure = failure,
                              .whole = true,
                              .keep = keep,
                              .facts = facts_p};

    *facts_p = (struct image_facts){.orientation = exif_orientation(bytes, size)};
    return image_decode(decoder, &request);
}

void decoder_whole_pixels(struct decoder *decoder, uint8_t *out)
{
    resizer_end(&decoder->resizer, out);
}
