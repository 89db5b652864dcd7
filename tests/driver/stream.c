/*
 * The stand-in's streams: a thread each, which carries out its queue in order.
 * Events hold two counters, of records asked for and records reached; a wait is
 * for the record that was the last one when the wait was asked for.
 */
#include <stdlib.h>

#include "stream.h"

struct CUevent_st {
    unsigned references; /* the handle, and each operation that names it */
    uint64_t recorded, reached;
};

struct CUstream_st {
    struct list link; /* of all streams */
    struct list queue;
    unsigned pending; /* queued, and the one under way */
    bool blocking, closed, capturing;
};

static struct list streams = {&streams, &streams};
static CUstream default_stream;

static void event_unref(CUevent event)
{
    if (event && !--event->references)
        free(event);
}

/* Carries out one operation, with the lock held before and after. */
static void operation_run(struct operation *operation)
{
    switch (operation->kind) {
    case OPERATION_COPY:
        pthread_mutex_unlock(&driver_lock);
        copy_run(operation);
        pthread_mutex_lock(&driver_lock);
        break;
    case OPERATION_HOST:
        pthread_mutex_unlock(&driver_lock);
        driver_set_in_host_function(true);
        operation->function(operation->user);
        driver_set_in_host_function(false);
        pthread_mutex_lock(&driver_lock);
        break;
    case OPERATION_RECORD:
        if (operation->event->reached < operation->record)
            operation->event->reached = operation->record;
        break;
    case OPERATION_WAIT:
        while (operation->event->reached < operation->record && !driver_is_broken())
            pthread_cond_wait(&driver_progress, &driver_lock);
        break;
    }
}

static void *stream_main(void *argument)
{
    CUstream stream = argument;

    pthread_mutex_lock(&driver_lock);
    for (;;) {
        struct operation *operation;

        while (list_empty(&stream->queue) && !stream->closed)
            pthread_cond_wait(&driver_progress, &driver_lock);
        if (list_empty(&stream->queue))
            break;
        operation = list_entry(stream->queue.next, struct operation, link);
        list_remove(&operation->link);
        if (!driver_is_broken())
            operation_run(operation);
        event_unref(operation->event);
        free(operation);
        stream->pending--;
        pthread_cond_broadcast(&driver_progress);
    }
    list_remove(&stream->link);
    pthread_mutex_unlock(&driver_lock);
    free(stream);
    return NULL;
}

static CUstream stream_new(bool blocking)
{
    CUstream stream = calloc(1, sizeof *stream);
    pthread_t thread;

    if (!stream)
        return NULL;
    list_init(&stream->queue);
    stream->blocking = blocking;
    list_append(&streams, &stream->link);
    if (pthread_create(&thread, NULL, stream_main, stream)) {
        list_remove(&stream->link);
        free(stream);
        return NULL;
    }
    pthread_detach(thread);
    return stream;
}

/* The stream behind a handle, which may be one of the default stream's; with the lock held. */
static CUresult stream_find(CUstream handle, CUstream *stream_p)
{
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        if (!default_stream)
            default_stream = stream_new(true);
        *stream_p = default_stream;
        return default_stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    list_for_each(item, &streams) if (list_entry(item, struct CUstream_st, link) == handle)
    {
        *stream_p = handle;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

/* Queues a copy of *what; with the lock held. */
static CUresult stream_queue(CUstream handle, const struct operation *what)
{
    CUstream stream;
    struct operation *operation;
    CUresult result = stream_find(handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (stream->capturing)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    operation = malloc(sizeof *operation);
    if (!operation)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *operation = *what;
    if (operation->event)
        operation->event->references++;
    list_append(&stream->queue, &operation->link);
    stream->pending++;
    pthread_cond_broadcast(&driver_progress);
    return CUDA_SUCCESS;
}

CUresult stream_queue_locked(CUstream handle, const struct operation *what)
{
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    result = stream_queue(handle, what);
    pthread_mutex_unlock(&driver_lock);
    return result;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    *stream = stream_new(!(flags & CU_STREAM_NON_BLOCKING));
    pthread_mutex_unlock(&driver_lock);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    (void)priority;
    return cuStreamCreate(stream, flags);
}

CUresult cuStreamDestroy(CUstream handle)
{
    CUresult result = driver_enter(true);
    CUstream stream;

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    result = stream_find(handle, &stream);
    if (result == CUDA_SUCCESS && stream == default_stream)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        stream->closed = true;
        pthread_cond_broadcast(&driver_progress);
    }
    pthread_mutex_unlock(&driver_lock);
    return result;
}

static CUresult stream_wait(CUstream handle, bool once)
{
    CUresult result = driver_enter(true);
    CUstream stream;

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    result = stream_find(handle, &stream);
    if (result == CUDA_SUCCESS && stream->capturing)
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    while (result == CUDA_SUCCESS && stream->pending && !once && !driver_is_broken())
        pthread_cond_wait(&driver_progress, &driver_lock);
    if (result == CUDA_SUCCESS && once && stream->pending)
        result = CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&driver_lock);
    return driver_is_broken() ? driver_enter(true) : result;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    return stream_wait(stream, false);
}

CUresult cuStreamQuery(CUstream stream)
{
    return stream_wait(stream, true);
}

void driver_wait_for_streams(void)
{
    bool busy;

    pthread_mutex_lock(&driver_lock);
    do {
        busy = false;
        list_for_each(item, &streams)
        {
            const struct CUstream_st *stream = list_entry(item, struct CUstream_st, link);

            busy = busy || (stream->blocking && stream->pending);
        }
        if (busy && !driver_is_broken())
            pthread_cond_wait(&driver_progress, &driver_lock);
    } while (busy && !driver_is_broken());
    pthread_mutex_unlock(&driver_lock);
}

CUresult cuCtxSynchronize(void)
{
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    for (bool busy = true; busy && !driver_is_broken();) {
        busy = false;
        list_for_each(item, &streams) busy =
            busy || list_entry(item, struct CUstream_st, link)->pending;
        if (busy)
            pthread_cond_wait(&driver_progress, &driver_lock);
    }
    pthread_mutex_unlock(&driver_lock);
    return driver_enter(true);
}

static CUresult capture_set(CUstream handle, bool from, bool to)
{
    CUresult result = driver_enter(true);
    CUstream stream;

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    result = stream_find(handle, &stream);
    if (result == CUDA_SUCCESS && (stream->capturing != from || stream == default_stream))
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (result == CUDA_SUCCESS)
        stream->capturing = to;
    pthread_mutex_unlock(&driver_lock);
    return result;
}

/* A capture records nothing here: every operation on such a stream is refused. */
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    return capture_set(stream, false, true);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    *graph = NULL;
    return capture_set(stream, true, false);
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    CUresult result = driver_enter(true);
    CUstream stream;

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    result = stream_find(handle, &stream);
    if (result == CUDA_SUCCESS)
        *status =
            stream->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    pthread_mutex_unlock(&driver_lock);
    return result;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    CUresult result = driver_enter(true);

    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    *event = calloc(1, sizeof **event);
    if (!*event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*event)->references = 1;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    event_unref(event);
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    CUresult result = driver_enter(true);
    struct operation operation = {.kind = OPERATION_RECORD, .event = event};

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    operation.record = event->recorded + 1;
    result = stream_queue(stream, &operation);
    if (result == CUDA_SUCCESS)
        event->recorded++;
    pthread_mutex_unlock(&driver_lock);
    return result;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    CUresult result = driver_enter(true);
    struct operation operation = {.kind = OPERATION_WAIT, .event = event};

    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    operation.record = event->recorded;
    result = stream_queue(stream, &operation);
    pthread_mutex_unlock(&driver_lock);
    return result;
}

static CUresult event_wait(CUevent event, bool once)
{
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    while (event->reached < event->recorded && !once && !driver_is_broken())
        pthread_cond_wait(&driver_progress, &driver_lock);
    if (event->reached < event->recorded)
        result = CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&driver_lock);
    return driver_is_broken() ? driver_enter(true) : result;
}

CUresult cuEventQuery(CUevent event)
{
    return event_wait(event, true);
}

CUresult cuEventSynchronize(CUevent event)
{
    return event_wait(event, false);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user)
{
    struct operation operation = {.kind = OPERATION_HOST, .function = function, .user = user};

    return stream_queue_locked(stream, &operation);
}
