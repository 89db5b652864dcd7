/*
 * The rate of a counter over the last second or so: samples of it are taken now
 * and then, and the rate is what was added since the oldest that is not too old.
 */
#ifndef PINSERVE_RATE_H
#define PINSERVE_RATE_H

#include <stdint.h>

#define RATE_SAMPLES 5
#define RATE_SPAN_NS UINT64_C(1500000000)

struct rate {
    uint64_t at[RATE_SAMPLES], total[RATE_SAMPLES]; /* at 0: none */
    unsigned next;
};

/* now, in ns, is never 0. */
static inline void rate_sample(struct rate *rate, uint64_t now, uint64_t total)
{
    rate->at[rate->next] = now;
    rate->total[rate->next] = total;
    rate->next = (rate->next + 1) % RATE_SAMPLES;
}

/* A second. 0 when nothing is known of the time before. */
static inline uint64_t rate_get(const struct rate *rate, uint64_t now, uint64_t total)
{
    uint64_t at = now, before = total;

    for (unsigned i = 0; i < RATE_SAMPLES; i++)
        if (rate->at[i] && rate->at[i] < at && now - rate->at[i] <= RATE_SPAN_NS) {
            at = rate->at[i];
            before = rate->total[i];
        }
    return at < now ? (uint64_t)((double)(total - before) * 1e9 / (double)(now - at)) : 0;
}

#endif
