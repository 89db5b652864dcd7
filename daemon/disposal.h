/*
 * Giving up what a client brought, off the loop thread. Closing a file waits
 * for its file system, and that may be the client's own: a FUSE server answers
 * a close when it likes, or never.
 */
#ifndef PINSERVE_DISPOSAL_H
#define PINSERVE_DISPOSAL_H

#include <stdbool.h>
#include <stddef.h>

struct disposal;

/* idle is called on the disposal's thread each time that it has done all; it must not block. NULL:
 * no memory. */
struct disposal *disposal_new(void (*idle)(void *user), void *user);
/* Does what is left, and waits for it. */
void disposal_free(struct disposal *disposal);

/* Calls end(object) on the disposal's thread, in the order given; at once where no thread or
 * memory is to be had. */
void disposal_give(struct disposal *disposal, void (*end)(void *object), void *object);
/* Closes n fds so. */
void disposal_give_fds(struct disposal *disposal, const int *fds, size_t n);
/* Nothing waits or is under way. */
bool disposal_idle(struct disposal *disposal);

#endif
