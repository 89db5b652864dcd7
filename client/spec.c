/*
 * The public spec: its setters check what a text or a number can be wrong in
 * by itself. What depends on the data, the device or the limits, the daemon
 * checks. A value that is refused leaves the spec as it was.
 */
#include "spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "parse.h"
#include "proto/cleanup.h"
#include "proto/token.h"

#define DEPTH_DEFAULT 4
#define AREA_MIN_PPM 80000
#define AREA_MAX_PPM 1000000
#define RATIO_MIN_PPM 750000
#define RATIO_MAX_PPM 1333333

int pinclient_spec_new(struct pinclient_spec **spec_p)
{
    struct pinclient_spec *spec = calloc(1, sizeof *spec);

    if (!spec)
        return -ENOMEM;
    handle_init(&spec->handle, HANDLE_SPEC);
    pinserve__source__init(&spec->source);
    pinserve__pipeline__init(&spec->pipeline);
    pinserve__order__init(&spec->order);
    spec->order.world = 1;
    spec->batch = 1;
    spec->depth = DEPTH_DEFAULT;
    spec->device = strdup("auto");
    spec->name = strdup(program_invocation_short_name);
    if (!spec->device || !spec->name) {
        pinclient_spec_free(spec);
        return -ENOMEM;
    }
    *spec_p = spec;
    return 0;
}

void pinclient_spec_free(struct pinclient_spec *spec)
{
    if (!spec)
        return;
    if (spec->token)
        pinserve__resume_token__free_unpacked(spec->token, NULL);
    spec_push_free(spec->push);
    free(spec->source_text);
    free(spec->source_path);
    free(spec->labels_path);
    free(spec->list_path);
    free(spec->blend);
    free(spec->device);
    free(spec->name);
    free(spec);
}

/* The source's text says all about it but seq. */
struct pinclient_spec *spec_clone(const struct pinclient_spec *spec)
{
    struct pinclient_spec *clone;

    if (pinclient_spec_new(&clone) < 0)
        return NULL;
    if (pinclient_spec_source(clone, spec->source_text) < 0 ||
        spec_text_replace(clone, &clone->device, spec->device) < 0 ||
        spec_text_replace(clone, &clone->name, spec->name) < 0) {
        pinclient_spec_free(clone);
        return NULL;
    }
    clone->source.seq = spec->source.seq;
    clone->pipeline = spec->pipeline;
    clone->order = spec->order;
    clone->batch = spec->batch;
    clone->depth = spec->depth;
    clone->delivery = spec->delivery;
    clone->bad = spec->bad;
    clone->has_bad_limit = spec->has_bad_limit;
    clone->bad_limit = spec->bad_limit;
    return clone;
}

void spec_open_job(const struct pinclient_spec *spec, Pinserve__OpenJob *open)
{
    open->source = (Pinserve__Source *)&spec->source;
    open->pipeline = (Pinserve__Pipeline *)&spec->pipeline;
    open->order = (Pinserve__Order *)&spec->order;
    open->batch = spec->batch;
    open->depth = spec->depth;
    open->delivery = spec->delivery;
    open->start = spec->token  ? PINSERVE__START__START_TOKEN
                  : spec->live ? PINSERVE__START__START_LIVE
                               : PINSERVE__START__START_CURSOR;
    open->epoch = spec->epoch;
    open->step = spec->step;
    open->token = spec->token;
    open->bad = spec->bad;
    open->bad_limit = spec->has_bad_limit ? (Pinserve__BadLimit *)&spec->bad_limit : NULL;
    open->name = spec->name;
}

int spec_text_replace(struct pinclient_spec *spec, char **text_p, const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        return failure_set(spec->handle.failure, -ENOMEM, "no memory for \"%.64s\"", text);
    free(*text_p);
    *text_p = copy;
    return 0;
}

/* "filter=bicubic" or "orient=exif", which every crop has; 1: the option is none of these. */
static int image_option(const char *image, struct parse_text option, Pinserve__Pipeline *pipeline,
                        struct failure *failure)
{
    struct parse_text value = option;
    struct parse_text key = parse_cut(&value, '=');

    if (key.last || (!parse_is(key, "filter") && !parse_is(key, "orient")))
        return 1;
    if (parse_is(option, "filter=bilinear"))
        pipeline->filter = PINSERVE__FILTER__FILTER_BILINEAR;
    else if (parse_is(option, "filter=bicubic"))
        pipeline->filter = PINSERVE__FILTER__FILTER_BICUBIC;
    else if (parse_is(option, "orient=exif"))
        pipeline->orient = true;
    else
        return failure_set(failure, -EINVAL,
                           "image \"%.200s\": \"%.*s\": write filter=bilinear, filter=bicubic or "
                           "orient=exif",
                           image, (int)option.size, option.text);
    return 0;
}

/* "area=0.08..1" or "ratio=3/4..4/3" after the size of a random crop. */
static int crop_option(const char *image, struct parse_text option, Pinserve__Pipeline *pipeline,
                       struct failure *failure)
{
    struct parse_text key = parse_cut(&option, '=');
    uint64_t low, high;
    bool area = parse_is(key, "area");

    if (key.last || (!area && !parse_is(key, "ratio")))
        return failure_set(failure, -EINVAL,
                           "image \"%.200s\": \"%.*s\" is no option: area=A..B, ratio=A..B, "
                           "filter=bicubic or orient=exif",
                           image, (int)key.size, key.text);
    if (parse_range_ppm(option, &low, &high) < 0 || low == 0 || low > high ||
        high > (area ? 1000000 : 1000000000))
        return failure_set(
            failure, -EINVAL, "image \"%.200s\": \"%.*s\" is no range of %s: like %s", image,
            (int)option.size, option.text, area ? "areas (shares of 1)" : "ratios (width / height)",
            area ? "0.08..1" : "3/4..4/3");
    if (area) {
        pipeline->area_min_ppm = (uint32_t)low;
        pipeline->area_max_ppm = (uint32_t)high;
    } else {
        pipeline->ratio_min_ppm = (uint32_t)low;
        pipeline->ratio_max_ppm = (uint32_t)high;
    }
    return 0;
}

static int pixels_parse(const char *image, struct parse_text text, uint32_t *pixels_p,
                        struct failure *failure)
{
    uint64_t value;

    if (parse_whole(text, UINT16_MAX, &value) < 0 || value == 0)
        return failure_set(failure, -EINVAL,
                           "image \"%.200s\": \"%.*s\" is no number of pixels from 1 to %d", image,
                           (int)text.size, text.text, UINT16_MAX);
    *pixels_p = (uint32_t)value;
    return 0;
}

static int random_crop_parse(const char *image, struct parse_text text,
                             Pinserve__Pipeline *pipeline, struct failure *failure)
{
    struct parse_text part = parse_cut(&text, ',');
    int r = pixels_parse(image, part, &pipeline->size, failure);

    pipeline->crop = PINSERVE__CROP_KIND__CROP_RANDOM;
    pipeline->area_min_ppm = AREA_MIN_PPM;
    pipeline->area_max_ppm = AREA_MAX_PPM;
    pipeline->ratio_min_ppm = RATIO_MIN_PPM;
    pipeline->ratio_max_ppm = RATIO_MAX_PPM;
    while (r == 0 && !part.last) {
        part = parse_cut(&text, ',');
        r = image_option(image, part, pipeline, failure);
        if (r > 0)
            r = crop_option(image, part, pipeline, failure);
    }
    return r;
}

static int center_crop_parse(const char *image, struct parse_text text,
                             Pinserve__Pipeline *pipeline, struct failure *failure)
{
    struct parse_text option = parse_cut(&text, ','), sizes = option;
    struct parse_text size = parse_cut(&sizes, ':');
    int r = pixels_parse(image, size, &pipeline->size, failure);

    pipeline->crop = PINSERVE__CROP_KIND__CROP_CENTER;
    if (r == 0 && size.last)
        pipeline->resize = (pipeline->size * 16 + 7) / 14;
    else if (r == 0)
        r = pixels_parse(image, sizes, &pipeline->resize, failure);
    while (r == 0 && !option.last) {
        option = parse_cut(&text, ',');
        r = image_option(image, option, pipeline, failure);
    }
    if (r > 0)
        return failure_set(failure, -EINVAL,
                           "image \"%.200s\": \"%.*s\" is no option: filter=bicubic or orient=exif",
                           image, (int)option.size, option.text);
    if (r == 0 && pipeline->resize < pipeline->size)
        return failure_set(failure, -EINVAL,
                           "image \"%.200s\": a crop of %u pixels does not fit a shorter side of "
                           "%u",
                           image, pipeline->size, pipeline->resize);
    return r;
}

int pinclient_spec_image(struct pinclient_spec *spec, const char *image)
{
    Pinserve__Pipeline parsed = PINSERVE__PIPELINE__INIT;
    struct parse_text text = parse_from(image);
    struct parse_text kind = parse_cut(&text, ':');
    int r = 0;

    if (parse_is(kind, "random-crop") && !kind.last)
        r = random_crop_parse(image, text, &parsed, spec->handle.failure);
    else if (parse_is(kind, "center-crop") && !kind.last)
        r = center_crop_parse(image, text, &parsed, spec->handle.failure);
    else if (!parse_is(kind, "none") || !kind.last)
        r = failure_set(spec->handle.failure, -EINVAL,
                        "image \"%.200s\": write random-crop:S, center-crop:S[:R] or none", image);
    if (r < 0)
        return r;
    parsed.flip_ppm = spec->pipeline.flip_ppm;
    spec->pipeline = parsed;
    return 0;
}

int pinclient_spec_flip(struct pinclient_spec *spec, double probability)
{
    if (!(probability >= 0 && probability <= 1))
        return failure_set(spec->handle.failure, -EINVAL, "flip %g: a probability is from 0 to 1",
                           probability);
    spec->pipeline.flip_ppm = (uint32_t)(probability * 1e6 + 0.5);
    return 0;
}

int pinclient_spec_batch(struct pinclient_spec *spec, uint32_t batch)
{
    if (batch < 1 || batch > BATCH_MAX)
        return failure_set(spec->handle.failure, -EINVAL, "batch %u: from 1 to %u samples", batch,
                           BATCH_MAX);
    spec->batch = batch;
    return 0;
}

int pinclient_spec_device(struct pinclient_spec *spec, const char *device)
{
    uint64_t number;
    bool known = strcmp(device, "auto") == 0 || strcmp(device, "host") == 0;

    if (strncmp(device, "cuda:", 5) == 0)
        known = parse_whole(parse_from(device + 5), 1023, &number) == 0;
    else if (strncasecmp(device, "GPU-", 4) == 0 || strncmp(device, "MIG-", 4) == 0)
        known = device[4] && strlen(device) < 100;
    if (!known)
        return failure_set(spec->handle.failure, -EINVAL,
                           "device \"%.200s\": write auto, host, cuda:N, or a GPU's UUID or the "
                           "beginning of it (GPU-8f1c)",
                           device);
    return spec_text_replace(spec, &spec->device, device);
}

/* The number of text in a list, or -EINVAL with all of the list. */
static int word_find(struct pinclient_spec *spec, const char *what, const char *text,
                     const char *const *words, size_t n)
{
    char list[128] = "";
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, words[i]) == 0)
            return (int)i;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    }
    return failure_set(spec->handle.failure, -EINVAL, "%s \"%.200s\": there are %s", what, text,
                       list);
}

int pinclient_spec_delivery(struct pinclient_spec *spec, const char *delivery)
{
    static const char *const words[] = {
        [PINSERVE__DELIVERY__DELIVERY_AUTO] = "auto",
        [PINSERVE__DELIVERY__DELIVERY_FD] = "fd",
        [PINSERVE__DELIVERY__DELIVERY_IPC] = "ipc",
        [PINSERVE__DELIVERY__DELIVERY_COPY] = "copy",
        [PINSERVE__DELIVERY__DELIVERY_HOST] = "host",
        [PINSERVE__DELIVERY__DELIVERY_MAPPED] = "mapped",
    };
    int r = word_find(spec, "delivery", delivery, words, sizeof words / sizeof *words);

    if (r < 0)
        return r;
    spec->delivery = (Pinserve__Delivery)r;
    return 0;
}

int pinclient_spec_depth(struct pinclient_spec *spec, uint32_t depth)
{
    if (depth < 1 || depth > DEPTH_MAX)
        return failure_set(spec->handle.failure, -EINVAL, "depth %u: from 1 to %d batches", depth,
                           DEPTH_MAX);
    spec->depth = depth;
    return 0;
}

int pinclient_spec_seed(struct pinclient_spec *spec, uint64_t seed)
{
    spec->order.seed = seed;
    return 0;
}

int pinclient_spec_shuffle(struct pinclient_spec *spec, const char *shuffle)
{
    static const char *const words[] = {
        [PINSERVE__SHUFFLE__SHUFFLE_FULL] = "full",
        [PINSERVE__SHUFFLE__SHUFFLE_NONE] = "none",
    };
    int r = word_find(spec, "shuffle", shuffle, words, sizeof words / sizeof *words);

    if (r < 0)
        return r;
    spec->order.shuffle = (Pinserve__Shuffle)r;
    return 0;
}

int pinclient_spec_last(struct pinclient_spec *spec, const char *last)
{
    static const char *const words[] = {
        [PINSERVE__LAST__LAST_DROP] = "drop",
        [PINSERVE__LAST__LAST_PAD] = "pad",
        [PINSERVE__LAST__LAST_PARTIAL] = "partial",
    };
    int r = word_find(spec, "last", last, words, sizeof words / sizeof *words);

    if (r < 0)
        return r;
    spec->order.last = (Pinserve__Last)r;
    return 0;
}

int pinclient_spec_shard(struct pinclient_spec *spec, uint32_t rank, uint32_t world)
{
    if (world == 0 || rank >= world)
        return failure_set(spec->handle.failure, -EINVAL,
                           "shard: rank %u of a world of %u: ranks count from 0", rank, world);
    spec->order.rank = rank;
    spec->order.world = world;
    return 0;
}

static void token_replace(struct pinclient_spec *spec, Pinserve__ResumeToken *token_consume)
{
    if (spec->token)
        pinserve__resume_token__free_unpacked(spec->token, NULL);
    spec->token = token_consume;
}

int pinclient_spec_start(struct pinclient_spec *spec, uint64_t epoch, uint64_t step)
{
    token_replace(spec, NULL);
    spec->live = false;
    spec->epoch = epoch;
    spec->step = step;
    return 0;
}

int pinclient_spec_live(struct pinclient_spec *spec)
{
    pinclient_spec_start(spec, 0, 0);
    spec->live = true;
    return 0;
}

int pinclient_spec_token(struct pinclient_spec *spec, const char *token)
{
    Pinserve__ResumeToken *parsed = NULL;
    int r = token_parse(token, &parsed, spec->handle.failure);

    if (r < 0)
        return r;
    token_replace(spec, parsed);
    return 0;
}

int pinclient_spec_reconnect(struct pinclient_spec *spec, int on)
{
    if (on && spec->source.kind == PINSERVE__SOURCE_KIND__SOURCE_PUSH)
        return failure_set(spec->handle.failure, -EINVAL,
                           "\"%.64s\" cannot reconnect: what was filled ends with the daemon",
                           spec->source_text);
    spec->reconnect = on != 0;
    return 0;
}

int pinclient_spec_name(struct pinclient_spec *spec, const char *name)
{
    if (strlen(name) >= NAME_MAX_BYTES)
        return failure_set(spec->handle.failure, -EINVAL, "name \"%.64s...\": over %d bytes", name,
                           NAME_MAX_BYTES - 1);
    return spec_text_replace(spec, &spec->name, name);
}
