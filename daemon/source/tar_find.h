/*
 * One member of a tar, by its name, without an index.
 */
#ifndef PINSERVE_SOURCE_TAR_FIND_H
#define PINSERVE_SOURCE_TAR_FIND_H

#include <stdint.h>

#include "source/file.h"

/* Where the bytes of a member lie in its shard; the first of that name. Blocks. -ENOENT: there is
 * none; -EBADMSG: the shard is no tar, or is cut off; -EINVAL: it is compressed; all name the
 * shard. */
int tar_find(const struct source_file *shard, const char *member, uint64_t *offset_p,
             uint64_t *size_p, struct failure *failure);

#endif
