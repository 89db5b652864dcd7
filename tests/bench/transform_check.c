/*
 * The transform's kernels on a GPU against (x / 255 - mean) / std in double
 * precision: each element of each shape is the value of its type that is
 * nearest, found by trying all of them, and no byte beside out is written.
 */
#include <math.h>
#include <string.h>

#include "transform_gpu.h"

#define GUARD 256
#define POISON 0xa5

struct shape {
    uint32_t samples, height, width, channels;
    size_t out_offset, in_offset; /* bytes */
    size_t in_gap;                /* bytes between samples */
};

enum flips { FLIPS_NONE, FLIPS_HOST, FLIPS_GPU, FLIPS_KINDS };

static const struct shape shapes[] = {
    {1, 224, 224, 3, 0, 0, 0}, {256, 224, 224, 3, 0, 0, 0}, {33, 224, 224, 3, 0, 0, 0},
    {3, 225, 225, 3, 0, 0, 0}, {256, 7, 7, 3, 0, 0, 0},     {5, 7, 7, 1, 0, 0, 0},
    {3, 1, 1, 3, 0, 0, 0},     {64, 225, 225, 3, 0, 0, 0},  {7, 32, 48, 4, 0, 0, 0},
    {7, 32, 48, 1, 0, 0, 0},   {7, 33, 45, 2, 0, 0, 0},     {7, 33, 45, 4, 0, 0, 0},
    {7, 64, 64, 3, 4, 0, 0},   {7, 64, 64, 3, 12, 0, 0},    {7, 64, 64, 3, 8, 3, 0},
    {7, 64, 64, 3, 0, 8, 0},   {7, 24, 40, 3, 0, 0, 1},     {7, 24, 40, 3, 0, 0, 64},
    {2, 5, 2048, 3, 0, 0, 0},  {2, 5, 4104, 3, 0, 0, 0},    {2, 5, 5001, 3, 0, 0, 0},
    {20000, 8, 8, 3, 0, 0, 0}, {9000, 7, 5, 3, 0, 0, 0},    {2, 600, 800, 3, 0, 0, 0},
};

static const double mean[] = {0.485, 0.456, 0.406, 0.5}, std[] = {0.229, 0.224, 0.225, 0.25};
static uint32_t expected[4][256];

/* All values of a type of 16 bits. */
static void decode_all(enum pinclient_dtype dtype, double values[65536])
{
    int fraction_bits = dtype == PINCLIENT_F16 ? 10 : 7, exponent_bits = 15 - fraction_bits;
    int bias = (1 << (exponent_bits - 1)) - 1, most = (1 << exponent_bits) - 1;

    for (int i = 0; i < 65536; i++) {
        int exponent = i >> fraction_bits & most, fraction = i & ((1 << fraction_bits) - 1);
        double value =
            exponent == 0 ? ldexp(fraction, 1 - bias - fraction_bits)
                          : ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
        values[i] = exponent == most ? NAN : i & 0x8000 ? -value : value;
    }
}

static void expect(enum pinclient_dtype dtype)
{
    static double values[65536];

    decode_all(dtype == PINCLIENT_F32 ? PINCLIENT_F16 : dtype, values);
    for (int c = 0; c < 4; c++) {
        for (int x = 0; x < 256; x++) {
            double y = (x / 255.0 - mean[c]) / std[c], best = INFINITY;
            float single = (float)y;
            if (dtype == PINCLIENT_F32) {
                memcpy(&expected[c][x], &single, sizeof single);
                continue;
            }
            for (uint32_t i = 0; i < 65536; i++) {
                double distance = fabs(values[i] - y);
                if (distance < best || (distance == best && i % 2 == 0 && i < 0x8000)) {
                    best = distance;
                    expected[c][x] = i;
                }
            }
        }
    }
}

/* The first element that differs, or their count. */
static size_t compare(const struct shape *shape, enum pinclient_layout layout, size_t bytes,
                      const uint8_t *in, const uint8_t *out, const uint8_t *flip)
{
    const size_t channels = shape->channels, height = shape->height, width = shape->width;
    const size_t stride = height * width * channels + shape->in_gap;
    size_t at = 0;

    for (size_t n = 0; n < shape->samples; n++) {
        for (size_t i = 0; i < height * width * channels; i++, at++) {
            size_t c = layout == PINCLIENT_NCHW ? i / (height * width) : i % channels;
            size_t pixel = layout == PINCLIENT_NCHW ? i % (height * width) : i / channels;
            size_t x = pixel % width, row = pixel - x;
            if (flip && flip[n])
                x = width - 1 - x;
            uint32_t got = 0;
            memcpy(&got, out + at * bytes, bytes);
            if (got != expected[c][in[n * stride + (row + x) * channels + c]])
                return at;
        }
    }
    return at;
}

static CUdeviceptr upload(const uint8_t *bytes, size_t n)
{
    CUdeviceptr memory;

    GPU_CHECK(GPU_CALL(cuMemAlloc)(&memory, n));
    GPU_CHECK(GPU_CALL(cuMemcpyHtoD)(memory, bytes, n));
    return memory;
}

/* On the stream, or as a graph that is captured from it. */
static void work_queue(struct device *device, const struct transform_work *work, CUstream stream,
                       bool captured)
{
    CUgraph graph;
    CUgraphExec executable;

    if (!captured) {
        gpu_transform(device, work, stream);
        return;
    }
    GPU_CHECK(GPU_CALL(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    gpu_transform(device, work, stream);
    GPU_CHECK(GPU_CALL(cuStreamEndCapture)(stream, &graph));
    GPU_CHECK(GPU_CALL(cuGraphInstantiate)(&executable, graph, 0));
    GPU_CHECK(GPU_CALL(cuGraphLaunch)(executable, stream));
    GPU_CHECK(GPU_CALL(cuStreamSynchronize)(stream));
    GPU_CHECK(GPU_CALL(cuGraphExecDestroy)(executable));
    GPU_CHECK(GPU_CALL(cuGraphDestroy)(graph));
}

static bool check(struct device *device, CUstream stream, const struct transform_plan *plan,
                  const struct shape *shape, enum pinclient_layout layout, enum flips flips)
{
    const size_t sample = (size_t)shape->height * shape->width * shape->channels;
    const size_t in_bytes = shape->in_offset + (sample + shape->in_gap) * shape->samples;
    const size_t bytes = transform_dtype_bytes(plan->dtype);
    const size_t out_bytes = sample * shape->samples * bytes;
    const size_t room = GUARD + shape->out_offset + out_bytes + GUARD;
    uint8_t *in = malloc(in_bytes), *out = malloc(room), *flip = malloc(shape->samples);
    bool good = true;

    if (!in || !out || !flip)
        exit(1);
    for (size_t i = 0; i < in_bytes; i++)
        in[i] = (uint8_t)((i * 0x9e3779b97f4a7c15u) >> 56);
    for (size_t i = 0; i < shape->samples; i++)
        flip[i] = (uint8_t)(i * 0x9e3779b9u >> 30 & 1);
    CUdeviceptr in_gpu = upload(in, in_bytes), flip_gpu = upload(flip, shape->samples), out_gpu;
    GPU_CHECK(GPU_CALL(cuMemAlloc)(&out_gpu, room));
    GPU_CHECK(GPU_CALL(cuMemsetD8)(out_gpu, POISON, room));
    GPU_CHECK(GPU_CALL(cuCtxSynchronize)());
    struct transform_work work = {
        .plan = plan,
        .in = (const uint8_t *)(uintptr_t)(in_gpu + shape->in_offset),
        .out = (void *)(uintptr_t)(out_gpu + GUARD + shape->out_offset),
        .flip = flips == FLIPS_NONE  ? NULL
                : flips == FLIPS_GPU ? (const uint8_t *)(uintptr_t)flip_gpu
                                     : flip,
        .in_stride = sample + shape->in_gap,
        .samples = shape->samples,
        .height = shape->height,
        .width = shape->width,
        .layout = layout,
    };
    work_queue(device, &work, stream, flips == FLIPS_HOST);
    GPU_CHECK(GPU_CALL(cuStreamSynchronize)(stream));
    GPU_CHECK(GPU_CALL(cuMemcpyDtoH)(out, out_gpu, room));
    uint8_t *begin = out + GUARD + shape->out_offset;
    size_t same = compare(shape, layout, bytes, in + shape->in_offset, begin,
                          flips == FLIPS_NONE ? NULL : flip);
    for (size_t i = 0; i < GUARD; i++)
        good = good && begin[-1 - (ptrdiff_t)i] == POISON && begin[out_bytes + i] == POISON;
    if (!good || same * bytes != out_bytes)
        printf("DIFFERS: dtype %d, layout %d, flips %d, %u x %u x %u x %u, out + %zu, in + %zu, "
               "gap %zu: element %zu of %zu, beside out %s\n",
               (int)plan->dtype, (int)layout, (int)flips, shape->samples, shape->height,
               shape->width, shape->channels, shape->out_offset, shape->in_offset, shape->in_gap,
               same, out_bytes / bytes, good ? "untouched" : "WRITTEN");
    GPU_CHECK(GPU_CALL(cuMemFree)(in_gpu));
    GPU_CHECK(GPU_CALL(cuMemFree)(flip_gpu));
    GPU_CHECK(GPU_CALL(cuMemFree)(out_gpu));
    free(in);
    free(out);
    free(flip);
    return good && same * bytes == out_bytes;
}

unsigned check_all(struct device *device, CUstream stream)
{
    static const enum pinclient_dtype types[] = {PINCLIENT_F32, PINCLIENT_F16, PINCLIENT_BF16};
    static struct transform_plan plan;
    unsigned bad = 0, all = 0;

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        expect(types[i]);
        for (size_t j = 0; j < sizeof shapes / sizeof shapes[0]; j++) {
            transform_plan_make(&plan, types[i], shapes[j].channels, mean, std);
            /* As if no line gave the values, for some. */
            plan.by_line = plan.by_line && j % 8 != 2;
            for (int k = 0; k < 2 * FLIPS_KINDS; k++) {
                bad += !check(device, stream, &plan, &shapes[j],
                              k % 2 ? PINCLIENT_NHWC : PINCLIENT_NCHW, (enum flips)(k / 2));
                all++;
            }
        }
    }
    printf("checked: %u of %u shapes, types, layouts and flips differ from double precision\n", bad,
           all);
    return bad;
}
