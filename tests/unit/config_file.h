/*
 * A configuration file of a test, in a folder that is there as long as the
 * group of tests runs.
 */
#ifndef PINSERVE_TESTS_CONFIG_FILE_H
#define PINSERVE_TESTS_CONFIG_FILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config.h"
#include "group_dir.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* Every key with another value than its default. */
static const char other_values[] =
    "[daemon]\nsocket = /tmp/a b.sock\nsocket_mode = 0600\n"
    "socket_group = gpu\ntenant = cgroup\n"
    "device_program = /opt/pinserved-device\ncache = /var/cache/p\n"
    "\n[pool]\nmin = 128 MiB\nmax = 3 GiB\nregion = 2 MiB\n"
    "idle = 1500ms\nlock = require\n"
    "\n[placement]\nnuma = strict\ntopology = synthetic:node:2 pu:2\n"
    "\n[workers]\nper_numa_node = 7\nbatches = 3\n"
    "\n[io]\nstuck = 2min\nthreads = 9\nahead = 3 MiB\n"
    "\n[device]\nipc = off\nrings = off\nidle = 0\ngather = off\ngather_min = 1 MiB\n"
    "gather_max = 5 GiB\nuse = GPU-8f1c, GPU-0a2b\n"
    "\n[limits]\npeers = 5\njobs = 6\npeers_total = 7\n"
    "pinned = 1000001\ndevice = 5 KiB\nindex = 4 KiB\ncache = 7 MiB\n"
    "\n[log]\nlevel = debug\nlines_per_second = 99\n";

static char file_path[160];

static inline int config_dir_make(void **state)
{
    int r = dir_make(state);

    snprintf(file_path, sizeof file_path, "%s/test.conf", dir.path);
    return r;
}

static inline int read_text(struct config *config, const char *text, struct failure *failure)
{
    assert_true(temp_dir_write(&dir, "test.conf", text, strlen(text)));
    return config_read_file(config, file_path, failure);
}

#endif
