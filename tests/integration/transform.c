/*
 * Batches of a daemon, transformed: each value against its formula. One JSON
 * line.
 *
 *   transform [--socket PATH] [--device D] [--deliver auto|fd|ipc|copy|mapped|host]
 *
 * batches    that were transformed, each given back by PINCLIENT_RELEASE behind the work
 * wrong      values that differ
 * code       of the call that failed, and its text; 0
 */
#include <cuda.h>
#include <dlfcn.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pinclient.h"

#define STRING_OF(name) #name
#define STRING(name) STRING_OF(name)
#define CALL(name) ((__typeof__(&(name)))dlsym(library, STRING(name)))

#define BATCH 8
#define HEIGHT 24
#define WIDTH 40
#define PIXELS (HEIGHT * WIDTH)
#define ELEMENTS (BATCH * PIXELS * 3)
#define BATCHES 12

static void *library; /* NULL: host memory only */
static CUstream stream;
static float *out; /* the GPU's, or the host's */
static unsigned batches, wrong;

static bool cuda_start(void)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory;

    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || CALL(cuInit)(0) || CALL(cuDeviceGet)(&device, 0) ||
        CALL(cuDevicePrimaryCtxRetain)(&context, device) || CALL(cuCtxPushCurrent)(context) ||
        CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) ||
        CALL(cuMemAlloc)(&memory, ELEMENTS * sizeof(float)))
        return false;
    out = (float *)(uintptr_t)memory;
    return true;
}

/* From where the batch lies. */
static void read_back(void *to, const void *from, size_t bytes, bool on_gpu)
{
    if (!on_gpu)
        memcpy(to, from, bytes);
    else if (CALL(cuMemcpyDtoH)(to, (CUdeviceptr)(uintptr_t)from, bytes) != CUDA_SUCCESS)
        wrong++;
}

static unsigned count_wrong(const struct pinclient_transform *spec, const uint8_t *in,
                            const float *values, uint32_t count)
{
    unsigned bad = 0;

    for (size_t i = 0; i < (size_t)count * PIXELS * 3; i++) {
        size_t n = i / (PIXELS * 3), j = i % (PIXELS * 3);
        bool planes = spec->layout == PINCLIENT_NCHW;
        size_t c = planes ? j / PIXELS : j % 3, pixel = planes ? j % PIXELS : j / 3;
        size_t x = pixel % WIDTH, row = pixel - x;
        if (spec->flip && spec->flip[n])
            x = WIDTH - 1 - x;
        uint8_t byte = in[n * PIXELS * 3 + (row + x) * 3 + c];
        bad += values[i] != (float)((byte / 255.0 - spec->mean[c]) / spec->std[c]);
    }
    return bad;
}

static int batch_transform(struct pinclient_job *job, const struct pinclient_transform *spec,
                           char text[512])
{
    static uint8_t in[ELEMENTS];
    static float values[ELEMENTS];
    struct pinclient_batch_info info;
    struct pinclient_tensor tensor;
    struct pinclient_batch *batch;
    struct pinclient_job_info job_info;

    int r = pinclient_next(job, 10000, &batch);
    if (r != 0) {
        snprintf(text, 512, "%s", pinclient_error(job));
        return r;
    }
    pinclient_job_info(job, &job_info);
    bool on_gpu = library && strcmp(job_info.delivery, "host") != 0;
    pinclient_batch_info(batch, &info);
    pinclient_batch_tensor(batch, "data", &tensor);
    read_back(in, tensor.data, tensor.bytes, on_gpu);
    r = pinclient_transform(batch, "data", on_gpu ? out : values, spec, stream);
    if (r < 0) {
        snprintf(text, 512, "%s", pinclient_error(job));
        pinclient_release(batch, PINCLIENT_NO_STREAM);
        return r;
    }
    if (on_gpu) {
        CALL(cuStreamSynchronize)(stream);
        read_back(values, out, info.count * (size_t)PIXELS * 3 * sizeof(float), true);
    }
    wrong += count_wrong(spec, in, values, info.count);
    batches++;
    return 0;
}

static int job_run(const char *socket, const char *device, const char *deliver, char text[512])
{
    static const uint8_t flip[BATCH] = {0, 1, 1, 0, 0, 0, 1, 0};
    struct pinclient_transform spec = {
        .dtype = PINCLIENT_F32,
        .channels = 3,
        .flags = PINCLIENT_RELEASE,
        .mean = {0.485, 0.456, 0.406},
        .std = {0.229, 0.224, 0.225},
    };
    struct pinclient_spec *wanted;
    struct pinclient *client;
    struct pinclient_job *job = NULL;

    pinclient_spec_new(&wanted);
    pinclient_spec_source(wanted, "synthetic:24x40x3:u8:500");
    pinclient_spec_batch(wanted, BATCH);
    pinclient_spec_depth(wanted, 2);
    pinclient_spec_device(wanted, device);
    pinclient_spec_delivery(wanted, deliver);
    int r = pinclient_connect(socket, &client);
    if (r == 0)
        r = pinclient_job_open(client, wanted, &job);
    if (r < 0)
        snprintf(text, 512, "%s", pinclient_error(client));
    for (int i = 0; r == 0 && i < BATCHES; i++) {
        spec.layout = i % 2 ? PINCLIENT_NHWC : PINCLIENT_NCHW;
        spec.flip = i % 4 < 2 ? NULL : flip;
        r = batch_transform(job, &spec, text);
    }
    pinclient_job_close(job);
    pinclient_close(client);
    pinclient_spec_free(wanted);
    return r;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"socket", required_argument, NULL, 's'},
                                            {"device", required_argument, NULL, 'd'},
                                            {"deliver", required_argument, NULL, 'r'},
                                            {NULL, 0, NULL, 0}};
    const char *socket = NULL, *device = "host", *deliver = "auto";
    char text[512] = "";
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's')
            socket = optarg;
        else if (option == 'd')
            device = optarg;
        else if (option == 'r')
            deliver = optarg;
        else
            return 2;
    }
    if (strcmp(device, "host") != 0 && !cuda_start()) {
        fprintf(stderr, "transform: CUDA cannot be used\n");
        return 1;
    }
    int r = job_run(socket, device, deliver, text);
    printf("{\"batches\": %u, \"wrong\": %u, \"code\": %d, \"text\": \"%s\"}\n", batches, wrong, r,
           text);
    return 0;
}
