/*
 * Tar shards as WebDataset writes them: members whose names differ behind the
 * first dot of the base name only are the fields of one sample. tar.c reads
 * samples, tar_index.c makes the index that both know.
 */
#ifndef PINSERVE_SOURCE_TAR_H
#define PINSERVE_SOURCE_TAR_H

#include "source/arena.h"
#include "source/file.h"
#include "source/kind.h"

struct tar_shard {
    struct source_file file;
    uint64_t first_sample;
};

/* One sample: where its image lies in its shard. */
struct tar_member {
    uint64_t offset;
    uint64_t name; /* in text */
    int64_t label;
    uint32_t size;
};

struct tar {
    struct arena arena;
    struct array text;    /* char: names of the images */
    struct array members; /* struct tar_member */
    struct tar_shard *shards;
    size_t n_shards;
};

static inline const struct tar_member *tar_members(const struct tar *tar)
{
    return tar->members.items;
}

static inline const char *tar_text(const struct tar *tar, uint64_t position)
{
    return (const char *)tar->text.items + position;
}

/* Where the field begins in a member's name: behind the first dot of the base name. NULL: the name
 * has no field, or no key. */
const char *tar_field(const char *name);

/* Appends the samples of one shard. */
int tar_shard_index(struct source *source, struct tar *tar, size_t shard,
                    struct source_progress *progress, struct failure *failure);

#endif
