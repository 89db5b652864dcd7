/*
 * What the kinds of sources share: the source itself, which source.c makes and
 * frees, and whose fields a kind's index function fills. After indexing it is
 * immutable but for its count of references.
 */
#ifndef PINSERVE_SOURCE_KIND_H
#define PINSERVE_SOURCE_KIND_H

#include "source/source.h"

#define SAMPLE_BYTES_MAX (UINT64_C(256) << 20)   /* of one encoded sample */
#define RAW_SAMPLE_BYTES_MAX (UINT64_C(1) << 32) /* of one raw sample */
#define SHAPE_DIMS_MAX (sizeof((struct source_spec *)0)->shape / sizeof(uint32_t))

struct source {
    const struct source_ops *ops;
    _Atomic unsigned refs;
    enum source_kind kind;
    char *name;
    bool has_identity;
    struct identity identity; /* of the peer that asked first */

    uint64_t samples;
    uint64_t fingerprint;
    uint64_t skipped;
    uint64_t classes;
    const char *tensor;          /* of the first tensor; NULL: "data" */
    struct source_field *fields; /* the other tensors; source.c frees the array, not the names */
    size_t n_fields;
    void *index; /* of the kind; ops->free frees it, also when indexing failed half-way */
};

extern const struct source_ops source_folder_ops;
extern const struct source_ops source_tar_ops;
extern const struct source_ops source_tar_arrays_ops;
extern const struct source_ops source_synthetic_ops;
extern const struct source_ops source_records_ops;
extern const struct source_ops source_tokens_ops;
extern const struct source_ops source_push_ops;

/* NULL: the daemon's own. */
static inline const struct identity *source_identity(const struct source *source)
{
    return source->has_identity ? &source->identity : NULL;
}

/* Tells how far indexing is. -ECANCELED in words when it shall end. */
int source_progress_set(const struct source *source, struct source_progress *progress,
                        uint64_t indexed, struct failure *failure);

/* Makes room for size bytes and a few more in the sample's buffer. name is for the failure. */
int sample_reserve(struct sample *sample, size_t size, const char *name, struct failure *failure);

/* Reads exactly size bytes at offset. -ENODATA when the file ends before; another negative errno.
 */
int source_read_exactly(int fd, void *bytes, size_t size, uint64_t offset);

/* The same without waiting for storage; 1: see source_try_read. */
int source_read_cached(int fd, void *bytes, size_t size, uint64_t offset);
typedef int source_read_function(int fd, void *bytes, size_t size, uint64_t offset);

#endif
