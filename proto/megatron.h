/*
 * How an index of Megatron-LM (.idx) begins; client and daemon tell one by it.
 */
#ifndef PINSERVE_MEGATRON_H
#define PINSERVE_MEGATRON_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define MEGATRON_MAGIC "MMIDIDX\0" /* and the text's own NUL: nine bytes */
#define MEGATRON_MAGIC_BYTES sizeof MEGATRON_MAGIC

static inline bool megatron_is_index(const void *bytes, size_t size)
{
    return size >= MEGATRON_MAGIC_BYTES && memcmp(bytes, MEGATRON_MAGIC, MEGATRON_MAGIC_BYTES) == 0;
}

#endif
