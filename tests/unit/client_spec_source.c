/*
 * client/spec_source.c: the texts of sources, and what users are told when one
 * is wrong.
 */
#include "client/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cmocka.h>

#include "spec_fixture.h"

#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

static void test_synthetic(void **state)
{
    struct pinclient_spec *spec = *state;

    assert_int_equal(pinclient_spec_source(spec, "synthetic:3x224x225"), 0);
    assert_int_equal(spec->source.kind, PINSERVE__SOURCE_KIND__SOURCE_SYNTHETIC);
    assert_int_equal(spec->source.n_shape, 3);
    assert_int_equal(spec->source.shape[0], 3);
    assert_int_equal(spec->source.shape[2], 225);
    assert_string_equal(spec->source.dtype, "u8");
    assert_int_equal(spec->source.samples, 65536);
    assert_string_equal(spec->source.name, "synthetic:3x224x225");
    assert_null(spec->source_path);
    assert_int_equal(pinclient_spec_source(spec, "synthetic:1024:f32:100"), 0);
    assert_int_equal(spec->source.n_shape, 1);
    assert_int_equal(spec->source.shape[0], 1024);
    assert_string_equal(spec->source.dtype, "f32");
    assert_int_equal(spec->source.samples, 100);
}

static void test_files(void **state)
{
    struct pinclient_spec *spec = *state;

    assert_int_equal(pinclient_spec_source(spec, "folder:/data/a:b"), 0);
    assert_int_equal(spec->source.kind, PINSERVE__SOURCE_KIND__SOURCE_FOLDER);
    assert_string_equal(spec->source_path, "/data/a:b");
    assert_null(spec->list_path);
    assert_int_equal(pinclient_spec_source(spec, "folder:/data/a,b,list=/l/x,y:z.txt"), 0);
    assert_string_equal(spec->source_path, "/data/a,b");
    assert_string_equal(spec->list_path, "/l/x,y:z.txt");
    assert_string_equal(spec->source.name, "folder:/data/a,b,list=/l/x,y:z.txt");
    assert_int_equal(pinclient_spec_source(spec, "tar:/d/{000..099}.tar"), 0);
    assert_int_equal(spec->source.kind, PINSERVE__SOURCE_KIND__SOURCE_TAR);
    assert_string_equal(spec->source_path, "/d/{000..099}.tar");
    assert_null(spec->list_path);
}

static void test_fields(void **state)
{
    struct pinclient_spec *spec = *state;

    assert_int_equal(pinclient_spec_source(spec, "tar:/d/{0..9}.tar,fields=jpg+cls+json:4096"), 0);
    assert_string_equal(spec->source_path, "/d/{0..9}.tar");
    assert_string_equal(spec->source.fields, "jpg+cls+json:4096");
    assert_string_equal(spec->source.name, "tar:/d/{0..9}.tar,fields=jpg+cls+json:4096");
    assert_int_equal(pinclient_spec_source(spec, "tar:/d,fields=x/a.tar,fields=npy"), 0);
    assert_string_equal(spec->source_path, "/d,fields=x/a.tar");
    assert_string_equal(spec->source.fields, "npy");
    assert_int_equal(pinclient_spec_source(spec, "tar:a.tar"), 0);
    assert_string_equal(spec->source.fields, "");
    assert_int_equal(pinclient_spec_source(spec, "tar:a.tar,fields="), -EINVAL);
    assert_error(spec, "names no fields");
    assert_int_equal(pinclient_spec_source(spec, "tar:,fields=jpg"), -EINVAL);
    assert_error(spec, "names no file");
    assert_int_equal(pinclient_spec_source(spec, "folder:/d,fields=jpg"), 0);
    assert_string_equal(spec->source_path, "/d,fields=jpg");
}

static void test_records(void **state)
{
    static const struct {
        const char *source, *path, *labels, *dtype;
        size_t n_shape;
    } cases[] = {
        {"records:/d/a.npy", "/d/a.npy", NULL, "", 0},
        {"records:/d/a:b.npy", "/d/a:b.npy", NULL, "", 0},
        {"records:/d/array", "/d/array", NULL, "", 0},
        {"records:/d:3/array", "/d:3/array", NULL, "", 0},
        {"records:a.npy,labels=b,c.npy", "a.npy", "b,c.npy", "", 0},
        {"records:a.bin:3x4:bf16", "a.bin", NULL, "bf16", 2},
        {"records:a,b:7.bin:9:i32,labels=/l:1.npy", "a,b:7.bin", "/l:1.npy", "i32", 1},
        {"records:a.npy:5:u8", "a.npy", NULL, "u8", 1},
    };
    struct pinclient_spec *spec = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(pinclient_spec_source(spec, cases[i].source), 0);
        assert_int_equal(spec->source.kind, PINSERVE__SOURCE_KIND__SOURCE_RECORDS);
        assert_string_equal(spec->source.name, cases[i].source);
        assert_string_equal(spec->source_path, cases[i].path);
        assert_string_equal(spec->source.dtype, cases[i].dtype);
        assert_int_equal(spec->source.n_shape, cases[i].n_shape);
        assert_int_equal(spec->source.labels, cases[i].labels != NULL);
        if (cases[i].labels)
            assert_string_equal(spec->labels_path, cases[i].labels);
        else
            assert_null(spec->labels_path);
    }
    assert_int_equal(spec->source.shape[0], 5);
    assert_int_equal(pinclient_spec_source(spec, "folder:/d,labels=x.npy"), 0);
    assert_string_equal(spec->source_path, "/d,labels=x.npy");
    assert_null(spec->labels_path);
}

static void test_wrong_sources(void **state)
{
    static const struct {
        const char *source, *text;
    } wrong[] = {
        {"", "write folder:DIR"},
        {"/data", "write folder:DIR"},
        {"directory:/data", "unknown kind \"directory\""},
        {"folder:", "names no directory"},
        {"folder:,list=a.txt", "names no directory"},
        {"folder:/d,list=", "names no list of files"},
        {"tar:", "names no file"},
        {"tar:{1..}", "{1..}\" is no range"},
        {"synthetic:", "\"\" is no dimension"},
        {"synthetic:3x0", "\"0\" is no dimension"},
        {"synthetic:3x", "\"\" is no dimension"},
        {"synthetic:3x-1", "\"-1\" is no dimension"},
        {"synthetic:4294967296", "is no dimension"},
        {"synthetic:1x1x1x1x1x1x1x1", "more than 7"},
        {"synthetic:4294967295x4294967295x4294967295", "too large"},
        {"records:", "names no file"},
        {"records::3:u8", "names no file"},
        {"records:a.bin:3:u7", "\"u7\" is no element type: there are u8, i8"},
        {"records:a.bin:u8", "write records:FILE:SHAPE:DTYPE"},
        {"records:a.bin:3x0:u8", "\"0\" is no dimension"},
        {"records:a.npy,labels=", "names no file of labels"},
        {"synthetic:3:u16", "\"u16\" is no element type"},
        {"synthetic:3:u8:", "\"\" is no number of samples"},
        {"synthetic:3:u8:0", "\"0\" is no number of samples"},
        {"synthetic:3:u8:5:5", "\"5:5\" is no number of samples"},
    };
    struct pinclient_spec *spec = *state;

    assert_int_equal(pinclient_spec_source(spec, "synthetic:7"), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(pinclient_spec_source(spec, wrong[i].source), -EINVAL);
        assert_error(spec, wrong[i].text);
        assert_error(spec, wrong[i].source);
    }
    assert_string_equal(spec->source.name, "synthetic:7");
    assert_int_equal(spec->source.shape[0], 7);
}

#define spec_test(function) cmocka_unit_test_setup_teardown(function, spec_setup, spec_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        spec_test(test_synthetic), spec_test(test_files),         spec_test(test_fields),
        spec_test(test_records),   spec_test(test_wrong_sources),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
