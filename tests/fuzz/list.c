/*
 * Fuzz target: any bytes as a file list, in one piece and in small ones, which
 * must say the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "source/list_file.h"

#define SMALL_PIECES 13

struct bytes {
    const uint8_t *at;
    size_t left, piece;
};

static int bytes_read(void *user, void *to, size_t size)
{
    struct bytes *bytes = user;
    size_t n = bytes->left < size ? bytes->left : size;

    if (n > bytes->piece)
        n = bytes->piece;
    memcpy(to, bytes->at, n);
    bytes->at += n;
    bytes->left -= n;
    return (int)n;
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *byte = bytes;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

static void entry_check(const struct list_entry *entry, bool labelled)
{
    size_t size = strlen(entry->path);

    if (size == 0 || size > LIST_LINE_MAX || *entry->path == '/' || strchr(entry->path, '\n') ||
        entry->path[size - 1] == ' ' || entry->path[size - 1] == '\t' ||
        entry->has_label != labelled)
        abort();
}

/* Of all that the list says, and how it ends. */
static uint64_t list_hash(const uint8_t *data, size_t size, size_t piece)
{
    static struct list_reader reader;
    struct bytes bytes = {.at = data, .left = size, .piece = piece};
    struct list_entry entry;
    struct failure failure = {0};
    uint64_t hash = 0;
    bool labelled = false;
    int r;

    reader.name = "list";
    reader.read = bytes_read;
    reader.user = &bytes;
    reader.line = reader.entries = 0;
    reader.labelled = reader.ended = false;
    reader.begin = reader.end = 0;
    while ((r = list_next(&reader, &entry, &failure)) > 0) {
        labelled = reader.entries == 1 ? entry.has_label : labelled;
        entry_check(&entry, labelled);
        hash = mix(hash, entry.path, strlen(entry.path) + 1);
        if (entry.has_label)
            hash = mix(hash, &entry.label, sizeof entry.label);
        hash = mix(hash, &reader.line, sizeof reader.line);
    }
    if (r < 0 && !strstr(failure.text, "list list:"))
        abort();
    return mix(hash, failure.text, strlen(failure.text));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    uint64_t whole = list_hash(bytes, size, SIZE_MAX);

    if (list_hash(bytes, size, 1 + size % SMALL_PIECES) != whole)
        abort();
    return 0;
}
