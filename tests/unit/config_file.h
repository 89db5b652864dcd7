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
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "config.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* Every key with another value than its default. */
static const char other_values[] =
    "[daemon]\nsocket = /tmp/a b.sock\nsocket_mode = 0600\n"
    "socket_group = gpu\ntenant = cgroup\n"
    "device_program = /opt/pinserved-device\n"
    "\n[pool]\nmin = 128 MiB\nmax = 3 GiB\nregion = 2 MiB\n"
    "idle = 1500ms\nlock = require\n"
    "\n[placement]\nnuma = strict\ntopology = synthetic:node:2 pu:2\n"
    "\n[workers]\nper_numa_node = 7\nbatches = 3\n"
    "\n[io]\nstuck = 2min\nthreads = 9\nahead = 3 MiB\n"
    "\n[device]\nipc = off\nrings = off\nidle = 0\ngather = off\ngather_min = 1 MiB\n"
    "gather_max = 5 GiB\nuse = GPU-8f1c, GPU-0a2b\n"
    "\n[limits]\npeers = 5\njobs = 6\npeers_total = 7\n"
    "pinned = 1000001\ndevice = 5 KiB\nindex = 4 KiB\n"
    "\n[log]\nlevel = debug\nlines_per_second = 99\n";

static char folder[64];
static char file_path[96];

static inline int make_folder(void **state)
{
    const char *base = getenv("TMPDIR");

    (void)state;
    snprintf(folder, sizeof folder, "%.40s/config.XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file_path, sizeof file_path, "%s/test.conf", folder);
    return 0;
}

static inline int remove_folder(void **state)
{
    (void)state;
    unlink(file_path);
    return rmdir(folder);
}

static inline void write_file(const char *text)
{
    FILE *file = fopen(file_path, "w");

    assert_non_null(file);
    assert_int_not_equal(fputs(text, file), EOF);
    assert_int_equal(fclose(file), 0);
}

static inline int read_text(struct config *config, const char *text, struct failure *failure)
{
    write_file(text);
    return config_read_file(config, file_path, failure);
}

#endif
