/*
 * The index of a folder: class folders, sorted bytewise, give the labels; the
 * samples of a class are the files with a known extension in it and below,
 * ordered by (directory, name), bytewise: the order of sorted(os.walk()).
 *
 * The table of directories is also the list of what is still to be walked:
 * walking one appends those in it. At the end the table is sorted, and with it
 * the samples, whose names stay where they are.
 */
#include "source/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include <xxhash.h>

#include "log.h"
#include "proto/cleanup.h"

#define DEPTH_LEVELS_MAX 64

struct entry {
    uint32_t name; /* behind names of its directory */
    uint64_t size;
};

struct walk {
    struct source *source;
    struct folder *folder;
    struct source_progress *progress;
    struct failure *failure;
    struct array entries; /* struct entry: of the directory being walked */
    uint64_t samples;
};

static void walk_deinit(struct walk *walk)
{
    array_deinit(&walk->entries);
}

static bool has_known_extension(const char *name)
{
    static const char *const extensions[] = {".jpg", ".jpeg", ".png", ".webp"};
    size_t size = strlen(name);

    for (size_t i = 0; i < sizeof extensions / sizeof extensions[0]; i++) {
        size_t n = strlen(extensions[i]);
        if (size >= n && strcasecmp(name + size - n, extensions[i]) == 0)
            return true;
    }
    return false;
}

static int path_join(const struct walk *walk, uint32_t dir, const char *name, char path[PATH_MAX])
{
    const char *parent = folder_text(walk->folder, folder_dirs(walk->folder)[dir].path);
    int n = snprintf(path, PATH_MAX, "%s%s%s", parent, *parent ? "/" : "", name);

    if (n < PATH_MAX)
        return 0;
    return failure_set(walk->failure, -ENAMETOOLONG, "%s: the path of %s is longer than %d bytes",
                       walk->source->name, name, PATH_MAX - 1);
}

static int dir_add(struct walk *walk, uint32_t parent, const char *name)
{
    struct folder *folder = walk->folder;
    char path[PATH_MAX] = "";
    uint32_t depth = 0;
    uint64_t position;

    if (folder->dirs.n > 0) {
        int r = path_join(walk, parent, name, path);
        if (r < 0)
            return r;
        depth = folder_dirs(folder)[parent].depth + 1;
    }
    if (depth > DEPTH_LEVELS_MAX)
        return failure_set(walk->failure, -ELOOP, "%s: %s is more than %d levels deep",
                           walk->source->name, path, DEPTH_LEVELS_MAX);
    int r = array_append_string(&folder->text, path, &folder->arena, &position, walk->failure);
    if (r == 0)
        r = array_reserve(&folder->dirs, 1, sizeof(struct folder_dir), &folder->arena,
                          walk->failure);
    if (r < 0)
        return r;
    struct folder_dir *dir = &folder_dirs(folder)[folder->dirs.n];
    *dir = (struct folder_dir){.path = position, .parent = parent, .depth = depth};
    if (depth > 0)
        dir->label = folder_dirs(folder)[parent].label;
    folder->dirs.n++;
    return 0;
}

static int file_add(struct walk *walk, uint32_t dir, const char *name, uint64_t size)
{
    struct folder *folder = walk->folder;
    uint64_t position;

    int r = array_append_string(&folder->text, name, &folder->arena, &position, walk->failure);
    if (r == 0)
        r = array_reserve(&walk->entries, 1, sizeof(struct entry), &folder->arena, walk->failure);
    if (r != 0)
        return r;
    position -= folder_dirs(folder)[dir].names;
    if (position > UINT32_MAX)
        return failure_set(walk->failure, -E2BIG, "%s: %s holds too many files", walk->source->name,
                           folder_text(folder, folder_dirs(folder)[dir].path));
    struct entry *entries = walk->entries.items;
    entries[walk->entries.n++] = (struct entry){.name = (uint32_t)position, .size = size};
    walk->samples++;
    return 0;
}

/* Follows a symbolic link, within the folder. 1: it leads nowhere and would be no sample anyway. */
static int link_stat(struct walk *walk, uint32_t dir, const char *name, struct stat *st_p)
{
    char path[PATH_MAX];
    struct failure failure;

    int r = path_join(walk, dir, name, path);
    if (r < 0)
        return r;
    cleanup_fd int fd = folder_open(walk->source, walk->folder, path, O_PATH, &failure);
    bool nowhere = fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP;
    if (nowhere && !has_known_extension(name))
        return 1;
    if (nowhere)
        return failure_set(walk->failure, fd, "%s: %s is a symbolic link that leads nowhere",
                           walk->source->name, path);
    if (fd < 0)
        return failure_set(walk->failure, fd, "%s", failure.text);
    if (fstat(fd, st_p) < 0)
        return failure_set(walk->failure, -errno, "%s: %s: %s", walk->source->name, path,
                           strerror(errno));
    return 0;
}

/* What an entry is: its file type of st_mode, and its size where it may be a sample. */
static int entry_stat(struct walk *walk, uint32_t dir, int fd, const struct dirent *entry,
                      struct stat *st_p)
{
    *st_p = (struct stat){.st_mode = DTTOIF(entry->d_type)};
    if (entry->d_type == DT_DIR)
        return 0;
    if (entry->d_type == DT_REG && !has_known_extension(entry->d_name))
        return 0;
    if (entry->d_type != DT_LNK && fstatat(fd, entry->d_name, st_p, AT_SYMLINK_NOFOLLOW) < 0) {
        /* Removed since the directory was read: as if it had never been there. */
        if (errno == ENOENT)
            return 1;
        return failure_set(walk->failure, -errno, "%s: %s/%s: %s", walk->source->name,
                           folder_text(walk->folder, folder_dirs(walk->folder)[dir].path),
                           entry->d_name, strerror(errno));
    }
    return S_ISLNK(st_p->st_mode) ? link_stat(walk, dir, entry->d_name, st_p) : 0;
}

static int entry_add(struct walk *walk, uint32_t dir, int fd, const struct dirent *entry)
{
    const char *name = entry->d_name;
    struct stat st;

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    int r = entry_stat(walk, dir, fd, entry, &st);
    if (r < 0)
        return r;
    if (r == 0 && S_ISDIR(st.st_mode))
        return dir_add(walk, dir, name);
    if (r == 0 && dir > 0 && S_ISREG(st.st_mode) && has_known_extension(name))
        return file_add(walk, dir, name, (uint64_t)st.st_size);
    walk->source->skipped++;
    return 0;
}

/* A symbolic link to a directory above would be walked again and again. */
static int ancestors_check(struct walk *walk, uint32_t dir)
{
    const struct folder_dir *dirs = folder_dirs(walk->folder);

    for (uint32_t i = dir; i > 0;) {
        i = dirs[i].parent;
        if (dirs[i].stamp.dev == dirs[dir].stamp.dev && dirs[i].stamp.ino == dirs[dir].stamp.ino)
            return failure_set(walk->failure, -ELOOP,
                               "%s: %s is a symbolic link to a folder that it lies in",
                               walk->source->name, folder_text(walk->folder, dirs[dir].path));
    }
    return 0;
}

static int entry_compare(const void *a, const void *b, void *names)
{
    const struct entry *x = a;
    const struct entry *y = b;

    return strcmp((const char *)names + x->name, (const char *)names + y->name);
}

/* Sorts the files of a directory that was read, and puts them into the index. */
static int dir_close(struct walk *walk, uint32_t index)
{
    struct folder *folder = walk->folder;
    struct folder_dir *dir = &folder_dirs(folder)[index];
    char *names = (char *)folder->text.items + dir->names;
    struct entry *entries = walk->entries.items;
    size_t n = walk->entries.n;
    XXH64_hash_t hash = 0;

    int r =
        array_reserve(&folder->files, n, sizeof(struct folder_file), &folder->arena, walk->failure);
    if (r < 0)
        return r;
    dir->first_file = folder->files.n;
    dir->n_files = (uint32_t)n;
    if (n > 0)
        qsort_r(entries, n, sizeof *entries, entry_compare, names);
    struct folder_file *files = folder->files.items;
    for (size_t i = 0; i < n; i++) {
        const char *name = names + entries[i].name;
        files[folder->files.n++] = (struct folder_file){
            .name = entries[i].name,
            .size = folder_size_of(entries[i].size),
        };
        hash = XXH64(name, strlen(name) + 1, hash ^ entries[i].size);
    }
    dir->hash = hash;
    walk->entries.n = 0;
    return 0;
}

static void close_dir(DIR **stream)
{
    if (*stream)
        closedir(*stream);
}

static int dir_walk(struct walk *walk, uint32_t index)
{
    struct folder *folder = walk->folder;
    struct source *source = walk->source;
    struct stat st;

    const char *path = folder_text(folder, folder_dirs(folder)[index].path);
    cleanup_fd int fd = folder_open(source, folder, path, O_RDONLY | O_DIRECTORY, walk->failure);
    if (fd < 0)
        return fd;
    cleanup(close_dir) DIR *stream = fstat(fd, &st) == 0 ? fdopendir(fd) : NULL;
    if (!stream)
        return failure_set(walk->failure, -errno, "%s: %s: %s", source->name, path,
                           strerror(errno));
    int stream_fd = steal_fd(&fd); /* the stream's now */
    folder_dirs(folder)[index].stamp = dir_stamp_of(&st);
    folder_dirs(folder)[index].names = folder->text.n;
    int r = ancestors_check(walk, index);
    while (r == 0) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry)
            break;
        r = entry_add(walk, index, stream_fd, entry);
        if (r == 0)
            r = source_progress_set(source, walk->progress, walk->samples, walk->failure);
    }
    if (r == 0 && errno != 0)
        r = failure_set(walk->failure, -errno, "%s: %s: %s", source->name,
                        folder_text(folder, folder_dirs(folder)[index].path), strerror(errno));
    return r < 0 ? r : dir_close(walk, index);
}

/* By label, then path; before labels are given, by path alone. */
static int dir_compare(const void *a, const void *b, void *text)
{
    const struct folder_dir *x = a;
    const struct folder_dir *y = b;

    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    return strcmp((const char *)text + x->path, (const char *)text + y->path);
}

static int classes_label(struct walk *walk)
{
    struct folder *folder = walk->folder;
    struct folder_dir *dirs = folder_dirs(folder);
    size_t n = folder->dirs.n - 1;

    walk->source->classes = n;
    if (n == 0)
        return failure_set(walk->failure, -EINVAL,
                           "%s: there is no class folder in it, only %ju other files; "
                           "samples are expected as CLASS/NAME.jpg, or in a list: ,list=FILE",
                           walk->source->name, (uintmax_t)walk->source->skipped);
    qsort_r(dirs + 1, n, sizeof *dirs, dir_compare, folder->text.items);
    for (size_t i = 0; i < n; i++)
        dirs[1 + i].label = (uint32_t)i;
    return 0;
}

static void fingerprint_add(XXH64_state_t *state, const struct folder_dir *dir, const char *path)
{
    struct {
        uint64_t hash;
        uint32_t n_files, label;
    } numbers = {.hash = dir->hash, .n_files = dir->n_files, .label = dir->label};

    XXH64_update(state, path, strlen(path) + 1);
    XXH64_update(state, &numbers, sizeof numbers);
}

/* Numbers the samples in their order, and makes the fingerprint. */
static int folder_finish(struct walk *walk)
{
    struct folder *folder = walk->folder;
    struct source *source = walk->source;
    struct folder_dir *dirs = folder_dirs(folder);
    uint64_t samples = 0;
    uint64_t empty = 0;

    XXH64_state_t *state = XXH64_createState();
    if (!state)
        return failure_set(walk->failure, -ENOMEM, "%s: no memory", source->name);
    XXH64_reset(state, 0);
    qsort_r(dirs + 1, folder->dirs.n - 1, sizeof *dirs, dir_compare, folder->text.items);
    for (size_t i = 1; i < folder->dirs.n; i++) {
        uint64_t before = samples;
        dirs[i].first_sample = samples;
        samples += dirs[i].n_files;
        if (samples > before || dirs[i].depth == 1)
            fingerprint_add(state, &dirs[i], folder_text(folder, dirs[i].path));
        if (dirs[i].depth == 1) {
            size_t j = i;
            uint64_t of_class = 0;
            for (; j < folder->dirs.n && dirs[j].label == dirs[i].label; j++)
                of_class += dirs[j].n_files;
            empty += of_class == 0;
        }
    }
    source->samples = samples;
    source->fingerprint = XXH64_digest(state);
    XXH64_freeState(state);
    if (samples == 0)
        return failure_set(walk->failure, -ENOENT,
                           "%s: no .jpg, .jpeg, .png or .webp file in its %ju class folders, "
                           "only %ju other files",
                           source->name, (uintmax_t)source->classes, (uintmax_t)source->skipped);
    if (empty > 0)
        log_warning("%s: %ju of its %ju class folders hold no sample", source->name,
                    (uintmax_t)empty, (uintmax_t)source->classes);
    array_trim(&folder->text, 1);
    array_trim(&folder->dirs, sizeof *dirs);
    array_trim(&folder->files, sizeof(struct folder_file));
    return 0;
}

int folder_walk(struct source *source, struct folder *folder, struct source_progress *progress,
                struct failure *failure)
{
    cleanup(walk_deinit) struct walk walk = {
        .source = source, .folder = folder, .progress = progress, .failure = failure};

    int r = dir_add(&walk, 0, "");
    if (r == 0)
        r = dir_walk(&walk, 0);
    if (r == 0)
        r = classes_label(&walk);
    for (uint32_t i = 1; r == 0 && i < folder->dirs.n; i++)
        r = dir_walk(&walk, i);
    return r < 0 ? r : folder_finish(&walk);
}
