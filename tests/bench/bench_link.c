/*
 * How fast this machine's link is with nothing around it: pinned memory copied
 * to the GPU in pieces of a batch, a few in flight. Batches are compared with
 * this in the same run.
 *
 *   bench_link [--bytes N] [--seconds S] [--flight N]
 */
#include <cuda.h>
#include <dlfcn.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STRING_OF(name) #name
#define STRING(name) STRING_OF(name)
#define CALL(name) ((__typeof__(&(name)))dlsym(library, STRING(name)))
#define CHECK(call)                                                                                \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            fprintf(stderr, "bench_link: %s: %d\n", #call, (int)result_);                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define FLIGHT_MAX 16

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"bytes", required_argument, NULL, 'b'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"flight", required_argument, NULL, 'f'},
                                            {NULL, 0, NULL, 0}};
    size_t bytes = 256 * 150528;
    double seconds = 4;
    int flight = 4, option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'b')
            bytes = strtoull(optarg, NULL, 10);
        else if (option == 's')
            seconds = strtod(optarg, NULL);
        else if (option == 'f')
            flight = atoi(optarg);
        else
            return 2;
    }
    if (flight < 1 || flight > FLIGHT_MAX || bytes == 0)
        return 2;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "bench_link: %s\n", dlerror());
        return 1;
    }
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUevent events[FLIGHT_MAX];
    void *from[FLIGHT_MAX];
    CUdeviceptr to[FLIGHT_MAX];
    CHECK(CALL(cuInit)(0));
    CHECK(CALL(cuDeviceGet)(&device, 0));
    CHECK(CALL(cuDevicePrimaryCtxRetain)(&context, device));
    CHECK(CALL(cuCtxPushCurrent)(context));
    CHECK(CALL(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < flight; i++) {
        from[i] = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        if (!from[i])
            return 1;
        memset(from[i], i + 1, bytes);
        CHECK(CALL(cuMemHostRegister)(from[i], (bytes + 4095) / 4096 * 4096, 0));
        CHECK(CALL(cuMemAlloc)(&to[i], bytes));
        CHECK(CALL(cuEventCreate)(&events[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    }
    unsigned long copies = 0;
    double began = 0;
    for (unsigned long i = 0;; i++) {
        int at = (int)(i % (unsigned)flight);
        if (i >= (unsigned)flight) {
            CHECK(CALL(cuEventSynchronize)(events[at]));
            double now = now_s();
            if (i == 2ul * (unsigned)flight) /* what came before warmed up */
                began = now;
            else if (began > 0)
                copies++;
            if (began > 0 && now - began > seconds) {
                printf("{\"gb_per_s\": %.3f, \"copies\": %lu, \"bytes\": %zu}\n",
                       (double)copies * (double)bytes / (now - began) / 1e9, copies, bytes);
                return 0;
            }
        }
        CHECK(CALL(cuMemcpyHtoDAsync)(to[at], from[at], bytes, stream));
        CHECK(CALL(cuEventRecord)(events[at], stream));
    }
}
