/*
 * A failure: a negative errno and a text that names the thing. Whoever detects
 * an error first fills one; everyone else passes it on.
 */
#ifndef PINSERVE_FAILURE_H
#define PINSERVE_FAILURE_H

#include <stdarg.h>

#define FAILURE_TEXT_MAX 512

struct failure {
    int code; /* a negative errno; 0: nothing failed */
    char text[FAILURE_TEXT_MAX];
};

/* Fills failure (may be NULL) and returns code; errno survives. */
int failure_set(struct failure *failure, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

int failure_vset(struct failure *failure, int code, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

#endif
