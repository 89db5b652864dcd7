/*
 * The index of a folder with a file list: the samples are the files that the
 * list names, in its order, with its labels. Each must be there, as a regular
 * file within the folder, readable or not: what cannot be opened is found when
 * it is read.
 *
 * The directory that the last file was in stays open, since lists mostly go
 * through one directory after the other: one call a file instead of three.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "proto/cleanup.h"
#include "source/folder.h"
#include "source/list_file.h"

struct listing {
    struct source *source;
    struct folder *folder;
    struct source_progress *progress;
    struct failure *failure;
    struct list_reader reader;
    uint64_t offset; /* in the list */
    int dir;         /* the directory last looked into, or -1 */
    size_t dir_size; /* of its path */
    char dir_path[PATH_MAX];
};

static void listing_free(struct listing **listing)
{
    if (!*listing)
        return;
    close_fd(&(*listing)->dir);
    close_fd(&(*listing)->folder->list.fd);
    free(*listing);
}

/* Asks whether to go on, too: not every list has entries. */
static int list_read(void *user, void *bytes, size_t size)
{
    struct listing *listing = user;
    ssize_t n;

    if (source_progress_set(listing->source, listing->progress, listing->folder->listed.n, NULL) <
        0)
        return -ECANCELED;
    do {
        n = pread(listing->folder->list.fd, bytes, size, (off_t)listing->offset);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    listing->offset += (uint64_t)n;
    return (int)n;
}

/* -- what a path leads to -------------------------------------------------------------------- */

static int path_refuse(struct listing *listing, const char *path, int error, const char *what)
{
    return failure_set(listing->failure, error, "list %s:%ju: %s %s", listing->reader.name,
                       (uintmax_t)listing->reader.line, path, what);
}

static int open_refuse(struct listing *listing, const char *path, int error,
                       const struct failure *why)
{
    if (error == -EXDEV)
        return path_refuse(listing, path, error,
                           "leads out of the folder, by .. or a symbolic link");
    if (error == -ENOENT || error == -ENOTDIR)
        return path_refuse(listing, path, error,
                           strchr(path, ',') ? "is missing; a label is behind a space or tab, "
                                               "not a comma"
                                             : "is missing");
    return failure_set(listing->failure, error, "list %s:%ju: %s", listing->reader.name,
                       (uintmax_t)listing->reader.line, why->text);
}

/* Opens a path; the failure is of the whole one. */
static int listing_open(struct listing *listing, const char *opened, const char *path, int flags)
{
    struct failure why;
    int fd = folder_open(listing->source, listing->folder, opened, flags, &why);

    return fd >= 0 ? fd : open_refuse(listing, path, fd, &why);
}

/* Makes listing->dir that of the first size bytes of path. */
static int dir_enter(struct listing *listing, const char *path, size_t size)
{
    if (listing->dir >= 0 && size == listing->dir_size &&
        memcmp(listing->dir_path, path, size) == 0)
        return 0;
    close_fd(&listing->dir);
    memcpy(listing->dir_path, path, size);
    listing->dir_path[size] = '\0';
    listing->dir_size = size;
    int fd = listing_open(listing, listing->dir_path, path, O_PATH | O_DIRECTORY);
    if (fd < 0)
        return fd;
    listing->dir = fd;
    return 0;
}

/* By its directory, where that says the same as the whole path would. 1: it does not. */
static int stat_in_dir(struct listing *listing, const char *path, struct stat *st_p)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 1;
    int r = dir_enter(listing, path, (size_t)(name - path));
    if (r < 0)
        return r;
    if (fstatat(listing->dir, name, st_p, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(st_p->st_mode))
        return 1;
    return 0;
}

static int path_stat(struct listing *listing, const char *path, struct stat *st_p)
{
    int r = stat_in_dir(listing, path, st_p);

    if (r <= 0)
        return r;
    cleanup_fd int fd = listing_open(listing, path, path, O_PATH);
    if (fd < 0)
        return fd;
    return fstat(fd, st_p) < 0 ? path_refuse(listing, path, -errno, "cannot be looked at") : 0;
}

/* -- the index ------------------------------------------------------------------------------- */

static int file_add(struct listing *listing, const struct list_entry *entry, const struct stat *st)
{
    struct folder *folder = listing->folder;
    struct arena *arena = &folder->arena;
    uint64_t position;

    int r = array_append_string(&folder->text, entry->path, arena, &position, listing->failure);
    if (r == 0)
        r = array_reserve(&folder->listed, 1, sizeof(struct listed_file), arena, listing->failure);
    if (r == 0 && entry->has_label)
        r = array_reserve(&folder->labels, 1, sizeof(int64_t), arena, listing->failure);
    if (r < 0)
        return r;
    struct listed_file *files = folder->listed.items;
    files[folder->listed.n++] =
        (struct listed_file){.path = position, .size = folder_size_of((uint64_t)st->st_size)};
    int64_t *labels = folder->labels.items;
    if (entry->has_label)
        labels[folder->labels.n++] = entry->label;
    return 0;
}

static int entry_take(struct listing *listing, const struct list_entry *entry,
                      XXH64_state_t *fingerprint)
{
    struct stat st;
    int r = path_stat(listing, entry->path, &st);

    if (r < 0)
        return r;
    if (S_ISDIR(st.st_mode))
        return path_refuse(listing, entry->path, -EISDIR, "is a directory, not a file");
    if (!S_ISREG(st.st_mode))
        return path_refuse(listing, entry->path, -EINVAL, "is not a regular file");
    struct {
        int64_t size, label;
    } numbers = {.size = st.st_size, .label = entry->has_label ? entry->label : LABEL_NONE};
    XXH64_update(fingerprint, entry->path, strlen(entry->path) + 1);
    XXH64_update(fingerprint, &numbers, sizeof numbers);
    return file_add(listing, entry, &st);
}

static int entries_take(struct listing *listing, XXH64_state_t *fingerprint)
{
    struct folder *folder = listing->folder;
    struct list_entry entry;
    int r;

    while ((r = list_next(&listing->reader, &entry, listing->failure)) > 0) {
        r = entry_take(listing, &entry, fingerprint);
        if (r == 0)
            r = source_progress_set(listing->source, listing->progress, folder->listed.n,
                                    listing->failure);
        if (r < 0)
            return r;
    }
    if (r == 0 && folder->listed.n == 0)
        return failure_set(listing->failure, -ENOENT, "list %s: names no file", folder->list.name);
    return r;
}

int folder_list_read(struct source *source, struct folder *folder, struct source_progress *progress,
                     struct failure *failure)
{
    cleanup(listing_free) struct listing *listing = calloc(1, sizeof *listing);
    XXH64_state_t *fingerprint = XXH64_createState();

    if (!listing || !fingerprint) {
        XXH64_freeState(fingerprint);
        return failure_set(failure, -ENOMEM, "list %s: no memory", folder->list.name);
    }
    listing->source = source;
    listing->folder = folder;
    listing->progress = progress;
    listing->failure = failure;
    listing->dir = -1;
    listing->reader.name = folder->list.name;
    listing->reader.read = list_read;
    listing->reader.user = listing;
    XXH64_reset(fingerprint, 0);
    int r = entries_take(listing, fingerprint);
    source->samples = folder->listed.n;
    source->fingerprint = XXH64_digest(fingerprint);
    XXH64_freeState(fingerprint);
    if (r < 0)
        return r;
    array_trim(&folder->text, 1);
    array_trim(&folder->listed, sizeof(struct listed_file));
    array_trim(&folder->labels, sizeof(int64_t));
    return 0;
}
