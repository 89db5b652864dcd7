/*
 * The contract of device.h, the same bodies for every kind of device:
 *
 *   test-device host | stand-in | cuda  PROGRAM IMPORTER
 *
 * cuda is what the driver of this machine shows first; without one the tests are
 * skipped. What only the stand-in can be made to do is in device_faults.c.
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

#include "contract/bodies.h"
#include "proto/cleanup.h"
#include "unit/temp_dir.h"

/* -- every kind ------------------------------------------------------------------------------- */

static void test_opens_and_closes_again_and_again(void **state)
{
    struct fixture *f = *state;
    struct failure failure;

    for (unsigned i = 1; i <= 3; i++) {
        fixture_open(f);
        assert_int_equal(f->device->ops->open(f->device, &failure), 0);
        fixture_idle(f, 20);
        assert_int_equal(f->opened, i);
        fixture_close(f);
        f->device->ops->close(f->device);
        assert_int_equal(f->lost, i);
    }
}

static void test_refuses_commands_when_not_open(void **state)
{
    struct fixture *f = *state;
    const struct device_ops *ops = f->device->ops;
    int fds = open_fds();

    assert_int_equal(ops->add_region(f->device, 1, region_fd(4096, 1), 4096), -ENOTCONN);
    assert_int_equal(ops->remove_region(f->device, 1), -ENOTCONN);
    assert_int_equal(ops->get_fd(f->device), -1);
    assert_int_equal(ops->get_pidfd(f->device), -1);
    assert_false(ops->wants_write(f->device));
    fixture_open(f);
    ops->close(f->device);
    assert_int_equal(ops->add_region(f->device, 1, region_fd(4096, 1), 4096), -ENOTCONN);
    fixture_wait(f, &f->lost, 1);
    assert_int_equal(open_fds(), fds);
}

static void test_freed_while_up_says_nothing(void **state)
{
    struct fixture *f = *state;
    int fds = open_fds();

    fixture_open(f);
    fixture_add_region(f, 1, REGION_BYTES, 1);
    fixture_deinit(f);
    assert_int_equal(f->lost, 0);
    fixture_init(f);
    assert_int_equal(open_fds(), fds);
}

static void test_regions_come_and_go_without_leaks(void **state)
{
    struct fixture *f = *state;
    int fds = open_fds();

    for (int round = 0; round < 3; round++) {
        fixture_open(f);
        for (uint32_t region = 1; region <= 40; region++)
            fixture_add_region(f, region, 65536, region);
        for (uint32_t region = 1; region <= 40; region++)
            assert_int_equal(f->device->ops->remove_region(f->device, region), 0);
        fixture_close(f);
    }
    assert_int_equal(open_fds(), fds);
}

static void test_device_without_ring_refuses_one(void **state)
{
    struct fixture *f = *state;

    if (f->device->ops->has_ring)
        skip();
    fixture_open(f);
    assert_int_equal(f->device->ops->make_ring(f->device, 1, RING_EXPORT_FD, RING_BYTES),
                     -EOPNOTSUPP);
    assert_int_equal(copy(f, 0, 0, 1, 1), -EOPNOTSUPP);
    assert_int_equal(f->device->ops->free_ring(f->device, 1), -EOPNOTSUPP);
}

/* -- with rings ------------------------------------------------------------------------------- */

static void test_ring_too_large_is_refused_in_words(void **state)
{
    struct fixture *f = *state;

    skip_without_ring(f);
    fixture_open(f);
    for_each_export(export_as)
    {
        unsigned failed = f->rings_failed;

        assert_int_equal(f->device->ops->make_ring(f->device, 5, export_as, (size_t)1 << 42), 0);
        fixture_wait(f, &f->rings_failed, failed + 1);
        assert_int_equal(f->failed_ring, 5);
        if (f->ring_unsupported)
            continue;
        assert_int_equal(f->ring_failure.code, -ENOMEM);
        assert_non_null(strstr(f->ring_failure.text, target.info.uuid));
        assert_non_null(strstr(f->ring_failure.text, "4 TiB"));
        assert_true(fixture_make_ring(f, 5, export_as, RING_BYTES));
        assert_int_equal(f->device->ops->free_ring(f->device, 5), 0);
    }
    fixture_close(f);
}

static void test_rings_and_copies_leak_no_fd(void **state)
{
    struct fixture *f = *state;
    int fds = open_fds();

    skip_without_ring(f);
    for (int round = 0; round < 2; round++) {
        fixture_open(f);
        fixture_add_region(f, 1, REGION_BYTES, 1);
        for_each_export(export_as)
        {
            for (uint64_t ring = 1; ring <= 5; ring++) {
                if (fixture_make_ring(f, ring, export_as, RING_BYTES))
                    assert_int_equal(copy(f, 0, 0, 4096, ring), 0);
                assert_int_equal(f->device->ops->free_ring(f->device, ring), 0);
            }
        }
        fixture_close(f);
        close_fd(&f->ring_fd);
    }
    assert_int_equal(open_fds(), fds);
}

static void test_unknown_device_is_lost_in_words(void **state)
{
    struct fixture *f = *state;
    struct failure failure;

    skip_without_ring(f);
    snprintf(f->device->info.uuid, sizeof f->device->info.uuid,
             "GPU-00000000-0000-0000-0000-000000000000");
    f->up = true;
    assert_int_equal(f->device->ops->open(f->device, &failure), 0);
    fixture_wait(f, &f->lost, 1);
    assert_int_equal(f->opened, 0);
    assert_int_equal(f->lost_failure.code, -ENODEV);
    assert_non_null(strstr(f->lost_failure.text, f->device->info.uuid));
    assert_non_null(strstr(f->lost_failure.text, "CUDA_ERROR_NO_DEVICE"));
}

static void test_missing_program_is_named(void **state)
{
    struct fixture *f = *state;
    struct device_process_spec spec = {.program = "/nowhere/pinserved-device"};
    struct failure failure;
    struct device *device;
    int fds = open_fds();

    skip_without_ring(f);
    assert_int_equal(device_process_new(&spec, &target.info, f->device->events, f, &device), 0);
    assert_int_equal(device->ops->open(device, &failure), -ENOENT);
    assert_int_equal(failure.code, -ENOENT);
    assert_non_null(strstr(failure.text, target.info.uuid));
    assert_non_null(strstr(failure.text, "/nowhere/pinserved-device"));
    assert_int_equal(device->ops->get_fd(device), -1);
    device->ops->free(device);
    assert_int_equal(open_fds(), fds);
}

#define contract(test) cmocka_unit_test_setup_teardown(test, fixture_setup, fixture_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        contract(test_opens_and_closes_again_and_again),
        contract(test_refuses_commands_when_not_open),
        contract(test_freed_while_up_says_nothing),
        contract(test_regions_come_and_go_without_leaks),
        contract(test_device_without_ring_refuses_one),
        contract(test_bytes_arrive_intact),
        contract(test_large_slots_arrive_intact),
        contract(test_many_in_flight_keep_their_order),
        contract(test_commands_need_not_wait_for_events),
        contract(test_new_rings_are_zero),
        contract(test_bad_copies_fail_alone),
        contract(test_parts_in_use_go_after_their_copies),
        contract(test_fd_import_is_read_only),
        contract(test_ring_too_large_is_refused_in_words),
        contract(test_killed_process_is_lost_once_and_comes_back),
        contract(test_rings_and_copies_leak_no_fd),
        contract(test_device_without_ring_gathers_nothing),
        contract(test_pieces_cross_the_borders_of_windows),
        contract(test_a_gather_has_thousands_of_pieces),
        contract(test_a_gather_has_bytes_of_a_region_beside),
        contract(test_gathers_keep_their_ring_and_files),
        contract(test_bad_gathers_fail_alone),
        contract(test_files_come_and_go_without_leaks),
        contract(test_unknown_device_is_lost_in_words),
        contract(test_missing_program_is_named),
    };
    struct failure failure;
    int n;

    if (argc < 2)
        return 2;
    target.kind = argv[1];
    target.gather_max = (uint64_t)512 << 20;
    snprintf(target.info.uuid, sizeof target.info.uuid, "host");
    if (argc < 4)
        return cmocka_run_group_tests(tests, NULL, NULL);
    target.program = argv[2];
    target.importer = argv[3];
    n = device_list(target.program, &target.info, 1, &failure);
    if (n <= 0) {
        fprintf(stderr, "%s: %s\n", target.kind, n < 0 ? failure.text : "no device");
        return strcmp(target.kind, "cuda") != 0 ? EXIT_FAILURE : 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
