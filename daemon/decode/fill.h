/*
 * One worker's part in a batch: takes samples of it and fills their places in
 * the slot.
 */
#ifndef PINSERVE_DECODE_FILL_H
#define PINSERVE_DECODE_FILL_H

#include <time.h>

#include "decode/workers.h"

#define FILL_PASSED_ON 1 /* readers have the sample now */

/* Of one thread, which alone touches it, but for what is atomic. Zero-initialised. */
struct filler {
    _Atomic uint64_t reading_since, reading_sample; /* ns, 0: in no read */
    struct decoder *decoder;
    struct sample sample;
    uint64_t now;                /* when the last step ended */
    uint64_t read_ns, decode_ns; /* since filler_begin */
    struct decoder_counts told;  /* of the decoder, at the last filler_end */
};

static inline uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void filler_begin(struct filler *filler);
/* Adds to the work's sums what was done since filler_begin. */
void filler_end(struct filler *filler, struct work *work);
void filler_deinit(struct filler *filler);

/* The next sample of a batch: one that was fetched, or one that nobody has tried. */
bool filler_take(struct filler *filler, struct work *work, struct taken *taken_p,
                 struct failure *failure);

/* Fills in what was taken. FILL_PASSED_ON: it was not in the page cache. A negative errno in words.
 */
int filler_fill(struct filler *filler, struct work *work, const struct taken *taken,
                struct failure *failure);

#endif
