/*
 * Saved indexes of tar shards. One is used only for the file that it was made
 * of: the same file (device and inode), size, times, wanted fields and user,
 * since what one user's file system says of a file is nothing to another.
 */
#ifndef PINSERVE_SOURCE_TAR_CACHE_H
#define PINSERVE_SOURCE_TAR_CACHE_H

#include <time.h>

#include "source/index_cache.h"
#include "source/tar.h"

#define TAR_CACHE_MAGIC UINT64_C(0x7844496e69507254) /* "TrPinIDx", the lowest byte first */
/* Of the format, and of what an index says of the same shard. */
#define TAR_CACHE_VERSION 1

/* In this CPU's byte order, which the magic tells. The text of fields with its NUL follows, zeros
 * to a multiple of 8, then the samples, the parts, the texts, and XXH64 of all that. */
struct tar_cache_header {
    uint64_t magic;
    uint32_t version, n_parts;
    uint64_t dev, inode, bytes;
    int64_t modified_s, modified_ns, changed_s, changed_ns;
    uint64_t uid;
    uint64_t fields_bytes, text_bytes;
    uint64_t samples, skipped;
};

/* How far source and index were before a shard, and when it was begun with. */
struct tar_mark {
    uint64_t samples, text, skipped;
    struct timespec time;
};

void tar_mark_take(const struct source *source, const struct tar *tar, struct tar_mark *mark_p);

/* Appends the samples of a shard. 1: done; 0: there is no saved index that fits, and nothing was
 * appended. -E2BIG, -ENOMEM. cache may be NULL: there is none. */
int tar_cache_load(struct index_cache *cache, struct source *source, struct tar *tar, size_t shard,
                   struct failure *failure);
/* The same from size bytes, aligned for a header; why_p: what is wrong with them when 0. */
int tar_cache_parse(const uint8_t *bytes, size_t size, struct source *source, struct tar *tar,
                    size_t shard, const char **why_p, struct failure *failure);

/* Saves what was appended since mark, if anything, unless the shard changes or has just changed. */
void tar_cache_save(struct index_cache *cache, const struct source *source, const struct tar *tar,
                    size_t shard, const struct tar_mark *mark);

#endif
