/*
 * What the files that serve one GPU share: its parts, and who may wait for them.
 */
#ifndef PINSERVE_DEVICE_CUDA_INTERNAL_H
#define PINSERVE_DEVICE_CUDA_INTERNAL_H

#include <stdatomic.h>

#include "cuda_attributes.h"
#include "cuda_driver.h"
#include "cuda_files.h"
#include "device/cuda.h"
#include "proto/list.h"

struct cuda {
    char uuid[DEVICE_UUID_MAX];
    const struct cuda_events *events;
    CUdevice device;
    CUcontext context;
    CUstream copies, reports, zeroing;
    CUevent copied;
    void *zeros; /* a registered page of them; made with the first ring */
    bool read_only_registers;
    bool is_lost; /* a gather has seen that the context is */
    struct list regions, rings;
    struct cuda_files files;
    struct list gathers; /* that wait for windows, in order */
    atomic_uint busy;    /* copies, gathers and new rings under way */
};

struct cuda_region {
    struct list link;
    uint32_t id;
    void *address; /* NULL: it could not be mapped, for this failure */
    size_t bytes;
    bool registered;
    struct failure failure;
    atomic_uint busy;
};

struct cuda_ring {
    struct list link;
    uint64_t id;
    size_t bytes; /* as allocated */
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle; /* 0: made by cuMemAlloc */
    CUevent zeroed;
    atomic_bool is_zeroed;
    atomic_uint busy;
};

struct cuda_region *cuda_region_find(struct cuda *cuda, uint32_t id);
/* Whether bytes from offset of the region may be copied to ring_offset of the ring. */
int cuda_copy_check(const struct cuda_region *region, uint64_t offset, const struct cuda_ring *ring,
                    uint64_t ring_offset, uint64_t bytes, struct failure *failure);
struct cuda_ring *cuda_ring_find(struct cuda *cuda, uint64_t id);

/* Waits until nothing uses what *busy counts: a part's counter, or all of them. */
int cuda_wait_idle(struct cuda *cuda, atomic_uint *busy, struct failure *failure);

void cuda_free_zeros(struct cuda *cuda);

/* Has function(user) called behind the copies that were queued until now. */
CUresult cuda_report(struct cuda *cuda, CUhostFn function, void *user);

/* Goes on with the gathers that wait. */
void cuda_gathers_advance(struct cuda *cuda);
/* Those that wait for this window fail. */
void cuda_gathers_fail(struct cuda *cuda, const struct cuda_window *window,
                       const struct failure *failure);

#endif
