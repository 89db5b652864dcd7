/*
 * Copies a batch's bytes from a GPU to the host. readback_cuda.c where CUDA's headers are, else
 * readback_none.c.
 */
#ifndef PINCTL_READBACK_H
#define PINCTL_READBACK_H

#include <stddef.h>

#include "proto/failure.h"

struct readback;

/* For the GPU with this UUID. -ENODEV: this process does not see it, or cannot use CUDA; -EIO. */
int readback_new(const char *uuid, struct readback **readback_p, struct failure *failure);
void readback_free(struct readback *readback);

/* Copies bytes from a device address and returns when they are there. -EIO. */
int readback_copy(struct readback *readback, void *target, const void *address, size_t bytes,
                  struct failure *failure);

#endif
