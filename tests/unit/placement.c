/*
 * Placement on described machines: tests/unit/topology/, and synthetic ones.
 */
#include "memory/placement.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum how { NEAR, DEGRADED, DISPLACED };

/* What is expected of a placement; the CPUs in hwloc's list syntax. */
struct expected {
    int memory_node, cpu_node;
    const char *cpus;
    enum how how;
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
    assert_int_equal(placement.degraded, expected->how != NEAR);
    assert_int_equal(placement.displaced, expected->how == DISPLACED);
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
               &(struct expected){1, 1, "2-3", NEAR, "NUMA node 1, nearest to 0000:81:00.0"});
    check_file("two-nodes", "0000:01:00.0", 0,
               &(struct expected){0, 0, "0-1", NEAR, "NUMA node 0, nearest to 0000:01:00.0"});
    /* As the CUDA driver and NVML write addresses. */
    check_file("two-nodes", "00000000:81:00.0", 1,
               &(struct expected){1, 1, "2-3", NEAR, "NUMA node 1, nearest to 00000000:81:00.0"});
}

static void test_nodes_without_memory(void **state)
{
    (void)state;
    check_file("no-memory", "0000:01:00.0", 0,
               &(struct expected){2, 0, "0-1", DEGRADED,
                                  "NUMA node 0, nearest to 0000:01:00.0, has no memory: memory of "
                                  "node 2"});
}

static void test_nodes_without_cpus(void **state)
{
    (void)state;
    check_file("no-cpus", "0000:41:00.0", -1,
               &(struct expected){0, -1, "0-3", DISPLACED,
                                  "0000:41:00.0: numa_node unknown: all allowed CPUs, memory of "
                                  "the first node that has any, 0"});
    check_file("no-cpus", "0000:41:00.0", 2,
               &(struct expected){2, 1, "2-3", DEGRADED,
                                  "NUMA node 2, nearest to 0000:41:00.0, has no CPUs: CPUs of "
                                  "node 1"});
}

static void test_cpuset_excludes_local_node(void **state)
{
    (void)state;
    check_file("excluded", "0000:81:00.0", 1,
               &(struct expected){0, 0, "0-1", DISPLACED,
                                  "NUMA node 1, nearest to 0000:81:00.0, is not allowed: memory "
                                  "of node 0; it has no allowed CPUs: CPUs of node 0"});
    check_file("excluded", "0000:01:00.0", 0,
               &(struct expected){0, 0, "0-1", NEAR, "NUMA node 0, nearest to 0000:01:00.0"});
}

static void test_cpuset_excludes_local_memory(void **state)
{
    (void)state;
    check_file("excluded-memory", "0000:81:00.0", 1,
               &(struct expected){0, 1, "2-3", DISPLACED,
                                  "NUMA node 1, nearest to 0000:81:00.0, is not allowed: memory "
                                  "of node 0"});
}

static void test_cpuset_excludes_local_cpus(void **state)
{
    (void)state;
    check_file("excluded-cpus", "0000:81:00.0", 1,
               &(struct expected){1, 0, "0-1", DEGRADED,
                                  "NUMA node 1, nearest to 0000:81:00.0, has no allowed CPUs: "
                                  "CPUs of node 0"});
}

static void test_numa_node_minus_one(void **state)
{
    (void)state;
    check_file("two-nodes", "0000:c1:00.0", -1,
               &(struct expected){0, -1, "0-3", DISPLACED,
                                  "0000:c1:00.0: numa_node unknown: all allowed CPUs, memory of "
                                  "the first node that has any, 0"});
    /* A device that hwloc does not list. */
    check_file("no-memory", "0000:99:00.0", -1,
               &(struct expected){1, -1, "0-7", DISPLACED,
                                  "0000:99:00.0: numa_node unknown: all allowed CPUs, memory of "
                                  "the first node that has any, 1"});
    /* A single node leaves no doubt. */
    check_file("one-node", "0000:01:00.0", -1,
               &(struct expected){0, 0, "0-1", NEAR, "NUMA node 0, nearest to 0000:01:00.0"});
    check_file("one-node", "0000:99:00.0", -1,
               &(struct expected){0, 0, "0-1", NEAR, "0000:99:00.0: the only NUMA node"});
}

static void test_sysfs_decides_where_hwloc_is_silent(void **state)
{
    (void)state;
    check_file("two-nodes", "0000:c1:00.0", 1,
               &(struct expected){1, 1, "2-3", NEAR, "NUMA node 1, nearest to 0000:c1:00.0"});
    check_file("two-nodes", "0000:99:00.0", 1,
               &(struct expected){1, 1, "2-3", NEAR, "NUMA node 1, nearest to 0000:99:00.0"});
    check_file("two-nodes", "0000:99:00.0", 7,
               &(struct expected){0, -1, "0-3", DISPLACED,
                                  "0000:99:00.0: NUMA node 7 is not in the topology: all allowed "
                                  "CPUs, memory of the first node that has any, 0"});
}

static void test_memory_of_a_gpu_is_not_used(void **state)
{
    (void)state;
    check_file("gpu-memory", "0000:09:00.0", -1,
               &(struct expected){0, 0, "0-1", NEAR, "NUMA node 0, nearest to 0000:09:00.0"});
    check_file("gpu-memory", "0000:09:00.0", 2,
               &(struct expected){0, 0, "0-1", DEGRADED,
                                  "NUMA node 2, nearest to 0000:09:00.0, has no memory: memory of "
                                  "node 0"});
}

static void test_host(void **state)
{
    (void)state;
    check_file(
        "two-nodes", NULL, -1,
        &(struct expected){-1, -1, "0-3", NEAR, "host: all allowed CPUs, memory of any NUMA node"});
    check_file(
        "excluded", NULL, -1,
        &(struct expected){-1, -1, "0-1", NEAR, "host: all allowed CPUs, memory of any NUMA node"});
    check_file("one-node", NULL, -1,
               &(struct expected){0, 0, "0-1", NEAR, "host: the only NUMA node"});
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
          &(struct expected){1, 1, "4-7", NEAR, "NUMA node 1, nearest to 0000:81:00.0"});
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
          &(struct expected){3, 2, "2", DEGRADED,
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
          &(struct expected){-1, 1, "2-3", DISPLACED,
                             "NUMA node 1, nearest to 0000:81:00.0; no allowed node has memory: "
                             "not bound"});
    topology_free(topology);
}

/* The four GPUs of each socket, whether or not sysfs has a number. */
static void test_eight_gpus_of_two_sockets(void **state)
{
    static const char *const gpus[] = {"0000:1b:00.0", "0000:43:00.0", "0000:52:00.0",
                                       "0000:61:00.0", "0000:9d:00.0", "0000:c3:00.0",
                                       "0000:d1:00.0", "0000:df:00.0"};
    char why[64];

    (void)state;
    for (int i = 0; i < 8; i++) {
        int node = i / 4;
        struct expected expected = {node, node, node ? "2-3,6-7" : "0-1,4-5", NEAR, why};
        snprintf(why, sizeof(why), "NUMA node %d, nearest to %s", node, gpus[i]);
        check_file("two-sockets", gpus[i], node, &expected);
        check_file("two-sockets", gpus[i], -1, &expected);
    }
}

static const struct {
    const char *pci;
    int node;
    const char *cpus;
} eight_nodes[] = {
    {"0000:07:00.0", 3, "3,11"}, {"0000:0f:00.0", 3, "3,11"}, {"0000:47:00.0", 1, "1,9"},
    {"0000:4e:00.0", 1, "1,9"},  {"0000:87:00.0", 7, "7,15"}, {"0000:90:00.0", 7, "7,15"},
    {"0000:b7:00.0", 5, "5,13"}, {"0000:bd:00.0", 5, "5,13"},
};

static void test_eight_gpus_of_eight_nodes(void **state)
{
    char why[64];

    (void)state;
    for (size_t i = 0; i < 8; i++) {
        int node = eight_nodes[i].node;
        struct expected expected = {node, node, eight_nodes[i].cpus, NEAR, why};
        snprintf(why, sizeof(why), "NUMA node %d, nearest to %s", node, eight_nodes[i].pci);
        check_file("eight-nodes", eight_nodes[i].pci, node, &expected);
        check_file("eight-nodes", eight_nodes[i].pci, -1, &expected);
    }
}

/* A machine with half of its memory: the GPUs' nodes have none, another of the same socket has. */
static void test_eight_nodes_of_which_half_have_memory(void **state)
{
    struct topology *topology = topology_read("eight-nodes");
    char why[128];

    (void)state;
    for (unsigned node = 1; node < 8; node += 2)
        hwloc_get_numanode_obj_by_os_index(topology_hwloc(topology), node)
            ->attr->numanode.local_memory = 0;
    for (size_t i = 0; i < 8; i++) {
        int node = eight_nodes[i].node, memory = node < 4 ? 0 : 4;
        struct expected expected = {memory, node, eight_nodes[i].cpus, DEGRADED, why};
        snprintf(why, sizeof(why), "NUMA node %d, nearest to %s, has no memory: memory of node %d",
                 node, eight_nodes[i].pci, memory);
        check(topology, eight_nodes[i].pci, node, &expected);
    }
    topology_free(topology);
}

/* A virtual machine that shows both sockets, and of no GPU where it is. */
static void test_eight_gpus_of_a_virtual_machine(void **state)
{
    struct topology *topology;
    struct failure failure = {0};
    char pci[16], why[128];

    (void)state;
    assert_int_equal(
        topology_new("synthetic:pack:2 [numa(memory=1TB)] core:4 pu:2", &topology, &failure), 0);
    for (int i = 1; i <= 8; i++) {
        struct expected expected = {0, -1, "0-15", DISPLACED, why};
        snprintf(pci, sizeof(pci), "0000:%02x:00.0", (unsigned)i);
        snprintf(why, sizeof(why),
                 "%s: numa_node unknown: all allowed CPUs, memory of the first node that has any, "
                 "0",
                 pci);
        check(topology, pci, -1, &expected);
    }
    topology_free(topology);
}

static void test_nodes_of_memory_alone(void **state)
{
    struct topology *topology = topology_read("memory-only");

    (void)state;
    /* The socket's first node is the one with the CPUs' own memory. */
    check(topology, "0000:16:00.0", -1,
          &(struct expected){0, 0, "0-1", NEAR, "NUMA node 0, nearest to 0000:16:00.0"});
    check(topology, "0000:b1:00.0", 1,
          &(struct expected){1, 1, "2-3", NEAR, "NUMA node 1, nearest to 0000:b1:00.0"});
    check(topology, "0000:b1:00.0", 3,
          &(struct expected){3, 1, "2-3", NEAR,
                             "NUMA node 3, nearest to 0000:b1:00.0, with the CPUs of node 1"});
    /* The other socket's memory is nearer than that behind the own one. */
    hwloc_get_numanode_obj_by_os_index(topology_hwloc(topology), 0)->attr->numanode.local_memory =
        0;
    check(topology, "0000:16:00.0", 0,
          &(struct expected){1, 0, "0-1", DEGRADED,
                             "NUMA node 0, nearest to 0000:16:00.0, has no memory: memory of node "
                             "1"});
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
        cmocka_unit_test(test_eight_gpus_of_two_sockets),
        cmocka_unit_test(test_eight_gpus_of_eight_nodes),
        cmocka_unit_test(test_eight_nodes_of_which_half_have_memory),
        cmocka_unit_test(test_eight_gpus_of_a_virtual_machine),
        cmocka_unit_test(test_nodes_of_memory_alone),
        cmocka_unit_test(test_errors_name_the_thing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
