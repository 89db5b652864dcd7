/*
 * Built without CUDA's headers: there is no GPU to read from, and a job on one cannot be opened
 * either.
 */
#include <errno.h>

#include "readback.h"

int readback_new(const char *uuid, struct readback **readback_p, struct failure *failure)
{
    (void)readback_p;
    return failure_set(failure, -ENODEV, "cannot read from GPU %s: built without CUDA", uuid);
}

void readback_free(struct readback *readback)
{
    (void)readback;
}

int readback_copy(struct readback *readback, void *target, const void *address, size_t bytes,
                  struct failure *failure)
{
    (void)readback;
    (void)target;
    (void)address;
    (void)bytes;
    return failure_set(failure, -ENODEV, "built without CUDA");
}
