/*
 * Samples of several fields: what is read of them, and the tensors made of it.
 */
#include "source/tar.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tar_shard.h"

/* XXH64 of "1.jpg" with its NUL, the size 1 and the label 1. */
#define PRINT_WITHOUT_FIELDS UINT64_C(0xa25feb05736d9c68)

/* An .npy file of a text's bytes as an array. */
struct npy {
    char bytes[256];
    size_t size;
};

static struct npy npy_of(const char *shape, const char *data)
{
    struct npy npy = {.bytes = "\x93NUMPY\x01"};
    char text[119];

    snprintf(text, sizeof text, "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }", shape);
    npy.bytes[8] = sizeof text - 1;
    npy.size = 10 + (size_t)snprintf(npy.bytes + 10, sizeof npy.bytes - 10, "%-118s%s", text, data);
    return npy;
}

static struct member array(const char *name, const struct npy *npy)
{
    return (struct member){name, npy->bytes, npy->size};
}

static struct source *open_fields(int fd, const char *fields)
{
    struct source_spec spec = spec_of(&fd, one_name, 1);
    struct source *source = NULL;
    struct failure failure = {0};

    spec.fields = fields;
    if (source_new(&spec, NULL, &source, &failure) != 0)
        fail_msg("%s", failure.text);
    close(fd);
    return source;
}

static int fill(struct source *source, uint64_t index, const struct sample *sample, size_t field,
                void *out, struct failure *failure)
{
    return source_field_fill(source, index, (struct sample_key){0}, sample, field, out, failure);
}

static void read_sample(struct source *source, uint64_t index, struct sample *sample)
{
    struct failure failure = {0};

    if (source_read(source, index, sample, &failure) != 0)
        fail_msg("%s", failure.text);
}

static void an_image_comes_with_its_fields(void **state)
{
    struct npy one = npy_of("(2, 3)", "abcdef"), two = npy_of("(2, 3)", "ghijkl");
    const struct member members[] = {
        {"1.json", "{}", 0},  array("1.npy", &one), {"1.cls", "4", 0}, {"1.jpg", NULL, 1000},
        {"2.PNG", NULL, 700}, {"2.cls", "5", 0},    {"2.json", "", 0}, array("2.npy", &two),
    };
    struct source *source = open_fields(tar_make(PAX, members, 8), "npy+json:4+image+cls");
    const struct source_field *fields;
    struct sample sample = {0};
    uint8_t out[6];
    uint32_t size;

    (void)state;
    assert_false(source_is_composed(source));
    assert_string_equal(source_tensor(source), "image");
    assert_int_equal(source_fields(source, &fields), 3);
    assert_string_equal(fields[0].name, "npy");
    assert_int_equal(fields[0].n_dims, 2);
    assert_int_equal(fields[0].shape[1], 3);
    assert_string_equal(fields[2].name, "json.size");
    /* The sample itself is its image, as without fields. */
    expect_sample(source, 0, &members[3], 4);
    expect_sample(source, 1, &members[4], 5);
    read_sample(source, 0, &sample);
    assert_int_equal(fill(source, 0, &sample, 1, out, NULL), 0);
    assert_memory_equal(out, "abcdef", 6);
    assert_int_equal(fill(source, 0, &sample, 2, out, NULL), 0);
    assert_memory_equal(out, "{}\0\0", 4);
    assert_int_equal(fill(source, 0, &sample, 3, &size, NULL), 0);
    assert_int_equal(size, 2);
    read_sample(source, 1, &sample);
    assert_int_equal(fill(source, 1, &sample, 1, out, NULL), 0);
    assert_memory_equal(out, "ghijkl", 6);
    assert_int_equal(fill(source, 1, &sample, 2, out, NULL), 0);
    assert_memory_equal(out, "\0\0\0\0", 4);
    assert_int_equal(fill(source, 1, &sample, 4, out, NULL), -EINVAL);
    sample_deinit(&sample);
    source_unref(source);
}

/* By one read, or by one each where much is between them. */
static void fields_are_found_wherever_they_lie(void **state)
{
    for (size_t gap = 100; gap <= 1000000; gap *= 100) {
        struct npy one = npy_of("(2,)", "xy");
        const struct member members[] = {
            array("k.a.npy", &one), {"k.mpg", NULL, gap}, {"k.txt", "text", 0}};
        struct source *source = open_fields(tar_make(GNU, members, 3), "txt:8+a.npy");
        struct sample sample = {0};
        uint32_t shape[7];
        size_t n_dims = 0;
        enum sample_dtype dtype = SAMPLE_F32;
        uint8_t out[8];

        assert_true(source_is_composed(source));
        assert_string_equal(source_tensor(source), "txt");
        assert_int_equal(source_shape(source, shape, &n_dims, &dtype), 0);
        assert_true(n_dims == 1 && shape[0] == 8 && dtype == SAMPLE_U8);
        for (int i = 0; i < 2; i++) {
            if (i == 0)
                read_sample(source, 0, &sample);
            else
                assert_int_equal(source_try_read(source, 0, &sample, NULL), 0);
            assert_int_equal(sample.label, LABEL_NONE);
            assert_in_range(sample.size, one.size + 4, one.size + 4 + 64 * 1024);
            assert_int_equal(fill(source, 0, &sample, 0, out, NULL), 0);
            assert_memory_equal(out, "text\0\0\0\0", 8);
            assert_int_equal(fill(source, 0, &sample, 2, out, NULL), 0);
            assert_memory_equal(out, "xy", 2);
        }
        sample_deinit(&sample);
        source_unref(source);
    }
    (void)state;
}

static void bad(struct source *source, uint64_t index, const char *first, const char *second)
{
    struct sample sample = {0};
    struct failure failure = {0};
    uint8_t out[16];
    int r = source_read(source, index, &sample, &failure);

    for (size_t i = 0; r == 0 && i < 3; i++)
        r = fill(source, index, &sample, i, out, &failure);
    assert_int_equal(r, -EBADMSG);
    assert_int_equal(failure.code, -EBADMSG);
    if (!strstr(failure.text, first) || !strstr(failure.text, second))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", failure.text, first, second);
    sample_deinit(&sample);
}

static void bad_members_are_named(void **state)
{
    struct npy right = npy_of("(2, 3)", "abcdef"), other = npy_of("(6,)", "abcdef"),
               cut = npy_of("(2, 3)", "abcde"), none = {"no array", 8};
    const struct member members[] = {
        array("1.npy", &right), {"1.txt", "x", 0},      array("2.npy", &other),
        {"2.txt", "x", 0},      array("3.npy", &cut),   {"3.txt", "x", 0},
        array("4.npy", &none),  {"4.txt", "x", 0},      {"5.npy", "", 0},
        {"5.txt", "x", 0},      array("6.npy", &right), {"6.txt", "123456", 0},
        {"7.txt", NULL, 5},     array("7.npy", &right),
    };
    struct source *source = open_fields(tar_make(USTAR, members, 14), "npy+txt:5");
    struct sample sample = {0};

    (void)state;
    read_sample(source, 0, &sample);
    sample_deinit(&sample);
    bad(source, 1, "a.tar: 2.npy at ", "is (6,) u8, and that of the first sample is (2, 3) u8");
    bad(source, 2, "a.tar: 3.npy at ", "is cut off");
    bad(source, 3, "a.tar: 4.npy at ", "is no .npy file");
    bad(source, 4, "a.tar: 5.npy at ", "is empty");
    bad(source, 5, "a.tar: 6.txt at ", "has 6 bytes, more than the 5 that are asked for (txt:5)");
    source_unref(source);
}

static void fingerprints_know_the_fields(void **state)
{
    static const char *const fields[] = {NULL, "image", "image+cls", "image+txt:9", "image+txt:8"};
    const struct member members[] = {{"1.jpg", "j", 0}, {"1.cls", "1", 0}, {"1.txt", "t", 0}};
    enum { N = sizeof fields / sizeof fields[0] };
    uint64_t prints[N];
    struct source_spec spec;
    int fd = tar_make(PAX, members, 3);

    (void)state;
    for (int i = 0; i < N; i++) {
        struct source *source = open_fields(dup(fd), fields[i]);
        prints[i] = source_fingerprint(source);
        for (int k = 0; k < N; k++) {
            spec = spec_of(&fd, one_name, 1);
            spec.fields = fields[k];
            assert_int_equal(source_matches(source, &spec), i == k);
        }
        for (int k = 0; k < i; k++)
            assert_true(prints[i] != prints[k]);
        source_unref(source);
    }
    /* What it was before there were fields. */
    assert_true(prints[0] == PRINT_WITHOUT_FIELDS);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tar_test(an_image_comes_with_its_fields),
        tar_test(fields_are_found_wherever_they_lie),
        tar_test(bad_members_are_named),
        tar_test(fingerprints_know_the_fields),
    };

    return cmocka_run_group_tests_name("tar_tensors", tests, NULL, NULL);
}
