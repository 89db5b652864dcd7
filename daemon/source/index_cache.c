/*
 * The directory of saved indexes. A file is written under another name and then
 * renamed; one that a crash left half-way is never read. There is no fsync: its
 * reader finds out what a lost page did.
 */
#include "source/index_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "proto/cleanup.h"
#include "source/kind.h"

#define SUFFIX ".index"
#define SUFFIX_NEW ".new"
#define NEW_LASTS_S 600 /* longer than any file is being written */
#define NAME_SIZE 64

struct index_cache {
    char *path;
    int fd;
    uint64_t bytes_max;
    atomic_bool warned;
    atomic_uint serial; /* of new files */
    pthread_mutex_t lock;
    bool counted; /* what was there at the start is in bytes */
    uint64_t
        bytes; /* of all files; others may write to the directory, too: a guess between counts */
};

/* -- the directory --------------------------------------------------------------------------- */

static int directory_open(const char *path, struct failure *failure)
{
    cleanup_fd int fd = -1;
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return failure_set(failure, -errno, "%s: cannot be made: %s", path, strerror(errno));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return failure_set(failure, -errno, "%s: %s", path, strerror(errno));
    if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return failure_set(failure, -EPERM,
                           "%s: is of uid %u, with mode %04o; saved indexes want a directory that "
                           "uid %u alone can write to",
                           path, st.st_uid, st.st_mode & 07777, geteuid());
    return steal_fd(&fd);
}

int index_cache_new(const char *path, uint64_t bytes_max, struct index_cache **cache_p,
                    struct failure *failure)
{
    struct index_cache *cache;

    int fd = directory_open(path, failure);
    if (fd < 0)
        return fd;
    cache = calloc(1, sizeof *cache);
    if (cache)
        cache->path = strdup(path);
    if (!cache || !cache->path) {
        free(cache);
        close_fd(&fd);
        return failure_set(failure, -ENOMEM, "%s: no memory", path);
    }
    cache->fd = fd;
    cache->bytes_max = bytes_max;
    pthread_mutex_init(&cache->lock, NULL);
    *cache_p = cache;
    return 0;
}

void index_cache_free(struct index_cache *cache)
{
    if (!cache)
        return;
    pthread_mutex_destroy(&cache->lock);
    close_fd(&cache->fd);
    free(cache->path);
    free(cache);
}

static void file_name(uint64_t name, char text[NAME_SIZE])
{
    snprintf(text, NAME_SIZE, "%016" PRIx64 SUFFIX, name);
}

/* -- the bound ------------------------------------------------------------------------------- */

struct saved_file {
    char name[NAME_SIZE];
    uint64_t bytes;
    struct timespec used;
};

/* Whether a file is one of ours, which may be removed. */
static bool is_ours(const char *name, const struct stat *st, time_t now)
{
    size_t digits = strspn(name, "0123456789abcdef");
    size_t size = strlen(name);

    if (digits != 16 || size >= NAME_SIZE || !S_ISREG(st->st_mode))
        return false;
    if (strcmp(name + digits, SUFFIX) == 0)
        return true;
    return strcmp(name + size - strlen(SUFFIX_NEW), SUFFIX_NEW) == 0 &&
           st->st_mtim.tv_sec + NEW_LASTS_S < now;
}

static int saved_compare(const void *left, const void *right)
{
    const struct saved_file *a = left, *b = right;

    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    return a->used.tv_nsec < b->used.tv_nsec ? -1 : a->used.tv_nsec > b->used.tv_nsec;
}

/* Lists our files; returns how many. */
static size_t saved_list(struct index_cache *cache, struct saved_file **list_p)
{
    struct saved_file *list = NULL;
    size_t n = 0, room = 0;
    time_t now = time(NULL);
    int fd = openat(cache->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    struct stat st;

    if (!dir)
        close_fd(&fd);
    while (dir && (entry = readdir(dir))) {
        if (fstatat(cache->fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !is_ours(entry->d_name, &st, now))
            continue;
        if (n == room) {
            room = room ? room * 2 : 256;
            struct saved_file *grown = reallocarray(list, room, sizeof *list);
            if (!grown)
                break;
            list = grown;
        }
        list[n].bytes = (uint64_t)st.st_size;
        list[n].used = st.st_mtim;
        snprintf(list[n++].name, NAME_SIZE, "%.*s", NAME_SIZE - 1, entry->d_name);
    }
    if (dir)
        closedir(dir);
    *list_p = list;
    return n;
}

/* Counts what is there, and removes the oldest until bytes more have room, and some. */
static void cache_make_room(struct index_cache *cache, uint64_t bytes)
{
    cleanup_free struct saved_file *list = NULL;
    size_t n = saved_list(cache, &list);
    uint64_t max = cache->bytes_max - bytes;

    cache->bytes = 0;
    for (size_t i = 0; i < n; i++)
        cache->bytes += list[i].bytes;
    cache->counted = true;
    if (cache->bytes <= max)
        return;
    qsort(list, n, sizeof *list, saved_compare);
    /* So that the next few find room without looking. */
    max -= max / 8;
    for (size_t i = 0; i < n && cache->bytes > max; i++) {
        if (unlinkat(cache->fd, list[i].name, 0) == 0)
            cache->bytes -= list[i].bytes;
    }
}

/* Whether bytes more may be written. */
static bool cache_admit(struct index_cache *cache, uint64_t bytes)
{
    if (bytes > cache->bytes_max)
        return false;
    pthread_mutex_lock(&cache->lock);
    if (!cache->counted || cache->bytes + bytes > cache->bytes_max)
        cache_make_room(cache, bytes);
    bool admitted = cache->bytes + bytes <= cache->bytes_max;
    if (admitted)
        cache->bytes += bytes;
    pthread_mutex_unlock(&cache->lock);
    return admitted;
}

/* -- files ----------------------------------------------------------------------------------- */

int index_cache_read(struct index_cache *cache, uint64_t name, uint64_t bytes_max,
                     uint8_t **bytes_p, size_t *size_p)
{
    char text[NAME_SIZE];
    struct stat st;

    file_name(name, text);
    cleanup_fd int fd = openat(cache->fd, text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return -EPERM;
    if ((uint64_t)st.st_size > bytes_max)
        return -EFBIG;
    cleanup_free uint8_t *bytes = malloc((size_t)st.st_size + 1);
    if (!bytes)
        return -ENOMEM;
    int r = source_read_exactly(fd, bytes, (size_t)st.st_size, 0);
    if (r < 0)
        return r;
    /* What is used is not old. */
    futimens(fd, (struct timespec[]){{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}});
    *bytes_p = steal_ptr(bytes);
    *size_p = (size_t)st.st_size;
    return 0;
}

static int pieces_write(int fd, const struct iovec *pieces, int n_pieces)
{
    for (int i = 0; i < n_pieces; i++) {
        const uint8_t *from = pieces[i].iov_base;
        size_t left = pieces[i].iov_len;
        while (left > 0) {
            ssize_t n = write(fd, from, left);
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                return n < 0 ? -errno : -EIO;
            from += n;
            left -= (size_t)n;
        }
    }
    return 0;
}

static int file_write(struct index_cache *cache, uint64_t name, const struct iovec *pieces,
                      int n_pieces)
{
    char text[NAME_SIZE], new_text[NAME_SIZE];

    file_name(name, text);
    snprintf(new_text, sizeof new_text, "%016" PRIx64 ".%d-%u" SUFFIX_NEW, name, (int)getpid(),
             atomic_fetch_add(&cache->serial, 1));
    cleanup_fd int fd =
        openat(cache->fd, new_text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int r = pieces_write(fd, pieces, n_pieces);
    if (r == 0 && renameat(cache->fd, new_text, cache->fd, text) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(cache->fd, new_text, 0);
    return r;
}

void index_cache_write(struct index_cache *cache, uint64_t name, const struct iovec *pieces,
                       int n_pieces)
{
    uint64_t bytes = 0;

    for (int i = 0; i < n_pieces; i++)
        bytes += pieces[i].iov_len;
    if (!cache_admit(cache, bytes))
        return;
    int r = file_write(cache, name, pieces, n_pieces);
    if (r < 0 && !atomic_exchange(&cache->warned, true))
        log_warning("%s: indexes cannot be saved: %s; they are made anew each time", cache->path,
                    strerror(-r));
}
