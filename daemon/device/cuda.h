/*
 * One GPU as pinserved-device serves it: its context, regions, rings, files and
 * copies.
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
    void (*copied)(uint64_t cookie, const struct failure *failure);
    /* As device.h has them; from inside the calls here. */
    void (*file_ready)(uint32_t file, const struct failure *failure);
    void (*registered)(uint64_t bytes);
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

/* gather_max: bytes of files that are registered at a time. */
int cuda_new(const char *uuid, uint64_t gather_max, const struct cuda_events *events,
             struct cuda **cuda_p, struct failure *failure);
/* False: a file's registration is waited for or hangs, and all is left as it is: the process's end
 * helps. */
bool cuda_free(struct cuda *cuda);

/* An fd that is readable when cuda_dispatch is due. */
int cuda_get_fd(struct cuda *cuda);
void cuda_dispatch(struct cuda *cuda);

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

/* Files: file_ready follows a success. Removing one does not wait for its gathers. */
int cuda_add_file(struct cuda *cuda, uint32_t file, int fd_consume, uint64_t size,
                  struct failure *failure);
int cuda_remove_file(struct cuda *cuda, uint32_t file, struct failure *failure);

int cuda_gather(struct cuda *cuda, const struct device_gather *gather, uint64_t cookie,
                struct failure *failure);

#endif
