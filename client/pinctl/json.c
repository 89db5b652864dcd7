/*
 * Writes JSON as it goes, with two spaces a level or on one line. The only state is where in the
 * text the writer stands; errors of the stream stay with the stream.
 */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

void json_init(struct json *json, FILE *out, bool compact)
{
    *json = (struct json){.out = out, .compact = compact, .empty = true};
}

/* Length of the UTF-8 sequence at text, or 0 when there is none: overlong forms, surrogates and
 * what lies beyond U+10FFFF are none. */
static size_t utf8_length(const unsigned char *text)
{
    static const struct {
        unsigned char mask, lead, first_min, first_max;
    } forms[] = {
        {0xff, 0xe0, 0xa0, 0xbf}, {0xff, 0xed, 0x80, 0x9f}, {0xff, 0xf0, 0x90, 0xbf},
        {0xff, 0xf4, 0x80, 0x8f}, {0xf0, 0xe0, 0x80, 0xbf}, {0xfc, 0xf0, 0x80, 0xbf},
    };

    if (text[0] < 0x80)
        return 1;
    if (text[0] >= 0xc2 && text[0] <= 0xdf)
        return (text[1] & 0xc0) == 0x80 ? 2 : 0;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if ((text[0] & forms[i].mask) != forms[i].lead)
            continue;
        if (text[1] < forms[i].first_min || text[1] > forms[i].first_max)
            return 0;
        size_t length = text[0] < 0xf0 ? 3 : 4;
        for (size_t k = 2; k < length; k++) {
            if ((text[k] & 0xc0) != 0x80)
                return 0;
        }
        return length;
    }
    return 0;
}

static void put_text(FILE *out, const char *value)
{
    const unsigned char *text = (const unsigned char *)value;

    putc('"', out);
    while (*text) {
        size_t length = utf8_length(text);
        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else if (*text == '"' || *text == '\\') {
            fprintf(out, "\\%c", *text);
        } else if (*text == '\n') {
            fputs("\\n", out);
        } else if (*text < 0x20 || *text == 0x7f) {
            fprintf(out, "\\u%04x", *text);
        } else {
            fwrite(text, 1, length, out);
        }
        text += length;
    }
    putc('"', out);
}

static void put_break(struct json *json)
{
    if (json->compact)
        return;
    putc('\n', json->out);
    for (unsigned int i = 0; i < json->depth; i++)
        fputs("  ", json->out);
}

/* What stands before a value: the comma after the one before, the line break and the key. */
static void put_lead(struct json *json, const char *key)
{
    if (json->depth > 0) {
        if (!json->empty)
            fputs(json->compact ? ", " : ",", json->out);
        put_break(json);
    }
    json->empty = false;
    if (key) {
        put_text(json->out, key);
        fputs(": ", json->out);
    }
}

static void put_begin(struct json *json, const char *key, char bracket)
{
    put_lead(json, key);
    putc(bracket, json->out);
    json->depth++;
    json->empty = true;
}

static void put_end(struct json *json, char bracket)
{
    json->depth--;
    if (!json->empty)
        put_break(json);
    putc(bracket, json->out);
    json->empty = false;
    if (json->depth == 0)
        putc('\n', json->out);
}

void json_object_begin(struct json *json, const char *key)
{
    put_begin(json, key, '{');
}

void json_object_end(struct json *json)
{
    put_end(json, '}');
}

void json_array_begin(struct json *json, const char *key)
{
    put_begin(json, key, '[');
}

void json_array_end(struct json *json)
{
    put_end(json, ']');
}

void json_string(struct json *json, const char *key, const char *value)
{
    put_lead(json, key);
    put_text(json->out, value);
}

void json_unsigned(struct json *json, const char *key, uint64_t value)
{
    put_lead(json, key);
    fprintf(json->out, "%" PRIu64, value);
}

void json_signed(struct json *json, const char *key, int64_t value)
{
    put_lead(json, key);
    fprintf(json->out, "%" PRId64, value);
}

void json_real(struct json *json, const char *key, double value)
{
    if (!isfinite(value)) {
        json_null(json, key);
        return;
    }
    put_lead(json, key);
    fprintf(json->out, "%.9g", value);
}

void json_bool(struct json *json, const char *key, bool value)
{
    put_lead(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_null(struct json *json, const char *key)
{
    put_lead(json, key);
    fputs("null", json->out);
}
