/*
 * Tar shards: the samples in them, in every dialect, and every way in which a
 * shard can be wrong.
 */
#include "source/source.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "source/tar.h"
#include "temp_dir.h"

enum dialect { USTAR, GNU, PAX };

struct member {
    const char *name;
    const char *bytes; /* NULL: size of them, made from the name */
    size_t size;
};

static int fds_before;

static int count_fds(void **state)
{
    (void)state;
    fds_before = open_fds();
    return 0;
}

static int check_fds(void **state)
{
    (void)state;
    return open_fds() - fds_before;
}

static char *member_bytes(const struct member *member)
{
    size_t size = member->bytes ? strlen(member->bytes) : member->size;
    char *bytes = malloc(size + 1);

    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = member->bytes ? member->bytes[i] : (char)(member->name[0] * 31 + (int)i * 7);
    return bytes;
}

/* Writes a tar into a memfd, which the caller closes. */
static int tar_make(enum dialect dialect, const struct member *members, size_t n)
{
    struct archive *archive = archive_write_new();
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(archive && fd >= 0);
    /* The writer wants to know that names are UTF-8; the reader must not. */
    setlocale(LC_CTYPE, "C.UTF-8");
    if (dialect == USTAR)
        archive_write_set_format_ustar(archive);
    else if (dialect == GNU)
        archive_write_set_format_gnutar(archive);
    else
        archive_write_set_format_pax(archive);
    assert_int_equal(archive_write_open_fd(archive, fd), ARCHIVE_OK);
    for (size_t i = 0; i < n; i++) {
        size_t size = members[i].bytes ? strlen(members[i].bytes) : members[i].size;
        struct archive_entry *entry = archive_entry_new();
        char *bytes = member_bytes(&members[i]);
        archive_entry_set_pathname(entry, members[i].name);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, (la_int64_t)size);
        assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
        assert_int_equal(archive_write_data(archive, bytes, size), size);
        archive_entry_free(entry);
        free(bytes);
    }
    assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
    setlocale(LC_CTYPE, "C");
    return fd;
}

static struct source_spec spec_of(int *fds, const char *const *names, size_t n)
{
    return (struct source_spec){
        .kind = SOURCE_KIND_TAR, .name = "shards-*.tar", .fds = fds, .fd_names = names, .n_fds = n};
}

static const char *const one_name[] = {"a.tar"};

static struct source *open_one(int fd)
{
    struct source_spec spec = spec_of(&fd, one_name, 1);
    struct source *source = NULL;
    struct failure failure = {0};

    if (source_new(&spec, NULL, &source, &failure) != 0)
        fail_msg("%s", failure.text);
    return source;
}

/* Closes fd. */
static void refused(int fd, int code, const char *first, const char *second)
{
    struct source_spec spec = spec_of(&fd, one_name, 1);
    struct source *source = NULL;
    struct failure failure = {0};
    int r = source_new(&spec, NULL, &source, &failure);

    close(fd);
    if (r != code)
        fail_msg("%d instead of %d: %s", r, code, failure.text);
    if (!strstr(failure.text, first) || !strstr(failure.text, second))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", failure.text, first, second);
    assert_null(source);
}

static void expect_sample(struct source *source, uint64_t index, const struct member *member,
                          int64_t label)
{
    struct sample sample = {0};
    struct failure failure = {0};
    char *bytes = member_bytes(member);

    if (source_read(source, index, &sample, &failure) != 0)
        fail_msg("%s", failure.text);
    assert_int_equal(sample.label, label);
    assert_int_equal(sample.size, member->bytes ? strlen(member->bytes) : member->size);
    assert_memory_equal(sample.bytes, bytes, sample.size);
    free(bytes);
    sample_deinit(&sample);
}

static const struct member three[] = {
    {"001.jpg", NULL, 5000}, {"001.cls", "7", 0},   {"002.cls", "-3\n", 0},
    {"002.jpg", NULL, 1024}, {"002.json", "{}", 0}, {"003.png", NULL, 1},
};
#define THREE_MEMBERS (sizeof three / sizeof three[0])

static void expect_three(struct source *source)
{
    assert_int_equal(source_samples(source), 3);
    expect_sample(source, 0, &three[0], 7);
    expect_sample(source, 1, &three[3], -3);
    expect_sample(source, 2, &three[5], -1);
}

static void all_dialects_give_the_same_samples(void **state)
{
    uint64_t prints[3];

    (void)state;
    for (int dialect = USTAR; dialect <= PAX; dialect++) {
        int fd = tar_make((enum dialect)dialect, three, THREE_MEMBERS);
        struct source *source = open_one(fd);
        close(fd);
        expect_three(source);
        assert_int_equal(source_skipped(source), 0);
        assert_int_equal(source_classes(source), 0);
        prints[dialect] = source_fingerprint(source);
        source_unref(source);
    }
    assert_true(prints[0] == prints[1] && prints[1] == prints[2]);
}

static void long_and_utf8_names_are_no_samples_of_their_own(void **state)
{
    char name[205];
    struct member members[] = {
        {"a b.jpg", NULL, 600}, {name, NULL, 700}, {"\xc3\xa4/\xe6\x97\xa5.jpg", NULL, 800}};
    uint64_t prints[2];
    char text[512];
    char expected[512];

    (void)state;
    memset(name, 'n', 200);
    memcpy(name + 200, ".jpg", sizeof ".jpg");
    for (int i = 0; i < 2; i++) {
        int fd = tar_make(i == 0 ? GNU : PAX, members, 3);
        struct source *source = open_one(fd);
        close(fd);
        assert_int_equal(source_samples(source), 3);
        for (uint64_t j = 0; j < 3; j++) {
            expect_sample(source, j, &members[j], -1);
            snprintf(expected, sizeof expected, "a.tar: %s at ", members[j].name);
            source_sample_name(source, j, text, sizeof text);
            assert_memory_equal(text, expected, strlen(expected));
        }
        prints[i] = source_fingerprint(source);
        source_unref(source);
    }
    assert_true(prints[0] == prints[1]);
}

static void the_key_ends_at_the_first_dot_of_the_base_name(void **state)
{
    (void)state;
    assert_string_equal(tar_field("a/22.0/1.1.png"), "1.png");
    assert_string_equal(tar_field("d.e/f.seg.png"), "seg.png");
    assert_string_equal(tar_field("x.jpg"), "jpg");
    assert_null(tar_field("x"));
    assert_null(tar_field("a.b/x"));
    assert_null(tar_field(".jpg"));
    assert_null(tar_field("a/.hidden.jpg"));
    assert_null(tar_field("x."));
    assert_null(tar_field("a.jpg/"));
}

static void keys_have_their_directories(void **state)
{
    const struct member members[] = {
        {"a/1.jpg", "A", 0}, {"b/1.jpg", "B", 0}, {"./c.x/1.JPG", "C", 0}, {"c.x/1.cls", " 5 ", 0}};
    int fd = tar_make(PAX, members, 4);
    struct source *source = open_one(fd);
    char text[64];

    (void)state;
    close(fd);
    assert_int_equal(source_samples(source), 3);
    expect_sample(source, 1, &members[1], -1);
    expect_sample(source, 2, &members[2], 5);
    source_sample_name(source, 2, text, sizeof text);
    assert_memory_equal(text, "a.tar: c.x/1.JPG at ", 20);
    source_unref(source);
}

static void an_image_is_chosen_by_its_kind_not_its_place(void **state)
{
    const struct member members[] = {{"1.png", "P", 0}, {"1.jpg", "J", 0},  {"2.jpg", "j", 0},
                                     {"2.png", "p", 0}, {"3.png", "pp", 0}, {"3.jpeg", "jj", 0}};
    int fd = tar_make(USTAR, members, 6);
    struct source *source = open_one(fd);

    (void)state;
    close(fd);
    expect_sample(source, 0, &members[1], -1);
    expect_sample(source, 1, &members[2], -1);
    expect_sample(source, 2, &members[5], -1);
    source_unref(source);
}

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
    const struct member twice[] = {{"001.jpg", "x", 0}, {"001.JPG", "x", 0}};

    (void)state;
    refused(tar_make(USTAR, members, 3), -EINVAL, "a.tar: key 001 ", "stand together");
    refused(tar_make(USTAR, twice, 2), -EINVAL, "a.tar: 001.JPG at 1536 is there twice", "");
}

static void many_keys_are_told_apart(void **state)
{
    enum { N = 3000 };
    struct member *members = calloc(N + 1, sizeof *members);
    char(*names)[16] = calloc(N + 1, sizeof *names);

    (void)state;
    assert_true(members && names);
    for (int i = 0; i <= N; i++) {
        snprintf(names[i], sizeof names[i], "%d.jpg", i % N);
        members[i] = (struct member){.name = names[i], .size = 10};
    }
    int fd = tar_make(USTAR, members, N);
    struct source *source = open_one(fd);
    assert_int_equal(source_samples(source), N);
    expect_sample(source, N - 1, &members[N - 1], -1);
    source_unref(source);
    close(fd);
    refused(tar_make(USTAR, members, N + 1), -EINVAL, "key 0 comes again", "");
    free(members);
    free(names);
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

static void missing_end_marks_are_accepted(void **state)
{
    static const off_t ends[] = {4608, 4584, 5120, 4600};
    const struct member members[] = {
        {"001.jpg", NULL, 1000}, {"002.jpg", NULL, 1000}, {"003.jpg", NULL, 1000}};

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        int fd = tar_make(USTAR, members, 3);
        assert_int_equal(ftruncate(fd, ends[i]), 0);
        struct source *source = open_one(fd);
        close(fd);
        assert_int_equal(source_samples(source), 3);
        expect_sample(source, 2, &members[2], -1);
        source_unref(source);
    }
}

static int memfd_of(const void *bytes, size_t size)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    return fd;
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

static void shards_follow_each_other(void **state)
{
    static const uint8_t zeros[10240];
    const struct member second[] = {{"001.jpg", "second", 0}};
    static const char *const names[] = {"0.tar", "1.tar", "2.tar", "3.tar"};
    int fds[] = {memfd_of(zeros, sizeof zeros), tar_make(PAX, three, THREE_MEMBERS),
                 memfd_of(zeros, sizeof zeros), tar_make(GNU, second, 1)};
    struct source_spec spec = spec_of(fds, names, 4);
    struct source_progress progress = {0};
    struct source *source = NULL;
    char text[64];

    (void)state;
    /* The same key in another shard is another sample. */
    assert_int_equal(source_new(&spec, &progress, &source, NULL), 0);
    assert_int_equal(source_samples(source), 4);
    assert_int_equal(progress.indexed, 4);
    expect_sample(source, 2, &three[5], -1);
    expect_sample(source, 3, &second[0], -1);
    assert_string_equal(source_sample_name(source, 3, text, sizeof text), "3.tar: 001.jpg at 512");
    assert_true(source_matches(source, &spec));
    spec.n_fds = 3;
    assert_false(source_matches(source, &spec));
    spec.n_fds = 4;
    usleep(20000); /* a clock tick of the file system */
    assert_int_equal(pwrite(fds[3], "S", 1, 512), 1);
    assert_false(source_matches(source, &spec));
    source_unref(source);

    progress.cancelled = true;
    assert_int_equal(source_new(&spec, &progress, &source, NULL), -ECANCELED);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
}

static void other_members_are_skipped(void **state)
{
    const struct member members[] = {
        {"__info__", "x", 0}, {"README", "x", 0}, {"a/.DS_Store", "x", 0}, {"1.jpg", "x", 0}};
    int fd = tar_make(USTAR, members, 4);
    struct source *source = open_one(fd);

    (void)state;
    close(fd);
    assert_int_equal(source_samples(source), 1);
    assert_int_equal(source_skipped(source), 3);
    source_unref(source);
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

#define tar_test(f) cmocka_unit_test_setup_teardown(f, count_fds, check_fds)

int main(void)
{
    const struct CMUnitTest tests[] = {
        tar_test(all_dialects_give_the_same_samples),
        tar_test(long_and_utf8_names_are_no_samples_of_their_own),
        tar_test(the_key_ends_at_the_first_dot_of_the_base_name),
        tar_test(keys_have_their_directories),
        tar_test(an_image_is_chosen_by_its_kind_not_its_place),
        tar_test(a_sample_without_image_lists_its_fields),
        tar_test(out_of_order_members_are_refused_by_key),
        tar_test(many_keys_are_told_apart),
        tar_test(labels_are_integers),
        tar_test(a_cut_tar_names_the_offset),
        tar_test(missing_end_marks_are_accepted),
        tar_test(what_is_no_tar_is_refused),
        tar_test(a_damaged_header_names_its_offset),
        tar_test(shards_follow_each_other),
        tar_test(other_members_are_skipped),
        tar_test(links_and_directories_are_no_samples),
        tar_test(sparse_members_are_refused),
        tar_test(read_errors_name_shard_member_and_offset),
        tar_test(shards_are_regular_files_open_for_reading),
        tar_test(a_huge_member_is_refused_before_it_is_read),
        tar_test(a_size_beyond_any_file_is_a_cut),
        tar_test(the_index_is_bounded),
    };

    return cmocka_run_group_tests_name("tar", tests, NULL, NULL);
}
