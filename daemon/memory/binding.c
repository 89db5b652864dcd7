/*
 * Binding threads and memory to a placement, and where pages really are.
 *
 * A node that looks full is mostly full of page cache. Memory that is only
 * preferred there then lands elsewhere, because the kernel takes a free page of
 * another node before it takes one back on this one; memory that must be there
 * calls the OOM killer where nothing can be taken back. So pages are preferred,
 * then looked for, and those elsewhere are moved: for a move the kernel takes
 * page cache back on the target, and gives up where there is none.
 *
 * A description (XML, synthetic) is not this machine: binding and moving do
 * nothing then and report success; placement_check tells where pages are.
 */
#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory/placement.h"

#define CHUNK_PAGES 1024 /* in one question to the kernel */
#define MOVE_OWN 2       /* MPOL_MF_MOVE: pages of this process alone */

int placement_bind_thread(const struct topology *topology, const struct placement *placement)
{
    if (hwloc_set_cpubind(topology_hwloc(topology), placement->cpus, HWLOC_CPUBIND_THREAD))
        return -errno;
    return 0;
}

/* Without HWLOC_MEMBIND_STRICT hwloc asks for MPOL_PREFERRED. */
int placement_bind_memory(const struct topology *topology, const struct placement *placement,
                          void *address, size_t bytes)
{
    if (placement->memory_node < 0)
        return 0;
    hwloc_nodeset_t nodes = hwloc_bitmap_alloc();
    if (!nodes)
        return -ENOMEM;
    int error = hwloc_bitmap_only(nodes, (unsigned)placement->memory_node) ? -ENOMEM : 0;
    if (!error && hwloc_set_area_membind(topology_hwloc(topology), address, bytes, nodes,
                                         HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET))
        error = -errno;
    hwloc_bitmap_free(nodes);
    return error;
}

/* Some pages of an area, and the node that each is on or why it is on none. */
struct chunk {
    size_t count;
    void *pages[CHUNK_PAGES];
    int status[CHUNK_PAGES];
};

/* The next pages of the area; false when it is at its end. */
static bool chunk_next(struct chunk *chunk, char **next, size_t *left)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    chunk->count = 0;
    while (*left > 0 && chunk->count < CHUNK_PAGES) {
        chunk->status[chunk->count] = -ENOENT;
        chunk->pages[chunk->count++] = *next;
        *next += page;
        *left -= *left < page ? *left : page;
    }
    return chunk->count > 0;
}

/* Without target nodes move_pages moves nothing and fills in where each page is. */
static int chunk_ask(struct chunk *chunk)
{
    if (syscall(SYS_move_pages, 0, chunk->count, chunk->pages, NULL, chunk->status, 0) < 0)
        return -errno;
    return 0;
}

int placement_check(void *address, size_t bytes, int node, uint64_t *pages_p, uint64_t *local_p)
{
    uint64_t pages = 0, local = 0;
    char *next = address;
    struct chunk chunk;

    while (chunk_next(&chunk, &next, &bytes)) {
        int error = chunk_ask(&chunk);
        if (error)
            return error;
        for (size_t i = 0; i < chunk.count; i++) {
            if (chunk.status[i] < 0)
                continue; /* not touched */
            pages++;
            if (node < 0 || chunk.status[i] == node)
                local++;
        }
    }
    *pages_p = pages;
    *local_p = local;
    return 0;
}

int placement_move(const struct topology *topology, const struct placement *placement,
                   void *address, size_t bytes)
{
    char *next = address;
    struct chunk chunk;
    int nodes[CHUNK_PAGES];

    if (placement->memory_node < 0 || !hwloc_topology_is_thissystem(topology_hwloc(topology)))
        return 0;
    while (chunk_next(&chunk, &next, &bytes)) {
        size_t count = 0;
        int error = chunk_ask(&chunk);
        if (error)
            return error;
        for (size_t i = 0; i < chunk.count; i++) {
            if (chunk.status[i] < 0 || chunk.status[i] == placement->memory_node)
                continue;
            nodes[count] = placement->memory_node;
            chunk.pages[count++] = chunk.pages[i];
        }
        if (count == 0)
            continue;
        long left = syscall(SYS_move_pages, 0, count, chunk.pages, nodes, chunk.status, MOVE_OWN);
        if (left < 0)
            return -errno;
        if (left > 0)
            return -ENOMEM; /* the others would find no room either */
    }
    return 0;
}
