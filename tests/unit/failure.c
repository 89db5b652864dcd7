/*
 * Failures: the code comes back, the text is cut to its room, errno survives.
 */
#include "proto/failure.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void fills_code_and_text(void **state)
{
    struct failure failure = {0};

    (void)state;
    assert_int_equal(failure_set(&failure, -ENOENT, "folder %s: %d files", "/data", 3), -ENOENT);
    assert_int_equal(failure.code, -ENOENT);
    assert_string_equal(failure.text, "folder /data: 3 files");
}

static void may_be_null(void **state)
{
    (void)state;
    assert_int_equal(failure_set(NULL, -EIO, "nobody reads %s", "this"), -EIO);
}

static void cuts_long_texts(void **state)
{
    struct failure failure;
    char name[2 * FAILURE_TEXT_MAX];

    (void)state;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    failure_set(&failure, -EINVAL, "%s", name);
    assert_int_equal(strlen(failure.text), FAILURE_TEXT_MAX - 1);
}

static void keeps_errno(void **state)
{
    struct failure failure;

    (void)state;
    errno = EXDEV;
    failure_set(&failure, -EINVAL, "%s", strerror(ENOENT));
    assert_int_equal(errno, EXDEV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_code_and_text),
        cmocka_unit_test(may_be_null),
        cmocka_unit_test(cuts_long_texts),
        cmocka_unit_test(keeps_errno),
    };

    return cmocka_run_group_tests_name("failure", tests, NULL, NULL);
}
