/*
 * One member of a tar by its name: its bytes, in every dialect, and why there
 * are none.
 */
#include "source/tar_find.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tar_shard.h"

static struct source_file shard_of(int fd)
{
    struct source_file shard = {.fd = fd, .name = (char *)"a.tar"};

    assert_int_equal(fstat(fd, &shard.st), 0);
    return shard;
}

static void members_are_found_in_all_dialects(void **state)
{
    char name[205];
    const struct member members[] = {
        {"x/1.cls", "7", 0}, {name, NULL, 5000}, {"\xc3\xa4 b.png", NULL, 600}, {"e.jpg", "", 0}};

    (void)state;
    for (int dialect = USTAR; dialect <= PAX; dialect++) {
        /* Such a long name has no place in ustar. */
        size_t length = dialect == USTAR ? 60 : 200;

        memset(name, 'n', length);
        memcpy(name + length, ".jpg", sizeof ".jpg");
        int fd = tar_make((enum dialect)dialect, members, 4);
        struct source_file shard = shard_of(fd);

        for (size_t i = 0; i < 4; i++) {
            char *right = member_bytes(&members[i]);
            size_t right_size = members[i].bytes ? strlen(members[i].bytes) : members[i].size;
            uint64_t offset = 0, size = 0;
            struct failure failure = {0};

            if (tar_find(&shard, members[i].name, &offset, &size, &failure) < 0)
                fail_msg("%s", failure.text);
            assert_int_equal(size, right_size);
            char *got = malloc(right_size + 1);
            assert_non_null(got);
            assert_int_equal(pread(fd, got, right_size, (off_t)offset), right_size);
            assert_memory_equal(got, right, right_size);
            free(got);
            free(right);
        }
        close(fd);
    }
}

static void what_is_not_there_is_told(void **state)
{
    const struct member members[] = {{"a.jpg", NULL, 700}, {"./b.jpg", NULL, 3000}};
    int fd = tar_make(GNU, members, 2);
    struct source_file shard = shard_of(fd);
    struct failure failure = {0};
    uint64_t offset, size;

    (void)state;
    assert_int_equal(tar_find(&shard, "b.jpg", &offset, &size, &failure), 0);
    assert_int_equal(tar_find(&shard, "./a.jpg", &offset, &size, &failure), 0);
    assert_int_equal(tar_find(&shard, "c.jpg", &offset, &size, &failure), -ENOENT);
    assert_string_equal(failure.text, "shard a.tar: there is no member c.jpg");
    assert_int_equal(ftruncate(fd, 3000), 0);
    shard = shard_of(fd);
    assert_int_equal(tar_find(&shard, "b.jpg", &offset, &size, &failure), -EBADMSG);
    assert_non_null(strstr(failure.text, "shard a.tar is cut off at 3000: b.jpg at 2048 has"));
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, "no tar at all, but long", 23, 0), 23);
    shard = shard_of(fd);
    assert_int_equal(tar_find(&shard, "a.jpg", &offset, &size, &failure), -EBADMSG);
    assert_non_null(strstr(failure.text, "shard a.tar"));
    close(fd);
}

/* In the words of an index that is refused. */
static void compressed_shards_are_told_by_name(void **state)
{
    static const struct {
        const char *bytes, *first, *second;
    } kinds[] = {
        {"\x1f\x8b\x08xxxxxxxx", "compressed with gzip", "gunzip"},
        {"\x28\xb5\x2f\xfdxxxxxxx", "compressed with zstd", "zstd -d"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        int fd = memfd_of(kinds[i].bytes, strlen(kinds[i].bytes));
        struct source_file shard = shard_of(fd);
        struct failure failure = {0};
        uint64_t offset, size;

        assert_int_equal(tar_find(&shard, "a.jpg", &offset, &size, &failure), -EINVAL);
        assert_non_null(strstr(failure.text, kinds[i].first));
        assert_non_null(strstr(failure.text, kinds[i].second));
        refused(fd, -EINVAL, kinds[i].first, kinds[i].second);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(members_are_found_in_all_dialects, count_fds, check_fds),
        cmocka_unit_test_setup_teardown(what_is_not_there_is_told, count_fds, check_fds),
        cmocka_unit_test_setup_teardown(compressed_shards_are_told_by_name, count_fds, check_fds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
