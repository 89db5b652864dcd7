/*
 * Headers of .npy files: what lies in the file, where, and in which order.
 * Nothing is ever unpickled.
 */
#ifndef PINSERVE_SOURCE_NPY_H
#define PINSERVE_SOURCE_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source/file.h"
#include "source/source.h"

#define NPY_DIMS_MAX 8

struct npy_header {
    enum sample_dtype dtype; /* booleans are u8 */
    bool swapped;            /* the bytes of its elements are in the other order than this CPU's */
    bool fortran;            /* the first dimension varies fastest */
    size_t n_dims;           /* 0: one element */
    uint64_t shape[NPY_DIMS_MAX];
    uint64_t offset; /* of the data, in the file */
    uint64_t bytes;  /* of the data; they are all there */
};

/* Reads the header by pread. -EINVAL: no .npy file, a type that is not served, an odd header, or
 * fewer bytes of data than it tells; in words that name the file. */
int npy_read(const struct source_file *file, struct npy_header *header_p, struct failure *failure);

/* The same for one that is size bytes of a file, from an offset on; that of the data is from there
 * on, too. name is for failures. */
int npy_read_at(int fd, uint64_t offset, uint64_t size, const char *name,
                struct npy_header *header_p, struct failure *failure);

/* The same for one in memory. */
int npy_parse(const uint8_t *bytes, size_t size, const char *name, struct npy_header *header_p,
              struct failure *failure);

#endif
