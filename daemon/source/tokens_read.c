/*
 * Reading windows of tokens: from the file straight into the batch where they
 * are delivered as they lie there, else block by block, widened. Tokens that
 * the vocabulary or the delivered type has no room for are looked for on the
 * way.
 */
#include "source/tokens.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "proto/dtype.h"
#include "source/kind.h"

#define BLOCK_BYTES 16384 /* read at once of what is to be converted */

static size_t width_of(const struct token_file *file)
{
    return dtype_table[file->width].bytes;
}

/* The first of n tokens that is not below limit, or n. Whether there is one is asked without a
 * branch, in vector code. */
#define FIND_OVER(name, type, max)                                                                 \
    static size_t name(const type *in, size_t n, uint64_t limit)                                   \
    {                                                                                              \
        uint32_t over = 0;                                                                         \
                                                                                                   \
        if (limit > (max))                                                                         \
            return n;                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            over |= in[i] >= (uint32_t)limit;                                                      \
        for (size_t i = 0; over && i < n; i++) {                                                   \
            if (in[i] >= limit)                                                                    \
                return i;                                                                          \
        }                                                                                          \
        return n;                                                                                  \
    }

FIND_OVER(find_over_u16, uint16_t, UINT16_MAX)
FIND_OVER(find_over_u32, uint32_t, UINT32_MAX)

static int tokens_check(const struct tokens *tokens, const struct place *place, uint64_t done,
                        const void *in, size_t n, struct failure *failure)
{
    const struct token_file *file = place->file;
    bool narrow = file->width == SAMPLE_U16;
    size_t at;

    if (file->limit == 0)
        return 0;
    at = narrow ? find_over_u16(in, n, file->limit) : find_over_u32(in, n, file->limit);
    if (at == n)
        return 0;
    int64_t token = narrow ? ((const uint16_t *)in)[at] : ((const uint32_t *)in)[at];
    if (file->width == SAMPLE_I32)
        token = (int32_t)token;
    uint64_t offset = file->skip + (place->token + done + at) * width_of(file);
    if (file->limit == tokens->windows.vocabulary)
        return failure_set(failure, -EBADMSG,
                           "%s: token %" PRId64 " at byte %" PRIu64
                           " is not in the vocabulary of %" PRIu64,
                           file->file.name, token, offset, tokens->windows.vocabulary);
    return failure_set(failure, -EBADMSG,
                       "%s: token %" PRId64 " at byte %" PRIu64
                       " is more than an int32 holds; ask for out=i64",
                       file->file.name, token, offset);
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

static void widen(enum sample_dtype from, enum sample_dtype to, const void *in, void *out,
                  uint64_t at, size_t n)
{
    if (to == SAMPLE_I32)
        widen_u16_i32(in, (int32_t *)out + at, n);
    else if (from == SAMPLE_U16)
        widen_u16_i64(in, (int64_t *)out + at, n);
    else if (from == SAMPLE_U32)
        widen_u32_i64(in, (int64_t *)out + at, n);
    else
        widen_i32_i64(in, (int64_t *)out + at, n);
}

static int place_read(const struct tokens *tokens, const struct place *place, uint64_t done,
                      void *to, size_t n, source_read_function *read_bytes, struct failure *failure)
{
    const struct token_file *file = place->file;
    size_t width = width_of(file);
    int r = read_bytes(file->file.fd, to, n * width, file->skip + (place->token + done) * width);

    if (r == -ENODATA)
        return failure_set(failure, -EBADMSG,
                           "%s: the window at token %" PRIu64
                           " is cut off: the file became shorter than the %" PRIu64
                           " bytes that it had",
                           file->file.name, place->token, source_file_bytes(&file->file));
    if (r < 0)
        return failure_set(failure, r, "%s: the window at token %" PRIu64 ": %s", file->file.name,
                           place->token, strerror(-r));
    return r > 0 ? r : tokens_check(tokens, place, done, to, n, failure);
}

static int fill_by(struct source *source, uint64_t index, struct sample_key key, void *out,
                   int64_t *label_p, source_read_function *read_bytes, struct failure *failure)
{
    const struct tokens *tokens = source->index;
    struct place place = tokens_place(tokens, index, key);
    enum sample_dtype from = place.file->width, to = tokens->windows.out;
    uint64_t at_once = BLOCK_BYTES / width_of(place.file);
    /* Its alignment is that of the widest vector. */
    _Alignas(64) uint8_t block[BLOCK_BYTES];
    int r = 0;

    *label_p = LABEL_NONE;
    if (width_of(place.file) == dtype_table[to].bytes)
        return place_read(tokens, &place, 0, out, tokens->length, read_bytes, failure);
    for (uint64_t done = 0; r == 0 && done < tokens->length; done += at_once) {
        uint64_t left = tokens->length - done;
        size_t n = (size_t)(left < at_once ? left : at_once);
        r = place_read(tokens, &place, done, block, n, read_bytes, failure);
        if (r == 0)
            widen(from, to, block, out, done, n);
    }
    return r;
}

int tokens_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                int64_t *label_p, struct failure *failure)
{
    return fill_by(source, index, key, out, label_p, source_read_exactly, failure);
}

int tokens_try_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                    int64_t *label_p, struct failure *failure)
{
    return fill_by(source, index, key, out, label_p, source_read_cached, failure);
}
