/*
 * Tests of gathers on a driver's bad days, for the list in device_faults.c.
 */
#ifndef PINSERVE_TESTS_FAULTS_H
#define PINSERVE_TESTS_FAULTS_H

#include "contract/fixture.h"

void test_windows_are_given_up_for_others(void **state);
void test_files_over_the_bound_are_refused(void **state);
void test_cut_file_fails_its_gather_alone(void **state);
void test_file_shorter_than_told_is_not_ready(void **state);
void test_older_drivers_gather_too(void **state);
void test_files_need_read_only_registration(void **state);
void test_broken_context_is_lost_by_a_gather(void **state);
void test_registering_holds_nothing_up(void **state);
void test_hung_registration_does_not_keep_the_process(void **state);
void test_slow_gathers_are_not_reported_early(void **state);

#endif
