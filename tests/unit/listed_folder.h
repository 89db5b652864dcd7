/*
 * What the tests of folders with a list share: a folder, a list of its files
 * beside it, and the spec that names both.
 */
#ifndef PINSERVE_TESTS_UNIT_LISTED_FOLDER_H
#define PINSERVE_TESTS_UNIT_LISTED_FOLDER_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "source/source.h"
#include "temp_dir.h"

static struct temp_dir dir, lists;
static int fds_before;
static int fds[2] = {-1, -1};
static const char *const fd_names[] = {"/data/photos", "train.txt"};
static struct source_spec spec;

static inline int dirs_make(void **state)
{
    (void)state;
    fds_before = open_fds();
    if (!temp_dir_init(&dir) || !temp_dir_init(&lists))
        return -1;
    fds[0] = dir.fd;
    spec = (struct source_spec){.kind = SOURCE_KIND_FOLDER,
                                .name = "folder:/data/photos,list=train.txt",
                                .fds = fds,
                                .fd_names = fd_names,
                                .n_fds = 2};
    return 0;
}

static inline int dirs_remove(void **state)
{
    (void)state;
    if (fds[1] >= 0)
        close(fds[1]);
    fds[1] = -1;
    temp_dir_deinit(&dir);
    temp_dir_deinit(&lists);
    return open_fds() - fds_before;
}

static inline void put(const char *path, const char *text)
{
    assert_true(temp_dir_write(&dir, path, text, strlen(text)));
}

static inline void put_list_bytes(const char *text, size_t size)
{
    assert_true(temp_dir_write(&lists, "train.txt", text, size));
    if (fds[1] >= 0)
        close(fds[1]);
    fds[1] = openat(lists.fd, "train.txt", O_RDONLY | O_CLOEXEC);
    assert_true(fds[1] >= 0);
}

static inline void put_list(const char *text)
{
    put_list_bytes(text, strlen(text));
}

static inline struct source *open_source(void)
{
    struct source *source = NULL;
    struct failure failure = {0};

    if (source_new(&spec, NULL, &source, &failure) != 0)
        fail_msg("%s", failure.text);
    return source;
}

#endif
