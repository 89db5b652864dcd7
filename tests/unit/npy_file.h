/*
 * .npy files for tests, as NumPy writes them: a header of a given text, padded,
 * and the bytes of the data.
 */
#ifndef PINSERVE_TESTS_NPY_FILE_H
#define PINSERVE_TESTS_NPY_FILE_H

#include <stdint.h>

#include "temp_dir.h"

/* The dictionary's text, "{'descr': ...}"; version 1, 2 or 3. */
static inline bool npy_file_write(const struct temp_dir *in, const char *name, unsigned version,
                                  const char *dictionary, const void *data, size_t data_bytes)
{
    size_t lead = version == 1 ? 10 : 12;
    size_t size = (lead + strlen(dictionary) + 1 + 63) / 64 * 64 - lead;
    uint8_t *bytes = malloc(lead + size + data_bytes);

    if (!bytes)
        return false;
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)version;
    bytes[7] = 0;
    for (size_t i = 8; i < lead; i++)
        bytes[i] = (uint8_t)(size >> 8 * (i - 8));
    memset(bytes + lead, ' ', size);
    memcpy(bytes + lead, dictionary, strlen(dictionary));
    bytes[lead + size - 1] = '\n';
    if (data_bytes > 0)
        memcpy(bytes + lead + size, data, data_bytes);
    bool ok = temp_dir_write(in, name, bytes, lead + size + data_bytes);
    free(bytes);
    return ok;
}

#endif
