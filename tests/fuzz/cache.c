/*
 * Fuzz target: any bytes as the saved index of a tar shard, as they are, then
 * with what tells whose index it is, and the sum, put right, then with counts
 * that fit, too: whatever they say, reading by it stays within the shard and
 * the index.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fuzz.h"
#include "memory_file.h"
#include "source/tar_cache.h"

#define FIELDS "json:64+image+cls"
#define SHARD_BYTES 4096
#define SAMPLES_READ 64

static void loader_init(struct source *source, struct tar *tar, struct tar_shard *shard)
{
    static const uint8_t bytes[SHARD_BYTES];
    struct failure failure;

    *shard = (struct tar_shard){.file = {.fd = memory_file(bytes, sizeof bytes), .name = "x.tar"}};
    shard->file.st = (struct stat){.st_dev = 1, .st_ino = 2, .st_size = SHARD_BYTES};
    *tar = (struct tar){.arena = {.name = "x", .max = 1 << 24}, .shards = shard, .n_shards = 1};
    if (tar_fields_init(&tar->fields, FIELDS, "x", &failure) < 0)
        abort();
    *source = (struct source){.ops = &source_tar_ops,
                              .name = "x",
                              .has_identity = true,
                              .identity = {.uid = 3},
                              .index = tar};
}

static void loader_deinit(struct tar *tar)
{
    close(tar->shards[0].file.fd);
    array_deinit(&tar->samples);
    array_deinit(&tar->parts);
    array_deinit(&tar->text);
    tar_fields_deinit(&tar->fields);
}

static void read_samples(struct source *source, const struct tar *tar)
{
    struct sample sample = {0};
    struct failure failure;
    uint8_t json[64];
    uint32_t json_size;
    char text[256];

    source->samples = tar->samples.n;
    source->n_fields = 2;
    for (uint64_t i = 0; i < source->samples && i < SAMPLES_READ; i++) {
        source_sample_name(source, i, text, sizeof text);
        for (size_t k = 0; k < 2; k++)
            tar_part_name(tar, i, &tar->fields.fields[k], text, sizeof text);
        int r = source_read(source, i, &sample, &failure);
        if (r == -EBADMSG)
            continue;
        if (r < 0 || sample.size > SHARD_BYTES ||
            source_field_fill(source, i, (struct sample_key){0}, &sample, 1, json, &failure) < 0 ||
            source_field_fill(source, i, (struct sample_key){0}, &sample, 2, &json_size, &failure) <
                0 ||
            json_size > sizeof json)
            abort();
    }
    sample_deinit(&sample);
}

static void load(const uint8_t *bytes, size_t size)
{
    struct tar_shard shard;
    struct source source;
    struct failure failure;
    const char *why;
    struct tar tar;

    loader_init(&source, &tar, &shard);
    if (tar_cache_parse(bytes, size, &source, &tar, 0, &why, &failure) == 1)
        read_samples(&source, &tar);
    loader_deinit(&tar);
}

static void counts_put_right(struct tar_cache_header *header, size_t size)
{
    size_t each = sizeof(struct tar_sample) + 2 * sizeof(struct tar_part);
    size_t before = (sizeof FIELDS + 7) / 8 * 8, left = size - sizeof *header - sizeof(uint64_t);

    left = left > before ? left - before : 0;
    header->samples %= left / each + 1;
    header->text_bytes = left - header->samples * each;
}

/* As one would be that was made of this shard. */
static void put_right(uint8_t *bytes, size_t size, bool counts)
{
    struct tar_cache_header *header = (void *)bytes;
    uint64_t hash;

    if (size < sizeof *header + sizeof FIELDS + sizeof hash)
        return;
    if (counts)
        counts_put_right(header, size);
    header->magic = TAR_CACHE_MAGIC;
    header->version = TAR_CACHE_VERSION;
    header->n_parts = 2;
    header->dev = 1;
    header->inode = 2;
    header->bytes = SHARD_BYTES;
    header->modified_s = header->modified_ns = header->changed_s = header->changed_ns = 0;
    header->uid = 3;
    header->fields_bytes = sizeof FIELDS;
    memcpy(header + 1, FIELDS, sizeof FIELDS);
    hash = XXH64(bytes, size - sizeof hash, 0);
    memcpy(bytes + size - sizeof hash, &hash, sizeof hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size + 1); /* aligned, as a file is read */

    if (!copy)
        abort();
    memcpy(copy, bytes, size);
    load(copy, size);
    for (int counts = 0; counts < 2; counts++) {
        put_right(copy, size, counts);
        load(copy, size);
    }
    free(copy);
    return 0;
}
