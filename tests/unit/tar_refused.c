/*
 * Every way in which a tar shard can be wrong, and what is said of it.
 */
#include "source/source.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tar_shard.h"
#include "temp_dir.h"

static void a_sample_without_image_lists_its_fields(void **state)
{
    const struct member members[] = {
        {"1.jpg", "x", 0}, {"a/22.0/1.1.png", "x", 0}, {"a/22.0/1.cls", "1", 0}};

    (void)state;
    refused(tar_make(USTAR, members, 3), -EINVAL, "a.tar: sample a/22.0/1 has no field jpg",
            "its fields are: 1.png, cls");
}

static void out_of_order_members_are_refused_by_key(void **state)
{
    const struct member members[] = {{"001.jpg", "x", 0}, {"002.jpg", "x", 0}, {"001.txt", "x", 0}};
    const struct member image_last[] = {
        {"001.cls", "1", 0}, {"002.jpg", "x", 0}, {"001.jpg", "x", 0}};
    const struct member twice[] = {{"001.jpg", "x", 0}, {"001.JPG", "x", 0}};

    (void)state;
    refused(tar_make(USTAR, members, 3), -EINVAL, "a.tar: key 001 ", "stand together");
    /* It lacks nothing: this stands elsewhere. */
    refused(tar_make(USTAR, image_last, 3), -EINVAL, "a.tar: key 001 ", "stand together");
    refused(tar_make(USTAR, twice, 2), -EINVAL, "a.tar: 001.JPG at 1536 is there twice", "");
}

static void labels_are_integers(void **state)
{
    char padded[80];
    const char *const wrong[] = {"", "cat", "1.5", "1 2", "0x1", "99999999999999999999", padded};

    snprintf(padded, sizeof padded, "%070d", 1);
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const struct member members[] = {{"1.cls", wrong[i], 0}, {"1.jpg", "x", 0}};
        refused(tar_make(USTAR, members, 2), -EINVAL, "a.tar: 1.cls at 512", "not an integer");
    }
}

static void a_cut_tar_names_the_offset(void **state)
{
    const struct member members[] = {
        {"001.jpg", NULL, 1000}, {"002.jpg", NULL, 1000}, {"003.jpg", NULL, 1000}};
    /* 001 at 512..1512, 002 at 2048..3048, 003 at 3584..4584. */
    int fd = tar_make(USTAR, members, 3);

    (void)state;
    assert_int_equal(ftruncate(fd, 2500), 0);
    refused(fd, -EBADMSG, "a.tar is cut off at 2500: 002.jpg at 2048 has 1000 bytes",
            "samples before it: 1");
    /* Inside a header. */
    fd = tar_make(USTAR, members, 3);
    assert_int_equal(ftruncate(fd, 1800), 0);
    refused(fd, -EBADMSG, "a.tar: bad tar header at 1536", "");
}

static void what_is_no_tar_is_refused(void **state)
{
    static const uint8_t zeros[10240];
    static const struct {
        const char *bytes, *name, *what_to_do;
    } others[] = {
        {"\x1f\x8b\x08xxxxxxxxxxx", "gzip", "gunzip"},
        {"\x28\xb5\x2f\xfdxxxxxxxxxxxx", "zstd", "zstd -d"},
        {"\xfd"
         "7zXZxxxxxxxxxx",
         "xz", "unxz"},
        {"BZh9xxxxxxxxxxxx", "bzip2", "bunzip2"},
        {"PK\x03\x04xxxxxxxxxx", "zip", "into a tar"},
    };
    uint8_t garbage[2048];

    (void)state;
    refused(memfd_of("", 0), -EBADMSG, "a.tar is empty", "0 bytes");
    refused(memfd_of(zeros, sizeof zeros), -ENOENT, "shards-*.tar", "no sample in its 1 shards");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        refused(memfd_of(others[i].bytes, strlen(others[i].bytes)), -EINVAL, others[i].name,
                others[i].what_to_do);
    memset(garbage, 0x5a, sizeof garbage);
    refused(memfd_of(garbage, sizeof garbage), -EBADMSG, "a.tar is not a tar", "");
    refused(memfd_of("x", 1), -EBADMSG, "a.tar is not a tar", "");
}

static void a_damaged_header_names_its_offset(void **state)
{
    int fd = tar_make(USTAR, three, THREE_MEMBERS);

    (void)state;
    /* 001.jpg: 512..5512, padded to 5632. */
    assert_int_equal(pwrite(fd, "garbage", 7, 5632), 7);
    refused(fd, -EBADMSG, "a.tar: bad tar header at 5632", "");
}

static int tar_with_entry(mode_t type, const char *hardlink)
{
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(archive && entry && fd >= 0);
    archive_write_set_format_pax(archive);
    archive_write_open_fd(archive, fd);
    archive_entry_set_pathname(entry, type == AE_IFDIR ? "d.x/" : "0.jpg");
    archive_entry_set_filetype(entry, type);
    if (type == AE_IFLNK)
        archive_entry_set_symlink(entry, "/etc/passwd");
    archive_entry_set_hardlink(entry, hardlink);
    archive_entry_set_size(entry, 0);
    assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
    archive_entry_clear(entry);
    archive_entry_set_pathname(entry, "1.jpg");
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_size(entry, 1);
    assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
    assert_int_equal(archive_write_data(archive, "x", 1), 1);
    archive_entry_free(entry);
    archive_write_close(archive);
    archive_write_free(archive);
    return fd;
}

static void links_and_directories_are_no_samples(void **state)
{
    static const struct {
        mode_t type;
        uint64_t skipped;
    } cases[] = {{AE_IFLNK, 1}, {AE_IFIFO, 1}, {AE_IFDIR, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd = tar_with_entry(cases[i].type, NULL);
        struct source *source = open_one(fd);
        close(fd);
        assert_int_equal(source_samples(source), 1);
        assert_int_equal(source_skipped(source), cases[i].skipped);
        source_unref(source);
    }
    refused(tar_with_entry(AE_IFREG, "9.jpg"), -EINVAL, "0.jpg is a hard link to 9.jpg",
            "--hard-dereference");
}

static void sparse_members_are_refused(void **state)
{
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    int fd = memfd_create("test", MFD_CLOEXEC);
    static const char bytes[65536];

    (void)state;
    archive_write_set_format_pax(archive);
    archive_write_open_fd(archive, fd);
    archive_entry_set_pathname(entry, "1.jpg");
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_size(entry, sizeof bytes);
    archive_entry_sparse_add_entry(entry, 0, 512);
    archive_entry_sparse_add_entry(entry, 65024, 512);
    assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
    assert_int_equal(archive_write_data(archive, bytes, sizeof bytes), sizeof bytes);
    archive_entry_free(entry);
    archive_write_close(archive);
    archive_write_free(archive);
    refused(fd, -EINVAL, "1.jpg is stored sparse", "without --sparse");
}

static void read_errors_name_shard_member_and_offset(void **state)
{
    const struct member members[] = {{"001.jpg", "", 0}, {"002.jpg", NULL, 1000}};
    struct sample sample = {0};
    struct failure failure;
    int fd = tar_make(USTAR, members, 2);
    struct source *source = open_one(fd);

    (void)state;
    assert_int_equal(source_read(source, 0, &sample, &failure), -EBADMSG);
    assert_string_equal(failure.text, "a.tar: 001.jpg at 512 is empty");
    assert_int_equal(source_read(source, 1, &sample, &failure), 0);
    assert_int_equal(ftruncate(fd, 1500), 0);
    assert_int_equal(source_read(source, 1, &sample, &failure), -EBADMSG);
    assert_non_null(strstr(failure.text, "a.tar: 002.jpg at 1024: the shard ends before"));
    sample_deinit(&sample);
    source_unref(source);
    close(fd);
}

static void shards_are_regular_files_open_for_reading(void **state)
{
    struct temp_dir dir;
    int pipes[2];
    int r;

    (void)state;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    close(pipes[1]);
    refused(pipes[0], -EINVAL, "a.tar is not a regular file", "");
    refused(-1, -EBADF, "a.tar", "Bad file descriptor");
    assert_true(temp_dir_init(&dir));
    refused(dup(dir.fd), -EINVAL, "a.tar is not a regular file", "");
    assert_true(temp_dir_write(&dir, "a.tar", "x", 1));
    r = openat(dir.fd, "a.tar", O_WRONLY | O_CLOEXEC);
    refused(r, -EINVAL, "a.tar: its fd is not open for plain reading", "");
    r = openat(dir.fd, "a.tar", O_PATH | O_CLOEXEC);
    refused(r, -EINVAL, "a.tar: its fd is not open for plain reading", "");
    temp_dir_deinit(&dir);

    struct source_spec spec = spec_of(&r, one_name, 0);
    struct source *source = NULL;
    assert_int_equal(source_new(&spec, NULL, &source, NULL), -EINVAL);
}

/* Writes another size into the header at the beginning, and the sum of its bytes. */
static void size_forge(int fd, uint64_t size)
{
    uint8_t header[512];
    unsigned sum = 0;

    assert_int_equal(pread(fd, header, sizeof header, 0), sizeof header);
    snprintf((char *)header + 124, 12, "%011jo", (uintmax_t)size);
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < sizeof header; i++)
        sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
    assert_int_equal(pwrite(fd, header, sizeof header, 0), sizeof header);
}

static void a_huge_member_is_refused_before_it_is_read(void **state)
{
    const struct member members[] = {{"1.jpg", "x", 0}};
    int fd = tar_make(USTAR, members, 1);

    (void)state;
    size_forge(fd, (256 << 20) + 1);
    assert_int_equal(ftruncate(fd, (256 << 20) + 4096), 0); /* a hole */
    refused(fd, -EFBIG, "a.tar: 1.jpg at 512 has 268435457 bytes", "256 MiB");
}

static void a_size_beyond_any_file_is_a_cut(void **state)
{
    const struct member members[] = {{"1.jpg", "x", 0}};
    int fd = tar_make(USTAR, members, 1);

    (void)state;
    size_forge(fd, 077777777777);
    refused(fd, -EBADMSG, "is cut off at", "1.jpg at 512 has 8589934591 bytes");
}

static void the_index_is_bounded(void **state)
{
    int fd = tar_make(USTAR, three, THREE_MEMBERS);
    struct source_spec spec = spec_of(&fd, one_name, 1);
    struct source *source = NULL;
    struct failure failure = {0};

    (void)state;
    spec.index_bytes_max = 1024;
    assert_int_equal(source_new(&spec, NULL, &source, &failure), -E2BIG);
    assert_non_null(strstr(failure.text, "limits.index"));
    spec.index_bytes_max = 65536;
    assert_int_equal(source_new(&spec, NULL, &source, &failure), 0);
    source_unref(source);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tar_test(a_sample_without_image_lists_its_fields),
        tar_test(out_of_order_members_are_refused_by_key),
        tar_test(labels_are_integers),
        tar_test(a_cut_tar_names_the_offset),
        tar_test(what_is_no_tar_is_refused),
        tar_test(a_damaged_header_names_its_offset),
        tar_test(links_and_directories_are_no_samples),
        tar_test(sparse_members_are_refused),
        tar_test(read_errors_name_shard_member_and_offset),
        tar_test(shards_are_regular_files_open_for_reading),
        tar_test(a_huge_member_is_refused_before_it_is_read),
        tar_test(a_size_beyond_any_file_is_a_cut),
        tar_test(the_index_is_bounded),
    };

    return cmocka_run_group_tests_name("tar-refused", tests, NULL, NULL);
}
