/*
 * What a driver does on bad days, as the stand-in can be told to: each test sets
 * its environment, which the device's process inherits.
 *
 *   test-device-faults PROGRAM IMPORTER
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contract/faults.h"
#include "unit/temp_dir.h"

static const char *const knobs[] = {
    "PINSERVE_DRIVER_COPY_DELAY_US",
    "PINSERVE_DRIVER_FAIL_COPY",
    "PINSERVE_DRIVER_BREAK_COPY",
    "PINSERVE_DRIVER_NO_FD",
    "PINSERVE_DRIVER_NO_IPC",
    "PINSERVE_DRIVER_NO_READ_ONLY",
    "PINSERVE_DRIVER_REGISTER_DELAY_MS",
    "PINSERVE_DRIVER_NO_REGISTER",
    "PINSERVE_DRIVER_DEVICES",
    "PINSERVE_DRIVER_VERSION",
};

static int teardown(void **state)
{
    int r = fixture_teardown(state);

    for (size_t i = 0; i < sizeof knobs / sizeof knobs[0]; i++)
        unsetenv(knobs[i]);
    return r;
}

static int copy(struct fixture *f, size_t offset, size_t ring_offset, size_t bytes, uint64_t cookie)
{
    return f->device->ops->copy(f->device, 1, offset, 1, ring_offset, bytes, cookie);
}

/* Open, with region 1 and ring 1, whose zeros are two copies of the driver's count. */
static void start(struct fixture *f)
{
    fixture_open(f);
    fixture_add_region(f, 1, REGION_BYTES, 1);
    assert_true(fixture_make_ring(f, 1, RING_EXPORT_FD, RING_BYTES));
}

static void expect_copy_arrives(struct fixture *f, enum ring_export export_as, size_t bytes)
{
    uint8_t *data = malloc(bytes);
    struct importer importer;
    unsigned copies = f->copied;

    assert_int_equal(copy(f, 0, 0, bytes, 9), 0);
    fixture_wait(f, &f->copied, copies + 1);
    fixture_import(f, &importer, export_as, RING_BYTES);
    assert_int_equal(importer_read(&importer, 0, data, bytes), 0);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(data[i], region_byte(i, 1));
    importer_stop(&importer);
    free(data);
}

static void test_slow_copies_are_not_reported_early(void **state)
{
    struct fixture *f = *state;

    setenv("PINSERVE_DRIVER_COPY_DELAY_US", "60000", 1);
    start(f);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(copy(f, 0, 0, 4096, i), 0);
    fixture_idle(f, 30);
    assert_int_equal(f->copied, 0);
    fixture_wait(f, &f->copied, 1);
    assert_in_range(f->copied, 1, 4);
    /* Neither goes before its copies have ended. */
    assert_int_equal(f->device->ops->remove_region(f->device, 1), 0);
    assert_int_equal(f->device->ops->free_ring(f->device, 1), 0);
    fixture_wait(f, &f->copied, 5);
    assert_int_equal(f->copies_failed, 0);
    fixture_close(f);
}

static void test_refused_copy_fails_alone(void **state)
{
    struct fixture *f = *state;

    setenv("PINSERVE_DRIVER_FAIL_COPY", "5", 1);
    start(f);
    for (uint64_t i = 1; i <= 6; i++)
        assert_int_equal(copy(f, 0, 0, 4096, i), 0);
    fixture_wait(f, &f->copied, 6);
    for (uint64_t i = 1; i <= 6; i++)
        assert_int_equal(f->ended[i], 1);
    assert_int_equal(f->copies_failed, 1);
    assert_int_equal(f->failed_cookie, 3);
    assert_non_null(strstr(f->copy_failure.text, "CUDA_ERROR_INVALID_VALUE"));
    expect_copy_arrives(f, RING_EXPORT_FD, 8192);
    fixture_close(f);
}

/* The driver calls no host function any more: that is noticed all the same, and told. */
static void test_broken_context_is_lost(void **state)
{
    struct fixture *f = *state;

    setenv("PINSERVE_DRIVER_BREAK_COPY", "4", 1);
    start(f);
    for (uint64_t i = 1; i <= 2; i++)
        assert_int_equal(copy(f, 0, 0, 4096, i), 0);
    fixture_wait(f, &f->lost, 1);
    assert_int_equal(f->ended[2], 0);
    assert_int_equal(f->lost_failure.code, -EIO);
    assert_non_null(strstr(f->lost_failure.text, target.info.uuid));
    assert_non_null(strstr(f->lost_failure.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    unsetenv("PINSERVE_DRIVER_BREAK_COPY");
    start(f);
    expect_copy_arrives(f, RING_EXPORT_FD, 4096);
    fixture_close(f);
}

static void test_no_fd_export_leaves_ipc(void **state)
{
    struct fixture *f = *state;

    setenv("PINSERVE_DRIVER_NO_FD", "1", 1);
    fixture_open(f);
    fixture_add_region(f, 1, REGION_BYTES, 1);
    assert_false(fixture_make_ring(f, 1, RING_EXPORT_FD, RING_BYTES));
    assert_int_equal(f->ring_failure.code, -EOPNOTSUPP);
    assert_non_null(strstr(f->ring_failure.text, "4 MiB"));
    assert_non_null(strstr(f->ring_failure.text, "file descriptor"));
    assert_true(fixture_make_ring(f, 1, RING_EXPORT_IPC, RING_BYTES));
    expect_copy_arrives(f, RING_EXPORT_IPC, RING_BYTES);
    fixture_close(f);
}

static void test_no_ipc_export_leaves_fd(void **state)
{
    struct fixture *f = *state;

    setenv("PINSERVE_DRIVER_NO_IPC", "1", 1);
    fixture_open(f);
    fixture_add_region(f, 1, REGION_BYTES, 1);
    assert_false(fixture_make_ring(f, 1, RING_EXPORT_IPC, RING_BYTES));
    assert_non_null(strstr(f->ring_failure.text, "IPC handle"));
    assert_true(fixture_make_ring(f, 1, RING_EXPORT_FD, RING_BYTES));
    expect_copy_arrives(f, RING_EXPORT_FD, RING_BYTES);
    fixture_close(f);
}

/* Such regions cannot be registered: their copies go through the driver's buffers, and arrive. */
static void test_unregistered_regions_are_copied_too(void **state)
{
    struct fixture *f = *state;

    setenv("PINSERVE_DRIVER_NO_READ_ONLY", "1", 1);
    start(f);
    expect_copy_arrives(f, RING_EXPORT_FD, RING_BYTES);
    fixture_close(f);
    setenv("PINSERVE_DRIVER_NO_REGISTER", "1", 1);
    start(f);
    expect_copy_arrives(f, RING_EXPORT_FD, RING_BYTES);
    fixture_close(f);
}

/* The socket takes a few hundred commands; the rest wait, in order. */
static void test_commands_wait_while_the_socket_is_full(void **state)
{
    struct fixture *f = *state;
    bool waited = false;

    setenv("PINSERVE_DRIVER_COPY_DELAY_US", "500", 1);
    setenv("PINSERVE_DRIVER_NO_READ_ONLY", "1", 1);
    start(f);
    for (uint64_t i = 0; i < 2000; i++) {
        assert_int_equal(copy(f, i, 0, 4096, i), 0);
        waited = waited || f->device->ops->wants_write(f->device);
    }
    assert_true(waited);
    fixture_wait(f, &f->copied, 2000);
    for (size_t i = 0; i < 2000; i++)
        assert_int_equal(f->ended[i], 1);
    assert_false(f->device->ops->wants_write(f->device));
    expect_copy_arrives(f, RING_EXPORT_FD, 4096);
    fixture_close(f);
}

static void test_devices_are_told_by_uuid(void **state)
{
    struct fixture *f = *state;
    struct device_info infos[4];
    struct failure failure;

    setenv("PINSERVE_DRIVER_DEVICES", "3", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    assert_int_equal(device_list(target.program, infos, 4, &failure), 3);
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_string_not_equal(infos[0].uuid, infos[2].uuid);
    assert_string_equal(infos[2].pci, "0000:a3:00.0");
    assert_string_equal(infos[2].name, "Stand-in device");
    f->device->info = infos[2];
    start(f);
    fixture_close(f);
}

#define fault(test) cmocka_unit_test_setup_teardown(test, fixture_setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        fault(test_slow_copies_are_not_reported_early),
        fault(test_refused_copy_fails_alone),
        fault(test_broken_context_is_lost),
        fault(test_no_fd_export_leaves_ipc),
        fault(test_no_ipc_export_leaves_fd),
        fault(test_unregistered_regions_are_copied_too),
        fault(test_commands_wait_while_the_socket_is_full),
        fault(test_devices_are_told_by_uuid),
        fault(test_windows_are_given_up_for_others),
        fault(test_files_over_the_bound_are_refused),
        fault(test_cut_file_fails_its_gather_alone),
        fault(test_file_shorter_than_told_is_not_ready),
        fault(test_older_drivers_gather_too),
        fault(test_files_need_read_only_registration),
        fault(test_broken_context_is_lost_by_a_gather),
        fault(test_registering_holds_nothing_up),
        fault(test_hung_registration_does_not_keep_the_process),
        fault(test_slow_gathers_are_not_reported_early),
    };
    struct failure failure;

    if (argc != 3)
        return 2;
    target.kind = "stand-in";
    target.gather_max = (uint64_t)512 << 20;
    target.program = argv[1];
    target.importer = argv[2];
    if (device_list(target.program, &target.info, 1, &failure) != 1) {
        fprintf(stderr, "%s\n", failure.text);
        return EXIT_FAILURE;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
