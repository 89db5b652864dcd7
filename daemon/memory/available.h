/*
 * How much memory may still be touched: what RAM, the NUMA nodes of the cpuset
 * and every cgroup above this process have left. Touching more than a cgroup allows is SIGKILL,
 * never an error, so it is compared first.
 *
 * A cgroup has left: its limit, less what it uses, plus the inactive page cache
 * in that use, which the kernel gives up before it kills. memory.high is taken
 * for a limit as memory.max is: locked pages above it only make every further
 * allocation sleep.
 */
#ifndef PINSERVE_MEMORY_AVAILABLE_H
#define PINSERVE_MEMORY_AVAILABLE_H

#include <stdint.h>

struct memory_available {
    uint64_t total;  /* the smaller of RAM and the tightest cgroup limit: 100 % */
    uint64_t free;   /* what may still be taken */
    char bound[512]; /* which one bounds free: "RAM", the cpuset, the cgroup's path and file */
    char total_bound[512]; /* which one bounds total */
};

/* root: "" or NULL for the machine's own /proc and /sys, another folder in tests. cgroup v2 at
 * every level; v1's memory.limit_in_bytes too. 0 or negative errno: -ENOENT or -ENODATA when
 * meminfo is missing or says nothing, -ENAMETOOLONG. */
int memory_available_get(const char *root, struct memory_available *available_p);

#endif
