/*
 * Reading specs: pieces of a text, whole numbers and decimals, whatever the
 * locale.
 */
#ifndef PINSERVE_CLIENT_PARSE_H
#define PINSERVE_CLIENT_PARSE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A piece of a text, not NUL-terminated. last: nothing was cut off behind it. */
struct parse_text {
    const char *text;
    size_t size;
    bool last;
};

static inline struct parse_text parse_from(const char *text)
{
    return (struct parse_text){.text = text, .size = strlen(text), .last = true};
}

static inline bool parse_is(struct parse_text text, const char *word)
{
    return text.size == strlen(word) && memcmp(text.text, word, text.size) == 0;
}

/* Takes the piece before the first separator off rest. */
static inline struct parse_text parse_cut(struct parse_text *rest, char separator)
{
    const char *at = memchr(rest->text, separator, rest->size);
    struct parse_text piece = *rest;

    piece.last = !at;
    if (at)
        piece.size = (size_t)(at - rest->text);
    rest->text += piece.size + (at ? 1 : 0);
    rest->size -= piece.size + (at ? 1 : 0);
    return piece;
}

/* Takes what is behind the last separator off text; false: there is none. */
static inline bool parse_cut_last(struct parse_text *text, char separator,
                                  struct parse_text *piece_p)
{
    const char *at = memrchr(text->text, separator, text->size);

    if (!at)
        return false;
    piece_p->text = at + 1;
    piece_p->size = text->size - (size_t)(at + 1 - text->text);
    text->size = (size_t)(at - text->text);
    return true;
}

/* Whether text begins with word; then *rest_p is what follows. */
static inline bool parse_begins(struct parse_text text, const char *word, struct parse_text *rest_p)
{
    size_t size = strlen(word);

    if (text.size < size || memcmp(text.text, word, size) != 0)
        return false;
    *rest_p = (struct parse_text){.text = text.text + size, .size = text.size - size};
    return true;
}

static inline bool parse_ends(struct parse_text text, const char *word)
{
    size_t size = strlen(word);

    return text.size >= size && memcmp(text.text + text.size - size, word, size) == 0;
}

/* Digits only, at most max. */
static inline int parse_whole(struct parse_text text, uint64_t max, uint64_t *value_p)
{
    uint64_t value = 0;

    if (text.size == 0)
        return -EINVAL;
    for (size_t i = 0; i < text.size; i++) {
        if (text.text[i] < '0' || text.text[i] > '9')
            return -EINVAL;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text.text[i] - '0'), &value) || value > max)
            return -ERANGE;
    }
    *value_p = value;
    return 0;
}

/* "0.08", "1" or "3/4" in millionths, rounded down; more than six places are refused. */
static inline int parse_ppm(struct parse_text text, uint64_t *ppm_p)
{
    const uint64_t million = 1000000;
    uint64_t whole, part = 0;

    if (memchr(text.text, '/', text.size)) {
        struct parse_text over = parse_cut(&text, '/');
        if (parse_whole(over, million, &whole) < 0 || parse_whole(text, million, &part) < 0 ||
            part == 0)
            return -EINVAL;
        *ppm_p = whole * million / part;
        return 0;
    }
    struct parse_text integer = parse_cut(&text, '.');
    if (parse_whole(integer, million, &whole) < 0)
        return -EINVAL;
    if (!integer.last) {
        if (text.size > 6 || parse_whole(text, million, &part) < 0)
            return -EINVAL;
        for (size_t i = text.size; i < 6; i++)
            part *= 10;
    }
    *ppm_p = whole * million + part;
    return 0;
}

/* "A..B" */
static inline int parse_range_ppm(struct parse_text text, uint64_t *low_p, uint64_t *high_p)
{
    const char *dots = memmem(text.text, text.size, "..", 2);

    if (!dots)
        return -EINVAL;
    struct parse_text low = {.text = text.text, .size = (size_t)(dots - text.text)};
    struct parse_text high = {.text = dots + 2, .size = text.size - low.size - 2};
    if (parse_ppm(low, low_p) < 0 || parse_ppm(high, high_p) < 0)
        return -EINVAL;
    return 0;
}

#endif
