/*
 * A region: a sealed memfd bound to one NUMA node, touched and page-locked,
 * charged to one tenant in full. Making and destroying one blocks: not on the
 * loop thread. A region has no lock: whoever holds it uses it from one thread.
 */
#ifndef PINSERVE_MEMORY_REGION_H
#define PINSERVE_MEMORY_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/account.h"
#include "memory/placement.h"
#include "proto/failure.h"

enum region_lock { REGION_LOCK_TRY, REGION_LOCK_REQUIRE, REGION_LOCK_OFF };

struct region_spec {
    size_t bytes; /* a multiple of the page size */
    enum region_lock lock;
    bool numa_strict;
    uint64_t owner;  /* of a push region, that a client writes to: its job; 0: any other region */
    uint32_t behind; /* so many more of them follow: there must be room for all */
    const struct placement *placement; /* where; must outlive the region */
    const struct topology *topology;
    const char *root; /* as for memory_available_get; NULL: the machine's own */
};

struct region {
    uint32_t id;    /* set by the pool; never reused */
    uint64_t owner; /* of the spec */
    int fd;         /* the daemon's own, writable; -1 once destroyed */
    void *address;
    size_t bytes;
    bool locked;
    struct failure lock_failure; /* why not, when not locked */
    struct failure
        bind_failure; /* why unbound, code 0 when bound or when there is nothing to bind */
    uint64_t pages, pages_local; /* as the kernel says */
    int numa_node;               /* OS index; -1: none */
    struct charge charge;        /* pinned bytes, of the tenant */
    int linger_fd;               /* read-only, after destruction, while a client maps it */
};

/* Makes one. The charge is the caller's to acquire, before. Compares the need with what RAM and
 * every cgroup above still have before any page is touched (-ENOMEM naming both figures and which
 * bound); -EPERM with the limit, the need and "LimitMEMLOCK=" when lock is REQUIRE and the limit is
 * too low; -EXDEV when strict and a page is elsewhere. */
int region_new(const struct region_spec *spec, struct region **region_p, struct failure *failure);

/* A read-only description of its own for a client or a device process (owned by the caller). */
int region_open_readonly(const struct region *region, int *fd_p);

/* The same, writable, for the client of a push region; -EPERM of any other. */
int region_open_writable(const struct region *region, int *fd_p);

/* Unmaps and closes the daemon's side. True when nobody else holds it: then only region_free is
 * left. False: keep calling region_is_released now and then; it stays charged. */
bool region_destroy(struct region *region);
bool region_is_released(struct region *region);

/* Frees the object and returns its charge. */
void region_free(struct region *region);

#endif
