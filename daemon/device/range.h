/*
 * Ranges that a profiler shows (Nsight Systems, by NVTX): what the device's
 * process does with a batch, and when. Without a profiler they cost next to
 * nothing; built without NVTX's header they are not there.
 */
#ifndef PINSERVE_DEVICE_RANGE_H
#define PINSERVE_DEVICE_RANGE_H

#include <stdint.h>

enum range_kind { RANGE_COPY, RANGE_GATHER, RANGE_HAND_OFF };

/* Begins one, which may end on another thread. */
uint64_t range_begin(enum range_kind kind, uint64_t bytes);
void range_end(uint64_t range);

#endif
