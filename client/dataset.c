/*
 * The files of a dataset. At most MESSAGE_FDS_MAX of them are open at a time,
 * so that any number of shards fits any limit on open files.
 */
#include "dataset.h"

#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "parse.h"
#include "proto/cleanup.h"

#define RANGES_MAX 8
/* Names beside one packet of fds; leaves room in MESSAGE_MAX for all else. */
#define NAMES_BYTES_MAX (MESSAGE_MAX / 4 * 3)

/* One `{A..B}` of a pattern and the text before it. */
struct range {
    struct parse_text before;
    uint64_t low, count;
    int width; /* digits, with leading zeros; 0: as many as needed */
};

struct pattern {
    struct range ranges[RANGES_MAX];
    size_t n_ranges;
    struct parse_text rest;
    uint64_t count;
};

static int range_parse(struct parse_text text, struct range *range)
{
    const char *dots = memmem(text.text, text.size, "..", 2);
    uint64_t high;

    if (!dots)
        return -EINVAL;
    struct parse_text from = {.text = text.text, .size = (size_t)(dots - text.text)};
    struct parse_text to = {.text = dots + 2, .size = text.size - from.size - 2};
    if (parse_whole(from, INT32_MAX, &range->low) < 0 || parse_whole(to, INT32_MAX, &high) < 0 ||
        high < range->low)
        return -EINVAL;
    if ((from.size > 1 && *from.text == '0') || (to.size > 1 && *to.text == '0'))
        range->width = (int)(from.size > to.size ? from.size : to.size);
    else
        range->width = 0;
    range->count = high - range->low + 1;
    return 0;
}

static int pattern_parse(const char *kind, const char *text, struct pattern *pattern,
                         struct failure *failure)
{
    pattern->n_ranges = 0;
    pattern->count = 1;
    pattern->rest = parse_from(text);
    while (memchr(pattern->rest.text, '{', pattern->rest.size)) {
        if (pattern->n_ranges == RANGES_MAX)
            return failure_set(failure, -EINVAL, "\"%s:%.300s\": more than %d ranges", kind, text,
                               RANGES_MAX);
        struct range *range = &pattern->ranges[pattern->n_ranges++];
        range->before = parse_cut(&pattern->rest, '{');
        struct parse_text inside = parse_cut(&pattern->rest, '}');
        if (inside.last || range_parse(inside, range) < 0)
            return failure_set(failure, -EINVAL,
                               "\"%s:%.300s\": \"{%.*s\" is no range: write {000..099}", kind, text,
                               (int)(inside.size + (inside.last ? 0 : 1)), inside.text);
        if (__builtin_mul_overflow(pattern->count, range->count, &pattern->count))
            pattern->count = UINT64_MAX;
    }
    return 0;
}

int dataset_pattern_check(const char *kind, const char *pattern, struct failure *failure)
{
    struct pattern parsed;

    return pattern_parse(kind, pattern, &parsed, failure);
}

/* The text of the pattern's number `number`. */
static char *pattern_text(const struct pattern *pattern, uint64_t number)
{
    uint64_t digits[RANGES_MAX];
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    for (size_t i = pattern->n_ranges; i-- > 0;) {
        digits[i] = pattern->ranges[i].low + number % pattern->ranges[i].count;
        number /= pattern->ranges[i].count;
    }
    for (size_t i = 0; i < pattern->n_ranges; i++) {
        const struct range *range = &pattern->ranges[i];
        fwrite(range->before.text, 1, range->before.size, out);
        fprintf(out, "%0*llu", range->width, (unsigned long long)digits[i]);
    }
    fwrite(pattern->rest.text, 1, pattern->rest.size, out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* A growing list of paths. */
struct paths {
    const char *kind; /* of files: "tar" */
    char **list;
    size_t n, max;
};

static void paths_deinit(struct paths *paths)
{
    dataset_paths_free(paths->list, paths->n);
}

static int paths_add(struct paths *paths, const char *pattern, char *path_consume,
                     struct failure *failure)
{
    if (paths->n == paths->max) {
        free(path_consume);
        return failure_set(failure, -EINVAL,
                           "\"%s:%.300s\": more than the %zu files that the "
                           "daemon takes",
                           paths->kind, pattern, paths->max);
    }
    char **list = path_consume ? reallocarray(paths->list, paths->n + 1, sizeof *list) : NULL;
    if (!list) {
        free(path_consume);
        return failure_set(failure, -ENOMEM, "\"%s:%.300s\": no memory for its names", paths->kind,
                           pattern);
    }
    paths->list = list;
    paths->list[paths->n++] = path_consume;
    return 0;
}

static int path_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Sorted here: glob's own order is the locale's, and the order of shards decides batches. */
static int paths_add_glob(struct paths *paths, const char *pattern, struct failure *failure)
{
    glob_t found;
    int r = glob(pattern, GLOB_NOSORT, NULL, &found);

    if (r == GLOB_NOMATCH)
        return failure_set(failure, -ENOENT, "\"%s:%.300s\": no file matches", paths->kind,
                           pattern);
    if (r != 0)
        return failure_set(failure, r == GLOB_NOSPACE ? -ENOMEM : -EIO,
                           "\"%s:%.300s\": cannot look for files that match", paths->kind, pattern);
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, path_compare);
    for (size_t i = 0; r == 0 && i < found.gl_pathc; i++)
        r = paths_add(paths, pattern, strdup(found.gl_pathv[i]), failure);
    globfree(&found);
    return r;
}

int dataset_expand(const char *kind, const char *pattern, size_t max, char ***paths_p, size_t *n_p,
                   struct failure *failure)
{
    cleanup(paths_deinit) struct paths paths = {.kind = kind, .max = max};
    struct pattern parsed;
    int r = pattern_parse(kind, pattern, &parsed, failure);

    if (r < 0)
        return r;
    if (parsed.count > max)
        return failure_set(failure, -EINVAL,
                           "\"%s:%.300s\": names %llu files, and the daemon takes at most %zu",
                           kind, pattern, (unsigned long long)parsed.count, max);
    for (uint64_t i = 0; i < parsed.count; i++) {
        cleanup_free char *text = pattern_text(&parsed, i);
        if (text && strpbrk(text, "*?[") && access(text, F_OK) < 0)
            r = paths_add_glob(&paths, text, failure);
        else
            r = paths_add(&paths, pattern, steal_ptr(text), failure);
        if (r < 0)
            return r;
    }
    *paths_p = steal_ptr(paths.list);
    *n_p = paths.n;
    paths.n = 0;
    return 0;
}

static const char *kind_name(Pinserve__SourceKind kind)
{
    switch (kind) {
    case PINSERVE__SOURCE_KIND__SOURCE_FOLDER:
        return "folder";
    case PINSERVE__SOURCE_KIND__SOURCE_TAR:
        return "tar";
    case PINSERVE__SOURCE_KIND__SOURCE_RECORDS:
        return "records";
    default:
        return "tokens";
    }
}

static int open_failed(const char *what, const char *path, int error, struct failure *failure)
{
    struct rlimit limit;

    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        return failure_set(failure, -error,
                           "%s %.300s: this process has as many files open as RLIMIT_NOFILE "
                           "allows, %llu",
                           what, path, (unsigned long long)limit.rlim_cur);
    return failure_set(failure, -error, "%s %.300s: %s", what, path, strerror(error));
}

static int folder_open(const char *path, int *fd_p, struct failure *failure)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return open_failed("folder", path, errno, failure);
    *fd_p = fd;
    return 0;
}

/* Not blocking, so that a FIFO in a file's place is refused and not waited for. */
static int file_open(const char *kind, const char *path, int *fd_p, struct failure *failure)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return open_failed(kind, path, errno, failure);
    if (fstat(fd, &st) < 0)
        return open_failed(kind, path, errno, failure);
    if (!S_ISREG(st.st_mode))
        return failure_set(failure, -EINVAL, "%s %.300s: not a regular file%s", kind, path,
                           S_ISDIR(st.st_mode) ? ", but a directory: name the files in it" : "");
    *fd_p = steal_fd(&fd);
    return 0;
}

/* A folder's first path is the directory, its second the list. */
static int path_open(Pinserve__SourceKind kind, size_t position, const char *path, int *fd_p,
                     struct failure *failure)
{
    if (kind != PINSERVE__SOURCE_KIND__SOURCE_FOLDER)
        return file_open(kind_name(kind), path, fd_p, failure);
    return position == 0 ? folder_open(path, fd_p, failure)
                         : file_open("list", path, fd_p, failure);
}

/* Has no reply: OpenJob's tells. Fds on their way count against this user's limit on
 * open files, which the daemon soon relieves. */
static int chunk_post(struct connection *connection, const Pinserve__Message *message,
                      const int *fds, size_t n_fds, struct failure *failure)
{
    int64_t deadline = connection_clock_ms() + CONNECTION_ANSWER_MS;
    int r;

    while ((r = connection_send(connection, message, fds, n_fds, failure)) == -ETOOMANYREFS &&
           connection_clock_ms() < deadline)
        poll(NULL, 0, 5);
    return r;
}

/* Opens and sends paths from number `from` on, as many as one packet takes; their number is the
 * result. */
static int chunk_send(Pinserve__SourceKind kind, const struct paths *all, size_t from,
                      struct connection *connection, struct failure *failure)
{
    char **paths = all->list + from;
    size_t n = all->n - from;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__DatasetFds names = PINSERVE__DATASET_FDS__INIT;
    size_t max = connection_hello(connection)->limits->message_fds;
    int fds[MESSAGE_FDS_MAX];
    size_t bytes = 0, i;
    int r = 0;

    if (max < 1 || max > MESSAGE_FDS_MAX)
        max = MESSAGE_FDS_MAX;
    for (i = 0; i < n && i < max; i++) {
        fds[i] = -1;
        bytes += strlen(paths[i]) + 8;
        if (i > 0 && bytes > NAMES_BYTES_MAX)
            break;
        if (strlen(paths[i]) >= NAME_MAX_BYTES)
            r = failure_set(failure, -ENAMETOOLONG, "%.300s...: a path of over %d bytes", paths[i],
                            NAME_MAX_BYTES - 1);
        else
            r = path_open(kind, from + i, paths[i], &fds[i], failure);
        if (r < 0)
            break;
    }
    if (r == 0) {
        names.names = paths;
        names.n_names = i;
        message.body_case = PINSERVE__MESSAGE__BODY_DATASET_FDS;
        message.dataset_fds = &names;
        r = chunk_post(connection, &message, fds, i, failure);
    }
    for (size_t k = 0; k < i; k++)
        close_fd(&fds[k]);
    return r < 0 ? r : (int)i;
}

/* Its own paths: a folder and perhaps its list, or a file and perhaps that of its labels. */
static int paths_add_named(struct paths *paths, const struct pinclient_spec *spec,
                           struct failure *failure)
{
    int r = paths_add(paths, spec->source_text, strdup(spec->source_path), failure);

    if (r == 0 && spec->labels_path)
        r = paths_add(paths, spec->source_text, strdup(spec->labels_path), failure);
    if (r == 0 && spec->list_path)
        r = paths_add(paths, spec->source_text, strdup(spec->list_path), failure);
    return r;
}

/* The files of one pattern, with what belongs to them. */
static int paths_add_pattern(struct paths *paths, Pinserve__SourceKind kind, const char *pattern,
                             size_t *added_p, struct failure *failure)
{
    size_t left = paths->max - paths->n, n = 0;
    char **list = NULL;

    int r = dataset_expand(paths->kind, pattern, left, &list, &n, failure);
    if (r == 0 && kind == PINSERVE__SOURCE_KIND__SOURCE_TOKENS)
        r = dataset_pair(left, &list, &n, failure);
    *added_p = n;
    for (size_t i = 0; i < n; i++) {
        char *path = steal_ptr(list[i]);
        if (r == 0)
            r = paths_add(paths, pattern, steal_ptr(path), failure);
        free(path);
    }
    free(list);
    return r;
}

static int paths_add_blend(struct paths *paths, Pinserve__SourceKind kind, struct spec_blend *blend,
                           struct failure *failure)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < blend->n; i++) {
        size_t n = 0;
        r = paths_add_pattern(paths, kind, blend->parts[i].name, &n, failure);
        blend->parts[i].files = (uint32_t)n;
    }
    return r;
}

int dataset_send(const struct pinclient_spec *spec, struct spec_blend *blend,
                 struct connection *connection, struct failure *failure)
{
    Pinserve__SourceKind kind = spec->source.kind;
    cleanup(paths_deinit) struct paths paths = {.kind = kind_name(kind), .max = 2};
    size_t n = 0;
    int r;

    if (!spec->source_path)
        return 0;
    if (kind == PINSERVE__SOURCE_KIND__SOURCE_FOLDER ||
        kind == PINSERVE__SOURCE_KIND__SOURCE_RECORDS) {
        r = paths_add_named(&paths, spec, failure);
    } else {
        paths.max = connection_hello(connection)->limits->dataset_fds;
        r = blend ? paths_add_blend(&paths, kind, blend, failure)
                  : paths_add_pattern(&paths, kind, spec->source_path, &n, failure);
    }
    for (size_t sent = 0; r >= 0 && sent < paths.n; sent += (size_t)r)
        r = chunk_send(kind, &paths, sent, connection, failure);
    return r < 0 ? r : 0;
}
