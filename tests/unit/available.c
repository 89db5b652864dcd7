/*
 * memory_available_get against made-up /proc and /sys trees.
 */
#include "memory/available.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/units.h"
#include "temp_dir.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

static struct temp_dir root;

static int root_make(void **state)
{
    (void)state;
    return temp_dir_init(&root) ? 0 : -1;
}

static int root_remove(void **state)
{
    (void)state;
    temp_dir_deinit(&root);
    return 0;
}

/* Writes a file of the made-up tree; path begins with "/". */
static void put(const char *path, const char *text)
{
    assert_true(temp_dir_write(&root, path + 1, text, strlen(text)));
}

static void put_ram(uint64_t total, uint64_t left)
{
    char text[256];

    snprintf(text, sizeof(text),
             "MemTotal:       %" PRIu64 " kB\nMemFree:        17 kB\nMemAvailable:   %" PRIu64
             " kB\nBuffers:             864 kB\n",
             total / 1024, left / 1024);
    put("/proc/meminfo", text);
}

static void test_ram_alone(void **state)
{
    struct memory_available available;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, 16 * GIB);
    assert_int_equal(available.free, 12 * GIB);
    assert_string_equal(available.bound, "RAM");
    assert_string_equal(available.total_bound, "RAM");
}

static void test_old_kernel_without_available(void **state)
{
    struct memory_available available;

    (void)state;
    put("/proc/meminfo", "MemTotal: 4096 kB\nMemFree: 1024 kB\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.free, MIB);
}

static void test_meminfo_missing_or_empty(void **state)
{
    struct memory_available available = {.total = 7};

    (void)state;
    assert_int_equal(memory_available_get(root.path, &available), -ENOENT);
    put("/proc/meminfo", "MemTotal: much\n");
    assert_int_equal(memory_available_get(root.path, &available), -ENODATA);
    assert_int_equal(available.total, 7);
}

static void put_node(unsigned node, uint64_t total, uint64_t left)
{
    char path[128], text[512];

    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", node);
    snprintf(text, sizeof(text),
             "\nNode %u MemTotal:       %" PRIu64 " kB\nNode %u MemFree:        %" PRIu64
             " kB\nNode %u Active(file):     64 kB\nNode %u Inactive(file):    100 kB\n",
             node, total / 1024, node, left / 1024, node, node);
    put(path, text);
}

/* Memory of a NUMA node that the cpuset leaves out is none of ours. */
static void test_cpuset_leaves_out_numa_nodes(void **state)
{
    struct memory_available available;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    put("/sys/devices/system/node/has_memory", "0,2-3\n");
    put_node(0, 4 * GIB, 3 * GIB);
    put_node(2, 8 * GIB, 7 * GIB);
    put_node(3, 4 * GIB, 2 * GIB);
    put("/proc/self/status", "Name:\tpinserved\nMems_allowed:\tff\nMems_allowed_list:\t0-7\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, 16 * GIB);
    assert_int_equal(available.free, 12 * GIB);
    assert_string_equal(available.bound, "RAM");

    put("/proc/self/status", "Name:\tpinserved\nMems_allowed:\t9\nMems_allowed_list:\t0,3\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, 8 * GIB);
    assert_int_equal(available.free, 5 * GIB + UINT64_C(2) * (100 + 32) * 1024);
    assert_string_equal(available.bound, "the cpuset (NUMA nodes 0,3)");
    assert_string_equal(available.total_bound, "the cpuset (NUMA nodes 0,3)");

    /* What the kernel keeps of each zone is nobody's. */
    put("/proc/zoneinfo",
        "Node 0, zone      DMA\n  per-node stats\n      nr_file_pages 7\n  pages free     2000\n"
        "        min      4\n        low      5\n        high     6\n        managed  3840\n"
        "        protection: (0, 9000, 9000)\n"
        "Node 0, zone    DMA32\n        high     100\n        managed  500000\n"
        "        protection: (0, 0, 1000)\n    cpu: 0\n              high:  378\n"
        "Node 2, zone   Normal\n        high     70000\n        managed  500000\n"
        "        protection: (0, 0, 0)\n"
        "Node 3, zone   Normal\n        high     200\n        managed  500000\n"
        "        protection: (0, 0, 0)\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.free, 5 * GIB + UINT64_C(2) * (100 + 32) * 1024 -
                                         (3840 + 1100 + 200) * (uint64_t)getpagesize());

    /* A tighter cgroup still counts. */
    put("/proc/self/cgroup", "0::/job\n");
    put("/sys/fs/cgroup/job/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/job/memory.current", "0\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.free, GIB);
    assert_string_equal(available.bound, "/sys/fs/cgroup/job/memory.max");
}

static void test_cgroup_limit_is_the_whole_of_percent(void **state)
{
    struct memory_available available;
    uint64_t half;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    put("/proc/self/cgroup", "0::/job\n");
    put("/sys/fs/cgroup/job/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/job/memory.current", "104857600\n");
    put("/sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 4857600\nactive_file 9\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, GIB);
    assert_int_equal(available.free, GIB - 100000000);
    assert_string_equal(available.bound, "/sys/fs/cgroup/job/memory.max");
    assert_string_equal(available.total_bound, "/sys/fs/cgroup/job/memory.max");
    assert_int_equal(units_parse_bytes("50%", available.total, &half), 0);
    assert_int_equal(half, 536870912);
}

static void test_every_level_counts(void **state)
{
    struct memory_available available;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    put("/proc/self/cgroup", "0::/a.slice/b/c\n");
    put("/sys/fs/cgroup/a.slice/memory.max", "2147483648\n"); /* tightest in what is left */
    put("/sys/fs/cgroup/a.slice/memory.current", "2147479552\n");
    put("/sys/fs/cgroup/a.slice/b/memory.max", "1073741824\n"); /* tightest as a limit */
    put("/sys/fs/cgroup/a.slice/b/memory.current", "4096\n");
    put("/sys/fs/cgroup/a.slice/b/c/memory.max", "max\n");
    put("/sys/fs/cgroup/a.slice/b/c/memory.current", "0\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, GIB);
    assert_string_equal(available.total_bound, "/sys/fs/cgroup/a.slice/b/memory.max");
    assert_int_equal(available.free, 4096);
    assert_string_equal(available.bound, "/sys/fs/cgroup/a.slice/memory.max");
}

static void test_used_beyond_the_limit_leaves_nothing(void **state)
{
    struct memory_available available;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    put("/proc/self/cgroup", "0::/job\n");
    put("/sys/fs/cgroup/job/memory.max", "1048576\n");
    put("/sys/fs/cgroup/job/memory.current", "2097152\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, MIB);
    assert_int_equal(available.free, 0);
}

static void test_memory_high_is_a_limit(void **state)
{
    struct memory_available available;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    put("/proc/self/cgroup", "0::/job\n");
    put("/sys/fs/cgroup/job/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/job/memory.high", "1073741824\n");
    put("/sys/fs/cgroup/job/memory.current", "0\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, GIB);
    assert_string_equal(available.bound, "/sys/fs/cgroup/job/memory.high");
}

static void test_limit_over_ram_is_no_limit(void **state)
{
    struct memory_available available;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    put("/proc/self/cgroup", "0::/job\n");
    put("/sys/fs/cgroup/job/memory.max", "1099511627776\n");
    put("/sys/fs/cgroup/job/memory.current", "0\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, 16 * GIB);
    assert_string_equal(available.total_bound, "RAM");
}

static void test_version_1(void **state)
{
    struct memory_available available;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    put("/proc/self/cgroup",
        "9:name=systemd:/\n5:cpu,memory:/up/job\n4:memoryless:/other\n3:cpuset:/\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/up/memory.limit_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/up/memory.usage_in_bytes", "2097152\n");
    put("/sys/fs/cgroup/memory/up/memory.stat", "inactive_file 99\ntotal_inactive_file 1048576\n");
    put("/sys/fs/cgroup/memory/up/job/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/other/memory.limit_in_bytes", "4096\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, GIB);
    assert_int_equal(available.free, GIB - MIB);
    assert_string_equal(available.bound, "/sys/fs/cgroup/memory/up/memory.limit_in_bytes");
}

static void test_unified_mount_of_mixed_machines(void **state)
{
    struct memory_available available;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    put("/proc/self/cgroup", "4:cpu:/\n0::/job\n");
    put("/sys/fs/cgroup/unified/job/memory.max", "1073741824\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, GIB);
    assert_string_equal(available.bound, "/sys/fs/cgroup/unified/job/memory.max");
}

/* The path is the host's, and the mount shows the container's cgroup as its top. */
static void test_container_without_namespace(void **state)
{
    struct memory_available available;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    put("/proc/self/cgroup", "0::/docker/0123456789abcdef\n");
    put("/sys/fs/cgroup/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/memory.current", "0\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, GIB);
    assert_string_equal(available.bound, "/sys/fs/cgroup/memory.max");
}

static void test_path_outside_of_the_namespace(void **state)
{
    struct memory_available available;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    put("/proc/self/cgroup", "0::/../../other\n");
    put("/sys/fs/cgroup/memory.max", "1073741824\n");
    put("/sys/memory.max", "4096\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, GIB);
}

static void test_long_path_keeps_its_end(void **state)
{
    struct memory_available available;
    char path[800], line[900], name[61];
    size_t length;

    (void)state;
    put_ram(16 * GIB, 12 * GIB);
    path[0] = '\0';
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    for (int i = 0; i < 10; i++) {
        length = strlen(path);
        snprintf(path + length, sizeof(path) - length, "/%s", name);
    }
    snprintf(line, sizeof(line), "0::%s\n", path);
    put("/proc/self/cgroup", line);
    snprintf(line, sizeof(line), "/sys/fs/cgroup%s/memory.max", path);
    put(line, "1073741824\n");
    assert_int_equal(memory_available_get(root.path, &available), 0);
    assert_int_equal(available.total, GIB);
    length = strlen(available.bound);
    assert_int_equal(length, sizeof(available.bound) - 1);
    assert_string_equal(available.bound + length - strlen("x/memory.max"), "x/memory.max");
}

static void test_this_machine(void **state)
{
    struct memory_available available;

    (void)state;
    assert_int_equal(memory_available_get(NULL, &available), 0);
    assert_true(available.total > 0);
    assert_true(available.free <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)getpagesize());
    assert_true(*available.bound);
    assert_int_equal(memory_available_get("", &available), 0);
}

#define test(function) cmocka_unit_test_setup_teardown(function, root_make, root_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_ram_alone),
        test(test_old_kernel_without_available),
        test(test_meminfo_missing_or_empty),
        test(test_cpuset_leaves_out_numa_nodes),
        test(test_cgroup_limit_is_the_whole_of_percent),
        test(test_every_level_counts),
        test(test_used_beyond_the_limit_leaves_nothing),
        test(test_memory_high_is_a_limit),
        test(test_limit_over_ram_is_no_limit),
        test(test_version_1),
        test(test_unified_mount_of_mixed_machines),
        test(test_container_without_namespace),
        test(test_path_outside_of_the_namespace),
        test(test_long_path_keeps_its_end),
        test(test_this_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
