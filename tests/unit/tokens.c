/*
 * Windows of tokens: their values, where they begin, and files that are wrong.
 */
#include "source/source.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "token_source.h"

static void fill(struct source *source, uint64_t index, struct sample_key key, void *out)
{
    struct failure failure = {0};
    int64_t label = 7;

    if (source_fill(source, index, key, out, &label, &failure) < 0)
        fail_msg("window %d: %s", (int)index, failure.text);
    assert_int_equal(label, LABEL_NONE);
}

/* n tokens first, first + 1, ... */
static void write_u16(const char *name, uint16_t first, size_t n)
{
    uint16_t *tokens = malloc((n + 1) * sizeof *tokens);

    assert_non_null(tokens);
    for (size_t i = 0; i < n; i++)
        tokens[i] = (uint16_t)(first + i);
    assert_true(temp_dir_write(&dir, name, tokens, n * sizeof *tokens));
    free(tokens);
}

static void windows_at_a_stride_stay_within_a_file(void **state)
{
    static const char *const files[] = {"a", "b", "c", "d", NULL};
    static const int begins[] = {1000, 1004, 2000, 4000, 4004, 4008};
    struct token_windows windows = windows_of(4, SAMPLE_U16);
    int32_t out[6];
    char name[64];

    (void)state;
    write_u16("a", 1000, 12); /* windows at 0 and 4; one at 8 would want 13 tokens */
    write_u16("b", 2000, 5);
    write_u16("c", 3000, 4); /* too short for any */
    write_u16("d", 4000, 13);
    struct source *source = opened(files, &windows);
    assert_int_equal(source_samples(source), 6);
    assert_int_equal(source_skipped(source), 1);
    for (uint64_t i = 0; i < 6; i++) {
        out[5] = -5;
        fill(source, i, (struct sample_key){i, i}, out);
        for (int k = 0; k < 5; k++)
            assert_int_equal(out[k], begins[i] + k);
        assert_int_equal(out[5], -5);
    }
    assert_string_equal(source_sample_name(source, 3, name, sizeof name),
                        "d: the window at token 0");
    source_unref(source);
    windows.stride = 1;
    source = opened(files, &windows);
    assert_int_equal(source_samples(source), 8 + 1 + 0 + 9);
    fill(source, 10, (struct sample_key){0}, out);
    assert_int_equal(out[0], 4001);
    source_unref(source);
    windows.stride = 100;
    source = opened(files, &windows);
    assert_int_equal(source_samples(source), 3);
    fill(source, 2, (struct sample_key){0}, out);
    assert_int_equal(out[4], 4004);
    source_unref(source);
}

static void shapes_and_types(void **state)
{
    static const char *const files[] = {"a", NULL};
    struct token_windows windows = windows_of(4, SAMPLE_U16);
    uint32_t shape[7];
    size_t n_dims;
    enum sample_dtype dtype;
    uint64_t offset, bytes;
    int fd;

    (void)state;
    write_u16("a", 0, 20);
    windows.out = SAMPLE_I64;
    struct source *source = opened(files, &windows);
    assert_int_equal(source_shape(source, shape, &n_dims, &dtype), 0);
    assert_int_equal(n_dims, 1);
    assert_int_equal(shape[0], 5);
    assert_int_equal(dtype, SAMPLE_I64);
    assert_int_equal(source_extent(source, 0, &fd, &offset, &bytes), -EOPNOTSUPP);
    assert_int_equal(source_read(source, 0, &(struct sample){0}, NULL), -EINVAL);
    source_unref(source);
}

static void values_of_every_width(void **state)
{
    static const char *const files[] = {"w", NULL};
    static const uint16_t u16[] = {0, 1, 65535, 32768};
    static const uint32_t u32[] = {0, 1, UINT32_MAX, INT32_MAX};
    struct token_windows windows = windows_of(3, SAMPLE_U16);
    int32_t narrow[4];
    int64_t wide[4];

    (void)state;
    assert_true(temp_dir_write(&dir, "w", u16, sizeof u16));
    struct source *source = opened(files, &windows);
    fill(source, 0, (struct sample_key){0}, narrow);
    assert_true(narrow[1] == 1 && narrow[2] == 65535 && narrow[3] == 32768);
    source_unref(source);
    windows.out = SAMPLE_I64;
    source = opened(files, &windows);
    fill(source, 0, (struct sample_key){0}, wide);
    assert_true(wide[1] == 1 && wide[2] == 65535 && wide[3] == 32768);
    source_unref(source);

    assert_true(temp_dir_write(&dir, "w", u32, sizeof u32));
    windows.width = SAMPLE_U32;
    source = opened(files, &windows);
    fill(source, 0, (struct sample_key){0}, wide);
    assert_true(wide[1] == 1 && wide[2] == UINT32_MAX && wide[3] == INT32_MAX);
    source_unref(source);
    windows.width = SAMPLE_I32;
    source = opened(files, &windows);
    fill(source, 0, (struct sample_key){0}, wide);
    assert_true(wide[1] == 1 && wide[2] == -1 && wide[3] == INT32_MAX);
    source_unref(source);
    windows.out = SAMPLE_I32;
    source = opened(files, &windows);
    fill(source, 0, (struct sample_key){0}, narrow);
    assert_true(narrow[1] == 1 && narrow[2] == -1 && narrow[3] == INT32_MAX);
    source_unref(source);
}

/* Longer than what is converted at once. */
static void long_windows_are_whole(void **state)
{
    enum { N = 50000 };
    static const char *const files[] = {"long", NULL};
    struct token_windows windows = windows_of(N - 1, SAMPLE_U16);
    int64_t *out = malloc(N * sizeof *out);

    (void)state;
    assert_non_null(out);
    write_u16("long", 3, N);
    windows.out = SAMPLE_I64;
    struct source *source = opened(files, &windows);
    assert_int_equal(source_samples(source), 1);
    fill(source, 0, (struct sample_key){0}, out);
    for (int i = 0; i < N; i++)
        assert_int_equal(out[i], i + 3);
    free(out);
    source_unref(source);
}

/* 3 files of 11, 4 and 103 tokens; of windows of 4, 8 + 1 + 100 = 109 begin somewhere. */
static void random_windows_begin_anywhere(void **state)
{
    static const char *const files[] = {"r0", "r1", "r2", NULL};
    struct token_windows windows = windows_of(3, SAMPLE_U16);
    unsigned counts[1000] = {0};
    int32_t out[4], again[4];
    unsigned equal = 0;

    (void)state;
    write_u16("r0", 0, 11);
    write_u16("r1", 300, 4);
    write_u16("r2", 600, 103);
    windows.random = true;
    windows.stride = 3;
    struct source *source = opened(files, &windows);
    assert_int_equal(source_samples(source), 3 + 1 + 34);
    for (uint64_t epoch = 0; epoch < 1000; epoch++) {
        for (uint64_t i = 0; i < 38; i++) {
            fill(source, i, (struct sample_key){5, epoch}, out);
            counts[out[0]]++;
            for (int k = 1; k < 4; k++)
                assert_int_equal(out[k], out[0] + k);
        }
        fill(source, 17, (struct sample_key){5, epoch}, out);
        fill(source, 17, (struct sample_key){5, epoch}, again);
        assert_memory_equal(out, again, sizeof out);
        fill(source, 17, (struct sample_key){6, epoch}, again);
        equal += out[0] == again[0];
    }
    /* Mean 38,000 / 109 = 349, deviation 18.6. */
    for (int i = 0; i < 1000; i++) {
        bool may = i < 8 || i == 300 || (i >= 600 && i < 700);
        if (may)
            assert_true(counts[i] > 349 - 5 * 19 && counts[i] < 349 + 5 * 19);
        else
            assert_int_equal(counts[i], 0);
    }
    assert_true(equal < 40);
    source_unref(source);
}

/* Changes of these need another RANDOM_VERSION: tokens to resume from hold on to them. */
static void random_windows_begin_here(void **state)
{
    static const char *const files[] = {"big", NULL};
    static const int begins[] = {18480, 12612, 23787, 20034};
    struct token_windows windows = windows_of(2, SAMPLE_U16);
    int32_t out[3];

    (void)state;
    write_u16("big", 0, 60000);
    windows.random = true;
    struct source *source = opened(files, &windows);
    for (uint64_t i = 0; i < 4; i++) {
        fill(source, i, (struct sample_key){.seed = 1, .epoch = i / 2}, out);
        assert_int_equal(out[0], begins[i]);
    }
    source_unref(source);
}

static void odd_sizes_are_refused(void **state)
{
    static const char *const files[] = {"ten", NULL};
    struct token_windows windows = windows_of(1, SAMPLE_U32);

    (void)state;
    assert_true(temp_dir_write(&dir, "ten", "0123456789", 10));
    refused(files, &windows, -EINVAL, "ten: its 10 bytes are not a multiple of 4");
    windows.width = SAMPLE_I32;
    refused(files, &windows, -EINVAL, "not a multiple of 4");
    windows.width = SAMPLE_U16;
    windows.seq = 5;
    refused(files, &windows, -ENOENT,
            "no window of 6 tokens (seq + 1) fits its 1 files: the longest "
            "has 5");
    assert_true(temp_dir_write(&dir, "ten", "\x93NUMPY1234", 10));
    refused(files, &windows, -EINVAL, "ten: is an .npy file");
    assert_true(temp_dir_write(&dir, "ten", "", 0));
    refused(files, &windows, -ENOENT, "the longest has 0");
    windows.seq = 0;
    refused(files, &windows, -EINVAL, "sequences of 0");
    windows = windows_of(3, SAMPLE_F32);
    refused(files, &windows, -EINVAL, "u16, u32 or i32");
    windows = windows_of(3, SAMPLE_U16);
    windows.out = SAMPLE_U16;
    refused(files, &windows, -EINVAL, "i32 or i64");
    windows = windows_of(3, SAMPLE_U16);
    refused(&files[1], &windows, -EINVAL, "no file");
    windows.stride = 0;
    refused(files, &windows, -EINVAL, "stride");
}

static void bad(struct source *source, uint64_t index, const char *why)
{
    struct failure failure = {0};
    int64_t out[8], label;

    assert_int_equal(source_fill(source, index, (struct sample_key){0}, out, &label, &failure),
                     -EBADMSG);
    if (!strstr(failure.text, why))
        fail_msg("\"%s\" lacks \"%s\"", failure.text, why);
}

static void tokens_beyond_the_vocabulary_are_told_with_their_place(void **state)
{
    static const char *const files[] = {"v", NULL};
    static const uint16_t u16[] = {1, 2, 3, 4, 499, 500, 7, 8};
    static const int32_t i32[] = {1, 2, 3, 4, 499, -1, 7, 8};
    struct token_windows windows = windows_of(3, SAMPLE_U16);
    int32_t out[4];

    (void)state;
    assert_true(temp_dir_write(&dir, "v", u16, sizeof u16));
    windows.vocabulary = 500;
    struct source *source = opened(files, &windows);
    fill(source, 0, (struct sample_key){0}, out);
    bad(source, 1, "v: token 500 at byte 10 is not in the vocabulary of 500");
    source_unref(source);
    windows.vocabulary = 100000;
    source = opened(files, &windows);
    fill(source, 1, (struct sample_key){0}, out);
    source_unref(source);

    assert_true(temp_dir_write(&dir, "v", i32, sizeof i32));
    windows.width = SAMPLE_I32;
    windows.vocabulary = 500;
    source = opened(files, &windows);
    fill(source, 0, (struct sample_key){0}, out);
    bad(source, 1, "v: token -1 at byte 20 is not in the vocabulary");
    source_unref(source);
    windows.width = SAMPLE_U32;
    windows.vocabulary = 0;
    source = opened(files, &windows);
    bad(source, 1, "v: token 4294967295 at byte 20 is more than an int32 holds");
    source_unref(source);
}

static void a_file_that_shrinks_makes_a_bad_sample(void **state)
{
    static const char *const files[] = {"s", NULL};
    struct token_windows windows = windows_of(4, SAMPLE_U16);
    int32_t out[5];

    (void)state;
    write_u16("s", 0, 21);
    struct source *source = opened(files, &windows);
    assert_int_equal(source_samples(source), 5);
    int fd = openat(dir.fd, "s", O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, 21), 0);
    close(fd);
    fill(source, 1, (struct sample_key){0}, out);
    assert_int_equal(out[4], 8);
    bad(source, 2, "s: the window at token 8 is cut off");
    bad(source, 4, "42 bytes");
    source_unref(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_at_a_stride_stay_within_a_file),
        cmocka_unit_test(shapes_and_types),
        cmocka_unit_test(values_of_every_width),
        cmocka_unit_test(long_windows_are_whole),
        cmocka_unit_test(random_windows_begin_anywhere),
        cmocka_unit_test(random_windows_begin_here),
        cmocka_unit_test(odd_sizes_are_refused),
        cmocka_unit_test(tokens_beyond_the_vocabulary_are_told_with_their_place),
        cmocka_unit_test(a_file_that_shrinks_makes_a_bad_sample),
    };

    return cmocka_run_group_tests_name("tokens", tests, dir_make, dir_remove);
}
