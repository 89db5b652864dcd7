/*
 * client/dataset.c: the files that a pattern stands for. Opening and sending
 * them is in client_job.c.
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
#include <unistd.h>

#include <cmocka.h>

/* Compares the expansion with the words of expected, which spaces separate. */
static void check(const char *pattern, const char *expected)
{
    struct failure failure;
    char joined[4096] = "";
    char **paths = NULL;
    size_t n = 0;

    if (dataset_expand("tar", pattern, 100, &paths, &n, &failure) < 0)
        fail_msg("%s: %s", pattern, failure.text);
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        used += (size_t)snprintf(joined + used, sizeof joined - used, "%s%s", i > 0 ? " " : "",
                                 paths[i]);
        free(paths[i]);
    }
    free(paths);
    assert_string_equal(joined, expected);
}

static void check_fails(const char *pattern, int code, const char *text)
{
    struct failure failure = {0};
    char **paths = NULL;
    size_t n = 0;

    assert_int_equal(dataset_expand("tar", pattern, 100, &paths, &n, &failure), code);
    assert_null(paths);
    if (!strstr(failure.text, text))
        fail_msg("%s: \"%s\" lacks \"%s\"", pattern, failure.text, text);
}

static void test_ranges(void **state)
{
    (void)state;
    check("/d/a.tar", "/d/a.tar");
    check("{0..2}", "0 1 2");
    check("/d/{008..011}.tar", "/d/008.tar /d/009.tar /d/010.tar /d/011.tar");
    check("{8..11}", "8 9 10 11");
    check("{08..011}", "008 009 010 011");
    check("{5..5}", "5");
    check("{0..1}/{00..02}x", "0/00x 0/01x 0/02x 1/00x 1/01x 1/02x");
    check("a}b", "a}b");
}

static void test_wrong_ranges(void **state)
{
    (void)state;
    check_fails("/d/{3..1}.tar", -EINVAL, "{3..1}\" is no range: write {000..099}");
    check_fails("{1,2}", -EINVAL, "{1,2}");
    check_fails("{1..2", -EINVAL, "{1..2\" is no range");
    check_fails("{a..b}", -EINVAL, "{a..b}");
    check_fails("{..}", -EINVAL, "{..}");
    check_fails("{000..100}", -EINVAL, "names 101 files, and the daemon takes at most 100");
    check_fails("{0..2147483647}{0..2147483647}{0..2147483647}", -EINVAL, "at most 100");
    check_fails("{0..1}{0..1}{0..1}{0..1}{0..1}{0..1}{0..1}{0..1}{0..1}", -EINVAL,
                "more than 8 ranges");
    assert_int_equal(dataset_pattern_check("tar", "{000..099}.tar", NULL), 0);
    assert_int_equal(dataset_pattern_check("tar", "{000.tar", NULL), -EINVAL);
}

/* Sorted by bytes; a name that has a glob's characters and is there is itself. */
static void test_globs(void **state)
{
    static const char *const names[] = {"a10.tar", "a9.tar",   "B.tar",
                                        "b.tar",   "c[1].tar", "c1.tar"};
    const char *base = getenv("TMPDIR");
    char directory[64], path[128], pattern[128], expected[1024];

    (void)state;
    snprintf(directory, sizeof directory, "%.40s/dataset.XXXXXX",
             base && strlen(base) < 40 ? base : "/tmp");
    assert_non_null(mkdtemp(directory));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    }
    snprintf(pattern, sizeof pattern, "%s/[aBb]*.tar", directory);
    snprintf(expected, sizeof expected, "%s/B.tar %s/a10.tar %s/a9.tar %s/b.tar", directory,
             directory, directory, directory);
    check(pattern, expected);
    snprintf(pattern, sizeof pattern, "%s/c[1].tar", directory);
    check(pattern, pattern);
    snprintf(pattern, sizeof pattern, "%s/a{9..10}*", directory);
    snprintf(expected, sizeof expected, "%s/a9.tar %s/a10.tar", directory, directory);
    check(pattern, expected);
    snprintf(pattern, sizeof pattern, "%s/x*.tar", directory);
    check_fails(pattern, -ENOENT, "x*.tar\": no file matches");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_wrong_ranges),
        cmocka_unit_test(test_globs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
