/*
 * The elements of arrays, from the order of a file to C order and from its byte
 * order to this CPU's.
 */
#ifndef PINSERVE_SOURCE_NPY_ORDER_H
#define PINSERVE_SOURCE_NPY_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "source/npy.h"

/* Turns the bytes of each of n elements around, in place. */
void npy_swap(void *bytes, size_t n, size_t width);

/* Goes through an array in Fortran order: the first dimension varies fastest. */
struct npy_walk {
    const uint32_t *shape;
    size_t n_dims;
    uint32_t at[NPY_DIMS_MAX];
    uint64_t steps[NPY_DIMS_MAX]; /* elements of the array in C order */
    uint64_t place;               /* in that, elements */
};

static inline void npy_walk_begin(struct npy_walk *walk, const uint32_t *shape, size_t n_dims)
{
    uint64_t step = 1;

    *walk = (struct npy_walk){.shape = shape, .n_dims = n_dims};
    for (size_t i = n_dims; i-- > 0;) {
        walk->steps[i] = step;
        step *= shape[i];
    }
}

static inline void npy_walk_next(struct npy_walk *walk)
{
    for (size_t i = 0; i < walk->n_dims; i++) {
        walk->place += walk->steps[i];
        if (++walk->at[i] < walk->shape[i])
            return;
        walk->place -= walk->steps[i] * walk->shape[i];
        walk->at[i] = 0;
    }
}

/* The whole array that header tells of, at data, to out. shape: the header's, within 32 bits. */
void npy_copy(const struct npy_header *header, const uint32_t *shape, const uint8_t *data,
              uint8_t *out);

#endif
