/*
 * pinclient_transform: what the caller asks for, checked, and done where the
 * batch lies. The plan of the last call is kept by the job: trainers ask for the
 * same one each time.
 */
#include <math.h>
#include <stdlib.h>

#include "job.h"
#include "transform.h"

static int spec_check(const struct pinclient_transform *spec, struct failure *failure)
{
    if (!transform_dtype_bytes(spec->dtype))
        return failure_set(failure, -EINVAL,
                           "transform: dtype %d is none of PINCLIENT_F32, PINCLIENT_F16 and "
                           "PINCLIENT_BF16",
                           (int)spec->dtype);
    if (spec->layout != PINCLIENT_NCHW && spec->layout != PINCLIENT_NHWC)
        return failure_set(failure, -EINVAL,
                           "transform: layout %d is neither PINCLIENT_NCHW nor PINCLIENT_NHWC",
                           (int)spec->layout);
    if (spec->flags & ~PINCLIENT_RELEASE)
        return failure_set(failure, -EINVAL, "transform: flags %#x: only PINCLIENT_RELEASE is one",
                           spec->flags);
    return 0;
}

/* uint8 samples x height x width [x channels], dense within a sample. */
static int tensor_check(const struct pinclient_tensor *tensor, uint32_t *channels_p,
                        struct failure *failure)
{
    uint64_t channels = tensor->n_dims == 4 ? tensor->shape[3] : 1;
    const uint64_t *shape = tensor->shape, *strides = tensor->strides;

    if (tensor->dtype != PINCLIENT_U8)
        return failure_set(failure, -EINVAL, "transform: tensor \"%s\" is not of uint8",
                           tensor->name);
    if (tensor->n_dims < 3 || tensor->n_dims > 4 || channels > PINCLIENT_CHANNELS_MAX ||
        shape[1] > UINT32_MAX || shape[2] > UINT32_MAX)
        return failure_set(failure, -EINVAL,
                           "transform: tensor \"%s\" has %u dimensions, the last of %llu: images "
                           "have samples x height x width, and x 1 to %d channels",
                           tensor->name, tensor->n_dims,
                           (unsigned long long)shape[tensor->n_dims - 1], PINCLIENT_CHANNELS_MAX);
    if (strides[tensor->n_dims - 1] != 1 || strides[2] != channels ||
        strides[1] != shape[2] * channels)
        return failure_set(failure, -EINVAL, "transform: tensor \"%s\" has gaps in its samples",
                           tensor->name);
    *channels_p = (uint32_t)channels;
    return 0;
}

static int values_check(const struct pinclient_transform *spec, const char *name, uint32_t channels,
                        struct failure *failure)
{
    if (spec->channels && spec->channels != channels)
        return failure_set(failure, -EINVAL,
                           "transform: tensor \"%s\" has %u channels, mean and std have %u", name,
                           channels, spec->channels);
    for (uint32_t c = 0; c < channels; c++) {
        if (!isfinite(spec->mean[c]) || !isfinite(spec->std[c]) || spec->std[c] == 0)
            return failure_set(failure, -EINVAL,
                               "transform: channel %u has mean %g and std %g: both are finite, and "
                               "std is not 0",
                               c, spec->mean[c], spec->std[c]);
    }
    return 0;
}

static int out_check(const struct pinclient_transform *spec, const void *out,
                     struct failure *failure)
{
    if (!out)
        return failure_set(failure, -EINVAL, "transform: out is NULL");
    if ((uintptr_t)out % transform_dtype_bytes(spec->dtype) != 0)
        return failure_set(failure, -EINVAL,
                           "transform: out (%p) is not aligned to an element of %zu bytes", out,
                           transform_dtype_bytes(spec->dtype));
    return 0;
}

static int job_plan(struct pinclient_job *job, const struct pinclient_transform *spec,
                    uint32_t channels, struct failure *failure)
{
    if (!job->plan) {
        job->plan = calloc(1, sizeof *job->plan);
        if (!job->plan)
            return failure_set(failure, -ENOMEM, "transform: no memory for its table");
    }
    if (!transform_plan_fits(job->plan, spec->dtype, channels, spec->mean, spec->std))
        transform_plan_make(job->plan, spec->dtype, channels, spec->mean, spec->std);
    return 0;
}

/* On the stream, or at once. */
static int work_do(const struct pinclient_batch *batch, const struct transform_work *work,
                   const struct pinclient_transform *spec, void *stream, struct failure *failure)
{
    const struct pinclient_job *job = batch->job;

    if (!batch->on_device) {
        transform_host(work);
        return 0;
    }
    if (stream == PINCLIENT_NO_STREAM)
        return failure_set(failure, -EINVAL, "transform: a stream is needed on device %s",
                           job->info.device);
    if (spec->flags & PINCLIENT_RELEASE) {
        int r = device_stream_check(job->device, stream, failure);
        if (r < 0)
            return r;
    }
    return device_transform(job->device, work, stream, failure);
}

static int batch_transform(struct pinclient_batch *batch, const char *name, void *out,
                           const struct pinclient_transform *spec, void *stream)
{
    struct pinclient_job *job = batch->job;
    struct failure *failure = job->handle.failure;
    struct pinclient_tensor tensor;
    uint32_t channels = 0;
    int r;

    if (batch->state != BATCH_LEASED || !batch->owned)
        return failure_set(failure, -EINVAL, "transform: this batch was released already");
    if ((r = pinclient_batch_tensor(batch, name, &tensor)) < 0 ||
        (r = spec_check(spec, failure)) < 0 ||
        (r = tensor_check(&tensor, &channels, failure)) < 0 ||
        (r = values_check(spec, tensor.name, channels, failure)) < 0 ||
        (r = out_check(spec, out, failure)) < 0 || (r = job_plan(job, spec, channels, failure)) < 0)
        return r;
    struct transform_work work = {
        .plan = job->plan,
        .in = tensor.data,
        .out = out,
        .flip = spec->flip,
        .in_stride = tensor.strides[0],
        .samples = tensor.shape[0],
        .height = (uint32_t)tensor.shape[1],
        .width = (uint32_t)tensor.shape[2],
        .layout = spec->layout,
    };
    return work_do(batch, &work, spec, stream, failure);
}

int pinclient_transform(struct pinclient_batch *batch, const char *name, void *out,
                        const struct pinclient_transform *spec, void *stream)
{
    struct pinclient_job *job = batch->job;
    int r = handle_check(&job->handle);

    if (r < 0)
        return r;
    pthread_mutex_lock(job->calls);
    r = batch_transform(batch, name, out, spec, stream);
    pthread_mutex_unlock(job->calls);
    if (r < 0 || !(spec->flags & PINCLIENT_RELEASE))
        return r;
    return pinclient_release(batch, stream);
}
