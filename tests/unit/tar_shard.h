/*
 * Tar shards for tests: written by libarchive into memfds, opened as a source,
 * and refused. A test may leave no fd open: tar_test() checks it.
 */
#ifndef PINSERVE_TESTS_TAR_SHARD_H
#define PINSERVE_TESTS_TAR_SHARD_H

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "source/source.h"
#include "temp_dir.h"

enum dialect { USTAR, GNU, PAX };

struct member {
    const char *name;
    const char *bytes; /* NULL: size of them, made from the name */
    size_t size;       /* 0: bytes is a text */
};

static inline size_t member_size(const struct member *member)
{
    return member->bytes && member->size == 0 ? strlen(member->bytes) : member->size;
}

static int fds_before;

static inline int count_fds(void **state)
{
    (void)state;
    fds_before = open_fds();
    return 0;
}

static inline int check_fds(void **state)
{
    (void)state;
    return open_fds() - fds_before;
}

static inline char *member_bytes(const struct member *member)
{
    size_t size = member_size(member);
    char *bytes = malloc(size + 1);

    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = member->bytes ? member->bytes[i] : (char)(member->name[0] * 31 + (int)i * 7);
    return bytes;
}

/* Writes a tar into a memfd, which the caller closes. */
static inline int tar_make(enum dialect dialect, const struct member *members, size_t n)
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
        size_t size = member_size(&members[i]);
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

static inline struct source_spec spec_of(int *fds, const char *const *names, size_t n)
{
    return (struct source_spec){
        .kind = SOURCE_KIND_TAR, .name = "shards-*.tar", .fds = fds, .fd_names = names, .n_fds = n};
}

static const char *const one_name[] = {"a.tar"};

static inline struct source *open_one(int fd)
{
    struct source_spec spec = spec_of(&fd, one_name, 1);
    struct source *source = NULL;
    struct failure failure = {0};

    if (source_new(&spec, NULL, &source, &failure) != 0)
        fail_msg("%s", failure.text);
    return source;
}

/* Closes fd. */
static inline void refused(int fd, int code, const char *first, const char *second)
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

static inline void expect_sample(struct source *source, uint64_t index, const struct member *member,
                                 int64_t label)
{
    struct sample sample = {0};
    struct failure failure = {0};
    char *bytes = member_bytes(member);

    if (source_read(source, index, &sample, &failure) != 0)
        fail_msg("%s", failure.text);
    assert_int_equal(sample.label, label);
    assert_int_equal(sample.size, member_size(member));
    assert_memory_equal(sample.bytes, bytes, sample.size);
    free(bytes);
    sample_deinit(&sample);
}

static const struct member three[] = {
    {"001.jpg", NULL, 5000}, {"001.cls", "7", 0},   {"002.cls", "-3\n", 0},
    {"002.jpg", NULL, 1024}, {"002.json", "{}", 0}, {"003.png", NULL, 1},
};
#define THREE_MEMBERS (sizeof three / sizeof three[0])

static inline int memfd_of(const void *bytes, size_t size)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    return fd;
}

#define tar_test(f) cmocka_unit_test_setup_teardown(f, count_fds, check_fds)

#endif
