/*
 * Where windows begin, and in which documents their tokens lie: against a list
 * of every token's document, made one by one.
 */
#include "token_source.h"

#include <errno.h>

#define FILES 3
#define TOKENS_MAX 400

static const char *const files[] = {"a.bin", "a.idx", "b.bin", "c.bin", "c.idx", NULL};

/* Documents of each file, as lengths of sequences; a 0-length end of a document is -1. */
static const int32_t sequences[FILES][32] = {
    {3, -1, 4, 5, -1, -1, 1, -1, 30, -1, 7, -1, 0, -1, 6, -1},
    {97, -1},
    {2, -1, 2, -1, 40, 0, 2, -1, -1, 8, -1},
};

struct token {
    int64_t value, position, document;
};

/* Everything there is, in order. */
static struct token all[FILES][TOKENS_MAX];
static size_t n_all[FILES];
static size_t ends[64]; /* of documents, in tokens of their file */
static size_t n_documents, first_documents[FILES + 1];

static size_t count_of(const int32_t *list)
{
    size_t n = 0;

    for (size_t i = 0; i < 32; i++)
        n = list[i] == -1 ? i + 1 : n;
    return n;
}

static void file_make(size_t f)
{
    static struct bytes bin, idx;
    int32_t lengths[32];
    int64_t documents[32] = {0}, position = 0;
    struct index_parts parts = {.lengths = lengths, .documents = documents, .n_documents = 1};
    char name[8];

    bin.n = idx.n = 0;
    first_documents[f] = n_documents;
    for (size_t i = 0; i < count_of(sequences[f]); i++) {
        if (sequences[f][i] < 0) {
            documents[parts.n_documents++] = (int64_t)parts.n_lengths;
            ends[n_documents++] = n_all[f];
            position = 0;
            continue;
        }
        for (int k = 0; k < sequences[f][i]; k++) {
            all[f][n_all[f]] = (struct token){(int64_t)(1000 * (f + 1) + n_all[f]), position++,
                                              (int64_t)n_documents};
            put_number(&bin, all[f][n_all[f]++].value, 2);
        }
        lengths[parts.n_lengths++] = sequences[f][i];
    }
    snprintf(name, sizeof name, "%c.bin", 'a' + (int)f);
    write_bytes(name, &bin);
    put_index(&idx, &parts);
    snprintf(name, sizeof name, "%c.idx", 'a' + (int)f);
    if (f != 1)
        write_bytes(name, &idx);
}

static int files_make(void **state)
{
    int r = dir_make(state);

    for (size_t f = 0; r == 0 && f < FILES; f++)
        file_make(f);
    first_documents[FILES] = n_documents;
    return r;
}

static struct token_windows windows_with(uint32_t seq, uint64_t stride, bool within)
{
    struct token_windows windows = windows_of(seq, SAMPLE_U16);

    windows.stride = stride;
    windows.within = within;
    windows.position = windows.document = true;
    return windows;
}

/* Whether a window may begin there. */
static bool may_begin(size_t f, size_t at, uint32_t seq, bool within)
{
    return at + seq < n_all[f] && (!within || all[f][at].document == all[f][at + seq].document);
}

/* ... and does, at the stride. */
static bool begins(size_t f, size_t at, uint32_t seq, uint64_t stride, bool within)
{
    uint64_t from = within ? (uint64_t)all[f][at].position : at;

    return may_begin(f, at, seq, within) && from % stride == 0;
}

static void sample_check(struct source *source, uint64_t index, struct sample_key key, uint32_t seq,
                         const struct token *wanted)
{
    int64_t position[TOKENS_MAX], document[TOKENS_MAX], label;
    int32_t out[TOKENS_MAX];
    struct failure failure = {0};

    assert_int_equal(source_fill(source, index, key, out, &label, &failure), 0);
    assert_int_equal(source_field_fill(source, index, key, NULL, 1, position, &failure), 0);
    assert_int_equal(source_field_fill(source, index, key, NULL, 2, document, &failure), 0);
    for (size_t i = 0; i <= seq; i++) {
        assert_int_equal(out[i], wanted[i].value);
        assert_int_equal(position[i], wanted[i].position);
        assert_int_equal(document[i], wanted[i].document);
    }
}

static void check_stride(uint32_t seq, uint64_t stride, bool within)
{
    struct token_windows windows = windows_with(seq, stride, within);
    struct source *source = opened(files, &windows);
    uint64_t sample = 0, skipped = 0;
    size_t begin = 0;

    for (size_t f = 0; f < FILES; f++) {
        for (size_t at = 0; at < n_all[f]; at++) {
            if (begins(f, at, seq, stride, within))
                sample_check(source, sample++, (struct sample_key){1, 2, true}, seq, &all[f][at]);
        }
        skipped += !within && n_all[f] <= seq;
        begin = 0;
        for (size_t d = first_documents[f]; within && d < first_documents[f + 1]; d++) {
            skipped += ends[d] - begin <= seq;
            begin = ends[d];
        }
    }
    assert_int_equal(source_samples(source), sample);
    assert_int_equal(source_skipped(source), skipped);
    source_unref(source);
}

static void windows_across_documents(void **state)
{
    (void)state;
    for (uint32_t seq = 1; seq < 54; seq += 4) {
        check_stride(seq, seq, false);
        check_stride(seq, 1, false);
        check_stride(seq, 3, false);
    }
}

static void windows_within_documents(void **state)
{
    (void)state;
    for (uint32_t seq = 1; seq < 42; seq += 2) {
        check_stride(seq, seq, true);
        check_stride(seq, 1, true);
        check_stride(seq, 5, true);
    }
}

/* Each place is as likely as any other, and no other ever begins a window. */
static void check_random(uint32_t seq, bool within)
{
    struct token_windows windows = windows_with(seq, seq, within);
    unsigned counts[FILES][TOKENS_MAX] = {{0}}, drawn = 0, places = 0;
    struct failure failure = {0};
    int32_t out[TOKENS_MAX];
    int64_t label;

    windows.random = true;
    struct source *source = opened(files, &windows);
    for (uint64_t epoch = 0; epoch < 3000; epoch++) {
        for (uint64_t i = 0; i < source_samples(source); i++, drawn++) {
            struct sample_key key = {5, epoch, true};
            assert_int_equal(source_fill(source, i, key, out, &label, &failure), 0);
            size_t f = (size_t)out[0] / 1000 - 1, at = (size_t)out[0] % 1000;
            counts[f][at]++;
            if (epoch == 0)
                sample_check(source, i, key, seq, &all[f][at]);
        }
    }
    for (size_t f = 0; f < FILES; f++) {
        for (size_t at = 0; at < n_all[f]; at++)
            places += may_begin(f, at, seq, within);
    }
    double mean = (double)drawn / places;
    for (size_t f = 0; f < FILES; f++) {
        for (size_t at = 0; at < n_all[f]; at++) {
            bool may = may_begin(f, at, seq, within);
            double off = may ? counts[f][at] - mean : 0;
            if (off * off > 25 * mean || (!may && counts[f][at] > 0))
                fail_msg("file %d: place %d: %u times, %f due", (int)f, (int)at, counts[f][at],
                         may ? mean : 0);
        }
    }
    source_unref(source);
}

static void random_windows(void **state)
{
    (void)state;
    check_random(10, true);
    check_random(10, false);
    check_random(29, true);
}

static void fields_are_what_was_asked_for(void **state)
{
    struct token_windows windows = windows_with(9, 9, false);
    const struct source_field *fields;
    struct failure failure = {0};
    int64_t out[10];

    (void)state;
    struct source *source = opened(files, &windows);
    assert_int_equal(source_fields(source, &fields), 2);
    assert_string_equal(fields[0].name, "position");
    assert_string_equal(fields[1].name, "document");
    for (int i = 0; i < 2; i++)
        assert_true(fields[i].dtype == SAMPLE_I64 && fields[i].n_dims == 1 &&
                    fields[i].shape[0] == 10);
    assert_int_equal(source_field_fill(source, 0, (struct sample_key){0}, NULL, 3, out, &failure),
                     -EINVAL);
    assert_int_equal(source_field_fill(source, 0, (struct sample_key){0}, NULL, 0, out, &failure),
                     -EINVAL);
    source_unref(source);
    windows.position = false;
    source = opened(files, &windows);
    assert_int_equal(source_fields(source, &fields), 1);
    assert_string_equal(fields[0].name, "document");
    assert_int_equal(source_field_fill(source, 1, (struct sample_key){0}, NULL, 1, out, &failure),
                     0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(out[i], all[0][9 + i].document);
    source_unref(source);
    windows.document = false;
    source = opened(files, &windows);
    assert_int_equal(source_fields(source, &fields), 0);
    assert_string_equal(source_tensor(source), "tokens");
    source_unref(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_across_documents),
        cmocka_unit_test(windows_within_documents),
        cmocka_unit_test(random_windows),
        cmocka_unit_test(fields_are_what_was_asked_for),
    };

    return cmocka_run_group_tests_name("tokens_place", tests, files_make, dir_remove);
}
