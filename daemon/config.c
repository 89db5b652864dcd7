/*
 * The configuration: setting, printing and error texts all follow from the table
 * of keys in config_keys.c; config_file.c reads the file.
 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "config_keys.h"
#include "proto/cleanup.h"
#include "proto/units.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define POOL_MAX_DEFAULT (64 * GIB)
#define TEXT_LINE_BYTES 160 /* of a printed text; a line that is read has at most 198 */

static void *key_place(struct config *config, const struct config_key *key)
{
    return (char *)config + key->offset;
}

static const void *key_place_const(const struct config *config, const struct config_key *key)
{
    return (const char *)config + key->offset;
}

static int parse_digits(const char *text, int base, uint64_t *number_p)
{
    const char *digits = base == 8 ? "01234567" : "0123456789";
    size_t length = strlen(text);

    /* 20 digits: strtoull tells what does not fit. */
    if (!length || length > 20 || strspn(text, digits) != length)
        return -EINVAL;
    errno = 0;
    *number_p = strtoull(text, NULL, base);
    return errno ? -ERANGE : 0;
}

static int parse_word(const struct key_word *words, const char *text, uint64_t *number_p)
{
    for (; words->text; words++)
        if (strcmp(words->text, text) == 0) {
            *number_p = (uint64_t)words->value;
            return 0;
        }
    return -EINVAL;
}

/* Every type but text is a number, within the key's bounds. */
static int parse_number(const struct config *config, const struct config_key *key, const char *text,
                        uint64_t *number_p)
{
    uint64_t number = 0;
    int r = -EINVAL;

    if (key->zero && strcmp(text, key->zero) == 0) {
        *number_p = 0;
        return 0;
    }
    switch (key->type) {
    case TYPE_MODE:
        r = parse_digits(text, 8, &number);
        break;
    case TYPE_BYTES:
        if (!config->memory_total && strchr(text, '%'))
            return -EINVAL;
        r = units_parse_bytes(text, config->memory_total, &number);
        break;
    case TYPE_DURATION:
        r = units_parse_duration(text, &number);
        break;
    case TYPE_COUNT:
        r = parse_digits(text, 10, &number);
        break;
    case TYPE_WORD:
    case TYPE_SWITCH:
        r = parse_word(key->words, text, &number);
        break;
    case TYPE_TEXT:
        break;
    }
    if (r < 0)
        return r;
    if (number < key->min || (key->max && number > key->max))
        return -ERANGE;
    *number_p = number;
    return 0;
}

static void store_number(void *place, const struct config_key *key, uint64_t number)
{
    switch (key->type) {
    case TYPE_MODE:
        *(mode_t *)place = (mode_t)number;
        break;
    case TYPE_COUNT:
        *(uint32_t *)place = (uint32_t)number;
        break;
    case TYPE_WORD:
        /* Enumerations with such values are unsigned int for gcc and clang. */
        *(int *)place = (int)number;
        break;
    case TYPE_SWITCH:
        *(bool *)place = number != 0;
        break;
    case TYPE_BYTES:
    case TYPE_DURATION:
    case TYPE_TEXT:
        *(uint64_t *)place = number;
        break;
    }
}

static int key_assign(struct config *config, const struct config_key *key, const char *value)
{
    uint64_t number;
    int r;

    if (key->type == TYPE_TEXT) {
        char **text_p = key_place(config, key);
        if (key->check && !key->check(value))
            return -EINVAL;
        char *text = strdup(value);
        if (!text)
            return -ENOMEM;
        free(*text_p);
        *text_p = text;
        return 0;
    }
    r = parse_number(config, key, value, &number);
    if (r < 0)
        return r;
    store_number(key_place(config, key), key, number);
    return 0;
}

void config_init(struct config *config, uint64_t memory_total)
{
    *config = (struct config){.memory_total = memory_total};
    for (size_t i = 0; i < config_keys_n; i++)
        if (key_assign(config, &config_keys[i], config_keys[i].standard) < 0)
            abort(); /* out of memory, or a default in the table that is not allowed */
}

void config_deinit(struct config *config)
{
    for (size_t i = 0; i < config_keys_n; i++)
        if (config_keys[i].type == TYPE_TEXT) {
            char **text_p = key_place(config, &config_keys[i]);
            free(*text_p);
            *text_p = NULL;
        }
}

int config_assign(struct config *config, const char *place, const char *section, const char *name,
                  const char *value, struct failure *failure)
{
    for (size_t i = 0; i < config_keys_n; i++) {
        const struct config_key *key = &config_keys[i];
        if (strcmp(key->section, section) != 0 || strcmp(key->name, name) != 0)
            continue;
        int r = key_assign(config, key, value);
        if (r == -ENOMEM)
            return failure_set(failure, r, "%s: %s.%s: out of memory", place, section, name);
        if (r < 0)
            return failure_set(failure, -EINVAL, "%s: %s.%s = \"%.100s\" is not allowed: it is %s",
                               place, section, name, value, key->allowed);
        return 0;
    }
    const struct config_key *nearest = config_key_nearest(section, name);
    return failure_set(failure, -EINVAL, "%s: unknown key %.60s%s%.60s; the nearest is %s.%s",
                       place, section, *section ? "." : "", name, nearest->section, nearest->name);
}

int config_set(struct config *config, const char *assignment, struct failure *failure)
{
    cleanup_free char *text = strdup(assignment);
    const char *section = "";
    char place[128];

    if (!text)
        return failure_set(failure, -ENOMEM, "--set %.100s: out of memory", assignment);
    char *equals = strchr(text, '=');
    if (!equals)
        return failure_set(failure, -EINVAL, "--set %.100s: this is not section.key=value",
                           assignment);
    *equals = '\0';
    char *name = text;
    char *dot = strchr(text, '.');
    if (dot) {
        *dot = '\0';
        section = text;
        name = dot + 1;
    }
    snprintf(place, sizeof place, "--set %.100s", assignment);
    return config_assign(config, place, section, name, equals + 1, failure);
}

/* What is in force when pool.max is "auto". At least one region: a pool without one serves nobody.
 */
static uint64_t pool_max_auto(const struct config *config)
{
    uint64_t max = config->memory_total / 10;

    if (max > POOL_MAX_DEFAULT)
        max = POOL_MAX_DEFAULT;
    return max < config->pool_region ? config->pool_region : max;
}

int config_finish(struct config *config, struct failure *failure)
{
    char a[32], b[32];

    if (config->pool_region < CONFIG_REGION_MIN || config->pool_region % CONFIG_REGION_MIN)
        return failure_set(failure, -EINVAL,
                           "pool.region = %" PRIu64 " bytes is not a multiple of 2 MiB",
                           config->pool_region);
    if (!config->pool_max)
        config->pool_max = pool_max_auto(config);
    if (config->pool_max < config->pool_region)
        return failure_set(failure, -EINVAL,
                           "pool.max = %s is less than one region: pool.region = %s",
                           units_format_bytes(config->pool_max, a, sizeof a),
                           units_format_bytes(config->pool_region, b, sizeof b));
    if (config->memory_total && config->pool_max > config->memory_total)
        return failure_set(failure, -EINVAL,
                           "pool.max = %s is more than the limit of memory, %s (the smaller of RAM "
                           "and the cgroup's limit)",
                           units_format_bytes(config->pool_max, a, sizeof a),
                           units_format_bytes(config->memory_total, b, sizeof b));
    if (config->pool_min > config->pool_max)
        return failure_set(failure, -EINVAL, "pool.min = %s is more than pool.max = %s",
                           units_format_bytes(config->pool_min, a, sizeof a),
                           units_format_bytes(config->pool_max, b, sizeof b));
    /* Whole regions; rounded down, so that equal per cents of min and max go together. */
    if (config->pool_min && config->pool_min < config->pool_region)
        config->pool_min = config->pool_region;
    config->pool_min -= config->pool_min % config->pool_region;
    if (!config->device_gather_max)
        config->device_gather_max = config->pool_max / 4;
    if (!config->limits_pinned)
        config->limits_pinned = config->pool_max;
    return 0;
}

struct unit {
    const char *text;
    uint64_t size;
};

/* Exact, other than units_format_bytes: the largest unit that divides the number. */
static void print_units(const struct unit *units, uint64_t number, FILE *stream)
{
    while (number % units->size)
        units++;
    fprintf(stream, "%" PRIu64 "%s", number / units->size, number ? units->text : "");
}

/* Lines that go on are stripped, joined by a blank, and may be comments. */
static bool may_break(const char *text, size_t at)
{
    char before = at > 0 ? text[at - 1] : ' ', behind = text[at + 1];

    return text[at] == ' ' && !isspace((unsigned char)before) && !isspace((unsigned char)behind) &&
           behind != ';' && behind != '#' && behind != '\0';
}

/* With what is between it and its key. A line of the file is bounded: a long text goes on in
 * indented ones. What looks like a comment must stand at the equals sign. */
static void print_text(const char *text, FILE *stream)
{
    size_t left = strlen(text);

    if (*text == ';' || *text == '#')
        fputs("=", stream);
    else
        fputs(left > TEXT_LINE_BYTES ? " =\n " : " = ", stream);
    while (left > TEXT_LINE_BYTES) {
        size_t at = TEXT_LINE_BYTES;

        while (at > 0 && !may_break(text, at))
            at--;
        if (at == 0)
            at = TEXT_LINE_BYTES;
        while (at < left && !may_break(text, at))
            at++;
        if (at == left)
            break;
        fprintf(stream, "%.*s\n ", (int)at, text);
        text += at + 1;
        left -= at + 1;
    }
    fputs(text, stream);
}

static void print_value(const struct config *config, const struct config_key *key, FILE *stream)
{
    static const struct unit bytes[] = {
        {" TiB", UINT64_C(1) << 40}, {" GiB", GIB}, {" MiB", MIB}, {" KiB", 1024}, {"", 1}};
    static const struct unit durations[] = {{"h", UINT64_C(3600000000000)},
                                            {"min", UINT64_C(60000000000)},
                                            {"s", 1000000000},
                                            {"ms", 1000000},
                                            {"us", 1000},
                                            {"ns", 1}};
    const void *place = key_place_const(config, key);
    uint64_t number = 0;

    switch (key->type) {
    case TYPE_TEXT:
        print_text(*(char *const *)place, stream);
        return;
    case TYPE_MODE:
        fprintf(stream, " = %04o", (unsigned)*(const mode_t *)place);
        return;
    case TYPE_WORD:
        number = (uint64_t) * (const int *)place;
        break;
    case TYPE_SWITCH:
        number = *(const bool *)place;
        break;
    case TYPE_COUNT:
        number = *(const uint32_t *)place;
        break;
    case TYPE_BYTES:
    case TYPE_DURATION:
        number = *(const uint64_t *)place;
        break;
    }
    fputs(" = ", stream);
    if (key->zero && !number)
        fputs(key->zero, stream);
    else if (key->type == TYPE_BYTES)
        print_units(bytes, number, stream);
    else if (key->type == TYPE_DURATION)
        print_units(durations, number, stream);
    else if (key->type == TYPE_COUNT)
        fprintf(stream, "%" PRIu64, number);
    else
        for (const struct key_word *word = key->words; word->text; word++)
            if ((uint64_t)word->value == number)
                fputs(word->text, stream);
}

void config_print(const struct config *config, FILE *stream)
{
    const char *section = "";

    for (size_t i = 0; i < config_keys_n; i++) {
        if (strcmp(section, config_keys[i].section) != 0) {
            fprintf(stream, "%s[%s]\n", *section ? "\n" : "", config_keys[i].section);
            section = config_keys[i].section;
        }
        fputs(config_keys[i].name, stream);
        print_value(config, &config_keys[i], stream);
        fputc('\n', stream);
    }
}
