/*
 * Walking through tars: each member once, in order, with where its data is.
 */
#include "source/tar_archive.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tar_shard.h"

#define VISITS_MAX 8

struct visits {
    char names[VISITS_MAX][64];
    struct tar_entry entries[VISITS_MAX]; /* texts are gone */
    size_t n, stop_at;
    int result; /* of the one that stops */
};

static int visit(void *user, const struct tar_entry *entry, struct failure *failure)
{
    struct visits *visits = user;

    (void)failure;
    assert_in_range(visits->n, 0, VISITS_MAX - 1);
    snprintf(visits->names[visits->n], sizeof visits->names[0], "%s%s%s", entry->name,
             entry->link ? " is " : "", entry->link ? entry->link : "");
    visits->entries[visits->n++] = *entry;
    return visits->n == visits->stop_at ? visits->result : 0;
}

static int walk(int fd, struct visits *visits, struct failure *failure)
{
    struct source_file shard = {.fd = fd, .name = (char *)"a.tar"};

    assert_int_equal(fstat(fd, &shard.st), 0);
    return tar_walk(&shard, visit, visits, failure);
}

static void members_come_in_order(void **state)
{
    const struct member members[] = {
        {"./a/1.jpg", NULL, 1000}, {"b", "", 0}, {"\xc3\xa4.txt", "text", 0}};

    (void)state;
    for (int dialect = USTAR; dialect <= PAX; dialect++) {
        static const char *const names[] = {"a/1.jpg", "b", "\xc3\xa4.txt"};
        static const uint64_t sizes[] = {1000, 0, 4};
        struct visits visits = {0};
        int fd = tar_make((enum dialect)dialect, members, 3);
        uint64_t end = 0;

        assert_int_equal(walk(fd, &visits, NULL), 0);
        assert_int_equal(visits.n, 3);
        for (size_t i = 0; i < 3; i++) {
            const struct tar_entry *entry = &visits.entries[i];
            char byte = 0;
            assert_string_equal(visits.names[i], names[i]);
            assert_int_equal(entry->size, sizes[i]);
            assert_true(entry->file && !entry->directory && !entry->sparse);
            assert_int_equal(entry->offset % TAR_BLOCK, 0);
            assert_true(entry->offset >= end + TAR_BLOCK);
            end = tar_entry_end(entry);
            assert_int_equal(end, entry->offset + (sizes[i] + 511) / 512 * 512);
            assert_int_equal(pread(fd, &byte, 1, (off_t)visits.entries[2].offset), 1);
            assert_int_equal(byte, 't');
        }
        close(fd);
    }
}

static void a_visitor_ends_the_walk(void **state)
{
    int fd = tar_make(PAX, three, THREE_MEMBERS);

    (void)state;
    for (int result = -ECANCELED; result <= 1; result += 1 + ECANCELED) {
        struct visits visits = {.stop_at = 2, .result = result};
        assert_int_equal(walk(fd, &visits, NULL), result);
        assert_int_equal(visits.n, 2);
    }
    close(fd);
}

static void other_kinds_are_told_apart(void **state)
{
    struct archive *archive = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    int fd = memfd_create("test", MFD_CLOEXEC);
    struct visits visits = {0};

    (void)state;
    archive_write_set_format_ustar(archive);
    archive_write_open_fd(archive, fd);
    for (int i = 0; i < 3; i++) {
        archive_entry_clear(entry);
        archive_entry_set_pathname(entry, i == 0 ? "d.x/" : i == 1 ? "l.jpg" : "h.jpg");
        archive_entry_set_filetype(entry, i == 0 ? AE_IFDIR : i == 1 ? AE_IFLNK : AE_IFREG);
        if (i == 1)
            archive_entry_set_symlink(entry, "x");
        if (i == 2)
            archive_entry_set_hardlink(entry, "1.jpg");
        assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
    }
    archive_entry_free(entry);
    archive_write_free(archive);
    assert_int_equal(walk(fd, &visits, NULL), 0);
    assert_int_equal(visits.n, 3);
    assert_true(visits.entries[0].directory && !visits.entries[0].file);
    assert_true(!visits.entries[1].directory && !visits.entries[1].file);
    assert_string_equal(visits.names[2], "h.jpg is 1.jpg");
    close(fd);
}

/* A member may end beyond the file: whoever visits it has to look. */
static void what_is_cut_off_is_visited(void **state)
{
    const struct member members[] = {{"1.jpg", NULL, 1000}, {"2.jpg", NULL, 5000}};
    int fd = tar_make(USTAR, members, 2);
    struct visits visits = {.stop_at = 2, .result = 1};
    struct failure failure = {0};

    (void)state;
    assert_int_equal(ftruncate(fd, 2100), 0);
    assert_int_equal(walk(fd, &visits, NULL), 1);
    assert_int_equal(visits.entries[1].offset + visits.entries[1].size, 7048);
    assert_int_equal(ftruncate(fd, 1900), 0);
    visits = (struct visits){0};
    assert_int_equal(walk(fd, &visits, &failure), -EBADMSG);
    assert_int_equal(visits.n, 1);
    assert_non_null(strstr(failure.text, "shard a.tar: bad tar header at 1536"));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tar_test(members_come_in_order),
        tar_test(a_visitor_ends_the_walk),
        tar_test(other_kinds_are_told_apart),
        tar_test(what_is_cut_off_is_visited),
    };

    return cmocka_run_group_tests_name("tar_archive", tests, NULL, NULL);
}
