/*
 * Files that come in pairs: tokens of Megatron-LM in a .bin file, and its index
 * in an .idx file of the same stem beside it.
 */
#include "dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parse.h"
#include "proto/cleanup.h"
#include "proto/megatron.h"

#define SUFFIX_BYTES 4 /* ".bin", ".idx" */

/* The path with another suffix of the same length. */
static char *path_with(const char *path, const char *suffix)
{
    char *other = strdup(path);

    if (other)
        memcpy(other + strlen(other) - SUFFIX_BYTES, suffix, SUFFIX_BYTES);
    return other;
}

/* Not blocking, so that a FIFO in a file's place is not waited for. */
static int index_look(const char *path, bool *is_p, struct failure *failure)
{
    char start[MEGATRON_MAGIC_BYTES];
    struct stat st;

    cleanup_fd int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        *is_p = false;
        return 0;
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        return failure_set(failure, -errno, "tokens %.300s: %s", path, strerror(errno));
    *is_p = S_ISREG(st.st_mode) && read(fd, start, sizeof start) == (ssize_t)sizeof start &&
            megatron_is_index(start, sizeof start);
    return 0;
}

static int path_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* What becomes of one path: itself, or a pair, or nothing. */
struct pair {
    char *file, *index; /* NULL: none */
};

static void pair_deinit(struct pair *pair)
{
    free(pair->file);
    free(pair->index);
}

/* sorted: all n paths. An index whose file is among them comes with that one. */
static int pair_of(const char *path, char *const *sorted, size_t n, struct pair *pair,
                   struct failure *failure)
{
    struct parse_text text = parse_from(path);
    bool is_file = parse_ends(text, ".bin"), is_index = parse_ends(text, ".idx");

    *pair = (struct pair){.file = strdup(path)};
    if (pair->file && is_file)
        pair->index = path_with(path, ".idx");
    if (pair->file && is_index)
        pair->index = strdup(path);
    if (!pair->file || ((is_file || is_index) && !pair->index))
        return failure_set(failure, -ENOMEM, "no memory for the names of \"%.300s\"", path);
    if (!pair->index)
        return 0;
    bool is = false;
    int r = index_look(pair->index, &is, failure);
    if (r < 0)
        return r;
    if (!is) {
        free(steal_ptr(pair->index));
        return 0;
    }
    memcpy(pair->file + strlen(pair->file) - SUFFIX_BYTES, ".bin", SUFFIX_BYTES);
    if (is_index && bsearch(&pair->file, sorted, n, sizeof *sorted, path_compare)) {
        pair_deinit(pair);
        *pair = (struct pair){0};
    }
    return 0;
}

void dataset_paths_free(char **paths, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(paths[i]);
    free(paths);
}

int dataset_pair(size_t max, char ***paths_p, size_t *n_p, struct failure *failure)
{
    size_t n = *n_p, paired = 0;
    char **paths = *paths_p;
    int r = 0;

    cleanup_free char **sorted = reallocarray(NULL, n, sizeof *sorted);
    char **list = reallocarray(NULL, 2 * n, sizeof *list);
    if (!sorted || !list) {
        free(list);
        return failure_set(failure, -ENOMEM, "no memory for the names of %zu files", n);
    }
    memcpy(sorted, paths, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, path_compare);
    for (size_t i = 0; r == 0 && i < n; i++) {
        cleanup(pair_deinit) struct pair pair;
        r = pair_of(paths[i], sorted, n, &pair, failure);
        if (r == 0 && pair.file)
            list[paired++] = steal_ptr(pair.file);
        if (r == 0 && pair.index)
            list[paired++] = steal_ptr(pair.index);
    }
    if (r == 0 && paired > max)
        r = failure_set(failure, -EINVAL,
                        "%.300s and what belongs to it: %zu files with their indexes, and the "
                        "daemon takes at most %zu",
                        paths[0], paired, max);
    if (r < 0) {
        dataset_paths_free(list, paired);
        return r;
    }
    dataset_paths_free(paths, n);
    *paths_p = list;
    *n_p = paired;
    return 0;
}
