/*
 * Bodies of the contract that move bytes, for the list in device.c; and what all
 * files of bodies use.
 */
#ifndef PINSERVE_TESTS_BODIES_H
#define PINSERVE_TESTS_BODIES_H

#include "contract/fixture.h"

/* Every way a ring can be exported, one after the other. */
#define for_each_export(export_as)                                                                 \
    for (size_t export_i = 0; export_i <= RING_EXPORT_IPC; export_i++)                             \
        for (enum ring_export export_as = (enum ring_export)export_i, *once = &export_as; once;    \
             once = NULL)

/* A copy from region 1 to ring 1. */
int copy(struct fixture *f, size_t offset, size_t ring_offset, size_t bytes, uint64_t cookie);

/* Skips the test on a device that has no rings. */
void skip_without_ring(const struct fixture *f);

void test_bytes_arrive_intact(void **state);
void test_large_slots_arrive_intact(void **state);
void test_many_in_flight_keep_their_order(void **state);
void test_commands_need_not_wait_for_events(void **state);
void test_new_rings_are_zero(void **state);
void test_bad_copies_fail_alone(void **state);
void test_parts_in_use_go_after_their_copies(void **state);
void test_fd_import_is_read_only(void **state);
void test_killed_process_is_lost_once_and_comes_back(void **state);

void test_device_without_ring_gathers_nothing(void **state);
void test_pieces_cross_the_borders_of_windows(void **state);
void test_a_gather_has_thousands_of_pieces(void **state);
void test_a_gather_has_bytes_of_a_region_beside(void **state);
void test_gathers_keep_their_ring_and_files(void **state);
void test_bad_gathers_fail_alone(void **state);
void test_files_come_and_go_without_leaks(void **state);

#endif
