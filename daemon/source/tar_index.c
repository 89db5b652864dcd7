/*
 * The index of one tar shard: what of each sample is wanted, and where it lies.
 *
 * Members of one sample stand together. A key that comes again later is an
 * error: its sample would have been served in parts.
 */
#include "source/tar.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "log.h"
#include "proto/cleanup.h"
#include "source/tar_archive.h"

#define LABEL_BYTES_MAX 64u
#define FIELDS_TEXT_MAX 256u

/* The sample whose members are being read. */
struct open_sample {
    bool open;
    uint64_t key;                   /* in keys */
    uint32_t ranks[TAR_FIELDS_MAX]; /* of the member taken for each field, or TAR_FIELD_NOT */
    char fields[FIELDS_TEXT_MAX];
    struct tar_sample sample;
    struct tar_part parts[TAR_FIELDS_MAX];
};

struct shard_walk {
    struct source *source;
    struct tar *tar;
    const struct tar_shard *shard;
    struct source_progress *progress;
    struct failure *failure;
    uint64_t end; /* of the last member with its padding */
    struct open_sample sample;
    struct failure lacking; /* the first sample without a wanted field, unless it comes again */
    struct array keys;      /* char: of this shard */
    uint64_t *key_table;    /* positions in keys, plus one; 0: free. Open addressing */
    size_t n_keys, key_slots;
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

/* The class may be missing where nobody asked for it by name. */
static bool field_is_there(const struct shard_walk *walk, size_t field)
{
    const struct tar_fields *fields = &walk->tar->fields;

    return walk->sample.ranks[field] != TAR_FIELD_NOT ||
           (fields->fields[field].kind == TAR_FIELD_LABEL && !fields->text);
}

/* 1: a field is missing, which may yet turn out to stand elsewhere. */
static int sample_check(struct shard_walk *walk)
{
    const struct tar_fields *fields = &walk->tar->fields;
    const struct open_sample *sample = &walk->sample;
    const char *shard = walk->shard->file.name;
    uint64_t bytes = 0;

    for (size_t i = 0; i < fields->n; i++) {
        if (field_is_there(walk, i))
            continue;
        if (walk->lacking.code == 0)
            failure_set(&walk->lacking, -EINVAL,
                        "shard %s: sample %s has no field %s; its fields are: %s", shard,
                        key_at(walk, sample->key), tar_field_words(&fields->fields[i]),
                        sample->fields);
        return 1;
    }
    for (uint32_t i = 0; i < fields->n_parts; i++)
        bytes += sample->parts[i].size;
    if (bytes > SAMPLE_BYTES_MAX)
        return failure_set(walk->failure, -EFBIG,
                           "shard %s: the fields of sample %s have %" PRIu64
                           " bytes, over the limit of 256 MiB",
                           shard, key_at(walk, sample->key), bytes);
    return 0;
}

static int sample_close(struct shard_walk *walk)
{
    struct open_sample *sample = &walk->sample;
    struct tar *tar = walk->tar;
    uint32_t n_parts = tar->fields.n_parts;

    if (!sample->open)
        return 0;
    sample->open = false;
    int r = sample_check(walk);
    if (r == 1)
        return 0;
    if (r == 0)
        r = array_reserve(&tar->samples, 1, sizeof sample->sample, &tar->arena, walk->failure);
    if (r == 0)
        r = array_reserve(&tar->parts, n_parts, sizeof sample->parts[0], &tar->arena,
                          walk->failure);
    if (r < 0)
        return r;
    struct tar_sample *samples = tar->samples.items;
    struct tar_part *parts = tar->parts.items;
    samples[tar->samples.n++] = sample->sample;
    memcpy(parts + tar->parts.n, sample->parts, n_parts * sizeof sample->parts[0]);
    tar->parts.n += n_parts;
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
    *sample = (struct open_sample){.sample.label = LABEL_NONE};
    for (size_t i = 0; i < TAR_FIELDS_MAX; i++)
        sample->ranks[i] = TAR_FIELD_NOT;
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

/* A member that is to be read. */
static int part_set(struct shard_walk *walk, uint32_t part, const struct tar_entry *entry)
{
    struct open_sample *sample = &walk->sample;
    struct tar *tar = walk->tar;

    if (entry->size > SAMPLE_BYTES_MAX)
        return failure_set(walk->failure, -EFBIG,
                           "shard %s: %s at %" PRIu64 " has %" PRIu64
                           " bytes, over the limit of 256 MiB",
                           walk->shard->file.name, entry->name, entry->offset, entry->size);
    sample->parts[part] = (struct tar_part){entry->offset, (uint32_t)entry->size, 0};
    if (part > 0)
        return 0;
    return array_append_string(&tar->text, entry->name, &tar->arena, &sample->sample.name,
                               walk->failure);
}

/* A label is an integer in ASCII, with blanks around it at most. */
static int label_set(struct shard_walk *walk, const struct tar_entry *entry)
{
    char text[LABEL_BYTES_MAX + 1] = "";
    const char *shard = walk->shard->file.name;
    char *end = text;
    long long label = 0;
    int r = 0;

    errno = EINVAL;
    if (entry->size <= LABEL_BYTES_MAX) {
        r = source_read_exactly(walk->shard->file.fd, text, (size_t)entry->size, entry->offset);
        if (r < 0)
            return failure_set(walk->failure, r, "shard %s: %s at %" PRIu64 ": %s", shard,
                               entry->name, entry->offset, strerror(-r));
        errno = 0;
        label = strtoll(text, &end, 10);
        if (end == text)
            errno = EINVAL;
    }
    end += strspn(end, " \t\r\n");
    if (errno != 0 || end != text + entry->size)
        return failure_set(walk->failure, -EINVAL,
                           "shard %s: %s at %" PRIu64 " is not an integer: \"%.*s\"", shard,
                           entry->name, entry->offset, 32, text);
    walk->sample.sample.label = label;
    return 0;
}

/* Takes a member for a wanted field, unless a better one was there. */
static int field_take(struct shard_walk *walk, size_t i, uint32_t rank,
                      const struct tar_entry *entry)
{
    const struct tar_field *field = &walk->tar->fields.fields[i];
    uint32_t *taken = &walk->sample.ranks[i];

    if (rank == *taken && field->kind != TAR_FIELD_LABEL)
        return failure_set(walk->failure, -EINVAL, "shard %s: %s at %" PRIu64 " is there twice",
                           walk->shard->file.name, entry->name, entry->offset);
    if (rank > *taken)
        return 0;
    *taken = rank;
    return field->kind == TAR_FIELD_LABEL ? label_set(walk, entry)
                                          : part_set(walk, field->part, entry);
}

static int member_add(struct shard_walk *walk, const struct tar_entry *entry)
{
    const struct tar_fields *fields = &walk->tar->fields;
    const char *name = tar_field(entry->name);

    if (!name) {
        walk->source->skipped++;
        return 0;
    }
    cleanup_free char *key = strndup(entry->name, (size_t)(name - 1 - entry->name));
    if (!key)
        return failure_set(walk->failure, -ENOMEM, "shard %s: no memory", walk->shard->file.name);
    int r = sample_open(walk, key);
    if (r < 0)
        return r;
    fields_note(&walk->sample, name);
    for (size_t i = 0; r == 0 && i < fields->n; i++) {
        uint32_t rank = tar_field_rank(&fields->fields[i], name);
        if (rank != TAR_FIELD_NOT)
            r = field_take(walk, i, rank, entry);
    }
    return r;
}

/* -- the shard ------------------------------------------------------------------------------- */

static uint64_t samples_of_shard(const struct shard_walk *walk)
{
    return walk->tar->samples.n - walk->shard->first_sample;
}

/* The samples of this shard that end before the member name. */
static uint64_t samples_before(const struct shard_walk *walk, const char *name)
{
    const struct open_sample *sample = &walk->sample;
    uint64_t n = samples_of_shard(walk);

    if (!sample->open)
        return n;
    for (size_t i = 0; i < walk->tar->fields.n; i++) {
        if (!field_is_there(walk, i))
            return n;
    }
    const char *key = key_at(walk, sample->key);
    size_t size = strlen(key);
    bool same = strncmp(name, key, size) == 0 && tar_field(name) == name + size + 1;
    return same ? n : n + 1;
}

/* 0, or 1 when the file ends with the data of this member, without padding and end marks. */
static int entry_check(struct shard_walk *walk, const struct tar_entry *entry)
{
    uint64_t file_size = source_file_bytes(&walk->shard->file);
    const char *shard = walk->shard->file.name;

    if (!entry->name)
        return failure_set(walk->failure, -EBADMSG,
                           "shard %s: the member before %" PRIu64 " has a name that cannot be read",
                           shard, entry->offset);
    if (entry->link)
        return failure_set(
            walk->failure, -EINVAL,
            "shard %s: %s is a hard link to %s; make the tar with --hard-dereference", shard,
            entry->name, entry->link);
    if (entry->sparse)
        return failure_set(walk->failure, -EINVAL,
                           "shard %s: %s is stored sparse; make the tar without --sparse", shard,
                           entry->name);
    if (entry->offset > file_size || entry->size > file_size - entry->offset)
        return failure_set(walk->failure, -EBADMSG,
                           "shard %s is cut off at %" PRIu64 ": %s at %" PRIu64 " has %" PRIu64
                           " bytes; samples before it: %" PRIu64,
                           shard, file_size, entry->name, entry->offset, entry->size,
                           samples_before(walk, entry->name));
    walk->end = tar_entry_end(entry);
    return walk->end > file_size;
}

static int entry_add(void *user, const struct tar_entry *entry, struct failure *failure)
{
    struct shard_walk *walk = user;
    int cut = entry_check(walk, entry);
    int r = cut < 0 ? cut : 0;

    if (r == 0 && entry->file)
        r = member_add(walk, entry);
    else if (r == 0)
        walk->source->skipped += !entry->directory;
    if (r == 0)
        r = source_progress_set(walk->source, walk->progress, walk->tar->samples.n, failure);
    return r < 0 ? r : cut;
}

static int shard_walk(struct shard_walk *walk)
{
    const struct source_file *file = &walk->shard->file;
    int r = tar_walk(file, entry_add, walk, walk->failure);

    if (r < 0)
        return r;
    if (source_file_bytes(file) <= walk->end)
        log_warning("shard %s ends at %" PRIu64 " without a tar's end marks; its members are whole",
                    file->name, source_file_bytes(file));
    r = sample_close(walk);
    if (r < 0)
        return r;
    if (walk->lacking.code < 0)
        return failure_set(walk->failure, walk->lacking.code, "%s", walk->lacking.text);
    return source_progress_set(walk->source, walk->progress, walk->tar->samples.n, walk->failure);
}

int tar_shard_index(struct source *source, struct tar *tar, size_t shard,
                    struct source_progress *progress, struct failure *failure)
{
    struct shard_walk walk = {
        .source = source,
        .tar = tar,
        .shard = &tar->shards[shard],
        .progress = progress,
        .failure = failure,
    };

    int r = shard_walk(&walk);
    /* The keys were for this shard only. */
    tar->arena.used -= walk.keys.capacity + walk.key_slots * sizeof(uint64_t);
    array_deinit(&walk.keys);
    free(walk.key_table);
    return r;
}
