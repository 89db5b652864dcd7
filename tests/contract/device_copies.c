/*
 * The contract's bodies that move bytes: what was copied is in the ring for
 * every process, and nothing else is.
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

#include "contract/bodies.h"

int copy(struct fixture *f, size_t offset, size_t ring_offset, size_t bytes, uint64_t cookie)
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

void skip_without_ring(const struct fixture *f)
{
    if (!f->device->ops->has_ring)
        skip();
}

void test_bytes_arrive_intact(void **state)
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

/* Larger than a window of registered files and than what fits 32 bits. */
void test_large_slots_arrive_intact(void **state)
{
    const size_t bytes = ((size_t)80 << 20) + 4096;
    struct fixture *f = *state;
    const struct device_ops *ops = f->device->ops;
    struct importer importer;
    char text[64];

    skip_without_ring(f);
    fixture_open(f);
    fixture_add_region(f, 1, (size_t)82 << 20, 1);
    if (!fixture_make_ring(f, 1, RING_EXPORT_FD, (size_t)82 << 20))
        skip();
    assert_int_equal(copy(f, 4096, 12288, bytes, 1), 0);
    fixture_wait(f, &f->copied, 1);
    assert_int_equal(f->copies_failed, 0);
    assert_int_equal(importer_start(&importer, target.importer, target.info.uuid), 0);
    assert_int_equal(
        importer_open(&importer, RING_EXPORT_FD, (size_t)82 << 20, f->ring_fd, f->ipc_handle), 0);
    for (size_t at = 0; at < bytes; at += (size_t)5 << 20)
        expect_bytes(&importer, 12288 + at, 1000, 4096 + at, 1);
    expect_bytes(&importer, 12288 + bytes - 1000, 1000, 4096 + bytes - 1000, 1);
    expect_zeros(&importer, 12288 + bytes, 4096);
    importer_stop(&importer);
    /* The figures get there whole. */
    assert_int_equal(
        ops->copy(f->device, 1, (size_t)5 << 32, 1, (size_t)6 << 32, (size_t)7 << 32, 2), 0);
    fixture_wait(f, &f->copied, 2);
    snprintf(text, sizeof text, "a copy of %zu bytes from %zu of", (size_t)7 << 32,
             (size_t)5 << 32);
    assert_non_null(strstr(f->copy_failure.text, text));
    fixture_close(f);
}

/* What is copied while the importer has the ring open is there for it once copied says so. */
void test_many_in_flight_keep_their_order(void **state)
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

void test_commands_need_not_wait_for_events(void **state)
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
void test_new_rings_are_zero(void **state)
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

void test_bad_copies_fail_alone(void **state)
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
void test_parts_in_use_go_after_their_copies(void **state)
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

void test_fd_import_is_read_only(void **state)
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

void test_killed_process_is_lost_once_and_comes_back(void **state)
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
