/*
 * Folders with a file list: which samples it makes, and what it refuses.
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

#include "expect_sample.h"
#include "listed_folder.h"

static uint64_t fingerprint(void)
{
    struct source *source = open_source();
    uint64_t value = source_fingerprint(source);

    source_unref(source);
    return value;
}

static void refused(const char *list, int code, const char *words)
{
    struct source *source = NULL;
    struct failure failure = {0};

    put_list(list);
    int r = source_new(&spec, NULL, &source, &failure);
    if (r != code)
        fail_msg("%d instead of %d: %s", r, code, failure.text);
    if (!strstr(failure.text, words))
        fail_msg("\"%s\" lacks \"%s\"", failure.text, words);
    assert_null(source);
}

/* Any name will do: what it is, its bytes tell. */
static void in_the_order_of_the_list(void **state)
{
    (void)state;
    put("b/1.jpg", "one");
    put("a/two words.bin", "two");
    put("\xc3\xa4/\xc3\xb6", "three");
    put("a/12", "four");
    put("not listed.jpg", "five");
    put_list("b/1.jpg 7\r\n\xc3\xa4/\xc3\xb6\t-1\n\na/two words.bin  9223372036854775807\n"
             "b/../a/12 0\nb/1.jpg 8");
    struct source *source = open_source();
    assert_int_equal(source_samples(source), 5);
    assert_int_equal(source_classes(source), 0);
    assert_int_equal(source_skipped(source), 0);
    expect_sample(source, 0, "b/1.jpg", 7, "one");
    expect_sample(source, 1, "\xc3\xa4/\xc3\xb6", -1, "three");
    expect_sample(source, 2, "a/two words.bin", INT64_MAX, "two");
    expect_sample(source, 3, "b/../a/12", 0, "four");
    expect_sample(source, 4, "b/1.jpg", 8, "one");
    source_unref(source);

    put_list("not listed.jpg\na/12\n");
    source = open_source();
    assert_int_equal(source_samples(source), 2);
    expect_sample(source, 0, "not listed.jpg", LABEL_NONE, "five");
    expect_sample(source, 1, "a/12", LABEL_NONE, "four");
    source_unref(source);
}

static void links_within_are_followed(void **state)
{
    (void)state;
    put("a/b/1.jpg", "one");
    assert_int_equal(symlinkat("b/1.jpg", dir.fd, "a/2.jpg"), 0);
    assert_int_equal(symlinkat("a/b", dir.fd, "c"), 0);
    put_list("a/2.jpg\nc/1.jpg\nc/../2.jpg\n");
    struct source *source = open_source();
    expect_sample(source, 0, "a/2.jpg", LABEL_NONE, "one");
    expect_sample(source, 1, "c/1.jpg", LABEL_NONE, "one");
    expect_sample(source, 2, "c/../2.jpg", LABEL_NONE, "one");
    source_unref(source);
}

static void names_what_it_refuses(void **state)
{
    char list[5000];

    (void)state;
    put("a/1.jpg", "x");
    put("b/1.jpg", "x");
    assert_int_equal(mkfifoat(dir.fd, "a/fifo.jpg", 0600), 0);
    assert_int_equal(symlinkat("/etc/passwd", dir.fd, "a/out.jpg"), 0);
    assert_int_equal(symlinkat("/etc", dir.fd, "etc"), 0);
    assert_int_equal(symlinkat("loop", dir.fd, "loop"), 0);
    refused("a/1.jpg\n/a/1.jpg\n", -EINVAL, "list train.txt:2: /a/1.jpg is an absolute path");
    refused("a/1.jpg\n../x.jpg\n", -EXDEV, "list train.txt:2: ../x.jpg leads out of the folder");
    refused("a/../../x.jpg\n", -EXDEV, "list train.txt:1: a/../../x.jpg leads out of the folder");
    refused("..\n", -EXDEV, "list train.txt:1: .. leads out of the folder");
    refused("a/out.jpg\n", -EXDEV, "list train.txt:1: a/out.jpg leads out of the folder");
    refused("etc/passwd\n", -EXDEV, "list train.txt:1: etc/passwd leads out of the folder");
    refused("a/1.jpg 1\n\na/2.jpg 1\n", -ENOENT, "list train.txt:3: a/2.jpg is missing");
    refused("a/1.jpg,1\n", -ENOENT,
            "list train.txt:1: a/1.jpg,1 is missing; a label is behind a space or tab, not a "
            "comma");
    refused("c/1.jpg\n", -ENOENT, "list train.txt:1: c/1.jpg is missing");
    refused("a/1.jpg/x\n", -ENOTDIR, "list train.txt:1: a/1.jpg/x is missing");
    refused("b\n", -EISDIR, "list train.txt:1: b is a directory, not a file");
    refused("a/.\n", -EISDIR, "list train.txt:1: a/. is a directory, not a file");
    refused("a/\n", -EISDIR, "list train.txt:1: a/ is a directory, not a file");
    refused("a/fifo.jpg\n", -EINVAL, "list train.txt:1: a/fifo.jpg is not a regular file");
    refused("loop\n", -ELOOP, "list train.txt:1: ");
    refused("a/1.jpg 5\nb/1.jpg\n", -EINVAL, "list train.txt:2: has no label");
    refused("a/1.jpg\nb/1.jpg 5\n", -EINVAL, "list train.txt:2: has a label");
    refused("", -ENOENT, "list train.txt: names no file");
    refused("\n \n\r\n", -ENOENT, "list train.txt: names no file");
    memset(list, 'a', sizeof list - 1);
    list[sizeof list - 1] = '\0';
    refused(list, -EINVAL, "list train.txt:1: a line of more than 4095 bytes");
    list[300] = '\0';
    refused(list, -ENAMETOOLONG, "list train.txt:1: ");
    put_list_bytes("a/1.jpg\nb/1.jpg\0\n", 17);
    struct source *source;
    struct failure failure;
    assert_int_equal(source_new(&spec, NULL, &source, &failure), -EINVAL);
    assert_string_equal(failure.text, "list train.txt:2: a NUL byte is in the line");
}

static void the_list_is_a_regular_file(void **state)
{
    struct source *source;
    struct failure failure;

    (void)state;
    put("a/1.jpg", "x");
    fds[1] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(source_new(&spec, NULL, &source, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, "list train.txt is not a regular file"));
    close(fds[1]);
    put_list("a/1.jpg\n");
    close(fds[1]);
    fds[1] = openat(lists.fd, "train.txt", O_WRONLY | O_CLOEXEC);
    assert_int_equal(source_new(&spec, NULL, &source, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, "not open for plain reading"));
}

static void with_the_eyes_of_the_peer(void **state)
{
    const struct identity alice = {.uid = 12345, .gid = 12345};
    struct source *source = NULL;
    struct sample sample = {0};
    struct failure failure = {0};

    (void)state;
    if (geteuid() != 0)
        skip();
    put("c/1.jpg", "hers");
    put("d/2.jpg", "root's");
    assert_int_equal(fchown(dir.fd, 12345, 0), 0);
    assert_int_equal(fchmodat(dir.fd, "d/2.jpg", 0600, 0), 0);
    spec.identity = &alice;
    put_list("c/1.jpg\nd/2.jpg\n");
    assert_int_equal(source_new(&spec, NULL, &source, &failure), 0);
    assert_int_equal(source_read(source, 0, &sample, &failure), 0);
    assert_int_equal(source_read(source, 1, &sample, &failure), -EACCES);
    assert_non_null(strstr(failure.text, "d/2.jpg: Permission denied, as uid 12345"));
    assert_true(source_matches(source, &spec));
    spec.identity = NULL;
    assert_false(source_matches(source, &spec));
    sample_deinit(&sample);
    source_unref(source);

    spec.identity = &alice;
    assert_int_equal(fchmodat(dir.fd, "d", 0700, 0), 0);
    refused("c/1.jpg\nd/2.jpg\n", -EACCES, "Permission denied, as uid 12345");
    refused("c/1.jpg\nd/2.jpg\n", -EACCES, "list train.txt:2: ");
    identity_assume(NULL, NULL);
}

static void fingerprint_is_of_paths_sizes_and_labels(void **state)
{
    (void)state;
    put("a/1.jpg", "one");
    put("b/2.jpg", "two");
    put_list("a/1.jpg 1\nb/2.jpg 2\n");
    uint64_t first = fingerprint();
    put("a/1.jpg", "uno"); /* the same size, another time */
    put_list("\na/1.jpg\t1\r\nb/2.jpg 2");
    assert_true(fingerprint() == first);
    put_list("a/1.jpg 1\nb/2.jpg 3\n");
    assert_true(fingerprint() != first);
    put_list("b/2.jpg 2\na/1.jpg 1\n");
    assert_true(fingerprint() != first);
    put_list("a/1.jpg\nb/2.jpg\n");
    assert_true(fingerprint() != first);
    put_list("a/../a/1.jpg 1\nb/2.jpg 2\n");
    assert_true(fingerprint() != first);
    put_list("a/1.jpg 1\nb/2.jpg 2\n");
    assert_true(fingerprint() == first);
    put("a/1.jpg", "four");
    assert_true(fingerprint() != first);
}

static void the_index_is_bounded(void **state)
{
    struct source *source = NULL;
    char *list = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&list, &size);

    (void)state;
    put("a/1.jpg", "x");
    for (int i = 0; i < 1000; i++)
        fprintf(out, "a/1.jpg %d\n", i);
    assert_int_equal(fclose(out), 0);
    spec.index_bytes_max = 31000;
    refused(list, -E2BIG, "30.3 KiB (limits.index)");
    spec.index_bytes_max = 48000; /* 8 of path, 16 of place and size, 8 of label; and growth */
    assert_int_equal(source_new(&spec, NULL, &source, NULL), 0);
    assert_int_equal(source_samples(source), 1000);
    source_unref(source);
    free(list);
}

static void can_be_cancelled(void **state)
{
    struct source_progress progress = {0};
    struct source *source = NULL;
    struct failure failure;

    (void)state;
    put("c/1.jpg", "x");
    put_list("c/1.jpg\nc/1.jpg\nc/1.jpg\n");
    assert_int_equal(source_new(&spec, &progress, &source, &failure), 0);
    assert_int_equal(progress.indexed, 3);
    source_unref(source);
    source = NULL;
    progress.cancelled = true;
    assert_int_equal(source_new(&spec, &progress, &source, &failure), -ECANCELED);
    assert_null(source);
    assert_non_null(strstr(failure.text, "list train.txt: Operation canceled"));
    /* Also where no entry comes. */
    put_list("\n\n\n");
    assert_int_equal(source_new(&spec, &progress, &source, &failure), -ECANCELED);
}

#define list_test(f) cmocka_unit_test_setup_teardown(f, dirs_make, dirs_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        list_test(in_the_order_of_the_list),  list_test(links_within_are_followed),
        list_test(names_what_it_refuses),     list_test(the_list_is_a_regular_file),
        list_test(with_the_eyes_of_the_peer), list_test(fingerprint_is_of_paths_sizes_and_labels),
        list_test(the_index_is_bounded),      list_test(can_be_cancelled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
