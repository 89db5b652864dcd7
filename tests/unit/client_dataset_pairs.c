/*
 * client/dataset_pairs.c: which index goes with which file.
 */
#include "client/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/pinserve-pairs-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void file_write(const char *name, const void *bytes, size_t size)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
}

static void pattern_pair(const char *pattern, size_t max, int code, char *joined, size_t size,
                         struct failure *failure)
{
    char **paths = NULL;
    size_t n = 0, used = 0;

    joined[0] = 0;
    if (dataset_expand("tokens", path_of(pattern), 100, &paths, &n, failure) < 0)
        fail_msg("%s: %s", pattern, failure->text);
    assert_int_equal(dataset_pair(max, &paths, &n, failure), code);
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(joined + used, size - used, "%s%s", i > 0 ? " " : "",
                                 paths[i] + strlen(folder) + 1);
    dataset_paths_free(paths, n);
}

static void check(const char *pattern, const char *expected)
{
    struct failure failure = {0};
    char joined[4096];

    pattern_pair(pattern, 100, 0, joined, sizeof joined, &failure);
    assert_string_equal(joined, expected);
}

static void test_an_index_goes_behind_its_file(void **state)
{
    (void)state;
    check("a.bin", "a.bin a.idx");
    check("*.bin", "a.bin a.idx b.bin c.bin d.bin d.idx");
}

static void test_a_range_names_files_too(void **state)
{
    (void)state;
    file_write("0.bin", "", 0);
    file_write("1.bin", "", 0);
    file_write("1.idx", "MMIDIDX\0\0...", 12);
    check("{0..2}.bin", "0.bin 1.bin 1.idx 2.bin");
    check("{1..1}.idx", "1.bin 1.idx");
    unlink(path_of("0.bin"));
    unlink(path_of("1.bin"));
    unlink(path_of("1.idx"));
}

static void test_an_index_means_the_pair(void **state)
{
    (void)state;
    check("a.idx", "a.bin a.idx");
    check("*.idx", "a.bin a.idx c.idx d.bin d.idx");
}

static void test_both_matched_are_one_pair(void **state)
{
    (void)state;
    check("*", "a.bin a.idx b.bin c.bin c.idx d.bin d.idx e.txt");
    check("[ad].*", "a.bin a.idx d.bin d.idx");
}

static void test_the_daemons_limit_counts_indexes(void **state)
{
    struct failure failure = {0};
    char joined[4096];

    (void)state;
    pattern_pair("*.bin", 5, -EINVAL, joined, sizeof joined, &failure);
    assert_non_null(strstr(failure.text, "6 files with their indexes"));
    assert_non_null(strstr(failure.text, "at most 5"));
    assert_string_equal(joined, "a.bin b.bin c.bin d.bin");
    pattern_pair("*.bin", 6, 0, joined, sizeof joined, &failure);
}

/* One that cannot be looked into must not make its tokens bare ones. */
static void test_an_index_that_cannot_be_read(void **state)
{
    struct failure failure = {0};
    char joined[4096];

    (void)state;
    file_write("f.bin", "", 0);
    if (symlink("f.idx", path_of("f.idx")) < 0)
        fail_msg("symlink");
    pattern_pair("f.bin", 100, -ELOOP, joined, sizeof joined, &failure);
    assert_non_null(strstr(failure.text, "f.idx: "));
    unlink(path_of("f.idx"));
    assert_int_equal(mkfifo(path_of("f.idx"), 0600), 0);
    check("f.bin", "f.bin");
    unlink(path_of("f.idx"));
    unlink(path_of("f.bin"));
}

static int files_make(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    file_write("a.bin", "x", 1);
    file_write("a.idx", "MMIDIDX\0\0...", 12);
    file_write("b.bin", "x", 1);
    file_write("c.bin", "x", 1);
    file_write("c.idx", "MMIDIDX\0", 8); /* too short to be one */
    file_write("d.bin", "x", 1);
    file_write("d.idx", "MMIDIDX\0\0", 9);
    file_write("e.txt", "MMIDIDX\0\0", 9);
    return 0;
}

static int files_remove(void **state)
{
    static const char *const names[] = {"a.bin", "a.idx", "b.bin", "c.bin",
                                        "c.idx", "d.bin", "d.idx", "e.txt"};

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(path_of(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_index_goes_behind_its_file),
        cmocka_unit_test(test_a_range_names_files_too),
        cmocka_unit_test(test_an_index_means_the_pair),
        cmocka_unit_test(test_both_matched_are_one_pair),
        cmocka_unit_test(test_the_daemons_limit_counts_indexes),
        cmocka_unit_test(test_an_index_that_cannot_be_read),
    };

    return cmocka_run_group_tests(tests, files_make, files_remove);
}
