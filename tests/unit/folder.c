/*
 * Folders: which files are samples, in which order and with which label; and
 * that nothing outside the folder is read.
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
#include "temp_dir.h"

static struct temp_dir dir;
static int fds_before;

static int dir_make(void **state)
{
    (void)state;
    fds_before = open_fds();
    return temp_dir_init(&dir) ? 0 : -1;
}

static int dir_remove(void **state)
{
    (void)state;
    temp_dir_deinit(&dir);
    return open_fds() - fds_before;
}

static void put(const char *path, const char *text)
{
    assert_true(temp_dir_write(&dir, path, text, strlen(text)));
}

static void put_link(const char *target, const char *path)
{
    assert_int_equal(symlinkat(target, dir.fd, path), 0);
}

static struct source_spec spec_of_dir(void)
{
    static const char *const fd_names[] = {"the folder"};

    return (struct source_spec){.kind = SOURCE_KIND_FOLDER,
                                .name = "/data/photos",
                                .fds = &dir.fd,
                                .fd_names = fd_names,
                                .n_fds = 1};
}

static struct source *open_source(void)
{
    struct source_spec spec = spec_of_dir();
    struct source *source = NULL;
    struct failure failure = {0};

    if (source_new(&spec, NULL, &source, &failure) != 0)
        fail_msg("%s", failure.text);
    return source;
}

static void refused_spec(const struct source_spec *spec, int code, const char *first,
                         const char *second)
{
    struct source *source = NULL;
    struct failure failure = {0};
    int r = source_new(spec, NULL, &source, &failure);

    if (r != code)
        fail_msg("%d instead of %d: %s", r, code, failure.text);
    if (!strstr(failure.text, first) || !strstr(failure.text, second))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", failure.text, first, second);
    assert_null(source);
}

static void refused(int code, const char *first, const char *second)
{
    struct source_spec spec = spec_of_dir();

    refused_spec(&spec, code, first, second);
}

/* The order is that of sorted(os.walk(class)), then sorted(files): by the whole path of the
 * directory, in which '-' comes before '/'. */
static void orders_as_imagefolder(void **state)
{
    static const struct {
        const char *path;
        int64_t label;
    } samples[] = {
        {"B/z.jpg", 0},
        {"a/10.jpg", 1},
        {"a/2.JPEG", 1},
        {"a/Z.png", 1},
        {"a/b.PnG", 1},
        {"a/x/1.jpg", 1}, /* "a/x" < "a/x-y" < "a/x/w" */
        {"a/x-y/3.jpg", 1},
        {"a/x-y/4.jpg", 1},
        {"a/x/w/0.jpg", 1},
        {"a-b/0.jpg", 2},
        {"\xc3\xa4/\xc3\xb6 \xc3\xbc.jpg", 4},
    };
    enum { N = sizeof samples / sizeof samples[0] };

    (void)state;
    for (size_t i = N; i-- > 0;)
        put(samples[i].path, samples[i].path);
    put("no samples/readme.txt", "text");
    put("in-root.jpg", "no sample");
    put("a/list.csv", "no sample");
    put("a/image.jpg.txt", "no sample");
    put("a/jpg", "no sample");

    struct source *source = open_source();
    assert_int_equal(source_samples(source), N);
    assert_int_equal(source_classes(source), 5);
    assert_int_equal(source_skipped(source), 5);
    for (size_t i = 0; i < N; i++)
        expect_sample(source, i, samples[i].path, samples[i].label, samples[i].path);
    source_unref(source);
}

static void takes_hidden_and_long_names(void **state)
{
    char name[300] = "c/";

    (void)state;
    memset(name + 2, 'n', 251);
    memcpy(name + 2 + 251, ".jpg", sizeof ".jpg");
    assert_int_equal(strlen(name) - 2, 255);
    put(".hidden/.x.jpg", "1");
    put(".hidden/.jpg", "2");
    put(name, "3");
    struct source *source = open_source();
    assert_int_equal(source_samples(source), 3);
    expect_sample(source, 0, ".hidden/.jpg", 0, "2");
    expect_sample(source, 1, ".hidden/.x.jpg", 0, "1");
    expect_sample(source, 2, name, 1, "3");
    source_unref(source);
}

static void says_what_it_found_instead(void **state)
{
    (void)state;
    refused(-EINVAL, "/data/photos", "no class folder in it, only 0 other files");
    put("1.jpg", "x");
    put("2.jpg", "x");
    refused(-EINVAL, "/data/photos", "no class folder in it, only 2 other files");
    put("c/1.txt", "x");
    put("d/e/1.gif", "x");
    refused(-ENOENT, "/data/photos", "in its 2 class folders, only 4 other files");
}

static void one_directory_is_wanted(void **state)
{
    struct source_spec spec = spec_of_dir();

    (void)state;
    put("file", "x");
    spec.n_fds = 0;
    refused_spec(&spec, -EINVAL, "/data/photos", "a list perhaps, 0 fds came");
    int fd = openat(dir.fd, "file", O_RDONLY | O_CLOEXEC);
    spec.fds = &fd;
    spec.n_fds = 1;
    refused_spec(&spec, -ENOTDIR, "/data/photos", "not a directory");
    close(fd);
    spec.fds = (int[]){-1};
    refused_spec(&spec, -EBADF, "/data/photos", "Bad file descriptor");
}

static void follows_links_within(void **state)
{
    (void)state;
    put("c/d/1.jpg", "one");
    put_link("d/1.jpg", "c/0.jpg");
    put_link("c/d", "e");
    struct source *source = open_source();
    assert_int_equal(source_samples(source), 3);
    assert_int_equal(source_classes(source), 2);
    expect_sample(source, 0, "c/0.jpg", 0, "one");
    expect_sample(source, 1, "c/d/1.jpg", 0, "one");
    expect_sample(source, 2, "e/1.jpg", 1, "one");
    source_unref(source);
}

static void refuses_links_that_leave(void **state)
{
    static const char *const targets[] = {"/etc/passwd", "../../../../../../../etc/passwd",
                                          "/proc/self/root/etc/passwd", "../..", "/"};

    (void)state;
    put("c/1.jpg", "x");
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        put_link(targets[i], "c/out.jpg");
        refused(-EXDEV, "c/out.jpg", "leaves the folder");
        assert_int_equal(unlinkat(dir.fd, "c/out.jpg", 0), 0);
    }
    put_link("/tmp", "d");
    refused(-EXDEV, "d is a symbolic link", "leaves the folder");
}

static void a_link_that_leads_nowhere_is_named(void **state)
{
    (void)state;
    put("c/1.jpg", "x");
    put_link("gone", "c/gone.txt");
    put_link("itself", "c/itself");
    put_link("1.jpg/x", "c/x");
    struct source *source = open_source();
    assert_int_equal(source_skipped(source), 3);
    source_unref(source);
    put_link("gone", "c/2.jpg");
    refused(-ENOENT, "c/2.jpg", "leads nowhere");
}

static void loops_end(void **state)
{
    (void)state;
    put("c/d/1.jpg", "x");
    put_link("..", "c/d/up");
    refused(-ELOOP, "c/d/up", "a folder that it lies in");
    unlinkat(dir.fd, "c/d/up", 0);
    put_link("self.jpg", "c/self.jpg");
    refused(-ELOOP, "c/self.jpg", "leads nowhere");
}

static void deep_path(char *path, size_t size, int levels)
{
    size_t n = 0;

    for (int i = 0; i < levels; i++)
        n += (size_t)snprintf(path + n, size - n, "d/");
    snprintf(path + n, size - n, "1.jpg");
}

static void depth_is_bounded(void **state)
{
    char path[512];

    (void)state;
    deep_path(path, sizeof path, 64);
    put(path, "deep");
    struct source *source = open_source();
    expect_sample(source, 0, path, 0, "deep");
    source_unref(source);
    deep_path(path, sizeof path, 65);
    put(path, "deeper");
    refused(-ELOOP, "/data/photos", "more than 64 levels deep");
}

static void only_regular_files_are_samples(void **state)
{
    (void)state;
    put("c/1.jpg", "x");
    assert_int_equal(mkfifoat(dir.fd, "c/2.jpg", 0600), 0);
    assert_true(temp_dir_mkdirs(&dir, "c/3.jpg"));
    struct source *source = open_source();
    assert_int_equal(source_samples(source), 1);
    assert_int_equal(source_skipped(source), 1);
    /* And what takes a sample's place later is not waited for. */
    assert_int_equal(unlinkat(dir.fd, "c/1.jpg", 0), 0);
    assert_int_equal(mkfifoat(dir.fd, "c/1.jpg", 0600), 0);
    struct sample sample = {0};
    struct failure failure;
    assert_int_equal(source_read(source, 0, &sample, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, "c/1.jpg is no longer a regular file"));
    sample_deinit(&sample);
    source_unref(source);
}

static void read_errors_name_the_file(void **state)
{
    struct sample sample = {0};
    struct failure failure;

    (void)state;
    put("c/empty.jpg", "");
    put("c/gone.jpg", "x");
    put("c/huge.jpg", "x");
    put("c/out.jpg", "x");
    struct source *source = open_source();
    assert_int_equal(unlinkat(dir.fd, "c/gone.jpg", 0), 0);
    assert_int_equal(unlinkat(dir.fd, "c/out.jpg", 0), 0);
    put_link("/etc/passwd", "c/out.jpg");
    int fd = openat(dir.fd, "c/huge.jpg", O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, (256 << 20) + 1), 0);
    close(fd);

    assert_int_equal(source_read(source, 0, &sample, &failure), -EBADMSG);
    assert_string_equal(failure.text, "/data/photos: c/empty.jpg is empty");
    assert_int_equal(source_read(source, 1, &sample, &failure), -ENOENT);
    assert_string_equal(failure.text, "/data/photos: c/gone.jpg: No such file or directory");
    assert_int_equal(source_read(source, 2, &sample, &failure), -EFBIG);
    assert_non_null(strstr(failure.text, "c/huge.jpg has 268435457 bytes"));
    assert_int_equal(source_read(source, 3, &sample, &failure), -EXDEV);
    assert_non_null(strstr(failure.text, "c/out.jpg"));
    sample_deinit(&sample);
    source_unref(source);
}

static void reads_with_the_eyes_of_the_peer(void **state)
{
    const struct identity alice = {.uid = 12345, .gid = 12345};
    struct source_spec spec = spec_of_dir();
    struct source *source = NULL;
    struct sample sample = {0};
    struct failure failure = {0};

    (void)state;
    if (geteuid() != 0)
        skip();
    put("c/1.jpg", "hers");
    put("c/2.jpg", "root's");
    assert_int_equal(fchown(dir.fd, 12345, 0), 0);
    assert_int_equal(fchownat(dir.fd, "c/1.jpg", 12345, 0, 0), 0);
    assert_int_equal(fchmodat(dir.fd, "c/1.jpg", 0600, 0), 0);
    assert_int_equal(fchmodat(dir.fd, "c/2.jpg", 0600, 0), 0);
    spec.identity = &alice;
    assert_int_equal(source_new(&spec, NULL, &source, &failure), 0);
    assert_int_equal(source_read(source, 0, &sample, &failure), 0);
    assert_memory_equal(sample.bytes, "hers", 4);
    assert_int_equal(source_read(source, 1, &sample, &failure), -EACCES);
    assert_string_equal(failure.text, "/data/photos: c/2.jpg: Permission denied, as uid 12345");
    assert_true(source_matches(source, &spec));
    spec.identity = NULL;
    assert_false(source_matches(source, &spec));
    sample_deinit(&sample);
    source_unref(source);

    spec.identity = &alice;
    source = NULL;
    assert_int_equal(fchmodat(dir.fd, "c", 0700, 0), 0);
    assert_int_equal(source_new(&spec, NULL, &source, &failure), -EACCES);
    assert_string_equal(failure.text, "/data/photos: c: Permission denied, as uid 12345");
    /* This thread is itself again. */
    int fd = openat(dir.fd, "c/2.jpg", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    close(fd);
    identity_assume(NULL, NULL);
}

static void fingerprint_is_of_names_and_sizes(void **state)
{
    (void)state;
    put("a/1.jpg", "one");
    put("b/2.jpg", "two");
    struct source *source = open_source();
    uint64_t first = source_fingerprint(source);
    source_unref(source);

    put("a/1.jpg", "uno"); /* same size, another time */
    put("a/notes.txt", "no sample");
    source = open_source();
    assert_true(source_fingerprint(source) == first);
    source_unref(source);

    put("a/1.jpg", "four");
    source = open_source();
    assert_true(source_fingerprint(source) != first);
    source_unref(source);

    put("a/1.jpg", "one");
    assert_int_equal(renameat(dir.fd, "a/1.jpg", dir.fd, "a/3.jpg"), 0);
    source = open_source();
    assert_true(source_fingerprint(source) != first);
    source_unref(source);

    assert_int_equal(renameat(dir.fd, "a/3.jpg", dir.fd, "a/1.jpg"), 0);
    assert_true(temp_dir_mkdirs(&dir, "aa")); /* moves the labels */
    source = open_source();
    assert_true(source_fingerprint(source) != first);
    assert_int_equal(source_samples(source), 2);
    source_unref(source);
}

static void the_index_is_bounded(void **state)
{
    struct source_spec spec = spec_of_dir();
    struct source *source = NULL;
    char path[64];

    (void)state;
    for (int i = 0; i < 500; i++) {
        snprintf(path, sizeof path, "c/a-name-of-a-file-%03d.jpg", i);
        put(path, "x");
    }
    spec.index_bytes_max = 16384;
    refused_spec(&spec, -E2BIG, "/data/photos", "16 KiB (limits.index)");
    spec.index_bytes_max = 1 << 20;
    assert_int_equal(source_new(&spec, NULL, &source, NULL), 0);
    assert_int_equal(source_samples(source), 500);
    source_unref(source);
}

static void can_be_cancelled(void **state)
{
    struct source_spec spec = spec_of_dir();
    struct source_progress progress = {0};
    struct source *source = NULL;
    struct failure failure;

    (void)state;
    put("c/1.jpg", "x");
    put("c/2.jpg", "x");
    assert_int_equal(source_new(&spec, &progress, &source, &failure), 0);
    assert_int_equal(progress.indexed, 2);
    source_unref(source);
    source = NULL;
    progress.cancelled = true;
    assert_int_equal(source_new(&spec, &progress, &source, &failure), -ECANCELED);
    assert_null(source);
    assert_non_null(strstr(failure.text, "cancelled"));
}

#define folder_test(f) cmocka_unit_test_setup_teardown(f, dir_make, dir_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        folder_test(orders_as_imagefolder),
        folder_test(takes_hidden_and_long_names),
        folder_test(says_what_it_found_instead),
        folder_test(one_directory_is_wanted),
        folder_test(follows_links_within),
        folder_test(refuses_links_that_leave),
        folder_test(a_link_that_leads_nowhere_is_named),
        folder_test(loops_end),
        folder_test(depth_is_bounded),
        folder_test(only_regular_files_are_samples),
        folder_test(read_errors_name_the_file),
        folder_test(reads_with_the_eyes_of_the_peer),
        folder_test(fingerprint_is_of_names_and_sizes),
        folder_test(the_index_is_bounded),
        folder_test(can_be_cancelled),
    };

    return cmocka_run_group_tests_name("folder", tests, NULL, NULL);
}
