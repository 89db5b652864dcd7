/*
 * A histogram of durations in bounded memory. Values below 256 are kept exactly, larger ones in
 * buckets that are narrower than 1/128 of their value, so that a percentile is off by less than
 * 0.4 %. Count, sum and maximum are exact.
 */
#ifndef PINCTL_HISTOGRAM_H
#define PINCTL_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_EXACT 256  /* values with a bucket of their own */
#define HISTOGRAM_OCTAVE 128 /* buckets from one power of two to the next */
#define HISTOGRAM_BUCKETS (HISTOGRAM_EXACT + 56 * HISTOGRAM_OCTAVE)

struct histogram {
    uint64_t count;
    uint64_t sum;
    uint64_t max;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

/* A histogram of zeros is an empty one. */
void histogram_add(struct histogram *histogram, uint64_t value);

/* Adds all of from to histogram. */
void histogram_merge(struct histogram *histogram, const struct histogram *from);

/* The smallest value that at least share (0 to 1) of the values do not exceed; 0 when empty. */
uint64_t histogram_percentile(const struct histogram *histogram, double share);

/* 0 when empty. */
double histogram_mean(const struct histogram *histogram);

#endif
