/*
 * The spec of a job whose batches its client fills: what the tensors of a
 * sample are.
 */
#include <stdio.h>
#include <stdlib.h>

#include "proto/cleanup.h"
#include "spec.h"

struct spec_push {
    Pinserve__PushTensor tensors[TENSORS_MAX], *list[TENSORS_MAX];
    char *names[TENSORS_MAX];
    uint32_t shapes[TENSORS_MAX][DIMS_MAX];
    size_t n;
};

void spec_push_free(struct spec_push *push)
{
    for (size_t i = 0; push && i < push->n; i++)
        free(push->names[i]);
    free(push);
}

int pinclient_spec_push(struct pinclient_spec *spec, const char *name, uint64_t samples)
{
    cleanup_free char *text = NULL;

    if (samples == 0 || strlen(name) >= NAME_MAX_BYTES - 8)
        return failure_set(spec->handle.failure, -EINVAL,
                           "push \"%.64s\": a name of at most %d bytes, and at least one sample",
                           name, NAME_MAX_BYTES - 9);
    if (spec->reconnect)
        return failure_set(spec->handle.failure, -EINVAL,
                           "push \"%.64s\" cannot reconnect: what was filled ends with the daemon",
                           name);
    struct spec_push *push = calloc(1, sizeof *push);
    if (!push || asprintf(&text, "push:%s", name) < 0 ||
        spec_text_replace(spec, &spec->source_text, text) < 0) {
        free(push);
        return failure_set(spec->handle.failure, -ENOMEM, "no memory for \"%.64s\"", name);
    }
    free(steal_ptr(spec->source_path));
    free(steal_ptr(spec->labels_path));
    free(steal_ptr(spec->list_path));
    free(steal_ptr(spec->blend));
    spec_push_free(spec->push);
    spec->push = push;
    pinserve__source__init(&spec->source);
    spec->source.kind = PINSERVE__SOURCE_KIND__SOURCE_PUSH;
    spec->source.name = spec->source_text;
    spec->source.samples = samples;
    spec->source.tensors = push->list;
    spec->order.shuffle = PINSERVE__SHUFFLE__SHUFFLE_NONE;
    spec->order.last = PINSERVE__LAST__LAST_PARTIAL;
    return 0;
}

int pinclient_spec_push_tensor(struct pinclient_spec *spec, const char *name,
                               enum pinclient_dtype dtype, uint32_t n_dims, const uint64_t *shape)
{
    struct failure *failure = spec->handle.failure;
    struct spec_push *push = spec->push;

    if (!push || spec->source.kind != PINSERVE__SOURCE_KIND__SOURCE_PUSH)
        return failure_set(failure, -EINVAL, "tensor \"%.64s\": the spec's source is not push",
                           name);
    if (push->n == TENSORS_MAX || n_dims > DIMS_MAX - 1 || (unsigned)dtype > PINCLIENT_BF16)
        return failure_set(failure, -EINVAL,
                           "tensor \"%.64s\": at most %d tensors, %d dimensions of a sample, and a "
                           "type that there is",
                           name, TENSORS_MAX, DIMS_MAX - 1);
    for (uint32_t i = 0; i < n_dims; i++) {
        if (shape[i] == 0 || shape[i] > UINT32_MAX)
            return failure_set(failure, -EINVAL, "tensor \"%.64s\": dimension %u is %llu", name,
                               i + 1, (unsigned long long)shape[i]);
        push->shapes[push->n][i] = (uint32_t)shape[i];
    }
    Pinserve__PushTensor *tensor = &push->tensors[push->n];
    pinserve__push_tensor__init(tensor);
    tensor->name = push->names[push->n] = strdup(name);
    if (!tensor->name)
        return failure_set(failure, -ENOMEM, "no memory for \"%.64s\"", name);
    tensor->dtype = (Pinserve__DType)dtype;
    tensor->shape = push->shapes[push->n];
    tensor->n_shape = n_dims;
    push->list[push->n++] = tensor;
    spec->source.n_tensors = push->n;
    return 0;
}
