/*
 * Regions and NUMA nodes: mbind refused, pages elsewhere.
 */
#include "memory/region.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "region_here.h"

/* What a container's default profile does: the system call answers EPERM. */
static int call_refuse(int call)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int body_mbind_refused(void)
{
    struct region_spec spec = spec_of(BYTES);
    struct placement placement = here;
    struct region *region = NULL;
    struct failure failure = {0};
    char text[160];

    placement.memory_node =
        (int)hwloc_bitmap_first(hwloc_topology_get_allowed_nodeset(topology_hwloc(machine)));
    spec.placement = &placement;
    expect(call_refuse(SYS_mbind) == 0);
    expect(region_new(&spec, &region, &failure) == 0);
    expect(region->bind_failure.code == -EPERM);
    snprintf(text, sizeof(text),
             "cannot bind 2097152 bytes to NUMA node %d: mbind: Operation not permitted (a "
             "container's seccomp",
             placement.memory_node);
    expect(strstr(region->bind_failure.text, text));
    expect(region_destroy(region));
    region_free(region);

    spec.numa_strict = true;
    region = NULL;
    expect(region_new(&spec, &region, &failure) == -EPERM);
    expect(strstr(failure.text, "mbind: Operation not permitted"));
    expect(strstr(failure.text, "placement.numa = strict"));
    expect(region == NULL);

    /* With nothing to bind there is nothing to refuse. */
    placement.memory_node = -1;
    expect(region_new(&spec, &region, &failure) == 0);
    expect(region->bind_failure.code == 0);
    expect(region->numa_node == -1);
    expect(region_destroy(region));
    region_free(region);
    return 0;
}

static void test_mbind_refused(void **state)
{
    (void)state;
    in_child(body_mbind_refused, false);
}

static int body_move_pages_refused(void)
{
    struct region_spec spec = spec_of(BYTES);
    struct placement placement = here;
    struct region *region = NULL;
    struct failure failure = {0};

    placement.memory_node = 0;
    spec.placement = &placement;
    expect(call_refuse(SYS_move_pages) == 0);
    expect(region_new(&spec, &region, &failure) == 0);
    expect(region->pages == 0 && region->pages_local == 0);
    expect(region_destroy(region));
    region_free(region);
    spec.numa_strict = true;
    int error = region_new(&spec, &region, &failure);
    expect(error == -EXDEV || error == -EPERM); /* or mbind was refused already */
    expect(strstr(failure.text, "Operation not permitted; placement.numa = strict") ||
           error == -EPERM);
    return 0;
}

static void test_move_pages_refused(void **state)
{
    (void)state;
    in_child(body_move_pages_refused, false);
}

/* The described machine has a node that this one has not: binding does nothing, the check finds
 * every page elsewhere. */
static void test_pages_elsewhere(void **state)
{
    struct topology *described = NULL;
    struct placement placement;
    struct failure failure = {0};
    uint64_t pages, local;

    (void)state;
    char probe = 1;
    if (placement_check(&probe, 1, -1, &pages, &local))
        skip();
    assert_int_equal(
        topology_new("synthetic:pack:16 [numa(memory=1GB)] core:1 pu:1", &described, &failure), 0);
    assert_int_equal(placement_find(described, "0000:81:00.0", 15, &placement, &failure), 0);
    assert_int_equal(placement.memory_node, 15);
    struct region_spec spec = {
        .bytes = BYTES, .lock = REGION_LOCK_TRY, .placement = &placement, .topology = described};
    struct region *region = NULL;
    assert_int_equal(region_new(&spec, &region, &failure), 0);
    assert_int_equal(region->pages, BYTES / (size_t)getpagesize());
    assert_int_equal(region->pages_local, 0);
    assert_int_equal(region->numa_node, 15);
    region_end(region);
    spec.numa_strict = true;
    region = NULL;
    assert_int_equal(region_new(&spec, &region, &failure), -EXDEV);
    char text[128];
    snprintf(text, sizeof(text),
             "%zu of %zu pages of a region are not on NUMA node 15; placement.numa = strict",
             BYTES / (size_t)getpagesize(), BYTES / (size_t)getpagesize());
    assert_string_equal(failure.text, text);
    assert_null(region);
    placement_deinit(&placement);
    topology_free(described);
}

static void test_pages_are_where_they_should_be(void **state)
{
    struct region_spec spec = spec_of(BYTES);
    struct region *region = NULL;
    struct failure failure = {0};

    (void)state;
    spec.numa_strict = true;
    int error = region_new(&spec, &region, &failure);
    if (error == -EPERM || error == -ENOSYS)
        skip(); /* in a container that refuses mbind */
    if (error)
        fail_msg("%s", failure.text);
    assert_int_equal(region->pages_local, region->pages);
    assert_int_equal(region->bind_failure.code, 0);
    region_end(region);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mbind_refused),
        cmocka_unit_test(test_move_pages_refused),
        cmocka_unit_test(test_pages_elsewhere),
        cmocka_unit_test(test_pages_are_where_they_should_be),
    };

    return cmocka_run_group_tests(tests, machine_read, machine_forget);
}
