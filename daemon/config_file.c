/*
 * Reading the configuration file. inih takes it apart; this counts its lines,
 * so that every failure names one, and joins values that go on in indented
 * lines: inih reads at most 198 bytes a line and gives each line by itself.
 *
 * The failure that stands first in the file is told, and nothing after it is taken over.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cleanup.h"

#define VALUE_BYTES 4096

struct reader {
    struct config *config;
    const char *path;
    FILE *file;
    int line;
    bool indented; /* the line that is being read */
    bool heads;    /* a section began since the last value: the next line is a key's, if indented */
    bool cut;      /* a line was longer than inih takes */

    /* The key that may still go on; section and name as inih cuts them, at 50 bytes. */
    char section[64], name[64], value[VALUE_BYTES];
    int value_line; /* 0: there is none */

    struct failure *failure;
    int result, failed_line;
};

/* inih goes on behind a line that it does not understand and tells it at the end, so what was found
 * first is not always what stands first. */
static void fail(struct reader *reader, int line, const char *text)
{
    if (reader->result && reader->failed_line <= line)
        return;
    reader->failed_line = line;
    reader->result = failure_set(reader->failure, -EINVAL, "%s:%d: %s", reader->path, line, text);
}

static void flush_value(struct reader *reader)
{
    char place[256];

    if (reader->value_line && !reader->result) {
        snprintf(place, sizeof place, "%.230s:%d", reader->path, reader->value_line);
        reader->result = config_assign(reader->config, place, reader->section, reader->name,
                                       reader->value, reader->failure);
        reader->failed_line = reader->value_line;
    }
    reader->value_line = 0;
}

static char *read_line(char *text, int size, void *stream)
{
    struct reader *reader = stream;

    if (!fgets(text, size, reader->file))
        return NULL;
    reader->line++;
    reader->indented = *text == ' ' || *text == '\t';
    reader->heads = reader->heads || *text == '[';
    size_t length = strlen(text);
    if (length + 1 == (size_t)size && text[length - 1] != '\n') {
        fail(reader, reader->line, "the line is too long; a value may go on in indented lines");
        reader->cut = true;
        return NULL;
    }
    return text;
}

/* inih leaves comments behind values on lines that go on. */
static size_t length_without_comment(const char *value)
{
    const char *end = strchr(value, ';');

    while (end && (end == value || !isspace((unsigned char)end[-1])))
        end = strchr(end + 1, ';');
    size_t length = end ? (size_t)(end - value) : strlen(value);
    while (length > 0 && isspace((unsigned char)value[length - 1]))
        length--;
    return length;
}

static int take_line(void *user, const char *section, const char *name, const char *value)
{
    struct reader *reader = user;
    size_t length = strlen(reader->value);

    if (reader->value_line && reader->indented && !reader->heads) {
        size_t more = length_without_comment(value);
        if (more > 0 && length + 1 + more < sizeof reader->value)
            snprintf(reader->value + length, sizeof reader->value - length, "%s%.*s",
                     length ? " " : "", (int)more, value);
        else if (more > 0)
            fail(reader, reader->line, "the value is too long");
        return 1;
    }
    flush_value(reader);
    reader->heads = false;
    snprintf(reader->section, sizeof reader->section, "%s", section);
    snprintf(reader->name, sizeof reader->name, "%s", name);
    snprintf(reader->value, sizeof reader->value, "%s", value);
    reader->value_line = reader->line;
    return 1;
}

static void close_file(FILE **file)
{
    if (*file)
        fclose(*file);
}

int config_read_file(struct config *config, const char *path, struct failure *failure)
{
    cleanup_free struct reader *reader = calloc(1, sizeof *reader);

    if (!reader)
        return failure_set(failure, -ENOMEM, "%s: out of memory", path);
    cleanup(close_file) FILE *file = fopen(path, "re");
    if (!file)
        return failure_set(failure, -errno, "%s: %s", path, strerror(errno));
    *reader = (struct reader){.config = config, .path = path, .file = file, .failure = failure};
    errno = 0;
    int wrong = ini_parse_stream(read_line, reader, take_line, reader);
    int error = errno ? errno : EIO;
    if (ferror(file))
        return failure_set(failure, -error, "%s: %s", path, strerror(error));
    flush_value(reader);
    if (wrong && !reader->cut)
        fail(reader, wrong, "neither a comment, nor [section], nor key = value");
    return reader->result;
}
