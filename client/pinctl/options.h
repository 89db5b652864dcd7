/*
 * The command line of pinctl. Options of the program may stand before or after the command, those
 * of a command behind it.
 */
#ifndef PINCTL_OPTIONS_H
#define PINCTL_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "bench_options.h"
#include "proto/failure.h"

enum command {
    COMMAND_NONE, /* with help only */
    COMMAND_STATUS,
    COMMAND_DEVICES,
    COMMAND_POOLS,
    COMMAND_JOBS,
    COMMAND_STATS,
    COMMAND_BENCH,
    COMMAND_PROBE,
    COMMAND_EVICT,
    COMMAND_DRAIN,
    COMMAND_VERSION,
};

#define DRAIN_TIMEOUT_S 60

struct options {
    const char *socket; /* NULL: the usual places */
    bool json;
    bool help; /* print it and do nothing else */
    bool watch;
    uint64_t bad;       /* jobs: list the bad samples of this one; 0: the jobs */
    uint64_t job;       /* evict */
    const char *device; /* drain: NULL: all GPUs */
    uint64_t timeout_s; /* drain */
    bool undo;          /* drain */
    const char *output; /* probe: where the pixels go; NULL: nowhere */
    char **files;       /* probe: n_files of them */
    size_t n_files;
    enum command command;
    struct bench_options bench;
};

/* The texts in *options point into argv, which is reordered. -EINVAL: wrong, in words that name
 * the word. */
int options_parse(int argc, char **argv, struct options *options, struct failure *failure);

/* Help for a command, or for the program with COMMAND_NONE. */
void options_help(enum command command, FILE *out);

#endif
