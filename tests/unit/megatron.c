/*
 * Indexes of Megatron-LM: what is read from good ones, and what bad ones are
 * refused for, hostile ones before any memory is asked for.
 */
#include "source/megatron.h"

#include <errno.h>

#include "proto/cleanup.h"
#include "token_source.h"

static const int32_t lengths[] = {3, 0, 5, 2, 7, 1};
static const int64_t documents[] = {0, 2, 2, 5, 6};
#define N 6
#define D 5
#define TOKENS 18

static const struct index_parts good = {
    .lengths = lengths, .n_lengths = N, .documents = documents, .n_documents = D};

/* Reads an index of those bytes, of a file that has so many. */
static int index_read(const struct bytes *bytes, uint64_t file_bytes, struct array *starts,
                      struct arena *arena, struct source_progress *progress,
                      struct megatron *megatron, struct failure *failure)
{
    struct source_file index = SOURCE_FILE_INIT;
    struct source_file file = {.fd = -1, .name = "t.bin"};

    write_bytes("t.idx", bytes);
    cleanup_fd int fd = openat(dir.fd, "t.idx", O_RDONLY | O_CLOEXEC);
    assert_int_equal(source_file_take(&index, "index", fd, "t.idx", failure), 0);
    file.st.st_size = (off_t)file_bytes;
    int r = megatron_read(&index, &file, starts, arena, progress, megatron, failure);
    source_file_deinit(&index);
    return r;
}

static void check_good(const struct index_parts *parts, uint64_t file_bytes,
                       enum sample_dtype width, const uint64_t *wanted, size_t n)
{
    static struct bytes bytes;
    struct arena arena = {.name = "tokens:t"};
    struct array starts = {0};
    struct megatron megatron = {0};
    struct failure failure = {0};

    bytes.n = 0;
    put_index(&bytes, parts);
    if (index_read(&bytes, file_bytes, &starts, &arena, NULL, &megatron, &failure) < 0)
        fail_msg("%s", failure.text);
    assert_int_equal(megatron.width, width);
    assert_int_equal(megatron.tokens, wanted[n - 1]);
    assert_int_equal(megatron.documents, n - 1);
    assert_int_equal(starts.n, n);
    assert_memory_equal(starts.items, wanted, n * sizeof *wanted);
    array_deinit(&starts);
    /* Without the documents nothing is kept. */
    megatron = (struct megatron){0};
    assert_int_equal(index_read(&bytes, file_bytes, NULL, NULL, NULL, &megatron, &failure), 0);
    assert_int_equal(megatron.tokens, wanted[n - 1]);
    assert_int_equal(megatron.documents, n - 1);
}

static void documents_begin_where_the_index_says(void **state)
{
    struct index_parts parts = good;

    (void)state;
    check_good(&parts, 2 * TOKENS, SAMPLE_U16, (uint64_t[]){0, 3, 3, 17, 18}, D);
    parts.type = 4;
    parts.width = 4;
    check_good(&parts, 4 * TOKENS, SAMPLE_I32, (uint64_t[]){0, 3, 3, 17, 18}, D);
    check_good(&(struct index_parts){.documents = documents, .n_documents = 1}, 0, SAMPLE_U16,
               (uint64_t[]){0}, 1);
    /* Documents without a sequence, in front and at the end. */
    parts = good;
    parts.documents = (int64_t[]){0, 0, 6, 6, 6};
    check_good(&parts, 2 * TOKENS, SAMPLE_U16, (uint64_t[]){0, 0, 18, 18, 18}, 5);
}

/* Longer than what is read at once, in each of the three columns. */
static void long_indexes_are_read_whole(void **state)
{
    enum { SEQUENCES = 5000 };
    static int32_t many[SEQUENCES];
    static int64_t each[SEQUENCES + 1];
    static uint64_t wanted[SEQUENCES + 1];
    static uint8_t file[SEQUENCES * 20 + 100];
    struct arena arena = {.name = "tokens:t"};
    struct array starts = {0};
    struct megatron megatron = {0};
    struct failure failure = {0};
    struct source_file bin = {.fd = -1, .name = "t.bin"}, index = SOURCE_FILE_INIT;
    const uint64_t counts[] = {1, SEQUENCES, SEQUENCES + 1};
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < SEQUENCES; i++) {
        many[i] = (int32_t)(i % 7);
        each[i + 1] = (int64_t)i + 1;
        wanted[i + 1] = wanted[i] + i % 7;
    }
    memcpy(file, "MMIDIDX\0", 9);
    memcpy(file + 9, &counts[0], 8);
    file[17] = 8;
    memcpy(file + 18, &counts[1], 16);
    memcpy(file + (n = 34), many, sizeof many);
    n += sizeof many;
    for (size_t i = 0; i < SEQUENCES; i++, n += 8)
        memcpy(file + n, (uint64_t[]){2 * wanted[i]}, 8);
    memcpy(file + n, each, sizeof each);
    n += sizeof each;
    assert_true(temp_dir_write(&dir, "long.idx", file, n));
    cleanup_fd int fd = openat(dir.fd, "long.idx", O_RDONLY | O_CLOEXEC);
    assert_int_equal(source_file_take(&index, "index", fd, "long.idx", &failure), 0);
    bin.st.st_size = (off_t)(2 * wanted[SEQUENCES]);
    if (megatron_read(&index, &bin, &starts, &arena, NULL, &megatron, &failure) < 0)
        fail_msg("%s", failure.text);
    assert_int_equal(starts.n, SEQUENCES + 1);
    assert_memory_equal(starts.items, wanted, sizeof wanted);
    array_deinit(&starts);
    source_file_deinit(&index);
}

/* None of them may have made room for what it names. */
static void check_bytes(const struct bytes *bytes, uint64_t file_bytes, bool early, const char *why)
{
    struct arena arena = {.name = "tokens:t"};
    struct array starts = {0};
    struct megatron megatron = {0};
    struct failure failure = {0};

    assert_int_equal(index_read(bytes, file_bytes, &starts, &arena, NULL, &megatron, &failure),
                     -EINVAL);
    if (!strstr(failure.text, why))
        fail_msg("\"%s\" lacks \"%s\"", failure.text, why);
    if (early)
        assert_int_equal(arena.used, 0);
    assert_true(arena.used < 4096);
    array_deinit(&starts);
}

static void check_bad(const struct index_parts *parts, uint64_t file_bytes, bool early,
                      const char *why)
{
    static struct bytes bytes;

    bytes.n = 0;
    put_index(&bytes, parts);
    check_bytes(&bytes, file_bytes, early, why);
}

static void headers_that_lie(void **state)
{
    static const uint64_t hostile[] = {UINT64_C(1) << 63,  UINT64_MAX, UINT64_MAX / 12 + 2,
                                       UINT64_MAX / 8 + 1, 7,          1000000};
    struct index_parts parts = good;

    (void)state;
    parts.magic = "MMIDIDX\0\1";
    check_bad(&parts, 36, true, "t.idx: is no index of Megatron-LM");
    parts = good;
    parts.version = 2;
    check_bad(&parts, 36, true, "t.idx: version 2 of the index; 1 is served");
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        parts = good;
        parts.sequences = hostile[i];
        check_bad(&parts, 36, true, "t.idx: its 146 bytes are too few for the");
        parts = good;
        parts.indices = hostile[i];
        check_bad(&parts, 36, true, "document indices that it names");
    }
    parts = good;
    parts.indices = 4;
    check_bad(&parts, 36, true, "8 of its 146 bytes are more than its 6 sequences and 4");
    parts = (struct index_parts){.lengths = lengths, .n_lengths = 1};
    check_bad(&parts, 6, true, "says of no document where it begins");
}

static void types_that_are_not_served(void **state)
{
    static const char *const names[] = {[1] = "uint8", [2] = "int8",    [3] = "int16",
                                        [5] = "int64", [6] = "float64", [7] = "float32"};
    struct index_parts parts = good;

    (void)state;
    for (uint8_t type = 1; type < 8; type++) {
        char why[64];
        if (!names[type])
            continue;
        parts.type = type;
        snprintf(why, sizeof why, "its tokens are %s; uint16 and int32 are served", names[type]);
        check_bad(&parts, 36, true, why);
    }
    parts.type = 9;
    check_bad(&parts, 36, true, "type 9 of its tokens is unknown");
    parts.type = 255;
    check_bad(&parts, 36, true, "type 255 of its tokens is unknown");
}

static void files_that_are_cut_or_too_long(void **state)
{
    static struct bytes bytes;

    (void)state;
    bytes.n = 0;
    put_index(&bytes, &good);
    size_t whole = bytes.n;
    for (bytes.n = 0; bytes.n < whole; bytes.n++)
        check_bytes(&bytes, 36, true, bytes.n < 34 ? "no whole header" : "are too few");
    bytes.n = whole;
    put_number(&bytes, 0, 1);
    check_bytes(&bytes, 36, true, "1 of its 147 bytes are more");
    put_number(&bytes, 0, 5);
    check_bytes(&bytes, 36, true, "tells the mode of each sequence");
}

static void sequences_that_do_not_fit(void **state)
{
    struct index_parts parts = good;

    (void)state;
    parts.lengths = (int32_t[]){3, 0, 5, -2, 7, 1};
    check_bad(&parts, 36, false, "t.idx: sequence 3 has -2 tokens");
    parts = good;
    parts.pointers = (int64_t[]){0, 6, 6, 18, 20, 34};
    check_bad(&parts, 36, false, "sequence 3 begins at byte 18, the one before it ends at 16");
    parts.pointers = (int64_t[]){0, 6, 6, -16, 20, 34};
    check_bad(&parts, 36, false, "sequence 3 begins at byte -16");
    check_bad(&good, 35, false, "t.idx: sequence 5 ends at byte 36, t.bin has 35 bytes");
    check_bad(&good, 34, false, "sequence 5 ends at byte 36, t.bin has 34 bytes");
    check_bad(&good, 38, false, "t.idx: its sequences end at byte 36, t.bin has 38 bytes");
    parts = good;
    parts.type = 4;
    check_bad(&parts, 72, false, "sequence 1 begins at byte 6, the one before it ends at 12");
    parts = good;
    parts.lengths = (int32_t[]){INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    check_bad(&parts, 36, false, "sequence 0 ends at byte 4294967294, t.bin has 36 bytes");
}

static void documents_that_do_not_follow(void **state)
{
    struct index_parts parts = good;

    (void)state;
    parts.documents = (int64_t[]){1, 2, 2, 5, 6};
    check_bad(&parts, 36, false, "its first document begins at sequence 1, not 0");
    parts.documents = (int64_t[]){-1, 2, 2, 5, 6};
    check_bad(&parts, 36, false, "its first document begins at sequence -1, not 0");
    parts.documents = (int64_t[]){0, 2, 1, 5, 6};
    check_bad(&parts, 36, false, "document index 2 is 1, behind one of 2");
    parts.documents = (int64_t[]){0, 2, INT64_MIN, 5, 6};
    check_bad(&parts, 36, false, "document index 2 is -9223372036854775808");
    parts.documents = (int64_t[]){0, 2, 2, 7, 6};
    check_bad(&parts, 36, false, "document index 3 is 7");
    parts.documents = (int64_t[]){0, 2, 2, 5, 5};
    check_bad(&parts, 36, false, "its last document ends at sequence 5, it has 6");
}

static void memory_is_bounded_and_reading_cancelled(void **state)
{
    static struct bytes bytes;
    struct arena arena = {.name = "tokens:t", .max = 39};
    struct array starts = {0};
    struct source_progress progress = {.cancelled = true};
    struct megatron megatron;
    struct failure failure = {0};

    (void)state;
    bytes.n = 0;
    put_index(&bytes, &good);
    assert_int_equal(index_read(&bytes, 36, &starts, &arena, NULL, &megatron, &failure), -E2BIG);
    assert_non_null(strstr(failure.text, "limits.index"));
    arena.max = 40;
    assert_int_equal(index_read(&bytes, 36, &starts, &arena, &progress, &megatron, &failure),
                     -ECANCELED);
    assert_non_null(strstr(failure.text, "t.idx: reading it was cancelled at byte"));
    array_deinit(&starts);
    /* Documents alone, too. */
    bytes.n = 0;
    put_index(&bytes, &(struct index_parts){.documents = documents, .n_documents = 1});
    assert_int_equal(index_read(&bytes, 0, NULL, NULL, &progress, &megatron, &failure), -ECANCELED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_begin_where_the_index_says),
        cmocka_unit_test(long_indexes_are_read_whole),
        cmocka_unit_test(headers_that_lie),
        cmocka_unit_test(types_that_are_not_served),
        cmocka_unit_test(files_that_are_cut_or_too_long),
        cmocka_unit_test(sequences_that_do_not_fit),
        cmocka_unit_test(documents_that_do_not_follow),
        cmocka_unit_test(memory_is_bounded_and_reading_cancelled),
    };

    return cmocka_run_group_tests_name("megatron", tests, dir_make, dir_remove);
}
