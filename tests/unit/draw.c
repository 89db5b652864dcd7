/*
 * Random choices: the generator is Philox4x32-10, and what is drawn for one
 * (seed, epoch, sample, block) tells nothing of what is drawn for its
 * neighbours. Statistics as statistics.h has them; generators that are weaker
 * must be seen.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "source/draw.h"
#include "unit/statistics.h"

#define DRAWS 32768

/* From the test vectors of Random123, by the generator's authors. */
static void test_known_answers(void **state)
{
    static const struct {
        uint64_t key;
        struct block counter, answer;
    } known[] = {
        {0, {{0, 0, 0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {UINT64_MAX,
         {{UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {UINT64_C(0x299f31d0a4093822),
         {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct block block = philox(known[i].key, known[i].counter);

        assert_memory_equal(&block, &known[i].answer, sizeof block);
    }
}

/* -- measures -------------------------------------------------------------------------------- */

typedef struct block drawing(uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t block);

/* What is drawn next, in each of the ways in which there is a next. */
enum {
    NEXT_SAMPLE,
    NEXT_EPOCH,
    NEXT_SEED,
    NEXT_BLOCK,
    FAR_SAMPLE,
    FAR_EPOCH,
    FAR_SEED,
    DIAGONAL,
    WAYS
};

static const char *const ways[] = {
    "sample",         "epoch",         "seed",         "block",
    "sample 2^32 on", "epoch 2^32 on", "seed 2^32 on", "epoch of the seed before",
};

/* The i-th of a walk along a way, step further. */
static struct block draw_along(drawing *drawn, int way, uint64_t i, uint64_t step)
{
    const uint64_t far = UINT64_C(1) << 32;
    uint64_t place[4] = {5, 3, 1000, 0}; /* seed, epoch, sample, block */

    switch (way) {
    case NEXT_SAMPLE:
        place[2] += i + step;
        break;
    case NEXT_EPOCH:
        place[1] += i + step;
        break;
    case NEXT_SEED:
        place[0] += i + step;
        break;
    case NEXT_BLOCK:
        place[3] += i + step;
        break;
    case FAR_SAMPLE:
        place[2] += i + step * far;
        break;
    case FAR_EPOCH:
        place[1] += i + step * far;
        break;
    case FAR_SEED:
        place[0] += i + step * far;
        break;
    default: /* DIAGONAL */
        place[0] += i + 1 - step;
        place[1] += step;
        break;
    }
    return drawn(place[0], place[1], place[2], (uint32_t)place[3]);
}

/* Every word against every word of the next draw, by their high bits and by their low ones. */
static void measure_next(drawing *drawn, int way, struct verdict *verdict)
{
    static uint32_t high[4][4][16 * 16], low[4][4][16 * 16];

    memset(high, 0, sizeof high);
    memset(low, 0, sizeof low);
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct block a = draw_along(drawn, way, i, 0), b = draw_along(drawn, way, i, 1);

        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 4; k++) {
                high[j][k][(a.word[j] >> 28) * 16 + (b.word[k] >> 28)]++;
                low[j][k][(a.word[j] & 15) * 16 + (b.word[k] & 15)]++;
            }
    }
    for (int j = 0; j < 4; j++)
        for (int k = 0; k < 4; k++) {
            verdict_add(verdict, table_z(high[j][k], 16, 16), "words %d and %d, next %s", j, k,
                        ways[way]);
            verdict_add(verdict, table_z(low[j][k], 16, 16), "low bits of %d and %d, next %s", j, k,
                        ways[way]);
        }
}

/* Every word by itself, and against the others of its block. */
static void measure_words(drawing *drawn, int way, struct verdict *verdict)
{
    static uint32_t counts[4][256], tables[4][4][16 * 16];

    memset(counts, 0, sizeof counts);
    memset(tables, 0, sizeof tables);
    for (uint64_t i = 0; i < DRAWS; i++) {
        struct block block = draw_along(drawn, way, i, 0);

        for (int j = 0; j < 4; j++) {
            counts[j][block.word[j] >> 24]++;
            for (int k = 0; k < j; k++)
                tables[j][k][(block.word[j] >> 28) * 16 + (block.word[k] >> 28)]++;
        }
    }
    for (int j = 0; j < 4; j++) {
        verdict_add(verdict, uniform_z(counts[j], 256), "word %d over each %s", j, ways[way]);
        for (int k = 0; k < j; k++)
            verdict_add(verdict, table_z(tables[j][k], 16, 16), "words %d and %d of one %s", j, k,
                        ways[way]);
    }
}

static struct verdict judge(drawing *drawn)
{
    struct verdict verdict = {0};

    for (int way = 0; way < WAYS; way++) {
        measure_words(drawn, way, &verdict);
        measure_next(drawn, way, &verdict);
    }
    return verdict;
}

static struct block ours(uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t block)
{
    return draw(draw_key(seed, epoch), sample, block);
}

static void test_no_structure(void **state)
{
    struct verdict verdict = judge(ours);

    (void)state;
    assert_int_equal(verdict.count, WAYS * (4 + 6 + 32));
    if (!(verdict.worst < Z_MAX))
        fail_msg("%s: z %.1f", verdict.what, verdict.worst);
}

/* -- what is seen ---------------------------------------------------------------------------- */

/* Philox once more, with any number of rounds. */
static struct block rounds(int n, uint64_t key, struct block c)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < n; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c.word[0], p1 = UINT64_C(0xCD9E8D57) * c.word[2];

        c = (struct block){{(uint32_t)(p1 >> 32) ^ c.word[1] ^ k0, (uint32_t)p1,
                            (uint32_t)(p0 >> 32) ^ c.word[3] ^ k1, (uint32_t)p0}};
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
    return c;
}

static struct block three_rounds(uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t block)
{
    return rounds(3, draw_key(seed, epoch),
                  (struct block){{(uint32_t)sample, (uint32_t)(sample >> 32), block}});
}

static struct block no_epoch(uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t block)
{
    (void)epoch;
    return draw(draw_key(seed, 0), sample, block);
}

static struct block short_sample(uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t block)
{
    return draw(draw_key(seed, epoch), (uint32_t)sample, block);
}

static struct block added(uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t block)
{
    return draw(draw_key(seed + epoch, 0), sample, block);
}

static void assert_seen(drawing *weak)
{
    struct verdict verdict = judge(weak);

    print_message("  z %.1f: %s\n", verdict.worst, verdict.what);
    assert_true(verdict.worst > 2 * Z_MAX);
}

static void test_weak_ones_are_seen(void **state)
{
    const struct block counter = {{1, 2, 3, 4}};
    struct block same = rounds(10, 77, counter), wanted = philox(77, counter);

    (void)state;
    assert_memory_equal(&same, &wanted, sizeof same);
    assert_seen(three_rounds);
    assert_seen(no_epoch);
    assert_seen(short_sample);
    assert_seen(added);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_no_structure),
        cmocka_unit_test(test_weak_ones_are_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
