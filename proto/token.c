/*
 * Resume tokens as text. The checksum is over the packed bytes; hexadecimal
 * digits are lower case only, so that one token has one text.
 */
#include "token.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#include "cleanup.h"

#define TOKEN_PREFIX "pinserve1:"
#define PREFIX_SIZE (sizeof TOKEN_PREFIX - 1)
#define SUM_BYTES 8
#define PACKED_MAX 16384 /* bytes; two names of 4096 and the numbers fit well */

static char *hex_write(char *text, const uint8_t *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < size; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    return text;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex_read(const char *text, uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        int high = hex_digit(text[2 * i]);
        int low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static void sum_of(const uint8_t *bytes, size_t size, uint8_t sum[SUM_BYTES])
{
    XXH64_canonical_t canonical;

    XXH64_canonicalFromHash(&canonical, XXH64(bytes, size, 0));
    memcpy(sum, canonical.digest, SUM_BYTES);
}

int token_format(const Pinserve__ResumeToken *token, char *text, size_t *size_p)
{
    size_t room = *size_p;
    size_t packed_size = pinserve__resume_token__get_packed_size(token);
    uint8_t sum[SUM_BYTES];

    *size_p = PREFIX_SIZE + 2 * packed_size + 2 * SUM_BYTES + 1;
    if (room < *size_p)
        return -ENOSPC;
    /* One byte more: a token of zeros packs to nothing. */
    cleanup_free uint8_t *packed = malloc(packed_size + 1);
    if (!packed)
        return -ENOMEM;
    pinserve__resume_token__pack(token, packed);
    sum_of(packed, packed_size, sum);
    memcpy(text, TOKEN_PREFIX, PREFIX_SIZE);
    text = hex_write(text + PREFIX_SIZE, packed, packed_size);
    text = hex_write(text, sum, SUM_BYTES);
    *text = '\0';
    return 0;
}

int token_parse(const char *text, Pinserve__ResumeToken **token_p, struct failure *failure)
{
    uint8_t sum[SUM_BYTES];
    size_t digits = strnlen(text, PREFIX_SIZE + 2 * (PACKED_MAX + SUM_BYTES) + 1);

    if (strncmp(text, TOKEN_PREFIX, PREFIX_SIZE) != 0)
        return failure_set(failure, -EINVAL,
                           "not a resume token: it does not begin with \"" TOKEN_PREFIX "\"");
    digits -= PREFIX_SIZE;
    text += PREFIX_SIZE;
    if (digits > 2 * (size_t)(PACKED_MAX + SUM_BYTES))
        return failure_set(failure, -EINVAL, "not a resume token: longer than any there is");
    if (digits < 2 * (size_t)SUM_BYTES || digits % 2 != 0)
        return failure_set(failure, -EINVAL, "the resume token is cut off after %zu characters",
                           PREFIX_SIZE + digits);
    size_t packed_size = digits / 2 - SUM_BYTES;
    cleanup_free uint8_t *bytes = malloc(packed_size + SUM_BYTES);
    if (!bytes)
        return failure_set(failure, -ENOMEM, "no memory for a resume token");
    if (!hex_read(text, bytes, packed_size + SUM_BYTES))
        return failure_set(failure, -EINVAL,
                           "the resume token holds characters other than 0-9 and a-f");
    sum_of(bytes, packed_size, sum);
    if (memcmp(sum, bytes + packed_size, SUM_BYTES) != 0)
        return failure_set(failure, -EINVAL,
                           "the resume token is cut off or mistyped: its checksum is wrong");
    Pinserve__ResumeToken *token = pinserve__resume_token__unpack(NULL, packed_size, bytes);
    if (!token)
        return failure_set(failure, -EINVAL, "not a resume token: its bytes are no ResumeToken");
    *token_p = token;
    return 0;
}
