/*
 * XXH64 of batches, as a stream. A tensor is walked by its strides in runs that are as long as its
 * memory has no gap.
 */
#include "checksum.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proto/cleanup.h"
#include "proto/dtype.h"
#include "readback.h"

struct checksum {
    XXH64_state_t *state;
    struct readback *readback; /* NULL: the tensors lie on the host */
    void *copy;                /* of one tensor of the device */
    uint64_t copy_bytes;
};

int checksum_new(const char *device, struct checksum **checksum_p, struct failure *failure)
{
    struct checksum *checksum = calloc(1, sizeof(*checksum));

    if (checksum)
        checksum->state = XXH64_createState();
    if (!checksum || !checksum->state) {
        checksum_free(checksum);
        return failure_set(failure, -ENOMEM, "no memory for a checksum");
    }
    XXH64_reset(checksum->state, 0);
    if (strcmp(device, "host") != 0) {
        int rc = readback_new(device, &checksum->readback, failure);
        if (rc < 0) {
            checksum_free(checksum);
            return rc;
        }
    }
    *checksum_p = checksum;
    return 0;
}

void checksum_free(struct checksum *checksum)
{
    if (!checksum)
        return;
    readback_free(checksum->readback);
    XXH64_freeState(checksum->state);
    free(checksum->copy);
    free(checksum);
}

uint64_t checksum_span(const struct pinclient_tensor *tensor)
{
    uint64_t span = dtype_table[tensor->dtype].bytes;

    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        if (tensor->shape[i] == 0)
            return 0;
        span += (tensor->shape[i] - 1) * tensor->strides[i];
    }
    return span;
}

/* The first dimension from which on the elements lie without gaps; *run_p: bytes of these. */
static uint32_t first_dense(const struct pinclient_tensor *tensor, uint64_t *run_p)
{
    uint64_t run = dtype_table[tensor->dtype].bytes;
    uint32_t dim = tensor->n_dims;

    while (dim > 0 && (tensor->strides[dim - 1] == run || tensor->shape[dim - 1] == 1)) {
        dim--;
        run *= tensor->shape[dim];
    }
    *run_p = run;
    return dim;
}

void checksum_add_tensor(struct checksum *checksum, const struct pinclient_tensor *tensor,
                         const void *data)
{
    uint64_t at[PINCLIENT_DIMS_MAX] = {0};
    uint64_t run = 0;
    uint32_t outer = first_dense(tensor, &run);

    if (checksum_span(tensor) == 0)
        return;
    for (;;) {
        uint64_t offset = 0;
        for (uint32_t i = 0; i < outer; i++)
            offset += at[i] * tensor->strides[i];
        XXH64_update(checksum->state, (const char *)data + offset, run);

        uint32_t dim = outer;
        while (dim > 0 && ++at[dim - 1] == tensor->shape[dim - 1])
            at[--dim] = 0;
        if (dim == 0)
            return;
    }
}

static int copy_tensor(struct checksum *checksum, const struct pinclient_tensor *tensor,
                       struct failure *failure)
{
    uint64_t span = checksum_span(tensor);

    if (span > checksum->copy_bytes) {
        void *copy = realloc(checksum->copy, span);
        if (!copy)
            return failure_set(failure, -ENOMEM, "no memory to copy tensor %s (%llu bytes)",
                               tensor->name, (unsigned long long)span);
        checksum->copy = copy;
        checksum->copy_bytes = span;
    }
    return span ? readback_copy(checksum->readback, checksum->copy, tensor->data, span, failure)
                : 0;
}

int checksum_add(struct checksum *checksum, const struct pinclient_batch *batch, uint32_t n_tensors,
                 struct failure *failure)
{
    for (uint32_t i = 0; i < n_tensors; i++) {
        struct pinclient_tensor tensor;
        int rc = pinclient_batch_tensor_at(batch, i, &tensor);
        if (rc < 0)
            return failure_set(failure, rc, "a batch lacks tensor %u of %u", i, n_tensors);
        const void *data = tensor.data;
        if (checksum->readback) {
            rc = copy_tensor(checksum, &tensor, failure);
            if (rc < 0)
                return rc;
            data = checksum->copy;
        }
        checksum_add_tensor(checksum, &tensor, data);
    }
    return 0;
}

uint64_t checksum_value(const struct checksum *checksum)
{
    return XXH64_digest(checksum->state);
}
