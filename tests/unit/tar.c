/*
 * Tar shards: the samples in them, in every dialect.
 */
#include "source/source.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "source/tar.h"
#include "tar_shard.h"

static void expect_three(struct source *source)
{
    assert_int_equal(source_samples(source), 3);
    expect_sample(source, 0, &three[0], 7);
    expect_sample(source, 1, &three[3], -3);
    expect_sample(source, 2, &three[5], -1);
}

static void all_dialects_give_the_same_samples(void **state)
{
    uint64_t prints[3];

    (void)state;
    for (int dialect = USTAR; dialect <= PAX; dialect++) {
        int fd = tar_make((enum dialect)dialect, three, THREE_MEMBERS);
        struct source *source = open_one(fd);
        close(fd);
        expect_three(source);
        assert_int_equal(source_skipped(source), 0);
        assert_int_equal(source_classes(source), 0);
        prints[dialect] = source_fingerprint(source);
        source_unref(source);
    }
    assert_true(prints[0] == prints[1] && prints[1] == prints[2]);
}

static void long_and_utf8_names_are_no_samples_of_their_own(void **state)
{
    char name[205];
    struct member members[] = {
        {"a b.jpg", NULL, 600}, {name, NULL, 700}, {"\xc3\xa4/\xe6\x97\xa5.jpg", NULL, 800}};
    uint64_t prints[2];
    char text[512];
    char expected[512];

    (void)state;
    memset(name, 'n', 200);
    memcpy(name + 200, ".jpg", sizeof ".jpg");
    for (int i = 0; i < 2; i++) {
        int fd = tar_make(i == 0 ? GNU : PAX, members, 3);
        struct source *source = open_one(fd);
        close(fd);
        assert_int_equal(source_samples(source), 3);
        for (uint64_t j = 0; j < 3; j++) {
            expect_sample(source, j, &members[j], -1);
            snprintf(expected, sizeof expected, "a.tar: %s at ", members[j].name);
            source_sample_name(source, j, text, sizeof text);
            assert_memory_equal(text, expected, strlen(expected));
        }
        prints[i] = source_fingerprint(source);
        source_unref(source);
    }
    assert_true(prints[0] == prints[1]);
}

static void the_key_ends_at_the_first_dot_of_the_base_name(void **state)
{
    (void)state;
    assert_string_equal(tar_field("a/22.0/1.1.png"), "1.png");
    assert_string_equal(tar_field("d.e/f.seg.png"), "seg.png");
    assert_string_equal(tar_field("x.jpg"), "jpg");
    assert_null(tar_field("x"));
    assert_null(tar_field("a.b/x"));
    assert_null(tar_field(".jpg"));
    assert_null(tar_field("a/.hidden.jpg"));
    assert_null(tar_field("x."));
    assert_null(tar_field("a.jpg/"));
}

static void keys_have_their_directories(void **state)
{
    const struct member members[] = {
        {"a/1.jpg", "A", 0}, {"b/1.jpg", "B", 0}, {"./c.x/1.JPG", "C", 0}, {"c.x/1.cls", " 5 ", 0}};
    int fd = tar_make(PAX, members, 4);
    struct source *source = open_one(fd);
    char text[64];

    (void)state;
    close(fd);
    assert_int_equal(source_samples(source), 3);
    expect_sample(source, 1, &members[1], -1);
    expect_sample(source, 2, &members[2], 5);
    source_sample_name(source, 2, text, sizeof text);
    assert_memory_equal(text, "a.tar: c.x/1.JPG at ", 20);
    source_unref(source);
}

static void an_image_is_chosen_by_its_kind_not_its_place(void **state)
{
    const struct member members[] = {{"1.png", "P", 0}, {"1.jpg", "J", 0},  {"2.jpg", "j", 0},
                                     {"2.png", "p", 0}, {"3.png", "pp", 0}, {"3.jpeg", "jj", 0}};
    int fd = tar_make(USTAR, members, 6);
    struct source *source = open_one(fd);

    (void)state;
    close(fd);
    expect_sample(source, 0, &members[1], -1);
    expect_sample(source, 1, &members[2], -1);
    expect_sample(source, 2, &members[5], -1);
    source_unref(source);
}

static void many_keys_are_told_apart(void **state)
{
    enum { N = 3000 };
    struct member *members = calloc(N + 1, sizeof *members);
    char(*names)[16] = calloc(N + 1, sizeof *names);

    (void)state;
    assert_true(members && names);
    for (int i = 0; i <= N; i++) {
        snprintf(names[i], sizeof names[i], "%d.jpg", i % N);
        members[i] = (struct member){.name = names[i], .size = 10};
    }
    int fd = tar_make(USTAR, members, N);
    struct source *source = open_one(fd);
    assert_int_equal(source_samples(source), N);
    expect_sample(source, N - 1, &members[N - 1], -1);
    source_unref(source);
    close(fd);
    refused(tar_make(USTAR, members, N + 1), -EINVAL, "key 0 comes again", "");
    free(members);
    free(names);
}

static void missing_end_marks_are_accepted(void **state)
{
    static const off_t ends[] = {4608, 4584, 5120, 4600};
    const struct member members[] = {
        {"001.jpg", NULL, 1000}, {"002.jpg", NULL, 1000}, {"003.jpg", NULL, 1000}};

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        int fd = tar_make(USTAR, members, 3);
        assert_int_equal(ftruncate(fd, ends[i]), 0);
        struct source *source = open_one(fd);
        close(fd);
        assert_int_equal(source_samples(source), 3);
        expect_sample(source, 2, &members[2], -1);
        source_unref(source);
    }
}

static void shards_follow_each_other(void **state)
{
    static const uint8_t zeros[10240];
    const struct member second[] = {{"001.jpg", "second", 0}};
    static const char *const names[] = {"0.tar", "1.tar", "2.tar", "3.tar"};
    int fds[] = {memfd_of(zeros, sizeof zeros), tar_make(PAX, three, THREE_MEMBERS),
                 memfd_of(zeros, sizeof zeros), tar_make(GNU, second, 1)};
    struct source_spec spec = spec_of(fds, names, 4);
    struct source_progress progress = {0};
    struct source *source = NULL;
    char text[64];

    (void)state;
    /* The same key in another shard is another sample. */
    assert_int_equal(source_new(&spec, &progress, &source, NULL), 0);
    assert_int_equal(source_samples(source), 4);
    assert_int_equal(progress.indexed, 4);
    expect_sample(source, 2, &three[5], -1);
    expect_sample(source, 3, &second[0], -1);
    assert_string_equal(source_sample_name(source, 3, text, sizeof text), "3.tar: 001.jpg at 512");
    assert_string_equal(source_sample_place(source, 3, text, sizeof text), "3.tar:001.jpg@512");
    assert_true(source_matches(source, &spec));
    spec.n_fds = 3;
    assert_false(source_matches(source, &spec));
    spec.n_fds = 4;
    usleep(20000); /* a clock tick of the file system */
    assert_int_equal(pwrite(fds[3], "S", 1, 512), 1);
    assert_false(source_matches(source, &spec));
    source_unref(source);

    progress.cancelled = true;
    assert_int_equal(source_new(&spec, &progress, &source, NULL), -ECANCELED);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
}

static void other_members_are_skipped(void **state)
{
    const struct member members[] = {
        {"__info__", "x", 0}, {"README", "x", 0}, {"a/.DS_Store", "x", 0}, {"1.jpg", "x", 0}};
    int fd = tar_make(USTAR, members, 4);
    struct source *source = open_one(fd);

    (void)state;
    close(fd);
    assert_int_equal(source_samples(source), 1);
    assert_int_equal(source_skipped(source), 3);
    source_unref(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tar_test(all_dialects_give_the_same_samples),
        tar_test(long_and_utf8_names_are_no_samples_of_their_own),
        tar_test(the_key_ends_at_the_first_dot_of_the_base_name),
        tar_test(keys_have_their_directories),
        tar_test(an_image_is_chosen_by_its_kind_not_its_place),
        tar_test(many_keys_are_told_apart),
        tar_test(missing_end_marks_are_accepted),
        tar_test(shards_follow_each_other),
        tar_test(other_members_are_skipped),
    };

    return cmocka_run_group_tests_name("tar", tests, NULL, NULL);
}
