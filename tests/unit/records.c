/*
 * Records: values as NumPy shows them, labels, extents, and files that change.
 */
#include "source/source.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "group_dir.h"
#include "npy_file.h"

/* A source of file, with labels unless that is NULL; shaped like raw unless that is NULL. */
static int open_records(const char *file, const char *labels, const struct source_spec *raw,
                        struct source **source_p, struct failure *failure)
{
    int fds[2] = {openat(dir.fd, file, O_RDONLY | O_CLOEXEC), -1};
    const char *names[2] = {file, labels};
    struct source_spec spec = raw ? *raw : (struct source_spec){0};

    if (labels)
        fds[1] = openat(dir.fd, labels, O_RDONLY | O_CLOEXEC);
    spec.kind = SOURCE_KIND_RECORDS;
    spec.name = "records:test";
    spec.fds = fds;
    spec.fd_names = names;
    spec.n_fds = labels ? 2 : 1;
    spec.has_labels = labels != NULL;
    int r = source_new(&spec, NULL, source_p, failure);
    if (r == 0)
        assert_true(source_matches(*source_p, &spec));
    close(fds[0]);
    if (labels)
        close(fds[1]);
    return r;
}

static struct source *opened(const char *file, const char *labels, const struct source_spec *raw)
{
    struct source *source = NULL;
    struct failure failure = {0};

    if (open_records(file, labels, raw, &source, &failure) < 0)
        fail_msg("%s: %s", file, failure.text);
    return source;
}

static void refused(const char *file, const char *labels, const struct source_spec *raw, int code,
                    const char *why)
{
    struct source *source = NULL;
    struct failure failure = {0};
    int before = open_fds();

    assert_int_equal(open_records(file, labels, raw, &source, &failure), code);
    if (!strstr(failure.text, why))
        fail_msg("\"%s\" lacks \"%s\"", failure.text, why);
    assert_int_equal(open_fds(), before);
}

static int64_t fill(struct source *source, uint64_t index, void *out)
{
    struct failure failure = {0};
    int64_t label = -7;

    if (source_fill(source, index, (struct sample_key){0}, out, &label, &failure) < 0)
        fail_msg("record %d: %s", (int)index, failure.text);
    return label;
}

static void fortran_order_becomes_c_order(void **state)
{
    static const int32_t payload[] = {0, 3, 1, 4, 2, 5};
    int32_t out[6];
    int fd;
    uint64_t offset, bytes;

    (void)state;
    assert_true(npy_file_write(&dir, "f.npy", 1,
                               "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }",
                               payload, sizeof payload));
    struct source *source = opened("f.npy", NULL, NULL);
    assert_int_equal(source_samples(source), 2);
    assert_int_equal(fill(source, 0, out), LABEL_NONE);
    fill(source, 1, out + 3);
    for (int i = 0; i < 6; i++)
        assert_int_equal(out[i], i);
    assert_int_equal(source_extent(source, 0, &fd, &offset, &bytes), -EOPNOTSUPP);
    source_unref(source);
}

/* Element (r, a, b) has the value r * 1000 + a * 30 + b; in the file r varies fastest. */
static void fortran_records_of_several_dimensions(void **state)
{
    enum { N = 700, A = 5, B = 30 };
    uint16_t *data = malloc(N * A * B * sizeof *data);
    uint16_t out[A * B];

    (void)state;
    assert_non_null(data);
    for (int r = 0; r < N; r++)
        for (int a = 0; a < A; a++)
            for (int b = 0; b < B; b++)
                data[r + N * (a + A * b)] = (uint16_t)(r * 80 + a * 30 + b);
    for (int n = N; n > 0; n /= 10) {
        char text[128];
        if (n < N) /* fewer records lie closer together, and are read several at a time */
            for (int r = 0; r < n; r++)
                for (int a = 0; a < A; a++)
                    for (int b = 0; b < B; b++)
                        data[r + n * (a + A * b)] = (uint16_t)(r * 80 + a * 30 + b);
        snprintf(text, sizeof text,
                 "{'descr': '<u2', 'fortran_order': True, 'shape': (%d, %d, %d), }", n, A, B);
        assert_true(npy_file_write(&dir, "f3.npy", 1, text, data, (size_t)n * A * B * 2));
        struct source *source = opened("f3.npy", NULL, NULL);
        for (int r = 0; r < n; r++) {
            fill(source, (uint64_t)r, out);
            for (int i = 0; i < A * B; i++)
                assert_int_equal(out[i], (uint16_t)(r * 80 + i));
        }
        source_unref(source);
    }
    free(data);
}

static void big_endian_becomes_native(void **state)
{
    static const uint8_t i4[] = {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2};
    static const uint8_t u2[] = {1, 2, 3, 4};
    static const uint8_t f8[] = {0x3f, 0xf8, 0, 0, 0, 0, 0, 0};
    int32_t element;
    uint16_t pair[2];
    double real;
    int fd;
    uint64_t offset, bytes;

    (void)state;
    assert_true(npy_file_write(
        &dir, "b.npy", 1, "{'descr': '>i4', 'fortran_order': False, 'shape': (3,), }", i4, 12));
    struct source *source = opened("b.npy", NULL, NULL);
    for (int i = 0; i < 3; i++) {
        fill(source, (uint64_t)i, &element);
        assert_int_equal(element, i);
    }
    assert_int_equal(source_extent(source, 0, &fd, &offset, &bytes), -EOPNOTSUPP);
    source_unref(source);
    assert_true(npy_file_write(
        &dir, "b.npy", 1, "{'descr': '>u2', 'fortran_order': False, 'shape': (1, 2), }", u2, 4));
    source = opened("b.npy", NULL, NULL);
    fill(source, 0, pair);
    assert_true(pair[0] == 0x102 && pair[1] == 0x304);
    source_unref(source);
    assert_true(npy_file_write(
        &dir, "b.npy", 1, "{'descr': '>f8', 'fortran_order': True, 'shape': (1, 1), }", f8, 8));
    source = opened("b.npy", NULL, NULL);
    fill(source, 0, &real);
    assert_true(real == 1.5);
    source_unref(source);
}

static void no_dimension_is_one_record_of_4_bytes(void **state)
{
    float value = 2.5f, out = 0;
    uint32_t shape[7];
    size_t n_dims = 9;
    enum sample_dtype dtype;

    (void)state;
    assert_true(npy_file_write(
        &dir, "0.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", &value, 4));
    struct source *source = opened("0.npy", NULL, NULL);
    assert_int_equal(source_samples(source), 1);
    assert_int_equal(source_shape(source, shape, &n_dims, &dtype), 0);
    assert_int_equal(n_dims, 0);
    assert_int_equal(dtype, SAMPLE_F32);
    fill(source, 0, &out);
    assert_true(out == 2.5f);
    source_unref(source);
}

static void a_raw_file_has_the_shape_that_is_given(void **state)
{
    uint8_t data[5 * 6], out[7] = {0};
    struct source_spec raw = {.shape = {2, 3}, .n_dims = 2, .dtype = SAMPLE_BF16};
    uint32_t shape[7];
    size_t n_dims;
    enum sample_dtype dtype;
    char name[64];

    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)i;
    assert_true(temp_dir_write(&dir, "raw.bin", data, sizeof data));
    refused("raw.bin", NULL, &raw, -EINVAL, "30 bytes are not a multiple of 12");
    raw.dtype = SAMPLE_U8;
    struct source *source = opened("raw.bin", NULL, &raw);
    assert_int_equal(source_samples(source), 5);
    assert_int_equal(source_shape(source, shape, &n_dims, &dtype), 0);
    assert_true(n_dims == 2 && shape[0] == 2 && shape[1] == 3 && dtype == SAMPLE_U8);
    for (size_t i = 0; i < 5; i++) {
        out[6] = 0xa5;
        fill(source, i, out);
        assert_memory_equal(out, data + 6 * i, 6);
        assert_int_equal(out[6], 0xa5);
    }
    assert_string_equal(source_sample_name(source, 3, name, sizeof name), "raw.bin: record 3");
    source_unref(source);
    raw.shape[0] = 0;
    refused("raw.bin", NULL, &raw, -EINVAL, "dimension 1");
    raw.shape[0] = raw.shape[1] = UINT32_MAX;
    refused("raw.bin", NULL, &raw, -EINVAL, "not a multiple");
    assert_true(temp_dir_write(&dir, "empty.bin", "", 0));
    refused("empty.bin", NULL, &raw, -ENOENT, "is empty");
}

/* What the copy engine would gather are the bytes that fill writes. */
static void extents_are_what_fill_reads(void **state)
{
    uint16_t data[4 * 5], out[5], read[5];
    uint64_t offset, bytes;
    int fd = -1;

    (void)state;
    for (size_t i = 0; i < 20; i++)
        data[i] = (uint16_t)(i * 257);
    assert_true(npy_file_write(&dir, "e.npy", 2,
                               "{'descr': '<i2', 'fortran_order': False, 'shape': (4, 5), }", data,
                               sizeof data));
    struct source *source = opened("e.npy", NULL, NULL);
    for (uint64_t i = 0; i < 4; i++) {
        fill(source, i, out);
        assert_memory_equal(out, data + 5 * i, 10);
        assert_int_equal(source_extent(source, i, &fd, &offset, &bytes), 0);
        assert_int_equal(bytes, 10);
        assert_int_equal(pread(fd, read, 10, (off_t)offset), 10);
        assert_memory_equal(read, out, 10);
        assert_int_equal(source_label(source, i), LABEL_NONE);
        assert_int_equal(source_extent_check(source, i, NULL), 0);
    }
    assert_int_equal(source_extent(source, 4, &fd, &offset, &bytes), -EINVAL);
    source_unref(source);
}

static void fetched_bytes_are_what_fill_writes(void **state)
{
    struct source_spec raw = {.shape = {4}, .n_dims = 1, .dtype = SAMPLE_U16};
    struct sample sample = {0};
    uint8_t out[8];
    int64_t label = 0;

    (void)state;
    assert_true(temp_dir_write(&dir, "g.bin", "abcdefghijklmnop", 16));
    struct source *source = opened("g.bin", NULL, &raw);
    assert_true(source_may_wait(source));
    for (uint64_t i = 0; i < 2; i++) {
        fill(source, i, out);
        assert_int_equal(source_fetch(source, i, (struct sample_key){0}, true, &sample, NULL), 0);
        assert_int_equal(sample.size, 8);
        assert_int_equal(sample.label, LABEL_NONE);
        assert_memory_equal(sample.bytes, out, 8);
        memset(out, 0, sizeof out);
        int r = source_try_fill(source, i, (struct sample_key){0}, out, &label, NULL);
        /* 1: this file system cannot tell. */
        assert_true(r == 0 || r == 1);
        if (r == 0)
            assert_memory_equal(sample.bytes, out, 8);
        r = source_fetch(source, i, (struct sample_key){0}, false, &sample, NULL);
        assert_true(r == 0 || r == 1);
    }
    sample_deinit(&sample);
    source_unref(source);
}

static void labels_of_every_integer_type(void **state)
{
    static const struct {
        const char *descr;
        size_t bytes;
        uint8_t data[24];
        int64_t label[3];
    } cases[] = {
        {"|u1", 3, {0, 1, 255}, {0, 1, 255}},
        {"|i1", 3, {0, 1, 255}, {0, 1, -1}},
        {"<u2", 6, {0, 0, 1, 0, 255, 255}, {0, 1, 65535}},
        {">i2", 6, {0, 0, 0, 1, 255, 255}, {0, 1, -1}},
        {"<u4", 12, {[4] = 1, [8] = 255, 255, 255, 255}, {0, 1, 4294967295}},
        {">i4", 12, {[7] = 1, [8] = 255, 255, 255, 254}, {0, 1, -2}},
        {"<i8", 24, {[8] = 1, [16] = 0, 0, 0, 0, 1}, {0, 1, 4294967296}},
        {">u8", 24, {[15] = 1, [16] = 0x7f, 0, 0, 0, 0, 0, 0, 9}, {0, 1, 0x7f00000000000009}},
        {"|b1", 3, {0, 1, 1}, {0, 1, 1}},
    };
    struct source_spec raw = {.shape = {2}, .n_dims = 1, .dtype = SAMPLE_U8};
    uint8_t out[2];

    (void)state;
    assert_true(temp_dir_write(&dir, "l.bin", "abcdef", 6));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (3,), }",
                 cases[i].descr);
        assert_true(npy_file_write(&dir, "l.npy", 1, text, cases[i].data, cases[i].bytes));
        struct source *source = opened("l.bin", "l.npy", &raw);
        for (uint64_t k = 0; k < 3; k++) {
            assert_int_equal(fill(source, k, out), cases[i].label[k]);
            assert_int_equal(source_label(source, k), cases[i].label[k]);
        }
        source_unref(source);
    }
}

static void labels_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        const char *descr, *shape, *why;
    } cases[] = {
        {"<i8", "(2,)", "3 records"},   {"<i8", "(1, 3)", "2 dimensions"},
        {"<i8", "()", "0 dim"},         {"<f4", "(3,)", "type f32"},
        {"<f2", "(3,)", "type f16"},    {"|O", "(3,)", "unpickled"},
        {"<u8", "(3,)", "of record 1"}, {"<i8", "(4,)", "cut off"},
    };
    struct source_spec raw = {.shape = {2}, .n_dims = 1, .dtype = SAMPLE_U8};
    uint64_t data[3] = {1, UINT64_MAX, 2};

    (void)state;
    assert_true(temp_dir_write(&dir, "l.bin", "abcdef", 6));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                 cases[i].descr, cases[i].shape);
        assert_true(npy_file_write(&dir, "l.npy", 1, text, data, sizeof data));
        refused("l.bin", "l.npy", &raw, -EINVAL, cases[i].why);
        refused("l.bin", "l.npy", &raw, -EINVAL, "l.npy");
    }
    raw.index_bytes_max = 16;
    assert_true(npy_file_write(&dir, "l.npy", 1,
                               "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", data,
                               sizeof data));
    refused("l.bin", "l.npy", &raw, -E2BIG, "limits.index");
}

static void a_file_that_shrinks_makes_a_bad_sample(void **state)
{
    uint8_t data[100] = {0}, out[10];
    struct source_spec raw = {.shape = {10}, .n_dims = 1, .dtype = SAMPLE_U8};
    struct failure failure = {0};
    int64_t label;

    (void)state;
    assert_true(temp_dir_write(&dir, "s.bin", data, sizeof data));
    struct source *source = opened("s.bin", NULL, &raw);
    int fd = openat(dir.fd, "s.bin", O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, 55), 0);
    close(fd);
    for (uint64_t i = 0; i < 5; i++) {
        fill(source, i, out);
        assert_int_equal(source_extent_check(source, i, NULL), 0);
    }
    for (uint64_t i = 5; i < 10; i++) {
        char text[32];
        snprintf(text, sizeof text, "s.bin: record %d", (int)i);
        assert_int_equal(source_fill(source, i, (struct sample_key){0}, out, &label, &failure),
                         -EBADMSG);
        assert_non_null(strstr(failure.text, text));
        assert_int_equal(source_extent_check(source, i, &failure), -EBADMSG);
        assert_non_null(strstr(failure.text, text));
        assert_non_null(strstr(failure.text, "55 bytes"));
    }
    source_unref(source);
}

static void odd_shapes_are_refused(void **state)
{
    static const struct {
        const char *shape, *why;
        int code;
    } cases[] = {
        {"(0, 3)", "no record", -ENOENT},
        {"(3, 0)", "dimension 2 of its shape is 0", -EINVAL},
        {"(0, 4294967296)", "no record", -ENOENT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }",
                 cases[i].shape);
        assert_true(npy_file_write(&dir, "o.npy", 1, text, NULL, 0));
        refused("o.npy", NULL, NULL, cases[i].code, cases[i].why);
    }
}

/* A copy of the files elsewhere is the same dataset; other bytes of labels or another shape are
 * not. */
static void the_fingerprint_is_of_name_shape_type_and_labels(void **state)
{
    struct source_spec specs[] = {
        {.shape = {2}, .n_dims = 1, .dtype = SAMPLE_U8},
        {.shape = {1, 2}, .n_dims = 2, .dtype = SAMPLE_U8},
        {.shape = {2}, .n_dims = 1, .dtype = SAMPLE_I8},
        {.shape = {1}, .n_dims = 1, .dtype = SAMPLE_U16},
    };
    static const char dictionary[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }";
    uint64_t prints[7];

    (void)state;
    assert_true(temp_dir_write(&dir, "p.bin", "abcdef", 6));
    assert_true(temp_dir_write(&dir, "below/p.bin", "ABCDEF", 6));
    assert_true(npy_file_write(&dir, "p.npy", 1, dictionary, "\1\2\3", 3));
    for (size_t i = 0; i < 7; i++) {
        if (i == 6)
            assert_true(npy_file_write(&dir, "p.npy", 1, dictionary, "\1\2\4", 3));
        struct source *source =
            opened(i == 4 ? "below/p.bin" : "p.bin", i > 4 ? "p.npy" : NULL, &specs[i < 4 ? i : 0]);
        prints[i] = source_fingerprint(source);
        source_unref(source);
        for (size_t k = 0; k < i; k++)
            assert_true((prints[i] == prints[k]) == (i == 4 && k == 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fortran_order_becomes_c_order),
        cmocka_unit_test(fortran_records_of_several_dimensions),
        cmocka_unit_test(big_endian_becomes_native),
        cmocka_unit_test(no_dimension_is_one_record_of_4_bytes),
        cmocka_unit_test(a_raw_file_has_the_shape_that_is_given),
        cmocka_unit_test(extents_are_what_fill_reads),
        cmocka_unit_test(fetched_bytes_are_what_fill_writes),
        cmocka_unit_test(labels_of_every_integer_type),
        cmocka_unit_test(labels_that_do_not_fit_are_refused),
        cmocka_unit_test(a_file_that_shrinks_makes_a_bad_sample),
        cmocka_unit_test(odd_shapes_are_refused),
        cmocka_unit_test(the_fingerprint_is_of_name_shape_type_and_labels),
    };

    return cmocka_run_group_tests_name("records", tests, dir_make, dir_remove);
}
