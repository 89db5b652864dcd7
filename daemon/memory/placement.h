/*
 * Placement: which NUMA node's memory and CPUs serve a device. Read from hwloc
 * within what the cgroup allows; from XML or a synthetic description in tests.
 */
#ifndef PINSERVE_MEMORY_PLACEMENT_H
#define PINSERVE_MEMORY_PLACEMENT_H

#include <hwloc.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/failure.h"

struct topology; /* wraps hwloc_topology_t */

struct placement {
    int memory_node;     /* OS index of the NUMA node to bind to; -1: do not bind */
    int cpu_node;        /* OS index of the node whose CPUs work; -1: any */
    hwloc_cpuset_t cpus; /* allowed CPUs of the workers; never empty */
    unsigned n_cpus;
    char why[160];  /* for people: "nearest to 0000:81:00.0", "numa_node unknown: ..." */
    bool degraded;  /* not what was wished: worth one warning */
    bool displaced; /* not the nearest memory that the machine has: strict refuses it */
};

/* The machine's; source: NULL, or "xml:FILE" or "synthetic:DESCRIPTION" for tests. */
int topology_new(const char *source, struct topology **topology_p, struct failure *failure);
void topology_free(struct topology *topology);

/* What hwloc sees, disallowed CPUs and NUMA nodes included: placements hold only allowed ones. */
hwloc_topology_t topology_hwloc(const struct topology *topology);

/* Placement for a PCI address "0000:81:00.0", or NULL for a device without one (host). Nodes
 * without memory, without CPUs, or excluded by the cpuset give the nearest one that has what is
 * needed. numa_node: what sysfs says of the device, -1 unknown, used when hwloc has no PCI objects
 * or has the device below the whole machine. When neither knows: memory of the first allowed node
 * with memory and all allowed CPUs, degraded on a machine of several NUMA nodes. host on such a
 * machine is not bound. -EINVAL: not a PCI address; -ENODEV: no CPU is allowed. */
int placement_find(const struct topology *topology, const char *pci, int numa_node,
                   struct placement *placement_p, struct failure *failure);
void placement_deinit(struct placement *placement);

/* Binds the calling thread to the placement's CPUs; 0 or negative errno. This and the next two do
 * nothing and succeed when the topology is a description (XML, synthetic) and not this machine. */
int placement_bind_thread(const struct topology *topology, const struct placement *placement);

/* Prefers the placement's memory_node for memory that has not been touched: a node that is full
 * gives way to another. 0, or negative errno (EPERM, EINVAL, ENOSYS). */
int placement_bind_memory(const struct topology *topology, const struct placement *placement,
                          void *address, size_t bytes);

/* Moves touched pages of [address, bytes) that are on another node to the placement's memory_node,
 * for which the kernel takes page cache back there. 0, or negative errno: ENOMEM when the node has
 * no room even so, EPERM, ENOSYS; what was moved stays moved. */
int placement_move(const struct topology *topology, const struct placement *placement,
                   void *address, size_t bytes);

/* Asks the kernel page by page: how many of the touched pages of [address, bytes) are on node; -1:
 * any will do. 0, or negative errno (EPERM, ENOSYS) where the kernel does not tell. */
int placement_check(void *address, size_t bytes, int node, uint64_t *pages_p, uint64_t *local_p);

#endif
