/*
 * The configuration: one struct, filled from defaults, a file and --set. Every
 * key, its default and unit stand in the table of config_keys.c, in
 * config/pinserved.conf and in pinserved.conf(5); a test compares the three.
 */
#ifndef PINSERVE_CONFIG_H
#define PINSERVE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "proto/failure.h"

enum config_lock { CONFIG_LOCK_TRY, CONFIG_LOCK_REQUIRE, CONFIG_LOCK_OFF };
enum config_tenant { CONFIG_TENANT_UID, CONFIG_TENANT_CGROUP };

struct config {
    uint64_t memory_total; /* bytes: 100 %; 0: unknown, per cents are refused */

    /* [daemon] */
    char *socket;       /* "" : the default of the caller */
    mode_t socket_mode; /* 0660 */
    char *socket_group; /* "" : as created */
    enum config_tenant tenant;
    char *device_program; /* "" : pinserved-device beside pinserved, then libexec */
    char *cache;          /* of indexes: "auto": $CACHE_DIRECTORY, "off", or a directory */

    /* [pool] */
    uint64_t pool_min;    /* bytes, at start, for the first device; default 0 */
    uint64_t pool_max;    /* bytes, over all devices; 0: min(10 % of RAM or cgroup, 64 GiB) */
    uint64_t pool_region; /* bytes; default 64 MiB, at least 2 MiB */
    uint64_t pool_idle;   /* ns; default 60 s */
    enum config_lock pool_lock;

    /* [placement] */
    bool placement_strict;    /* numa = strict | prefer */
    char *placement_topology; /* "" : the machine's; "xml:FILE", "synthetic:..." */

    /* [workers] */
    uint32_t workers_per_numa_node; /* 0: half of the allowed CPUs, at least 1 */
    uint32_t workers_batches;       /* with the workers of one NUMA node at a time; 2 */

    /* [io] */
    uint64_t io_stuck;   /* ns; default 5 s */
    uint32_t io_threads; /* that read, over all jobs; 128 */
    uint64_t io_ahead;   /* bytes read and not decoded yet, over all jobs; default 256 MiB */

    /* [device] */
    bool device_ipc;            /* offer CUDA IPC memory handles; on */
    bool device_rings;          /* make rings on GPUs; off: no process of theirs is started; on */
    uint64_t device_idle;       /* ns; default 30 s */
    bool device_gather;         /* records are copied to GPUs straight from the page cache; on */
    uint64_t device_gather_min; /* bytes of a record; smaller ones go through a slot; 32 KiB */
    uint64_t device_gather_max; /* bytes of files, of one GPU; 0: a quarter of pool.max */
    char *device_use; /* "auto": every GPU and host; "host[:ADDRESS]"; or UUIDs with commas */

    /* [limits], of one tenant unless said otherwise */
    uint32_t limits_peers, limits_jobs; /* 256, 64 */
    uint32_t limits_peers_total;        /* 1024 */
    uint64_t limits_pinned;             /* bytes; 0: pool.max */
    uint64_t limits_device;             /* bytes of rings; 0: none */
    uint64_t limits_index;              /* bytes of one dataset's index; 1 GiB */
    uint64_t limits_cache;              /* bytes of daemon.cache, of all tenants; 1 GiB */

    /* [log] */
    int log_level;                 /* enum log_level: error, warning, info, debug */
    uint32_t log_lines_per_second; /* of one place in the code; 10 */
};

/* memory_total: 100 %, for sizes given in per cent. */
void config_init(struct config *config, uint64_t memory_total);
void config_deinit(struct config *config);

/* Reads a file; -ENOENT, or -EINVAL with file, line, and the nearest key for an unknown one. A key
 * given twice has its last value. */
int config_read_file(struct config *config, const char *path, struct failure *failure);
/* One "section.key=value", as of the option --set. */
int config_set(struct config *config, const char *assignment, struct failure *failure);
/* Sets one key; place, such as "pinserved.conf:12" or "--set", begins the text of a failure. */
int config_assign(struct config *config, const char *place, const char *section, const char *name,
                  const char *value, struct failure *failure);
/* Bounds that hold between keys; computes pool_max, limits_pinned and device_gather_max where they
 * are "auto", and makes pool_min whole regions. */
int config_finish(struct config *config, struct failure *failure);
/* Every key as a file that would give this configuration. */
void config_print(const struct config *config, FILE *stream);

#endif
