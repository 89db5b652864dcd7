/*
 * Tensors of a tar's fields: their shapes, of arrays by the first sample, and
 * what a sample puts into them.
 */
#include "source/tar.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/dtype.h"
#include "source/npy.h"
#include "source/npy_order.h"

static const struct tar_field *field_of(const struct tar *tar, size_t tensor)
{
    return &tar->fields.fields[tar->fields.tensors[tensor].field];
}

/* "(2, 3) f32", as NumPy writes shapes */
static const char *shape_text(const struct source_field *out, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "(");

    for (size_t i = 0; i < out->n_dims && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%" PRIu32, i ? ", " : "", out->shape[i]);
    if (n < size)
        snprintf(text + n, size - n, "%s) %s", out->n_dims == 1 ? "," : "",
                 dtype_table[out->dtype].name);
    return text;
}

/* -EINVAL: not what a tensor can be. */
static int header_take(const struct npy_header *header, const char *name, struct source_field *out,
                       struct failure *failure)
{
    if (header->n_dims > SHAPE_DIMS_MAX)
        return failure_set(failure, -EINVAL, "%s: has %zu dimensions; at most %zu are served", name,
                           header->n_dims, SHAPE_DIMS_MAX);
    out->dtype = header->dtype;
    out->n_dims = header->n_dims;
    for (size_t i = 0; i < header->n_dims; i++) {
        if (header->shape[i] == 0 || header->shape[i] > UINT32_MAX)
            return failure_set(failure, -EINVAL,
                               "%s: dimension %zu of its shape is %" PRIu64 "; 1 to %" PRIu32
                               " are served",
                               name, i + 1, header->shape[i], UINT32_MAX);
        out->shape[i] = (uint32_t)header->shape[i];
    }
    return 0;
}

/* The first sample's array decides of what shape and type all are. */
static int array_learn(const struct tar *tar, struct tar_tensor *tensor, struct failure *failure)
{
    const struct tar_field *field = &tar->fields.fields[tensor->field];
    const struct tar_part *part = &tar_parts(tar, 0)[field->part];
    struct npy_header header = {0};
    char name[FAILURE_TEXT_MAX];

    tar_part_name(tar, 0, field, name, sizeof name);
    int r = npy_read_at(tar_shard_of(tar, 0)->file.fd, part->offset, part->size, name, &header,
                        failure);
    return r < 0 ? r : header_take(&header, name, &tensor->out, failure);
}

int tar_tensors_init(struct source *source, struct tar *tar, struct failure *failure)
{
    struct tar_fields *fields = &tar->fields;
    int r = 0;

    for (size_t i = 0; r == 0 && i < fields->n_tensors; i++) {
        if (field_of(tar, i)->kind == TAR_FIELD_ARRAY)
            r = array_learn(tar, &fields->tensors[i], failure);
    }
    if (r < 0)
        return r;
    source->tensor = fields->tensors[0].out.name;
    if (!fields->has_image)
        source->ops = &source_tar_arrays_ops;
    if (fields->n_tensors == 1)
        return 0;
    source->fields = calloc(fields->n_tensors - 1, sizeof *source->fields);
    if (!source->fields)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    source->n_fields = fields->n_tensors - 1;
    for (size_t i = 0; i < source->n_fields; i++)
        source->fields[i] = fields->tensors[i + 1].out;
    return 0;
}

int tar_shape(const struct source *source, uint32_t *shape_p, size_t *n_dims_p,
              enum sample_dtype *dtype_p)
{
    const struct tar *tar = source->index;
    const struct source_field *out = &tar->fields.tensors[0].out;

    memcpy(shape_p, out->shape, out->n_dims * sizeof out->shape[0]);
    *n_dims_p = out->n_dims;
    *dtype_p = out->dtype;
    return 0;
}

/* -- filling --------------------------------------------------------------------------------- */

static bool shapes_are_equal(const struct source_field *a, const struct source_field *b)
{
    return a->dtype == b->dtype && a->n_dims == b->n_dims &&
           memcmp(a->shape, b->shape, a->n_dims * sizeof a->shape[0]) == 0;
}

static int array_fill(const struct tar_tensor *tensor, const uint8_t *bytes, uint32_t size,
                      const char *name, void *out, struct failure *failure)
{
    struct source_field here = {0};
    struct npy_header header = {0};
    char is[128], should_be[128];

    int r = npy_parse(bytes, size, name, &header, failure);
    if (r == 0)
        r = header_take(&header, name, &here, failure);
    if (r < 0 && failure)
        failure->code = -EBADMSG;
    if (r < 0)
        return -EBADMSG;
    if (!shapes_are_equal(&here, &tensor->out))
        return failure_set(failure, -EBADMSG, "%s: is %s, and that of the first sample is %s", name,
                           shape_text(&here, is, sizeof is),
                           shape_text(&tensor->out, should_be, sizeof should_be));
    npy_copy(&header, here.shape, bytes + header.offset, out);
    return 0;
}

int tar_field_fill(const struct source *source, uint64_t index, struct sample_key key,
                   const struct sample *sample, size_t field_number, void *out,
                   struct failure *failure)
{
    const struct tar *tar = source->index;
    const struct tar_tensor *tensor = &tar->fields.tensors[field_number];
    const struct tar_field *field = field_of(tar, field_number);
    uint32_t size = tar_parts(tar, index)[field->part].size;
    const uint8_t *bytes = sample->buffer + tar_part_place(tar, index, field->part);
    char name[FAILURE_TEXT_MAX];

    (void)key;
    if (tensor->is_size) {
        memcpy(out, &size, sizeof size);
        return 0;
    }
    if (field->kind == TAR_FIELD_BYTES) {
        memcpy(out, bytes, size);
        memset((uint8_t *)out + size, 0, field->bytes_max - size);
        return 0;
    }
    return array_fill(tensor, bytes, size, tar_part_name(tar, index, field, name, sizeof name), out,
                      failure);
}
