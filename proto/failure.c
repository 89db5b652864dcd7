/*
 * Failures: a code and the text that names the thing.
 */
#include "failure.h"

#include <errno.h>
#include <stdio.h>

int failure_vset(struct failure *failure, int code, const char *format, va_list args)
{
    int saved = errno;

    if (failure) {
        failure->code = code;
        vsnprintf(failure->text, sizeof failure->text, format, args);
    }
    errno = saved;
    return code;
}

int failure_set(struct failure *failure, int code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    failure_vset(failure, code, format, args);
    va_end(args);
    return code;
}
