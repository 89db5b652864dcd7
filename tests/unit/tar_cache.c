/*
 * Saved indexes of tar shards: equal to those that were built, or not used.
 */
#include "source/tar_cache.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <xxhash.h>

#include <cmocka.h>

#include "group_dir.h"
#include "tar_shard.h"

#define FIELDS "json:64+image+cls"

static const struct member members[] = {
    {"README", "x", 0},      {"a/1.jpg", "image", 0}, {"a/1.cls", "3", 0}, {"a/1.json", "{}", 0},
    {"a/2.json", "[1]", 0},  {"a/2.cls", "-9", 0},    {"a/2.png", "P", 0}, {"a/2.jpg", "J", 0},
    {"a/3.webp", "WEBP", 0}, {"a/3.json", "", 0},     {"a/3.cls", "7", 0},
};
#define MEMBERS (sizeof members / sizeof members[0])
#define SAMPLES 3

/* A source of two shards, a cache, and a place to load into. */
struct world {
    struct index_cache *cache;
    char path[160]; /* of the cache */
    int fds[2];
    struct source *source;
    struct tar *built;
    struct tar loaded;    /* shares shards and fields with built */
    struct source loader; /* whose skipped counts */
};

static void world_init(struct world *world, const char *fields)
{
    static const char *const names[] = {"0.tar", "1.tar"};
    static unsigned serial;
    struct failure failure = {0};

    *world = (struct world){.loader.refs = 1};
    snprintf(world->path, sizeof world->path, "%s/%u", dir.path, serial++);
    assert_int_equal(index_cache_new(world->path, 1 << 20, &world->cache, NULL), 0);
    world->fds[0] = tar_make(PAX, members, MEMBERS);
    world->fds[1] = tar_make(USTAR, members, MEMBERS);
    struct source_spec spec = spec_of(world->fds, names, 2);
    spec.fields = fields;
    if (source_new(&spec, NULL, &world->source, &failure) != 0)
        fail_msg("%s", failure.text);
    world->built = world->source->index;
    world->loaded = (struct tar){.arena.name = "s",
                                 .fields = world->built->fields,
                                 .shards = world->built->shards,
                                 .n_shards = 2};
}

static void world_deinit(struct world *world)
{
    array_deinit(&world->loaded.samples);
    array_deinit(&world->loaded.parts);
    array_deinit(&world->loaded.text);
    source_unref(world->source);
    index_cache_free(world->cache);
    close(world->fds[0]);
    close(world->fds[1]);
}

static void text_equal(const struct tar *a, const struct tar *b)
{
    assert_int_equal(a->text.n, b->text.n);
    assert_memory_equal(a->text.items, b->text.items, a->text.n);
}

/* Saves as if the shard was indexed when it had been left alone for a while: the second one is the
 * last of what was built. */
static void save_settled(struct world *world, size_t shard)
{
    struct tar *tar = world->built;
    const char *text = tar->text.items;
    struct tar_mark mark = {.samples = shard * SAMPLES, .time.tv_sec = time(NULL) + 10};
    size_t samples = tar->samples.n, parts = tar->parts.n, size = tar->text.n;

    /* Both have the same texts. */
    mark.text = shard * size / 2;
    assert_memory_equal(text, text + size / 2, size / 2);
    if (shard == 0) {
        tar->samples.n = SAMPLES;
        tar->parts.n = parts / 2;
        tar->text.n = size / 2;
    }
    mark.skipped = shard;
    world->source->skipped = shard + 1;
    tar_cache_save(world->cache, world->source, tar, shard, &mark);
    tar->samples.n = samples;
    tar->parts.n = parts;
    tar->text.n = size;
}

static int load(struct world *world, size_t shard)
{
    struct failure failure = {0};

    return tar_cache_load(world->cache, &world->loader, &world->loaded, shard, &failure);
}

static void what_is_loaded_is_what_was_built(void **state)
{
    static const char *const fields[] = {NULL, FIELDS, "json:9"};

    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        struct world world;

        world_init(&world, fields[i]);
        assert_int_equal(world.source->skipped, 2);
        assert_int_equal(load(&world, 0), 0);
        save_settled(&world, 0);
        save_settled(&world, 1);
        assert_int_equal(load(&world, 0), 1);
        assert_int_equal(world.loaded.samples.n, SAMPLES);
        assert_int_equal(load(&world, 1), 1);
        const struct tar *built = world.built, *loaded = &world.loaded;
        assert_int_equal(loaded->samples.n, 2 * SAMPLES);
        assert_memory_equal(loaded->samples.items, built->samples.items,
                            2 * SAMPLES * sizeof(struct tar_sample));
        assert_int_equal(loaded->parts.n, built->parts.n);
        assert_memory_equal(loaded->parts.items, built->parts.items,
                            built->parts.n * sizeof(struct tar_part));
        text_equal(loaded, built);
        assert_int_equal(world.loader.skipped, 2);
        world_deinit(&world);
    }
}

static void a_source_from_saved_indexes_is_the_same(void **state)
{
    static const char *const names[] = {"0.tar", "1.tar"};
    struct source *again = NULL;
    struct world world;
    struct source_progress progress = {0};

    (void)state;
    world_init(&world, FIELDS);
    save_settled(&world, 0);
    save_settled(&world, 1);
    struct source_spec spec = spec_of(world.fds, names, 2);
    spec.fields = FIELDS;
    spec.cache = world.cache;
    assert_int_equal(source_new(&spec, &progress, &again, NULL), 0);
    assert_int_equal(progress.indexed, 2 * SAMPLES);
    assert_int_equal(source_fingerprint(again), source_fingerprint(world.source));
    expect_sample(again, 4, &members[7], -9);
    source_unref(again);
    progress.cancelled = true;
    assert_int_equal(source_new(&spec, &progress, &again, NULL), -ECANCELED);
    world_deinit(&world);
}

/* -- what is not used ------------------------------------------------------------------------- */

struct saved_file {
    _Alignas(8) uint8_t bytes[4096];
    size_t size;
    char path[256];
};

static void file_read(const struct world *world, struct saved_file *file)
{
    DIR *folder = opendir(world->path);
    struct dirent *entry;

    assert_non_null(folder);
    do
        entry = readdir(folder);
    while (entry && entry->d_name[0] == '.');
    assert_non_null(entry);
    snprintf(file->path, sizeof file->path, "%s/%.40s", world->path, entry->d_name);
    closedir(folder);
    FILE *stream = fopen(file->path, "r");
    assert_non_null(stream);
    file->size = fread(file->bytes, 1, sizeof file->bytes, stream);
    fclose(stream);
    assert_in_range(file->size, sizeof(struct tar_cache_header), sizeof file->bytes - 1);
}

static void hash_again(uint8_t *bytes, size_t size)
{
    uint64_t hash = XXH64(bytes, size - sizeof hash, 0);

    memcpy(bytes + size - sizeof hash, &hash, sizeof hash);
}

/* Through the file, too, which is then as it was. */
static void expect_unused(struct world *world, const struct saved_file *file, size_t size,
                          const char *reason)
{
    const char *why = NULL;
    FILE *stream = fopen(file->path, "w");

    assert_non_null(stream);
    assert_int_equal(fwrite(file->bytes, 1, size, stream), size);
    fclose(stream);
    assert_int_equal(load(world, 0), 0);
    assert_int_equal(
        tar_cache_parse(file->bytes, size, &world->loader, &world->loaded, 0, &why, NULL), 0);
    assert_non_null(why);
    if (reason && !strstr(why, reason))
        fail_msg("\"%s\", not \"%s\"", why, reason);
    assert_int_equal(world->loaded.samples.n + world->loaded.parts.n + world->loaded.text.n, 0);
}

static void another_header_is_not_used(void **state)
{
    static const struct {
        size_t offset;
        const char *reason;
    } cases[] = {
#define CASE(member, reason) {offsetof(struct tar_cache_header, member), reason}
        CASE(magic, "another format"),        CASE(version, "another format"),
        CASE(n_parts, "another file"),        CASE(dev, "another file"),
        CASE(inode, "another file"),          CASE(bytes, "an earlier state"),
        CASE(modified_s, "an earlier state"), CASE(modified_ns, "an earlier state"),
        CASE(changed_s, "an earlier state"),  CASE(changed_ns, "an earlier state"),
        CASE(uid, "another file, user"),      CASE(fields_bytes, "another file"),
        CASE(text_bytes, "other counts"),     CASE(samples, "other counts"),
#undef CASE
    };
    struct saved_file file;
    struct world world;

    (void)state;
    world_init(&world, FIELDS);
    save_settled(&world, 0);
    file_read(&world, &file);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int change = 1; change < 256; change += 85) {
            file.bytes[cases[i].offset] ^= (uint8_t)change;
            hash_again(file.bytes, file.size);
            expect_unused(&world, &file, file.size, cases[i].reason);
            file.bytes[cases[i].offset] ^= (uint8_t)change;
        }
    }
    file.bytes[sizeof(struct tar_cache_header)] ^= 1;
    hash_again(file.bytes, file.size);
    expect_unused(&world, &file, file.size, "another choice of fields");
    world_deinit(&world);
}

static void cut_and_flipped_bytes_are_not_used(void **state)
{
    struct saved_file file;
    struct world world;

    (void)state;
    world_init(&world, FIELDS);
    save_settled(&world, 0);
    file_read(&world, &file);
    for (size_t i = 0; i < file.size; i++)
        expect_unused(&world, &file, i, NULL);
    for (size_t i = 0; i < file.size; i++) {
        file.bytes[i] ^= (uint8_t)(1u << i % 8);
        expect_unused(&world, &file, file.size, NULL);
        file.bytes[i] ^= (uint8_t)(1u << i % 8);
    }
    hash_again(file.bytes, file.size + 8);
    expect_unused(&world, &file, file.size + 8, "other counts");
    world_deinit(&world);
}

/* Whole, and with the right sum, but not made by us. */
static void places_that_are_not_there_are_not_used(void **state)
{
    enum { PARTS = 2 };
    struct saved_file file, before;
    struct world world;

    (void)state;
    world_init(&world, FIELDS);
    save_settled(&world, 0);
    file_read(&world, &before);
    size_t samples = sizeof(struct tar_cache_header) + (sizeof FIELDS + 7) / 8 * 8;
    size_t parts = samples + SAMPLES * sizeof(struct tar_sample);
    size_t texts = parts + SAMPLES * PARTS * sizeof(struct tar_part);
    const struct {
        size_t at;
        uint64_t value;
        size_t bytes;
    } cases[] = {
        {samples, 1, 8},              /* in the midst of a name */
        {samples, 1u << 30, 8},       /* beyond the texts */
        {samples, UINT64_MAX, 8},     /* the same, negative */
        {samples + 16, 0, 8},         /* the same name again */
        {parts, 1u << 30, 8},         /* beyond the shard */
        {parts, UINT64_MAX - 2, 8},   /* and around */
        {parts + 8, 100000, 4},       /* longer than the shard */
        {parts + 16 + 8, 100000, 4},  /* the second part of it */
        {texts, 0x58585858585858, 8}, /* a name without a field */
        {before.size - 9, 'x', 1},    /* texts without an end */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        file = before;
        memcpy(file.bytes + cases[i].at, &cases[i].value, cases[i].bytes);
        hash_again(file.bytes, file.size);
        expect_unused(&world, &file, file.size, "names places");
    }
    world_deinit(&world);
}

static void shards_that_changed_are_not_saved(void **state)
{
    struct tar_mark mark;
    struct world world;

    (void)state;
    world_init(&world, NULL);
    /* Just now. */
    tar_mark_take(world.source, world.built, &mark);
    mark.samples = SAMPLES;
    mark.text = world.built->text.n / 2;
    tar_cache_save(world.cache, world.source, world.built, 1, &mark);
    assert_int_equal(load(&world, 1), 0);
    /* While it was being indexed. */
    usleep(20000); /* a clock tick of the file system */
    assert_int_equal(pwrite(world.fds[1], "x", 1, 512), 1);
    save_settled(&world, 1);
    assert_int_equal(load(&world, 1), 0);
    assert_int_equal(rmdir(world.path), 0);
    world_deinit(&world);
}

static void one_users_is_not_anothers(void **state)
{
    struct identity other = {.uid = geteuid() + 1};
    struct world world;

    (void)state;
    world_init(&world, NULL);
    save_settled(&world, 0);
    world.loader.has_identity = true;
    world.loader.identity = other;
    assert_int_equal(load(&world, 0), 0);
    world.loader.identity.uid = geteuid();
    assert_int_equal(load(&world, 0), 1);
    world_deinit(&world);
}

static void the_bound_on_an_index_holds(void **state)
{
    struct failure failure = {0};
    struct world world;

    (void)state;
    world_init(&world, NULL);
    save_settled(&world, 0);
    world.loaded.arena.max = 100;
    assert_int_equal(tar_cache_load(world.cache, &world.loader, &world.loaded, 0, &failure), 0);
    world.loaded.arena.max = 4096;
    world.loaded.arena.used = 4090;
    assert_int_equal(tar_cache_load(world.cache, &world.loader, &world.loaded, 0, &failure),
                     -E2BIG);
    assert_non_null(strstr(failure.text, "limits.index"));
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tar_test(what_is_loaded_is_what_was_built),
        tar_test(a_source_from_saved_indexes_is_the_same),
        tar_test(another_header_is_not_used),
        tar_test(cut_and_flipped_bytes_are_not_used),
        tar_test(places_that_are_not_there_are_not_used),
        tar_test(shards_that_changed_are_not_saved),
        tar_test(one_users_is_not_anothers),
        tar_test(the_bound_on_an_index_holds),
    };

    return cmocka_run_group_tests_name("tar_cache", tests, dir_make, dir_remove);
}
