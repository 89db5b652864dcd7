/*
 * What a word behind pinctl probe means: a file, or a member of a shard.
 */
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

#include "client/pinctl/probe.h"

static char folder[] = "/tmp/pinctl-probe-XXXXXX";

static void check(const char *word, const char *file, const char *member)
{
    struct probe_name name;
    char path[256], right[256];

    snprintf(path, sizeof path, "%s/%s", folder, word);
    snprintf(right, sizeof right, "%s/%s", folder, file);
    assert_int_equal(probe_name_split(path, &name), 0);
    assert_string_equal(name.file, right);
    assert_string_equal(name.member, member);
    free(name.file);
}

static void make(const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}

static void test_words(void **state)
{
    (void)state;
    make("a.jpg");
    make("b.tar");
    make("c:d.jpg");
    make("e:f.tar");
    check("a.jpg", "a.jpg", "");
    check("b.tar:x/1.jpg", "b.tar", "x/1.jpg");
    check("b.tar:x:1.jpg", "b.tar", "x:1.jpg");
    check("c:d.jpg", "c:d.jpg", "");
    check("e:f.tar:1.png", "e:f.tar", "1.png");
    check("b.tar:", "b.tar:", "");
    /* Neither is there: the error will name all of it. */
    check("no.tar:1.png", "no.tar:1.png", "");
    check("nothing", "nothing", "");
}

static int folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
    static const char *const names[] = {"a.jpg", "b.tar", "c:d.jpg", "e:f.tar"};
    char path[256];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words)};

    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
