/*
 * Headers of .npy files. A header is the text of a Python dictionary with three
 * known keys; this reads that text and nothing else of Python.
 */
#include "source/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cleanup.h"
#include "proto/dtype.h"
#include "source/kind.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_SIZE 6
#define START_SIZE 12               /* read at first; no whole header is shorter */
#define HEADER_BYTES_MAX (1u << 20) /* of the dictionary's text */
#define WORD_MAX 64

/* What is still to be read of the dictionary. */
struct cursor {
    const char *at, *end;
    const char *name; /* of the file */
    struct failure *failure;
};

static int odd(const struct cursor *cursor, const char *what)
{
    return failure_set(cursor->failure, -EINVAL, "%s: its .npy header is odd: %s", cursor->name,
                       what);
}

static void skip_space(struct cursor *cursor)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\n' ||
                                        *cursor->at == '\t' || *cursor->at == '\r'))
        cursor->at++;
}

static bool peek(struct cursor *cursor, char c)
{
    skip_space(cursor);
    return cursor->at < cursor->end && *cursor->at == c;
}

static bool take(struct cursor *cursor, char c)
{
    bool is = peek(cursor, c);

    cursor->at += is;
    return is;
}

/* A quoted string without escapes. */
static int take_string(struct cursor *cursor, char word[WORD_MAX])
{
    char quote = peek(cursor, '"') ? '"' : '\'';
    size_t size = 0;

    if (!take(cursor, quote))
        return odd(cursor, "a string is missing");
    while (cursor->at < cursor->end && *cursor->at != quote) {
        if (size == WORD_MAX - 1 || *cursor->at == '\\')
            return odd(cursor, "a string that no header has");
        word[size++] = *cursor->at++;
    }
    word[size] = '\0';
    return take(cursor, quote) ? 0 : odd(cursor, "a string without an end");
}

static int take_bool(struct cursor *cursor, bool *value_p)
{
    skip_space(cursor);
    size_t left = (size_t)(cursor->end - cursor->at);

    if (left >= 4 && memcmp(cursor->at, "True", 4) == 0) {
        cursor->at += 4;
        *value_p = true;
        return 0;
    }
    if (left >= 5 && memcmp(cursor->at, "False", 5) == 0) {
        cursor->at += 5;
        *value_p = false;
        return 0;
    }
    return odd(cursor, "fortran_order is neither True nor False");
}

/* A whole number; Python 2 wrote an L behind some. */
static int take_number(struct cursor *cursor, uint64_t *value_p)
{
    uint64_t value = 0;
    const char *begin = cursor->at;

    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*cursor->at - '0'), &value))
            return odd(cursor, "a dimension is too large");
        cursor->at++;
    }
    if (cursor->at == begin)
        return odd(cursor, "a dimension is no whole number");
    if (cursor->at < cursor->end && *cursor->at == 'L')
        cursor->at++;
    *value_p = value;
    return 0;
}

/* "()", "(3,)", "(3, 4)" */
static int take_shape(struct cursor *cursor, struct npy_header *header)
{
    if (!take(cursor, '('))
        return odd(cursor, "the shape is no tuple");
    header->n_dims = 0;
    while (!take(cursor, ')')) {
        if (header->n_dims == NPY_DIMS_MAX)
            return failure_set(cursor->failure, -EINVAL,
                               "%s: has more than %d dimensions, which are not served",
                               cursor->name, NPY_DIMS_MAX);
        skip_space(cursor);
        int r = take_number(cursor, &header->shape[header->n_dims]);
        if (r < 0)
            return r;
        header->n_dims++;
        if (!take(cursor, ',') && !peek(cursor, ')'))
            return odd(cursor, "the shape has no end");
    }
    return 0;
}

/* "<f4" */
static int dtype_parse(const struct cursor *cursor, const char *descr, struct npy_header *header)
{
    static const struct {
        const char *kind;
        enum sample_dtype dtype;
    } kinds[] = {
        {"b1", SAMPLE_U8},  {"u1", SAMPLE_U8},  {"i1", SAMPLE_I8},  {"u2", SAMPLE_U16},
        {"i2", SAMPLE_I16}, {"u4", SAMPLE_U32}, {"i4", SAMPLE_I32}, {"u8", SAMPLE_U64},
        {"i8", SAMPLE_I64}, {"f2", SAMPLE_F16}, {"f4", SAMPLE_F32}, {"f8", SAMPLE_F64},
    };
    static const char swapped = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '>' : '<';
    const char *kind = descr + (*descr && strchr("<>|=", *descr) ? 1 : 0);

    if (*kind == 'O')
        return failure_set(cursor->failure, -EINVAL,
                           "%s: holds Python objects (dtype object), which are never unpickled; "
                           "save an array of numbers",
                           cursor->name);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kind, kinds[i].kind) != 0)
            continue;
        header->dtype = kinds[i].dtype;
        header->swapped = *descr == swapped && kind[1] != '1';
        return 0;
    }
    return failure_set(cursor->failure, -EINVAL,
                       "%s: elements of type '%s' are not served; there are integers of 1 to 8 "
                       "bytes, floats of 2, 4 and 8, and booleans",
                       cursor->name, descr);
}

static int take_descr(struct cursor *cursor, struct npy_header *header)
{
    char descr[WORD_MAX] = "";

    if (peek(cursor, '[') || peek(cursor, '('))
        return failure_set(cursor->failure, -EINVAL,
                           "%s: holds structures (a dtype with fields), which are not served",
                           cursor->name);
    int r = take_string(cursor, descr);
    return r < 0 ? r : dtype_parse(cursor, descr, header);
}

static int take_dictionary(struct cursor *cursor, struct npy_header *header)
{
    enum { DESCR = 1, FORTRAN = 2, SHAPE = 4, ALL = 7 };
    unsigned seen = 0;
    char key[WORD_MAX] = "";
    int r = 0;

    if (!take(cursor, '{'))
        return odd(cursor, "it is no dictionary");
    while (r == 0 && !take(cursor, '}')) {
        unsigned which = 0;
        r = take_string(cursor, key);
        if (r == 0 && !take(cursor, ':'))
            r = odd(cursor, "a key has no value");
        if (r < 0)
            break;
        if (strcmp(key, "descr") == 0) {
            which = DESCR;
            r = take_descr(cursor, header);
        } else if (strcmp(key, "fortran_order") == 0) {
            which = FORTRAN;
            r = take_bool(cursor, &header->fortran);
        } else if (strcmp(key, "shape") == 0) {
            which = SHAPE;
            r = take_shape(cursor, header);
        }
        if (r == 0 && (which == 0 || (seen & which)))
            r = odd(cursor, "a key is unknown or there twice");
        seen |= which;
        if (r == 0 && !take(cursor, ',') && !peek(cursor, '}'))
            r = odd(cursor, "it has no end");
    }
    if (r == 0 && seen != ALL)
        r = odd(cursor, "descr, fortran_order or shape is missing");
    skip_space(cursor);
    if (r == 0 && cursor->at != cursor->end)
        r = odd(cursor, "there is more behind the dictionary");
    return r;
}

/* The bytes that the header tells must be among those that are there. */
static int size_check(const char *name, uint64_t there, struct npy_header *header,
                      struct failure *failure)
{
    uint64_t bytes = dtype_table[header->dtype].bytes;
    bool empty = false;

    for (size_t i = 0; i < header->n_dims; i++)
        empty = empty || header->shape[i] == 0;
    for (size_t i = 0; !empty && i < header->n_dims; i++) {
        if (__builtin_mul_overflow(bytes, header->shape[i], &bytes))
            return failure_set(failure, -EINVAL, "%s: its shape is too large", name);
    }
    header->bytes = empty ? 0 : bytes;
    there = there > header->offset ? there - header->offset : 0;
    if (header->bytes > there)
        return failure_set(failure, -EINVAL,
                           "%s: is cut off: its header tells of %" PRIu64
                           " bytes of data, and %" PRIu64 " are there",
                           name, header->bytes, there);
    return 0;
}

static int ends_within(const char *name, struct failure *failure)
{
    return failure_set(failure, -EINVAL, "%s: ends within its .npy header", name);
}

/* What comes before the dictionary: sets where that is in header->offset, and how long. Of the
 * bytes at start, there are real ones. */
static int start_parse(const uint8_t start[START_SIZE], uint64_t there, const char *name,
                       struct npy_header *header, uint32_t *size_p, struct failure *failure)
{
    if (memcmp(start, MAGIC, MAGIC_SIZE) != 0)
        return failure_set(failure, -EINVAL, "%s: is no .npy file", name);
    if (there < START_SIZE)
        return ends_within(name, failure);
    unsigned version = start[MAGIC_SIZE];
    if (version < 1 || version > 3)
        return failure_set(failure, -EINVAL, "%s: .npy version %u is not served; 1 to 3 are", name,
                           version);
    uint32_t size = start[8] | (uint32_t)start[9] << 8;
    header->offset = 10;
    if (version > 1) {
        size |= (uint32_t)start[10] << 16 | (uint32_t)start[11] << 24;
        header->offset = 12;
    }
    if (size > HEADER_BYTES_MAX)
        return failure_set(failure, -EINVAL, "%s: its .npy header of %" PRIu32 " bytes is too long",
                           name, size);
    if (header->offset + size > there)
        return ends_within(name, failure);
    *size_p = size;
    return 0;
}

/* The dictionary, and what it says of the bytes behind it. */
static int text_parse(const char *text, uint32_t size, uint64_t there, const char *name,
                      struct npy_header *header, struct failure *failure)
{
    struct cursor cursor = {text, text + size, name, failure};

    header->offset += size;
    int r = take_dictionary(&cursor, header);
    return r < 0 ? r : size_check(name, there, header, failure);
}

static int read_failed(const char *name, int r, struct failure *failure)
{
    return r == -ENODATA ? ends_within(name, failure)
                         : failure_set(failure, r, "%s: %s", name, strerror(-r));
}

int npy_read_at(int fd, uint64_t offset, uint64_t size, const char *name,
                struct npy_header *header_p, struct failure *failure)
{
    struct npy_header header = {0};
    uint8_t start[START_SIZE] = {0};
    uint32_t text_size = 0;

    int r = source_read_exactly(fd, start, size < START_SIZE ? size : START_SIZE, offset);
    if (r < 0)
        return read_failed(name, r, failure);
    r = start_parse(start, size, name, &header, &text_size, failure);
    if (r < 0)
        return r;
    cleanup_free char *text = malloc(text_size + 1);
    if (!text)
        return failure_set(failure, -ENOMEM, "%s: no memory for its header", name);
    r = source_read_exactly(fd, text, text_size, offset + header.offset);
    if (r < 0)
        return read_failed(name, r, failure);
    r = text_parse(text, text_size, size, name, &header, failure);
    if (r == 0)
        *header_p = header;
    return r;
}

int npy_read(const struct source_file *file, struct npy_header *header_p, struct failure *failure)
{
    uint8_t magic[MAGIC_SIZE] = {0};

    int r = source_read_exactly(file->fd, magic, sizeof magic, 0);
    if (r < 0 && r != -ENODATA)
        return read_failed(file->name, r, failure);
    if (memcmp(magic, MAGIC, MAGIC_SIZE) != 0)
        return failure_set(failure, -EINVAL,
                           "%s: is no .npy file; of a raw file give shape and type: "
                           "records:FILE:3x224x224:u8",
                           file->name);
    return npy_read_at(file->fd, 0, source_file_bytes(file), file->name, header_p, failure);
}

int npy_parse(const uint8_t *bytes, size_t size, const char *name, struct npy_header *header_p,
              struct failure *failure)
{
    struct npy_header header = {0};
    uint8_t start[START_SIZE] = {0};
    uint32_t text_size = 0;

    memcpy(start, bytes, size < START_SIZE ? size : START_SIZE);
    int r = start_parse(start, size, name, &header, &text_size, failure);
    if (r == 0)
        r = text_parse((const char *)bytes + header.offset, text_size, size, name, &header,
                       failure);
    if (r == 0)
        *header_p = header;
    return r;
}
