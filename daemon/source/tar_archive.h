/*
 * The members of a tar, one after the other, without their data.
 */
#ifndef PINSERVE_SOURCE_TAR_ARCHIVE_H
#define PINSERVE_SOURCE_TAR_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "source/file.h"

#define TAR_BLOCK 512u

/* What a header says. Texts live until the visitor returns. */
struct tar_entry {
    const char *name;      /* without a leading "./"; NULL: it cannot be read */
    const char *link;      /* what it is a hard link to, or NULL */
    bool file, directory;  /* neither: another kind, or a symlink */
    bool sparse;           /* its data is not stored as it is */
    uint64_t offset, size; /* of its data; may be beyond the end of a shard that was cut off */
};

/* 0: the next one; anything else ends the walk and is its result. */
typedef int tar_visitor(void *user, const struct tar_entry *entry, struct failure *failure);

/* Visits every member; 0 after the last. Blocks. -EINVAL: the shard is no tar that can be read at
 * any offset, -EBADMSG: it has a bad header; both name the shard. */
int tar_walk(const struct source_file *shard, tar_visitor *visit, void *user,
             struct failure *failure);

/* The end of a member with its padding. */
static inline uint64_t tar_entry_end(const struct tar_entry *entry)
{
    return (entry->offset + entry->size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
}

#endif
