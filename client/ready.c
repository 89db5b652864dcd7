/*
 * JobReady: what a job got, checked, so that nothing later reads outside a slot
 * whatever the daemon said.
 */
#include <stdio.h>
#include <stdlib.h>

#include "job.h"
#include "proto/dtype.h"

_Static_assert((int)PINSERVE__DTYPE__DTYPE_U8 == (int)PINCLIENT_U8 &&
                   (int)PINSERVE__DTYPE__DTYPE_F32 == (int)PINCLIENT_F32 &&
                   (int)PINSERVE__DTYPE__DTYPE_I64 == (int)PINCLIENT_I64 &&
                   (int)PINSERVE__DTYPE__DTYPE_U64 == (int)PINCLIENT_U64 &&
                   (int)PINSERVE__DTYPE__DTYPE_I32 == (int)PINCLIENT_I32 &&
                   (int)PINSERVE__DTYPE__DTYPE_BF16 == (int)PINCLIENT_BF16 &&
                   PINCLIENT_BF16 + 1 == DTYPES,
               "element types have the same numbers in the protocol and the header");

/* The bytes from a tensor's first to behind its last, or UINT64_MAX. */
static uint64_t tensor_extent(const struct pinclient_tensor *tensor)
{
    uint64_t extent = dtype_table[tensor->dtype].bytes;

    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        uint64_t reach;
        if (tensor->shape[i] == 0 ||
            __builtin_mul_overflow(tensor->shape[i] - 1, tensor->strides[i], &reach) ||
            __builtin_add_overflow(extent, reach, &extent))
            return UINT64_MAX;
    }
    return extent;
}

static int tensor_take(struct pinclient_job *job, struct tensor *tensor, const Pinserve__Tensor *of,
                       struct failure *failure)
{
    struct pinclient_tensor *public = &tensor->public;
    uint64_t end;

    if (of->n_shape < 1 || of->n_shape > DIMS_MAX || of->n_strides != of->n_shape ||
        (unsigned)of->dtype >= DTYPES || of->shape[0] != job->info.batch)
        return failure_set(failure, -EPROTO, "the daemon described tensor \"%.64s\" wrongly",
                           of->name);
    public->dtype = (enum pinclient_dtype)of->dtype;
    public->n_dims = (uint32_t)of->n_shape;
    public->bytes = dtype_table[of->dtype].bytes;
    for (size_t i = 0; i < of->n_shape; i++) {
        public->shape[i] = of->shape[i];
        public->strides[i] = of->strides[i];
        if (__builtin_mul_overflow(public->bytes, public->shape[i], &public->bytes))
            return failure_set(failure, -EPROTO, "tensor \"%.64s\" is too large", of->name);
    }
    tensor->offset = of->offset;
    if (__builtin_add_overflow(of->offset, tensor_extent(public), &end) || end > job->slot_bytes)
        return failure_set(failure, -EPROTO, "tensor \"%.64s\" does not fit the batch's slot",
                           of->name);
    public->name = strdup(of->name);
    if (!public->name)
        return failure_set(failure, -ENOMEM, "no memory for a tensor's name");
    job->info.n_tensors++;
    return 0;
}

/* A copy that outlives the message. */
static Pinserve__ResumeToken *token_copy(const Pinserve__ResumeToken *token)
{
    size_t size = pinserve__resume_token__get_packed_size(token);
    uint8_t *bytes = malloc(size ? size : 1);
    Pinserve__ResumeToken *copy = NULL;

    if (bytes) {
        pinserve__resume_token__pack(token, bytes);
        copy = pinserve__resume_token__unpack(NULL, size, bytes);
        free(bytes);
    }
    return copy;
}

const char *job_delivery_text(Pinserve__Delivery delivery)
{
    switch (delivery) {
    case PINSERVE__DELIVERY__DELIVERY_FD:
        return "fd";
    case PINSERVE__DELIVERY__DELIVERY_IPC:
        return "ipc";
    case PINSERVE__DELIVERY__DELIVERY_COPY:
        return "copy";
    case PINSERVE__DELIVERY__DELIVERY_HOST:
        return "host";
    case PINSERVE__DELIVERY__DELIVERY_MAPPED:
        return "mapped";
    default:
        return NULL;
    }
}

static int ready_check(const Pinserve__JobReady *ready, struct failure *failure)
{
    if (ready->n_tensors < 1 || ready->n_tensors > TENSORS_MAX || ready->depth < 1 ||
        ready->depth > DEPTH_MAX || ready->batch < 1 || ready->batch > BATCH_MAX ||
        ready->steps < 1 || ready->slot_bytes < 1 || ready->slot_bytes > INT64_MAX / DEPTH_MAX ||
        !ready->token || !*ready->device || strlen(ready->device) >= DEVICE_NAME_MAX)
        return failure_set(failure, -EPROTO, "the daemon described the job wrongly");
    if (!job_delivery_text(ready->delivery))
        return failure_set(failure, -EOPNOTSUPP,
                           "the daemon chose delivery %d, which this library does not know",
                           (int)ready->delivery);
    if (!ready->ring == (ready->delivery == PINSERVE__DELIVERY__DELIVERY_FD ||
                         ready->delivery == PINSERVE__DELIVERY__DELIVERY_IPC))
        return failure_set(failure, -EPROTO, "the daemon chose delivery %s %s a ring",
                           job_delivery_text(ready->delivery), ready->ring ? "with" : "without");
    return 0;
}

/* A JobReady for the next rung comes with everything again. */
void job_forget_ready(struct pinclient_job *job)
{
    for (uint32_t i = 0; i < job->info.n_tensors; i++)
        free((char *)job->tensors[i].public.name);
    memset(job->tensors, 0, sizeof job->tensors);
    job->info.n_tensors = 0;
    for (uint32_t i = 0; job->batches && i < job->info.depth; i++) {
        free(job->batches[i].uses);
        free(job->batches[i].follows);
    }
    if (job->token)
        pinserve__resume_token__free_unpacked(job->token, NULL);
    job->token = NULL;
    free(job->batches);
    job->batches = NULL;
}

int job_take_ready(struct pinclient_job *job, const Pinserve__JobReady *ready,
                   struct failure *failure)
{
    int r = ready_check(ready, failure);

    if (r < 0)
        return r;
    job_forget_ready(job);
    job->slot_bytes = ready->slot_bytes;
    job->delivery = ready->delivery;
    job->next = (struct job_cursor){ready->epoch, ready->step};
    snprintf(job->device_name, sizeof job->device_name, "%s",
             job->device ? device_uuid(job->device) : ready->device);
    job->info.steps = ready->steps;
    job->info.samples = ready->samples;
    job->info.batch = ready->batch;
    job->info.depth = ready->depth;
    job->info.device = job->device_name;
    job->info.delivery = job_delivery_text(ready->delivery);
    for (size_t i = 0; r == 0 && i < ready->n_tensors; i++)
        r = tensor_take(job, &job->tensors[i], ready->tensors[i], failure);
    if (r < 0)
        return r;
    job->token = token_copy(ready->token);
    job->batches = calloc(ready->depth, sizeof *job->batches);
    if (!job->token || !job->batches)
        return failure_set(failure, -ENOMEM, "no memory for %u batches", ready->depth);
    for (uint32_t i = 0; i < ready->depth; i++)
        job->batches[i].job = job;
    return 0;
}
