/*
 * The source of OpenJob: from what a client wrote to what is indexed. Values
 * are checked here as far as they can be without the dataset.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/peer.h"
#include "proto/cleanup.h"
#include "proto/dtype.h"

static int dtype_from_wire(const struct source_request *request, const char *text,
                           enum sample_dtype *dtype_p, struct failure *failure)
{
    int dtype = dtype_find(text, strlen(text));

    if (dtype < 0)
        return failure_set(failure, -EINVAL, "%s: dtype '%.16s' is unknown; there are " DTYPE_NAMES,
                           request->name, text);
    *dtype_p = (enum sample_dtype)dtype;
    return 0;
}

static int shape_from_wire(struct source_request *request, const Pinserve__Source *source,
                           struct failure *failure)
{
    struct source_spec *spec = &request->spec;

    if (source->n_shape == 0 || source->n_shape > sizeof spec->shape / sizeof spec->shape[0])
        return failure_set(failure, -EINVAL, "%s: a shape of %zu dimensions; 1 to %zu are possible",
                           request->name, source->n_shape,
                           sizeof spec->shape / sizeof spec->shape[0]);
    for (size_t i = 0; i < source->n_shape; i++)
        spec->shape[i] = source->shape[i];
    spec->n_dims = source->n_shape;
    return 0;
}

static int request_synthetic(struct source_request *request, const Pinserve__Source *source,
                             struct failure *failure)
{
    struct source_spec *spec = &request->spec;

    int r = shape_from_wire(request, source, failure);
    if (r == 0)
        r = dtype_from_wire(request, source->dtype, &spec->dtype, failure);
    if (r < 0)
        return r;
    if (spec->dtype != SAMPLE_U8 && spec->dtype != SAMPLE_F32)
        return failure_set(failure, -EINVAL, "%s: synthetic samples are u8 or f32, not %s",
                           request->name, source->dtype);
    spec->samples = source->samples;
    spec->kind = SOURCE_KIND_SYNTHETIC;
    return 0;
}

/* Takes over the fds that DatasetFds brought. */
static int request_files(struct peer *peer, struct source_request *request, enum source_kind kind,
                         struct failure *failure)
{
    struct source_spec *spec = &request->spec;

    spec->kind = kind;
    if (peer->n_dataset == 0 || (kind == SOURCE_KIND_FOLDER && peer->n_dataset > 2))
        return failure_set(failure, -EINVAL, "%s: it came with %zu file descriptors", request->name,
                           peer->n_dataset);
    spec->fds = request->fds = steal_ptr(peer->dataset_fds);
    request->fd_names = steal_ptr(peer->dataset_names);
    spec->fd_names = (const char *const *)request->fd_names;
    spec->n_fds = peer->n_dataset;
    peer->n_dataset = 0;
    return 0;
}

static int request_tar(struct peer *peer, struct source_request *request,
                       const Pinserve__Source *source, struct failure *failure)
{
    if (*source->fields) {
        request->spec.fields = request->fields = strdup(source->fields);
        if (!request->fields)
            return failure_set(failure, -ENOMEM, "%s: no memory", request->name);
    }
    return request_files(peer, request, SOURCE_KIND_TAR, failure);
}

/* Without a shape it is an .npy file, which tells its own. */
static int request_records(struct peer *peer, struct source_request *request,
                           const Pinserve__Source *source, struct failure *failure)
{
    int r = 0;

    if (source->n_shape > 0)
        r = shape_from_wire(request, source, failure);
    if (r == 0 && source->n_shape > 0)
        r = dtype_from_wire(request, source->dtype, &request->spec.dtype, failure);
    request->spec.has_labels = source->labels;
    return r < 0 ? r : request_files(peer, request, SOURCE_KIND_RECORDS, failure);
}

/* Names stand behind the parts, in the same piece of memory. */
static int parts_from_wire(struct source_request *request, const Pinserve__Source *source,
                           struct failure *failure)
{
    size_t n = source->n_blend, bytes = 0;

    if (n == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        bytes += strlen(source->blend[i]->name) + 1;
    request->parts = malloc(n * sizeof *request->parts + bytes);
    if (!request->parts)
        return failure_set(failure, -ENOMEM, "%s: no memory", request->name);
    char *name = (char *)(request->parts + n);
    for (size_t i = 0; i < n; i++) {
        const Pinserve__BlendPart *part = source->blend[i];
        size_t size = strlen(part->name) + 1;
        request->parts[i] =
            (struct source_part){.name = name, .files = part->files, .weight = part->weight};
        memcpy(name, part->name, size);
        name += size;
    }
    request->spec.parts = request->parts;
    request->spec.n_parts = n;
    return 0;
}

static int request_tokens(struct peer *peer, struct source_request *request,
                          const Pinserve__Source *source, struct failure *failure)
{
    struct token_windows *windows = &request->spec.tokens;

    if (source->seq == 0)
        return failure_set(failure, -EINVAL, "%s: tokens need a sequence length (seq)",
                           request->name);
    *windows = (struct token_windows){
        .seq = source->seq,
        .stride = source->stride && !source->random ? source->stride : source->seq,
        .random = source->random,
        .within = source->within,
        .has_width = *source->dtype,
        .has_offset = source->has_offset,
        .position = source->position,
        .document = source->document,
        .width = SAMPLE_U16,
        .out = SAMPLE_I32,
        .offset = source->offset,
        .vocabulary = source->vocabulary,
    };
    int r = parts_from_wire(request, source, failure);
    if (r == 0 && windows->has_width)
        r = dtype_from_wire(request, source->dtype, &windows->width, failure);
    if (r == 0 && *source->out)
        r = dtype_from_wire(request, source->out, &windows->out, failure);
    return r < 0 ? r : request_files(peer, request, SOURCE_KIND_TOKENS, failure);
}

static int request_push(struct source_request *request, const Pinserve__Source *source)
{
    request->spec.kind = SOURCE_KIND_PUSH;
    request->spec.samples = source->samples;
    return 0;
}

int source_request_from_wire(struct peer *peer, const Pinserve__Source *source,
                             struct source_request **request_p, struct failure *failure)
{
    if (!source || strlen(source->name) > NAME_MAX_BYTES)
        return failure_set(failure, -EINVAL, "the job names no source, or one too long");
    struct source_request *request = source_request_new(source->name, &peer->identity);
    *request_p = request;
    if (!request)
        return failure_set(failure, -ENOMEM, "%s: no memory", source->name);
    request->spec.index_bytes_max = peer->server->config->limits_index;
    request->spec.cache = peer->server->cache;
    if (source->seq > 0 && source->kind != PINSERVE__SOURCE_KIND__SOURCE_TOKENS)
        return failure_set(failure, -EINVAL, "%s: has no sequences; seq %" PRIu32 " is for tokens",
                           source->name, source->seq);
    switch (source->kind) {
    case PINSERVE__SOURCE_KIND__SOURCE_FOLDER:
        return request_files(peer, request, SOURCE_KIND_FOLDER, failure);
    case PINSERVE__SOURCE_KIND__SOURCE_TAR:
        return request_tar(peer, request, source, failure);
    case PINSERVE__SOURCE_KIND__SOURCE_SYNTHETIC:
        return request_synthetic(request, source, failure);
    case PINSERVE__SOURCE_KIND__SOURCE_RECORDS:
        return request_records(peer, request, source, failure);
    case PINSERVE__SOURCE_KIND__SOURCE_TOKENS:
        return request_tokens(peer, request, source, failure);
    case PINSERVE__SOURCE_KIND__SOURCE_PUSH:
        return request_push(request, source);
    default:
        return failure_set(failure, -EINVAL, "%s: a source of kind %d is unknown", source->name,
                           (int)source->kind);
    }
}
