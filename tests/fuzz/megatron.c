/*
 * Fuzz target: any bytes as an index of Megatron-LM, of a file that has as many
 * bytes as the index's sequences have together, and of one that has not. Where
 * documents begin ascends to the end of the tokens; windows within documents
 * lie in one.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "log.h"
#include "memory_file.h"
#include "source/megatron.h"
#include "source/source.h"

#define SEQ 5
#define HEADER_BYTES 34
#define FILE_BYTES_MAX (UINT64_C(1) << 40) /* sparse */

/* What the index's own lengths add up to. */
static uint64_t file_bytes(const uint8_t *bytes, size_t size)
{
    uint64_t sequences, tokens = 0;

    if (size < HEADER_BYTES)
        return 0;
    memcpy(&sequences, bytes + 18, sizeof sequences);
    for (uint64_t i = 0; i < sequences && HEADER_BYTES + (i + 1) * 4 <= size; i++) {
        int32_t length;
        memcpy(&length, bytes + HEADER_BYTES + i * 4, sizeof length);
        tokens += length > 0 ? (uint64_t)length : 0;
    }
    tokens *= bytes[17] == 4 ? 4 : 2;
    return tokens < FILE_BYTES_MAX ? tokens : FILE_BYTES_MAX;
}

static void read_index(int index_fd, int file_fd)
{
    struct source_file index = SOURCE_FILE_INIT, file = SOURCE_FILE_INIT;
    struct arena arena = {.name = "tokens:x", .max = 1 << 20};
    struct array starts = {0};
    struct megatron megatron;
    struct failure failure;

    if (source_file_take(&index, "index", index_fd, "x.idx", &failure) < 0 ||
        source_file_take(&file, "tokens", file_fd, "x.bin", &failure) < 0)
        abort();
    if (megatron_read(&index, &file, &starts, &arena, NULL, &megatron, &failure) == 0) {
        const uint64_t *at = starts.items;
        if (starts.n != megatron.documents + 1 || at[0] != 0 || at[starts.n - 1] != megatron.tokens)
            abort();
        for (size_t i = 1; i < starts.n; i++) {
            if (at[i] < at[i - 1])
                abort();
        }
    }
    array_deinit(&starts);
    source_file_deinit(&index);
    source_file_deinit(&file);
}

static void read_windows(struct source *source, bool within)
{
    uint64_t n = source_samples(source), at[] = {0, n / 2, n - 1};
    int64_t position[SEQ + 1], document[SEQ + 1], label;
    struct sample_key key = {1, 2, true};
    int32_t tokens[SEQ + 1];
    struct failure failure;

    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        if (source_fill(source, at[i], key, tokens, &label, &failure) < 0 ||
            source_field_fill(source, at[i], key, NULL, 1, position, &failure) < 0 ||
            source_field_fill(source, at[i], key, NULL, 2, document, &failure) < 0)
            abort();
        for (int k = 1; k <= SEQ; k++) {
            bool same = document[k] == document[k - 1];
            if (position[k] != (same ? position[k - 1] + 1 : 0) || document[k] < document[k - 1] ||
                (within && !same))
                abort();
        }
    }
}

static void read_source(int *fds, bool within, bool random)
{
    static const char *const names[] = {"x.bin", "x.idx"};
    struct source *source;
    struct failure failure;
    struct source_spec spec = {
        .kind = SOURCE_KIND_TOKENS,
        .name = "tokens:x.bin",
        .fds = fds,
        .fd_names = names,
        .n_fds = 2,
        .index_bytes_max = 1 << 20,
        .tokens = {.seq = SEQ,
                   .stride = 3,
                   .within = within,
                   .random = random,
                   .position = true,
                   .document = true,
                   .width = SAMPLE_U16,
                   .out = SAMPLE_I32},
    };

    if (source_new(&spec, NULL, &source, &failure) < 0)
        return;
    read_windows(source, within);
    source_unref(source);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    log_init(LOG_LEVEL_ERROR, 1);
    int fds[] = {memory_file("", 0), memory_file(bytes, size)};

    if (ftruncate(fds[0], 24) < 0)
        abort();
    read_index(fds[1], fds[0]);
    if (ftruncate(fds[0], (off_t)file_bytes(bytes, size)) < 0)
        abort();
    read_index(fds[1], fds[0]);
    read_source(fds, true, false);
    read_source(fds, false, false);
    read_source(fds, true, true);
    close(fds[0]);
    close(fds[1]);
    return 0;
}
