/*
 * Placement by hwloc.
 *
 * The topology keeps what the cgroup disallows, so that the distance from an
 * excluded NUMA node to the allowed ones is known; what may be used is
 * `cpus` and `nodes`, and nothing else is ever given out.
 *
 * A device's home is the NUMA node that it hangs on: of the nodes of its
 * nearest ancestor that has CPUs or memory, the one that sysfs names, else the
 * first with memory. When hwloc does not know the device, or has it below the
 * whole machine (as for numa_node -1 on several nodes), sysfs's number alone
 * counts. Memory then comes from the nearest usable node to the home, CPUs from
 * the nearest with allowed CPUs. With the home unknown: memory of the first
 * usable node, and all allowed CPUs.
 * That is displaced, and so is memory of another node than the nearest to the
 * home that has any; a home without memory is not: nothing is nearer.
 */
#include "memory/placement.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cleanup.h"

struct topology {
    hwloc_topology_t hwloc;
    hwloc_cpuset_t cpus;   /* allowed */
    hwloc_nodeset_t nodes; /* allowed */
};

/* NEED_ANY_MEMORY: allowed or not. */
enum need { NEED_MEMORY, NEED_CPUS, NEED_ANY_MEMORY };

/* -- the topology ---------------------------------------------------------------------------- */

void topology_free(struct topology *topology)
{
    if (!topology)
        return;
    if (topology->hwloc)
        hwloc_topology_destroy(topology->hwloc);
    hwloc_bitmap_free(topology->cpus);
    hwloc_bitmap_free(topology->nodes);
    free(topology);
}

static void topology_free_p(struct topology **topology)
{
    topology_free(*topology);
}

hwloc_topology_t topology_hwloc(const struct topology *topology)
{
    return topology->hwloc;
}

static int source_set(hwloc_topology_t hwloc, const char *source, struct failure *failure)
{
    const char *rest = strchr(source, ':');

    if (!strncmp(source, "xml:", 4)) {
        if (hwloc_topology_set_xml(hwloc, rest + 1))
            return failure_set(failure, -errno, "topology %s: %s", source, strerror(errno));
        return 0;
    }
    if (!strncmp(source, "synthetic:", 10)) {
        if (hwloc_topology_set_synthetic(hwloc, rest + 1))
            return failure_set(failure, -EINVAL, "topology %s: not a synthetic description",
                               source);
        return 0;
    }
    return failure_set(failure, -EINVAL, "topology %s: neither xml:FILE nor synthetic:DESCRIPTION",
                       source);
}

/* The process's own affinity narrows what the cgroup allows (taskset, CPUAffinity=). */
static int allowed_read(struct topology *topology, struct failure *failure)
{
    topology->cpus = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology->hwloc));
    topology->nodes = hwloc_bitmap_dup(hwloc_topology_get_allowed_nodeset(topology->hwloc));
    if (!topology->cpus || !topology->nodes)
        return failure_set(failure, -ENOMEM, "topology: no memory for its sets of CPUs");
    if (!hwloc_topology_is_thissystem(topology->hwloc))
        return 0;
    hwloc_cpuset_t bound = hwloc_bitmap_alloc();
    if (!bound)
        return failure_set(failure, -ENOMEM, "topology: no memory for its sets of CPUs");
    if (!hwloc_get_cpubind(topology->hwloc, bound, HWLOC_CPUBIND_THREAD) &&
        hwloc_bitmap_intersects(bound, topology->cpus))
        hwloc_bitmap_and(topology->cpus, topology->cpus, bound);
    hwloc_bitmap_free(bound);
    return 0;
}

/* hwloc's plugins can ask the GPUs' own libraries, which open every device and keep it open: an
 * idle daemon must hold none. Where a GPU is, its PCI address tells. */
static void without_drivers(hwloc_topology_t hwloc)
{
    static const char *const components[] = {"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl"};

    for (size_t i = 0; i < sizeof components / sizeof components[0]; i++)
        hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      components[i]);
}

int topology_new(const char *source, struct topology **topology_p, struct failure *failure)
{
    cleanup(topology_free_p) struct topology *topology = calloc(1, sizeof(*topology));

    if (!topology)
        return failure_set(failure, -ENOMEM, "topology: no memory");
    if (hwloc_topology_init(&topology->hwloc)) {
        topology->hwloc = NULL;
        return failure_set(failure, -errno, "topology: hwloc cannot start: %s", strerror(errno));
    }
    without_drivers(topology->hwloc);
    if (source) {
        int error = source_set(topology->hwloc, source, failure);
        if (error)
            return error;
    }
    hwloc_topology_set_flags(topology->hwloc, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    hwloc_topology_set_io_types_filter(topology->hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(topology->hwloc)) {
        int error = errno ? -errno : -EINVAL;
        return failure_set(failure, error, "topology %s: hwloc cannot load it: %s",
                           source ? source : "of this machine", strerror(-error));
    }
    int error = allowed_read(topology, failure);
    if (error)
        return error;
    *topology_p = steal_ptr(topology);
    return 0;
}

/* -- NUMA nodes ------------------------------------------------------------------------------ */

static hwloc_obj_t node_next(const struct topology *topology, hwloc_obj_t node)
{
    return hwloc_get_next_obj_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE, node);
}

static unsigned node_count(const struct topology *topology)
{
    int count = hwloc_get_nbobjs_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE);

    return count > 0 ? (unsigned)count : 0;
}

/* Memory of a GPU that appears as a NUMA node is none to put pools in. */
static bool node_has_memory(hwloc_obj_t node)
{
    return node->attr->numanode.local_memory > 0 &&
           !(node->subtype && !strcmp(node->subtype, "GPUMemory"));
}

static bool node_allowed(const struct topology *topology, hwloc_obj_t node)
{
    return hwloc_bitmap_isset(topology->nodes, node->os_index);
}

/* hwloc gives a node without CPUs those of the object that it attaches it to. Such a node spans
 * others, or has the CPUs of one of them (see node_of_cpus). */
static bool node_has_cpus(const struct topology *topology, hwloc_obj_t node)
{
    if (hwloc_bitmap_iszero(node->cpuset))
        return false;
    for (hwloc_obj_t other = NULL; (other = node_next(topology, other)) != NULL;)
        if (!hwloc_bitmap_iszero(other->cpuset) &&
            hwloc_bitmap_isincluded(other->cpuset, node->cpuset) &&
            !hwloc_bitmap_isequal(other->cpuset, node->cpuset))
            return false;
    return true;
}

static bool node_serves(const struct topology *topology, hwloc_obj_t node, enum need need)
{
    if (need == NEED_CPUS)
        return node_has_cpus(topology, node) &&
               hwloc_bitmap_intersects(node->cpuset, topology->cpus);
    if (need == NEED_MEMORY && !node_allowed(topology, node))
        return false;
    return node_has_memory(node);
}

static hwloc_obj_t node_first(const struct topology *topology, enum need need)
{
    hwloc_obj_t node = NULL;

    while ((node = node_next(topology, node)) && !node_serves(topology, node, need))
        ;
    return node;
}

/* The object with CPUs that a node is attached to. */
static hwloc_obj_t node_place(hwloc_obj_t node)
{
    while (node->parent && hwloc_obj_type_is_memory(node->type))
        node = node->parent;
    return node;
}

/* How far apart: the firmware's latencies, or else how far up the tree they meet. */
static uint64_t node_distance(const struct topology *topology, struct hwloc_distances_s *latencies,
                              hwloc_obj_t from, hwloc_obj_t to)
{
    hwloc_uint64_t there, back;

    if (latencies && !hwloc_distances_obj_pair_values(latencies, from, to, &there, &back))
        return there;
    hwloc_obj_t meet =
        hwloc_get_common_ancestor_obj(topology->hwloc, node_place(from), node_place(to));
    return (uint64_t)(1000 - (meet ? meet->depth : 0));
}

/* The nearest node that serves, the node itself first; NULL when none does. */
static hwloc_obj_t node_nearest(const struct topology *topology, hwloc_obj_t from, enum need need)
{
    struct hwloc_distances_s *latencies = NULL;
    unsigned count = 1;
    hwloc_obj_t best = NULL;
    uint64_t best_distance = UINT64_MAX;

    if (node_serves(topology, from, need))
        return from;
    if (hwloc_distances_get_by_type(topology->hwloc, HWLOC_OBJ_NUMANODE, &count, &latencies,
                                    HWLOC_DISTANCES_KIND_FROM_OS | HWLOC_DISTANCES_KIND_FROM_USER |
                                        HWLOC_DISTANCES_KIND_MEANS_LATENCY,
                                    0) ||
        count == 0)
        latencies = NULL;
    for (hwloc_obj_t node = NULL; (node = node_next(topology, node)) != NULL;) {
        if (!node_serves(topology, node, need))
            continue;
        uint64_t distance = node_distance(topology, latencies, from, node);
        if (distance < best_distance) {
            best = node;
            best_distance = distance;
        }
    }
    if (latencies)
        hwloc_distances_release(topology->hwloc, latencies);
    return best;
}

/* Of several nodes with the same CPUs the first is the one that they are counted to. */
static hwloc_obj_t node_of_cpus(const struct topology *topology, hwloc_obj_t node)
{
    for (hwloc_obj_t other = NULL; (other = node_next(topology, other)) != NULL;)
        if (hwloc_bitmap_isequal(other->cpuset, node->cpuset))
            return other;
    return node;
}

/* -- the device ------------------------------------------------------------------------------ */

/* Of the nodes near an object: the one that sysfs names, else the first with memory. */
static hwloc_obj_t home_among(const struct topology *topology, hwloc_const_nodeset_t near,
                              int numa_node)
{
    hwloc_obj_t first = NULL, with_memory = NULL;

    for (hwloc_obj_t node = NULL; (node = node_next(topology, node)) != NULL;) {
        if (!hwloc_bitmap_isset(near, node->os_index))
            continue;
        if (numa_node >= 0 && node->os_index == (unsigned)numa_node)
            return node;
        if (!first)
            first = node;
        if (!with_memory && node_has_memory(node))
            with_memory = node;
    }
    return with_memory ? with_memory : first;
}

/* The device's home by where hwloc has it; NULL when that says nothing. */
static hwloc_obj_t home_by_hwloc(const struct topology *topology, const unsigned address[4],
                                 int numa_node)
{
    hwloc_obj_t device =
        hwloc_get_pcidev_by_busid(topology->hwloc, address[0], address[1], address[2], address[3]);
    hwloc_obj_t ancestor = device ? hwloc_get_non_io_ancestor_obj(topology->hwloc, device) : NULL;

    if (!ancestor)
        return NULL;
    hwloc_obj_t home = home_among(topology, ancestor->nodeset, numa_node);
    hwloc_const_cpuset_t machine = hwloc_get_root_obj(topology->hwloc)->cpuset;
    if (home && hwloc_bitmap_isequal(ancestor->cpuset, machine) &&
        !(hwloc_bitmap_isequal(home->cpuset, machine) && node_has_cpus(topology, home)))
        return NULL;
    return home;
}

static int pci_parse(const char *pci, unsigned address[4])
{
    int end = -1;

    if (sscanf(pci, "%8x:%2x:%2x.%1x%n", &address[0], &address[1], &address[2], &address[3],
               &end) != 4 ||
        end < 0 || pci[end])
        return -EINVAL;
    return 0;
}

/* -- the decision ---------------------------------------------------------------------------- */

static int placement_set_cpus(const struct topology *topology, hwloc_obj_t node,
                              struct placement *placement)
{
    placement->cpus = hwloc_bitmap_dup(topology->cpus);
    if (!placement->cpus)
        return -ENOMEM;
    if (node)
        hwloc_bitmap_and(placement->cpus, placement->cpus, node->cpuset);
    placement->cpu_node = node ? (int)node_of_cpus(topology, node)->os_index : -1;
    int count = hwloc_bitmap_weight(placement->cpus);
    placement->n_cpus = count > 0 ? (unsigned)count : 1;
    return 0;
}

/* No home is known: pci NULL (host), or a device of which neither hwloc nor sysfs knows. */
static int placement_anywhere(const struct topology *topology, const char *pci, int numa_node,
                              struct placement *placement)
{
    bool single = node_count(topology) <= 1;
    hwloc_obj_t memory = node_first(topology, NEED_MEMORY);

    if (!pci && !single)
        memory = NULL;
    placement->memory_node = memory ? (int)memory->os_index : -1;
    placement->degraded = placement->displaced = pci && !single;
    if (!pci && single)
        snprintf(placement->why, sizeof(placement->why), "host: the only NUMA node");
    else if (!pci)
        snprintf(placement->why, sizeof(placement->why),
                 "host: all allowed CPUs, memory of any NUMA node");
    else if (single)
        snprintf(placement->why, sizeof(placement->why), "%s: the only NUMA node", pci);
    else if (numa_node >= 0)
        snprintf(placement->why, sizeof(placement->why),
                 "%s: NUMA node %d is not in the topology: all allowed CPUs, memory of the first "
                 "node that has any, %d",
                 pci, numa_node, placement->memory_node);
    else
        snprintf(placement->why, sizeof(placement->why),
                 "%s: numa_node unknown: all allowed CPUs, memory of the first node that has "
                 "any, %d",
                 pci, placement->memory_node);
    return placement_set_cpus(topology, single ? node_first(topology, NEED_CPUS) : NULL, placement);
}

static int placement_near(const struct topology *topology, const char *pci, hwloc_obj_t home,
                          struct placement *placement)
{
    hwloc_obj_t memory = node_nearest(topology, home, NEED_MEMORY);
    hwloc_obj_t cpus = node_nearest(topology, home, NEED_CPUS);
    char where[64] = "", who[64] = "";

    placement->memory_node = memory ? (int)memory->os_index : -1;
    placement->degraded = memory != home || cpus != home;
    placement->displaced = !memory || memory != node_nearest(topology, home, NEED_ANY_MEMORY);
    int error = placement_set_cpus(topology, cpus, placement);
    if (error)
        return error;
    if (memory != home && !memory)
        snprintf(where, sizeof(where), "; no allowed node has memory: not bound");
    else if (memory != home)
        snprintf(where, sizeof(where), ", %s: memory of node %d",
                 node_has_memory(home) ? "is not allowed" : "has no memory",
                 placement->memory_node);
    if (cpus != home)
        snprintf(who, sizeof(who), "%s %s: CPUs of node %d", memory != home ? "; it" : ",",
                 node_has_cpus(topology, home) ? "has no allowed CPUs" : "has no CPUs",
                 placement->cpu_node);
    else if (memory == home && placement->cpu_node != (int)home->os_index)
        snprintf(who, sizeof(who), ", with the CPUs of node %d", placement->cpu_node);
    snprintf(placement->why, sizeof(placement->why), "NUMA node %u, nearest to %s%s%s",
             home->os_index, pci, where, who);
    return 0;
}

int placement_find(const struct topology *topology, const char *pci, int numa_node,
                   struct placement *placement_p, struct failure *failure)
{
    struct placement placement = {.memory_node = -1, .cpu_node = -1};
    hwloc_obj_t home = NULL;
    unsigned address[4];
    int error;

    if (pci && pci_parse(pci, address))
        return failure_set(failure, -EINVAL, "%s: not a PCI address like 0000:81:00.0", pci);
    if (hwloc_bitmap_iszero(topology->cpus))
        return failure_set(failure, -ENODEV, "%s: no CPU is allowed", pci ? pci : "host");
    if (pci)
        home = home_by_hwloc(topology, address, numa_node);
    if (pci && !home && numa_node >= 0)
        home = hwloc_get_numanode_obj_by_os_index(topology->hwloc, (unsigned)numa_node);
    if (home)
        error = placement_near(topology, pci, home, &placement);
    else
        error = placement_anywhere(topology, pci, numa_node, &placement);
    if (error)
        return failure_set(failure, error, "%s: no memory for its set of CPUs", pci ? pci : "host");
    *placement_p = placement;
    return 0;
}

void placement_deinit(struct placement *placement)
{
    hwloc_bitmap_free(placement->cpus);
    placement->cpus = NULL;
    placement->n_cpus = 0;
}
