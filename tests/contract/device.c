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
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>

#include "contract/fixture.h"
#include "proto/cleanup.h"
#include "unit/temp_dir.h"

static const enum ring_export exports[] = {RING_EXPORT_FD, RING_EXPORT_IPC};

#define for_each_export(export_as)                                                                 \
    for (size_t export_i = 0; export_i < 2; export_i++)                                            \
        for (enum ring_export export_as = exports[export_i], *once = &export_as; once; once = NULL)

static int setup(void **state)
{
    struct fixture *fixture = malloc(sizeof *fixture);

    *state = fixture;
    fixture_init(fixture);
    return 0;
}

static int teardown(void **state)
{
    fixture_deinit(*state);
    free(*state);
    return 0;
}

static int copy(struct fixture *f, size_t offset, size_t ring_offset, size_t bytes, uint64_t cookie)
{
    return f->device->ops->copy(f->device, 1, offset, 1, ring_offset, bytes, cookie);
}

/* The bytes of [ring_offset, + bytes) are those of region `seed` from offset on. */
static void expect_bytes(struct importer *importer, size_t ring_offset, size_t bytes, size_t offset,
                         unsigned seed)
{
    uint8_t *data = malloc(bytes);

    assert_int_equal(importer_read(importer, ring_offset, data, bytes), 0);
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != region_byte(offset + i, seed))
            fail_msg("byte %zu of %zu at ring offset %zu is %u, not %u", i, bytes, ring_offset,
                     data[i], region_byte(offset + i, seed));
    free(data);
}

static void expect_zeros(struct importer *importer, size_t ring_offset, size_t bytes)
{
    uint8_t *data = malloc(bytes);

    assert_int_equal(importer_read(importer, ring_offset, data, bytes), 0);
    for (size_t i = 0; i < bytes; i++)
        if (data[i])
            fail_msg("byte %zu is %u, not 0", ring_offset + i, data[i]);
    free(data);
}

static void skip_without_ring(const struct fixture *f)
{
    if (!f->device->ops->has_ring)
        skip();
}

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

static void test_bytes_arrive_intact(void **state)
{
    static const size_t sizes[] = {1,    3,     511,    512,     4095,         4096,
                                   4097, 65536, 150001, 1 << 20, (1 << 20) + 1};
    struct fixture *f = *state;
    struct importer importer;

    skip_without_ring(f);
    for_each_export(export_as)
    {
        unsigned copies = f->copied;
        size_t at = 0, ring_at = 7;

        fixture_open(f);
        fixture_add_region(f, 1, REGION_BYTES, 1);
        if (!fixture_make_ring(f, 1, export_as, RING_BYTES)) {
            fixture_close(f);
            continue;
        }
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            assert_int_equal(copy(f, at, ring_at, sizes[i], i), 0);
            at += sizes[i] + 13;
            ring_at += sizes[i] + 4;
        }
        fixture_wait(f, &f->copied, copies + sizeof sizes / sizeof sizes[0]);
        fixture_import(f, &importer, export_as, RING_BYTES);
        at = 0, ring_at = 7;
        expect_zeros(&importer, 0, 7);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            expect_bytes(&importer, ring_at, sizes[i], at, 1);
            expect_zeros(&importer, ring_at + sizes[i], 4);
            at += sizes[i] + 13;
            ring_at += sizes[i] + 4;
        }
        expect_zeros(&importer, ring_at, RING_BYTES - ring_at);
        importer_stop(&importer);
        fixture_close(f);
        assert_int_equal(f->copies_failed, 0);
    }
}

/* What is copied while the importer has the ring open is there for it once copied says so. */
static void test_many_in_flight_keep_their_order(void **state)
{
    struct fixture *f = *state;
    struct importer importer;

    skip_without_ring(f);
    for_each_export(export_as)
    {
        unsigned copies = f->copied;

        fixture_open(f);
        fixture_add_region(f, 1, REGION_BYTES, 1);
        if (!fixture_make_ring(f, 1, export_as, RING_BYTES)) {
            fixture_close(f);
            continue;
        }
        fixture_import(f, &importer, export_as, RING_BYTES);
        memset(f->ended, 0, sizeof f->ended);
        for (size_t i = 0; i < 2000; i++)
            assert_int_equal(copy(f, i * 64, i % 8 * 8192, 8192, i), 0);
        fixture_wait(f, &f->copied, copies + 2000);
        for (size_t i = 0; i < 2000; i++)
            assert_int_equal(f->ended[i], 1);
        for (size_t i = 1992; i < 2000; i++)
            expect_bytes(&importer, i % 8 * 8192, 8192, i * 64, 1);
        assert_int_equal(importer_close(&importer), 0);
        importer_stop(&importer);
        fixture_close(f);
        assert_int_equal(f->copies_failed, 0);
    }
}

static void test_commands_need_not_wait_for_events(void **state)
{
    struct fixture *f = *state;
    const struct device_ops *ops = f->device->ops;
    struct importer importer;
    struct failure failure;

    skip_without_ring(f);
    f->up = true;
    assert_int_equal(ops->open(f->device, &failure), 0);
    fixture_add_region(f, 1, REGION_BYTES, 7);
    assert_int_equal(ops->make_ring(f->device, 1, RING_EXPORT_FD, RING_BYTES), 0);
    assert_int_equal(copy(f, 100, 4096, 1 << 20, 5), 0);
    assert_int_equal(f->opened + f->rings_made + f->copied, 0);
    fixture_wait(f, &f->copied, 1);
    assert_int_equal(f->ended[5], 1);
    if (f->copies_failed) {
        assert_true(f->rings_failed && f->ring_unsupported);
        skip();
    }
    fixture_wait(f, &f->rings_made, 1);
    assert_int_equal(f->opened, 1);
    fixture_import(f, &importer, RING_EXPORT_FD, RING_BYTES);
    expect_zeros(&importer, 0, 4096);
    expect_bytes(&importer, 4096, 1 << 20, 100, 7);
    importer_stop(&importer);
}

/* What one tenant's ring held must not be seen in the next one's. */
static void test_new_rings_are_zero(void **state)
{
    struct fixture *f = *state;
    struct importer importer;

    skip_without_ring(f);
    for_each_export(export_as)
    {
        fixture_open(f);
        fixture_add_region(f, 1, REGION_BYTES, 1);
        for (int round = 0; round < 4; round++) {
            unsigned copies = f->copied;

            if (!fixture_make_ring(f, 1, export_as, RING_BYTES))
                break;
            fixture_import(f, &importer, export_as, RING_BYTES);
            expect_zeros(&importer, 0, RING_BYTES);
            assert_int_equal(copy(f, 0, 0, REGION_BYTES, 1), 0);
            fixture_wait(f, &f->copied, copies + 1);
            expect_bytes(&importer, 0, REGION_BYTES, 0, 1);
            importer_stop(&importer);
            assert_int_equal(f->device->ops->free_ring(f->device, 1), 0);
        }
        fixture_close(f);
    }
}

static void test_bad_copies_fail_alone(void **state)
{
    struct fixture *f = *state;
    const struct device_ops *ops = f->device->ops;

    skip_without_ring(f);
    fixture_open(f);
    fixture_add_region(f, 1, REGION_BYTES, 1);
    if (!fixture_make_ring(f, 1, RING_EXPORT_FD, RING_BYTES) &&
        !fixture_make_ring(f, 1, RING_EXPORT_IPC, RING_BYTES))
        fail();
    assert_int_equal(ops->copy(f->device, 9, 0, 1, 0, 1, 1), 0);
    fixture_wait(f, &f->copied, 1);
    assert_int_equal(f->copies_failed, 1);
    assert_int_equal(f->copy_failure.code, -ENOENT);
    assert_non_null(strstr(f->copy_failure.text, target.info.uuid));
    assert_non_null(strstr(f->copy_failure.text, "region 9"));

    assert_int_equal(copy(f, REGION_BYTES - 10, 0, 11, 2), 0);
    fixture_wait(f, &f->copied, 2);
    assert_int_equal(f->copies_failed, 2);
    assert_int_equal(f->copy_failure.code, -EINVAL);
    assert_non_null(strstr(f->copy_failure.text, "out of bounds"));

    assert_int_equal(copy(f, 0, RING_BYTES - 10, 11, 3), 0);
    assert_int_equal(ops->copy(f->device, 1, SIZE_MAX - 1, 1, 0, 4, 4), 0);
    assert_int_equal(ops->copy(f->device, 1, 0, 77, 0, 4, 5), 0);
    fixture_wait(f, &f->copied, 5);
    assert_int_equal(f->copies_failed, 5);
    assert_int_equal(copy(f, 0, RING_BYTES - 10, 10, 6), 0);
    fixture_wait(f, &f->copied, 6);
    assert_int_equal(f->copies_failed, 5);
    fixture_close(f);
}

/* The region's pages and the ring stay until the copies that use them have ended. */
static void test_parts_in_use_go_after_their_copies(void **state)
{
    struct fixture *f = *state;
    const struct device_ops *ops = f->device->ops;

    skip_without_ring(f);
    fixture_open(f);
    fixture_add_region(f, 1, REGION_BYTES, 1);
    assert_int_equal(ops->make_ring(f->device, 1, RING_EXPORT_FD, RING_BYTES), 0);
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(copy(f, 0, 0, REGION_BYTES, i), 0);
    assert_int_equal(ops->remove_region(f->device, 1), 0);
    assert_int_equal(ops->free_ring(f->device, 1), 0);
    fixture_wait(f, &f->copied, 20);
    if (f->rings_made)
        assert_int_equal(f->copies_failed, 0);
    fixture_close(f);
}

static void test_fd_import_is_read_only(void **state)
{
    struct fixture *f = *state;
    struct importer importer;

    skip_without_ring(f);
    fixture_open(f);
    if (!fixture_make_ring(f, 1, RING_EXPORT_FD, RING_BYTES))
        skip();
    fixture_import(f, &importer, RING_EXPORT_FD, RING_BYTES);
    assert_int_not_equal(importer_write(&importer, 0), 0);
    importer_stop(&importer);
    fixture_import(f, &importer, RING_EXPORT_FD, RING_BYTES);
    expect_zeros(&importer, 0, 16);
    importer_stop(&importer);
    fixture_close(f);
}

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

static void test_killed_process_is_lost_once_and_comes_back(void **state)
{
    struct fixture *f = *state;
    struct importer importer;
    uint8_t byte;

    skip_without_ring(f);
    for_each_export(export_as)
    {
        unsigned lost = f->lost, copies;

        fixture_open(f);
        fixture_add_region(f, 1, REGION_BYTES, 3);
        if (!fixture_make_ring(f, 1, export_as, RING_BYTES)) {
            fixture_close(f);
            continue;
        }
        copies = f->copied;
        assert_int_equal(copy(f, 0, 0, REGION_BYTES, 0), 0);
        fixture_wait(f, &f->copied, copies + 1);
        fixture_import(f, &importer, export_as, RING_BYTES);
        for (uint64_t i = 0; i < 200; i++)
            assert_int_equal(copy(f, 0, 0, REGION_BYTES, i), 0);
        assert_int_equal(pidfd_send_signal(f->device->ops->get_pidfd(f->device), SIGKILL, NULL, 0),
                         0);
        assert_int_equal(copy(f, 0, 0, 1, 0), 0);
        fixture_wait(f, &f->lost, lost + 1);
        assert_int_equal(f->lost_failure.code, -EIO);
        assert_non_null(strstr(f->lost_failure.text, target.info.uuid));
        assert_non_null(strstr(f->lost_failure.text, "killed by signal 9"));
        fixture_idle(f, 50);
        assert_int_equal(f->lost, lost + 1);
        assert_int_equal(copy(f, 0, 0, 1, 0), -ENOTCONN);
        /* Who has the ring open keeps it. */
        assert_int_equal(importer_read(&importer, 0, &byte, 1), 0);
        assert_int_equal(byte, region_byte(0, 3));
        importer_stop(&importer);
        fixture_open(f);
        fixture_add_region(f, 1, REGION_BYTES, 4);
        assert_true(fixture_make_ring(f, 1, export_as, RING_BYTES));
        copies = f->copied;
        assert_int_equal(copy(f, 0, 0, REGION_BYTES, 0), 0);
        fixture_wait(f, &f->copied, copies + 1);
        fixture_import(f, &importer, export_as, RING_BYTES);
        expect_bytes(&importer, 0, REGION_BYTES, 0, 4);
        importer_stop(&importer);
        fixture_close(f);
    }
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

#define contract(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        contract(test_opens_and_closes_again_and_again),
        contract(test_refuses_commands_when_not_open),
        contract(test_freed_while_up_says_nothing),
        contract(test_regions_come_and_go_without_leaks),
        contract(test_device_without_ring_refuses_one),
        contract(test_bytes_arrive_intact),
        contract(test_many_in_flight_keep_their_order),
        contract(test_commands_need_not_wait_for_events),
        contract(test_new_rings_are_zero),
        contract(test_bad_copies_fail_alone),
        contract(test_parts_in_use_go_after_their_copies),
        contract(test_fd_import_is_read_only),
        contract(test_ring_too_large_is_refused_in_words),
        contract(test_killed_process_is_lost_once_and_comes_back),
        contract(test_rings_and_copies_leak_no_fd),
        contract(test_unknown_device_is_lost_in_words),
        contract(test_missing_program_is_named),
    };
    struct failure failure;
    int n;

    if (argc < 2)
        return 2;
    target.kind = argv[1];
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
