/*
 * Folders: files beneath one directory, one a sample: those in class folders, or
 * those that a list names. folder.c reads samples; folder_index.c (class folders)
 * and folder_list.c (lists) make the index that all know; folder_match.c tells
 * whether it still holds.
 */
#ifndef PINSERVE_SOURCE_FOLDER_H
#define PINSERVE_SOURCE_FOLDER_H

#include <sys/stat.h>

#include "source/arena.h"
#include "source/file.h"
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

/* One file of a class folder. */
struct folder_file {
    uint32_t name; /* in text, behind names of its directory */
    uint32_t size; /* see folder_size_of */
};

/* One file of a list. */
struct listed_file {
    uint64_t path; /* in text */
    uint32_t size;
};

struct folder {
    int root; /* the directory's fd, ours */
    struct arena arena;
    struct array text;  /* char */
    struct array dirs;  /* struct folder_dir: the root, then by (label, path) */
    struct array files; /* struct folder_file */

    /* With a list, in place of dirs and files. */
    bool has_list;
    struct source_file list; /* open while indexing */
    struct array listed;     /* struct listed_file: the samples */
    struct array labels;     /* int64_t: theirs; empty: they have none */

    /* A file that was read is not the one that was indexed: the next job makes an index of its own.
     * All else is immutable. */
    atomic_bool stale;
};

static inline struct folder_dir *folder_dirs(const struct folder *folder)
{
    return folder->dirs.items;
}

static inline const char *folder_text(const struct folder *folder, uint64_t position)
{
    return (const char *)folder->text.items + position;
}

/* Sizes are kept to notice changes; samples are smaller than what does not fit. */
static inline uint32_t folder_size_of(uint64_t bytes)
{
    return bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
}

/* Where a sample lies, and what was noted of it. */
const char *folder_path(const struct folder *folder, uint64_t index, char *text, size_t size);
uint32_t folder_size(const struct folder *folder, uint64_t index);

/* Opens path beneath the root. An error is told with the path and, where that is the cause, that a
 * symbolic link leaves the folder. Returns the fd. */
int folder_open(const struct source *source, const struct folder *folder, const char *path,
                int flags, struct failure *failure);

/* The same without words: the fd or a negative errno. */
int folder_open_beneath(int root, const char *path, int flags);

struct dir_stamp dir_stamp_of(const struct stat *st);

/* Fill folder and the source's counts. The calling thread has the source's identity. */
int folder_walk(struct source *source, struct folder *folder, struct source_progress *progress,
                struct failure *failure);
int folder_list_read(struct source *source, struct folder *folder, struct source_progress *progress,
                     struct failure *failure);

bool folder_matches(const struct source *source, const struct source_spec *spec);

#endif
