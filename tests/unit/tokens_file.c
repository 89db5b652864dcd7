/*
 * What files of tokens are: bare, of llm.c, or of Megatron-LM; told by their
 * bytes, and refused in words where these contradict each other or the user.
 */
#include "token_source.h"

#include <errno.h>

static const char *const one[] = {"a.bin", NULL};
static const char *const pair[] = {"a.bin", "a.idx", NULL};

static void write_llmc(const char *name, int32_t magic, int32_t version, int32_t tokens,
                       int64_t first, size_t n, size_t width)
{
    static struct bytes bytes;

    bytes.n = 0;
    put_llmc_header(&bytes, magic, version, tokens);
    put_tokens(&bytes, first, n, width);
    write_bytes(name, &bytes);
}

static void write_bare(const char *name, const char *before, int64_t first, size_t n, size_t width)
{
    static struct bytes bytes;

    bytes.n = 0;
    put(&bytes, before, strlen(before));
    put_tokens(&bytes, first, n, width);
    write_bytes(name, &bytes);
}

static void write_pair(uint8_t type, size_t width, int64_t first)
{
    static struct bytes bytes;
    struct index_parts parts = {.lengths = (int32_t[]){5, 7},
                                .n_lengths = 2,
                                .documents = (int64_t[]){0, 1, 2},
                                .n_documents = 3,
                                .type = type,
                                .width = width};

    write_bare("a.bin", "", first, 12, width);
    bytes.n = 0;
    put_index(&bytes, &parts);
    write_bytes("a.idx", &bytes);
}

/* Every token of the first file once, in windows of two. */
static void check_tokens(const char *const *files, const struct token_windows *windows,
                         int64_t first, uint64_t n)
{
    struct source *source = opened(files, windows);
    struct failure failure = {0};
    int64_t out[2], label;

    assert_int_equal(source_samples(source), n - 1);
    for (uint64_t i = 0; i + 1 < n; i++) {
        if (source_fill(source, i, (struct sample_key){0}, out, &label, &failure) < 0)
            fail_msg("%s", failure.text);
        assert_int_equal(out[0], first + (int64_t)i);
        assert_int_equal(out[1], first + (int64_t)i + 1);
    }
    source_unref(source);
}

static struct token_windows wide(enum sample_dtype width, bool given)
{
    struct token_windows windows = windows_of(1, width);

    windows.out = SAMPLE_I64;
    windows.has_width = given;
    return windows;
}

static void llmc_headers_are_no_tokens(void **state)
{
    struct token_windows windows = wide(SAMPLE_U16, false);

    (void)state;
    write_llmc("a.bin", 20240520, 1, 50, 65000, 50, 2);
    check_tokens(one, &windows, 65000, 50);
    windows.has_offset = true;
    windows.offset = 1024;
    check_tokens(one, &windows, 65000, 50);
    windows = wide(SAMPLE_U16, true);
    check_tokens(one, &windows, 65000, 50);
    windows = wide(SAMPLE_U32, true);
    write_llmc("a.bin", 20240801, 7, 50, 4000000000, 50, 4);
    check_tokens(one, &windows, 4000000000, 50);
    /* Another version of it, whose size agrees. */
    windows.has_width = false;
    write_llmc("a.bin", 20240801, 1, 50, 120000, 50, 4);
    check_tokens(one, &windows, 120000, 50);
}

static void llmc_headers_that_are_wrong(void **state)
{
    struct token_windows windows = wide(SAMPLE_U16, false);

    (void)state;
    write_llmc("a.bin", 20240520, 1, 49, 0, 50, 2);
    refused(one, &windows, -EINVAL,
            "a.bin: its header names 49 tokens of type u16, which makes 1122 bytes with the "
            "header; it has 1124");
    write_llmc("a.bin", 20240801, 7, 51, 0, 50, 4);
    refused(one, &windows, -EINVAL, "names 51 tokens of type u32, which makes 1228 bytes");
    write_llmc("a.bin", 20240520, 1, -1, 0, 50, 2);
    refused(one, &windows, -EINVAL, "names 4294967295 tokens");
    write_llmc("a.bin", 20240520, 2, 50, 0, 50, 2);
    refused(one, &windows, -EINVAL, "a.bin: begins as llm.c's files of u16 do, but version 2 of");
    write_llmc("a.bin", 20240801, 0, 50, 0, 50, 4);
    refused(one, &windows, -EINVAL, "files of u32 do, but version 0 of");
    write_llmc("a.bin", 20240801, -3, 50, 0, 50, 4);
    refused(one, &windows, -EINVAL, "version -3");
    write_llmc("a.bin", 20240522, 1, 50, 0, 50, 2);
    refused(one, &windows, -EINVAL, "a.bin: is an evaluation file of llm.c");
    for (size_t i = 0; i < 3; i++) {
        const int32_t magics[] = {20240520, 20240801, 20240522};
        write_llmc("a.bin", (int32_t)__builtin_bswap32((uint32_t)magics[i]), 1, 50, 0, 50, 2);
        refused(one, &windows, -EINVAL, "a.bin: begins with a magic number of llm.c in the wrong");
    }
    /* No more than the magic number is there. */
    write_bare("a.bin", "", 20240520, 1, 4);
    refused(one, &windows, -EINVAL, "version 0");
}

static void what_the_user_says_otherwise(void **state)
{
    struct token_windows windows = wide(SAMPLE_U32, true);

    (void)state;
    write_llmc("a.bin", 20240520, 1, 50, 0, 50, 2);
    refused(one, &windows, -EINVAL, "a.bin: its tokens are u16, as its header says, not u32");
    windows = wide(SAMPLE_I32, true);
    write_llmc("a.bin", 20240801, 7, 50, 0, 50, 4);
    refused(one, &windows, -EINVAL, "its tokens are u32, as its header says, not i32");
    windows = wide(SAMPLE_U16, false);
    windows.has_offset = true;
    windows.offset = 256;
    refused(one, &windows, -EINVAL,
            "a.bin: its tokens begin at byte 1024, as its header says, not at the offset of 256");
    write_pair(8, 2, 0);
    refused(pair, &windows, -EINVAL, "begin at byte 0, as its index says, not at the offset of");
    windows = wide(SAMPLE_I32, true);
    refused(pair, &windows, -EINVAL, "a.bin: its tokens are u16, as its index says, not i32");
}

static void bytes_before_the_tokens(void **state)
{
    struct token_windows windows = wide(SAMPLE_I32, true);

    (void)state;
    windows.has_offset = true;
    windows.offset = 7;
    write_bare("a.bin", "1234567", -5, 20, 4);
    check_tokens(one, &windows, -5, 20);
    windows.offset = 0;
    refused(one, &windows, -EINVAL, "a.bin: its 87 bytes are not a multiple of 4");
    windows.offset = 9;
    refused(one, &windows, -EINVAL,
            "a.bin: its 78 bytes behind the offset of 9 are not a multiple of 4");
    windows.offset = 87;
    refused(one, &windows, -ENOENT, "the longest has 0");
    windows.offset = 88;
    refused(one, &windows, -EINVAL, "a.bin: its 87 bytes end before the offset of 88");
    windows.offset = UINT64_MAX;
    refused(one, &windows, -EINVAL, "end before the offset of 18446744073709551615");
}

static void an_index_tells_the_type(void **state)
{
    struct token_windows windows = wide(SAMPLE_U16, false);

    (void)state;
    write_pair(8, 2, 65500);
    check_tokens(pair, &windows, 65500, 12);
    write_pair(4, 4, -70000);
    check_tokens(pair, &windows, -70000, 12);
    windows = wide(SAMPLE_I32, true);
    windows.has_offset = true;
    check_tokens(pair, &windows, -70000, 12);
    /* Its tokens may be any: here the magic number of llm.c. */
    write_pair(4, 4, 20240520);
    check_tokens(pair, &windows, 20240520, 12);
}

static void an_index_goes_with_its_file(void **state)
{
    static const char *const alone[] = {"a.idx", NULL};
    static const char *const twice[] = {"a.bin", "a.idx", "a.idx", NULL};
    static const char *const before[] = {"a.idx", "a.bin", NULL};
    static const char *const not_its[] = {"b.bin", "a.idx", NULL};
    struct token_windows windows = wide(SAMPLE_U16, false);

    (void)state;
    write_pair(8, 2, 0);
    write_bare("b.bin", "", 0, 13, 2);
    refused(alone, &windows, -EINVAL,
            "a.idx: is an index of Megatron-LM, and the .bin file that it is of does not come "
            "before it");
    refused(twice, &windows, -EINVAL, "a.idx: is an index");
    refused(before, &windows, -EINVAL, "a.idx: is an index");
    refused(not_its, &windows, -EINVAL, "a.idx: its sequences end at byte 24, b.bin has 26 bytes");
}

/* Tokens that an int32 has no room for are looked for in files of uint32 only. */
static void types_of_files_may_differ(void **state)
{
    static const char *const files[] = {"a.bin", "a.idx", "b.bin", "c.bin", NULL};
    static const int64_t firsts[] = {-70000, 65000, 3000000000};
    struct token_windows windows = windows_of(1, SAMPLE_U16);
    struct failure failure = {0};
    int64_t out[2], label;
    int32_t narrow[2];

    (void)state;
    write_pair(4, 4, firsts[0]);
    write_llmc("b.bin", 20240801, 7, 12, firsts[2], 12, 4);
    write_bare("c.bin", "", firsts[1], 12, 2);
    struct source *source = opened(files, &windows);
    assert_int_equal(source_samples(source), 33);
    for (uint64_t i = 0; i < 33; i++) {
        int r = source_fill(source, i, (struct sample_key){0}, narrow, &label, &failure);
        if (i / 11 == 1) {
            char why[128];
            snprintf(why, sizeof why, "b.bin: token %u at byte %d is more than an int32 holds",
                     (unsigned)firsts[2] + (unsigned)i - 11, 1024 + 4 * ((int)i - 11));
            assert_int_equal(r, -EBADMSG);
            assert_non_null(strstr(failure.text, why));
        } else {
            assert_int_equal(r, 0);
            assert_int_equal(narrow[0], firsts[i / 22] + (int64_t)i % 11);
        }
    }
    source_unref(source);
    windows.out = SAMPLE_I64;
    source = opened(files, &windows);
    for (uint64_t i = 0; i < 33; i++) {
        const int64_t first = i < 11 ? firsts[0] : i < 22 ? firsts[2] : firsts[1];
        assert_int_equal(source_fill(source, i, (struct sample_key){0}, out, &label, &failure), 0);
        assert_int_equal(out[1], first + (int64_t)i % 11 + 1);
    }
    source_unref(source);
}

static void places_in_the_vocabulary_count_from_the_files_start(void **state)
{
    struct token_windows windows = windows_of(1, SAMPLE_U16);
    struct failure failure = {0};
    int32_t out[2];
    int64_t label;

    (void)state;
    write_llmc("a.bin", 20240520, 1, 50, 100, 50, 2);
    windows.vocabulary = 140;
    struct source *source = opened(one, &windows);
    assert_int_equal(source_fill(source, 39, (struct sample_key){0}, out, &label, &failure),
                     -EBADMSG);
    assert_non_null(
        strstr(failure.text, "a.bin: token 140 at byte 1104 is not in the vocabulary of 140"));
    source_unref(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llmc_headers_are_no_tokens),
        cmocka_unit_test(llmc_headers_that_are_wrong),
        cmocka_unit_test(what_the_user_says_otherwise),
        cmocka_unit_test(bytes_before_the_tokens),
        cmocka_unit_test(an_index_tells_the_type),
        cmocka_unit_test(an_index_goes_with_its_file),
        cmocka_unit_test(types_of_files_may_differ),
        cmocka_unit_test(places_in_the_vocabulary_count_from_the_files_start),
    };

    return cmocka_run_group_tests_name("tokens_file", tests, dir_make, dir_remove);
}
