/*
 * Reading file lists. A line lies in the buffer as a whole, and becomes the
 * entry in place.
 */
#include "source/list_file.h"

#include <errno.h>
#include <string.h>

#define BYTE_ORDER_MARK "\xef\xbb\xbf"
#define BYTE_ORDER_MARK_BYTES (sizeof BYTE_ORDER_MARK - 1)
#define BESIDE_LINE_MAX (BYTE_ORDER_MARK_BYTES + 1) /* what may be left out of a line: and a CR */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static int refuse(const struct list_reader *reader, const char *what, struct failure *failure)
{
    return failure_set(failure, -EINVAL, "list %s:%ju: %s", reader->name, (uintmax_t)reader->line,
                       what);
}

/* Reads further bytes behind those in the buffer, which move to its beginning. */
static int reader_fill(struct list_reader *reader, struct failure *failure)
{
    size_t n = reader->end - reader->begin;

    memmove(reader->buffer, reader->buffer + reader->begin, n);
    reader->begin = 0;
    reader->end = n;
    int r = reader->read(reader->user, reader->buffer + n, LIST_BUFFER_BYTES - n);
    if (r < 0)
        return failure_set(failure, r, "list %s: %s", reader->name, strerror(-r));
    reader->ended = r == 0;
    reader->end += (size_t)r;
    return 0;
}

/* The next line without its end; 1: there is one. */
static int line_take(struct list_reader *reader, char **text_p, size_t *size_p,
                     struct failure *failure)
{
    size_t searched = 0;
    char *end = NULL;

    for (;;) {
        char *text = reader->buffer + reader->begin;
        size_t n = reader->end - reader->begin;
        if (n > searched)
            end = memchr(text + searched, '\n', n - searched);
        if (end || reader->ended || n > LIST_LINE_MAX + BESIDE_LINE_MAX)
            break;
        searched = n;
        int r = reader_fill(reader, failure);
        if (r < 0)
            return r;
    }
    char *text = reader->buffer + reader->begin;
    size_t size = end ? (size_t)(end - text) : reader->end - reader->begin;
    if (!end && size == 0)
        return 0;
    reader->begin += size + (end ? 1 : 0);
    reader->line++;
    if (size > 0 && text[size - 1] == '\r')
        size--;
    if (reader->line == 1 && size >= BYTE_ORDER_MARK_BYTES &&
        memcmp(text, BYTE_ORDER_MARK, BYTE_ORDER_MARK_BYTES) == 0) {
        text += BYTE_ORDER_MARK_BYTES;
        size -= BYTE_ORDER_MARK_BYTES;
    }
    if (size > LIST_LINE_MAX)
        return failure_set(failure, -EINVAL, "list %s:%ju: a line of more than %d bytes",
                           reader->name, (uintmax_t)reader->line, LIST_LINE_MAX);
    *text_p = text;
    *size_p = size;
    return 1;
}

/* 1: word is no integer; -ERANGE: one of more than 64 bits. */
static int integer_parse(const char *word, size_t size, int64_t *value_p)
{
    bool negative = size > 0 && *word == '-';
    int64_t value = 0;
    bool over = false;

    if (size == (size_t)negative)
        return 1;
    for (size_t i = negative; i < size; i++) {
        if (word[i] < '0' || word[i] > '9')
            return 1;
        int64_t digit = negative ? '0' - word[i] : word[i] - '0';
        over = over || __builtin_mul_overflow(value, 10, &value) ||
               __builtin_add_overflow(value, digit, &value);
    }
    *value_p = value;
    return over ? -ERANGE : 0;
}

/* Takes the label off a line that does not end in a blank. It stands behind a path and blanks. */
static int label_take(const struct list_reader *reader, const char *text, size_t *size,
                      struct list_entry *entry, struct failure *failure)
{
    size_t word = *size, path;

    while (word > 0 && !is_blank(text[word - 1]))
        word--;
    for (path = word; path > 0 && is_blank(text[path - 1]);)
        path--;
    int r = path > 0 ? integer_parse(text + word, *size - word, &entry->label) : 1;
    if (r < 0)
        return refuse(reader, "the label does not fit into 64 bits", failure);
    entry->has_label = r == 0;
    if (entry->has_label)
        *size = path;
    return 0;
}

static int entry_parse(struct list_reader *reader, char *text, size_t size,
                       struct list_entry *entry_p, struct failure *failure)
{
    struct list_entry entry = {.path = text};

    if (memchr(text, '\0', size))
        return refuse(reader, "a NUL byte is in the line", failure);
    int r = label_take(reader, text, &size, &entry, failure);
    if (r < 0)
        return r;
    if (reader->entries > 0 && entry.has_label != reader->labelled)
        return refuse(reader,
                      entry.has_label ? "has a label, and the lines before have none"
                                      : "has no label (an integer), as the lines before have",
                      failure);
    text[size] = '\0';
    if (*text == '/')
        return failure_set(failure, -EINVAL,
                           "list %s:%ju: %s is an absolute path; paths are relative to the folder",
                           reader->name, (uintmax_t)reader->line, text);
    reader->labelled = entry.has_label;
    reader->entries++;
    *entry_p = entry;
    return 0;
}

int list_next(struct list_reader *reader, struct list_entry *entry_p, struct failure *failure)
{
    char *text = NULL;
    size_t size = 0;

    do {
        int r = line_take(reader, &text, &size, failure);
        if (r <= 0)
            return r;
        while (size > 0 && is_blank(text[size - 1]))
            size--;
    } while (size == 0);
    int r = entry_parse(reader, text, size, entry_p, failure);
    return r < 0 ? r : 1;
}
