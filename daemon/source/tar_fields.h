/*
 * Which fields of a sample are wanted, and the tensors that they make, as a
 * text like "image+cls+json:4096+emb.npy" says.
 */
#ifndef PINSERVE_SOURCE_TAR_FIELDS_H
#define PINSERVE_SOURCE_TAR_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"
#include "source/source.h"

#define TAR_FIELDS_MAX TENSORS_MAX
#define TAR_TENSORS_MAX (TENSORS_MAX - 3) /* there are label, index and status, too */
#define TAR_FIELD_NAME_MAX 64             /* bytes of a tensor's name, the NUL included */

enum tar_field_kind {
    TAR_FIELD_IMAGE, /* to be decoded */
    TAR_FIELD_LABEL, /* an integer in ASCII */
    TAR_FIELD_ARRAY, /* an .npy file */
    TAR_FIELD_BYTES, /* as they are, with zeros behind */
};

struct tar_field {
    enum tar_field_kind kind;
    const char *name;   /* as in the text; NULL: whichever kind of image is there */
    uint32_t bytes_max; /* of TAR_FIELD_BYTES */
    uint32_t part;      /* number among what is read of a sample; an image is the first */
};

/* shape of arrays: that of the first sample, once it is known. */
struct tar_tensor {
    struct source_field out;
    uint32_t field;
    bool is_size; /* how many bytes of TAR_FIELD_BYTES there are */
    char name[TAR_FIELD_NAME_MAX];
};

struct tar_fields {
    char *text; /* as asked for; NULL: an image and its class, if there is one */
    char *names;
    struct tar_field fields[TAR_FIELDS_MAX];
    struct tar_tensor tensors[TAR_TENSORS_MAX]; /* the first is the first of the layout */
    size_t n, n_tensors;
    uint32_t n_parts; /* of a sample that are read */
    bool has_image;   /* then the first tensor is made by a decoder, and has no shape here */
};

/* text: NULL for an image and its class. source is for failures. -EINVAL in words. In any case
 * tar_fields_deinit may follow. */
int tar_fields_init(struct tar_fields *fields, const char *text, const char *source,
                    struct failure *failure);
void tar_fields_deinit(struct tar_fields *fields);

/* How much a member of that field is wanted as field: 0 most; TAR_FIELD_NOT: it is another. */
#define TAR_FIELD_NOT UINT32_MAX
uint32_t tar_field_rank(const struct tar_field *field, const char *name);

/* As in "sample 17 has no field ..." */
const char *tar_field_words(const struct tar_field *field);

#endif
