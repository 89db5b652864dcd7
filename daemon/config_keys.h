/*
 * The configuration's keys: one table says where each key is kept, how it is
 * written, what it is by default and what is allowed.
 *
 * A key whose value 0 means something else than a number has a word for it
 * ("auto", "none"), and only the word gives 0.
 */
#ifndef PINSERVE_CONFIG_KEYS_H
#define PINSERVE_CONFIG_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_REGION_MIN (UINT64_C(2) << 20) /* also what its bytes are a multiple of */

enum key_type {
    TYPE_TEXT,
    TYPE_MODE,
    TYPE_BYTES,
    TYPE_DURATION,
    TYPE_COUNT,
    TYPE_WORD,
    TYPE_SWITCH
};

struct key_word {
    const char *text;
    int value;
};

struct config_key {
    const char *section, *name;
    enum key_type type;
    size_t offset;
    const char *standard; /* the default, as written in a file */
    const char *allowed;  /* for error texts */
    const char *zero;     /* the word for 0, or NULL */
    uint64_t min, max;    /* of numbers; max 0: no bound */
    const struct key_word *words;
    bool (*check)(const char *text); /* of TYPE_TEXT, or NULL */
};

extern const struct config_key config_keys[];
extern const size_t config_keys_n;

/* The key that was most likely meant: by the whole name, or by a name in the wrong section. */
const struct config_key *config_key_nearest(const char *section, const char *name);

#endif
