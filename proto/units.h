/*
 * Sizes and durations as people write them in configuration and options.
 */
#ifndef PINSERVE_UNITS_H
#define PINSERVE_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* "64 MiB", "64MiB", "1 GB", "50%", "4096": bytes. MB is 10^6, MiB is 2^20, "%" is of whole, a bare
 * number is bytes. -EINVAL for anything else (signs, fractions without unit, unknown units, spaces
 * only), -ERANGE when it does not fit 64 bits or is over 100 %. */
int units_parse_bytes(const char *text, uint64_t whole, uint64_t *bytes_p);

/* "5s", "100ms", "2min", "1h": nanoseconds; a unit is required except for 0. */
int units_parse_duration(const char *text, uint64_t *nanoseconds_p);

/* Writes bytes as people read them ("1.5 GiB", "512 KiB", "17 B") and returns text. */
const char *units_format_bytes(uint64_t bytes, char *text, size_t size);

#endif
