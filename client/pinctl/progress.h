/*
 * The progress of a bench run, one line on a terminal.
 */
#ifndef PINCTL_PROGRESS_H
#define PINCTL_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Where a run stands. */
struct progress_counts {
    uint64_t batches, samples;
    uint64_t wait_ns; /* sum over batches */
    double share;     /* done, 0 to 1; negative: unknown */
};

struct progress {
    FILE *out; /* NULL: nothing is shown */
    uint64_t shown_ns;
    struct progress_counts shown;
};

/* Shows something only where out is a terminal. */
void progress_init(struct progress *progress, FILE *out, bool wanted, uint64_t now_ns);

/* Draws the line anew; the rate and the wait are those since the last time. */
void progress_show(struct progress *progress, const struct progress_counts *counts,
                   uint64_t now_ns);

/* Takes the line away. */
void progress_end(struct progress *progress);

/* The line in at most width characters, as text of at most size bytes; returns text. */
const char *progress_line(const struct progress_counts *counts, double samples_per_s,
                          double wait_us, unsigned int width, char *text, size_t size);

#endif
