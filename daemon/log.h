/*
 * The log: lines on stderr, with the journal's priority prefixes when stderr
 * is the journal's. Each line is about one thing and names it. Lines of one
 * place in the code are bounded in number per second; what was held back is
 * counted in the next line. Thread-safe; errno survives.
 */
#ifndef PINSERVE_LOG_H
#define PINSERVE_LOG_H

#include <stdint.h>

enum log_level {
    LOG_LEVEL_ERROR = 3,
    LOG_LEVEL_WARNING = 4,
    LOG_LEVEL_INFO = 6,
    LOG_LEVEL_DEBUG = 7
};

struct log_site {
    _Atomic uint64_t window; /* the second in which lines were last counted, and how many */
    _Atomic unsigned held_back;
};

/* Until it is called: LOG_LEVEL_INFO, 10 lines a second. 0 lines: not bounded. */
void log_init(enum log_level level, unsigned lines_per_second);

void log_write(struct log_site *site, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_at(level, ...)                                                                         \
    do {                                                                                           \
        static struct log_site log_site_here;                                                      \
        log_write(&log_site_here, (level), __VA_ARGS__);                                           \
    } while (0)

#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
