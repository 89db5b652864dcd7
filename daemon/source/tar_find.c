/*
 * Finding a member of a tar: its headers are read until the name comes.
 */
#include "source/tar_find.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "source/tar_archive.h"

#define FOUND 1

struct finder {
    const struct source_file *shard;
    const char *member; /* without a leading "./" */
    uint64_t offset, size;
};

static int finder_visit(void *user, const struct tar_entry *entry, struct failure *failure)
{
    struct finder *finder = user;
    const char *shard = finder->shard->name;
    uint64_t shard_size = source_file_bytes(finder->shard);

    if (!entry->name || strcmp(entry->name, finder->member) != 0)
        return 0;
    if (!entry->file || entry->link || entry->sparse)
        return failure_set(failure, -EBADMSG, "shard %s: %s is no plain file", shard, entry->name);
    if (entry->offset > shard_size || entry->size > shard_size - entry->offset)
        return failure_set(failure, -EBADMSG,
                           "shard %s is cut off at %" PRIu64 ": %s at %" PRIu64 " has %" PRIu64
                           " bytes",
                           shard, shard_size, entry->name, entry->offset, entry->size);
    finder->offset = entry->offset;
    finder->size = entry->size;
    return FOUND;
}

int tar_find(const struct source_file *shard, const char *member, uint64_t *offset_p,
             uint64_t *size_p, struct failure *failure)
{
    struct finder finder = {.shard = shard, .member = member};

    if (strncmp(member, "./", 2) == 0)
        finder.member += 2;
    int r = tar_walk(shard, finder_visit, &finder, failure);
    if (r == 0)
        return failure_set(failure, -ENOENT, "shard %s: there is no member %s", shard->name,
                           member);
    if (r < 0)
        return r;
    *offset_p = finder.offset;
    *size_p = finder.size;
    return 0;
}
