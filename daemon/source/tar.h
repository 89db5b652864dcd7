/*
 * Tar shards as WebDataset writes them: members whose names differ behind the
 * first dot of the base name only are the fields of one sample. tar.c reads
 * samples, tar_tensors.c makes tensors of what was read, tar_index.c makes the
 * index that all know, tar_cache.c saves it.
 */
#ifndef PINSERVE_SOURCE_TAR_H
#define PINSERVE_SOURCE_TAR_H

#include "source/arena.h"
#include "source/file.h"
#include "source/kind.h"
#include "source/tar_fields.h"

struct tar_shard {
    struct source_file file;
    uint64_t first_sample;
};

struct tar_sample {
    uint64_t name; /* in text: of the member that is part 0 */
    int64_t label;
};

/* A member that is read: where its bytes lie in the shard. */
struct tar_part {
    uint64_t offset;
    uint32_t size;
    uint32_t zero;
};

struct tar {
    struct arena arena;
    struct tar_fields fields;
    struct array text;    /* char */
    struct array samples; /* struct tar_sample */
    struct array parts;   /* struct tar_part, fields.n_parts a sample */
    struct tar_shard *shards;
    size_t n_shards;
};

static inline const struct tar_sample *tar_samples(const struct tar *tar)
{
    return tar->samples.items;
}

static inline const struct tar_part *tar_parts(const struct tar *tar, uint64_t index)
{
    return (const struct tar_part *)tar->parts.items + index * tar->fields.n_parts;
}

static inline const char *tar_text(const struct tar *tar, uint64_t position)
{
    return (const char *)tar->text.items + position;
}

/* Where the field begins in a member's name: behind the first dot of the base name. NULL: the name
 * has no field, or no key. */
const char *tar_field(const char *name);

/* The shard that a sample is in. */
const struct tar_shard *tar_shard_of(const struct tar *tar, uint64_t index);

/* "shard-000.tar: a/17.json at 10752": the member that a field of a sample is. Returns text. */
const char *tar_part_name(const struct tar *tar, uint64_t index, const struct tar_field *field,
                          char *text, size_t size);
/* Where its bytes are in a buffer that tar.c read the sample into. */
uint64_t tar_part_place(const struct tar *tar, uint64_t index, uint32_t part);

/* Appends the samples of one shard, which begin at its first_sample. */
int tar_shard_index(struct source *source, struct tar *tar, size_t shard,
                    struct source_progress *progress, struct failure *failure);

/* Has the source tell its tensors, once the first sample is known. */
int tar_tensors_init(struct source *source, struct tar *tar, struct failure *failure);
int tar_shape(const struct source *source, uint32_t *shape_p, size_t *n_dims_p,
              enum sample_dtype *dtype_p);
int tar_field_fill(const struct source *source, uint64_t index, struct sample_key key,
                   const struct sample *sample, size_t field, void *out, struct failure *failure);

#endif
