/*
 * Quality of the shuffle: it is a permutation, and what it makes of positions
 * shows no structure: where samples go, neighbours, successive epochs, nearby
 * seeds. Fixed seeds, one fixed bound (statistics.h).
 *
 * The measures must see structure where there is some: they also judge the same
 * network with fewer rounds and with one key for all of them. Few samples tell
 * most, because there every key can be tried: two positions over all seeds show
 * 8 rounds with up to 32 samples. Twelve rounds leave a bias, of 2 to 3 percent
 * in how often two samples meet, for 5 to 8 samples; so these get as many seeds
 * as show 8 rounds, and no more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/order.h"
#include "unit/statistics.h"

#define LARGE UINT64_C(1000000007)
#define WINDOW 65536
#define LAGS 8

typedef uint64_t permutation(uint64_t seed, uint64_t epoch, uint64_t samples, uint64_t position);

/* -- a permutation --------------------------------------------------------------------------- */

/* Every number of samples: also every number of bits, odd and even, and every share of positions
 * that are walked over. */
static void test_every_size(void **state)
{
    static uint8_t seen[4096];

    (void)state;
    for (uint64_t n = 1; n <= 4096; n++)
        for (uint64_t round = 0; round < (n <= 512 ? 8 : 2); round++) {
            memset(seen, 0, n);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t at = order_permute(n * 31 + round, round * 7, n, i);

                if (at >= n || seen[at])
                    fail_msg("%u samples, round %u: position %u", (unsigned)n, (unsigned)round,
                             (unsigned)i);
                seen[at] = 1;
            }
        }
}

/* Three million positions of a large number: the first, the last, and every 997th. A function that
 * is no permutation would meet itself 4,500 times. */
static void test_large(void **state)
{
    const uint64_t each = 1000000;
    uint8_t *seen = calloc(LARGE / 8 + 1, 1);

    (void)state;
    assert_non_null(seen);
    for (uint64_t i = 0; i < 3 * each; i++) {
        uint64_t k = i % each;
        uint64_t position = i < each ? k : i < 2 * each ? LARGE - 1 - k : each + k * 997;
        uint64_t at = order_permute(5, 1, LARGE, position);

        if (at >= LARGE || seen[at / 8] >> at % 8 & 1)
            fail_msg("position %llu", (unsigned long long)position);
        seen[at / 8] |= (uint8_t)(1u << at % 8);
    }
    free(seen);
}

/* -- measures -------------------------------------------------------------------------------- */

static uint32_t bin(uint64_t x, uint64_t n, uint32_t bins)
{
    return (uint32_t)((unsigned __int128)x * bins / n);
}

/* How many of n values fall into a bin. */
static double bin_size(uint32_t i, uint64_t n, uint32_t bins)
{
    unsigned __int128 low = ((unsigned __int128)i * n + bins - 1) / bins;
    unsigned __int128 high = ((unsigned __int128)(i + 1) * n + bins - 1) / bins;

    return (double)(uint64_t)(high - low);
}

/* One position over many seeds, or many epochs. */
static void measure_place(permutation *permute, uint64_t n, uint64_t position,
                          struct verdict *verdict)
{
    enum { SEEDS, HIGH_SEEDS, EPOCHS, KINDS };
    const uint32_t bins = n < 100 ? (uint32_t)n : 100, each = 200;

    for (int kind = SEEDS; kind < KINDS; kind++) {
        uint32_t counts[100] = {0};
        double chi_squared = 0;

        for (uint64_t i = 0; i < bins * each; i++) {
            uint64_t seed = kind == SEEDS ? i : kind == HIGH_SEEDS ? i << 40 : 9;

            counts[bin(permute(seed, kind == EPOCHS ? i : 0, n, position), n, bins)]++;
        }
        for (uint32_t i = 0; i < bins; i++) {
            double expected = bin_size(i, n, bins) / (double)n * bins * each;

            chi_squared += (counts[i] - expected) * (counts[i] - expected) / expected;
        }
        verdict_add(verdict, chi_squared_z(chi_squared, bins - 1),
                    "%u samples, position %u over %s", (unsigned)n, (unsigned)position,
                    kind == EPOCHS ? "epochs" : "seeds");
    }
}

/* Which two samples two positions get, over many seeds: any two, alike often. Where each sample has
 * a bin of its own, no sample may come twice. */
static void measure_two_places(permutation *permute, uint64_t n, uint64_t a, uint64_t b,
                               uint32_t seeds, struct verdict *verdict)
{
    static uint32_t table[64 * 64];
    const uint32_t bins = n < 64 ? (uint32_t)n : 64;
    double chi_squared = 0;
    uint32_t cells = 0;

    memset(table, 0, sizeof table);
    for (uint64_t seed = 0; seed < seeds; seed++)
        table[bin(permute(seed, 0, n, a), n, bins) * bins + bin(permute(seed, 0, n, b), n, bins)]++;
    for (uint32_t i = 0; i < bins; i++)
        for (uint32_t k = 0; k < bins; k++) {
            double both =
                bin_size(i, n, bins) * (bin_size(k, n, bins) - (i == k)) / (double)n / (n - 1.0);
            double expected = both * seeds, count = table[i * bins + k];

            if (expected == 0)
                continue;
            chi_squared += (count - expected) * (count - expected) / expected;
            cells++;
        }
    verdict_add(verdict, chi_squared_z(chi_squared, cells - 1), "%u samples, positions %u and %u",
                (unsigned)n, (unsigned)a, (unsigned)b);
}

/* One position in two epochs, or by two seeds, over many of them: independent. */
static void measure_again(permutation *permute, uint64_t n, struct verdict *verdict)
{
    static const struct {
        const char *name;
        uint64_t seed_a, epoch_a, seed_b, epoch_b;
    } kinds[] = {
        {"the next epoch", 0, 0, 0, 1},
        {"the next seed", 0, 0, 1, 0},
        {"the next seed, an epoch before", 0, 1, 1, 0},
        {"a seed 2^32 on", 0, 0, UINT64_C(1) << 32, 0},
        {"an epoch 2^32 on", 0, 0, 0, UINT64_C(1) << 32},
    };
    const uint32_t bins = n < 32 ? (uint32_t)n : 32;
    static uint32_t table[32 * 32];

    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        memset(table, 0, sizeof table);
        for (uint64_t i = 0; i < 20000; i++) {
            uint64_t seed = i / 100 * 3, epoch = i % 100 * 2, position = i * 13 % n;

            table[bin(permute(seed + kinds[kind].seed_a, epoch + kinds[kind].epoch_a, n, position),
                      n, bins) *
                      bins +
                  bin(permute(seed + kinds[kind].seed_b, epoch + kinds[kind].epoch_b, n, position),
                      n, bins)]++;
        }
        verdict_add(verdict, table_z(table, bins, bins), "%u samples, a position and %s",
                    (unsigned)n, kinds[kind].name);
    }
}

/* The values at a stretch of positions against those some places on: how far apart, correlation,
 * and which with which. */
static void measure_lag(const uint64_t *values, uint64_t n, uint32_t lag, struct verdict *verdict)
{
    uint32_t apart[64] = {0}, table[16 * 16] = {0};
    double correlation = 0;
    const uint32_t pairs = WINDOW - lag;

    for (uint32_t i = 0; i < pairs; i++) {
        uint64_t a = values[i], b = values[i + lag];

        apart[bin(b >= a ? b - a : n - a + b, n, 64)]++;
        table[bin(a, n, 16) * 16 + bin(b, n, 16)]++;
        correlation += ((double)a / (double)n - 0.5) * ((double)b / (double)n - 0.5) * 12;
    }
    verdict_add(verdict, uniform_z(apart, 64), "%llu samples, differences %u places on",
                (unsigned long long)n, lag);
    verdict_add(verdict, table_z(table, 16, 16), "%llu samples, pairs %u places apart",
                (unsigned long long)n, lag);
    verdict_add(verdict, correlation / sqrt(pairs), "%llu samples, correlation %u places on",
                (unsigned long long)n, lag);
}

/* Samples come in no rising order: of n values, rises number (n - 1) / 2 with variance
 * (n + 1) / 12. */
static void measure_stretch(permutation *permute, uint64_t n, uint64_t first, uint64_t seed,
                            struct verdict *verdict)
{
    static uint64_t values[WINDOW];
    uint32_t counts[256] = {0};
    double rises = 0;

    for (uint32_t i = 0; i < WINDOW; i++) {
        values[i] = permute(seed, 4, n, first + i);
        counts[bin(values[i], n, 256)]++;
        rises += i > 0 && values[i] > values[i - 1];
    }
    if (n >= 16 * WINDOW) /* else they are most of all */
        verdict_add(verdict, uniform_z(counts, 256), "%llu samples, the values at %llu",
                    (unsigned long long)n, (unsigned long long)first);
    verdict_add(verdict, (rises - (WINDOW - 1) / 2.0) / sqrt((WINDOW + 1) / 12.0),
                "%llu samples, rises", (unsigned long long)n);
    for (uint32_t lag = 1; lag <= LAGS; lag++)
        measure_lag(values, n, lag, verdict);
    for (uint32_t lag = 16; lag < WINDOW / 2; lag *= 2)
        measure_lag(values, n, lag, verdict);
}

/* The high half of what becomes of a position when one of its bits is another. In a network of four
 * rounds, where a bit of the high half passes through one time in 2^8 too many, it shows. */
static void measure_bits(permutation *permute, struct verdict *verdict)
{
    static uint64_t values[WINDOW];
    double chi_squared[16] = {0};
    const uint32_t seeds = 4;

    for (uint64_t seed = 0; seed < seeds; seed++) {
        for (uint32_t i = 0; i < WINDOW; i++)
            values[i] = permute(seed, 0, WINDOW, i);
        for (int bit = 0; bit < 16; bit++) {
            uint32_t counts[256] = {0};

            for (uint32_t i = 0; i < WINDOW; i++)
                if (!(i >> bit & 1))
                    counts[(values[i] ^ values[i | 1u << bit]) >> 8]++;
            for (int k = 0; k < 256; k++)
                chi_squared[bit] += (counts[k] - 128.0) * (counts[k] - 128.0) / 128;
        }
    }
    for (int bit = 0; bit < 16; bit++)
        verdict_add(verdict, chi_squared_z(chi_squared[bit], 255.0 * seeds),
                    "%u samples, another bit %d", WINDOW, bit);
}

/* Where the samples of an epoch come in the next one. */
static void measure_next_epoch(permutation *permute, uint64_t n, struct verdict *verdict)
{
    static uint32_t place[WINDOW], table[32 * 32];

    for (uint64_t seed = 0; seed < 3; seed++) {
        memset(table, 0, sizeof table);
        for (uint32_t i = 0; i < n; i++)
            place[permute(seed, 1, n, i)] = i;
        for (uint32_t i = 0; i < n; i++)
            table[bin(i, n, 32) * 32 + bin(place[permute(seed, 0, n, i)], n, 32)]++;
        verdict_add(verdict, table_z(table, 32, 32), "%u samples, places in the next epoch",
                    (unsigned)n);
    }
}

/* Samples that stay where they are: as many as Poisson's law with mean 1 has it. */
static void measure_fixed_points(permutation *permute, uint64_t n, uint32_t seeds,
                                 struct verdict *verdict)
{
    static const double share[] = {0.36787944, 0.36787944, 0.18393972,
                                   0.06131324, 0.01532831, 0.00365985};
    uint32_t counts[6] = {0};
    double chi_squared = 0;

    for (uint64_t seed = 0; seed < seeds; seed++) {
        uint32_t fixed = 0;

        for (uint64_t i = 0; i < n; i++)
            fixed += permute(seed, 7, n, i) == i;
        counts[fixed < 5 ? fixed : 5]++;
    }
    for (int i = 0; i < 6; i++)
        chi_squared +=
            (counts[i] - seeds * share[i]) * (counts[i] - seeds * share[i]) / (seeds * share[i]);
    verdict_add(verdict, chi_squared_z(chi_squared, 5), "%u samples, fixed points", (unsigned)n);
}

/* -- the verdicts ---------------------------------------------------------------------------- */

static void judge_few(permutation *permute, struct verdict *verdict)
{
    for (uint64_t lag = 1; lag < 7; lag++) {
        measure_two_places(permute, 7, 0, lag, 20000, verdict);
        measure_two_places(permute, 8, 0, lag, 20000, verdict);
    }
    measure_two_places(permute, 3, 0, 1, 20000, verdict);
    measure_two_places(permute, 4, 0, 1, 20000, verdict);
    measure_two_places(permute, 12, 0, 3, 100000, verdict);
    measure_two_places(permute, 16, 0, 8, 200000, verdict);
    measure_two_places(permute, 32, 0, 4, 200000, verdict);
    measure_two_places(permute, 64, 0, 1, 100000, verdict);
    measure_two_places(permute, 64, 0, 32, 100000, verdict);
}

static void judge_places(permutation *permute, struct verdict *verdict)
{
    static const uint64_t sizes[] = {7, 64, 1000, LARGE};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        measure_place(permute, sizes[i], 0, verdict);
        measure_place(permute, sizes[i], sizes[i] / 2, verdict);
        measure_place(permute, sizes[i], sizes[i] - 1, verdict);
        measure_again(permute, sizes[i], verdict);
    }
    measure_two_places(permute, 1000, 0, 1, 100000, verdict);
    measure_two_places(permute, LARGE, 0, 1, 100000, verdict);
    measure_two_places(permute, LARGE, 0, 1 << 15, 100000, verdict);
    measure_fixed_points(permute, 64, 3000, verdict);
    measure_fixed_points(permute, 1000, 300, verdict);
}

static void judge_stretches(permutation *permute, struct verdict *verdict)
{
    measure_stretch(permute, WINDOW, 0, 1, verdict);
    measure_stretch(permute, WINDOW + 1, 0, 2, verdict);
    measure_stretch(permute, LARGE, 0, 3, verdict);
    measure_stretch(permute, LARGE, LARGE / 2, 4, verdict);
    measure_stretch(permute, LARGE, LARGE - WINDOW, 5, verdict);
    measure_stretch(permute, UINT64_C(1) << 40, 0, 6, verdict);
    measure_bits(permute, verdict);
    measure_next_epoch(permute, WINDOW, verdict);
    measure_next_epoch(permute, 50000, verdict);
}

static void test_few_samples(void **state)
{
    struct verdict verdict = {0};

    (void)state;
    judge_few(order_permute, &verdict);
    if (!(verdict.worst < Z_MAX))
        fail_msg("%s: z %.1f", verdict.what, verdict.worst);
}

static void test_places(void **state)
{
    struct verdict verdict = {0};

    (void)state;
    judge_places(order_permute, &verdict);
    if (!(verdict.worst < Z_MAX))
        fail_msg("%s: z %.1f", verdict.what, verdict.worst);
}

static void test_stretches(void **state)
{
    struct verdict verdict = {0};

    (void)state;
    judge_stretches(order_permute, &verdict);
    assert_true(verdict.count > 300);
    if (!(verdict.worst < Z_MAX))
        fail_msg("%s: z %.1f", verdict.what, verdict.worst);
}

/* -- what is seen ---------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

/* The network of order.c once more, with any number of rounds and with one key for all or not. */
static uint64_t network(uint64_t key, uint64_t samples, uint64_t at, int rounds, bool one_key)
{
    uint64_t stride = one_key ? 0 : mix(key + UINT64_C(0x9e3779b97f4a7c15)) | 1;
    unsigned bits = samples <= 2 ? 2 : 64 - (unsigned)__builtin_clzll(samples - 1);
    unsigned width[2] = {bits / 2, bits - bits / 2};

    do {
        uint64_t half[2] = {at >> width[1], at & ((UINT64_C(1) << width[1]) - 1)};

        for (int round = 0; round < rounds; round++) {
            uint64_t x = half[1 - round % 2] + key + stride * (uint64_t)round;

            x *= UINT64_C(0x9e3779b97f4a7c15);
            x = (x ^ x >> 32) * UINT64_C(0xd1342543de82ef95);
            half[round % 2] ^= x >> (64 - width[round % 2]);
        }
        at = half[0] << width[1] | half[1];
    } while (at >= samples);
    return at;
}

static uint64_t key_of(uint64_t seed, uint64_t epoch)
{
    return mix(mix(seed + UINT64_C(0x9e3779b97f4a7c15)) + epoch);
}

static uint64_t four_rounds(uint64_t seed, uint64_t epoch, uint64_t samples, uint64_t position)
{
    return network(key_of(seed, epoch), samples, position, 4, false);
}

static uint64_t eight_rounds(uint64_t seed, uint64_t epoch, uint64_t samples, uint64_t position)
{
    return network(key_of(seed, epoch), samples, position, 8, false);
}

static uint64_t one_key(uint64_t seed, uint64_t epoch, uint64_t samples, uint64_t position)
{
    return network(key_of(seed, epoch), samples, position, 12, true);
}

static uint64_t no_epoch(uint64_t seed, uint64_t epoch, uint64_t samples, uint64_t position)
{
    (void)epoch;
    return network(key_of(seed, 0), samples, position, 12, false);
}

static uint64_t short_seed(uint64_t seed, uint64_t epoch, uint64_t samples, uint64_t position)
{
    return network(key_of((uint32_t)seed, epoch), samples, position, 12, false);
}

/* Seed and epoch merely added: each epoch is one of the next seed's. */
static uint64_t added(uint64_t seed, uint64_t epoch, uint64_t samples, uint64_t position)
{
    return network(key_of(seed + epoch, 0), samples, position, 12, false);
}

static void assert_seen(permutation *permute,
                        void (*judge)(permutation *permute, struct verdict *verdict))
{
    struct verdict verdict = {0};

    judge(permute, &verdict);
    print_message("  z %.1f: %s\n", verdict.worst, verdict.what);
    assert_true(verdict.worst > 2 * Z_MAX);
}

static void test_weak_ones_are_seen(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(network(key_of(i, 3), 1000, i, 12, false), order_permute(i, 3, 1000, i));
    assert_seen(four_rounds, judge_few);
    assert_seen(eight_rounds, judge_few);
    assert_seen(one_key, judge_few);
    assert_seen(four_rounds, judge_stretches);
    assert_seen(no_epoch, judge_places);
    assert_seen(no_epoch, judge_stretches);
    assert_seen(short_seed, judge_places);
    assert_seen(added, judge_places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size),  cmocka_unit_test(test_large),
        cmocka_unit_test(test_few_samples), cmocka_unit_test(test_places),
        cmocka_unit_test(test_stretches),   cmocka_unit_test(test_weak_ones_are_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
