/*
 * A directory for a test's files, removed with all in it; and what tests ask
 * about fds.
 */
#ifndef PINSERVE_TESTS_TEMP_DIR_H
#define PINSERVE_TESTS_TEMP_DIR_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct temp_dir {
    char path[128];
    int fd;
};

static inline bool temp_dir_init(struct temp_dir *dir)
{
    const char *base = getenv("TMPDIR");

    snprintf(dir->path, sizeof dir->path, "%s/pinserve-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(dir->path))
        return false;
    dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir->fd >= 0;
}

static inline int temp_dir_remove_one(const char *path, const struct stat *st, int type,
                                      struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void temp_dir_deinit(struct temp_dir *dir)
{
    close(dir->fd);
    nftw(dir->path, temp_dir_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Makes the directories of path, below dir. */
static inline bool temp_dir_mkdirs(const struct temp_dir *dir, const char *path)
{
    char part[PATH_MAX + 2];

    snprintf(part, sizeof part, "%.*s/", PATH_MAX, path);
    for (char *slash = strchr(part, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdirat(dir->fd, part, 0755);
        *slash = '/';
    }
    struct stat st;
    return fstatat(dir->fd, path, &st, 0) == 0 && S_ISDIR(st.st_mode);
}

/* Writes a file, making the directories that it is in. */
static inline bool temp_dir_write(const struct temp_dir *dir, const char *path, const void *bytes,
                                  size_t size)
{
    char parent[PATH_MAX];

    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    if (slash) {
        *slash = '\0';
        if (!temp_dir_mkdirs(dir, parent))
            return false;
    }
    int fd = openat(dir->fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && write(fd, bytes, size) == (ssize_t)size;
    if (fd >= 0)
        close(fd);
    return ok;
}

static inline int open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

#endif
