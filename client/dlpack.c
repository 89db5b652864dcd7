/*
 * Tensors for other libraries. Each export holds the batch; its deleter, which
 * the other library calls from whatever thread it likes, drops that hold. The
 * last hold gone gives the batch back, so a deleter takes job->calls as every
 * call does that takes or gives back batches.
 */
#include "dlpack.h"

#include <stdlib.h>

#include "job.h"
#include "reconnect.h"

struct export
{
    union {
        struct dlpack_managed managed;
        struct dlpack_versioned versioned;
    };
    struct pinclient_batch *batch;
    int64_t shape[PINCLIENT_DIMS_MAX], strides[PINCLIENT_DIMS_MAX];
};

/* Drops the hold of an export. One that comes while a stream is being captured is late. */
static void export_end(struct export *export_consume)
{
    struct pinclient_batch *batch = export_consume->batch;
    struct pinclient_job *job = batch->job;

    free(export_consume);
    /* A child has no lease. The texts of errors are for those who make calls: not looked at. */
    if (job->handle.pid != getpid())
        return;
    job_ref(job);
    pthread_mutex_lock(job->calls);
    if (batch_drop(batch, PINCLIENT_NO_STREAM) == -EBUSY) {
        batch->late = true;
        job->n_late++;
        if (job->front)
            reconnect_note_late(job);
    }
    pthread_mutex_unlock(job->calls);
    job_unref(job, false);
}

static void managed_delete(struct dlpack_managed *managed)
{
    export_end(managed->context);
}

static void versioned_delete(struct dlpack_versioned *versioned)
{
    export_end(versioned->context);
}

static void export_describe(struct export *export, const struct pinclient_tensor *of,
                            const struct device *device, struct dlpack_tensor *tensor)
{
    static const struct {
        uint8_t code, bits;
    } types[] = {
        [PINCLIENT_U8] = {DLPACK_UINT, 8},    [PINCLIENT_F32] = {DLPACK_FLOAT, 32},
        [PINCLIENT_I64] = {DLPACK_INT, 64},   [PINCLIENT_U64] = {DLPACK_INT, 64},
        [PINCLIENT_I8] = {DLPACK_INT, 8},     [PINCLIENT_U16] = {DLPACK_UINT, 16},
        [PINCLIENT_I16] = {DLPACK_INT, 16},   [PINCLIENT_U32] = {DLPACK_UINT, 32},
        [PINCLIENT_I32] = {DLPACK_INT, 32},   [PINCLIENT_F16] = {DLPACK_FLOAT, 16},
        [PINCLIENT_F64] = {DLPACK_FLOAT, 64}, [PINCLIENT_BF16] = {DLPACK_BFLOAT, 16},
    };

    tensor->data = (void *)of->data;
    tensor->device.kind = device ? DLPACK_CUDA : DLPACK_CPU;
    tensor->device.number = device ? device_number(device) : 0;
    tensor->n_dims = (int32_t)of->n_dims;
    tensor->dtype.code = types[of->dtype].code;
    tensor->dtype.bits = types[of->dtype].bits;
    tensor->dtype.lanes = 1;
    for (uint32_t i = 0; i < of->n_dims; i++) {
        export->shape[i] = (int64_t)of->shape[i];
        export->strides[i] = (int64_t)(of->strides[i] / (types[of->dtype].bits / 8));
    }
    tensor->shape = export->shape;
    tensor->strides = export->strides;
}

/* One more hold, unless the last one is gone. */
static int batch_hold(struct pinclient_batch *batch)
{
    struct pinclient_job *job = batch->job;
    int r = 0;

    pthread_mutex_lock(job->calls);
    if (batch->state == BATCH_LEASED && !batch->late)
        batch->holds++;
    else
        r = failure_set(job->handle.failure, -EINVAL, "this batch was given back already");
    pthread_mutex_unlock(job->calls);
    return r;
}

int pinclient_batch_dlpack(struct pinclient_batch *batch, const char *name, unsigned flags,
                           void **managed_p)
{
    struct pinclient_job *job = batch->job;
    struct pinclient_tensor tensor = {0};
    int r = handle_check(&job->handle);

    if (r == 0)
        r = pinclient_batch_tensor(batch, name, &tensor);
    if (r < 0)
        return r;
    struct export *export = calloc(1, sizeof *export);
    if (!export)
        return failure_set(job->handle.failure, -ENOMEM, "no memory for a tensor");
    r = batch_hold(batch);
    if (r < 0) {
        free(export);
        return r;
    }
    const struct device *device = batch->on_device ? job->device : NULL;
    export->batch = batch;
    if (flags & PINCLIENT_DLPACK_VERSIONED) {
        export->versioned.version.major = 1;
        export->versioned.context = export;
        export->versioned.deleter = versioned_delete;
        export->versioned.flags = DLPACK_READ_ONLY;
        export_describe(export, &tensor, device, &export->versioned.tensor);
    } else {
        export->managed.context = export;
        export->managed.deleter = managed_delete;
        export_describe(export, &tensor, device, &export->managed.tensor);
    }
    *managed_p = export;
    return 0;
}

int pinclient_batch_follow(struct pinclient_batch *batch, void *stream)
{
    struct pinclient_job *job = batch->job;
    int r = handle_check(&job->handle);

    if (r < 0 || !job->device || stream == PINCLIENT_NO_STREAM)
        return r;
    pthread_mutex_lock(job->calls);
    for (size_t i = 0; i < batch->n_follows; i++) {
        if (batch->follows[i] == stream)
            goto out;
    }
    if (batch->n_follows == batch->n_follows_room) {
        size_t room = batch->n_follows_room * 2 + 2;
        void **follows = reallocarray(batch->follows, room, sizeof *follows);
        if (!follows) {
            r = failure_set(job->handle.failure, -ENOMEM, "no memory for a stream of a batch");
            goto out;
        }
        batch->follows = follows;
        batch->n_follows_room = room;
    }
    batch->follows[batch->n_follows++] = stream;
out:
    pthread_mutex_unlock(job->calls);
    return r;
}
