/*
 * Fuzz target: any bytes as an .npy file: its header, its records, and as the
 * labels of other records. What is read of it lies within it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"
#include "log.h"
#include "memory_file.h"
#include "proto/dtype.h"
#include "source/npy.h"
#include "source/source.h"

#define RECORD_BYTES_MAX (1u << 20) /* larger ones are not read */
#define RECORDS 16                  /* raw, of one byte, for the labels */

static void read_header(int fd, size_t size)
{
    struct source_file file = SOURCE_FILE_INIT;
    struct npy_header header;
    struct failure failure;

    if (source_file_take(&file, "records", fd, "x.npy", &failure) < 0)
        abort();
    if (npy_read(&file, &header, &failure) == 0 &&
        (header.n_dims > NPY_DIMS_MAX || header.offset > size ||
         header.bytes > size - header.offset))
        abort();
    source_file_deinit(&file);
}

/* The first, one in the middle, the last. */
static void read_records(struct source *source)
{
    uint64_t n = source_samples(source), at[] = {0, n / 2, n - 1};
    uint32_t shape[8];
    size_t n_dims = 0, bytes = 0;
    enum sample_dtype dtype;
    struct failure failure;

    if (source_shape(source, shape, &n_dims, &dtype) < 0)
        abort();
    bytes = dtype_table[dtype].bytes;
    for (size_t i = 0; i < n_dims; i++) {
        if (__builtin_mul_overflow(bytes, shape[i], &bytes))
            return;
    }
    if (bytes > RECORD_BYTES_MAX)
        return;
    uint8_t *out = malloc(bytes);
    if (!out)
        abort();
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        int64_t label;

        source_fill(source, at[i], (struct sample_key){0}, out, &label, &failure);
        source_label(source, at[i]);
    }
    free(out);
}

static void read_source(int *fds, size_t n_fds)
{
    static const char *const names[] = {"x.npy", "labels.npy"};
    struct identity identity = {0};
    struct source_progress progress = {0};
    struct source *source;
    struct failure failure;
    struct source_spec spec = {
        .kind = SOURCE_KIND_RECORDS,
        .name = "records:x.npy",
        .identity = &identity,
        .fds = fds,
        .fd_names = names,
        .n_fds = n_fds,
        .has_labels = n_fds == 2,
    };

    if (n_fds == 2) {
        spec.n_dims = 1;
        spec.shape[0] = 1;
        spec.dtype = SAMPLE_U8;
    }
    if (source_new(&spec, &progress, &source, &failure) < 0)
        return;
    read_records(source);
    source_unref(source);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const uint8_t records[RECORDS];
    log_init(LOG_LEVEL_ERROR, 1);
    int fds[] = {memory_file(records, sizeof records), memory_file(bytes, size)};

    read_header(fds[1], size);
    read_source(fds + 1, 1);
    read_source(fds, 2);
    close(fds[0]);
    close(fds[1]);
    return 0;
}
