/*
 * The options of pinctl bench, in one table: what parses them, what --help prints, and the
 * defaults. Values that the library checks, like a source's form, are kept as text.
 */
#ifndef PINCTL_BENCH_OPTIONS_H
#define PINCTL_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "pinclient.h"
#include "proto/failure.h"

struct bench_options {
    const char *source;
    const char *image; /* NULL: the library's default */
    double flip;
    uint32_t batch;
    const char *device;
    const char *deliver;
    uint32_t depth;
    uint64_t seed;
    const char *shuffle;
    const char *last;
    const char *bad;
    uint32_t rank, world;
    uint32_t seq; /* 0: no tokens */
    uint32_t jobs;
    double step_ms;   /* 0: as fast as it goes */
    uint64_t epochs;  /* exactly one of epochs, seconds and batches is not 0 */
    double seconds;   /* from the first batch on */
    uint64_t batches; /* of each job */
    bool checksum;
    uint32_t given; /* options of the command line, a bit each by their place in the table */
};

enum bench_kind { BENCH_TEXT, BENCH_U32, BENCH_U64, BENCH_REAL, BENCH_FLAG };

struct bench_option {
    const char *name;
    enum bench_kind kind;
    size_t offset; /* in struct bench_options */
    uint64_t min, max;
    const char *value; /* what --help calls it; NULL: none */
    const char *help;
};

extern const struct bench_option bench_options_table[];
extern const size_t bench_options_count;

void bench_options_init(struct bench_options *options);

/* Takes the value of option i. -EINVAL. */
int bench_options_set(struct bench_options *options, size_t i, const char *value,
                      struct failure *failure);

/* True when the command line has the option of this name. */
bool bench_options_given(const struct bench_options *options, const char *name);

/* Checks the options together, once all are set, and fills in what they imply. -EINVAL. */
int bench_options_finish(struct bench_options *options, struct failure *failure);

/* Makes the spec of job i that they ask for. -ENOMEM; -EINVAL: a value that the library refuses,
 * in its words. */
int bench_options_spec(const struct bench_options *options, uint32_t i,
                       struct pinclient_spec **spec_p, struct failure *failure);

void bench_options_help(FILE *out);

#endif
