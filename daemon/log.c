/*
 * The log. A line is formatted on the stack and written by one write(2), so
 * that lines of several threads never mix. Texts hold names that clients
 * chose: control characters, and what is no UTF-8, are replaced. One text stays
 * one line, and a terminal shows it as it is.
 */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048
#define LINES_MASK UINT64_C(0xffffff) /* of a window: the lines in its second */
#define SECOND_SHIFT 24

static _Atomic int threshold = LOG_LEVEL_INFO;
static _Atomic unsigned lines_max = 10;
static atomic_bool to_journal;

/* $JOURNAL_STREAM is "device:inode" of the stream that systemd connected. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char own[64];
    struct stat st;

    if (!stream || fstat(STDERR_FILENO, &st) < 0)
        return false;
    snprintf(own, sizeof own, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(stream, own) == 0;
}

void log_init(enum log_level level, unsigned lines_per_second)
{
    threshold = level;
    lines_max = lines_per_second;
    to_journal = stderr_is_journal();
}

/* Counts a line in the window of this second. False: hold it back. */
static bool site_admit(struct log_site *site)
{
    unsigned max = lines_max;
    struct timespec now;

    if (max == 0)
        return true;
    clock_gettime(CLOCK_MONOTONIC, &now);
    /* Plus one: the window of a fresh site, 0, is of no second. */
    uint64_t second = ((uint64_t)now.tv_sec + 1) << SECOND_SHIFT;
    uint64_t seen = atomic_load(&site->window);
    uint64_t next;
    do {
        next = (seen & ~LINES_MASK) == second ? seen + 1 : second + 1;
        if ((next & LINES_MASK) > max)
            return false;
    } while (!atomic_compare_exchange_weak(&site->window, &seen, next));
    return true;
}

static const char *level_name(enum log_level level)
{
    switch (level) {
    case LOG_LEVEL_ERROR:
        return "error";
    case LOG_LEVEL_WARNING:
        return "warning";
    case LOG_LEVEL_INFO:
        return "info";
    case LOG_LEVEL_DEBUG:
        return "debug";
    }
    return "info";
}

static size_t prefix_write(char *line, size_t size, enum log_level level)
{
    struct timespec now;
    struct tm tm;
    char stamp[32];

    if (to_journal)
        return (size_t)snprintf(line, size, "<%d>", (int)level);
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    strftime(stamp, sizeof stamp, "%F %T", &tm);
    return (size_t)snprintf(line, size, "%s.%03ld %.32s: %s: ", stamp, now.tv_nsec / 1000000,
                            program_invocation_short_name, level_name(level));
}

/* Bytes of the UTF-8 character at text; 0: none starts there, or one that steers a terminal. */
static size_t character_length(const unsigned char *text, size_t left)
{
    unsigned char first = text[0];
    size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;

    if (length > left || first == 0x7f || first < ' ' || (first >= 0x80 && first < 0xc2) ||
        first > 0xf4)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    /* U+0080 to U+009F are control characters, too: U+009B begins an escape sequence. */
    return first == 0xc2 && text[1] < 0xa0 ? 0 : length;
}

static void text_clean(char *text, size_t size)
{
    for (size_t i = 0; i < size;) {
        size_t length = character_length((const unsigned char *)text + i, size - i);
        if (length == 0)
            text[i++] = '?';
        i += length;
    }
}

void log_write(struct log_site *site, enum log_level level, const char *format, ...)
{
    int saved = errno;
    char line[LINE_MAX_BYTES];
    char tail[64] = "";
    va_list args;

    if ((int)level > threshold)
        return;
    if (!site_admit(site)) {
        atomic_fetch_add(&site->held_back, 1);
        errno = saved;
        return;
    }
    unsigned held_back = atomic_exchange(&site->held_back, 0);
    if (held_back > 0)
        snprintf(tail, sizeof tail, " (%u more like this were held back)", held_back);

    size_t room = sizeof line - sizeof tail - 1;
    size_t start = prefix_write(line, room, level);
    errno = saved; /* for %m */
    va_start(args, format);
    int n = vsnprintf(line + start, room - start, format, args);
    va_end(args);
    size_t size = start;
    if (n > 0)
        size += (size_t)n < room - start ? (size_t)n : room - start - 1;
    text_clean(line + start, size - start);
    size_t tail_size = strlen(tail);
    memcpy(line + size, tail, tail_size);
    size += tail_size;
    line[size++] = '\n';
    /* There is nowhere left to complain to. */
    ssize_t written = write(STDERR_FILENO, line, size);
    (void)written;
    errno = saved;
}
