/*
 * The contract's bodies that gather: records of files are in the ring as they are
 * in the files, wherever the windows that they are registered in begin and end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract/bodies.h"
#include "unit/temp_dir.h"

#define WINDOW ((uint64_t)64 << 20)

static void expect_pieces(struct importer *importer, const struct device_piece *pieces, uint32_t n,
                          size_t piece_bytes, size_t ring_offset)
{
    uint8_t *data = malloc(n * piece_bytes);

    assert_int_equal(importer_read(importer, ring_offset, data, n * piece_bytes), 0);
    for (uint32_t i = 0; i < n; i++)
        for (size_t k = 0; k < piece_bytes; k++)
            if (data[i * piece_bytes + k] != region_byte(pieces[i].offset + k, pieces[i].file))
                fail_msg("byte %zu of piece %u (file %u, offset %ju) is wrong", k, i,
                         pieces[i].file, (uintmax_t)pieces[i].offset);
    free(data);
}

static int gather(struct fixture *f, const struct device_piece *pieces, uint32_t n, uint64_t bytes,
                  uint64_t ring, uint64_t ring_offset, uint64_t cookie)
{
    struct device_gather gather = {
        .pieces = pieces, .n = n, .piece_bytes = bytes, .ring = ring, .ring_offset = ring_offset};

    return f->device->ops->gather(f->device, &gather, cookie);
}

static bool start(struct fixture *f)
{
    fixture_open(f);
    return fixture_make_ring(f, 1, RING_EXPORT_FD, RING_BYTES) ||
           fixture_make_ring(f, 1, RING_EXPORT_IPC, RING_BYTES);
}

static void import(struct fixture *f, struct importer *importer)
{
    fixture_import(f, importer, f->ring_fd >= 0 ? RING_EXPORT_FD : RING_EXPORT_IPC, RING_BYTES);
}

void test_device_without_ring_gathers_nothing(void **state)
{
    struct fixture *f = *state;
    const struct device_piece piece = {.file = 1};
    int fds = open_fds();

    if (f->device->ops->has_ring)
        skip();
    fixture_open(f);
    assert_int_equal(f->device->ops->add_file(f->device, 1, region_fd(4096, 1), 4096), -EOPNOTSUPP);
    assert_int_equal(gather(f, &piece, 1, 4096, 1, 0, 1), -EOPNOTSUPP);
    assert_int_equal(f->device->ops->remove_file(f->device, 1), -EOPNOTSUPP);
    assert_int_equal(open_fds(), fds);
}

void test_pieces_cross_the_borders_of_windows(void **state)
{
    const size_t bytes = 100001, size = 2 * WINDOW + 300000;
    const uint64_t offsets[] = {0,
                                WINDOW - 1,
                                2 * WINDOW - bytes + 1,
                                WINDOW - bytes,
                                size - bytes,
                                WINDOW,
                                2 * WINDOW - 50000,
                                7,
                                12345678,
                                WINDOW - bytes / 2};
    struct device_piece pieces[sizeof offsets / sizeof offsets[0]];
    const uint32_t n = sizeof pieces / sizeof pieces[0];
    struct fixture *f = *state;
    struct importer importer;

    skip_without_ring(f);
    int fd = records_fd(size);
    for (uint32_t i = 0; i < n; i++) {
        pieces[i] = (struct device_piece){.file = 1, .offset = offsets[i]};
        records_fill(fd, offsets[i], bytes, 1);
    }
    assert_true(start(f));
    assert_int_equal(f->device->ops->add_file(f->device, 1, fd, size), 0);
    assert_int_equal(gather(f, pieces, n, bytes, 1, 512, 1), 0);
    fixture_wait(f, &f->copied, 1);
    if (f->copies_failed)
        fail_msg("%s", f->copy_failure.text);
    import(f, &importer);
    expect_pieces(&importer, pieces, n, bytes, 512);
    fixture_wait(f, &f->files_ready, 1);
    assert_int_equal(f->registered, size);
    assert_int_equal(f->device->ops->remove_file(f->device, 1), 0);
    while (f->registered)
        fixture_idle(f, 10);
    importer_stop(&importer);
    fixture_close(f);
}

void test_a_gather_has_thousands_of_pieces(void **state)
{
    enum { N = 3000, BYTES = 1300 };
    struct fixture *f = *state;
    struct importer importer;

    skip_without_ring(f);
    struct device_piece *pieces = calloc(N, sizeof *pieces);
    assert_true(start(f));
    for (uint32_t file = 1; file <= 2; file++) {
        int fd = records_fd(N * BYTES);
        records_fill(fd, 0, N * BYTES, file);
        assert_int_equal(f->device->ops->add_file(f->device, file, fd, N * BYTES), 0);
    }
    fixture_wait(f, &f->files_ready, 2);
    for (uint32_t i = 0; i < N; i++)
        pieces[i] = (struct device_piece){.file = 1 + i % 2, .offset = i * 7919u % N * BYTES};
    assert_int_equal(gather(f, pieces, N, BYTES, 1, 0, 7), 0);
    assert_int_equal(gather(f, pieces, 5, BYTES, 1, RING_BYTES - 5 * BYTES, 8), 0);
    fixture_wait(f, &f->copied, 2);
    assert_int_equal(f->copies_failed, 0);
    assert_int_equal(f->ended[7], 1);
    assert_int_equal(f->ended[8], 1);
    import(f, &importer);
    expect_pieces(&importer, pieces, N, BYTES, 0);
    expect_pieces(&importer, pieces, 5, BYTES, RING_BYTES - 5 * BYTES);
    importer_stop(&importer);
    fixture_close(f);
    free(pieces);
}

/* Labels and the like come from a slot. */
void test_a_gather_has_bytes_of_a_region_beside(void **state)
{
    enum { N = 20, BYTES = 70000 };
    struct device_piece pieces[N];
    struct fixture *f = *state;
    const struct device_ops *ops = f->device->ops;
    struct importer importer;
    uint8_t rest[5000];

    skip_without_ring(f);
    assert_true(start(f));
    fixture_add_region(f, 3, REGION_BYTES, 3);
    int fd = records_fd(N * BYTES);
    records_fill(fd, 0, N * BYTES, 1);
    assert_int_equal(ops->add_file(f->device, 1, fd, N * BYTES), 0);
    /* In order but for one, so that some pieces become one copy. */
    for (uint32_t i = 0; i < N; i++)
        pieces[i] = (struct device_piece){.file = 1, .offset = (i == 7 ? 0 : i) * BYTES};
    struct device_gather what = {.pieces = pieces,
                                 .n = N,
                                 .piece_bytes = BYTES,
                                 .ring = 1,
                                 .ring_offset = 4096,
                                 .region = 3,
                                 .rest_bytes = sizeof rest,
                                 .rest_offset = 1000,
                                 .rest_ring_offset = 4096 + N * BYTES};
    assert_int_equal(ops->gather(f->device, &what, 1), 0);
    assert_int_equal(ops->remove_region(f->device, 3), 0);
    assert_int_equal(ops->gather(f->device, &what, 2), 0);
    fixture_wait(f, &f->copied, 2);
    assert_int_equal(f->copies_failed, 1);
    assert_int_equal(f->failed_cookie, 2);
    assert_int_equal(f->copy_failure.code, -ENOENT);
    assert_non_null(strstr(f->copy_failure.text, "region 3"));
    fixture_add_region(f, 3, REGION_BYTES, 3);
    what.rest_offset = REGION_BYTES - 4999;
    assert_int_equal(ops->gather(f->device, &what, 3), 0);
    fixture_wait(f, &f->copied, 3);
    assert_int_equal(f->copies_failed, 2);
    assert_non_null(strstr(f->copy_failure.text, "out of bounds"));
    import(f, &importer);
    expect_pieces(&importer, pieces, N, BYTES, 4096);
    assert_int_equal(importer_read(&importer, 4096 + N * BYTES, rest, sizeof rest), 0);
    for (size_t i = 0; i < sizeof rest; i++)
        assert_int_equal(rest[i], region_byte(1000 + i, 3));
    importer_stop(&importer);
    fixture_close(f);
}

/* It is in flight, or waits for its windows, when ring and file go. */
void test_gathers_keep_their_ring_and_files(void **state)
{
    enum { BYTES = 65536, N = 60 };
    struct device_piece pieces[N];
    struct fixture *f = *state;

    skip_without_ring(f);
    assert_true(start(f));
    for (uint32_t i = 0; i < N; i++)
        pieces[i] = (struct device_piece){.file = 1, .offset = i * BYTES};
    for (int round = 0; round < 2; round++) {
        unsigned copied = f->copied;
        int fd = records_fd(N * BYTES);

        assert_int_equal(f->device->ops->add_file(f->device, 1, fd, N * BYTES), 0);
        for (uint64_t i = 0; i < 10; i++)
            assert_int_equal(gather(f, pieces, N, BYTES, 1, 0, i), 0);
        assert_int_equal(f->device->ops->remove_file(f->device, 1), 0);
        if (round)
            assert_int_equal(f->device->ops->free_ring(f->device, 1), 0);
        fixture_wait(f, &f->copied, copied + 10);
        assert_int_equal(f->copies_failed, 0);
    }
    fixture_close(f);
}

void test_bad_gathers_fail_alone(void **state)
{
    struct device_piece piece = {.file = 9};
    struct fixture *f = *state;
    const struct device_ops *ops = f->device->ops;
    struct importer importer;

    skip_without_ring(f);
    assert_int_equal(gather(f, &piece, 1, 1, 1, 0, 1), -ENOTCONN);
    assert_true(start(f));
    int fd = records_fd(100000);
    records_fill(fd, 0, 100000, 1);
    assert_int_equal(ops->add_file(f->device, 1, fd, 100000), 0);
    assert_int_equal(gather(f, &piece, 0, 1, 1, 0, 1), -EINVAL);
    assert_int_equal(gather(f, &piece, GATHER_PIECES_MAX + 1, 1, 1, 0, 1), -EINVAL);

    assert_int_equal(gather(f, &piece, 1, 100, 1, 0, 1), 0);
    fixture_wait(f, &f->copied, 1);
    assert_int_equal(f->copy_failure.code, -ENOENT);
    assert_non_null(strstr(f->copy_failure.text, "file 9"));
    piece = (struct device_piece){.file = 1, .offset = 99999};
    assert_int_equal(gather(f, &piece, 1, 2, 1, 0, 2), 0);
    fixture_wait(f, &f->copied, 2);
    assert_int_equal(f->copy_failure.code, -EINVAL);
    assert_non_null(strstr(f->copy_failure.text, "out of bounds"));
    piece.offset = UINT64_MAX;
    assert_int_equal(gather(f, &piece, 1, 2, 1, 0, 3), 0);
    piece.offset = 0;
    assert_int_equal(gather(f, &piece, 1, UINT64_MAX, 1, 0, 4), 0);
    assert_int_equal(gather(f, &piece, 1, 100, 1, RING_BYTES - 99, 5), 0);
    assert_int_equal(gather(f, &piece, 1, 100, 2, 0, 6), 0);
    fixture_wait(f, &f->copied, 6);
    assert_int_equal(f->copies_failed, 6);
    assert_int_equal(gather(f, &piece, 1, 100000, 1, 1000, 7), 0);
    fixture_wait(f, &f->copied, 7);
    assert_int_equal(f->copies_failed, 6);
    import(f, &importer);
    expect_pieces(&importer, &piece, 1, 100000, 1000);
    importer_stop(&importer);
    fixture_close(f);
}

void test_files_come_and_go_without_leaks(void **state)
{
    struct fixture *f = *state;
    int fds = open_fds();

    skip_without_ring(f);
    for (int round = 0; round < 2; round++) {
        fixture_open(f);
        for (uint32_t file = 1; file <= 20; file++)
            assert_int_equal(f->device->ops->add_file(f->device, file, records_fd(65536), 65536),
                             0);
        for (uint32_t file = 1; file <= 20; file++)
            assert_int_equal(f->device->ops->remove_file(f->device, file), 0);
        fixture_close(f);
    }
    assert_int_equal(open_fds(), fds);
}
