/*
 * Saved indexes: a directory of the daemon's own with a file for each. Whoever
 * wrote a file knows what is in it, and believes none of it unchecked.
 *
 * Nothing here may fail a job: an index that cannot be saved is made again the
 * next time. All functions may be called from any thread, and wait for storage.
 */
#ifndef PINSERVE_SOURCE_INDEX_CACHE_H
#define PINSERVE_SOURCE_INDEX_CACHE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "proto/failure.h"

struct index_cache;

/* Opens a directory, which is made where there is none. When its files have more than bytes_max
 * bytes, the ones that were not used for longest go. A negative errno in words; -EPERM: others may
 * write to it. */
int index_cache_new(const char *path, uint64_t bytes_max, struct index_cache **cache_p,
                    struct failure *failure);
void index_cache_free(struct index_cache *cache);

/* A whole file of at most bytes_max bytes, which the caller frees. -ENOENT: there is none; other
 * errors: it cannot be read. */
int index_cache_read(struct index_cache *cache, uint64_t name, uint64_t bytes_max,
                     uint8_t **bytes_p, size_t *size_p);

/* Puts a file in the place of the one of that name, all of it or nothing. A first failure is
 * logged, none is told. */
void index_cache_write(struct index_cache *cache, uint64_t name, const struct iovec *pieces,
                       int n_pieces);

#endif
