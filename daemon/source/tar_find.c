/*
 * Finding a member of a tar: its headers are read, by libarchive in all
 * dialects, until the name comes; the data between them is jumped over.
 */
#include "source/tar_find.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>

#include "proto/cleanup.h"

#define READ_BYTES 8192

struct finder {
    const struct source_file *shard;
    uint64_t position;
    uint8_t buffer[READ_BYTES];
};

static la_ssize_t finder_read(struct archive *archive, void *data, const void **buffer_p)
{
    struct finder *finder = data;
    ssize_t n;

    do {
        n = pread(finder->shard->fd, finder->buffer, sizeof finder->buffer,
                  (off_t)finder->position);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        archive_set_error(archive, errno, "%s", strerror(errno));
        return ARCHIVE_FATAL;
    }
    finder->position += (uint64_t)n;
    *buffer_p = finder->buffer;
    return n;
}

static la_int64_t finder_jump(struct archive *archive, void *data, la_int64_t request)
{
    struct finder *finder = data;
    uint64_t size = (uint64_t)finder->shard->st.st_size;
    uint64_t left = size > finder->position ? size - finder->position : 0;
    uint64_t jump = (uint64_t)request < left ? (uint64_t)request : left;

    (void)archive;
    finder->position += jump;
    return (la_int64_t)jump;
}

static const char *plain_name(const char *name)
{
    return name && strncmp(name, "./", 2) == 0 ? name + 2 : name;
}

static int finder_accept(const struct finder *finder, struct archive *archive,
                         struct archive_entry *entry, uint64_t *offset_p, uint64_t *size_p,
                         struct failure *failure)
{
    const char *shard = finder->shard->name, *name = archive_entry_pathname(entry);
    uint64_t offset = (uint64_t)archive_filter_bytes(archive, 0);
    uint64_t size = (uint64_t)archive_entry_size(entry);
    uint64_t shard_size = (uint64_t)finder->shard->st.st_size;

    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) ||
        archive_entry_sparse_count(entry) > 0)
        return failure_set(failure, -EBADMSG, "shard %s: %s is no plain file", shard, name);
    if (offset > shard_size || size > shard_size - offset)
        return failure_set(failure, -EBADMSG,
                           "shard %s is cut off at %" PRIu64 ": %s at %" PRIu64 " has %" PRIu64
                           " bytes",
                           shard, shard_size, name, offset, size);
    *offset_p = offset;
    *size_p = size;
    return 0;
}

static int finder_walk(struct finder *finder, struct archive *archive, const char *member,
                       uint64_t *offset_p, uint64_t *size_p, struct failure *failure)
{
    const char *shard = finder->shard->name;
    struct archive_entry *entry;

    archive_read_support_format_tar(archive);
    if (archive_read_open2(archive, finder, NULL, finder_read, finder_jump, NULL) != ARCHIVE_OK)
        return failure_set(failure, -EBADMSG, "shard %s is not a plain tar: %s", shard,
                           archive_error_string(archive));
    for (;;) {
        int status = archive_read_next_header(archive, &entry);

        if (status == ARCHIVE_EOF)
            return failure_set(failure, -ENOENT, "shard %s: there is no member %s", shard, member);
        if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
            return failure_set(failure, -EBADMSG, "shard %s: bad tar header before %" PRIu64 ": %s",
                               shard, finder->position, archive_error_string(archive));
        const char *name = plain_name(archive_entry_pathname(entry));

        if (name && strcmp(name, plain_name(member)) == 0)
            return finder_accept(finder, archive, entry, offset_p, size_p, failure);
    }
}

int tar_find(const struct source_file *shard, const char *member, uint64_t *offset_p,
             uint64_t *size_p, struct failure *failure)
{
    struct finder finder = {.shard = shard};
    struct archive *archive = archive_read_new();
    /* Names in pax headers are converted to the thread's locale: this one changes nothing. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    int r;

    if (archive)
        r = finder_walk(&finder, archive, member, offset_p, size_p, failure);
    else
        r = failure_set(failure, -ENOMEM, "shard %s: no memory", shard->name);
    if (archive)
        archive_read_free(archive);
    if (utf8) {
        uselocale(before);
        freelocale(utf8);
    }
    return r;
}
