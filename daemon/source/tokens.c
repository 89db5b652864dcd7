/*
 * Tokens: files of bare integers, cut into windows of seq + 1 of them, at a
 * stride or at random offsets. A window lies within one file. The index holds
 * two numbers a file; where a window begins is computed.
 *
 * An epoch at random offsets has as many windows as one at a stride of seq;
 * each begins at any place in any file with equal probability.
 */
#include "source/kind.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proto/dtype.h"
#include "source/draw.h"
#include "source/file.h"

#define RANDOM_VERSION 1  /* of where random windows begin */
#define BLOCK_BYTES 16384 /* read at once of what is to be converted */
#define PROGRESS_FILES 64 /* between two looks at the progress */
#define SEQ_MAX (1u << 28)

struct token_file {
    struct source_file file;
    uint64_t first_sample; /* of the windows at a stride */
    uint64_t first_start;  /* of the places where a window may begin */
};

struct tokens {
    struct token_windows windows;
    uint32_t length; /* of a window: seq + 1 */
    uint64_t limit;  /* tokens, as unsigned numbers, are below it; 0: not checked */
    uint64_t starts; /* of all files */
    struct token_file *files;
    size_t n_files;
};

static size_t width_of(const struct tokens *tokens)
{
    return dtype_table[tokens->windows.width].bytes;
}

/* -- reading --------------------------------------------------------------------------------- */

/* Where a window begins. */
struct place {
    const struct token_file *file;
    uint64_t token;
};

/* Files without a window share their first with the next: the last is the one. */
static struct place place_at_stride(const struct tokens *tokens, uint64_t sample)
{
    size_t low = 0;
    size_t high = tokens->n_files;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (tokens->files[middle].first_sample <= sample)
            low = middle;
        else
            high = middle;
    }
    const struct token_file *file = &tokens->files[low];
    return (struct place){file, (sample - file->first_sample) * tokens->windows.stride};
}

static struct place place_at_random(const struct tokens *tokens, uint64_t sample,
                                    struct sample_key key)
{
    struct block random = draw(draw_key(key.seed, key.epoch), sample, 0);
    uint64_t word = (uint64_t)random.word[1] << 32 | random.word[0];
    uint64_t start = (uint64_t)((unsigned __int128)word * tokens->starts >> 64);
    size_t low = 0;
    size_t high = tokens->n_files;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (tokens->files[middle].first_start <= start)
            low = middle;
        else
            high = middle;
    }
    const struct token_file *file = &tokens->files[low];
    return (struct place){file, start - file->first_start};
}

/* The first of n tokens that is not below limit, or n. Whether there is one is asked without a
 * branch, in vector code. */
static size_t find_over_u16(const uint16_t *in, size_t n, uint64_t limit)
{
    uint32_t over = 0;

    if (limit > UINT16_MAX)
        return n;
    for (size_t i = 0; i < n; i++)
        over |= in[i] >= (uint32_t)limit;
    for (size_t i = 0; over && i < n; i++) {
        if (in[i] >= limit)
            return i;
    }
    return n;
}

static size_t find_over_u32(const uint32_t *in, size_t n, uint64_t limit)
{
    uint32_t over = 0;

    if (limit > UINT32_MAX)
        return n;
    for (size_t i = 0; i < n; i++)
        over |= in[i] >= (uint32_t)limit;
    for (size_t i = 0; over && i < n; i++) {
        if (in[i] >= limit)
            return i;
    }
    return n;
}

static int tokens_check(const struct tokens *tokens, const struct place *place, uint64_t done,
                        const void *in, size_t n, struct failure *failure)
{
    const char *name = place->file->file.name;
    bool narrow = tokens->windows.width == SAMPLE_U16;
    size_t at;

    if (tokens->limit == 0)
        return 0;
    at = narrow ? find_over_u16(in, n, tokens->limit) : find_over_u32(in, n, tokens->limit);
    if (at == n)
        return 0;
    int64_t token = narrow ? ((const uint16_t *)in)[at] : ((const uint32_t *)in)[at];
    if (tokens->windows.width == SAMPLE_I32)
        token = (int32_t)token;
    uint64_t offset = (place->token + done + at) * width_of(tokens);
    if (tokens->limit == tokens->windows.vocabulary)
        return failure_set(failure, -EBADMSG,
                           "%s: token %" PRId64 " at byte %" PRIu64
                           " is not in the vocabulary of %" PRIu64,
                           name, token, offset, tokens->windows.vocabulary);
    return failure_set(failure, -EBADMSG,
                       "%s: token %" PRId64 " at byte %" PRIu64
                       " is more than an int32 holds; ask for out=i64",
                       name, token, offset);
}

#define WIDEN(name, from, to)                                                                      \
    static void name(const from *restrict in, to *restrict out, size_t n)                          \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            out[i] = (to)in[i];                                                                    \
    }

WIDEN(widen_u16_i32, uint16_t, int32_t)
WIDEN(widen_u16_i64, uint16_t, int64_t)
WIDEN(widen_u32_i64, uint32_t, int64_t)
WIDEN(widen_i32_i64, int32_t, int64_t)

static void widen(const struct tokens *tokens, const void *in, void *out, uint64_t at, size_t n)
{
    if (tokens->windows.out == SAMPLE_I32)
        widen_u16_i32(in, (int32_t *)out + at, n);
    else if (tokens->windows.width == SAMPLE_U16)
        widen_u16_i64(in, (int64_t *)out + at, n);
    else if (tokens->windows.width == SAMPLE_U32)
        widen_u32_i64(in, (int64_t *)out + at, n);
    else
        widen_i32_i64(in, (int64_t *)out + at, n);
}

static int place_read(const struct tokens *tokens, const struct place *place, uint64_t done,
                      void *to, size_t n, source_read_function *read_bytes, struct failure *failure)
{
    const struct source_file *file = &place->file->file;
    size_t width = width_of(tokens);
    int r = read_bytes(file->fd, to, n * width, (place->token + done) * width);

    if (r == -ENODATA)
        return failure_set(failure, -EBADMSG,
                           "%s: the window at token %" PRIu64
                           " is cut off: the file became shorter than the %" PRIu64
                           " bytes that it had",
                           file->name, place->token, source_file_bytes(file));
    if (r < 0)
        return failure_set(failure, r, "%s: the window at token %" PRIu64 ": %s", file->name,
                           place->token, strerror(-r));
    return r > 0 ? r : tokens_check(tokens, place, done, to, n, failure);
}

static int fill_by(struct source *source, uint64_t index, struct sample_key key, void *out,
                   int64_t *label_p, source_read_function *read_bytes, struct failure *failure)
{
    const struct tokens *tokens = source->index;
    struct place place = tokens->windows.random ? place_at_random(tokens, index, key)
                                                : place_at_stride(tokens, index);
    uint64_t at_once = BLOCK_BYTES / width_of(tokens);
    /* Its alignment is that of the widest vector. */
    _Alignas(64) uint8_t block[BLOCK_BYTES];
    int r = 0;

    *label_p = LABEL_NONE;
    if (width_of(tokens) == dtype_table[tokens->windows.out].bytes)
        return place_read(tokens, &place, 0, out, tokens->length, read_bytes, failure);
    for (uint64_t done = 0; r == 0 && done < tokens->length; done += at_once) {
        uint64_t left = tokens->length - done;
        size_t n = (size_t)(left < at_once ? left : at_once);
        r = place_read(tokens, &place, done, block, n, read_bytes, failure);
        if (r == 0)
            widen(tokens, block, out, done, n);
    }
    return r;
}

static int tokens_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                       int64_t *label_p, struct failure *failure)
{
    return fill_by(source, index, key, out, label_p, source_read_exactly, failure);
}

static int tokens_try_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                           int64_t *label_p, struct failure *failure)
{
    return fill_by(source, index, key, out, label_p, source_read_cached, failure);
}

static int tokens_shape(const struct source *source, uint32_t *shape_p, size_t *n_dims_p,
                        enum sample_dtype *dtype_p)
{
    const struct tokens *tokens = source->index;

    shape_p[0] = tokens->length;
    *n_dims_p = 1;
    *dtype_p = tokens->windows.out;
    return 0;
}

static const char *tokens_sample_name(const struct source *source, uint64_t index, char *text,
                                      size_t size)
{
    const struct tokens *tokens = source->index;

    if (tokens->windows.random) {
        snprintf(text, size, "%s: window %" PRIu64, source->name, index);
        return text;
    }
    struct place place = place_at_stride(tokens, index);
    snprintf(text, size, "%s: the window at token %" PRIu64, place.file->file.name, place.token);
    return text;
}

/* -- indexing -------------------------------------------------------------------------------- */

static int windows_check(const struct source *source, const struct token_windows *windows,
                         struct failure *failure)
{
    if (windows->seq == 0 || windows->seq > SEQ_MAX)
        return failure_set(failure, -EINVAL,
                           "source %s: sequences of %" PRIu32 " tokens; 1 to %u are possible",
                           source->name, windows->seq, SEQ_MAX);
    if (windows->width != SAMPLE_U16 && windows->width != SAMPLE_U32 &&
        windows->width != SAMPLE_I32)
        return failure_set(failure, -EINVAL, "source %s: tokens are u16, u32 or i32", source->name);
    if (windows->out != SAMPLE_I32 && windows->out != SAMPLE_I64)
        return failure_set(failure, -EINVAL, "source %s: tokens are delivered as i32 or i64",
                           source->name);
    if (windows->stride == 0)
        return failure_set(failure, -EINVAL, "source %s: a stride of 0", source->name);
    return 0;
}

/* An array's header would be taken for tokens. */
static int npy_refuse(const struct source_file *file, struct failure *failure)
{
    char start[6] = "";
    int r = source_read_exactly(file->fd, start, sizeof start, 0);

    if (r < 0 && r != -ENODATA)
        return failure_set(failure, r, "%s: %s", file->name, strerror(-r));
    if (memcmp(start, "\x93NUMPY", sizeof start) == 0)
        return failure_set(failure, -EINVAL,
                           "%s: is an .npy file; tokens are bare integers (array.tofile)",
                           file->name);
    return 0;
}

/* Appends the windows of one file; *longest_p grows to its tokens. */
static int file_index(struct source *source, struct tokens *tokens, size_t i,
                      const struct source_spec *spec, uint64_t *longest_p, struct failure *failure)
{
    struct token_file *file = &tokens->files[i];
    size_t width = width_of(tokens);

    file->first_sample = source->samples;
    file->first_start = tokens->starts;
    int r = source_file_take(&file->file, "tokens", spec->fds[i], spec->fd_names[i], failure);
    if (r == 0)
        r = npy_refuse(&file->file, failure);
    if (r < 0)
        return r;
    uint64_t bytes = source_file_bytes(&file->file);
    if (bytes % width != 0)
        return failure_set(failure, -EINVAL,
                           "%s: its %" PRIu64 " bytes are not a multiple of %zu, the bytes of a "
                           "token of type %s",
                           file->file.name, bytes, width, dtype_table[tokens->windows.width].name);
    uint64_t n = bytes / width;
    if (n > *longest_p)
        *longest_p = n;
    if (n < tokens->length) {
        source->skipped++;
        return 0;
    }
    source->samples += (n - tokens->length) / tokens->windows.stride + 1;
    tokens->starts += n - tokens->length + 1;
    return 0;
}

/* Of names, sizes and what makes windows of them; not of where the files lie. */
static int tokens_fingerprint(struct source *source, const struct tokens *tokens,
                              struct failure *failure)
{
    const struct token_windows *windows = &tokens->windows;
    uint64_t numbers[] = {windows->seq,
                          windows->stride,
                          windows->random ? RANDOM_VERSION : 0,
                          (uint64_t)windows->width,
                          (uint64_t)windows->out,
                          tokens->n_files};
    XXH64_state_t *state = XXH64_createState();

    if (!state)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    XXH64_reset(state, 0);
    XXH64_update(state, numbers, sizeof numbers);
    for (size_t i = 0; i < tokens->n_files; i++) {
        const char *name = source_file_base(&tokens->files[i].file);
        uint64_t bytes = source_file_bytes(&tokens->files[i].file);
        XXH64_update(state, name, strlen(name) + 1);
        XXH64_update(state, &bytes, sizeof bytes);
    }
    source->fingerprint = XXH64_digest(state);
    XXH64_freeState(state);
    return 0;
}

static int tokens_index(struct source *source, const struct source_spec *spec,
                        struct source_progress *progress, struct failure *failure)
{
    uint64_t longest = 0;

    int r = windows_check(source, &spec->tokens, failure);
    if (r < 0)
        return r;
    if (spec->n_fds == 0)
        return failure_set(failure, -EINVAL, "source %s: no file came with it", source->name);
    struct tokens *tokens = calloc(1, sizeof *tokens);
    if (!tokens)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    source->index = tokens;
    source->tensor = "tokens";
    tokens->windows = spec->tokens;
    if (tokens->windows.random)
        tokens->windows.stride = tokens->windows.seq;
    tokens->length = spec->tokens.seq + 1;
    tokens->limit = spec->tokens.vocabulary;
    if (spec->tokens.width == SAMPLE_U32 && spec->tokens.out == SAMPLE_I32 &&
        (tokens->limit == 0 || tokens->limit > (uint64_t)INT32_MAX + 1))
        tokens->limit = (uint64_t)INT32_MAX + 1;
    tokens->files = calloc(spec->n_fds, sizeof *tokens->files);
    if (!tokens->files)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    for (size_t i = 0; r == 0 && i < spec->n_fds; i++) {
        tokens->n_files = i + 1;
        r = file_index(source, tokens, i, spec, &longest, failure);
        if (r == 0 && i % PROGRESS_FILES == 0)
            r = source_progress_set(source, progress, source->samples, failure);
    }
    if (r < 0)
        return r;
    if (source->samples == 0)
        return failure_set(failure, -ENOENT,
                           "source %s: no window of %" PRIu32
                           " tokens (seq + 1) fits its %zu files: the longest has %" PRIu64,
                           source->name, tokens->length, tokens->n_files, longest);
    r = tokens_fingerprint(source, tokens, failure);
    return r < 0 ? r : source_progress_set(source, progress, source->samples, failure);
}

static bool tokens_matches(const struct source *source, const struct source_spec *spec)
{
    const struct tokens *tokens = source->index;
    const struct token_windows *a = &tokens->windows, *b = &spec->tokens;

    if (a->seq != b->seq || a->random != b->random || (!a->random && a->stride != b->stride) ||
        a->width != b->width || a->out != b->out || a->vocabulary != b->vocabulary ||
        tokens->n_files != spec->n_fds)
        return false;
    for (size_t i = 0; i < tokens->n_files; i++) {
        if (!source_file_matches(&tokens->files[i].file, spec->fds[i], spec->fd_names[i]))
            return false;
    }
    return true;
}

static void tokens_free(struct source *source)
{
    struct tokens *tokens = source->index;

    for (size_t i = 0; i < tokens->n_files; i++)
        source_file_deinit(&tokens->files[i].file);
    free(tokens->files);
    free(tokens);
}

const struct source_ops source_tokens_ops = {
    .name = "tokens",
    .index = tokens_index,
    .fill = tokens_fill,
    .try_fill = tokens_try_fill,
    .shape = tokens_shape,
    .matches = tokens_matches,
    .sample_name = tokens_sample_name,
    .free = tokens_free,
};
