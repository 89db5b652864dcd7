/*
 * The directory of saved indexes: what is kept, what goes, and that nothing of
 * it fails anybody.
 */
#include "source/index_cache.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "group_dir.h"

#define KIB 1024u

static struct index_cache *cache_open(const char *name, uint64_t max)
{
    struct index_cache *cache = NULL;
    struct failure failure = {0};
    char path[256];

    snprintf(path, sizeof path, "%s/%s", dir.path, name);
    if (index_cache_new(path, max, &cache, &failure) < 0)
        fail_msg("%s", failure.text);
    return cache;
}

static void put(struct index_cache *cache, uint64_t name, size_t size)
{
    uint8_t *bytes = malloc(size + 1);

    assert_non_null(bytes);
    memset(bytes, (int)name, size);
    struct iovec pieces[] = {{bytes, size / 3}, {bytes, 0}, {bytes, size - size / 3}};
    index_cache_write(cache, name, pieces, 3);
    free(bytes);
}

static int get(struct index_cache *cache, uint64_t name, size_t *size_p)
{
    uint8_t *bytes = NULL;
    int r = index_cache_read(cache, name, 64 * KIB, &bytes, size_p);

    for (size_t i = 0; r == 0 && i < *size_p; i++)
        assert_int_equal(bytes[i], (uint8_t)name);
    free(bytes);
    return r;
}

/* Sets when a file was used last, seconds before now. */
static void used_before(const char *folder, uint64_t name, time_t seconds)
{
    struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - seconds}};
    char path[256];

    snprintf(path, sizeof path, "%s/%016jx.index", folder, (uintmax_t)name);
    assert_int_equal(utimensat(dir.fd, path, times, 0), 0);
}

static void what_is_put_is_got(void **state)
{
    struct index_cache *cache = cache_open("a", KIB * KIB);
    struct stat st;
    size_t size = 0;

    (void)state;
    assert_int_equal(get(cache, 7, &size), -ENOENT);
    put(cache, 7, 5000);
    assert_int_equal(get(cache, 7, &size), 0);
    assert_int_equal(size, 5000);
    put(cache, 7, 0);
    assert_int_equal(get(cache, 7, &size), 0);
    assert_int_equal(size, 0);
    put(cache, 8, 64 * KIB + 1);
    assert_int_equal(get(cache, 8, &size), -EFBIG);
    assert_int_equal(fstatat(dir.fd, "a", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(fstatat(dir.fd, "a/0000000000000007.index", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    index_cache_free(cache);

    cache = cache_open("a", KIB * KIB);
    assert_int_equal(get(cache, 7, &size), 0);
    index_cache_free(cache);
}

static void the_oldest_go_and_what_is_used_stays(void **state)
{
    struct index_cache *cache = cache_open("b", 100 * KIB);
    size_t size;

    (void)state;
    for (uint64_t i = 1; i <= 10; i++) {
        put(cache, i, 10 * KIB);
        used_before("b", i, (time_t)(100 - i));
    }
    assert_true(temp_dir_write(&dir, "b/notes.txt", "mine", 4));
    assert_true(temp_dir_write(&dir, "b/00000000000000ab.index.old", "mine", 4));
    assert_true(temp_dir_write(&dir, "b/00000000000000ab.1-1.new", "being written", 13));
    assert_int_equal(get(cache, 1, &size), 0);
    put(cache, 11, 10 * KIB);
    /* Room was made for a little more than was asked for. */
    assert_int_equal(get(cache, 2, &size), -ENOENT);
    assert_int_equal(get(cache, 3, &size), -ENOENT);
    for (uint64_t i = 5; i <= 11; i++)
        assert_int_equal(get(cache, i, &size), 0);
    assert_int_equal(get(cache, 1, &size), 0);
    assert_int_equal(faccessat(dir.fd, "b/notes.txt", F_OK, 0), 0);
    assert_int_equal(faccessat(dir.fd, "b/00000000000000ab.index.old", F_OK, 0), 0);
    assert_int_equal(faccessat(dir.fd, "b/00000000000000ab.1-1.new", F_OK, 0), 0);
    /* Larger than all there may be. */
    put(cache, 12, 100 * KIB + 1);
    assert_int_equal(get(cache, 12, &size), -ENOENT);
    assert_int_equal(get(cache, 11, &size), 0);
    index_cache_free(cache);
}

/* Of a daemon that was killed while it wrote. */
static void left_overs_go_in_time(void **state)
{
    struct timespec old[] = {{.tv_sec = time(NULL) - 3600}, {.tv_sec = time(NULL) - 3600}};
    struct index_cache *cache = cache_open("c", 20 * KIB);
    static uint8_t bytes[19 * KIB];

    (void)state;
    assert_true(temp_dir_write(&dir, "c/00000000000000ab.1-1.new", bytes, sizeof bytes));
    assert_int_equal(utimensat(dir.fd, "c/00000000000000ab.1-1.new", old, 0), 0);
    put(cache, 1, 5 * KIB);
    assert_int_equal(faccessat(dir.fd, "c/00000000000000ab.1-1.new", F_OK, 0), -1);
    index_cache_free(cache);
}

static void a_directory_that_goes_fails_nobody(void **state)
{
    struct index_cache *cache = cache_open("d", KIB * KIB);
    size_t size;

    (void)state;
    assert_int_equal(unlinkat(dir.fd, "d", AT_REMOVEDIR), 0);
    put(cache, 1, 100);
    put(cache, 2, 100);
    assert_int_equal(get(cache, 1, &size), -ENOENT);
    index_cache_free(cache);
}

static void refused(const char *name, int code, const char *why)
{
    struct index_cache *cache = NULL;
    struct failure failure = {0};
    char path[256];

    snprintf(path, sizeof path, "%s/%s", dir.path, name);
    assert_int_equal(index_cache_new(path, KIB, &cache, &failure), code);
    if (!strstr(failure.text, why) || !strstr(failure.text, path))
        fail_msg("\"%s\" lacks \"%s\"", failure.text, why);
}

static void places_that_are_no_good_are_refused(void **state)
{
    (void)state;
    assert_true(temp_dir_write(&dir, "file", "x", 1));
    refused("file", -ENOTDIR, "Not a directory");
    refused("none/deeper", -ENOENT, "cannot be made");
    assert_int_equal(mkdirat(dir.fd, "open", 0700), 0);
    assert_int_equal(fchmodat(dir.fd, "open", 0770, 0), 0);
    refused("open", -EPERM, "with mode 0770");
}

/* A link in the place of a file is not followed. */
static void only_files_of_its_own_are_read(void **state)
{
    struct index_cache *cache = cache_open("e", KIB * KIB);
    size_t size;

    (void)state;
    assert_int_equal(symlinkat("../file", dir.fd, "e/0000000000000078.index"), 0);
    assert_int_equal(get(cache, 'x', &size), -ELOOP);
    put(cache, 'x', 9);
    assert_int_equal(get(cache, 'x', &size), 0);
    assert_int_equal(mkdirat(dir.fd, "e/0000000000000079.index", 0700), 0);
    assert_int_equal(get(cache, 'y', &size), -EPERM);
    index_cache_free(cache);
}

/* Several threads put and get the same few, in less room than they take. */
static void *put_and_get(void *argument)
{
    struct index_cache *cache = argument;

    for (uint64_t i = 0; i < 200; i++) {
        uint8_t *bytes = NULL;
        size_t size = 0;
        uint64_t name = i % 7;
        uint64_t content[KIB / 8];
        for (size_t k = 0; k < KIB / 8; k++)
            content[k] = name;
        struct iovec piece = {content, sizeof content};
        index_cache_write(cache, name, &piece, 1);
        int r = index_cache_read(cache, (i + 3) % 7, KIB, &bytes, &size);
        bool right = r == -ENOENT || (r == 0 && size == KIB && bytes[0] == (i + 3) % 7 &&
                                      memcmp(bytes, bytes + 8, KIB - 8) == 0);
        free(bytes);
        if (!right)
            return argument;
    }
    return NULL;
}

static void threads_share_it(void **state)
{
    struct index_cache *cache = cache_open("f", 4 * KIB);
    pthread_t threads[4];
    void *wrong = NULL;

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_and_get, cache), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    index_cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_got),
        cmocka_unit_test(the_oldest_go_and_what_is_used_stays),
        cmocka_unit_test(left_overs_go_in_time),
        cmocka_unit_test(a_directory_that_goes_fails_nobody),
        cmocka_unit_test(places_that_are_no_good_are_refused),
        cmocka_unit_test(only_files_of_its_own_are_read),
        cmocka_unit_test(threads_share_it),
    };

    return cmocka_run_group_tests_name("index_cache", tests, dir_make, dir_remove);
}
