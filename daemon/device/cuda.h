/*
 * One GPU as pinserved-device serves it: its context, regions, rings and copies.
 * The calls are made by one thread. An error leaves the rest as it was, unless
 * cuda_check says that the context is lost: then there is nothing to do but end.
 */
#ifndef PINSERVE_DEVICE_CUDA_H
#define PINSERVE_DEVICE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

struct cuda;

/* Called by threads of the driver, also while a call is under way. They may block. */
struct cuda_events {
    /* The ring is zeroed. fd (only lent) or -1 and a handle. */
    void (*ring_made)(uint64_t ring, int fd, const uint8_t *ipc_handle);
    void (*copied)(uint64_t cookie);
};

/* What only the driver knows of a GPU. */
struct cuda_device {
    struct device_info info;
    int compute_major, compute_minor;
    size_t memory;
    bool can_export_fd, can_export_ipc;
};

/* Lists the GPUs that the driver shows: fills at most max, *n_p is how many there are. */
int cuda_list(struct cuda_device *devices, size_t max, size_t *n_p, struct failure *failure);

int cuda_new(const char *uuid, const struct cuda_events *events, struct cuda **cuda_p,
             struct failure *failure);
void cuda_free(struct cuda *cuda);

/* Copies or rings are under way: cuda_check is due now and then, for a broken context calls nothing
 * back. */
bool cuda_is_busy(struct cuda *cuda);
int cuda_check(struct cuda *cuda, struct failure *failure);

/* A region that cannot be mapped is known all the same: its copies fail, and say why. */
int cuda_add_region(struct cuda *cuda, uint32_t region, int fd_consume, size_t bytes,
                    struct failure *failure);
/* Wait for the copies that use it. */
int cuda_remove_region(struct cuda *cuda, uint32_t region, struct failure *failure);
int cuda_free_ring(struct cuda *cuda, uint64_t ring, struct failure *failure);

/* -EOPNOTSUPP: this export cannot work here. */
int cuda_make_ring(struct cuda *cuda, uint64_t ring, enum ring_export export_as, size_t bytes,
                   struct failure *failure);

int cuda_copy(struct cuda *cuda, uint32_t region, size_t offset, uint64_t ring, size_t ring_offset,
              size_t bytes, uint64_t cookie, struct failure *failure);

#endif
