/*
 * Files of a dataset.
 */
#include "source/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "proto/cleanup.h"

int source_file_take(struct source_file *file, const char *what, int fd, const char *name,
                     struct failure *failure)
{
    *file = (struct source_file)SOURCE_FILE_INIT;
    file->name = strdup(name);
    if (!file->name)
        return failure_set(failure, -ENOMEM, "%s %s: no memory", what, name);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fstat(fd, &file->st) < 0)
        return failure_set(failure, -errno, "%s %s: %s", what, name, strerror(errno));
    if (!S_ISREG(file->st.st_mode))
        return failure_set(failure, -EINVAL,
                           "%s %s is not a regular file; it is read at any offset", what, name);
    if ((flags & O_ACCMODE) == O_WRONLY || (flags & (O_PATH | O_DIRECT)))
        return failure_set(failure, -EINVAL,
                           "%s %s: its fd is not open for plain reading (O_RDONLY)", what, name);
    file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (file->fd < 0)
        return failure_set(failure, -errno, "%s %s: cannot keep its fd: %s", what, name,
                           strerror(errno));
    return 0;
}

void source_file_deinit(struct source_file *file)
{
    close_fd(&file->fd);
    free(file->name);
    file->name = NULL;
}

const char *source_file_base(const struct source_file *file)
{
    const char *slash = strrchr(file->name, '/');

    return slash ? slash + 1 : file->name;
}

static bool time_equal(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool source_file_matches(const struct source_file *file, int fd, const char *name)
{
    struct stat st;

    return strcmp(file->name, name) == 0 && fstat(fd, &st) == 0 && file->st.st_dev == st.st_dev &&
           file->st.st_ino == st.st_ino && file->st.st_size == st.st_size &&
           time_equal(file->st.st_mtim, st.st_mtim) && time_equal(file->st.st_ctim, st.st_ctim);
}

bool source_file_whole(const struct source_file *file)
{
    struct stat st;

    return fstat(file->fd, &st) == 0 && st.st_size >= file->st.st_size;
}
