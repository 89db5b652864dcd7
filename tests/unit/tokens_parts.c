/*
 * Parts of a blend as a source of tokens serves them, and which wishes are one
 * source.
 */
#include "token_source.h"

#include <errno.h>

#define SOURCE_FILES 4

static const char *const names[SOURCE_FILES] = {"p.bin", "p.idx", "q.bin", "r.bin"};

struct opening {
    struct source_spec spec;
    struct source_part parts[2];
    int fds[SOURCE_FILES];
};

static void opening_make(struct opening *opening)
{
    *opening = (struct opening){
        .spec = {.kind = SOURCE_KIND_TOKENS,
                 .name = "tokens:blend",
                 .tokens = windows_of(4, SAMPLE_U16),
                 .fds = opening->fds,
                 .fd_names = names,
                 .n_fds = SOURCE_FILES,
                 .parts = opening->parts,
                 .n_parts = 2},
        .parts = {{.name = "p*", .files = 2, .weight = 3},
                  {.name = "[qr]*", .files = 2, .weight = 1}},
    };
    for (size_t i = 0; i < SOURCE_FILES; i++)
        opening->fds[i] = openat(dir.fd, names[i], O_RDONLY | O_CLOEXEC);
}

static void opening_end(struct opening *opening)
{
    for (size_t i = 0; i < SOURCE_FILES; i++)
        close(opening->fds[i]);
}

static void write_u16(const char *name, int64_t first, size_t n)
{
    static struct bytes bytes;

    bytes.n = 0;
    put_tokens(&bytes, first, n, 2);
    write_bytes(name, &bytes);
}

static void blended_files_make(void)
{
    static struct bytes index;
    struct index_parts parts = {.lengths = (int32_t[]){20, 20},
                                .n_lengths = 2,
                                .documents = (int64_t[]){0, 1, 2},
                                .n_documents = 3};

    write_u16("p.bin", 0, 40);
    write_u16("q.bin", 1000, 80);
    write_u16("r.bin", 2000, 40);
    index.n = 0;
    put_index(&index, &parts);
    write_bytes("p.idx", &index);
}

/* A change that makes another source, or (from the last ones on) one of the same order. */
static void opening_change(struct opening *opening, unsigned change)
{
    struct token_windows *windows = &opening->spec.tokens;

    switch (change) {
    case 0:
        windows->seq = 5;
        break;
    case 1:
        windows->stride = 3;
        break;
    case 2:
        windows->random = true;
        break;
    case 3:
        windows->within = true;
        break;
    case 4:
        windows->out = SAMPLE_I64;
        break;
    case 5:
        opening->parts[0].weight = 4;
        break;
    case 6:
        opening->spec.n_parts = 0;
        break;
    case 7:
        opening->parts[0].files = 3;
        opening->parts[1].files = 1;
        break;
    case 8:
        windows->position = true;
        break;
    case 9:
        windows->document = true;
        break;
    case 10:
        windows->vocabulary = 50000;
        break;
    case 11:
        windows->has_width = true;
        break;
    case 12:
        windows->has_offset = true;
        break;
    case 13:
        opening->parts[0].weight = 6;
        opening->parts[1].weight = 2;
        break;
    }
}
#define CHANGES 14
#define CHANGES_OF_ORDER 8

static void another_wish_is_another_source(void **state)
{
    uint64_t seen[CHANGES + 1];
    struct failure failure = {0};
    struct source *source, *other;
    struct opening opening;

    (void)state;
    blended_files_make();
    opening_make(&opening);
    assert_int_equal(source_new(&opening.spec, NULL, &source, &failure), 0);
    assert_true(source_matches(source, &opening.spec));
    seen[CHANGES] = source_fingerprint(source);
    opening_end(&opening);
    for (unsigned i = 0; i < CHANGES; i++) {
        opening_make(&opening);
        opening_change(&opening, i);
        assert_false(source_matches(source, &opening.spec));
        if (source_new(&opening.spec, NULL, &other, &failure) < 0)
            fail_msg("change %u: %s", i, failure.text);
        assert_true(source_matches(other, &opening.spec));
        seen[i] = source_fingerprint(other);
        assert_int_equal(seen[i] == seen[CHANGES], i >= CHANGES_OF_ORDER);
        for (unsigned k = 0; i < CHANGES_OF_ORDER && k < i; k++)
            assert_true(seen[i] != seen[k]);
        source_unref(other);
        opening_end(&opening);
    }
    source_unref(source);
}

/* Three of four windows are of the first part, which has 8, the others of 19 + 9. */
static void parts_are_drawn_from_by_weight(void **state)
{
    struct failure failure = {0};
    struct source *source;
    struct opening opening;
    unsigned counts[3] = {0};
    int32_t out[5];
    int64_t label;

    (void)state;
    blended_files_make();
    opening_make(&opening);
    assert_int_equal(source_new(&opening.spec, NULL, &source, &failure), 0);
    assert_int_equal(source_samples(source), 9 + 19 + 9);
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        for (uint64_t i = 0; i < 37; i++) {
            struct sample_key key = {1, epoch, true};
            assert_int_equal(source_fill(source, i, key, out, &label, &failure), 0);
            counts[out[0] / 1000]++;
        }
    }
    assert_int_equal(counts[0], 4 * 28);
    assert_int_equal(counts[1] + counts[2], 4 * 9);
    assert_true(counts[1] >= 19 && counts[2] >= 9);
    source_unref(source);
    opening_end(&opening);
}

static void parts_that_do_not_add_up(void **state)
{
    static const struct {
        uint32_t files[2];
        uint64_t weight;
        uint32_t seq;
        int code;
        const char *why;
    } cases[] = {
        {{2, 1}, 1, 4, -EINVAL, "its parts have 3 files, and 4 came with it"},
        {{UINT32_MAX, 5}, 1, 4, -EINVAL, "its parts have 4294967300 files"},
        {{4, 0}, 1, 4, -EINVAL, "part [qr]* of the blend has no files"},
        {{2, 2}, 0, 4, -EINVAL, "part p* of the blend has no weight"},
        {{1, 3}, 1, 4, -EINVAL, "p.idx: is an index of Megatron-LM"},
        {{2, 2},
         1,
         60,
         -ENOENT,
         "no window of 61 tokens (seq + 1) fits the part p*, its 1 files: the longest has 40"},
    };
    struct failure failure = {0};
    struct source *source;
    struct opening opening;
    int before;

    (void)state;
    blended_files_make();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        opening_make(&opening);
        opening.parts[0].files = cases[i].files[0];
        opening.parts[1].files = cases[i].files[1];
        opening.parts[0].weight = cases[i].weight;
        opening.spec.tokens.seq = cases[i].seq;
        before = open_fds();
        assert_int_equal(source_new(&opening.spec, NULL, &source, &failure), cases[i].code);
        if (!strstr(failure.text, cases[i].why))
            fail_msg("\"%s\" lacks \"%s\"", failure.text, cases[i].why);
        assert_int_equal(open_fds(), before);
        opening_end(&opening);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_wish_is_another_source),
        cmocka_unit_test(parts_are_drawn_from_by_weight),
        cmocka_unit_test(parts_that_do_not_add_up),
    };

    return cmocka_run_group_tests_name("tokens_parts", tests, dir_make, dir_remove);
}
