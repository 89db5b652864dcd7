/*
 * Random choices: a counter-based generator keyed by (seed, epoch, sample), so
 * that a choice depends on nothing else.
 */
#ifndef PINSERVE_SOURCE_DRAW_H
#define PINSERVE_SOURCE_DRAW_H

#include <stdint.h>

struct block {
    uint32_t word[4];
};

/* Philox4x32 with ten rounds (Salmon et al., SC 2011). */
static inline struct block philox(uint64_t key, struct block counter)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    struct block c = counter;

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c.word[0];
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c.word[2];

        c = (struct block){{(uint32_t)(p1 >> 32) ^ c.word[1] ^ k0, (uint32_t)p1,
                            (uint32_t)(p0 >> 32) ^ c.word[3] ^ k1, (uint32_t)p0}};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* Seed, epoch and sample are 64 bits each and do not fit one counter: the first two make the key.
 */
static inline uint64_t draw_key(uint64_t seed, uint64_t epoch)
{
    struct block key = philox(seed, (struct block){{(uint32_t)epoch, (uint32_t)(epoch >> 32)}});

    return (uint64_t)key.word[1] << 32 | key.word[0];
}

static inline struct block draw(uint64_t key, uint64_t sample, uint32_t block)
{
    return philox(key, (struct block){{(uint32_t)sample, (uint32_t)(sample >> 32), block}});
}

#endif
