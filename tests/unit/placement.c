/*
 * Placement on described machines (tests/unit/topology/, synthetic), and
 * binding and checking on this one.
 */
#include "memory/placement.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* What is expected of a placement; the CPUs in hwloc's list syntax. */
struct expected {
    int memory_node, cpu_node;
    const char *cpus;
    bool degraded;
    const char *why;
};

static struct topology *topology_read(const char *name)
{
    struct topology *topology = NULL;
    struct failure failure = {0};
    char source[512];

    snprintf(source, sizeof(source), "xml:%s/%s.xml", TOPOLOGY_DIR, name);
    if (topology_new(source, &topology, &failure))
        fail_msg("%s", failure.text);
    return topology;
}

static void check(const struct topology *topology, const char *pci, int numa_node,
                  const struct expected *expected)
{
    struct placement placement;
    struct failure failure = {0};
    char cpus[128];

    if (placement_find(topology, pci, numa_node, &placement, &failure))
        fail_msg("%s", failure.text);
    hwloc_bitmap_list_snprintf(cpus, sizeof(cpus), placement.cpus);
    assert_string_equal(placement.why, expected->why);
    assert_int_equal(placement.memory_node, expected->memory_node);
    assert_int_equal(placement.cpu_node, expected->cpu_node);
    assert_string_equal(cpus, expected->cpus);
    assert_int_equal(placement.n_cpus, hwloc_bitmap_weight(placement.cpus));
    assert_int_equal(placement.degraded, expected->degraded);
    placement_deinit(&placement);
    placement_deinit(&placement);
}

static void check_file(const char *name, const char *pci, int numa_node,
                       const struct expected *expected)
{
    struct topology *topology = topology_read(name);

    check(topology, pci, numa_node, expected);
    topology_free(topology);
}

static void test_nearest_node(void **state)
{
    (void)state;
    check_file("two-nodes", "0000:81:00.0", -1,
               &(struct expected){1, 1, "2-3", false, "NUMA node 1, nearest to 0000:81:00.0"});
    check_file("two-nodes", "0000:01:00.0", 0,
               &(struct expected){0, 0, "0-1", false, "NUMA node 0, nearest to 0000:01:00.0"});
    /* As the CUDA driver and NVML write addresses. */
    check_file("two-nodes", "00000000:81:00.0", 1,
               &(struct expected){1, 1, "2-3", false, "NUMA node 1, nearest to 00000000:81:00.0"});
}

static void test_nodes_without_memory(void **state)
{
    (void)state;
    check_file("no-memory", "0000:01:00.0", 0,
               &(struct expected){2, 0, "0-1", true,
                                  "NUMA node 0, nearest to 0000:01:00.0, has no memory: memory of "
                                  "node 2"});
}

static void test_nodes_without_cpus(void **state)
{
    (void)state;
    check_file("no-cpus", "0000:41:00.0", -1,
               &(struct expected){0, -1, "0-3", true,
                                  "0000:41:00.0: numa_node unknown: all allowed CPUs, memory of "
                                  "the first node that has any, 0"});
    check_file("no-cpus", "0000:41:00.0", 2,
               &(struct expected){2, 1, "2-3", true,
                                  "NUMA node 2, nearest to 0000:41:00.0, has no CPUs: CPUs of "
                                  "node 1"});
}

static void test_cpuset_excludes_local_node(void **state)
{
    (void)state;
    check_file("excluded", "0000:81:00.0", 1,
               &(struct expected){0, 0, "0-1", true,
                                  "NUMA node 1, nearest to 0000:81:00.0, is not allowed: memory "
                                  "of node 0; it has no allowed CPUs: CPUs of node 0"});
    check_file("excluded", "0000:01:00.0", 0,
               &(struct expected){0, 0, "0-1", false, "NUMA node 0, nearest to 0000:01:00.0"});
}

static void test_cpuset_excludes_local_memory(void **state)
{
    (void)state;
    check_file("excluded-memory", "0000:81:00.0", 1,
               &(struct expected){0, 1, "2-3", true,
                                  "NUMA node 1, nearest to 0000:81:00.0, is not allowed: memory "
                                  "of node 0"});
}

static void test_cpuset_excludes_local_cpus(void **state)
{
    (void)state;
    check_file("excluded-cpus", "0000:81:00.0", 1,
               &(struct expected){1, 0, "0-1", true,
                                  "NUMA node 1, nearest to 0000:81:00.0, has no allowed CPUs: "
                                  "CPUs of node 0"});
}

static void test_numa_node_minus_one(void **state)
{
    (void)state;
    check_file("two-nodes", "0000:c1:00.0", -1,
               &(struct expected){0, -1, "0-3", true,
                                  "0000:c1:00.0: numa_node unknown: all allowed CPUs, memory of "
                                  "the first node that has any, 0"});
    /* A device that hwloc does not list. */
    check_file("no-memory", "0000:99:00.0", -1,
               &(struct expected){1, -1, "0-7", true,
                                  "0000:99:00.0: numa_node unknown: all allowed CPUs, memory of "
                                  "the first node that has any, 1"});
    /* A single node leaves no doubt. */
    check_file("one-node", "0000:01:00.0", -1,
               &(struct expected){0, 0, "0-1", false, "NUMA node 0, nearest to 0000:01:00.0"});
    check_file("one-node", "0000:99:00.0", -1,
               &(struct expected){0, 0, "0-1", false, "0000:99:00.0: the only NUMA node"});
}

static void test_sysfs_decides_where_hwloc_is_silent(void **state)
{
    (void)state;
    check_file("two-nodes", "0000:c1:00.0", 1,
               &(struct expected){1, 1, "2-3", false, "NUMA node 1, nearest to 0000:c1:00.0"});
    check_file("two-nodes", "0000:99:00.0", 1,
               &(struct expected){1, 1, "2-3", false, "NUMA node 1, nearest to 0000:99:00.0"});
    check_file("two-nodes", "0000:99:00.0", 7,
               &(struct expected){0, -1, "0-3", true,
                                  "0000:99:00.0: NUMA node 7 is not in the topology: all allowed "
                                  "CPUs, memory of the first node that has any, 0"});
}

static void test_memory_of_a_gpu_is_not_used(void **state)
{
    (void)state;
    check_file("gpu-memory", "0000:09:00.0", -1,
               &(struct expected){0, 0, "0-1", false, "NUMA node 0, nearest to 0000:09:00.0"});
    check_file("gpu-memory", "0000:09:00.0", 2,
               &(struct expected){0, 0, "0-1", true,
                                  "NUMA node 2, nearest to 0000:09:00.0, has no memory: memory of "
                                  "node 0"});
}

static void test_host(void **state)
{
    (void)state;
    check_file("two-nodes", NULL, -1,
               &(struct expected){-1, -1, "0-3", false,
                                  "host: all allowed CPUs, memory of any NUMA node"});
    check_file("excluded", NULL, -1,
               &(struct expected){-1, -1, "0-1", false,
                                  "host: all allowed CPUs, memory of any NUMA node"});
    check_file("one-node", NULL, -1,
               &(struct expected){0, 0, "0-1", false, "host: the only NUMA node"});
}

static void test_synthetic(void **state)
{
    struct topology *topology;
    struct failure failure = {0};

    (void)state;
    assert_int_equal(
        topology_new("synthetic:pack:2 [numa(memory=1GB)] core:2 pu:2", &topology, &failure), 0);
    assert_int_equal(hwloc_get_nbobjs_by_type(topology_hwloc(topology), HWLOC_OBJ_PU), 8);
    check(topology, "0000:81:00.0", 1,
          &(struct expected){1, 1, "4-7", false, "NUMA node 1, nearest to 0000:81:00.0"});
    topology_free(topology);
}

static void test_distance_by_tree_without_latencies(void **state)
{
    struct topology *topology;
    struct failure failure = {0};
    hwloc_obj_t node;

    (void)state;
    /* Two packages of two nodes; the third node, alone with the fourth, loses its memory. */
    assert_int_equal(topology_new("synthetic:pack:2 group:2 [numa(memory=1GB)] core:1 pu:1",
                                  &topology, &failure),
                     0);
    node = hwloc_get_numanode_obj_by_os_index(topology_hwloc(topology), 2);
    node->attr->numanode.local_memory = 0;
    check(topology, "0000:81:00.0", 2,
          &(struct expected){3, 2, "2", true,
                             "NUMA node 2, nearest to 0000:81:00.0, has no memory: memory of "
                             "node 3"});
    topology_free(topology);
}

static void test_no_memory_anywhere(void **state)
{
    struct topology *topology = topology_read("two-nodes");

    (void)state;
    for (unsigned i = 0; i < 2; i++)
        hwloc_get_numanode_obj_by_os_index(topology_hwloc(topology), i)
            ->attr->numanode.local_memory = 0;
    check(topology, "0000:81:00.0", 1,
          &(struct expected){-1, 1, "2-3", true,
                             "NUMA node 1, nearest to 0000:81:00.0; no allowed node has memory: "
                             "not bound"});
    topology_free(topology);
}

static void test_errors_name_the_thing(void **state)
{
    static const char *const addresses[] = {
        "", "gpu0", "0000:81:00", "0000:81:00.0 ", "0000:81:00.0.1", "81:00.0"};
    struct topology *topology = topology_read("two-nodes");
    struct placement placement;
    struct failure failure = {0};
    char text[128];

    (void)state;
    for (size_t i = 0; i < sizeof(addresses) / sizeof(*addresses); i++) {
        assert_int_equal(placement_find(topology, addresses[i], 0, &placement, &failure), -EINVAL);
        snprintf(text, sizeof(text), "%s: not a PCI address like 0000:81:00.0", addresses[i]);
        assert_string_equal(failure.text, text);
    }
    topology_free(topology);

    assert_int_equal(topology_new("xml:/no/such/file.xml", &topology, &failure), -ENOENT);
    assert_non_null(strstr(failure.text, "xml:/no/such/file.xml"));
    assert_int_equal(topology_new("synthetic:nonsense", &topology, &failure), -EINVAL);
    assert_string_equal(failure.text, "topology synthetic:nonsense: not a synthetic description");
    assert_int_equal(topology_new("yaml:x", &topology, &failure), -EINVAL);
    assert_string_equal(failure.text,
                        "topology yaml:x: neither xml:FILE nor synthetic:DESCRIPTION");
    topology_free(NULL);
}

static void test_description_binds_nothing(void **state)
{
    struct topology *topology = topology_read("two-nodes");
    struct placement placement;
    struct failure failure = {0};
    uint64_t pages = 0, local = 0;
    size_t bytes = 16 * (size_t)getpagesize();
    cpu_set_t before, after;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(memory != MAP_FAILED);
    assert_int_equal(placement_find(topology, "0000:81:00.0", 1, &placement, &failure), 0);
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(placement_bind_thread(topology, &placement), 0);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_int_equal(placement_bind_memory(topology, &placement, memory, bytes), 0);
    memset(memory, 1, bytes);
    int error = placement_check(memory, bytes, 63, &pages, &local);
    if (error != -EPERM && error != -ENOSYS) {
        assert_int_equal(error, 0);
        assert_int_equal(pages, 16);
        assert_int_equal(local, 0);
    }
    munmap(memory, bytes);
    placement_deinit(&placement);
    topology_free(topology);
}

static void test_this_machine(void **state)
{
    struct topology *topology;
    struct placement placement;
    struct failure failure = {0};
    cpu_set_t before, after;

    (void)state;
    assert_int_equal(topology_new(NULL, &topology, &failure), 0);
    assert_int_equal(placement_find(topology, NULL, -1, &placement, &failure), 0);
    assert_true(placement.n_cpus > 0);
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(placement.n_cpus, CPU_COUNT(&before));
    assert_int_equal(placement_bind_thread(topology, &placement), 0);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));

    /* A process that is held to one CPU gives out no other. */
    unsigned one = (unsigned)hwloc_bitmap_first(placement.cpus);
    CPU_ZERO(&after);
    CPU_SET(one, &after);
    assert_int_equal(sched_setaffinity(0, sizeof(after), &after), 0);
    placement_deinit(&placement);
    topology_free(topology);
    assert_int_equal(topology_new(NULL, &topology, &failure), 0);
    assert_int_equal(placement_find(topology, NULL, -1, &placement, &failure), 0);
    assert_int_equal(placement.n_cpus, 1);
    assert_true(hwloc_bitmap_isset(placement.cpus, one));
    placement_deinit(&placement);
    topology_free(topology);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

/* Only what was touched counts; it is on some node, and on no node that does not exist. */
static void test_check_counts_touched_pages(void **state)
{
    size_t page = (size_t)getpagesize(), bytes = 3000 * page;
    uint64_t pages = 7, local = 7;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(memory != MAP_FAILED);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    int error = placement_check(memory, bytes, -1, &pages, &local);
    if (error == -EPERM || error == -ENOSYS) {
        munmap(memory, bytes);
        skip();
    }
    assert_int_equal(error, 0);
    assert_int_equal(pages, 0);
    memset(memory, 1, 5 * page);
    memory[2999 * page] = 1;
    assert_int_equal(placement_check(memory, bytes, -1, &pages, &local), 0);
    assert_int_equal(pages, 6);
    assert_int_equal(local, 6);
    assert_int_equal(placement_check(memory, bytes, 1023, &pages, &local), 0);
    assert_int_equal(pages, 6);
    assert_int_equal(local, 0);
    assert_int_equal(placement_check(memory, page + 1, -1, &pages, &local), 0);
    assert_int_equal(pages, 2);
    munmap(memory, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest_node),
        cmocka_unit_test(test_nodes_without_memory),
        cmocka_unit_test(test_nodes_without_cpus),
        cmocka_unit_test(test_cpuset_excludes_local_node),
        cmocka_unit_test(test_cpuset_excludes_local_memory),
        cmocka_unit_test(test_cpuset_excludes_local_cpus),
        cmocka_unit_test(test_numa_node_minus_one),
        cmocka_unit_test(test_sysfs_decides_where_hwloc_is_silent),
        cmocka_unit_test(test_memory_of_a_gpu_is_not_used),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_distance_by_tree_without_latencies),
        cmocka_unit_test(test_no_memory_anywhere),
        cmocka_unit_test(test_errors_name_the_thing),
        cmocka_unit_test(test_description_binds_nothing),
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_check_counts_touched_pages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
