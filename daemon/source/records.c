/*
 * Records: an .npy file, or a raw file of a given shape and type; the first
 * dimension counts the samples. A record that lies in the file as it is to be
 * delivered is read straight into the slot. One of a file in Fortran order is
 * gathered element by element, one with foreign byte order is turned in place.
 *
 * Labels are kept in memory with the width that their file has.
 */
#include "source/kind.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "log.h"
#include "proto/cleanup.h"
#include "proto/dtype.h"
#include "source/arena.h"
#include "source/file.h"
#include "source/npy.h"
#include "source/npy_order.h"

#define LABELS_CHUNK ((size_t)4 << 20) /* bytes read between two looks at the progress */
#define GATHER_BYTES 16384             /* read at once of a file in Fortran order */
#define GATHER_STRIDE_MAX 2048         /* bytes between elements from which on each is read alone */

struct records {
    struct source_file file;
    uint64_t offset, record_bytes;
    uint32_t shape[SHAPE_DIMS_MAX]; /* of a record */
    size_t n_dims;
    enum sample_dtype dtype;
    bool raw, swapped, fortran;
    struct source_file labels_file; /* fd -1: none */
    struct array labels;
    struct arena arena;
    enum sample_dtype label_dtype;
    uint64_t hash; /* of the labels */
};

/* -- reading --------------------------------------------------------------------------------- */

static int64_t label_at(const struct records *records, uint64_t index)
{
    const void *labels = records->labels.items;

    if (!labels)
        return LABEL_NONE;
    switch (records->label_dtype) {
    case SAMPLE_U8:
        return ((const uint8_t *)labels)[index];
    case SAMPLE_I8:
        return ((const int8_t *)labels)[index];
    case SAMPLE_U16:
        return ((const uint16_t *)labels)[index];
    case SAMPLE_I16:
        return ((const int16_t *)labels)[index];
    case SAMPLE_U32:
        return ((const uint32_t *)labels)[index];
    case SAMPLE_I32:
        return ((const int32_t *)labels)[index];
    default:
        return ((const int64_t *)labels)[index];
    }
}

static int64_t records_label(const struct source *source, uint64_t index)
{
    return label_at(source->index, index);
}

/* Element k of record i is element i + k * records of the file, where k counts in its order. */
static int record_gather(const struct source *source, uint64_t index, uint8_t *out,
                         source_read_function *read_bytes)
{
    const struct records *records = source->index;
    size_t width = dtype_table[records->dtype].bytes;
    uint64_t n = records->record_bytes / width;
    uint64_t stride = source->samples * width;
    uint64_t at_once = stride > GATHER_STRIDE_MAX ? 1 : (GATHER_BYTES - width) / stride + 1;
    uint8_t buffer[GATHER_BYTES];
    struct npy_walk walk;

    npy_walk_begin(&walk, records->shape, records->n_dims);
    for (uint64_t k = 0; k < n; k += at_once) {
        uint64_t some = n - k < at_once ? n - k : at_once;
        uint64_t offset = records->offset + index * width + k * stride;
        int r = read_bytes(records->file.fd, buffer, (some - 1) * stride + width, offset);
        if (r != 0)
            return r;
        for (uint64_t i = 0; i < some; i++, npy_walk_next(&walk))
            memcpy(out + walk.place * width, buffer + i * stride, width);
    }
    return 0;
}

static int fill_by(struct source *source, uint64_t index, void *out, int64_t *label_p,
                   source_read_function *read_bytes, struct failure *failure)
{
    const struct records *records = source->index;
    size_t width = dtype_table[records->dtype].bytes;
    int r;

    if (records->fortran)
        r = record_gather(source, index, out, read_bytes);
    else
        r = read_bytes(records->file.fd, out, records->record_bytes,
                       records->offset + index * records->record_bytes);
    if (r == -ENODATA)
        return failure_set(failure, -EBADMSG,
                           "%s: record %" PRIu64 " is cut off: the file became shorter than the "
                           "%" PRIu64 " bytes that it had",
                           records->file.name, index, source_file_bytes(&records->file));
    if (r < 0)
        return failure_set(failure, r, "%s: record %" PRIu64 ": %s", records->file.name, index,
                           strerror(-r));
    if (r > 0)
        return r;
    if (records->swapped)
        npy_swap(out, records->record_bytes / width, width);
    *label_p = label_at(records, index);
    return 0;
}

static int records_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                        int64_t *label_p, struct failure *failure)
{
    (void)key;
    return fill_by(source, index, out, label_p, source_read_exactly, failure);
}

static int records_try_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                            int64_t *label_p, struct failure *failure)
{
    (void)key;
    return fill_by(source, index, out, label_p, source_read_cached, failure);
}

static int records_extent(const struct source *source, uint64_t index, int *fd_p,
                          uint64_t *offset_p, uint64_t *bytes_p)
{
    const struct records *records = source->index;

    if (records->fortran || records->swapped)
        return -EOPNOTSUPP;
    *fd_p = records->file.fd;
    *offset_p = records->offset + index * records->record_bytes;
    *bytes_p = records->record_bytes;
    return 0;
}

static int records_shape(const struct source *source, uint32_t *shape_p, size_t *n_dims_p,
                         enum sample_dtype *dtype_p)
{
    const struct records *records = source->index;

    memcpy(shape_p, records->shape, records->n_dims * sizeof shape_p[0]);
    *n_dims_p = records->n_dims;
    *dtype_p = records->dtype;
    return 0;
}

static const char *records_sample_name(const struct source *source, uint64_t index, char *text,
                                       size_t size)
{
    const struct records *records = source->index;

    snprintf(text, size, "%s: record %" PRIu64, records->file.name, index);
    return text;
}

/* -- indexing -------------------------------------------------------------------------------- */

static int npy_take(struct source *source, struct records *records, struct failure *failure)
{
    const char *name = records->file.name;
    struct npy_header header = {0};

    int r = npy_read(&records->file, &header, failure);
    if (r < 0)
        return r;
    source->samples = header.n_dims > 0 ? header.shape[0] : 1;
    if (source->samples == 0)
        return failure_set(failure, -ENOENT, "%s: there is no record in it", name);
    records->n_dims = header.n_dims > 0 ? header.n_dims - 1 : 0;
    for (size_t i = 0; i < records->n_dims; i++) {
        if (header.shape[i + 1] == 0 || header.shape[i + 1] > UINT32_MAX)
            return failure_set(failure, -EINVAL,
                               "%s: dimension %zu of its shape is %" PRIu64
                               "; a record has 1 to %" PRIu32,
                               name, i + 2, header.shape[i + 1], UINT32_MAX);
        records->shape[i] = (uint32_t)header.shape[i + 1];
    }
    records->offset = header.offset;
    records->record_bytes = header.bytes / source->samples;
    records->dtype = header.dtype;
    records->swapped = header.swapped;
    /* With one dimension, both orders are the same. */
    records->fortran = header.fortran && header.n_dims > 1;
    if (records->fortran)
        log_warning("%s: is in Fortran order, so its records lie scattered and are read element by "
                    "element: in C order (numpy.ascontiguousarray) they are read at once",
                    name);
    return 0;
}

static int raw_take(struct source *source, struct records *records, const struct source_spec *spec,
                    struct failure *failure)
{
    uint64_t there = source_file_bytes(&records->file);
    uint64_t bytes = dtype_table[spec->dtype].bytes;

    if (spec->n_dims > SHAPE_DIMS_MAX)
        return failure_set(failure, -EINVAL, "source %s: a shape has 1 to %zu dimensions, not %zu",
                           source->name, SHAPE_DIMS_MAX, spec->n_dims);
    for (size_t i = 0; i < spec->n_dims; i++) {
        if (spec->shape[i] == 0)
            return failure_set(failure, -EINVAL, "source %s: dimension %zu of the shape is 0",
                               source->name, i + 1);
        if (__builtin_mul_overflow(bytes, spec->shape[i], &bytes))
            bytes = UINT64_MAX;
    }
    if (there == 0)
        return failure_set(failure, -ENOENT, "%s: is empty", records->file.name);
    if (there % bytes != 0)
        return failure_set(failure, -EINVAL,
                           "%s: its %" PRIu64 " bytes are not a multiple of %" PRIu64
                           ", the bytes of a record",
                           records->file.name, there, bytes);
    source->samples = there / bytes;
    records->raw = true;
    records->record_bytes = bytes;
    records->dtype = spec->dtype;
    records->n_dims = spec->n_dims;
    memcpy(records->shape, spec->shape, spec->n_dims * sizeof spec->shape[0]);
    return 0;
}

/* One a record, of an integer type. */
static int labels_check(const struct source *source, const struct npy_header *header,
                        const char *name, struct failure *failure)
{
    if (header->n_dims != 1 || header->shape[0] != source->samples)
        return failure_set(failure, -EINVAL,
                           "labels %s: its shape has %zu dimensions, the first of %" PRIu64
                           "; wanted is one label for each of the %" PRIu64 " records",
                           name, header->n_dims, header->n_dims ? header->shape[0] : 1,
                           source->samples);
    if (strchr("bf", dtype_table[header->dtype].name[0]))
        return failure_set(failure, -EINVAL, "labels %s: are of type %s; wanted are integers", name,
                           dtype_table[header->dtype].name);
    return 0;
}

static int labels_read(struct source *source, struct records *records,
                       const struct npy_header *header, struct source_progress *progress,
                       struct failure *failure)
{
    const char *name = records->labels_file.name;
    size_t width = dtype_table[header->dtype].bytes;
    uint8_t *labels = records->labels.items;

    for (uint64_t done = 0; done < header->bytes;) {
        uint64_t some = header->bytes - done < LABELS_CHUNK ? header->bytes - done : LABELS_CHUNK;
        int r = source_read_exactly(records->labels_file.fd, labels + done, some,
                                    header->offset + done);
        if (r < 0)
            return failure_set(failure, r, "labels %s: %s", name, strerror(-r));
        if (header->swapped)
            npy_swap(labels + done, some / width, width);
        done += some;
        r = source_progress_set(source, progress, done / width, failure);
        if (r < 0)
            return r;
    }
    for (uint64_t i = 0; header->dtype == SAMPLE_U64 && i < source->samples; i++) {
        if (((const uint64_t *)records->labels.items)[i] > INT64_MAX)
            return failure_set(failure, -EINVAL,
                               "labels %s: that of record %" PRIu64 " is %" PRIu64
                               ", more than an int64 holds",
                               name, i, ((const uint64_t *)records->labels.items)[i]);
    }
    records->hash = XXH64(labels, header->bytes, 0);
    return 0;
}

static int labels_take(struct source *source, struct records *records,
                       const struct source_spec *spec, struct source_progress *progress,
                       struct failure *failure)
{
    struct npy_header header = {0};

    int r =
        source_file_take(&records->labels_file, "labels", spec->fds[1], spec->fd_names[1], failure);
    if (r == 0)
        r = npy_read(&records->labels_file, &header, failure);
    if (r == 0)
        r = labels_check(source, &header, records->labels_file.name, failure);
    if (r == 0)
        r = array_reserve(&records->labels, source->samples, dtype_table[header.dtype].bytes,
                          &records->arena, failure);
    if (r < 0)
        return r;
    records->label_dtype = header.dtype;
    records->labels.n = source->samples;
    return labels_read(source, records, &header, progress, failure);
}

/* Of names, sizes, types and labels; not of where the files lie. */
static uint64_t records_fingerprint(const struct source *source, const struct records *records)
{
    uint64_t numbers[SHAPE_DIMS_MAX + 5] = {records->record_bytes, source->samples,
                                            (uint64_t)records->dtype, records->hash,
                                            records->labels.n};
    const char *name = source_file_base(&records->file);

    for (size_t i = 0; i < records->n_dims; i++)
        numbers[5 + i] = records->shape[i];
    return XXH64(numbers, sizeof numbers, XXH64(name, strlen(name), 0));
}

static int records_index(struct source *source, const struct source_spec *spec,
                         struct source_progress *progress, struct failure *failure)
{
    struct records *records = calloc(1, sizeof *records);

    if (!records)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    source->index = records;
    records->file.fd = records->labels_file.fd = -1;
    records->arena = (struct arena){.name = source->name, .max = spec->index_bytes_max};
    if (spec->n_fds != 1 + (size_t)spec->has_labels)
        return failure_set(failure, -EINVAL,
                           "source %s: one file%s is wanted, %zu fds came with it", source->name,
                           spec->has_labels ? " and one of labels" : "", spec->n_fds);
    int r = source_file_take(&records->file, "records", spec->fds[0], spec->fd_names[0], failure);
    if (r == 0)
        r = spec->n_dims == 0 ? npy_take(source, records, failure)
                              : raw_take(source, records, spec, failure);
    if (r == 0 && records->record_bytes > RAW_SAMPLE_BYTES_MAX)
        r = failure_set(failure, -E2BIG,
                        "%s: a record of %" PRIu64 " bytes is over the 4 GiB limit",
                        records->file.name, records->record_bytes);
    if (r == 0 && spec->has_labels)
        r = labels_take(source, records, spec, progress, failure);
    if (r < 0)
        return r;
    source->fingerprint = records_fingerprint(source, records);
    return source_progress_set(source, progress, source->samples, failure);
}

static bool records_matches(const struct source *source, const struct source_spec *spec)
{
    const struct records *records = source->index;
    bool has_labels = records->labels_file.fd >= 0;

    if (spec->n_fds != 1 + (size_t)has_labels || spec->has_labels != has_labels ||
        (spec->n_dims > 0) != records->raw)
        return false;
    if (records->raw &&
        (spec->n_dims != records->n_dims || spec->dtype != records->dtype ||
         memcmp(spec->shape, records->shape, records->n_dims * sizeof records->shape[0]) != 0))
        return false;
    return source_file_matches(&records->file, spec->fds[0], spec->fd_names[0]) &&
           (!has_labels ||
            source_file_matches(&records->labels_file, spec->fds[1], spec->fd_names[1]));
}

static void records_free(struct source *source)
{
    struct records *records = source->index;

    source_file_deinit(&records->file);
    source_file_deinit(&records->labels_file);
    array_deinit(&records->labels);
    free(records);
}

const struct source_ops source_records_ops = {
    .name = "records",
    .index = records_index,
    .fill = records_fill,
    .try_fill = records_try_fill,
    .extent = records_extent,
    .label = records_label,
    .shape = records_shape,
    .matches = records_matches,
    .sample_name = records_sample_name,
    .free = records_free,
};
