/*
 * Binding, checking and moving on this machine, whatever it is.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/placement.h"

#include <cmocka.h>

static void test_description_binds_nothing(void **state)
{
    struct topology *topology;
    struct placement placement;
    struct failure failure = {0};
    uint64_t pages = 0, local = 0;
    size_t bytes = 16 * (size_t)getpagesize();
    cpu_set_t before, after;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(memory != MAP_FAILED);
    assert_int_equal(
        topology_new("synthetic:pack:2 [numa(memory=1GB)] core:2 pu:1", &topology, &failure), 0);
    assert_int_equal(placement_find(topology, "0000:81:00.0", 1, &placement, &failure), 0);
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(placement_bind_thread(topology, &placement), 0);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_int_equal(placement_bind_memory(topology, &placement, memory, bytes), 0);
    memset(memory, 1, bytes);
    assert_int_equal(placement_move(topology, &placement, memory, bytes), 0);
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

/* Pages at home stay, untouched ones stay untouched, and a node that is not there has no room. */
static void test_move(void **state)
{
    size_t page = (size_t)getpagesize(), bytes = 3000 * page;
    struct placement placement = {.memory_node = -1};
    struct topology *topology;
    struct failure failure = {0};
    uint64_t pages = 0, local = 0;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(memory != MAP_FAILED);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    assert_int_equal(topology_new(NULL, &topology, &failure), 0);
    assert_int_equal(placement_move(topology, &placement, memory, bytes), 0);
    for (size_t i = 0; i < 3000; i += 2)
        memory[i * page] = (char)i;
    placement.memory_node =
        (int)hwloc_bitmap_first(hwloc_topology_get_allowed_nodeset(topology_hwloc(topology)));
    int error = placement_move(topology, &placement, memory, bytes);
    if (error != -EPERM && error != -ENOSYS) {
        assert_int_equal(error, 0);
        assert_int_equal(placement_check(memory, bytes, placement.memory_node, &pages, &local), 0);
        assert_int_equal(pages, 1500);
        assert_int_equal(local, 1500);
        for (size_t i = 0; i < 3000; i += 2)
            assert_int_equal(memory[i * page], (char)i);
        placement.memory_node = 1023;
        assert_true(placement_move(topology, &placement, memory, bytes) < 0);
    }
    munmap(memory, bytes);
    topology_free(topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_description_binds_nothing),
        cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_check_counts_touched_pages),
        cmocka_unit_test(test_move),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
