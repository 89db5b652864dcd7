/*
 * Folders: class folders beneath one directory, one file a sample. folder.c
 * reads samples, folder_index.c makes the index that both know.
 */
#ifndef PINSERVE_SOURCE_FOLDER_H
#define PINSERVE_SOURCE_FOLDER_H

#include <sys/stat.h>

#include "source/arena.h"
#include "source/kind.h"

/* What tells that a directory is the one that was indexed, with the same entries. */
struct dir_stamp {
    dev_t dev;
    ino_t ino;
    struct timespec mtime, ctime;
};

/* One directory with the files of it that are samples: names[..] in files[first_file ..]. */
struct folder_dir {
    struct dir_stamp stamp;
    uint64_t path;       /* in text: relative to the root; the root's is "" */
    uint64_t names;      /* in text: where the names of its files begin */
    uint64_t first_file; /* in files */
    uint64_t first_sample;
    uint64_t hash; /* of its samples' names and sizes */
    uint32_t n_files;
    uint32_t label;
    uint32_t parent; /* in dirs, while indexing */
    uint32_t depth;  /* 0: the root, 1: class folders */
};

struct folder {
    int root; /* the directory's fd, ours */
    struct arena arena;
    struct array text;  /* char */
    struct array dirs;  /* struct folder_dir: the root, then by (label, path) */
    struct array files; /* uint32_t: a name's position behind names of its directory */
};

static inline struct folder_dir *folder_dirs(const struct folder *folder)
{
    return folder->dirs.items;
}

static inline const char *folder_text(const struct folder *folder, uint64_t position)
{
    return (const char *)folder->text.items + position;
}

/* Opens path beneath the root. An error is told with the path and, where that is the cause, that a
 * symbolic link leaves the folder. Returns the fd. */
int folder_open(const struct source *source, const struct folder *folder, const char *path,
                int flags, struct failure *failure);

struct dir_stamp dir_stamp_of(const struct stat *st);

/* Fills folder and the source's counts. The calling thread has the source's identity. */
int folder_walk(struct source *source, struct folder *folder, struct source_progress *progress,
                struct failure *failure);

#endif
