/* What libFuzzer calls; 0. */
#ifndef PINSERVE_TESTS_FUZZ_H
#define PINSERVE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#endif
