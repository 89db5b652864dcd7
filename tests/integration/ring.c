/*
 * What a client's CUDA side must hold, on a GPU or the driver's stand-in: one
 * JSON line an answer.
 *
 *   ring [--socket PATH] [--deliver fd|ipc|copy|mapped] [--busy-ms MS]
 *
 * write      what the driver says to a write into the ring, when there is one (fd: it is refused)
 * release    ms that pinclient_release took behind a stream that is busy for MS
 * reuse      ms until the batch's only place came back: at least MS
 * capture    what release says while the stream is being captured (-16), and after
 */
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pinclient.h"

#define STRING_OF(name) #name
#define STRING(name) STRING_OF(name)
#define CALL(name) ((__typeof__(&(name)))dlsym(library, STRING(name)))

static void *library;
static int busy_ms = 300;

static double now_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void CUDA_CB keep_busy(void *argument)
{
    (void)argument;
    usleep((useconds_t)busy_ms * 1000);
}

static int fail(const char *what, int code, const void *handle)
{
    fprintf(stderr, "%s: %d: %s\n", what, code, handle ? pinclient_error(handle) : "");
    return 1;
}

static int job_open(const char *socket, const char *deliver, struct pinclient **client_p,
                    struct pinclient_job **job_p)
{
    struct pinclient_spec *spec;

    pinclient_spec_new(&spec);
    pinclient_spec_source(spec, "synthetic:4096:u8");
    pinclient_spec_batch(spec, 4);
    pinclient_spec_depth(spec, 1);
    pinclient_spec_device(spec, "cuda:0");
    pinclient_spec_delivery(spec, deliver);
    int r = pinclient_connect(socket, client_p);
    if (r == 0)
        r = pinclient_job_open(*client_p, spec, job_p);
    pinclient_spec_free(spec);
    return r < 0 ? fail("open", r, *client_p) : 0;
}

/* The only place for a batch comes back when the stream has passed. */
static int try_release(struct pinclient_job *job, CUstream stream)
{
    struct pinclient_batch *batch;

    int r = pinclient_next(job, 10000, &batch);
    if (r < 0)
        return fail("next", r, job);
    if (CALL(cuLaunchHostFunc)(stream, keep_busy, NULL) != CUDA_SUCCESS)
        return fail("cuLaunchHostFunc", 0, NULL);
    double began = now_ms();
    r = pinclient_release(batch, stream);
    if (r < 0)
        return fail("release", r, job);
    printf("{\"release_ms\": %.3f}\n", now_ms() - began);
    r = pinclient_next(job, 10000, &batch);
    if (r < 0)
        return fail("next", r, job);
    printf("{\"reuse_ms\": %.3f}\n", now_ms() - began);
    return pinclient_release(batch, PINCLIENT_NO_STREAM);
}

static int try_capture(struct pinclient_job *job, CUstream stream)
{
    struct pinclient_batch *batch;
    CUgraph graph = NULL;

    int r = pinclient_next(job, 10000, &batch);
    if (r < 0)
        return fail("next", r, job);
    CALL(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    int during = pinclient_release(batch, stream);
    CALL(cuStreamEndCapture)(stream, &graph);
    printf("{\"capture\": %d, \"after\": %d}\n", during, pinclient_release(batch, stream));
    return 0;
}

/* Last: a refused write may leave the context unusable. */
static int try_write(struct pinclient_job *job)
{
    struct pinclient_batch *batch;
    struct pinclient_tensor tensor;
    unsigned char bytes[64] = {1};

    int r = pinclient_next(job, 10000, &batch);
    if (r < 0)
        return fail("next", r, job);
    pinclient_batch_tensor_at(batch, 0, &tensor);
    CUresult result = CALL(cuMemcpyHtoD)((CUdeviceptr)(uintptr_t)tensor.data, bytes, sizeof bytes);
    printf("{\"write\": %d}\n", (int)result);
    pinclient_release(batch, PINCLIENT_NO_STREAM);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"socket", required_argument, NULL, 's'},
                                            {"deliver", required_argument, NULL, 'd'},
                                            {"busy-ms", required_argument, NULL, 'b'},
                                            {NULL, 0, NULL, 0}};
    const char *socket = NULL, *deliver = "fd";
    struct pinclient *client = NULL;
    struct pinclient_job *job = NULL;
    CUcontext context;
    CUstream stream;
    CUdevice device;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's')
            socket = optarg;
        else if (option == 'd')
            deliver = optarg;
        else if (option == 'b')
            busy_ms = atoi(optarg);
        else
            return 2;
    }
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return fail(dlerror(), 0, NULL);
    if (CALL(cuInit)(0) || CALL(cuDeviceGet)(&device, 0) ||
        CALL(cuDevicePrimaryCtxRetain)(&context, device) || CALL(cuCtxPushCurrent)(context) ||
        CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING))
        return fail("cuda", 0, NULL);
    int r = job_open(socket, deliver, &client, &job);
    if (r == 0)
        r = try_release(job, stream);
    if (r == 0 && dlsym(library, STRING(cuStreamBeginCapture)))
        r = try_capture(job, stream);
    if (r == 0 && (strcmp(deliver, "fd") == 0 || strcmp(deliver, "ipc") == 0))
        r = try_write(job);
    if (r == 0)
        pinclient_job_close(job);
    pinclient_close(client);
    return r;
}
