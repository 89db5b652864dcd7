/*
 * The index of one tar shard. libarchive reads the headers in all dialects;
 * the data between them is jumped over, and where it lies is kept.
 *
 * Members of one sample stand together. A key that comes again later is an
 * error: its sample would have been served in parts.
 */
#include "source/tar.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

#include "log.h"
#include "proto/cleanup.h"

#define BLOCK 512u
/* Read for each header: little, since an image follows it; enough for a .cls and the next header.
 */
#define READ_SIZE 8192u
#define LABEL_BYTES_MAX 64u
#define FIELDS_TEXT_MAX 256u

/* Kinds of image by their field, the most wanted first. */
static const char *const image_fields[] = {"jpg", "jpeg", "png", "webp"};
#define IMAGE_NONE (sizeof image_fields / sizeof image_fields[0])

/* The sample whose members are being read. */
struct open_sample {
    bool open;
    uint64_t key; /* in text */
    size_t image; /* in image_fields, or IMAGE_NONE */
    char fields[FIELDS_TEXT_MAX];
    struct tar_member member;
};

struct shard_walk {
    struct source *source;
    struct tar *tar;
    const struct tar_shard *shard;
    struct failure *failure;
    uint64_t position; /* of libarchive, in the file */
    uint64_t end;      /* of the last member with its padding */
    struct open_sample sample;
    struct array keys;   /* char: of this shard */
    uint64_t *key_table; /* positions in keys, plus one; 0: free. Open addressing */
    size_t n_keys, key_slots;
    uint8_t buffer[READ_SIZE];
};

const char *tar_field(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    const char *dot = strchr(base, '.');

    return dot && dot > base && dot[1] ? dot + 1 : NULL;
}

static const char *key_at(const struct shard_walk *walk, uint64_t position)
{
    return (const char *)walk->keys.items + position;
}

/* -- keys that were seen --------------------------------------------------------------------- */

static size_t key_slot(const struct shard_walk *walk, const char *key)
{
    size_t slot = XXH64(key, strlen(key), 0) & (walk->key_slots - 1);

    while (walk->key_table[slot] != 0 && strcmp(key_at(walk, walk->key_table[slot] - 1), key) != 0)
        slot = (slot + 1) & (walk->key_slots - 1);
    return slot;
}

static int key_table_grow(struct shard_walk *walk)
{
    struct arena *arena = &walk->tar->arena;
    size_t slots = walk->key_slots ? walk->key_slots * 2 : 256;
    struct array grown = {0};

    int r = array_reserve(&grown, slots, sizeof(uint64_t), arena, walk->failure);
    if (r < 0)
        return r;
    memset(grown.items, 0, slots * sizeof(uint64_t));
    uint64_t *old = walk->key_table;
    size_t old_slots = walk->key_slots;
    walk->key_table = grown.items;
    walk->key_slots = slots;
    for (size_t i = 0; i < old_slots; i++) {
        if (old[i] != 0)
            walk->key_table[key_slot(walk, key_at(walk, old[i] - 1))] = old[i];
    }
    arena->used -= old_slots * sizeof(uint64_t);
    free(old);
    return 0;
}

/* Notes a key; it has not been there before in this shard. */
static int key_add(struct shard_walk *walk, const char *key, uint64_t *position_p)
{
    struct tar *tar = walk->tar;
    uint64_t position;

    if (walk->n_keys >= walk->key_slots / 2) {
        int r = key_table_grow(walk);
        if (r < 0)
            return r;
    }
    size_t slot = key_slot(walk, key);
    if (walk->key_table[slot] != 0)
        return failure_set(walk->failure, -EINVAL,
                           "shard %s: key %s comes again after other keys; the members of one "
                           "sample must stand together (sort the names when making the tar)",
                           walk->shard->file.name, key);
    int r = array_append_string(&walk->keys, key, &tar->arena, &position, walk->failure);
    if (r < 0)
        return r;
    walk->key_table[slot] = position + 1;
    walk->n_keys++;
    *position_p = position;
    return 0;
}

/* -- samples --------------------------------------------------------------------------------- */

static int sample_close(struct shard_walk *walk)
{
    struct open_sample *sample = &walk->sample;
    struct tar *tar = walk->tar;

    if (!sample->open)
        return 0;
    sample->open = false;
    if (sample->image == IMAGE_NONE)
        return failure_set(
            walk->failure, -EINVAL,
            "shard %s: sample %s has no field jpg, jpeg, png or webp; its fields are: %s",
            walk->shard->file.name, key_at(walk, sample->key), sample->fields);
    int r = array_reserve(&tar->members, 1, sizeof sample->member, &tar->arena, walk->failure);
    if (r < 0)
        return r;
    struct tar_member *members = tar->members.items;
    members[tar->members.n++] = sample->member;
    return 0;
}

static int sample_open(struct shard_walk *walk, const char *key)
{
    struct open_sample *sample = &walk->sample;

    if (sample->open && strcmp(key_at(walk, sample->key), key) == 0)
        return 0;
    int r = sample_close(walk);
    if (r < 0)
        return r;
    *sample = (struct open_sample){.image = IMAGE_NONE, .member.label = LABEL_NONE};
    r = key_add(walk, key, &sample->key);
    sample->open = r == 0;
    return r;
}

/* Keeps the names of fields, as "jpg, cls", as far as there is room. */
static void fields_note(struct open_sample *sample, const char *field)
{
    size_t n = strlen(sample->fields);

    snprintf(sample->fields + n, sizeof sample->fields - n, "%s%s", n ? ", " : "", field);
}

static int image_set(struct shard_walk *walk, size_t image, const char *name, uint64_t offset,
                     uint64_t size)
{
    struct open_sample *sample = &walk->sample;
    struct tar *tar = walk->tar;

    if (image == sample->image)
        return failure_set(walk->failure, -EINVAL, "shard %s: %s at %" PRIu64 " is there twice",
                           walk->shard->file.name, name, offset);
    if (image > sample->image)
        return 0;
    if (size > SAMPLE_BYTES_MAX)
        return failure_set(walk->failure, -EFBIG,
                           "shard %s: %s at %" PRIu64 " has %" PRIu64
                           " bytes, over the limit of 256 MiB",
                           walk->shard->file.name, name, offset, size);
    sample->image = image;
    sample->member.offset = offset;
    sample->member.size = (uint32_t)size;
    return array_append_string(&tar->text, name, &tar->arena, &sample->member.name, walk->failure);
}

/* A label is an integer in ASCII, with blanks around it at most. */
static int label_set(struct shard_walk *walk, const char *name, uint64_t offset, uint64_t size)
{
    char text[LABEL_BYTES_MAX + 1] = "";
    char *end = text;
    long long label = 0;
    int r = 0;

    errno = EINVAL;
    if (size <= LABEL_BYTES_MAX) {
        r = source_read_exactly(walk->shard->file.fd, text, (size_t)size, offset);
        if (r < 0)
            return failure_set(walk->failure, r, "shard %s: %s at %" PRIu64 ": %s",
                               walk->shard->file.name, name, offset, strerror(-r));
        errno = 0;
        label = strtoll(text, &end, 10);
        if (end == text)
            errno = EINVAL;
    }
    end += strspn(end, " \t\r\n");
    if (errno != 0 || end != text + size)
        return failure_set(walk->failure, -EINVAL,
                           "shard %s: %s at %" PRIu64 " is not an integer: \"%.*s\"",
                           walk->shard->file.name, name, offset, 32, text);
    walk->sample.member.label = label;
    return 0;
}

static int member_add(struct shard_walk *walk, const char *name, uint64_t offset, uint64_t size)
{
    const char *field = tar_field(name);

    if (!field) {
        walk->source->skipped++;
        return 0;
    }
    cleanup_free char *key = strndup(name, (size_t)(field - 1 - name));
    if (!key)
        return failure_set(walk->failure, -ENOMEM, "shard %s: no memory", walk->shard->file.name);
    int r = sample_open(walk, key);
    if (r < 0)
        return r;
    fields_note(&walk->sample, field);
    for (size_t i = 0; i < IMAGE_NONE; i++) {
        if (strcasecmp(field, image_fields[i]) == 0)
            return image_set(walk, i, name, offset, size);
    }
    return strcasecmp(field, "cls") == 0 ? label_set(walk, name, offset, size) : 0;
}

/* -- the archive ----------------------------------------------------------------------------- */

static la_ssize_t archive_bytes(struct archive *archive, void *data, const void **buffer_p)
{
    struct shard_walk *walk = data;
    ssize_t n;

    do {
        n = pread(walk->shard->file.fd, walk->buffer, sizeof walk->buffer, (off_t)walk->position);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        archive_set_error(archive, errno, "%s", strerror(errno));
        return ARCHIVE_FATAL;
    }
    walk->position += (uint64_t)n;
    *buffer_p = walk->buffer;
    return n;
}

static la_int64_t archive_jump(struct archive *archive, void *data, la_int64_t request)
{
    struct shard_walk *walk = data;
    uint64_t size = (uint64_t)walk->shard->file.st.st_size;
    uint64_t left = size > walk->position ? size - walk->position : 0;
    uint64_t jump = (uint64_t)request < left ? (uint64_t)request : left;

    (void)archive;
    walk->position += jump;
    return (la_int64_t)jump;
}

/* What else comes under the name .tar. */
static int signature_check(struct shard_walk *walk)
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
    const struct tar_shard *shard = walk->shard;

    if (shard->file.st.st_size == 0)
        return failure_set(walk->failure, -EBADMSG, "shard %s is empty: 0 bytes", shard->file.name);
    int r = source_read_exactly(shard->file.fd, bytes, sizeof bytes, 0);
    if (r < 0 && r != -ENODATA)
        return failure_set(walk->failure, r, "shard %s: %s", shard->file.name, strerror(-r));
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++) {
        if (memcmp(bytes, signatures[i].bytes, signatures[i].size) == 0)
            return failure_set(
                walk->failure, -EINVAL,
                "shard %s is compressed with %s and cannot be read at any offset; %s",
                shard->file.name, signatures[i].name, signatures[i].what_to_do);
    }
    return 0;
}

/* The samples of this shard that end before the member name. */
static size_t samples_before(const struct shard_walk *walk, const char *name)
{
    const struct open_sample *sample = &walk->sample;
    size_t n = walk->tar->members.n - (size_t)walk->shard->first_sample;

    if (!sample->open || sample->image == IMAGE_NONE)
        return n;
    const char *key = key_at(walk, sample->key);
    size_t size = strlen(key);
    bool same = strncmp(name, key, size) == 0 && tar_field(name) == name + size + 1;
    return same ? n : n + 1;
}

/* 0, or 1 when the file ends with the data of this member, without padding and end marks. */
static int member_check(struct shard_walk *walk, const char *name, uint64_t offset, uint64_t size)
{
    uint64_t file_size = (uint64_t)walk->shard->file.st.st_size;

    if (offset > file_size || size > file_size - offset)
        return failure_set(walk->failure, -EBADMSG,
                           "shard %s is cut off at %" PRIu64 ": %s at %" PRIu64 " has %" PRIu64
                           " bytes; samples before it: %zu",
                           walk->shard->file.name, file_size, name, offset, size,
                           samples_before(walk, name));
    walk->end = (offset + size + BLOCK - 1) / BLOCK * BLOCK;
    return walk->end > file_size;
}

static int entry_add(struct shard_walk *walk, struct archive *archive, struct archive_entry *entry)
{
    uint64_t offset = (uint64_t)archive_filter_bytes(archive, 0);
    uint64_t size = (uint64_t)archive_entry_size(entry);
    const char *name = archive_entry_pathname(entry);
    const char *link = archive_entry_hardlink(entry);

    if (!name)
        return failure_set(walk->failure, -EBADMSG,
                           "shard %s: the member before %" PRIu64 " has a name that cannot be read",
                           walk->shard->file.name, offset);
    if (strncmp(name, "./", 2) == 0)
        name += 2;
    if (link)
        return failure_set(
            walk->failure, -EINVAL,
            "shard %s: %s is a hard link to %s; make the tar with --hard-dereference",
            walk->shard->file.name, name, link);
    if (archive_entry_sparse_count(entry) > 0)
        return failure_set(walk->failure, -EINVAL,
                           "shard %s: %s is stored sparse; make the tar without --sparse",
                           walk->shard->file.name, name);
    int cut = member_check(walk, name, offset, size);
    if (cut < 0)
        return cut;
    if (archive_entry_filetype(entry) != AE_IFREG) {
        walk->source->skipped += archive_entry_filetype(entry) != AE_IFDIR;
        return cut;
    }
    int r = member_add(walk, name, offset, size);
    return r < 0 ? r : cut;
}

static int archive_walk(struct shard_walk *walk, struct archive *archive,
                        struct source_progress *progress)
{
    struct archive_entry *entry;
    int r = 0;

    archive_read_support_format_tar(archive);
    if (archive_read_open2(archive, walk, NULL, archive_bytes, archive_jump, NULL) != ARCHIVE_OK)
        return failure_set(walk->failure, -EBADMSG, "shard %s is not a tar: %s",
                           walk->shard->file.name, archive_error_string(archive));
    while (r == 0) {
        int status = archive_read_next_header(archive, &entry);
        if (status == ARCHIVE_EOF)
            break;
        if (status != ARCHIVE_OK && status != ARCHIVE_WARN)
            return failure_set(walk->failure, -EBADMSG,
                               "shard %s: bad tar header at %" PRIu64 ": %s",
                               walk->shard->file.name, walk->end, archive_error_string(archive));
        r = entry_add(walk, archive, entry);
        if (r >= 0 &&
            source_progress_set(walk->source, progress, walk->tar->members.n, walk->failure) < 0)
            return -ECANCELED;
    }
    if (r < 0)
        return r;
    if ((uint64_t)walk->shard->file.st.st_size <= walk->end)
        log_warning("shard %s ends at %jd without a tar's end marks; its members are whole",
                    walk->shard->file.name, (intmax_t)walk->shard->file.st.st_size);
    r = sample_close(walk);
    if (r < 0)
        return r;
    return source_progress_set(walk->source, progress, walk->tar->members.n, walk->failure);
}

static void free_archive(struct archive **archive)
{
    if (*archive)
        archive_read_free(*archive);
}

/* Names in pax headers are UTF-8, and libarchive converts them to the thread's locale: let it be
 * one in which this changes nothing. */
static int walk_in_utf8(struct shard_walk *walk, struct source_progress *progress)
{
    cleanup(free_archive) struct archive *archive = archive_read_new();
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);

    if (!archive) {
        if (utf8)
            freelocale(utf8);
        return failure_set(walk->failure, -ENOMEM, "shard %s: no memory", walk->shard->file.name);
    }
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    int r = archive_walk(walk, archive, progress);
    if (utf8) {
        uselocale(before);
        freelocale(utf8);
    }
    return r;
}

int tar_shard_index(struct source *source, struct tar *tar, size_t shard,
                    struct source_progress *progress, struct failure *failure)
{
    cleanup_free struct shard_walk *walk = calloc(1, sizeof *walk);
    uint64_t members = tar->members.n;

    if (!walk)
        return failure_set(failure, -ENOMEM, "shard %s: no memory", tar->shards[shard].file.name);
    tar->shards[shard].first_sample = members;
    walk->source = source;
    walk->tar = tar;
    walk->shard = &tar->shards[shard];
    walk->failure = failure;
    int r = signature_check(walk);
    if (r == 0)
        r = walk_in_utf8(walk, progress);
    /* The keys were for this shard only. */
    tar->arena.used -= walk->keys.capacity + walk->key_slots * sizeof(uint64_t);
    array_deinit(&walk->keys);
    free(walk->key_table);
    return r;
}
