/*
 * client/device_transform.c against the driver's stand-in, which has room for no
 * kernel. Kernels that run are bench_transform's, on a GPU.
 */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/device.h"
#include "client/driver.h"
#include "client/transform.h"

/* By name what does not fit what; the device goes on without kernels. */
static void test_no_kernel_fits(void **state)
{
    char name[DEVICE_NAME_MAX], wanted[256];
    struct device *device;
    struct failure failure;
    const double mean = 0, std = 1;
    uint8_t in[16] = {0};
    float out[16] = {0};
    static struct transform_plan plan;

    (void)state;
    transform_plan_make(&plan, PINCLIENT_F32, 1, &mean, &std);
    struct transform_work work = {.plan = &plan,
                                  .in = in,
                                  .out = out,
                                  .in_stride = 16,
                                  .samples = 1,
                                  .height = 4,
                                  .width = 4};
    assert_int_equal(device_resolve("cuda:0", name, &failure), 0);
    assert_int_equal(device_open(name, &device, &failure), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(device_transform(device, &work, NULL, &failure), -EOPNOTSUPP);
        snprintf(wanted, sizeof wanted,
                 transform_image ? "transform: this libpinclient has no kernel for %s, of compute "
                                   "capability 9.0: CUDA error 209 (CUDA_ERROR_NO_BINARY_FOR_GPU)"
                                 : "transform: this libpinclient was built without nvcc, so "
                                   "without kernels",
                 name);
        assert_string_equal(failure.text, wanted);
    }
    device_close(device);
}

/* A release cannot follow a stream that is being captured: told before a kernel is queued. */
static void test_stream_check(void **state)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    const struct driver *driver;
    char name[DEVICE_NAME_MAX];
    struct device *device;
    struct failure failure;
    CUcontext context;
    CUstream stream;
    CUgraph graph;
    __typeof__(&cuStreamBeginCapture) begin;
    __typeof__(&cuStreamEndCapture) end;

    (void)state;
    void *begin_p = dlsym(library, DRIVER_NAME(cuStreamBeginCapture));
    void *end_p = dlsym(library, DRIVER_NAME(cuStreamEndCapture));
    memcpy(&begin, &begin_p, sizeof begin);
    memcpy(&end, &end_p, sizeof end);
    assert_int_equal(driver_load(&driver, &failure), 0);
    assert_int_equal(device_resolve("cuda:0", name, &failure), 0);
    assert_int_equal(device_open(name, &device, &failure), 0);
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(driver->cuCtxPushCurrent(context), CUDA_SUCCESS);
    assert_int_equal(driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(device_stream_check(device, stream, &failure), 0);
    assert_int_equal(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(device_stream_check(device, stream, &failure), -EBUSY);
    assert_non_null(strstr(failure.text, "being captured"));
    assert_int_equal(end(stream, &graph), CUDA_SUCCESS);
    assert_int_equal(device_stream_check(device, stream, &failure), 0);
    driver->cuStreamDestroy(stream);
    driver->cuCtxPopCurrent(&context);
    driver->cuDevicePrimaryCtxRelease(0);
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_kernel_fits),
        cmocka_unit_test(test_stream_check),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
