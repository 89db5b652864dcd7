/*
 * Log-linear buckets: a value of 256 or more is shifted right until 8 bits are left, of which the
 * first is always set; the shift and the other 7 bits number its bucket.
 */
#include "histogram.h"

#include <stddef.h>

#define EXACT_BITS 8

static size_t bucket_index(uint64_t value)
{
    if (value < HISTOGRAM_EXACT)
        return value;
    unsigned int shift = 64 - EXACT_BITS - (unsigned int)__builtin_clzll(value);
    return HISTOGRAM_EXACT + (shift - 1) * (size_t)HISTOGRAM_OCTAVE +
           ((value >> shift) - HISTOGRAM_OCTAVE);
}

/* The middle of bucket i. */
static uint64_t bucket_value(size_t i)
{
    if (i < HISTOGRAM_EXACT)
        return i;
    size_t above = i - HISTOGRAM_EXACT;
    unsigned int shift = (unsigned int)(above / HISTOGRAM_OCTAVE) + 1;
    uint64_t low = (uint64_t)(above % HISTOGRAM_OCTAVE + HISTOGRAM_OCTAVE) << shift;
    return low + ((UINT64_C(1) << shift) - 1) / 2;
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
    histogram->count++;
    histogram->sum += value;
    if (value > histogram->max)
        histogram->max = value;
    histogram->buckets[bucket_index(value)]++;
}

void histogram_merge(struct histogram *histogram, const struct histogram *from)
{
    histogram->count += from->count;
    histogram->sum += from->sum;
    if (from->max > histogram->max)
        histogram->max = from->max;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        histogram->buckets[i] += from->buckets[i];
}

uint64_t histogram_percentile(const struct histogram *histogram, double share)
{
    double wanted = share * (double)histogram->count;
    uint64_t seen = 0;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen > 0 && (double)seen >= wanted) {
            uint64_t value = bucket_value(i);
            return value < histogram->max ? value : histogram->max;
        }
    }
    return histogram->max;
}

double histogram_mean(const struct histogram *histogram)
{
    return histogram->count ? (double)histogram->sum / (double)histogram->count : 0;
}
