/*
 * Bytes of device memory reach the host, from the device that was named. Runs on the driver's
 * stand-in, which is told to have two devices.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/driver.h"
#include "client/pinctl/checksum.h"
#include "client/pinctl/readback.h"

#define BYTES 4096

static struct {
    __typeof__(&cuMemAlloc) alloc;
    __typeof__(&cuMemFree) free;
    __typeof__(&cuMemcpyHtoD) copy;
} calls;

static void find(void *library, const char *name, void *call_p)
{
    void *call = dlsym(library, name);
    assert_non_null(call);
    memcpy(call_p, &call, sizeof(call));
}

/* The UUID of device i, and its primary context made current. */
static void use_device(const struct driver *driver, int i, char uuid[41], CUcontext *context_p)
{
    CUdevice device = 0;
    CUuuid bytes;
    size_t n = 4;
    assert_int_equal(driver->cuDeviceGet(&device, i), CUDA_SUCCESS);
    assert_int_equal(driver->cuDeviceGetUuid(&bytes, device), CUDA_SUCCESS);
    memcpy(uuid, "GPU-", 5);
    for (size_t k = 0; k < 16; k++)
        n += (size_t)snprintf(uuid + n, 41 - n,
                              k == 4 || k == 6 || k == 8 || k == 10 ? "-%02x" : "%02x",
                              (unsigned char)bytes.bytes[k]);
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(context_p, device), CUDA_SUCCESS);
    assert_int_equal(driver->cuCtxPushCurrent(*context_p), CUDA_SUCCESS);
}

static void test_bytes_come_back(void **state)
{
    const struct driver *driver = *state;
    unsigned char there[BYTES], here[BYTES];
    struct failure failure = {.code = 0};
    for (int i = 0; i < 2; i++) {
        char uuid[41];
        CUcontext context = NULL, popped = NULL;
        CUdeviceptr memory = 0;
        struct readback *readback = NULL;
        use_device(driver, i, uuid, &context);
        memset(there, 0x30 + i, sizeof(there));
        memset(here, 0, sizeof(here));
        assert_int_equal(calls.alloc(&memory, BYTES), CUDA_SUCCESS);
        assert_int_equal(calls.copy(memory, there, BYTES), CUDA_SUCCESS);
        assert_int_equal(driver->cuCtxPopCurrent(&popped), CUDA_SUCCESS);

        assert_int_equal(readback_new(uuid, &readback, &failure), 0);
        assert_int_equal(readback_copy(readback, here, (void *)(uintptr_t)memory, BYTES, &failure),
                         0);
        assert_memory_equal(here, there, BYTES);
        assert_int_equal(readback_copy(readback, here, (void *)(uintptr_t)16, BYTES, &failure),
                         -EIO);
        assert_non_null(strstr(failure.text, "cannot read a batch from the GPU: CUDA error"));
        readback_free(readback);

        assert_int_equal(driver->cuCtxPushCurrent(context), CUDA_SUCCESS);
        assert_int_equal(calls.free(memory), CUDA_SUCCESS);
        assert_int_equal(driver->cuCtxPopCurrent(&popped), CUDA_SUCCESS);
        assert_int_equal(driver->cuDevicePrimaryCtxRelease(i), CUDA_SUCCESS);
    }
}

static void test_unknown_device_is_named(void **state)
{
    (void)state;
    struct readback *readback = NULL;
    struct failure failure = {.code = 0};
    assert_int_equal(readback_new("GPU-ffffffff-0000-0000-0000-000000000000", &readback, &failure),
                     -ENODEV);
    assert_non_null(strstr(failure.text, "GPU-ffffffff-0000-0000-0000-000000000000"));
    assert_null(readback);
    struct checksum *checksum = NULL;
    assert_int_equal(checksum_new("GPU-ffffffff", &checksum, &failure), -ENODEV);
    assert_null(checksum);
}

static int setup(void **state)
{
    const struct driver *driver = NULL;
    struct failure failure = {.code = 0};
    setenv("PINSERVE_DRIVER_DEVICES", "2", 1);
    if (driver_load(&driver, &failure) < 0) {
        fprintf(stderr, "%s\n", failure.text);
        return -1;
    }
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    find(library, DRIVER_NAME(cuMemAlloc), &calls.alloc);
    find(library, DRIVER_NAME(cuMemFree), &calls.free);
    find(library, DRIVER_NAME(cuMemcpyHtoD), &calls.copy);
    dlclose(library);
    *state = (void *)driver;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_come_back),
        cmocka_unit_test(test_unknown_device_is_named),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
