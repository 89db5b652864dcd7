/*
 * This machine, and where memory for no device in particular is placed on it:
 * as long as a group of tests runs.
 */
#ifndef PINSERVE_TESTS_MACHINE_H
#define PINSERVE_TESTS_MACHINE_H

#include <stdio.h>

#include "memory/placement.h"

static struct topology *machine;
static struct placement here;

static inline int machine_read(void **state)
{
    struct failure failure = {0};

    (void)state;
    if (topology_new(NULL, &machine, &failure) ||
        placement_find(machine, NULL, -1, &here, &failure)) {
        fprintf(stderr, "%s\n", failure.text);
        return -1;
    }
    return 0;
}

static inline int machine_forget(void **state)
{
    (void)state;
    placement_deinit(&here);
    topology_free(machine);
    return 0;
}

#endif
