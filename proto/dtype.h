/*
 * Element types of tensors: numbered as in the protocol, named as users write
 * them. The daemon's and the client's own enumerations have the same numbers.
 */
#ifndef PINSERVE_DTYPE_H
#define PINSERVE_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct dtype {
    const char *name;
    uint8_t bytes;
};

static const struct dtype dtype_table[] = {
    {"u8", 1},  {"f32", 4}, {"i64", 8}, {"u64", 8}, {"i8", 1},  {"u16", 2},
    {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f16", 2}, {"f64", 8}, {"bf16", 2},
};

#define DTYPES (sizeof dtype_table / sizeof dtype_table[0])
#define DTYPE_NAMES "u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32 and f64"

/* The number of the type that the size bytes of text name, or -1. */
static inline int dtype_find(const char *text, size_t size)
{
    for (size_t i = 0; i < DTYPES; i++) {
        if (strlen(dtype_table[i].name) == size && memcmp(dtype_table[i].name, text, size) == 0)
            return (int)i;
    }
    return -1;
}

#endif
