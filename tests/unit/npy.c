/*
 * .npy headers: what NumPy writes, what it may write, and what is refused.
 */
#include "source/npy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "group_dir.h"
#include "npy_file.h"

static int read_file(struct npy_header *header, struct failure *failure)
{
    struct source_file file = SOURCE_FILE_INIT;
    int fd = openat(dir.fd, "x.npy", O_RDONLY | O_CLOEXEC);

    assert_int_equal(source_file_take(&file, "records", fd, "x.npy", failure), 0);
    close(fd);
    int r = npy_read(&file, header, failure);
    source_file_deinit(&file);
    return r;
}

static struct npy_header header_of(unsigned version, const char *dictionary, size_t data_bytes)
{
    static const uint8_t data[4096];
    struct npy_header header = {0};
    struct failure failure = {0};

    assert_true(npy_file_write(&dir, "x.npy", version, dictionary, data, data_bytes));
    if (read_file(&header, &failure) < 0)
        fail_msg("%s: %s", dictionary, failure.text);
    assert_int_equal(header.bytes, data_bytes);
    assert_int_equal(header.offset % 64, 0);
    return header;
}

static void versions_1_2_and_3_are_equal(void **state)
{
    (void)state;
    for (unsigned version = 1; version <= 3; version++) {
        struct npy_header header =
            header_of(version, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }", 24);
        assert_int_equal(header.dtype, SAMPLE_I32);
        assert_false(header.swapped);
        assert_false(header.fortran);
        assert_int_equal(header.n_dims, 2);
        assert_int_equal(header.shape[0], 2);
        assert_int_equal(header.shape[1], 3);
        assert_int_equal(header.offset, 128);
    }
}

static void types_and_byte_orders(void **state)
{
    static const struct {
        const char *descr;
        enum sample_dtype dtype;
        bool swapped;
        size_t bytes;
    } cases[] = {
        {"|u1", SAMPLE_U8, false, 1},  {"|b1", SAMPLE_U8, false, 1},  {"|i1", SAMPLE_I8, false, 1},
        {"<u2", SAMPLE_U16, false, 2}, {">u2", SAMPLE_U16, true, 2},  {"<i2", SAMPLE_I16, false, 2},
        {"<u4", SAMPLE_U32, false, 4}, {">i4", SAMPLE_I32, true, 4},  {"<u8", SAMPLE_U64, false, 8},
        {"<i8", SAMPLE_I64, false, 8}, {"<f2", SAMPLE_F16, false, 2}, {">f4", SAMPLE_F32, true, 4},
        {"<f8", SAMPLE_F64, false, 8}, {"=f4", SAMPLE_F32, false, 4}, {">u1", SAMPLE_U8, false, 1},
        {"u1", SAMPLE_U8, false, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (1,), }",
                 cases[i].descr);
        struct npy_header header = header_of(1, text, cases[i].bytes);
        assert_int_equal(header.dtype, cases[i].dtype);
        assert_int_equal(header.swapped, cases[i].swapped);
    }
}

static void no_dimension_is_one_element(void **state)
{
    struct npy_header header =
        header_of(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 4);

    (void)state;
    assert_int_equal(header.n_dims, 0);
    assert_int_equal(header.bytes, 4);
}

static void other_writers_are_understood(void **state)
{
    struct npy_header header =
        header_of(1, "{\"shape\":(4L,2L),\"fortran_order\":True,\"descr\":\"<f8\"}", 64);

    (void)state;
    assert_true(header.fortran);
    assert_int_equal(header.shape[0], 4);
    header =
        header_of(2, "{ 'fortran_order' : False ,\n\t'descr': '<u2', 'shape' : ( 0 , 7 ) } ", 0);
    assert_int_equal(header.n_dims, 2);
    assert_int_equal(header.shape[1], 7);
}

static void bytes_behind_the_data_do_not_matter(void **state)
{
    struct npy_header header;
    uint8_t data[100] = {0};

    (void)state;
    assert_true(npy_file_write(
        &dir, "x.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", data, 100));
    assert_int_equal(read_file(&header, NULL), 0);
    assert_int_equal(header.bytes, 12);
}

static void refused(const char *why)
{
    struct npy_header header;
    struct failure failure = {0};

    assert_int_equal(read_file(&header, &failure), -EINVAL);
    if (!strstr(failure.text, "x.npy") || !strstr(failure.text, why))
        fail_msg("\"%s\" lacks \"x.npy\" or \"%s\"", failure.text, why);
}

static void odd_headers_are_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", "never unpickled"},
        {"{'descr': 'O8', 'fortran_order': False, 'shape': (3,), }", "never unpickled"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", "fields"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }", "'<c8'"},
        {"{'descr': '|V2', 'fortran_order': False, 'shape': (3,), }", "'|V2'"},
        {"{'descr': '<U5', 'fortran_order': False, 'shape': (3,), }", "'<U5'"},
        {"{'descr': '<f16', 'fortran_order': False, 'shape': (3,), }", "'<f16'"},
        {"{'descr': '', 'fortran_order': False, 'shape': (3,), }", "''"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 300), }", "3600 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,), }", "large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "large"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", "dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", "whole number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 3, }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3", "no end"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (3,), }", "neither True nor False"},
        {"{'descr': '<f4', 'shape': (3,), }", "missing"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': 1}", "unknown"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } + 1", "behind"},
        {"{'descr': '<f4', 'fortran_order': False 'shape': (3,), }", "no end"},
        {"{'descr", "without an end"},
        {"", "no dictionary"},
    };
    uint8_t data[64] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(npy_file_write(&dir, "x.npy", 1, cases[i].text, data, sizeof data));
        refused(cases[i].why);
    }
}

/* Headers with some bytes changed, from a generator of their own: each is read or refused. */
static void any_bytes_are_read_or_refused(void **state)
{
    static const char text[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5, ), }";
    uint8_t file[10 + sizeof text + 60];
    uint32_t random = 1;
    unsigned read = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct npy_header header;
        memset(file, 0, sizeof file);
        memcpy(file, "\x93NUMPY\x01\x00", 8);
        file[8] = sizeof text - 1;
        memcpy(file + 10, text, sizeof text);
        for (int changes = i % 4; changes > 0; changes--) {
            random = random * 1664525 + 1013904223;
            uint8_t byte = (uint8_t)(random >> 16);
            size_t at = 6 + (random >> 8) % (4 + sizeof text);
            file[at] = byte & 1 ? byte : (uint8_t) "{}[](),:'\"0123456789LTF "[byte % 24];
        }
        assert_true(temp_dir_write(&dir, "x.npy", file, sizeof file));
        int r = read_file(&header, NULL);
        assert_true(r == 0 || r == -EINVAL);
        if (r < 0)
            continue;
        read++;
        assert_true(header.n_dims <= NPY_DIMS_MAX);
        assert_true(header.offset + header.bytes <= sizeof file);
    }
    assert_true(read > 250 && read < 700);
}

static void what_is_no_npy_file_is_refused(void **state)
{
    (void)state;
    assert_true(temp_dir_write(&dir, "x.npy", "", 0));
    refused("no .npy file");
    assert_true(temp_dir_write(&dir, "x.npy", "hello, this is text", 19));
    refused("records:FILE:3x224x224:u8");
    assert_true(temp_dir_write(&dir, "x.npy", "\x93NUMPY\x01\x00", 8));
    refused("ends within");
    assert_true(temp_dir_write(&dir, "x.npy", "\x93NUMPY\x01\x00\x76\x00{'descr'", 18));
    refused("ends within");
    assert_true(temp_dir_write(&dir, "x.npy", "\x93NUMPY\x04\x00\x02\x00{}", 12));
    refused("version 4");
    assert_true(temp_dir_write(&dir, "x.npy", "\x93NUMPY\x02\x00\xff\xff\xff\xff", 12));
    refused("too long");
}

/* In memory, and within another file. */
static void bytes_are_parsed_as_files_are(void **state)
{
    static const char text[] = "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }";
    static const uint8_t data[24];
    uint8_t bytes[512] = {0};
    struct npy_header header, within;
    struct failure failure = {0};
    char path[256];

    (void)state;
    assert_true(npy_file_write(&dir, "y.npy", 1, text, data, sizeof data));
    int fd = openat(dir.fd, "y.npy", O_RDONLY | O_CLOEXEC);
    ssize_t size = pread(fd, bytes + 100, sizeof bytes - 100, 0);
    close(fd);
    assert_int_equal(size, 128 + 24);
    assert_int_equal(npy_parse(bytes + 100, (size_t)size, "m", &header, NULL), 0);
    assert_int_equal(header.dtype, SAMPLE_F32);
    assert_true(header.swapped && header.fortran);
    assert_int_equal(header.offset, 128);
    assert_int_equal(header.bytes, 24);

    assert_true(temp_dir_write(&dir, "around", bytes, sizeof bytes));
    snprintf(path, sizeof path, "%s/around", dir.path);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(npy_read_at(fd, 100, (size_t)size, "m", &within, NULL), 0);
    assert_memory_equal(&within, &header, sizeof header);
    /* The bytes behind it are not its own. */
    assert_int_equal(npy_read_at(fd, 100, (size_t)size - 1, "m", &within, &failure), -EINVAL);
    assert_string_equal(failure.text, "m: is cut off: its header tells of 24 bytes of data, and 23 "
                                      "are there");
    for (size_t i = 0; i < (size_t)size; i++) {
        uint8_t *copy = malloc(i + 1);
        assert_non_null(copy);
        memcpy(copy, bytes + 100, i);
        assert_int_equal(npy_parse(copy, i, "m", &header, &failure), -EINVAL);
        assert_int_equal(npy_read_at(fd, 100, i, "m", &within, &failure), -EINVAL);
        free(copy);
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_1_2_and_3_are_equal),
        cmocka_unit_test(types_and_byte_orders),
        cmocka_unit_test(no_dimension_is_one_element),
        cmocka_unit_test(other_writers_are_understood),
        cmocka_unit_test(bytes_behind_the_data_do_not_matter),
        cmocka_unit_test(odd_headers_are_refused),
        cmocka_unit_test(any_bytes_are_read_or_refused),
        cmocka_unit_test(what_is_no_npy_file_is_refused),
        cmocka_unit_test(bytes_are_parsed_as_files_are),
    };

    return cmocka_run_group_tests_name("npy", tests, dir_make, dir_remove);
}
