/*
 * When the index of a folder still holds for a job that names it again, and
 * when that job gets an index of its own.
 */
#include "source/source.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "listed_folder.h"

/* Class folders, without the list. */
static struct source *open_classes(void)
{
    spec.n_fds = 1;
    return open_source();
}

static void matches_until_a_directory_changes(void **state)
{
    (void)state;
    put("a/b/1.jpg", "one");
    put("a/2.jpg", "two");
    struct source *source = open_classes();
    assert_true(source_matches(source, &spec));
    spec.name = "/other";
    assert_false(source_matches(source, &spec));
    spec.name = "folder:/data/photos,list=train.txt";
    spec.kind = SOURCE_KIND_TAR;
    assert_false(source_matches(source, &spec));
    spec.kind = SOURCE_KIND_FOLDER;
    usleep(20000); /* a clock tick of the file system */
    put("a/b/3.jpg", "three");
    assert_false(source_matches(source, &spec));
    source_unref(source);
}

static void matches_until_a_file_of_a_class_changes(void **state)
{
    (void)state;
    put("a/1.jpg", "one");
    put("a/b/2.jpg", "two");
    struct source *source = open_classes();
    assert_true(source_matches(source, &spec));
    put("a/b/2.jpg", "cut"); /* neither its name nor its size */
    assert_true(source_matches(source, &spec));
    put("a/b/2.jpg", "longer");
    assert_false(source_matches(source, &spec));
    put("a/b/2.jpg", "");
    assert_false(source_matches(source, &spec));
    source_unref(source);
}

/* In place, and back before anyone looks again. */
static void what_a_read_has_seen_stays_known(void **state)
{
    struct sample sample = {0};
    struct failure failure;

    (void)state;
    put("a/1.jpg", "one");
    put("a/2.jpg", "two");
    struct source *source = open_classes();
    assert_int_equal(source_read(source, 0, &sample, &failure), 0);
    assert_true(source_matches(source, &spec));
    put("a/1.jpg", "");
    assert_int_equal(source_read(source, 0, &sample, &failure), -EBADMSG);
    put("a/1.jpg", "one");
    assert_false(source_matches(source, &spec));
    sample_deinit(&sample);
    source_unref(source);
}

/* Its samples are the same, and so is what matters of the files. */
static void matches_while_list_and_files_stay(void **state)
{
    (void)state;
    put("a/1.jpg", "one");
    put("a/2.jpg", "two");
    put_list("a/1.jpg 1\na/2.jpg 2\n");
    struct source *source = open_source();
    assert_true(source_matches(source, &spec));
    usleep(20000); /* a clock tick of the file system */
    put("a/3.jpg", "three");
    assert_true(source_matches(source, &spec));
    spec.n_fds = 1;
    assert_false(source_matches(source, &spec));
    spec.n_fds = 2;
    int other = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fds[0] = other;
    assert_false(source_matches(source, &spec));
    close(other);
    fds[0] = dir.fd;
    put_list("a/1.jpg 1\na/2.jpg 3\n"); /* in place, of the same size */
    assert_false(source_matches(source, &spec));
    source_unref(source);
}

static void matches_until_a_file_changes(void **state)
{
    struct sample sample = {0};
    struct failure failure;

    (void)state;
    put("a/1.jpg", "one");
    put("a/2.jpg", "two");
    put_list("a/1.jpg\na/2.jpg\n");
    struct source *source = open_source();
    put("a/2.jpg", "second");
    assert_false(source_matches(source, &spec));
    put("a/2.jpg", "2nd");
    assert_true(source_matches(source, &spec));
    assert_int_equal(unlinkat(dir.fd, "a/2.jpg", 0), 0);
    assert_false(source_matches(source, &spec));
    /* What a read has seen stays known. */
    assert_int_equal(source_read(source, 1, &sample, &failure), -ENOENT);
    put("a/2.jpg", "two");
    assert_false(source_matches(source, &spec));
    sample_deinit(&sample);
    source_unref(source);
}

/* Of 3,000 files two thirds are not looked at, but for when they are read. */
static void a_read_finds_what_changed_in_place(void **state)
{
    enum { N = 3000 };
    struct sample sample = {0};
    char path[64], *list = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&list, &size);

    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(path, sizeof path, "%d", i);
        put(path, "x");
        fprintf(out, "%d\n", i);
    }
    assert_int_equal(fclose(out), 0);
    put_list(list);
    free(list);
    struct source *source = open_source();
    put("2929", "longer"); /* 1000 * 3000 / 1024 is 2929.7 */
    assert_false(source_matches(source, &spec));
    put("2929", "x");
    put("2930", "longer");
    assert_true(source_matches(source, &spec));
    assert_int_equal(source_read(source, 2930, &sample, NULL), 0);
    assert_memory_equal(sample.bytes, "longer", 6);
    assert_false(source_matches(source, &spec));
    sample_deinit(&sample);
    source_unref(source);
}

#define match_test(f) cmocka_unit_test_setup_teardown(f, dirs_make, dirs_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        match_test(matches_until_a_directory_changes),
        match_test(matches_until_a_file_of_a_class_changes),
        match_test(what_a_read_has_seen_stays_known),
        match_test(matches_while_list_and_files_stay),
        match_test(matches_until_a_file_changes),
        match_test(a_read_finds_what_changed_in_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
