/*
 * Elements of arrays, put in order.
 */
#include "source/npy_order.h"

#include <string.h>

#include "proto/dtype.h"

void npy_swap(void *bytes, size_t n, size_t width)
{
    uint8_t *at = bytes;

    for (size_t i = 0; width == 2 && i < n; i++) {
        uint16_t x;
        memcpy(&x, at + i * 2, 2);
        x = __builtin_bswap16(x);
        memcpy(at + i * 2, &x, 2);
    }
    for (size_t i = 0; width == 4 && i < n; i++) {
        uint32_t x;
        memcpy(&x, at + i * 4, 4);
        x = __builtin_bswap32(x);
        memcpy(at + i * 4, &x, 4);
    }
    for (size_t i = 0; width == 8 && i < n; i++) {
        uint64_t x;
        memcpy(&x, at + i * 8, 8);
        x = __builtin_bswap64(x);
        memcpy(at + i * 8, &x, 8);
    }
}

void npy_copy(const struct npy_header *header, const uint32_t *shape, const uint8_t *data,
              uint8_t *out)
{
    size_t width = dtype_table[header->dtype].bytes;
    uint64_t n = header->bytes / width;
    struct npy_walk walk;

    if (!header->fortran || header->n_dims < 2) {
        memcpy(out, data, header->bytes);
    } else {
        npy_walk_begin(&walk, shape, header->n_dims);
        for (uint64_t i = 0; i < n; i++, npy_walk_next(&walk))
            memcpy(out + walk.place * width, data + i * width, width);
    }
    if (header->swapped)
        npy_swap(out, n, width);
}
