/*
 * A directory for the files of a group of tests.
 */
#ifndef PINSERVE_TESTS_GROUP_DIR_H
#define PINSERVE_TESTS_GROUP_DIR_H

#include "temp_dir.h"

static struct temp_dir dir;

static inline int dir_make(void **state)
{
    (void)state;
    return temp_dir_init(&dir) ? 0 : -1;
}

static inline int dir_remove(void **state)
{
    (void)state;
    temp_dir_deinit(&dir);
    return 0;
}

#endif
