/*
 * EXIF: which way up an image is, and nothing else of it.
 */
#ifndef PINSERVE_DECODE_EXIF_H
#define PINSERVE_DECODE_EXIF_H

#include <stddef.h>
#include <stdint.h>

/* 1..8, as the tag Orientation counts; 1 also where there is none, or none that makes sense. Takes
 * a JPEG, PNG or WebP file, of which any part may be damaged. */
unsigned exif_orientation(const uint8_t *bytes, size_t size);

#endif
