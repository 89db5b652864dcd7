/*
 * Reading samples of tar shards: the place of each image is in the index, so a
 * read is one pread from the shard's own fd.
 */
#include "source/tar.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const struct tar_shard *shard_find(const struct tar *tar, uint64_t index)
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
    const struct tar_member *member = &tar_members(tar)[index];

    snprintf(text, size, "%s: %s at %" PRIu64, shard_find(tar, index)->file.name,
             tar_text(tar, member->name), member->offset);
    return text;
}

static const char *tar_sample_place(const struct source *source, uint64_t index, char *text,
                                    size_t size)
{
    const struct tar *tar = source->index;
    const struct tar_member *member = &tar_members(tar)[index];

    snprintf(text, size, "%s:%s@%" PRIu64, shard_find(tar, index)->file.name,
             tar_text(tar, member->name), member->offset);
    return text;
}

/* read_bytes: source_read_exactly or source_read_cached. */
static int tar_read_by(int (*read_bytes)(int fd, void *bytes, size_t size, uint64_t offset),
                       struct source *source, uint64_t index, struct sample *sample,
                       struct failure *failure)
{
    const struct tar *tar = source->index;
    const struct tar_shard *shard = shard_find(tar, index);
    const struct tar_member *member = &tar_members(tar)[index];
    const char *name = tar_text(tar, member->name);

    if (member->size == 0)
        return failure_set(failure, -EBADMSG, "%s: %s at %" PRIu64 " is empty", shard->file.name,
                           name, member->offset);
    int r = sample_reserve(sample, member->size, name, failure);
    if (r < 0)
        return r;
    r = read_bytes(shard->file.fd, sample->buffer, member->size, member->offset);
    if (r == -ENODATA)
        return failure_set(failure, -EBADMSG,
                           "%s: %s at %" PRIu64 ": the shard ends before its %" PRIu32
                           " bytes do; it was cut off since it was indexed",
                           shard->file.name, name, member->offset, member->size);
    if (r < 0)
        return failure_set(failure, r, "%s: %s at %" PRIu64 ": %s", shard->file.name, name,
                           member->offset, strerror(-r));
    if (r > 0)
        return r;
    sample->bytes = sample->buffer;
    sample->size = member->size;
    sample->label = member->label;
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
    return tar_members(source->index)[index].label;
}

static bool tar_matches(const struct source *source, const struct source_spec *spec)
{
    const struct tar *tar = source->index;

    if (tar->n_shards != spec->n_fds)
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
    array_deinit(&tar->text);
    array_deinit(&tar->members);
    free(tar);
}

/* Of what the samples are named, how long they are and what they show; not of where they lie. */
static int tar_fingerprint(struct source *source, const struct tar *tar, struct failure *failure)
{
    const struct tar_member *members = tar_members(tar);
    XXH64_state_t *state = XXH64_createState();

    if (!state)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    XXH64_reset(state, 0);
    for (uint64_t i = 0; i < source->samples; i++) {
        const char *name = tar_text(tar, members[i].name);
        int64_t numbers[2] = {members[i].size, members[i].label};
        XXH64_update(state, name, strlen(name) + 1);
        XXH64_update(state, numbers, sizeof numbers);
    }
    source->fingerprint = XXH64_digest(state);
    XXH64_freeState(state);
    return 0;
}

static int tar_index(struct source *source, const struct source_spec *spec,
                     struct source_progress *progress, struct failure *failure)
{
    struct tar *tar = calloc(1, sizeof *tar);
    int r = 0;

    if (!tar)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    source->index = tar;
    tar->arena = (struct arena){.name = source->name, .max = spec->index_bytes_max};
    if (spec->n_fds == 0)
        return failure_set(failure, -EINVAL, "source %s: no shard came with it", source->name);
    tar->shards = calloc(spec->n_fds, sizeof *tar->shards);
    if (!tar->shards)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    for (size_t i = 0; r == 0 && i < spec->n_fds; i++) {
        tar->n_shards = i + 1;
        r = source_file_take(&tar->shards[i].file, "shard", spec->fds[i], spec->fd_names[i],
                             failure);
        if (r == 0)
            r = tar_shard_index(source, tar, i, progress, failure);
    }
    if (r < 0)
        return r;
    source->samples = tar->members.n;
    if (source->samples == 0)
        return failure_set(
            failure, -ENOENT,
            "source %s: there is no sample in its %zu shards, only %ju other members", source->name,
            tar->n_shards, (uintmax_t)source->skipped);
    array_trim(&tar->text, 1);
    array_trim(&tar->members, sizeof(struct tar_member));
    return tar_fingerprint(source, tar, failure);
}

const struct source_ops source_tar_ops = {
    .name = "tar",
    .index = tar_index,
    .read = tar_read,
    .try_read = tar_try_read,
    .label = tar_label,
    .matches = tar_matches,
    .sample_name = tar_sample_name,
    .sample_place = tar_sample_place,
    .free = tar_free,
};
