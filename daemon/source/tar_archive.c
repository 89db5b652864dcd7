/*
 * Walking through a tar. libarchive reads the headers in all dialects; the data
 * between them is jumped over.
 */
#include "source/tar_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/cleanup.h"
#include "source/kind.h"

/* Read for each header: little, since an image follows it; enough for a .cls and the next header.
 */
#define READ_SIZE 8192u

struct walk {
    const struct source_file *shard;
    uint64_t position; /* of libarchive, in the file */
    uint64_t end;      /* of the last member with its padding */
    uint8_t buffer[READ_SIZE];
};

static la_ssize_t walk_read(struct archive *archive, void *data, const void **buffer_p)
{
    struct walk *walk = data;
    ssize_t n;

    do {
        n = pread(walk->shard->fd, walk->buffer, sizeof walk->buffer, (off_t)walk->position);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        archive_set_error(archive, errno, "%s", strerror(errno));
        return ARCHIVE_FATAL;
    }
    walk->position += (uint64_t)n;
    *buffer_p = walk->buffer;
    return n;
}

static la_int64_t walk_jump(struct archive *archive, void *data, la_int64_t request)
{
    struct walk *walk = data;
    uint64_t size = source_file_bytes(walk->shard);
    uint64_t left = size > walk->position ? size - walk->position : 0;
    uint64_t jump = (uint64_t)request < left ? (uint64_t)request : left;

    (void)archive;
    walk->position += jump;
    return (la_int64_t)jump;
}

/* What else comes under the name .tar. */
static int signature_check(const struct source_file *shard, struct failure *failure)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *name, *what_to_do;
    } signatures[] = {
        {"\x1f\x8b", 2, "gzip", "unpack it with gunzip"},
        {"\x28\xb5\x2f\xfd", 4, "zstd", "unpack it with zstd -d"},
        {"\xfd"
         "7zXZ",
         5, "xz", "unpack it with unxz"},
        {"BZh", 3, "bzip2", "unpack it with bunzip2"},
        {"\x04\x22\x4d\x18", 4, "lz4", "unpack it with lz4 -d"},
        {"PK\x03\x04", 4, "zip", "pack its files into a tar"},
    };
    uint8_t bytes[8] = {0};

    if (source_file_bytes(shard) == 0)
        return failure_set(failure, -EBADMSG, "shard %s is empty: 0 bytes", shard->name);
    int r = source_read_exactly(shard->fd, bytes, sizeof bytes, 0);
    if (r < 0 && r != -ENODATA)
        return failure_set(failure, r, "shard %s: %s", shard->name, strerror(-r));
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
        if (memcmp(bytes, signatures[i].bytes, signatures[i].size) == 0)
            return failure_set(
                failure, -EINVAL,
                "shard %s is compressed with %s and cannot be read at any offset; %s", shard->name,
                signatures[i].name, signatures[i].what_to_do);
    }
    return 0;
}

static int entry_visit(struct walk *walk, struct archive *archive, struct archive_entry *header,
                       tar_visitor *visit, void *user, struct failure *failure)
{
    int type = archive_entry_filetype(header);
    struct tar_entry entry = {
        .name = archive_entry_pathname(header),
        .link = archive_entry_hardlink(header),
        .file = type == AE_IFREG,
        .directory = type == AE_IFDIR,
        .sparse = archive_entry_sparse_count(header) > 0,
        .offset = (uint64_t)archive_filter_bytes(archive, 0),
        .size = (uint64_t)archive_entry_size(header),
    };

    if (entry.name && strncmp(entry.name, "./", 2) == 0)
        entry.name += 2;
    walk->end = tar_entry_end(&entry);
    return visit(user, &entry, failure);
}

static int archive_walk(struct walk *walk, struct archive *archive, tar_visitor *visit, void *user,
                        struct failure *failure)
{
    const char *name = walk->shard->name;
    struct archive_entry *header;
    int r = 0;

    archive_read_support_format_tar(archive);
    if (archive_read_open2(archive, walk, NULL, walk_read, walk_jump, NULL) != ARCHIVE_OK)
        return failure_set(failure, -EBADMSG, "shard %s is not a tar: %s", name,
                           archive_error_string(archive));
    while (r == 0) {
        int status = archive_read_next_header(archive, &header);
        if (status == ARCHIVE_EOF)
            break;
        if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
            return failure_set(failure, -EBADMSG, "shard %s: bad tar header at %" PRIu64 ": %s",
                               name, walk->end, archive_error_string(archive));
        r = entry_visit(walk, archive, header, visit, user, failure);
    }
    return r;
}

static void free_archive(struct archive **archive)
{
    if (*archive)
        archive_read_free(*archive);
}

/* Names in pax headers are UTF-8, and libarchive converts them to the thread's locale: let it be
 * one in which this changes nothing. */
int tar_walk(const struct source_file *shard, tar_visitor *visit, void *user,
             struct failure *failure)
{
    cleanup(free_archive) struct archive *archive = NULL;
    struct walk walk = {.shard = shard};

    int r = signature_check(shard, failure);
    if (r < 0)
        return r;
    archive = archive_read_new();
    if (!archive)
        return failure_set(failure, -ENOMEM, "shard %s: no memory", shard->name);
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    r = archive_walk(&walk, archive, visit, user, failure);
    if (utf8) {
        uselocale(before);
        freelocale(utf8);
    }
    return r;
}
