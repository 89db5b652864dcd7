/*
 * Sources: where samples come from. A source is indexed once, off the loop
 * thread; after that it is immutable and may be read by many threads at once.
 */
#ifndef PINSERVE_SOURCE_SOURCE_H
#define PINSERVE_SOURCE_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/failure.h"
#include "source/identity.h"

enum source_kind {
    SOURCE_KIND_FOLDER,
    SOURCE_KIND_TAR,
    SOURCE_KIND_SYNTHETIC,
    SOURCE_KIND_RECORDS,
    SOURCE_KIND_TOKENS,
    SOURCE_KIND_PUSH, /* a client fills the batches: there is nothing to read */
};

/* Numbered as in proto/dtype.h. */
enum sample_dtype {
    SAMPLE_U8,
    SAMPLE_F32,
    SAMPLE_I64,
    SAMPLE_U64,
    SAMPLE_I8,
    SAMPLE_U16,
    SAMPLE_I16,
    SAMPLE_U32,
    SAMPLE_I32,
    SAMPLE_F16,
    SAMPLE_F64,
    SAMPLE_BF16,
};

#define LABEL_NONE (-1) /* of a sample that has none */

/* Windows of seq + 1 tokens. */
struct token_windows {
    uint32_t seq;
    uint64_t stride;         /* from one window of a file to the next */
    bool random;             /* at random offsets instead; stride is seq then */
    bool within;             /* none goes across documents */
    bool has_width;          /* width was given; else files without a header are u16 */
    bool has_offset;         /* files without a header that is known begin with offset bytes */
    bool position, document; /* these tensors are wanted, too */
    enum sample_dtype width; /* of the files: SAMPLE_U16, SAMPLE_U32, SAMPLE_I32 */
    enum sample_dtype out;   /* of the samples: SAMPLE_I32, SAMPLE_I64 */
    uint64_t offset;
    uint64_t vocabulary; /* tokens are below it; 0: not checked */
};

/* Files that follow each other, and their share of the samples. */
struct source_part {
    const char *name; /* for failures */
    uint32_t files;   /* fds: an index counts, too */
    uint64_t weight;  /* above 0, of any unit */
};

/* One of a source's tensors. */
struct source_field {
    const char *name;
    enum sample_dtype dtype;
    uint32_t shape[7]; /* of a sample */
    size_t n_dims;
};

struct index_cache;

/* What a client asked for. Everything is borrowed for the time of source_new. */
struct source_spec {
    enum source_kind kind;
    const char *name; /* as the user wrote it */
    const struct identity *identity;
    int *fds; /* folder: the directory, and a list; tar: the shards; records: the file, and its
                 labels; tokens: the files. source_new dups what it keeps */
    const char *const *fd_names;
    size_t n_fds;
    uint64_t index_bytes_max;  /* limits.index; 0: not bounded */
    struct index_cache *cache; /* tar: of saved indexes; NULL: none */
    uint32_t shape[7];         /* synthetic, raw records */
    size_t n_dims;             /* records: 0: an .npy file */
    enum sample_dtype dtype;
    uint64_t samples;                /* synthetic, push */
    bool has_labels;                 /* records: the second fd is an .npy file of them */
    bool has_list;                   /* folder: the second fd lists its files */
    struct token_windows tokens;     /* tokens */
    const struct source_part *parts; /* tokens: a blend of these; else none */
    size_t n_parts;
    const char *fields; /* tar: as in the protocol; NULL: an image and its class, if any */
};

/* What a sample depends on, beside its number. */
struct sample_key {
    uint64_t seed, epoch;
    bool shuffled; /* the order is */
};

/* Indexing tells how far it is and asks whether to go on. May be called from any thread. */
struct source_progress {
    _Atomic uint64_t indexed;
    atomic_bool cancelled;
};

/* The bytes of one sample, read into a buffer that the reader keeps and grows. */
struct sample {
    const uint8_t *bytes; /* within buffer, or NULL for synthetic: see source_fill */
    size_t size;
    int64_t label;
    uint8_t *buffer; /* owned; freed by sample_deinit */
    size_t capacity;
    /* Asked before the buffer becomes that large, unless NULL; what it returns but 0 is the read's
     * result. */
    int (*grow)(struct sample *sample, size_t capacity);
};

struct source;

/* Opens and indexes. -ECANCELED when progress says so; -ENOENT, -EACCES, -EINVAL, ... name the
 * folder, file, shard and offset. A source without a single sample is refused. */
int source_new(const struct source_spec *spec, struct source_progress *progress,
               struct source **source_p, struct failure *failure);
struct source *source_ref(struct source *source); /* thread-safe */
void source_unref(struct source *source);

/* Whether a new job with this spec would get the same index: same kind, same files with the same
 * sizes and times. Blocks on stat calls. */
bool source_matches(const struct source *source, const struct source_spec *spec);

const char *source_name(const struct source *source);
uint64_t source_samples(const struct source *source);
uint64_t source_fingerprint(const struct source *source); /* of names and sizes */
uint64_t source_skipped(const struct source *source);     /* files, documents without one */
uint64_t source_classes(const struct source *source);     /* folder: class folders; else 0 */

/* The first tensor, unless it is a decoded image: element type and shape; -EINVAL for images. */
int source_shape(const struct source *source, uint32_t *shape_p, size_t *n_dims_p,
                 enum sample_dtype *dtype_p);
/* Its name: "data", "tokens", that of a field. */
const char *source_tensor(const struct source *source);
/* The tensors that a sample has beside the first and its label; returns how many. They are the
 * source's. */
size_t source_fields(const struct source *source, const struct source_field **fields_p);
/* Whether the first tensor is written by source_field_fill, from the sample that source_read read,
 * and not by source_fill. */
bool source_is_composed(const struct source *source);
/* Writes one tensor of a sample to out, all of its shape: 0 the first of a composed source, n the
 * n-th of source_fields. sample: as source_read left it, for sources that read; not looked at for
 * others. Never blocks. -EBADMSG names file or member. */
int source_field_fill(const struct source *source, uint64_t index, struct sample_key key,
                      const struct sample *sample, size_t field, void *out,
                      struct failure *failure);

/* Reads one sample (below source_samples) into sample, zero-initialised or used before. Blocks.
 * -EBADMSG: the bytes are bad (cut off); other errors are the system's; both name file or member.
 */
int source_read(struct source *source, uint64_t index, struct sample *sample,
                struct failure *failure);
/* The same without waiting for storage. 1: not all of it is in the page cache, or whether it is
 * cannot be told. */
int source_try_read(struct source *source, uint64_t index, struct sample *sample,
                    struct failure *failure);
void sample_deinit(struct sample *sample);

/* Raw sources: writes the sample's bytes to out, all of its shape, and its label. Blocks. Errors as
 * source_read's. */
int source_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                int64_t *label_p, struct failure *failure);
/* The same without waiting for storage. 1: as source_try_read; what is at out is undefined. */
int source_try_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                    int64_t *label_p, struct failure *failure);

/* Whether a sample may have to be waited for: whether there is any storage. */
bool source_may_wait(const struct source *source);
/* Whatever fills a slot's place, in memory: an encoded sample, or a raw one's bytes as source_fill
 * writes them. With wait false 1 as source_try_read. */
int source_fetch(struct source *source, uint64_t index, struct sample_key key, bool wait,
                 struct sample *sample, struct failure *failure);

/* Where the bytes of a raw sample lie in a file as they are to be delivered; the fd stays the
 * source's. Never blocks. -EOPNOTSUPP: they lie nowhere, or have to be converted: then that is so
 * for all samples. -EINVAL: no such sample. */
int source_extent(struct source *source, uint64_t index, int *fd_p, uint64_t *offset_p,
                  uint64_t *bytes_p);
/* The label of a sample, as far as it is known without reading the sample; else LABEL_NONE. Never
 * blocks. */
int64_t source_label(const struct source *source, uint64_t index);
/* Whether the sample's extent is still within its file: one fstat. -EBADMSG names the file and the
 * sample that was cut off. */
int source_extent_check(struct source *source, uint64_t index, struct failure *failure);

/* "c1/dog.jpg" or "shard-000.tar: a/17.jpg at 10752": for messages. Returns text. */
const char *source_sample_name(const struct source *source, uint64_t index, char *text,
                               size_t size);

/* The same for lists: "c1/dog.jpg" or "shard-000.tar:a/17.jpg@10752". Returns text. */
const char *source_sample_place(const struct source *source, uint64_t index, char *text,
                                size_t size);

/* -- for source kinds, see kind.h ------------------------------------------------------------- */

/* Encoded sources read; raw ones have fill and shape instead, and extent and label where a sample
 * lies in a file as it is. Composed ones read and have shape and field. */
struct source_ops {
    const char *name;
    int (*index)(struct source *source, const struct source_spec *spec,
                 struct source_progress *progress, struct failure *failure);
    int (*read)(struct source *source, uint64_t index, struct sample *sample,
                struct failure *failure);
    int (*try_read)(struct source *source, uint64_t index, struct sample *sample,
                    struct failure *failure); /* or NULL: cannot be told */
    int (*fill)(struct source *source, uint64_t index, struct sample_key key, void *out,
                int64_t *label_p, struct failure *failure);
    int (*try_fill)(struct source *source, uint64_t index, struct sample_key key, void *out,
                    int64_t *label_p, struct failure *failure); /* or NULL: there is no storage */
    int (*field)(const struct source *source, uint64_t index, struct sample_key key,
                 const struct sample *sample, size_t field, void *out,
                 struct failure *failure); /* or NULL: there is no other tensor */
    int (*extent)(const struct source *source, uint64_t index, int *fd_p, uint64_t *offset_p,
                  uint64_t *bytes_p);
    int64_t (*label)(const struct source *source, uint64_t index);
    int (*shape)(const struct source *source, uint32_t *shape_p, size_t *n_dims_p,
                 enum sample_dtype *dtype_p);
    bool (*matches)(const struct source *source, const struct source_spec *spec);
    const char *(*sample_name)(const struct source *source, uint64_t index, char *text,
                               size_t size);
    const char *(*sample_place)(const struct source *source, uint64_t index, char *text,
                                size_t size); /* NULL: as sample_name */
    void (*free)(struct source *source);
};

#endif
