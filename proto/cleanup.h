/*
 * Cleanup attributes: a local that owns something says so where it is declared,
 * and gives it away by steal_fd or steal_ptr.
 */
#ifndef PINSERVE_CLEANUP_H
#define PINSERVE_CLEANUP_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Closes *fd when it is open, and sets it to -1; errno survives. */
static inline void close_fd(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        errno = saved;
        *fd = -1;
    }
}

static inline int steal_fd(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

static inline void cleanup_free_p(void *pointer)
{
    free(*(void **)pointer);
}

static inline void *steal_ptr_p(void *pointer)
{
    void **from = pointer;
    void *stolen = *from;
    *from = NULL;
    return stolen;
}

#define steal_ptr(pointer) ((__typeof__(pointer))steal_ptr_p(&(pointer)))
#define cleanup(function) __attribute__((cleanup(function)))
#define cleanup_fd cleanup(close_fd)
#define cleanup_free cleanup(cleanup_free_p)

#endif
