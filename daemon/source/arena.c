/*
 * Memory of an index. Arrays grow by half, or by what the bound has left.
 */
#include "source/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/units.h"

#define ITEMS_MIN 64

static int arena_refuse(const struct arena *arena, struct failure *failure)
{
    char max[32];

    return failure_set(failure, -E2BIG,
                       "source %s: its index would be larger than %s (limits.index)", arena->name,
                       units_format_bytes(arena->max, max, sizeof max));
}

int array_reserve(struct array *array, size_t n, size_t size, struct arena *arena,
                  struct failure *failure)
{
    if (array->capacity - array->n >= n)
        return 0;
    size_t needed = array->n + n;
    size_t capacity = array->capacity + array->capacity / 2;
    if (capacity < needed)
        capacity = needed;
    if (capacity < ITEMS_MIN)
        capacity = ITEMS_MIN;
    if (arena->max > 0) {
        uint64_t left = arena->max > arena->used ? arena->max - arena->used : 0;
        uint64_t most = array->capacity + left / size;
        if (most < needed)
            return arena_refuse(arena, failure);
        if (capacity > most)
            capacity = (size_t)most;
    }
    void *items = reallocarray(array->items, capacity, size);
    if (!items)
        return failure_set(failure, -ENOMEM, "source %s: no memory for an index of %ju bytes",
                           arena->name, (uintmax_t)arena->used);
    arena->used += (capacity - array->capacity) * (uint64_t)size;
    array->items = items;
    array->capacity = capacity;
    return 0;
}

int array_append_string(struct array *array, const char *string, struct arena *arena,
                        uint64_t *position_p, struct failure *failure)
{
    size_t size = strlen(string) + 1;
    int r = array_reserve(array, size, 1, arena, failure);

    if (r < 0)
        return r;
    memcpy((char *)array->items + array->n, string, size);
    *position_p = array->n;
    array->n += size;
    return 0;
}

void array_trim(struct array *array, size_t size)
{
    if (array->n == 0 || array->n == array->capacity)
        return;
    void *items = reallocarray(array->items, array->n, size);
    if (!items)
        return;
    array->items = items;
    array->capacity = array->n;
}

void array_deinit(struct array *array)
{
    free(array->items);
    *array = (struct array){0};
}
