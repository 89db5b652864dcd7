/*
 * Fuzz target: any bytes as a tar shard, indexed with and without fields, and
 * looked through for a member. What is read of it lies within it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "log.h"
#include "memory_file.h"
#include "proto/dtype.h"
#include "source/source.h"
#include "source/tar_find.h"

#define SAMPLES_READ 16
#define TENSOR_BYTES_MAX (1u << 20) /* larger ones are not filled */

/* 0: too large. */
static size_t tensor_bytes(enum sample_dtype dtype, const uint32_t *shape, size_t n_dims)
{
    size_t bytes = dtype_table[dtype].bytes;

    for (size_t i = 0; i < n_dims; i++) {
        if (__builtin_mul_overflow(bytes, shape[i], &bytes) || bytes > TENSOR_BYTES_MAX)
            return 0;
    }
    return bytes;
}

static void fill_tensor(const struct source *source, uint64_t index, const struct sample *sample,
                        size_t field, size_t bytes)
{
    uint8_t *out = bytes > 0 ? malloc(bytes) : NULL;
    struct failure failure;

    if (out)
        source_field_fill(source, index, (struct sample_key){0}, sample, field, out, &failure);
    free(out);
}

static void fill_tensors(const struct source *source, uint64_t index, const struct sample *sample)
{
    const struct source_field *fields;
    size_t n = source_fields(source, &fields), n_dims = 0;
    enum sample_dtype dtype = SAMPLE_U8;
    uint32_t shape[7];

    if (source_is_composed(source) && source_shape(source, shape, &n_dims, &dtype) == 0)
        fill_tensor(source, index, sample, 0, tensor_bytes(dtype, shape, n_dims));
    for (size_t i = 0; i < n; i++)
        fill_tensor(source, index, sample, i + 1,
                    tensor_bytes(fields[i].dtype, fields[i].shape, fields[i].n_dims));
}

static void read_samples(struct source *source, size_t size)
{
    struct sample sample = {0};
    struct failure failure;
    char text[256];

    for (uint64_t i = 0; i < source_samples(source) && i < SAMPLES_READ; i++) {
        source_sample_name(source, i, text, sizeof text);
        source_sample_place(source, i, text, sizeof text);
        if (source_read(source, i, &sample, &failure) < 0)
            continue;
        if (sample.size > size || sample.bytes < sample.buffer ||
            sample.bytes + sample.size > sample.buffer + sample.capacity)
            abort();
        fill_tensors(source, i, &sample);
    }
    sample_deinit(&sample);
}

static void read_source(int fd, size_t size, const char *fields)
{
    static const char *const names[] = {"x.tar"};
    struct source *source = NULL;
    struct failure failure;
    struct source_spec spec = {.kind = SOURCE_KIND_TAR,
                               .name = "tar:x.tar",
                               .fds = &fd,
                               .fd_names = names,
                               .n_fds = 1,
                               .index_bytes_max = 1 << 24,
                               .fields = fields};

    if (source_new(&spec, NULL, &source, &failure) < 0)
        return;
    read_samples(source, size);
    source_unref(source);
}

static void find_member(int fd, size_t size)
{
    struct source_file file = SOURCE_FILE_INIT;
    struct failure failure;
    uint64_t offset, bytes;

    if (source_file_take(&file, "shard", fd, "x.tar", &failure) < 0)
        abort();
    if (tar_find(&file, "a/1.jpg", &offset, &bytes, &failure) == 0 &&
        (offset > size || bytes > size - offset))
        abort();
    source_file_deinit(&file);
}

static void read_shard(const uint8_t *bytes, size_t size)
{
    static const char *const fields[] = {NULL, "image+json:16+jpg:4000", "npy+cls+e.npy+json:9"};
    int fd = memory_file(bytes, size);

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        read_source(fd, size, fields[i]);
    find_member(fd, size);
    close(fd);
}

/* Puts the sums of headers right, which nobody would hit upon. Whether there was one to do. */
static bool sums_put_right(uint8_t *bytes, size_t size)
{
    enum { BLOCK = 512, SUM = 148, SUM_BYTES = 8, MAGIC = 257 };
    bool any = false;

    for (; size >= BLOCK; bytes += BLOCK, size -= BLOCK) {
        unsigned sum = 0;
        if (memcmp(bytes + MAGIC, "ustar", 5) != 0)
            continue;
        memset(bytes + SUM, ' ', SUM_BYTES);
        for (size_t i = 0; i < BLOCK; i++)
            sum += bytes[i];
        snprintf((char *)bytes + SUM, SUM_BYTES, "%06o", sum);
        any = true;
    }
    return any;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size + 1);

    if (!copy)
        abort();
    log_init(LOG_LEVEL_ERROR, 1);
    memcpy(copy, bytes, size);
    read_shard(copy, size);
    if (sums_put_right(copy, size))
        read_shard(copy, size);
    free(copy);
    return 0;
}
