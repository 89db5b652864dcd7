/*
 * Gathers when room is short, files are cut, and the driver lacks something.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract/faults.h"

#define WINDOW ((uint64_t)64 << 20)
#define BYTES 65536

/* Open, with ring 1; with another bound on what is registered. */
static void start(struct fixture *f, uint64_t gather_max)
{
    uint64_t usual = target.gather_max;

    fixture_deinit(f);
    target.gather_max = gather_max;
    fixture_init(f);
    target.gather_max = usual;
    fixture_open(f);
    assert_true(fixture_make_ring(f, 1, RING_EXPORT_FD, RING_BYTES));
}

static int gather(struct fixture *f, const struct device_piece *pieces, uint32_t n, uint64_t cookie)
{
    struct device_gather gather = {.pieces = pieces, .n = n, .piece_bytes = BYTES, .ring = 1};

    return f->device->ops->gather(f->device, &gather, cookie);
}

static void expect_arrived(struct fixture *f, const struct device_piece *pieces, uint32_t n)
{
    uint8_t *data = malloc((size_t)n * BYTES);
    struct importer importer;

    fixture_import(f, &importer, RING_EXPORT_FD, RING_BYTES);
    assert_int_equal(importer_read(&importer, 0, data, (size_t)n * BYTES), 0);
    for (uint32_t i = 0; i < n; i++)
        for (size_t k = 0; k < BYTES; k++)
            assert_int_equal(data[(size_t)i * BYTES + k],
                             region_byte(pieces[i].offset + k, pieces[i].file));
    importer_stop(&importer);
    free(data);
}

/* Three files of two windows each where there is room for three windows; and gathers that need more
 * windows than that. */
void test_windows_are_given_up_for_others(void **state)
{
    struct device_piece pieces[12];
    struct fixture *f = *state;
    const struct device_ops *ops;

    start(f, 3 * WINDOW);
    ops = f->device->ops;
    for (uint32_t file = 1; file <= 3; file++) {
        int fd = records_fd(WINDOW + BYTES);

        for (uint32_t i = 0; i < 4; i++) {
            uint64_t offset = i < 2 ? i * 3 * BYTES : WINDOW - (i == 3 ? BYTES / 2 : 0);

            pieces[i * 3 + file - 1] = (struct device_piece){.file = file, .offset = offset};
            records_fill(fd, offset, BYTES, file);
        }
        assert_int_equal(ops->add_file(f->device, file, fd, WINDOW + BYTES), 0);
    }
    for (uint64_t i = 0; i < 6; i++)
        assert_int_equal(gather(f, pieces, 12, i), 0);
    fixture_wait(f, &f->copied, 6);
    if (f->copies_failed)
        fail_msg("%s", f->copy_failure.text);
    expect_arrived(f, pieces, 12);
    fixture_idle(f, 20);
    assert_true(f->registered_most <= 3 * WINDOW);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(gather(f, &pieces[i], 1, i), 0);
        fixture_wait(f, &f->copied, 7 + i);
    }
    assert_int_equal(f->copies_failed, 0);
    assert_true(f->registered_most <= 3 * WINDOW);
    for (uint32_t file = 1; file <= 3; file++)
        assert_int_equal(ops->remove_file(f->device, file), 0);
    while (f->registered)
        fixture_idle(f, 10);
    fixture_close(f);
}

void test_files_over_the_bound_are_refused(void **state)
{
    struct fixture *f = *state;

    start(f, 2 * WINDOW);
    assert_int_equal(
        f->device->ops->add_file(f->device, 1, records_fd(2 * WINDOW + 1), 2 * WINDOW + 1), 0);
    fixture_wait(f, &f->files_failed, 1);
    assert_int_equal(f->file_failure.code, -E2BIG);
    assert_non_null(strstr(f->file_failure.text, "134217728"));
    fixture_close(f);
}

/* No signal, no stale bytes passed off as good. */
void test_cut_file_fails_its_gather_alone(void **state)
{
    struct device_piece pieces[2] = {{.file = 1, .offset = 0}, {.file = 1, .offset = 10 * BYTES}};
    struct fixture *f = *state;

    start(f, WINDOW);
    int fd = records_fd(20 * BYTES);
    records_fill(fd, 0, BYTES, 1);
    assert_int_equal(
        f->device->ops->add_file(f->device, 1, fcntl(fd, F_DUPFD_CLOEXEC, 0), 20 * BYTES), 0);
    fixture_wait(f, &f->files_ready, 1);
    assert_int_equal(gather(f, pieces, 2, 1), 0);
    fixture_wait(f, &f->copied, 1);
    assert_int_equal(f->copies_failed, 0);
    assert_int_equal(ftruncate(fd, 11 * BYTES - 1), 0);
    assert_int_equal(gather(f, pieces, 2, 2), 0);
    fixture_wait(f, &f->copied, 2);
    assert_int_equal(f->copies_failed, 1);
    assert_int_equal(f->copy_failure.code, -ENODATA);
    assert_non_null(strstr(f->copy_failure.text, "file 1 was cut off to 720895 bytes"));
    assert_int_equal(gather(f, pieces, 1, 3), 0);
    fixture_wait(f, &f->copied, 3);
    assert_int_equal(f->copies_failed, 1);
    expect_arrived(f, pieces, 1);
    close(fd);
    fixture_close(f);
}

void test_file_shorter_than_told_is_not_ready(void **state)
{
    struct device_piece piece = {.file = 1, .offset = BYTES};
    struct fixture *f = *state;

    start(f, WINDOW);
    assert_int_equal(f->device->ops->add_file(f->device, 1, records_fd(4096), 2 * BYTES), 0);
    assert_int_equal(gather(f, &piece, 1, 1), 0);
    fixture_wait(f, &f->files_failed, 1);
    assert_int_equal(f->file_failure.code, -ENODATA);
    assert_non_null(strstr(f->file_failure.text, "file 1 was cut off to 4096 bytes"));
    fixture_wait(f, &f->copied, 1);
    assert_int_equal(f->copies_failed, 1);
    assert_int_equal(f->copy_failure.code, -ENODATA);
    while (f->registered)
        fixture_idle(f, 10);
    fixture_close(f);
}

/* Without the call for many copies, and with its first form. */
void test_older_drivers_gather_too(void **state)
{
    static const char *const versions[] = {"12000", "12080"};
    struct device_piece pieces[40];
    struct fixture *f = *state;

    for (int version = 0; version < 2; version++) {
        setenv("PINSERVE_DRIVER_VERSION", versions[version], 1);
        start(f, WINDOW);
        int fd = records_fd(sizeof pieces / sizeof pieces[0] * BYTES);
        for (uint32_t i = 0; i < 40; i++) {
            pieces[i] = (struct device_piece){.file = 1, .offset = (uint64_t)(39 - i) * BYTES};
            records_fill(fd, pieces[i].offset, BYTES, 1);
        }
        assert_int_equal(f->device->ops->add_file(f->device, 1, fd, 40 * BYTES), 0);
        assert_int_equal(gather(f, pieces, 40, 1), 0);
        fixture_wait(f, &f->copied, 1);
        assert_int_equal(f->copies_failed, 0);
        expect_arrived(f, pieces, 40);
        fixture_close(f);
    }
}

void test_files_need_read_only_registration(void **state)
{
    struct fixture *f = *state;
    struct device_piece piece = {.file = 1};

    setenv("PINSERVE_DRIVER_NO_READ_ONLY", "1", 1);
    start(f, WINDOW);
    assert_int_equal(f->device->ops->add_file(f->device, 1, records_fd(BYTES), BYTES), 0);
    fixture_wait(f, &f->files_failed, 1);
    assert_int_equal(f->file_failure.code, -EOPNOTSUPP);
    assert_int_equal(gather(f, &piece, 1, 1), 0);
    fixture_wait(f, &f->copied, 1);
    assert_int_equal(f->copy_failure.code, -ENOENT);
    fixture_close(f);
}

/* As test_broken_context_is_lost has it for copies, on either form of the call. */
void test_broken_context_is_lost_by_a_gather(void **state)
{
    struct device_piece pieces[2] = {{.file = 1}, {.file = 1, .offset = BYTES}};
    struct fixture *f = *state;

    for (unsigned round = 1; round <= 2; round++) {
        setenv("PINSERVE_DRIVER_BREAK_COPY", "4", 1);
        setenv("PINSERVE_DRIVER_VERSION", round == 1 ? "13000" : "12000", 1);
        start(f, WINDOW);
        assert_int_equal(f->device->ops->add_file(f->device, 1, records_fd(2 * BYTES), 2 * BYTES),
                         0);
        for (uint64_t i = 0; i < 3; i++)
            assert_int_equal(gather(f, pieces, 2, i), 0);
        fixture_wait(f, &f->lost, 1);
        assert_int_equal(f->copies_failed, 0);
        assert_int_equal(f->lost_failure.code, -EIO);
        assert_non_null(strstr(f->lost_failure.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    }
}

/* Its pages come from slow storage, say: what waits for them is the gather alone. */
void test_registering_holds_nothing_up(void **state)
{
    struct device_piece piece = {.file = 1};
    struct fixture *f = *state;
    const struct device_ops *ops;

    setenv("PINSERVE_DRIVER_REGISTER_DELAY_MS", "400", 1);
    start(f, 3 * WINDOW);
    ops = f->device->ops;
    fixture_add_region(f, 1, REGION_BYTES, 1);
    assert_int_equal(ops->add_file(f->device, 1, records_fd(BYTES), BYTES), 0);
    assert_int_equal(gather(f, &piece, 1, 1), 0);
    for (uint64_t i = 2; i < 10; i++)
        assert_int_equal(ops->copy(f->device, 1, 0, 1, BYTES, BYTES, i), 0);
    fixture_wait(f, &f->copied, 8);
    assert_int_equal(f->ended[1], 0);
    assert_int_equal(f->files_ready, 0);
    fixture_wait(f, &f->copied, 9);
    assert_int_equal(f->ended[1], 1);
    assert_int_equal(f->copies_failed, 0);
    fixture_close(f);
}

void test_hung_registration_does_not_keep_the_process(void **state)
{
    struct device_piece piece = {.file = 1};
    struct fixture *f = *state;

    setenv("PINSERVE_DRIVER_REGISTER_DELAY_MS", "60000", 1);
    for (int round = 0; round < 2; round++) {
        start(f, WINDOW);
        assert_int_equal(f->device->ops->add_file(f->device, 1, records_fd(BYTES), BYTES), 0);
        if (round)
            assert_int_equal(gather(f, &piece, 1, 1), 0);
        assert_int_equal(f->device->ops->remove_file(f->device, 1), 0);
        fixture_close(f); /* within 20 s */
    }
}

void test_slow_gathers_are_not_reported_early(void **state)
{
    struct device_piece pieces[4] = {{.file = 1}, {.file = 1}, {.file = 1}, {.file = 1}};
    struct fixture *f = *state;

    setenv("PINSERVE_DRIVER_COPY_DELAY_US", "60000", 1);
    start(f, WINDOW);
    assert_int_equal(f->device->ops->add_file(f->device, 1, records_fd(BYTES), BYTES), 0);
    fixture_wait(f, &f->files_ready, 1);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(gather(f, pieces, 4, i), 0);
    fixture_idle(f, 30);
    assert_int_equal(f->copied, 0);
    assert_int_equal(f->device->ops->remove_file(f->device, 1), 0);
    assert_int_equal(f->device->ops->free_ring(f->device, 1), 0);
    fixture_wait(f, &f->copied, 3);
    assert_int_equal(f->copies_failed, 0);
    while (f->registered)
        fixture_idle(f, 10);
    fixture_close(f);
}
