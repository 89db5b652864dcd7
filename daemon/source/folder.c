/*
 * Reading samples of a folder. Every file is opened beneath the root's fd with
 * the identity of the peer that named it: no path, no symbolic link and no
 * capability of the daemon leads to what that peer could not open itself.
 */
#include "source/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/cleanup.h"

#define BENEATH (RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
#define RENAME_RETRIES 16 /* a rename at the same time lets a lookup through ".." fail */

int folder_open_beneath(int root, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY),
                           .resolve = BENEATH};
    long fd;
    int tries = 0;

    if (flags & O_PATH)
        how.flags = (uint64_t)(flags | O_CLOEXEC);
    do {
        fd = syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof how);
    } while (fd < 0 && (errno == EINTR || (errno == EAGAIN && ++tries < RENAME_RETRIES)));
    return fd < 0 ? -errno : (int)fd;
}

/* Opens a file if all of its path is cached. 1: it is not, or the kernel (before Linux 5.12) cannot
 * tell. */
static int open_cached(int root, const char *path)
{
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                           .resolve = BENEATH | RESOLVE_CACHED};
    long fd = syscall(SYS_openat2, root, path, &how, sizeof how);

    if (fd < 0)
        return errno == EAGAIN || errno == EINTR || errno == EINVAL ? -EAGAIN : -errno;
    return (int)fd;
}

/* File systems of a single user refuse even root. */
static const char *refusal_hint(const struct folder *folder)
{
    struct statfs fs;

    if (fstatfs(folder->root, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC)
        return "; it is on a FUSE file system, which may let in only the user who mounted it";
    return "";
}

static int open_refused(const struct source *source, const struct folder *folder, const char *path,
                        int error, struct failure *failure)
{
    const struct identity *identity = source_identity(source);
    const char *shown = *path ? path : ".";

    if (error == -EXDEV)
        return failure_set(failure, error,
                           "%s: %s is a symbolic link that leaves the folder; put what it "
                           "leads to into the folder, or name a folder above both",
                           source->name, shown);
    if (error == -ENOSYS)
        return failure_set(failure, error,
                           "%s: this kernel has no openat2 (Linux 5.6), without which "
                           "folders are not read",
                           source->name);
    if (error == -EACCES || error == -EPERM)
        return failure_set(failure, error, "%s: %s: %s, as uid %u%s", source->name, shown,
                           strerror(-error), identity ? identity->uid : geteuid(),
                           refusal_hint(folder));
    return failure_set(failure, error, "%s: %s: %s", source->name, shown, strerror(-error));
}

int folder_open(const struct source *source, const struct folder *folder, const char *path,
                int flags, struct failure *failure)
{
    int fd = folder_open_beneath(folder->root, path, flags);

    return fd >= 0 ? fd : open_refused(source, folder, path, fd, failure);
}

/* The directory that holds a sample: the last whose first sample is not after it. Directories
 * without samples share their first sample with the next, so they are never the last. */
static const struct folder_dir *dir_find(const struct folder *folder, uint64_t index)
{
    const struct folder_dir *dirs = folder_dirs(folder);
    size_t low = 0;
    size_t high = folder->dirs.n;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (dirs[middle].first_sample <= index)
            low = middle;
        else
            high = middle;
    }
    return &dirs[low];
}

/* In a class folder. */
static const struct folder_file *file_find(const struct folder *folder,
                                           const struct folder_dir *dir, uint64_t index)
{
    const struct folder_file *files = folder->files.items;

    return &files[dir->first_file + (index - dir->first_sample)];
}

const char *folder_path(const struct folder *folder, uint64_t index, char *text, size_t size)
{
    if (folder->has_list) {
        const struct listed_file *files = folder->listed.items;
        snprintf(text, size, "%s", folder_text(folder, files[index].path));
        return text;
    }
    const struct folder_dir *dir = dir_find(folder, index);
    snprintf(text, size, "%s/%s", folder_text(folder, dir->path),
             folder_text(folder, dir->names + file_find(folder, dir, index)->name));
    return text;
}

uint32_t folder_size(const struct folder *folder, uint64_t index)
{
    const struct listed_file *files = folder->listed.items;

    return folder->has_list ? files[index].size
                            : file_find(folder, dir_find(folder, index), index)->size;
}

static const char *folder_sample_name(const struct source *source, uint64_t index, char *text,
                                      size_t size)
{
    return folder_path(source->index, index, text, size);
}

static int64_t folder_label(const struct source *source, uint64_t index)
{
    const struct folder *folder = source->index;
    const int64_t *labels = folder->labels.items;

    if (!folder->has_list)
        return dir_find(folder, index)->label;
    return folder->labels.n > 0 ? labels[index] : LABEL_NONE;
}

static int read_open(const struct source *source, uint64_t index, int fd, const char *path,
                     bool wait, struct sample *sample, struct failure *failure)
{
    struct folder *folder = source->index;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return failure_set(failure, -errno, "%s: %s: %s", source->name, path, strerror(errno));
    if (folder_size_of((uint64_t)st.st_size) != folder_size(folder, index))
        atomic_store_explicit(&folder->stale, true, memory_order_relaxed);
    if (!S_ISREG(st.st_mode))
        return failure_set(failure, -EINVAL, "%s: %s is no longer a regular file", source->name,
                           path);
    if (st.st_size == 0)
        return failure_set(failure, -EBADMSG, "%s: %s is empty", source->name, path);
    if ((uint64_t)st.st_size > SAMPLE_BYTES_MAX)
        return failure_set(failure, -EFBIG, "%s: %s has %jd bytes, over the limit of 256 MiB",
                           source->name, path, (intmax_t)st.st_size);
    size_t size = (size_t)st.st_size;
    int r = sample_reserve(sample, size, path, failure);
    if (r < 0)
        return r;
    r = (wait ? source_read_exactly : source_read_cached)(fd, sample->buffer, size, 0);
    if (r == -ENODATA)
        return failure_set(failure, -EBADMSG, "%s: %s was cut off while it was read", source->name,
                           path);
    if (r < 0)
        return failure_set(failure, r, "%s: %s: %s", source->name, path, strerror(-r));
    if (r > 0)
        return r;
    sample->bytes = sample->buffer;
    sample->size = size;
    return 0;
}

static int folder_read_by(struct source *source, uint64_t index, bool wait, struct sample *sample,
                          struct failure *failure)
{
    struct folder *folder = source->index;
    char path[PATH_MAX];

    int r = identity_assume(source_identity(source), failure);
    if (r < 0)
        return r;
    folder_path(folder, index, path, sizeof path);
    cleanup_fd int fd =
        wait ? folder_open_beneath(folder->root, path, O_RDONLY) : open_cached(folder->root, path);
    if (fd == -EAGAIN && !wait)
        return 1;
    if (fd == -ENOENT || fd == -ENOTDIR)
        atomic_store_explicit(&folder->stale, true, memory_order_relaxed);
    if (fd < 0)
        return open_refused(source, folder, path, fd, failure);
    sample->label = folder_label(source, index);
    return read_open(source, index, fd, path, wait, sample, failure);
}

static int folder_read(struct source *source, uint64_t index, struct sample *sample,
                       struct failure *failure)
{
    return folder_read_by(source, index, true, sample, failure);
}

static int folder_try_read(struct source *source, uint64_t index, struct sample *sample,
                           struct failure *failure)
{
    return folder_read_by(source, index, false, sample, failure);
}

static void folder_free(struct source *source)
{
    struct folder *folder = source->index;

    close_fd(&folder->root);
    array_deinit(&folder->text);
    array_deinit(&folder->dirs);
    array_deinit(&folder->files);
    source_file_deinit(&folder->list);
    array_deinit(&folder->listed);
    array_deinit(&folder->labels);
    free(folder);
}

/* Keeps the directory, and the list if there is one. */
static int folder_take(struct source *source, struct folder *folder, const struct source_spec *spec,
                       struct failure *failure)
{
    struct stat st;

    folder->has_list = spec->n_fds == 2;
    if (spec->n_fds != 1 && spec->n_fds != 2)
        return failure_set(failure, -EINVAL,
                           "%s: one directory is wanted, and a list perhaps, %zu fds came",
                           source->name, spec->n_fds);
    if (fstat(spec->fds[0], &st) < 0)
        return failure_set(failure, -errno, "%s: %s", source->name, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return failure_set(failure, -ENOTDIR, "%s is not a directory", source->name);
    folder->root = fcntl(spec->fds[0], F_DUPFD_CLOEXEC, 0);
    if (folder->root < 0)
        return failure_set(failure, -errno, "%s: cannot keep its fd: %s", source->name,
                           strerror(errno));
    if (!folder->has_list)
        return 0;
    return source_file_take(&folder->list, "list", spec->fds[1], spec->fd_names[1], failure);
}

static int folder_index(struct source *source, const struct source_spec *spec,
                        struct source_progress *progress, struct failure *failure)
{
    struct folder *folder = calloc(1, sizeof *folder);

    if (!folder)
        return failure_set(failure, -ENOMEM, "%s: no memory", source->name);
    source->index = folder;
    folder->arena = (struct arena){.name = source->name, .max = spec->index_bytes_max};
    folder->root = -1;
    folder->list = (struct source_file)SOURCE_FILE_INIT;
    int r = folder_take(source, folder, spec, failure);
    if (r == 0)
        r = identity_assume(source_identity(source), failure);
    if (r < 0)
        return r;
    r = (folder->has_list ? folder_list_read : folder_walk)(source, folder, progress, failure);
    int restored = identity_assume(NULL, r < 0 ? NULL : failure);
    return r < 0 ? r : restored;
}

const struct source_ops source_folder_ops = {
    .name = "folder",
    .index = folder_index,
    .read = folder_read,
    .try_read = folder_try_read,
    .label = folder_label,
    .matches = folder_matches,
    .sample_name = folder_sample_name,
    .free = folder_free,
};
