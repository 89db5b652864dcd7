/*
 * Sources of tokens for tests, of files in the group's directory, and such
 * files as llm.c and Megatron-LM write.
 */
#ifndef PINSERVE_TESTS_TOKEN_SOURCE_H
#define PINSERVE_TESTS_TOKEN_SOURCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "group_dir.h"
#include "source/source.h"

#define FILES_MAX 8

static inline struct token_windows windows_of(uint32_t seq, enum sample_dtype width)
{
    return (struct token_windows){.seq = seq, .stride = seq, .width = width, .out = SAMPLE_I32};
}

/* A source of the files, up to a NULL. */
static inline int open_tokens(const char *const *files, const struct token_windows *windows,
                              struct source **source_p, struct failure *failure)
{
    int fds[FILES_MAX];
    struct source_spec spec = {
        .kind = SOURCE_KIND_TOKENS, .name = "tokens:test", .tokens = *windows, .fds = fds};

    for (; files[spec.n_fds]; spec.n_fds++)
        fds[spec.n_fds] = openat(dir.fd, files[spec.n_fds], O_RDONLY | O_CLOEXEC);
    spec.fd_names = files;
    int r = source_new(&spec, NULL, source_p, failure);
    if (r == 0) {
        assert_true(source_matches(*source_p, &spec));
        spec.tokens.seq++;
        assert_false(source_matches(*source_p, &spec));
    }
    for (size_t i = 0; i < spec.n_fds; i++)
        close(fds[i]);
    return r;
}

static inline struct source *opened(const char *const *files, const struct token_windows *windows)
{
    struct source *source = NULL;
    struct failure failure = {0};

    if (open_tokens(files, windows, &source, &failure) < 0)
        fail_msg("%s: %s", files[0], failure.text);
    return source;
}

static inline void refused(const char *const *files, const struct token_windows *windows, int code,
                           const char *why)
{
    struct source *source = NULL;
    struct failure failure = {0};
    int before = open_fds();

    assert_int_equal(open_tokens(files, windows, &source, &failure), code);
    if (!strstr(failure.text, why))
        fail_msg("\"%s\" lacks \"%s\"", failure.text, why);
    assert_int_equal(open_fds(), before);
}

/* -- files ------------------------------------------------------------------------------------ */

/* A file that grows piece by piece. */
struct bytes {
    uint8_t at[1 << 16];
    size_t n;
};

static inline void put(struct bytes *bytes, const void *from, size_t size)
{
    assert_true(size <= sizeof bytes->at - bytes->n);
    memcpy(bytes->at + bytes->n, from, size);
    bytes->n += size;
}

static inline void put_number(struct bytes *bytes, int64_t number, size_t width)
{
    put(bytes, &number, width); /* little-endian */
}

/* n tokens first, first + 1, ... */
static inline void put_tokens(struct bytes *bytes, int64_t first, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++)
        put_number(bytes, first + (int64_t)i, width);
}

static inline void put_llmc_header(struct bytes *bytes, int32_t magic, int32_t version,
                                   int32_t tokens)
{
    put_number(bytes, magic, 4);
    put_number(bytes, version, 4);
    put_number(bytes, tokens, 4);
    for (int i = 3; i < 256; i++)
        put_number(bytes, 0, 4);
}

static inline void write_bytes(const char *name, const struct bytes *bytes)
{
    assert_true(temp_dir_write(&dir, name, bytes->at, bytes->n));
}

/* An index; what is not given is made as it should be. */
struct index_parts {
    const int32_t *lengths;
    size_t n_lengths;
    const int64_t *documents;
    size_t n_documents;
    const int64_t *pointers;     /* NULL: where the sequences begin */
    const char *magic;           /* nine bytes */
    uint64_t version;            /* 0: 1 */
    uint8_t type;                /* 0: uint16 */
    size_t width;                /* 0: 2 */
    uint64_t sequences, indices; /* 0: as many as there are */
};

static inline void put_index(struct bytes *bytes, const struct index_parts *parts)
{
    int64_t pointer = 0;

    put(bytes, parts->magic ? parts->magic : "MMIDIDX\0", 9);
    put_number(bytes, (int64_t)(parts->version ? parts->version : 1), 8);
    put_number(bytes, parts->type ? parts->type : 8, 1);
    put_number(bytes, (int64_t)(parts->sequences ? parts->sequences : parts->n_lengths), 8);
    put_number(bytes, (int64_t)(parts->indices ? parts->indices : parts->n_documents), 8);
    for (size_t i = 0; i < parts->n_lengths; i++)
        put_number(bytes, parts->lengths[i], 4);
    for (size_t i = 0; i < parts->n_lengths; i++) {
        put_number(bytes, parts->pointers ? parts->pointers[i] : pointer, 8);
        pointer += parts->lengths[i] * (int64_t)(parts->width ? parts->width : 2);
    }
    for (size_t i = 0; i < parts->n_documents; i++)
        put_number(bytes, parts->documents[i], 8);
}

#endif
