/*
 * Files of a dataset: what is taken, and what tells one from another.
 */
#include "source/file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "group_dir.h"

static int file_make(void **state)
{
    return dir_make(state) == 0 && temp_dir_write(&dir, "a", "12345", 5) ? 0 : -1;
}

static void takes_a_description_of_its_own(void **state)
{
    int before = open_fds();
    int fd = openat(dir.fd, "a", O_RDONLY | O_CLOEXEC);
    struct source_file file = SOURCE_FILE_INIT;
    char bytes[5];

    (void)state;
    assert_int_equal(source_file_take(&file, "records", fd, "x/y/a", NULL), 0);
    assert_true(source_file_matches(&file, fd, "x/y/a"));
    close(fd);
    assert_int_equal(source_file_bytes(&file), 5);
    assert_string_equal(source_file_base(&file), "a");
    assert_int_equal(pread(file.fd, bytes, 5, 0), 5);
    assert_int_equal(fcntl(file.fd, F_GETFD), FD_CLOEXEC);
    source_file_deinit(&file);
    assert_int_equal(open_fds(), before);
}

static void a_name_without_a_folder_is_its_base(void **state)
{
    struct source_file file = {.name = "plain.npy"};

    (void)state;
    assert_string_equal(source_file_base(&file), "plain.npy");
}

static void a_change_makes_it_another_file(void **state)
{
    struct source_file file = SOURCE_FILE_INIT;
    int fd = openat(dir.fd, "a", O_RDWR | O_CLOEXEC);

    (void)state;
    assert_int_equal(source_file_take(&file, "records", fd, "a", NULL), 0);
    assert_false(source_file_matches(&file, fd, "b"));
    assert_false(source_file_matches(&file, dir.fd, "a"));
    assert_int_equal(ftruncate(fd, 4), 0);
    assert_false(source_file_matches(&file, fd, "a"));
    assert_int_equal(ftruncate(fd, 5), 0);
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(futimens(fd, times), 0);
    assert_false(source_file_matches(&file, fd, "a"));
    close(fd);
    source_file_deinit(&file);
}

static void refused(int fd, int code, const char *why)
{
    struct source_file file = SOURCE_FILE_INIT;
    struct failure failure = {0};

    assert_int_equal(source_file_take(&file, "labels", fd, "it", &failure), code);
    if (!strstr(failure.text, "labels it") || !strstr(failure.text, why))
        fail_msg("\"%s\" lacks \"labels it\" or \"%s\"", failure.text, why);
    source_file_deinit(&file);
    if (fd >= 0)
        close(fd);
}

static void refuses_what_cannot_be_read_at_any_offset(void **state)
{
    int pair[2];

    (void)state;
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    refused(pair[0], -EINVAL, "not a regular file");
    close(pair[1]);
    refused(openat(dir.fd, ".", O_RDONLY | O_CLOEXEC), -EINVAL, "not a regular file");
    refused(openat(dir.fd, "a", O_WRONLY | O_CLOEXEC), -EINVAL, "O_RDONLY");
    refused(openat(dir.fd, "a", O_PATH | O_CLOEXEC), -EINVAL, "O_RDONLY");
    refused(-1, -EBADF, "Bad file descriptor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_a_description_of_its_own),
        cmocka_unit_test(a_name_without_a_folder_is_its_base),
        cmocka_unit_test(a_change_makes_it_another_file),
        cmocka_unit_test(refuses_what_cannot_be_read_at_any_offset),
    };

    return cmocka_run_group_tests_name("file", tests, file_make, dir_remove);
}
