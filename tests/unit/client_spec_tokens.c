/*
 * client/spec_tokens.c: the texts of sources of tokens, and what users are told
 * when one is wrong.
 */
#include "client/spec_tokens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/spec.h"
#include "spec_fixture.h"

#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

static void test_patterns(void **state)
{
    static const struct {
        const char *source, *path, *dtype, *out;
        bool random;
        uint64_t stride, vocabulary;
    } cases[] = {
        {"tokens:/d/{0..9}.bin", "/d/{0..9}.bin", "", "i32", false, 0, 0},
        {"tokens:/d/*.bin:u32", "/d/*.bin", "u32", "i32", false, 0, 0},
        {"tokens:/d:1/a:i32,random", "/d:1/a", "i32", "i32", true, 0, 0},
        {"tokens:a.bin,stride=random,vocab=9", "a.bin", "", "i32", true, 0, 9},
        {"tokens:/d:1/a,out=i64,stride=7", "/d:1/a", "", "i64", false, 7, 0},
        {"tokens:a,b.bin:u16,vocab=50257,out=i32", "a,b.bin", "u16", "i32", false, 0, 50257},
        {"tokens:a:b.bin", "a:b.bin", "", "i32", false, 0, 0},
        {"tokens:/x=1,y=2/a.bin", "/x=1,y=2/a.bin", "", "i32", false, 0, 0},
    };
    struct pinclient_spec *spec = *state;

    assert_int_equal(pinclient_spec_seq(spec, 1024), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Pinserve__Source *source = &spec->source;
        assert_int_equal(pinclient_spec_source(spec, cases[i].source), 0);
        assert_int_equal(source->kind, PINSERVE__SOURCE_KIND__SOURCE_TOKENS);
        assert_string_equal(spec->source_path, cases[i].path);
        assert_string_equal(source->dtype, cases[i].dtype);
        assert_string_equal(source->out, cases[i].out);
        assert_int_equal(source->random, cases[i].random);
        assert_int_equal(source->stride, cases[i].stride);
        assert_int_equal(source->vocabulary, cases[i].vocabulary);
        assert_int_equal(source->seq, 1024);
        assert_false(source->has_offset || source->within || source->position || source->document);
        assert_int_equal(source->n_blend, 0);
        assert_null(spec->blend);
    }
    assert_int_equal(pinclient_spec_seq(spec, 0), -EINVAL);
    assert_error(spec, "seq 0: from 1");
    assert_int_equal(pinclient_spec_seq(spec, 1u << 29), -EINVAL);
    assert_int_equal(spec->source.seq, 1024);
}

static void test_options(void **state)
{
    struct pinclient_spec *spec = *state;
    const Pinserve__Source *source = &spec->source;

    assert_int_equal(
        pinclient_spec_source(spec, "tokens:a.bin,offset=0,documents=within,position,document"), 0);
    assert_true(source->has_offset && source->within && source->position && source->document);
    assert_int_equal(source->offset, 0);
    assert_string_equal(spec->source_path, "a.bin");
    assert_int_equal(pinclient_spec_source(spec, "tokens:a.bin,documents=across,offset=512"), 0);
    assert_true(source->has_offset && !source->within && !source->position && !source->document);
    assert_int_equal(source->offset, 512);
}

static void test_blends(void **state)
{
    struct pinclient_spec *spec = *state;
    const Pinserve__Source *source = &spec->source;
    struct spec_blend *clone = NULL;

    assert_int_equal(pinclient_spec_source(spec,
                                           "tokens:blend=0.7:/d/web-{00..11}.bin,2:code/*:u32,"
                                           "0.000000001:x,y=3/z.bin,stride=5"),
                     -EINVAL);
    assert_error(spec, "\"y=3/z.bin\" is no part of a blend");
    assert_int_equal(pinclient_spec_source(spec,
                                           "tokens:blend=0.7:/d/web-{00..11}.bin,2:code/*:u32,"
                                           "0.000000001:y=3.bin,stride=5,position"),
                     0);
    assert_int_equal(source->n_blend, 3);
    assert_int_equal(source->blend[0]->weight, 700000000);
    assert_int_equal(source->blend[1]->weight, 2000000000);
    assert_int_equal(source->blend[2]->weight, 1);
    assert_string_equal(source->blend[0]->name, "/d/web-{00..11}.bin");
    assert_string_equal(source->blend[1]->name, "code/*");
    assert_string_equal(source->blend[2]->name, "y=3.bin");
    assert_string_equal(source->dtype, "u32");
    assert_int_equal(source->stride, 5);
    assert_true(source->position);
    assert_int_equal(spec_blend_clone(spec->blend, &clone, NULL), 0);
    clone->list[1]->files = 9;
    assert_int_equal(clone->parts[1].files, 9);
    assert_int_equal(source->blend[1]->files, 0);
    assert_int_equal(clone->list[0]->weight, 700000000);
    free(clone);
    /* Ranges are counted pattern by pattern. */
    assert_int_equal(pinclient_spec_source(spec, "tokens:blend=1:{0..1}{0..1}{0..1}{0..1}{0..1}a,"
                                                 "1:{0..1}{0..1}{0..1}{0..1}{0..1}b"),
                     0);
    assert_int_equal(pinclient_spec_source(spec, "tokens:a.bin"), 0);
    assert_null(spec->blend);
    assert_int_equal(source->n_blend, 0);
    assert_int_equal(spec_blend_clone(spec->blend, &clone, NULL), 0);
    assert_null(clone);
}

static void test_wrong(void **state)
{
    static const struct {
        const char *source, *text;
    } wrong[] = {
        {"tokens:", "names no file"},
        {"tokens::u32", "names no file"},
        {"tokens:{1..}", "{1..}\" is no range"},
        {"tokens:a.bin:u8", "\"u8\" is no type of tokens: u16, u32 or i32"},
        {"tokens:a.bin,stride=0", "\"0\" is no number of tokens"},
        {"tokens:a.bin,vocab=x", "\"x\" is no number of tokens"},
        {"tokens:a.bin,offset=-1", "\"-1\" is no number of bytes"},
        {"tokens:a.bin,out=u16", "\"u16\": tokens are delivered as i32 or i64"},
        {"tokens:a.bin,documents=no", "\"no\": windows go across documents or stay within"},
        {"tokens:a.bin,strid=4", "\"strid=4\" is no option"},
        {"tokens:a.bin,random,stride=4", "not both"},
        {"tokens:blend=", "\"\" is no part of a blend"},
        {"tokens:blend=a.bin", "\"a.bin\" is no part of a blend"},
        {"tokens:blend=1:a.bin,b.bin", "\"b.bin\" is no part of a blend"},
        {"tokens:blend=1:a.bin,2:", "a part of the blend names no file"},
        {"tokens:blend=1:{1..}", "{1..}\" is no range"},
        {"tokens:blend=0:a.bin", "\"0\" is no weight"},
        {"tokens:blend=0.0:a.bin", "\"0.0\" is no weight"},
        {"tokens:blend=-1:a.bin", "\"-1\" is no weight"},
        {"tokens:blend=1e3:a.bin", "\"1e3\" is no weight"},
        {"tokens:blend=0.0000000001:a.bin", "is no weight"},
        {"tokens:blend=1000000001:a.bin", "is no weight"},
        {"tokens:blend=1:a.bin:u16,1:b.bin:i32", "type u16 for one part and i32 for another"},
        {"tokens:blend=1:a.bin:u9", "\"u9\" is no type of tokens"},
    };
    struct pinclient_spec *spec = *state;

    assert_int_equal(pinclient_spec_source(spec, "tokens:blend=1:a.bin"), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(pinclient_spec_source(spec, wrong[i].source), -EINVAL);
        if (!strstr(pinclient_error(spec), wrong[i].text))
            fail_msg("%s: \"%s\" lacks \"%s\"", wrong[i].source, pinclient_error(spec),
                     wrong[i].text);
    }
    assert_string_equal(spec->source.blend[0]->name, "a.bin");
}

#define spec_test(function) cmocka_unit_test_setup_teardown(function, spec_setup, spec_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        spec_test(test_patterns),
        spec_test(test_options),
        spec_test(test_blends),
        spec_test(test_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
