/*
 * The transform's kernels on a GPU, without a daemon: whether every value is
 * right, and what share they reach of the memory bandwidth that copies of as
 * many bytes within the GPU reach.
 *
 *   bench_transform [--check-only]
 *
 * Bandwidth counts bytes read and bytes written. Kernels and copies are replayed
 * from graphs, so that the CPU's time to queue them plays no part, over more
 * memory than caches hold. `call` is that time: what a call of the library
 * costs its thread.
 */
#include "transform_gpu.h"

#include <string.h>
#include <time.h>

#define ARENA (4ul << 30)
#define NODES_MAX 1024
#define REPEATS 5

void *gpu_library;

static struct device *device;
static CUstream stream;
static CUdeviceptr arena;

void gpu_transform(struct device *on, const struct transform_work *work, CUstream queue)
{
    struct failure failure;

    if (device_transform(on, work, queue, &failure) < 0) {
        fprintf(stderr, "bench_transform: %s\n", failure.text);
        exit(1);
    }
}

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Ends a capture of nodes operations and replays it; the best time of one, in us. */
static double graph_time(size_t nodes)
{
    CUgraph graph;
    CUgraphExec executable;
    CUevent begin, end;
    double best = 1e30;

    GPU_CHECK(GPU_CALL(cuStreamEndCapture)(stream, &graph));
    GPU_CHECK(GPU_CALL(cuGraphInstantiate)(&executable, graph, 0));
    GPU_CHECK(GPU_CALL(cuEventCreate)(&begin, CU_EVENT_DEFAULT));
    GPU_CHECK(GPU_CALL(cuEventCreate)(&end, CU_EVENT_DEFAULT));
    for (int i = 0; i <= REPEATS; i++) {
        float ms;
        GPU_CHECK(GPU_CALL(cuEventRecord)(begin, stream));
        GPU_CHECK(GPU_CALL(cuGraphLaunch)(executable, stream));
        GPU_CHECK(GPU_CALL(cuEventRecord)(end, stream));
        GPU_CHECK(GPU_CALL(cuEventSynchronize)(end));
        GPU_CHECK(GPU_CALL(cuEventElapsedTime)(&ms, begin, end));
        if (i > 0 && ms * 1e3 / (double)nodes < best)
            best = ms * 1e3 / (double)nodes;
    }
    GPU_CHECK(GPU_CALL(cuEventDestroy)(begin));
    GPU_CHECK(GPU_CALL(cuEventDestroy)(end));
    GPU_CHECK(GPU_CALL(cuGraphExecDestroy)(executable));
    GPU_CHECK(GPU_CALL(cuGraphDestroy)(graph));
    return best;
}

static size_t align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static size_t node_count(size_t bytes)
{
    size_t nodes = ARENA / bytes;

    return nodes > NODES_MAX ? NODES_MAX : nodes;
}

/* A copy of bytes / 2 reads and writes bytes. */
static double copy_time(size_t bytes)
{
    size_t half = align(bytes / 2), nodes = node_count(2 * half);

    GPU_CHECK(GPU_CALL(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (size_t i = 0; i < nodes; i++)
        GPU_CHECK(GPU_CALL(cuMemcpyDtoDAsync)(arena + (2 * i + 1) * half, arena + 2 * i * half,
                                              bytes / 2, stream));
    return graph_time(nodes);
}

static double transform_time(struct transform_work *work, size_t in_bytes, size_t out_bytes)
{
    size_t step = align(in_bytes) + align(out_bytes), nodes = node_count(step);

    GPU_CHECK(GPU_CALL(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (size_t i = 0; i < nodes; i++) {
        work->in = (const uint8_t *)(uintptr_t)(arena + i * step);
        work->out = (void *)(uintptr_t)(arena + i * step + align(in_bytes));
        gpu_transform(device, work, stream);
    }
    return graph_time(nodes);
}

static double call_time(const struct transform_work *work)
{
    const int calls = 200;
    double began;

    GPU_CHECK(GPU_CALL(cuStreamSynchronize)(stream));
    began = now_us();
    for (int i = 0; i < calls; i++)
        gpu_transform(device, work, stream);
    double took = now_us() - began;
    GPU_CHECK(GPU_CALL(cuStreamSynchronize)(stream));
    return took / calls;
}

static void measure(enum pinclient_dtype dtype, enum pinclient_layout layout, uint32_t size,
                    uint32_t samples, bool flipped, bool by_table)
{
    static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    static struct transform_plan plan;
    static uint8_t flip[4096];
    const size_t in_bytes = (size_t)samples * size * size * 3;
    const size_t out_bytes = in_bytes * transform_dtype_bytes(dtype), bytes = in_bytes + out_bytes;

    transform_plan_make(&plan, dtype, 3, mean, std);
    plan.by_line = plan.by_line && !by_table;
    memset(flip, 1, sizeof flip);
    struct transform_work work = {
        .plan = &plan,
        .flip = flipped ? flip : NULL,
        .in_stride = (uint64_t)size * size * 3,
        .samples = samples,
        .height = size,
        .width = size,
        .layout = layout,
    };
    double took = transform_time(&work, in_bytes, out_bytes), copied = copy_time(bytes);
    double rate = (double)bytes / took * 1e-3, copy_rate = (double)bytes / copied * 1e-3;
    printf("%-4s %s %4u %5u %s%s %9.2f us %8.1f GB/s, copy %8.1f GB/s, share %.3f, call %.1f us\n",
           dtype == PINCLIENT_F32   ? "f32"
           : dtype == PINCLIENT_F16 ? "f16"
                                    : "bf16",
           layout == PINCLIENT_NCHW ? "NCHW" : "NHWC", size, samples, flipped ? "flip" : "    ",
           by_table ? " table" : "      ", took, rate, copy_rate, rate / copy_rate,
           call_time(&work));
}

static void measure_all(void)
{
    static const uint32_t batches[] = {1, 8, 32, 64, 128, 256, 1024};
    static const enum pinclient_dtype types[] = {PINCLIENT_F32, PINCLIENT_F16, PINCLIENT_BF16};

    GPU_CHECK(GPU_CALL(cuMemAlloc)(&arena, ARENA));
    /* Bytes of all values: lookups and copies depend on what they are. */
    for (size_t i = 0; i < ARENA; i += 1 << 24) {
        static uint8_t bytes[1 << 24];
        for (size_t j = 0; j < sizeof bytes && i == 0; j++)
            bytes[j] = (uint8_t)((j * 0x9e3779b97f4a7c15u) >> 56);
        GPU_CHECK(GPU_CALL(cuMemcpyHtoD)(arena + i, bytes, sizeof bytes));
    }
    for (size_t i = 0; i < 3; i++) {
        for (int layout = 0; layout < 2; layout++) {
            for (size_t j = 0; j < sizeof batches / sizeof batches[0]; j++)
                measure(types[i], (enum pinclient_layout)layout, 224, batches[j], false, false);
            measure(types[i], (enum pinclient_layout)layout, 224, 256, true, false);
            measure(types[i], (enum pinclient_layout)layout, 224, 256, false, true);
            measure(types[i], (enum pinclient_layout)layout, 225, 256, false, false);
            measure(types[i], (enum pinclient_layout)layout, 225, 256, true, false);
            measure(types[i], (enum pinclient_layout)layout, 384, 128, false, false);
            measure(types[i], (enum pinclient_layout)layout, 32, 1024, false, false);
        }
    }
    GPU_CHECK(GPU_CALL(cuMemFree)(arena));
}

int main(int argc, char **argv)
{
    bool check_only = argc == 2 && strcmp(argv[1], "--check-only") == 0;
    char name[DEVICE_NAME_MAX];
    struct failure failure;
    CUcontext context;
    CUdevice number;

    if (argc > 2 || (argc == 2 && !check_only)) {
        fprintf(stderr, "usage: bench_transform [--check-only]\n");
        return 2;
    }
    gpu_library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!gpu_library || device_resolve("cuda:0", name, &failure) < 0 ||
        device_open(name, &device, &failure) < 0) {
        fprintf(stderr, "bench_transform: %s\n", gpu_library ? failure.text : dlerror());
        return 1;
    }
    GPU_CHECK(GPU_CALL(cuDeviceGet)(&number, 0));
    GPU_CHECK(GPU_CALL(cuDevicePrimaryCtxRetain)(&context, number));
    GPU_CHECK(GPU_CALL(cuCtxPushCurrent)(context));
    GPU_CHECK(GPU_CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    unsigned bad = check_all(device, stream);
    if (!check_only)
        measure_all();
    GPU_CHECK(GPU_CALL(cuStreamDestroy)(stream));
    device_close(device);
    return bad > 0;
}
