/*
 * Files of tokens: bare integers, behind a header of llm.c, or described by an
 * index of Megatron-LM. What a file is, its bytes say, never its name. A header
 * is never taken for tokens: where a file begins as one of these do and the
 * rest does not agree, it is refused.
 */
#include "source/tokens.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/cleanup.h"
#include "proto/dtype.h"
#include "source/kind.h"
#include "source/megatron.h"

/* llm.c: 256 words of 32 bits, of which three are used. */
#define LLMC_BYTES 1024
#define LLMC_U16 20240520 /* version 1 */
#define LLMC_U32 20240801 /* written with version 7 */
#define LLMC_EVALUATION 20240522

struct llmc_header {
    uint32_t magic, version, tokens;
};

static const char *type_name(enum sample_dtype dtype)
{
    return dtype_table[dtype].name;
}

bool token_fd_is_index(int fd)
{
    char start[MEGATRON_MAGIC_BYTES];

    return source_read_exactly(fd, start, sizeof start, 0) == 0 &&
           megatron_is_index(start, sizeof start);
}

/* What a file says of itself and what the user said of it must agree. */
static int asked_check(const struct tokens *tokens, const struct token_file *file, const char *who,
                       struct failure *failure)
{
    const struct token_windows *windows = &tokens->windows;

    if (windows->has_width && windows->width != file->width)
        return failure_set(failure, -EINVAL, "%s: its tokens are %s, as %s says, not %s",
                           file->file.name, type_name(file->width), who, type_name(windows->width));
    if (windows->has_offset && windows->offset != file->skip)
        return failure_set(failure, -EINVAL,
                           "%s: its tokens begin at byte %" PRIu64 ", as %s says, not at the "
                           "offset of %" PRIu64,
                           file->file.name, file->skip, who, windows->offset);
    return 0;
}

/* -- llm.c ------------------------------------------------------------------------------------ */

static bool is_magic(uint32_t word)
{
    return word == LLMC_U16 || word == LLMC_U32 || word == LLMC_EVALUATION;
}

/* Of uint32 files any version is taken whose size agrees; of uint16 files there is one. */
static int llmc_check(struct token_file *file, const struct llmc_header *header,
                      struct failure *failure)
{
    const char *name = file->file.name;
    uint64_t bytes = source_file_bytes(&file->file);
    uint64_t wanted = LLMC_BYTES + header->tokens * (uint64_t)dtype_table[file->width].bytes;
    bool known = header->magic == LLMC_U16 ? header->version == 1
                                           : header->version >= 1 && header->version <= INT32_MAX;

    if (!known)
        return failure_set(failure, -EINVAL,
                           "%s: begins as llm.c's files of %s do, but version %" PRId32
                           " of them is not served",
                           name, type_name(file->width), (int32_t)header->version);
    if (bytes != wanted)
        return failure_set(failure, -EINVAL,
                           "%s: its header names %" PRIu32
                           " tokens of type %s, which makes %" PRIu64
                           " bytes with the header; it has %" PRIu64,
                           name, header->tokens, type_name(file->width), wanted, bytes);
    return 0;
}

static int llmc_take(const struct tokens *tokens, struct token_file *file,
                     const struct llmc_header *header, struct failure *failure)
{
    if (header->magic == LLMC_EVALUATION)
        return failure_set(failure, -EINVAL,
                           "%s: is an evaluation file of llm.c, which holds questions with their "
                           "answers and no run of tokens",
                           file->file.name);
    if (is_magic(__builtin_bswap32(header->magic)))
        return failure_set(failure, -EINVAL,
                           "%s: begins with a magic number of llm.c in the wrong order of bytes; "
                           "files are little-endian",
                           file->file.name);
    file->format = TOKENS_LLMC;
    file->width = header->magic == LLMC_U16 ? SAMPLE_U16 : SAMPLE_U32;
    file->skip = LLMC_BYTES;
    file->tokens = header->tokens;
    int r = llmc_check(file, header, failure);
    return r < 0 ? r : asked_check(tokens, file, "its header", failure);
}

/* -- bare ------------------------------------------------------------------------------------- */

static int bare_take(const struct tokens *tokens, struct token_file *file, struct failure *failure)
{
    const char *name = file->file.name;
    uint64_t bytes = source_file_bytes(&file->file);
    char behind[64] = "";

    file->format = TOKENS_BARE;
    file->width = tokens->windows.width;
    file->skip = tokens->windows.has_offset ? tokens->windows.offset : 0;
    if (file->skip > bytes)
        return failure_set(failure, -EINVAL,
                           "%s: its %" PRIu64 " bytes end before the offset of %" PRIu64, name,
                           bytes, file->skip);
    size_t width = dtype_table[file->width].bytes;
    if (file->skip > 0)
        snprintf(behind, sizeof behind, " behind the offset of %" PRIu64, file->skip);
    bytes -= file->skip;
    if (bytes % width != 0)
        return failure_set(failure, -EINVAL,
                           "%s: its %" PRIu64 " bytes%s are not a multiple of %zu, the bytes of a "
                           "token of type %s",
                           name, bytes, behind, width, type_name(file->width));
    file->tokens = bytes / width;
    return 0;
}

/* A file without an index: its first bytes tell. */
static int single_take(const struct tokens *tokens, struct token_file *file,
                       struct failure *failure)
{
    union {
        struct llmc_header header;
        char bytes[sizeof(struct llmc_header)];
    } start = {0};
    const char *name = file->file.name;
    uint64_t size = source_file_bytes(&file->file);
    size_t n = size < sizeof start ? (size_t)size : sizeof start;

    int r = source_read_exactly(file->file.fd, start.bytes, n, 0);
    if (r < 0)
        return failure_set(failure, r, "%s: %s", name,
                           r == -ENODATA ? "became shorter while it was read" : strerror(-r));
    if (n >= 6 && memcmp(start.bytes, "\x93NUMPY", 6) == 0)
        return failure_set(failure, -EINVAL,
                           "%s: is an .npy file; tokens are bare integers (array.tofile)", name);
    if (megatron_is_index(start.bytes, n))
        return failure_set(failure, -EINVAL,
                           "%s: is an index of Megatron-LM, and the .bin file that it is of does "
                           "not come before it",
                           name);
    if (is_magic(start.header.magic) || is_magic(__builtin_bswap32(start.header.magic)))
        return llmc_take(tokens, file, &start.header, failure);
    return bare_take(tokens, file, failure);
}

/* -- Megatron-LM ------------------------------------------------------------------------------ */

static int pair_take(struct tokens *tokens, struct token_file *file, int index_fd, const char *name,
                     struct source_progress *progress, struct failure *failure)
{
    const struct token_windows *windows = &tokens->windows;
    bool wanted = windows->within || windows->position || windows->document;
    struct megatron megatron;

    int r = source_file_take(&file->index, "index", index_fd, name, failure);
    if (r < 0)
        return r;
    file->documents_at = tokens->starts.n;
    r = megatron_read(&file->index, &file->file, wanted ? &tokens->starts : NULL, &tokens->arena,
                      progress, &megatron, failure);
    close_fd(&file->index.fd);
    if (r < 0)
        return r;
    file->format = TOKENS_MEGATRON;
    file->width = megatron.width;
    file->tokens = megatron.tokens;
    file->documents = megatron.documents;
    file->has_documents = wanted;
    return asked_check(tokens, file, "its index", failure);
}

/* -- any of them ------------------------------------------------------------------------------ */

/* What of a token's bits the vocabulary or the delivered type forbids. */
static uint64_t limit_of(const struct tokens *tokens, const struct token_file *file)
{
    const uint64_t int32_end = (uint64_t)INT32_MAX + 1;
    uint64_t limit = tokens->windows.vocabulary;

    if (file->width == SAMPLE_U32 && tokens->windows.out == SAMPLE_I32 &&
        (limit == 0 || limit > int32_end))
        limit = int32_end;
    return limit;
}

int token_file_take(struct tokens *tokens, struct token_file *file, const int *fds,
                    const char *const *names, size_t n, struct source_progress *progress,
                    size_t *taken_p, struct failure *failure)
{
    bool pair = n > 1 && token_fd_is_index(fds[1]);

    *file = (struct token_file){
        .file = SOURCE_FILE_INIT,
        .index = SOURCE_FILE_INIT,
        .documents = 1,
    };
    int r = source_file_take(&file->file, "tokens", fds[0], names[0], failure);
    if (r < 0)
        return r;
    if (pair && !token_fd_is_index(file->file.fd))
        r = pair_take(tokens, file, fds[1], names[1], progress, failure);
    else
        r = single_take(tokens, file, failure);
    if (r < 0)
        return r;
    file->limit = limit_of(tokens, file);
    *taken_p = pair ? 2 : 1;
    return 0;
}

void token_file_deinit(struct token_file *file)
{
    source_file_deinit(&file->file);
    source_file_deinit(&file->index);
}
