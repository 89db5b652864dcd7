/*
 * The resizer's passes with AVX2. A coefficient has 24 bits with its sign
 * and is split in two parts of 13 and 11, the high one signed, so that one instruction multiplies
 * 16 pairs of 16 bits and adds neighbours; the sum of both parts is the plain kernel's sum,
 * exactly.
 */
#include "decode/resize.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define ROUND (1 << (RESIZE_BITS - 1))
#define AVX2 __attribute__((target("avx2")))
#define GROUP 4 /* rows that share one load of coefficients */

/* Sums of eight values in two parts. */
struct sum {
    __m256i high, low;
};

AVX2 static inline struct sum sum_zero(void)
{
    return (struct sum){_mm256_setzero_si256(), _mm256_set1_epi32(ROUND)};
}

AVX2 static inline struct sum sum_add(struct sum sum, __m256i pairs, __m256i high, __m256i low)
{
    return (struct sum){_mm256_add_epi32(sum.high, _mm256_madd_epi16(pairs, high)),
                        _mm256_add_epi32(sum.low, _mm256_madd_epi16(pairs, low))};
}

AVX2 static inline __m256i sum_value(struct sum sum)
{
    return _mm256_srai_epi32(
        _mm256_add_epi32(_mm256_slli_epi32(sum.high, RESIZE_SPLIT_BITS), sum.low), RESIZE_BITS);
}

/* Four pixels of two rows. */
AVX2 static inline __m256i load_rows(const uint8_t *a, const uint8_t *b)
{
    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)a)),
        _mm_loadu_si128((const __m128i *)(const void *)b), 1);
}

static inline void store_pixel(uint8_t *to, int value)
{
    memcpy(to, &value, sizeof value);
}

AVX2 static void horizontal_group(const struct resize_axis *axis, const uint8_t *const row[GROUP],
                                  uint8_t *const out[GROUP])
{
    /* Channels of pixels 0 and 1, and of 2 and 3, as pairs of 16-bit numbers. */
    const __m256i pair01 = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1));
    const __m256i pair23 = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1));

    for (uint32_t i = 0; i < axis->count; i++) {
        const int32_t *split = axis->split + (size_t)i * axis->taps;
        size_t at = (size_t)axis->start[i] * RESIZE_PIXEL;
        struct sum sum01 = sum_zero(), sum23 = sum_zero();
        __m256i words;
        __m128i low, high;

        for (uint32_t k = 0; k < axis->used[i]; k += 4, split += 4, at += 16) {
            __m256i rows01 = load_rows(row[0] + at, row[1] + at);
            __m256i rows23 = load_rows(row[2] + at, row[3] + at);
            __m256i high01 = _mm256_set1_epi32(split[0]), low01 = _mm256_set1_epi32(split[1]);
            __m256i high23 = _mm256_set1_epi32(split[2]), low23 = _mm256_set1_epi32(split[3]);

            sum01 = sum_add(sum01, _mm256_shuffle_epi8(rows01, pair01), high01, low01);
            sum23 = sum_add(sum23, _mm256_shuffle_epi8(rows23, pair01), high01, low01);
            sum01 = sum_add(sum01, _mm256_shuffle_epi8(rows01, pair23), high23, low23);
            sum23 = sum_add(sum23, _mm256_shuffle_epi8(rows23, pair23), high23, low23);
        }
        words = _mm256_packus_epi32(sum_value(sum01), sum_value(sum23));
        words = _mm256_packus_epi16(words, words);
        low = _mm256_castsi256_si128(words);
        high = _mm256_extracti128_si256(words, 1);
        store_pixel(out[0] + (size_t)i * 3, _mm_cvtsi128_si32(low));
        store_pixel(out[1] + (size_t)i * 3, _mm_cvtsi128_si32(high));
        store_pixel(out[2] + (size_t)i * 3, _mm_extract_epi32(low, 1));
        store_pixel(out[3] + (size_t)i * 3, _mm_extract_epi32(high, 1));
    }
}

static void avx2_horizontal(const struct resize_axis *axis, const uint8_t *const *rows,
                            uint32_t n_rows, uint8_t *out, size_t stride)
{
    for (uint32_t at = 0; at < n_rows; at += GROUP) {
        const uint8_t *from[GROUP];
        uint8_t *to[GROUP];

        /* The last rows fill a group by being computed more than once. */
        for (uint32_t k = 0; k < GROUP; k++) {
            uint32_t row = at + k < n_rows ? at + k : n_rows - 1;

            from[k] = rows[row];
            to[k] = out + row * stride;
        }
        horizontal_group(axis, from, to);
    }
}

/* 32 bytes of one output row. */
AVX2 static inline void vertical_block(const int32_t *split, uint32_t used, const uint8_t *rows,
                                       size_t stride, uint8_t *out)
{
    const __m256i zero = _mm256_setzero_si256();
    struct sum sum[4] = {sum_zero(), sum_zero(), sum_zero(), sum_zero()};

    for (uint32_t k = 0; k < used; k += 2, split += 2) {
        /* Behind an odd number of rows the coefficient is 0, and any row will do. */
        const uint8_t *next = k + 1 < used ? rows + (k + 1) * stride : rows;
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(rows + k * stride));
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)next);
        __m256i high = _mm256_set1_epi32(split[0]), low = _mm256_set1_epi32(split[1]);
        __m256i first = _mm256_unpacklo_epi8(a, b), second = _mm256_unpackhi_epi8(a, b);

        sum[0] = sum_add(sum[0], _mm256_unpacklo_epi8(first, zero), high, low);
        sum[1] = sum_add(sum[1], _mm256_unpackhi_epi8(first, zero), high, low);
        sum[2] = sum_add(sum[2], _mm256_unpacklo_epi8(second, zero), high, low);
        sum[3] = sum_add(sum[3], _mm256_unpackhi_epi8(second, zero), high, low);
    }
    _mm256_storeu_si256(
        (__m256i *)(void *)out,
        _mm256_packus_epi16(_mm256_packus_epi32(sum_value(sum[0]), sum_value(sum[1])),
                            _mm256_packus_epi32(sum_value(sum[2]), sum_value(sum[3]))));
}

AVX2 static void avx2_vertical(const struct resize_axis *axis, const uint8_t *rows, size_t stride,
                               size_t bytes, uint8_t *out)
{
    if (bytes < 32) {
        resize_kernel_plain.vertical(axis, rows, stride, bytes, out);
        return;
    }
    for (uint32_t i = 0; i < axis->count; i++, out += bytes) {
        const uint8_t *from = rows + axis->start[i] * stride;
        const int32_t *split = axis->split + (size_t)i * axis->taps;
        size_t at = 0;

        for (; at + 32 <= bytes; at += 32)
            vertical_block(split, axis->used[i], from + at, stride, out + at);
        if (at < bytes)
            vertical_block(split, axis->used[i], from + bytes - 32, stride, out + bytes - 32);
    }
}

static const struct resize_kernel avx2 = {
    .name = "avx2",
    .horizontal = avx2_horizontal,
    .vertical = avx2_vertical,
};

const struct resize_kernel *resize_kernel_avx2(void)
{
    return __builtin_cpu_supports("avx2") ? &avx2 : NULL;
}

#else

const struct resize_kernel *resize_kernel_avx2(void)
{
    return NULL;
}

#endif
