/*
 * Memory of an index: arrays that grow, charged together against the bound on
 * an index. Positions in them stay valid, pointers do not.
 */
#ifndef PINSERVE_SOURCE_ARENA_H
#define PINSERVE_SOURCE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "proto/failure.h"

struct arena {
    const char *name;   /* of the source; borrowed */
    uint64_t used, max; /* bytes; max 0: not bounded */
};

struct array {
    void *items;
    size_t n, capacity; /* items */
};

/* Makes room for n more items of size bytes each. -E2BIG in words when the index grows over its
 * bound, -ENOMEM. */
int array_reserve(struct array *array, size_t n, size_t size, struct arena *arena,
                  struct failure *failure);

/* Appends one string with its NUL to an array of char. */
int array_append_string(struct array *array, const char *string, struct arena *arena,
                        uint64_t *position_p, struct failure *failure);

/* Gives back what is not used; the array grows no more. */
void array_trim(struct array *array, size_t size);

void array_deinit(struct array *array);

#endif
