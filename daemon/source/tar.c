/*
 * Reading samples of tar shards: the place of each member is in the index, so a
 * read is one pread from the shard's own fd, or a few where what is wanted of a
 * sample does not lie close together.
 */
#include "source/tar.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "log.h"
#include "source/tar_cache.h"

#define GAPS_MAX ((uint64_t)64 << 10) /* bytes read for nothing rather than once more */

const struct tar_shard *tar_shard_of(const struct tar *tar, uint64_t index)
{
    size_t low = 0;
    size_t high = tar->n_shards;

    /* Shards without samples share their first sample with the next: the last is the one. */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (tar->shards[middle].first_sample <= index)
            low = middle;
        else
            high = middle;
    }
    return &tar->shards[low];
}

static const char *tar_sample_name(const struct source *source, uint64_t index, char *text,
                                   size_t size)
{
    const struct tar *tar = source->index;

    snprintf(text, size, "%s: %s at %" PRIu64, tar_shard_of(tar, index)->file.name,
             tar_text(tar, tar_samples(tar)[index].name), tar_parts(tar, index)->offset);
    return text;
}

static const char *tar_sample_place(const struct source *source, uint64_t index, char *text,
                                    size_t size)
{
    const struct tar *tar = source->index;

    snprintf(text, size, "%s:%s@%" PRIu64, tar_shard_of(tar, index)->file.name,
             tar_text(tar, tar_samples(tar)[index].name), tar_parts(tar, index)->offset);
    return text;
}

const char *tar_part_name(const struct tar *tar, uint64_t index, const struct tar_field *field,
                          char *text, size_t size)
{
    const char *name = tar_text(tar, tar_samples(tar)[index].name);
    const char *shard = tar_shard_of(tar, index)->file.name;
    uint64_t offset = tar_parts(tar, index)[field->part].offset;
    int key = (int)(tar_field(name) - 1 - name);

    if (field->part == 0)
        snprintf(text, size, "%s: %s at %" PRIu64, shard, name, offset);
    else
        snprintf(text, size, "%s: %.*s.%s at %" PRIu64, shard, key, name, field->name, offset);
    return text;
}

/* -- what is read ---------------------------------------------------------------------------- */

/* The bytes of a sample from its first wanted one to its last. */
struct span {
    uint64_t begin, end;
    uint64_t wanted; /* of these */
};

static struct span span_of(const struct tar *tar, uint64_t index)
{
    const struct tar_part *parts = tar_parts(tar, index);
    struct span span = {.begin = UINT64_MAX};

    for (uint32_t i = 0; i < tar->fields.n_parts; i++) {
        uint64_t end = parts[i].offset + parts[i].size;
        span.begin = parts[i].offset < span.begin ? parts[i].offset : span.begin;
        span.end = end > span.end ? end : span.end;
        span.wanted += parts[i].size;
    }
    return span;
}

static bool span_is_dense(const struct span *span)
{
    return span->end - span->begin <= span->wanted + GAPS_MAX;
}

uint64_t tar_part_place(const struct tar *tar, uint64_t index, uint32_t part)
{
    const struct tar_part *parts = tar_parts(tar, index);
    struct span span = span_of(tar, index);
    uint64_t place = 0;

    if (span_is_dense(&span))
        return parts[part].offset - span.begin;
    for (uint32_t i = 0; i < part; i++)
        place += parts[i].size;
    return place;
}

/* What can be told without reading. */
static int sample_check(const struct tar *tar, uint64_t index, struct failure *failure)
{
    const struct tar_part *parts = tar_parts(tar, index);
    char name[FAILURE_TEXT_MAX];

    for (size_t i = 0; i < tar->fields.n; i++) {
        const struct tar_field *field = &tar->fields.fields[i];
        if (field->kind == TAR_FIELD_LABEL)
            continue;
        uint32_t size = parts[field->part].size;
        if (size == 0 && field->kind != TAR_FIELD_BYTES)
            return failure_set(failure, -EBADMSG, "%s is empty",
                               tar_part_name(tar, index, field, name, sizeof name));
        if (size > field->bytes_max && field->kind == TAR_FIELD_BYTES)
            return failure_set(failure, -EBADMSG,
                               "%s has %" PRIu32 " bytes, more than the %" PRIu32
                               " that are asked for (%s:%" PRIu32 ")",
                               tar_part_name(tar, index, field, name, sizeof name), size,
                               field->bytes_max, field->name, field->bytes_max);
    }
    return 0;
}

/* Of the parts that a failed read was for, it can only be known that the last one is not whole. */
static int read_failed(const struct tar *tar, uint64_t index, const struct span *span, int r,
                       struct failure *failure)
{
    const struct tar_part *parts = tar_parts(tar, index);
    const struct tar_field *field = NULL;
    char name[FAILURE_TEXT_MAX];

    for (size_t i = 0; i < tar->fields.n; i++) {
        const struct tar_field *other = &tar->fields.fields[i];
        if (other->kind != TAR_FIELD_LABEL &&
            parts[other->part].offset + parts[other->part].size == span->end)
            field = other;
    }
    if (!field)
        return failure_set(failure, r, "sample %" PRIu64 ": %s", index, strerror(-r));
    tar_part_name(tar, index, field, name, sizeof name);
    if (r != -ENODATA)
        return failure_set(failure, r, "%s: %s", name, strerror(-r));
    return failure_set(failure, -EBADMSG,
                       "%s: the shard ends before its %" PRIu32
                       " bytes do; it was cut off since it was indexed",
                       name, parts[field->part].size);
}

/* read_bytes: source_read_exactly or source_read_cached. */
static int parts_read(source_read_function *read_bytes, const struct tar *tar, uint64_t index,
                      const struct span *span, uint8_t *to, struct failure *failure)
{
    const struct tar_part *parts = tar_parts(tar, index);
    int fd = tar_shard_of(tar, index)->file.fd;
    int r = 0;

    if (span_is_dense(span)) {
        r = read_bytes(fd, to, span->end - span->begin, span->begin);
        return r < 0 ? read_failed(tar, index, span, r, failure) : r;
    }
    for (uint32_t i = 0; r == 0 && i < tar->fields.n_parts; i++) {
        struct span part = {parts[i].offset, parts[i].offset + parts[i].size, 0};
        r = read_bytes(fd, to, parts[i].size, parts[i].offset);
        if (r < 0)
            return read_failed(tar, index, &part, r, failure);
        to += parts[i].size;
    }
    return r;
}

static int tar_read_by(source_read_function *read_bytes, struct source *source, uint64_t index,
                       struct sample *sample, struct failure *failure)
{
    const struct tar *tar = source->index;
    const struct tar_sample *place = &tar_samples(tar)[index];
    struct span span = span_of(tar, index);
    size_t size = span_is_dense(&span) ? span.end - span.begin : span.wanted;

    int r = sample_check(tar, index, failure);
    if (r == 0)
        r = sample_reserve(sample, size > 0 ? size : 1, tar_text(tar, place->name), failure);
    if (r == 0)
        r = parts_read(read_bytes, tar, index, &span, sample->buffer, failure);
    if (r != 0)
        return r;
    sample->bytes = sample->buffer;
    sample->size = size;
    sample->label = place->label;
    if (tar->fields.has_image) {
        sample->bytes += tar_part_place(tar, index, 0);
        sample->size = tar_parts(tar, index)->size;
    }
    return 0;
}

static int tar_read(struct source *source, uint64_t index, struct sample *sample,
                    struct failure *failure)
{
    return tar_read_by(source_read_exactly, source, index, sample, failure);
}

static int tar_try_read(struct source *source, uint64_t index, struct sample *sample,
                        struct failure *failure)
{
    return tar_read_by(source_read_cached, source, index, sample, failure);
}

static int64_t tar_label(const struct source *source, uint64_t index)
{
    const struct tar *tar = source->index;

    return tar_samples(tar)[index].label;
}

static bool text_equal(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool tar_matches(const struct source *source, const struct source_spec *spec)
{
    const struct tar *tar = source->index;

    if (tar->n_shards != spec->n_fds || !text_equal(tar->fields.text, spec->fields))
        return false;
    for (size_t i = 0; i < tar->n_shards; i++) {
        if (!source_file_matches(&tar->shards[i].file, spec->fds[i], spec->fd_names[i]))
            return false;
    }
    return true;
}

static void tar_free(struct source *source)
{
    struct tar *tar = source->index;

    for (size_t i = 0; i < tar->n_shards; i++)
        source_file_deinit(&tar->shards[i].file);
    free(tar->shards);
    tar_fields_deinit(&tar->fields);
    array_deinit(&tar->text);
    array_deinit(&tar->samples);
    array_deinit(&tar->parts);
    free(tar);
}

/* -- indexing -------------------------------------------------------------------------------- */

/* Of what the samples are named, how long they are and what they show; not of where they lie. */
static int tar_fingerprint(struct source *source, const struct tar *tar, struct failure *failure)
{
    XXH64_state_t *state = XXH64_createState();

    if (!state)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    XXH64_reset(state, 0);
    if (tar->fields.text)
        XXH64_update(state, tar->fields.text, strlen(tar->fields.text) + 1);
    for (uint64_t i = 0; i < source->samples; i++) {
        const struct tar_sample *sample = &tar_samples(tar)[i];
        const struct tar_part *parts = tar_parts(tar, i);
        const char *name = tar_text(tar, sample->name);
        int64_t numbers[TAR_FIELDS_MAX + 1];
        uint32_t n = tar->fields.n_parts;
        for (uint32_t k = 0; k < n; k++)
            numbers[k] = parts[k].size;
        numbers[n] = sample->label;
        XXH64_update(state, name, strlen(name) + 1);
        XXH64_update(state, numbers, (n + 1) * sizeof numbers[0]);
    }
    source->fingerprint = XXH64_digest(state);
    XXH64_freeState(state);
    return 0;
}

/* From a saved index, or from the shard. 1: a saved one. */
static int shard_index(struct source *source, struct tar *tar, size_t shard,
                       struct index_cache *cache, struct source_progress *progress,
                       struct failure *failure)
{
    struct tar_mark mark;

    tar_mark_take(source, tar, &mark);
    int saved = tar_cache_load(cache, source, tar, shard, failure);
    if (saved < 0)
        return saved;
    int r = saved ? source_progress_set(source, progress, tar->samples.n, failure)
                  : tar_shard_index(source, tar, shard, progress, failure);
    if (r < 0)
        return r;
    if (!saved)
        tar_cache_save(cache, source, tar, shard, &mark);
    return saved;
}

static int shards_index(struct source *source, struct tar *tar, const struct source_spec *spec,
                        struct source_progress *progress, struct failure *failure)
{
    size_t saved = 0;
    int r = 0;

    for (size_t i = 0; r >= 0 && i < spec->n_fds; i++) {
        tar->n_shards = i + 1;
        tar->shards[i].first_sample = tar->samples.n;
        r = source_file_take(&tar->shards[i].file, "shard", spec->fds[i], spec->fd_names[i],
                             failure);
        if (r == 0)
            r = shard_index(source, tar, i, spec->cache, progress, failure);
        saved += r > 0;
    }
    if (r >= 0 && spec->cache)
        log_info("source %s: the indexes of %zu of its %zu shards were saved ones", source->name,
                 saved, tar->n_shards);
    return r;
}

static int tar_index(struct source *source, const struct source_spec *spec,
                     struct source_progress *progress, struct failure *failure)
{
    struct tar *tar = calloc(1, sizeof *tar);

    if (!tar)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    source->index = tar;
    tar->arena = (struct arena){.name = source->name, .max = spec->index_bytes_max};
    if (spec->n_fds == 0)
        return failure_set(failure, -EINVAL, "source %s: no shard came with it", source->name);
    tar->shards = calloc(spec->n_fds, sizeof *tar->shards);
    if (!tar->shards)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    int r = tar_fields_init(&tar->fields, spec->fields, source->name, failure);
    if (r >= 0)
        r = shards_index(source, tar, spec, progress, failure);
    if (r < 0)
        return r;
    source->samples = tar->samples.n;
    if (source->samples == 0)
        return failure_set(
            failure, -ENOENT,
            "source %s: there is no sample in its %zu shards, only %ju other members", source->name,
            tar->n_shards, (uintmax_t)source->skipped);
    array_trim(&tar->text, 1);
    array_trim(&tar->samples, sizeof(struct tar_sample));
    array_trim(&tar->parts, sizeof(struct tar_part));
    r = tar_tensors_init(source, tar, failure);
    return r < 0 ? r : tar_fingerprint(source, tar, failure);
}

const struct source_ops source_tar_ops = {
    .name = "tar",
    .index = tar_index,
    .read = tar_read,
    .try_read = tar_try_read,
    .field = tar_field_fill,
    .label = tar_label,
    .matches = tar_matches,
    .sample_name = tar_sample_name,
    .sample_place = tar_sample_place,
    .free = tar_free,
};

/* Samples without an image to decode. */
const struct source_ops source_tar_arrays_ops = {
    .name = "tar",
    .read = tar_read,
    .try_read = tar_try_read,
    .field = tar_field_fill,
    .label = tar_label,
    .shape = tar_shape,
    .matches = tar_matches,
    .sample_name = tar_sample_name,
    .sample_place = tar_sample_place,
    .free = tar_free,
};
