/*
 * Lists of bad samples: ordered, each once, bounded, and so is what is logged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "decode/bad_list.h"
#include "log.h"

static void test_rows(void **state)
{
    struct bad_list *list = bad_list_new();
    struct bad_sample rows[3];
    uint32_t left = 99;

    (void)state;
    assert_non_null(list);
    assert_int_equal(bad_list_rows(list, 0, 3, rows, &left), 0);
    assert_int_equal(left, 0);
    bad_list_add(list, 1, 30, "c1/c.jpg", "c1/c.jpg: cut off");
    bad_list_add(list, 1, 10, "c1/a.jpg", "c1/a.jpg is empty");
    bad_list_add(list, 1, 30, "c1/c.jpg", "again");
    bad_list_add(list, 1, 20, "c1/b.jpg", "c1/b.jpg: no image");
    assert_int_equal(bad_list_rows(list, 0, 2, rows, &left), 2);
    assert_int_equal(left, 1);
    assert_int_equal(rows[0].sample, 10);
    assert_string_equal(rows[0].name, "c1/a.jpg");
    assert_string_equal(rows[0].reason, "c1/a.jpg is empty");
    assert_int_equal(rows[1].sample, 20);
    assert_int_equal(bad_list_rows(list, 2, 3, rows, &left), 1);
    assert_int_equal(left, 0);
    assert_string_equal(rows[0].reason, "c1/c.jpg: cut off");
    assert_int_equal(bad_list_rows(list, 3, 3, rows, &left), 0);
    bad_list_unref(list);
    bad_list_unref(NULL);
}

/* Lines on stderr while a list takes 20,000 reports about 10,000 samples. */
static unsigned log_lines(void)
{
    struct bad_list *list = bad_list_new();
    struct bad_sample row;
    char text[4096];
    int pipe_fds[2];
    int old = dup(STDERR_FILENO);
    unsigned lines = 0;
    uint32_t left;

    assert_int_equal(pipe(pipe_fds), 0);
    dup2(pipe_fds[1], STDERR_FILENO);
    for (uint64_t i = 0; i < 20000; i++)
        bad_list_add(list, 7, i % 10000 * 3, "x", "x is bad");
    dup2(old, STDERR_FILENO);
    close(old);
    close(pipe_fds[1]);
    ssize_t n = read(pipe_fds[0], text, sizeof text - 1);
    close(pipe_fds[0]);
    text[n > 0 ? n : 0] = '\0';
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    assert_non_null(strstr(text, "job 7: bad sample: x is bad"));
    assert_non_null(strstr(text, "further ones are not logged"));
    assert_int_equal(bad_list_rows(list, BAD_LIST_MAX - 1, 1, &row, &left), 1);
    assert_int_equal(row.sample, 3 * (BAD_LIST_MAX - 1));
    assert_int_equal(left, 0);
    bad_list_unref(list);
    return lines;
}

static void test_bounds(void **state)
{
    (void)state;
    log_init(LOG_LEVEL_INFO, 0);
    assert_int_equal(log_lines(), BAD_LIST_LOGGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
