/*
 * Sources: what all kinds have in common. A source is made, indexed by its
 * kind, and lives until its last reference is gone.
 */
#include "source/kind.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/cleanup.h"
#include "proto/dtype.h"

#define BUFFER_STEP ((size_t)64 << 10)
#define PAGE_STEP ((size_t)4096)

static const struct source_ops *ops_of(enum source_kind kind)
{
    switch (kind) {
    case SOURCE_KIND_FOLDER:
        return &source_folder_ops;
    case SOURCE_KIND_TAR:
        return &source_tar_ops;
    case SOURCE_KIND_SYNTHETIC:
        return &source_synthetic_ops;
    case SOURCE_KIND_RECORDS:
        return &source_records_ops;
    case SOURCE_KIND_TOKENS:
        return &source_tokens_ops;
    case SOURCE_KIND_PUSH:
        return &source_push_ops;
    default:
        return NULL;
    }
}

static void source_free(struct source *source)
{
    if (source->index)
        source->ops->free(source);
    free(source->fields);
    free(source->name);
    free(source);
}

static struct source *source_make(const struct source_spec *spec, const struct source_ops *ops)
{
    struct source *source = calloc(1, sizeof *source);

    if (!source)
        return NULL;
    source->ops = ops;
    source->kind = spec->kind;
    atomic_init(&source->refs, 1);
    source->name = strdup(spec->name);
    if (!source->name) {
        free(source);
        return NULL;
    }
    if (spec->identity) {
        source->has_identity = true;
        source->identity = *spec->identity;
    }
    return source;
}

int source_new(const struct source_spec *spec, struct source_progress *progress,
               struct source **source_p, struct failure *failure)
{
    const struct source_ops *ops = ops_of(spec->kind);

    if (!ops)
        return failure_set(failure, -EINVAL, "source %s: unknown kind %d", spec->name,
                           (int)spec->kind);
    struct source *source = source_make(spec, ops);
    if (!source)
        return failure_set(failure, -ENOMEM, "source %s: no memory", spec->name);
    int r = ops->index(source, spec, progress, failure);
    if (r < 0) {
        source_free(source);
        return r;
    }
    *source_p = source;
    return 0;
}

struct source *source_ref(struct source *source)
{
    atomic_fetch_add_explicit(&source->refs, 1, memory_order_relaxed);
    return source;
}

void source_unref(struct source *source)
{
    if (source && atomic_fetch_sub_explicit(&source->refs, 1, memory_order_acq_rel) == 1)
        source_free(source);
}

static bool identity_matches(const struct source *source, const struct source_spec *spec)
{
    const struct identity *a = source_identity(source);
    const struct identity *b = spec->identity;

    if (!a || !b)
        return !a && !b;
    return a->uid == b->uid && a->gid == b->gid && a->n_groups == b->n_groups &&
           memcmp(a->groups, b->groups, a->n_groups * sizeof a->groups[0]) == 0;
}

bool source_matches(const struct source *source, const struct source_spec *spec)
{
    return source->kind == spec->kind && strcmp(source->name, spec->name) == 0 &&
           identity_matches(source, spec) && source->ops->matches(source, spec);
}

const char *source_name(const struct source *source)
{
    return source->name;
}

uint64_t source_samples(const struct source *source)
{
    return source->samples;
}

uint64_t source_fingerprint(const struct source *source)
{
    return source->fingerprint;
}

uint64_t source_skipped(const struct source *source)
{
    return source->skipped;
}

uint64_t source_classes(const struct source *source)
{
    return source->classes;
}

int source_shape(const struct source *source, uint32_t *shape_p, size_t *n_dims_p,
                 enum sample_dtype *dtype_p)
{
    if (!source->ops->shape)
        return -EINVAL;
    return source->ops->shape(source, shape_p, n_dims_p, dtype_p);
}

const char *source_tensor(const struct source *source)
{
    return source->tensor ? source->tensor : "data";
}

size_t source_fields(const struct source *source, const struct source_field **fields_p)
{
    *fields_p = source->fields;
    return source->n_fields;
}

bool source_is_composed(const struct source *source)
{
    return source->ops->shape && !source->ops->fill && source->ops->read;
}

static int index_check(const struct source *source, uint64_t index, struct failure *failure)
{
    if (index < source->samples)
        return 0;
    return failure_set(failure, -EINVAL, "source %s: no sample %ju, there are %ju", source->name,
                       (uintmax_t)index, (uintmax_t)source->samples);
}

int source_read(struct source *source, uint64_t index, struct sample *sample,
                struct failure *failure)
{
    if (!source->ops->read)
        return failure_set(failure, -EINVAL, "source %s: its samples are raw, not encoded",
                           source->name);
    int r = index_check(source, index, failure);
    return r < 0 ? r : source->ops->read(source, index, sample, failure);
}

int source_try_read(struct source *source, uint64_t index, struct sample *sample,
                    struct failure *failure)
{
    if (!source->ops->try_read)
        return 1;
    int r = index_check(source, index, failure);
    return r < 0 ? r : source->ops->try_read(source, index, sample, failure);
}

int source_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                int64_t *label_p, struct failure *failure)
{
    if (!source->ops->fill)
        return failure_set(failure, -EINVAL, "source %s: its samples are encoded, not raw",
                           source->name);
    int r = index_check(source, index, failure);
    return r < 0 ? r : source->ops->fill(source, index, key, out, label_p, failure);
}

int source_try_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                    int64_t *label_p, struct failure *failure)
{
    if (!source->ops->try_fill)
        return source_fill(source, index, key, out, label_p, failure);
    int r = index_check(source, index, failure);
    return r < 0 ? r : source->ops->try_fill(source, index, key, out, label_p, failure);
}

int source_field_fill(const struct source *source, uint64_t index, struct sample_key key,
                      const struct sample *sample, size_t field, void *out, struct failure *failure)
{
    if (!source->ops->field || field > source->n_fields)
        return failure_set(failure, -EINVAL, "source %s: there is no field %zu", source->name,
                           field);
    int r = index_check(source, index, failure);
    return r < 0 ? r : source->ops->field(source, index, key, sample, field, out, failure);
}

bool source_may_wait(const struct source *source)
{
    return source->ops->try_read || source->ops->try_fill;
}

/* The bytes of a raw sample; its shape was bounded when it was indexed. */
static uint64_t raw_bytes(const struct source *source)
{
    uint32_t shape[SHAPE_DIMS_MAX];
    size_t n_dims = 0;
    enum sample_dtype dtype = SAMPLE_U8;

    source->ops->shape(source, shape, &n_dims, &dtype);
    uint64_t bytes = dtype_table[dtype].bytes;
    for (size_t i = 0; i < n_dims; i++)
        bytes *= shape[i];
    return bytes;
}

int source_fetch(struct source *source, uint64_t index, struct sample_key key, bool wait,
                 struct sample *sample, struct failure *failure)
{
    if (!source->ops->fill)
        return (wait ? source_read : source_try_read)(source, index, sample, failure);
    uint64_t bytes = raw_bytes(source);
    int r = sample_reserve(sample, bytes, source->name, failure);
    if (r < 0)
        return r;
    sample->bytes = sample->buffer;
    sample->size = bytes;
    return (wait ? source_fill : source_try_fill)(source, index, key, sample->buffer,
                                                  &sample->label, failure);
}

int source_extent(struct source *source, uint64_t index, int *fd_p, uint64_t *offset_p,
                  uint64_t *bytes_p)
{
    if (!source->ops->extent)
        return -EOPNOTSUPP;
    if (index >= source->samples)
        return -EINVAL;
    return source->ops->extent(source, index, fd_p, offset_p, bytes_p);
}

int64_t source_label(const struct source *source, uint64_t index)
{
    return source->ops->label && index < source->samples ? source->ops->label(source, index)
                                                         : LABEL_NONE;
}

int source_extent_check(struct source *source, uint64_t index, struct failure *failure)
{
    char name[FAILURE_TEXT_MAX];
    uint64_t offset, bytes;
    struct stat st;
    int fd;

    int r = source_extent(source, index, &fd, &offset, &bytes);
    if (r < 0)
        return failure_set(failure, r, "source %s: sample %ju lies in no file", source->name,
                           (uintmax_t)index);
    if (fstat(fd, &st) < 0)
        return failure_set(failure, -errno, "%s: %s",
                           source_sample_name(source, index, name, sizeof name), strerror(errno));
    if ((uint64_t)st.st_size < offset + bytes)
        return failure_set(
            failure, -EBADMSG, "%s: the file was cut off to %jd bytes while it was in use",
            source_sample_name(source, index, name, sizeof name), (intmax_t)st.st_size);
    return 0;
}

const char *source_sample_name(const struct source *source, uint64_t index, char *text, size_t size)
{
    if (index >= source->samples) {
        snprintf(text, size, "%s: no sample %ju", source->name, (uintmax_t)index);
        return text;
    }
    return source->ops->sample_name(source, index, text, size);
}

const char *source_sample_place(const struct source *source, uint64_t index, char *text,
                                size_t size)
{
    if (index >= source->samples || !source->ops->sample_place)
        return source_sample_name(source, index, text, size);
    return source->ops->sample_place(source, index, text, size);
}

void sample_deinit(struct sample *sample)
{
    free(sample->buffer);
    *sample = (struct sample){0};
}

/* -- for source kinds ------------------------------------------------------------------------ */

int source_progress_set(const struct source *source, struct source_progress *progress,
                        uint64_t indexed, struct failure *failure)
{
    if (!progress)
        return 0;
    atomic_store_explicit(&progress->indexed, indexed, memory_order_relaxed);
    if (atomic_load_explicit(&progress->cancelled, memory_order_relaxed))
        return failure_set(failure, -ECANCELED,
                           "source %s: indexing was cancelled after %ju samples", source->name,
                           (uintmax_t)indexed);
    return 0;
}

int sample_reserve(struct sample *sample, size_t size, const char *name, struct failure *failure)
{
    if (size <= sample->capacity)
        return 0;
    size_t capacity = (size + size / 4 + BUFFER_STEP) / BUFFER_STEP * BUFFER_STEP;
    if (sample->grow) {
        /* For this one sample, and charged. */
        capacity = (size + PAGE_STEP - 1) / PAGE_STEP * PAGE_STEP;
        int r = sample->grow(sample, capacity);
        if (r < 0)
            return failure_set(failure, r, "%s: no room for its %zu bytes", name, size);
    }
    /* What was in it is not wanted: no realloc, which would copy it. */
    free(sample->buffer);
    sample->bytes = NULL;
    sample->capacity = 0;
    sample->buffer = malloc(capacity);
    if (!sample->buffer)
        return failure_set(failure, -ENOMEM, "%s: no memory to read its %zu bytes", name, size);
    sample->capacity = capacity;
    return 0;
}

int source_read_exactly(int fd, void *bytes, size_t size, uint64_t offset)
{
    uint8_t *to = bytes;

    while (size > 0) {
        ssize_t n = pread(fd, to, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -ENODATA;
        to += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

/* Some file systems cannot tell what is cached; one of them is nothing but cache. */
static bool is_memory(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

int source_read_cached(int fd, void *bytes, size_t size, uint64_t offset)
{
    uint8_t *to = bytes;

    while (size > 0) {
        struct iovec piece = {.iov_base = to, .iov_len = size};
        ssize_t n = preadv2(fd, &piece, 1, (off_t)offset, RWF_NOWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 1;
        if (n < 0 && errno == EOPNOTSUPP)
            return is_memory(fd) ? source_read_exactly(fd, to, size, offset) : 1;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -ENODATA;
        to += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}
