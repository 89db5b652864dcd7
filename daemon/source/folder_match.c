/*
 * Whether the index of a folder still holds, for a job that names it again.
 *
 * Looking at every file would take as long as indexing. So it is looked at what
 * changes when files come, go or are renamed: each directory of the class
 * folders, or the list. What is changed in place changes neither: of that a
 * fixed number of files tell, spread evenly over the samples (all of them in a
 * small folder), and every file that a job reads, which makes the index stale.
 * What nobody has looked at yet is found when it is read, and its bytes as they
 * are then are what counts.
 *
 * With a list the directories tell nothing: others may come and go in them.
 */
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "proto/cleanup.h"
#include "source/folder.h"

#define FILES_LOOKED_AT 1024

struct dir_stamp dir_stamp_of(const struct stat *st)
{
    return (struct dir_stamp){
        .dev = st->st_dev, .ino = st->st_ino, .mtime = st->st_mtim, .ctime = st->st_ctim};
}

static bool time_equal(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool path_stat(int root, const char *path, struct stat *st_p)
{
    cleanup_fd int fd = folder_open_beneath(root, path, O_PATH);

    return fd >= 0 && fstat(fd, st_p) == 0;
}

static bool dir_unchanged(const struct folder *folder, const struct folder_dir *dir, int root)
{
    struct stat st;

    if (!path_stat(root, folder_text(folder, dir->path), &st))
        return false;
    return dir->stamp.dev == st.st_dev && dir->stamp.ino == st.st_ino &&
           time_equal(dir->stamp.mtime, st.st_mtim) && time_equal(dir->stamp.ctime, st.st_ctim);
}

static bool dirs_unchanged(const struct folder *folder, int root)
{
    const struct folder_dir *dirs = folder_dirs(folder);

    for (size_t i = 0; i < folder->dirs.n; i++) {
        if (!dir_unchanged(folder, &dirs[i], root))
            return false;
    }
    return true;
}

static bool list_unchanged(const struct folder *folder, const struct source_spec *spec)
{
    struct stat ours, theirs;

    return source_file_matches(&folder->list, spec->fds[1], spec->fd_names[1]) &&
           fstat(folder->root, &ours) == 0 && fstat(spec->fds[0], &theirs) == 0 &&
           ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

static bool files_unchanged(const struct folder *folder, uint64_t samples, int root)
{
    uint64_t n = samples < FILES_LOOKED_AT ? samples : FILES_LOOKED_AT;
    char path[PATH_MAX];
    struct stat st;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t index = i * samples / n;
        if (!path_stat(root, folder_path(folder, index, path, sizeof path), &st) ||
            !S_ISREG(st.st_mode) ||
            folder_size_of((uint64_t)st.st_size) != folder_size(folder, index))
            return false;
    }
    return true;
}

bool folder_matches(const struct source *source, const struct source_spec *spec)
{
    const struct folder *folder = source->index;

    if (spec->n_fds != (folder->has_list ? 2 : 1) || atomic_load(&folder->stale) ||
        identity_assume(spec->identity, NULL) < 0)
        return false;
    bool unchanged =
        (folder->has_list ? list_unchanged(folder, spec) : dirs_unchanged(folder, spec->fds[0])) &&
        files_unchanged(folder, source->samples, spec->fds[0]);
    return identity_assume(NULL, NULL) == 0 && unchanged;
}
