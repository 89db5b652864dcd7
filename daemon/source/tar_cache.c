/*
 * Saving and loading the index of a tar shard. Whatever a saved one says is
 * checked before it is used: a place beyond the shard or a name beyond the
 * texts must not get further than here.
 */
#include "source/tar_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "log.h"
#include "proto/cleanup.h"

#define SETTLED_S 2 /* a later write could leave the same time until then */
#define ALIGN 8u

_Static_assert(sizeof(struct tar_cache_header) % ALIGN == 0, "no padding at its end");
_Static_assert(sizeof(struct tar_sample) == 16 && sizeof(struct tar_part) == 16,
               "as they are saved");

static uint64_t uid_of(const struct source *source)
{
    const struct identity *identity = source_identity(source);

    return identity ? identity->uid : geteuid();
}

static const char *fields_text(const struct tar *tar)
{
    return tar->fields.text ? tar->fields.text : "";
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* What a saved index of this shard begins with; counts are to be filled in. */
static void header_init(struct tar_cache_header *header, const struct source *source,
                        const struct tar *tar, size_t shard)
{
    const struct stat *st = &tar->shards[shard].file.st;

    *header = (struct tar_cache_header){
        .magic = TAR_CACHE_MAGIC,
        .version = TAR_CACHE_VERSION,
        .n_parts = tar->fields.n_parts,
        .dev = st->st_dev,
        .inode = st->st_ino,
        .bytes = (uint64_t)st->st_size,
        .modified_s = st->st_mtim.tv_sec,
        .modified_ns = st->st_mtim.tv_nsec,
        .changed_s = st->st_ctim.tv_sec,
        .changed_ns = st->st_ctim.tv_nsec,
        .uid = uid_of(source),
        .fields_bytes = strlen(fields_text(tar)) + 1,
    };
}

static uint64_t name_of(const struct tar_cache_header *header, const struct tar *tar)
{
    uint64_t numbers[] = {header->dev, header->inode, header->uid, header->version};

    return XXH64(fields_text(tar), strlen(fields_text(tar)), XXH64(numbers, sizeof numbers, 0));
}

/* -- loading --------------------------------------------------------------------------------- */

/* A saved index, by its parts. */
struct saved {
    const struct tar_cache_header *header;
    const char *fields, *text;
    const struct tar_sample *samples;
    const struct tar_part *parts;
};

/* NULL, or what is wrong. */
static const char *header_check(const struct tar_cache_header *is,
                                const struct tar_cache_header *wanted)
{
    if (is->magic != wanted->magic || is->version != wanted->version)
        return "has another format";
    if (is->dev != wanted->dev || is->inode != wanted->inode || is->uid != wanted->uid ||
        is->n_parts != wanted->n_parts || is->fields_bytes != wanted->fields_bytes)
        return "is of another file, user or choice of fields";
    if (is->bytes != wanted->bytes || is->modified_s != wanted->modified_s ||
        is->modified_ns != wanted->modified_ns || is->changed_s != wanted->changed_s ||
        is->changed_ns != wanted->changed_ns)
        return "is of an earlier state of the file";
    return NULL;
}

/* Takes the bytes apart, once it is known that they are as many as the header says. */
static const char *saved_init(struct saved *saved, const uint8_t *bytes, size_t size,
                              const struct tar_cache_header *wanted)
{
    const struct tar_cache_header *header = (const void *)bytes;
    uint64_t hash;

    if (size < sizeof *header + sizeof hash)
        return "is cut off";
    const char *why = header_check(header, wanted);
    if (why)
        return why;
    memcpy(&hash, bytes + size - sizeof hash, sizeof hash);
    if (XXH64(bytes, size - sizeof hash, 0) != hash)
        return "is damaged";
    uint64_t each = sizeof(struct tar_sample) + header->n_parts * sizeof(struct tar_part);
    uint64_t left = size - sizeof *header - sizeof hash;
    uint64_t before = aligned(header->fields_bytes);
    if (before > left || header->samples == 0 || header->samples > (left - before) / each ||
        header->text_bytes != left - before - header->samples * each)
        return "has other counts than it has bytes";
    saved->header = header;
    saved->fields = (const char *)(header + 1);
    saved->samples = (const void *)(saved->fields + before);
    saved->parts = (const void *)(saved->samples + header->samples);
    saved->text = (const char *)(saved->parts + header->samples * header->n_parts);
    return NULL;
}

static bool parts_are_within(const struct saved *saved, uint64_t sample)
{
    const struct tar_part *parts = saved->parts + sample * saved->header->n_parts;
    uint64_t shard_bytes = saved->header->bytes, all = 0;

    for (uint32_t i = 0; i < saved->header->n_parts; i++) {
        if (parts[i].offset > shard_bytes || parts[i].size > shard_bytes - parts[i].offset)
            return false;
        all += parts[i].size;
    }
    return all <= SAMPLE_BYTES_MAX;
}

/* Names ascend, as they were appended: so all of them are looked at in one go through the texts. */
static bool samples_are_sound(const struct saved *saved)
{
    uint64_t text_bytes = saved->header->text_bytes, next = 0;

    if (text_bytes == 0 || saved->text[text_bytes - 1] != '\0')
        return false;
    for (uint64_t i = 0; i < saved->header->samples; i++) {
        uint64_t name = saved->samples[i].name;
        if (name < next || name >= text_bytes || (name > 0 && saved->text[name - 1] != '\0') ||
            !tar_field(saved->text + name) || !parts_are_within(saved, i))
            return false;
        next = name + strlen(saved->text + name) + 1;
    }
    return true;
}

static int saved_append(const struct saved *saved, struct source *source, struct tar *tar,
                        struct failure *failure)
{
    const struct tar_cache_header *header = saved->header;
    size_t n = (size_t)header->samples, n_parts = n * header->n_parts;

    int r = array_reserve(&tar->samples, n, sizeof *saved->samples, &tar->arena, failure);
    if (r == 0)
        r = array_reserve(&tar->parts, n_parts, sizeof *saved->parts, &tar->arena, failure);
    if (r == 0)
        r = array_reserve(&tar->text, header->text_bytes, 1, &tar->arena, failure);
    if (r < 0)
        return r;
    struct tar_sample *samples = (struct tar_sample *)tar->samples.items + tar->samples.n;
    for (size_t i = 0; i < n; i++)
        samples[i] =
            (struct tar_sample){saved->samples[i].name + tar->text.n, saved->samples[i].label};
    memcpy((struct tar_part *)tar->parts.items + tar->parts.n, saved->parts,
           n_parts * sizeof *saved->parts);
    memcpy((char *)tar->text.items + tar->text.n, saved->text, header->text_bytes);
    tar->samples.n += n;
    tar->parts.n += n_parts;
    tar->text.n += header->text_bytes;
    source->skipped += header->skipped;
    return 1;
}

int tar_cache_parse(const uint8_t *bytes, size_t size, struct source *source, struct tar *tar,
                    size_t shard, const char **why_p, struct failure *failure)
{
    struct tar_cache_header wanted;
    struct saved saved;

    header_init(&wanted, source, tar, shard);
    *why_p = saved_init(&saved, bytes, size, &wanted);
    if (!*why_p && memcmp(saved.fields, fields_text(tar), wanted.fields_bytes) != 0)
        *why_p = "is of another choice of fields";
    if (!*why_p && !samples_are_sound(&saved))
        *why_p = "names places that are not there";
    return *why_p ? 0 : saved_append(&saved, source, tar, failure);
}

int tar_cache_load(struct index_cache *cache, struct source *source, struct tar *tar, size_t shard,
                   struct failure *failure)
{
    const char *name = tar->shards[shard].file.name;
    uint64_t max = tar->arena.max > 0 ? tar->arena.max : SIZE_MAX / 2;
    struct tar_cache_header header;
    cleanup_free uint8_t *bytes = NULL;
    const char *why = NULL;
    size_t size = 0;

    if (!cache)
        return 0;
    header_init(&header, source, tar, shard);
    int r = index_cache_read(cache, name_of(&header, tar), max, &bytes, &size);
    if (r == -ENOENT)
        return 0;
    if (r < 0) {
        log_info("shard %s: its saved index cannot be read: %s", name, strerror(-r));
        return 0;
    }
    r = tar_cache_parse(bytes, size, source, tar, shard, &why, failure);
    if (why)
        log_info("shard %s: its saved index %s; it is made anew", name, why);
    return r;
}

/* -- saving ---------------------------------------------------------------------------------- */

void tar_mark_take(const struct source *source, const struct tar *tar, struct tar_mark *mark_p)
{
    *mark_p = (struct tar_mark){tar->samples.n, tar->text.n, source->skipped, {0}};
    clock_gettime(CLOCK_REALTIME, &mark_p->time);
}

static bool is_settled(struct timespec changed, const struct tar_mark *mark)
{
    return mark->time.tv_sec - changed.tv_sec > SETTLED_S;
}

/* The shard is as it was before it was indexed, and could not have been written to unnoticed. */
static bool shard_is_settled(const struct source_file *file, const struct tar_mark *mark)
{
    return source_file_matches(file, file->fd, file->name) && is_settled(file->st.st_mtim, mark) &&
           is_settled(file->st.st_ctim, mark);
}

/* Positions in the texts of a shard are from their beginning. */
static struct tar_sample *samples_copy(const struct tar *tar, const struct tar_mark *mark)
{
    size_t n = tar->samples.n - (size_t)mark->samples;
    struct tar_sample *copy = calloc(n + 1, sizeof *copy);

    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = tar_samples(tar)[mark->samples + i];
        copy[i].name -= mark->text;
    }
    return copy;
}

void tar_cache_save(struct index_cache *cache, const struct source *source, const struct tar *tar,
                    size_t shard, const struct tar_mark *mark)
{
    static const uint8_t zeros[ALIGN];
    struct tar_cache_header header;

    if (!cache || tar->samples.n == mark->samples ||
        !shard_is_settled(&tar->shards[shard].file, mark))
        return;
    cleanup_free struct tar_sample *samples = samples_copy(tar, mark);
    if (!samples)
        return;
    header_init(&header, source, tar, shard);
    header.samples = tar->samples.n - mark->samples;
    header.text_bytes = tar->text.n - mark->text;
    header.skipped = source->skipped - mark->skipped;
    uint64_t hash = 0;
    struct iovec pieces[] = {
        {&header, sizeof header},
        {(void *)fields_text(tar), header.fields_bytes},
        {(void *)zeros, aligned(header.fields_bytes) - header.fields_bytes},
        {samples, header.samples * sizeof *samples},
        {(struct tar_part *)tar->parts.items + mark->samples * header.n_parts,
         header.samples * header.n_parts * sizeof(struct tar_part)},
        {(char *)tar->text.items + mark->text, header.text_bytes},
        {&hash, sizeof hash},
    };
    int n = sizeof pieces / sizeof pieces[0];
    XXH64_state_t *state = XXH64_createState();
    if (!state)
        return;
    XXH64_reset(state, 0);
    for (int i = 0; i < n - 1; i++) {
        if (pieces[i].iov_len > 0)
            XXH64_update(state, pieces[i].iov_base, pieces[i].iov_len);
    }
    hash = XXH64_digest(state);
    XXH64_freeState(state);
    index_cache_write(cache, name_of(&header, tar), pieces, n);
}
