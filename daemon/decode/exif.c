/*
 * EXIF: the orientation of JPEG (segment APP1), PNG (chunk eXIf) and WebP (chunk
 * EXIF) files. The bytes are foreign: every length is held against what is left,
 * and each step goes forward.
 */
#include "decode/exif.h"

#include <stdbool.h>
#include <string.h>

#define TAG_ORIENTATION 0x0112
#define TYPE_SHORT 3
#define ENTRY_BYTES 12

#define MARKER_TEM 0x01
#define MARKER_RST0 0xd0
#define MARKER_EOI 0xd9
#define MARKER_SOS 0xda
#define MARKER_APP1 0xe1

/* Bytes that are looked into; .bytes NULL: none. */
struct piece {
    const uint8_t *bytes;
    size_t size;
};

static uint32_t number(const uint8_t *bytes, unsigned n, bool little)
{
    uint32_t value = 0;

    for (unsigned i = 0; i < n; i++)
        value = value << 8 | bytes[little ? n - 1 - i : i];
    return value;
}

static bool starts_with(struct piece piece, const char *text, size_t size)
{
    return piece.size >= size && memcmp(piece.bytes, text, size) == 0;
}

/* The piece behind its first n bytes, at most `size` bytes of it. */
static struct piece part(struct piece piece, size_t n, size_t size)
{
    size_t left = piece.size - n;

    return (struct piece){piece.bytes + n, size < left ? size : left};
}

static struct piece find_in_jpeg(struct piece file)
{
    size_t at = 2;

    while (at + 4 <= file.size && file.bytes[at] == 0xff) {
        unsigned marker = file.bytes[at + 1];
        size_t length = number(file.bytes + at + 2, 2, false);

        if (marker == 0xff) { /* fill bytes may stand before a marker */
            at++;
            continue;
        }
        if (marker == MARKER_TEM || (marker >= MARKER_RST0 && marker < MARKER_EOI - 1)) {
            at += 2;
            continue;
        }
        if (marker == MARKER_SOS || marker == MARKER_EOI || length < 2 ||
            length > file.size - at - 2)
            break;
        struct piece segment = part(file, at + 4, length - 2);

        if (marker == MARKER_APP1 && starts_with(segment, "Exif\0\0", 6))
            return segment;
        at += 2 + length;
    }
    return (struct piece){NULL, 0};
}

/* CRC-32 as PNG has it. */
static uint32_t crc(struct piece piece)
{
    uint32_t value = 0xffffffff;

    for (size_t i = 0; i < piece.size; i++) {
        value ^= piece.bytes[i];
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? 0xedb88320 ^ value >> 1 : value >> 1;
    }
    return ~value;
}

static struct piece find_in_png(struct piece file)
{
    size_t at = 8;

    while (file.size - at >= 12) {
        size_t length = number(file.bytes + at, 4, false);

        if (length > file.size - at - 12)
            break;
        if (memcmp(file.bytes + at + 4, "eXIf", 4) == 0 &&
            crc(part(file, at + 4, length + 4)) == number(file.bytes + at + 8 + length, 4, false))
            return part(file, at + 8, length);
        at += 12 + length;
    }
    return (struct piece){NULL, 0};
}

static struct piece find_in_webp(struct piece file)
{
    size_t at = 12;

    while (at < file.size && file.size - at >= 8) {
        size_t length = number(file.bytes + at + 4, 4, true);

        if (length > file.size - at - 8)
            break;
        if (memcmp(file.bytes + at, "EXIF", 4) == 0)
            return part(file, at + 8, length);
        at += 8 + length + length % 2;
    }
    return (struct piece){NULL, 0};
}

/* Of a TIFF structure: the tag lies in its first directory. */
static unsigned read_orientation(struct piece tiff)
{
    bool little = starts_with(tiff, "II*\0", 4);

    if (tiff.size < 8 || (!little && !starts_with(tiff, "MM\0*", 4)))
        return 1;
    size_t at = number(tiff.bytes + 4, 4, little);

    if (at > tiff.size - 2)
        return 1;
    size_t entries = number(tiff.bytes + at, 2, little);

    at += 2;
    for (size_t i = 0; i < entries && tiff.size - at >= ENTRY_BYTES; i++, at += ENTRY_BYTES) {
        const uint8_t *entry = tiff.bytes + at;
        unsigned value = number(entry + 8, 2, little);

        if (number(entry, 2, little) != TAG_ORIENTATION)
            continue;
        return number(entry + 2, 2, little) == TYPE_SHORT && number(entry + 4, 4, little) == 1 &&
                       value >= 1 && value <= 8
                   ? value
                   : 1;
    }
    return 1;
}

unsigned exif_orientation(const uint8_t *bytes, size_t size)
{
    struct piece file = {bytes, size}, exif = {NULL, 0};

    if (starts_with(file, "\xff\xd8", 2))
        exif = find_in_jpeg(file);
    else if (starts_with(file, "\x89PNG\r\n\x1a\n", 8))
        exif = find_in_png(file);
    else if (starts_with(file, "RIFF", 4) && size >= 12)
        exif = find_in_webp(file);
    if (exif.bytes && starts_with(exif, "Exif\0\0", 6))
        exif = part(exif, 6, exif.size);
    return exif.bytes ? read_orientation(exif) : 1;
}
