/*
 * The configuration's keys: one table says where each key is kept, how it is
 * written, what it is by default and what is allowed. Setting, printing and
 * error texts all follow from the table; config_file.c reads the file.
 *
 * A key whose value 0 means something else than a number has a word for it
 * ("auto", "none"), and only the word gives 0.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "proto/cleanup.h"
#include "proto/units.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define REGION_MIN (2 * MIB)
#define POOL_MAX_DEFAULT (64 * GIB)
#define NAME_BYTES 128 /* of a key as written; longer ones are not compared with ours */

enum type { TYPE_TEXT, TYPE_MODE, TYPE_BYTES, TYPE_DURATION, TYPE_COUNT, TYPE_WORD, TYPE_SWITCH };

struct word {
    const char *text;
    int value;
};

struct key {
    const char *section, *name;
    enum type type;
    size_t offset;
    const char *standard; /* the default, as written in a file */
    const char *allowed;  /* for error texts */
    const char *zero;     /* the word for 0, or NULL */
    uint64_t min, max;    /* of numbers; max 0: no bound */
    const struct word *words;
    bool (*check)(const char *text); /* of TYPE_TEXT, or NULL */
};

static const struct word tenants[] = {
    {"uid", CONFIG_TENANT_UID}, {"cgroup", CONFIG_TENANT_CGROUP}, {NULL, 0}};
static const struct word locks[] = {{"try", CONFIG_LOCK_TRY},
                                    {"require", CONFIG_LOCK_REQUIRE},
                                    {"off", CONFIG_LOCK_OFF},
                                    {NULL, 0}};
static const struct word levels[] = {{"error", LOG_LEVEL_ERROR},
                                     {"warning", LOG_LEVEL_WARNING},
                                     {"info", LOG_LEVEL_INFO},
                                     {"debug", LOG_LEVEL_DEBUG},
                                     {NULL, 0}};
static const struct word numas[] = {{"prefer", false}, {"strict", true}, {NULL, 0}};
static const struct word switches[] = {{"on", true}, {"off", false}, {NULL, 0}};

static bool topology_is_known(const char *text)
{
    return !*text || strncmp(text, "xml:", 4) == 0 || strncmp(text, "synthetic:", 10) == 0;
}

static bool devices_are_known(const char *text)
{
    if (strcmp(text, "auto") == 0 || strcmp(text, "host") == 0)
        return true;
    if (strncmp(text, "host:", 5) == 0)
        return text[5] != '\0';
    while (true) {
        size_t length = strcspn(text, ",");
        size_t blanks = strspn(text, " \t");
        if (length < blanks + 5 || strncmp(text + blanks, "GPU-", 4) != 0)
            return false;
        if (!text[length])
            return true;
        text += length + 1;
    }
}

#define AT(member) offsetof(struct config, member)

static const struct key keys[] = {
    {"daemon", "socket", TYPE_TEXT, AT(socket), "", "a path", NULL, 0, 0, NULL, NULL},
    {"daemon", "socket_mode", TYPE_MODE, AT(socket_mode), "0660",
     "an octal mode such as 0660, at most 0777", NULL, 0, 0777, NULL, NULL},
    {"daemon", "socket_group", TYPE_TEXT, AT(socket_group), "", "the name of a group", NULL, 0, 0,
     NULL, NULL},
    {"daemon", "tenant", TYPE_WORD, AT(tenant), "uid", "uid or cgroup", NULL, 0, 0, tenants, NULL},
    {"daemon", "device_program", TYPE_TEXT, AT(device_program), "", "a path", NULL, 0, 0, NULL,
     NULL},

    {"pool", "min", TYPE_BYTES, AT(pool_min), "0", "a size such as 512 MiB, 2 GB or 5%", NULL, 0, 0,
     NULL, NULL},
    {"pool", "max", TYPE_BYTES, AT(pool_max), "auto",
     "auto, or a size such as 512 MiB, 2 GB or 10%, at least 2 MiB", "auto", REGION_MIN, 0, NULL,
     NULL},
    {"pool", "region", TYPE_BYTES, AT(pool_region), "64 MiB",
     "a size such as 64 MiB, at least 2 MiB and at most 1 GiB", NULL, REGION_MIN, GIB, NULL, NULL},
    {"pool", "idle", TYPE_DURATION, AT(pool_idle), "60s", "a time such as 500ms, 60s or 5min", NULL,
     0, 0, NULL, NULL},
    {"pool", "lock", TYPE_WORD, AT(pool_lock), "try", "try, require or off", NULL, 0, 0, locks,
     NULL},

    {"placement", "numa", TYPE_SWITCH, AT(placement_strict), "prefer", "prefer or strict", NULL, 0,
     0, numas, NULL},
    {"placement", "topology", TYPE_TEXT, AT(placement_topology), "",
     "empty, xml:FILE or synthetic:DESCRIPTION", NULL, 0, 0, NULL, topology_is_known},

    {"workers", "per_numa_node", TYPE_COUNT, AT(workers_per_numa_node), "auto",
     "auto, or a number from 1 to 1024", "auto", 1, 1024, NULL, NULL},
    {"workers", "batches", TYPE_COUNT, AT(workers_batches), "2", "a number from 1 to 64", NULL, 1,
     64, NULL, NULL},

    {"io", "stuck", TYPE_DURATION, AT(io_stuck), "5s", "a time such as 5s, at least 100ms", NULL,
     100000000, 0, NULL, NULL},
    {"io", "threads", TYPE_COUNT, AT(io_threads), "128", "a number from 1 to 4096", NULL, 1, 4096,
     NULL, NULL},
    {"io", "ahead", TYPE_BYTES, AT(io_ahead), "256 MiB",
     "a size such as 256 MiB or 1%, at least 1 MiB", NULL, MIB, 0, NULL, NULL},

    {"device", "ipc", TYPE_SWITCH, AT(device_ipc), "on", "on or off", NULL, 0, 0, switches, NULL},
    {"device", "rings", TYPE_SWITCH, AT(device_rings), "on", "on or off", NULL, 0, 0, switches,
     NULL},
    {"device", "idle", TYPE_DURATION, AT(device_idle), "30s", "a time such as 500ms, 30s or 5min",
     NULL, 0, 0, NULL, NULL},
    {"device", "gather", TYPE_SWITCH, AT(device_gather), "on", "on or off", NULL, 0, 0, switches,
     NULL},
    {"device", "gather_min", TYPE_BYTES, AT(device_gather_min), "64 KiB",
     "a size such as 64 KiB, at least 1", NULL, 1, 0, NULL, NULL},
    {"device", "gather_max", TYPE_BYTES, AT(device_gather_max), "auto",
     "auto, or a size such as 4 GiB or 5%", "auto", 1, 0, NULL, NULL},
    {"device", "use", TYPE_TEXT, AT(device_use), "auto",
     "auto, host, host:ADDRESS, or UUIDs such as GPU-8f1c2a..., with commas between them", NULL, 0,
     0, NULL, devices_are_known},

    {"limits", "peers", TYPE_COUNT, AT(limits_peers), "256", "a number from 1 to 65536", NULL, 1,
     65536, NULL, NULL},
    {"limits", "jobs", TYPE_COUNT, AT(limits_jobs), "64", "a number from 1 to 65536", NULL, 1,
     65536, NULL, NULL},
    {"limits", "peers_total", TYPE_COUNT, AT(limits_peers_total), "1024",
     "a number from 1 to 65536", NULL, 1, 65536, NULL, NULL},
    {"limits", "pinned", TYPE_BYTES, AT(limits_pinned), "auto",
     "auto, or a size such as 512 MiB, 2 GB or 5%", "auto", 1, 0, NULL, NULL},
    {"limits", "device", TYPE_BYTES, AT(limits_device), "none",
     "none, or a size such as 512 MiB or 2 GB", "none", 1, 0, NULL, NULL},
    {"limits", "index", TYPE_BYTES, AT(limits_index), "1 GiB",
     "a size such as 1 GiB, at least 4096", NULL, 4096, 0, NULL, NULL},

    {"log", "level", TYPE_WORD, AT(log_level), "info", "error, warning, info or debug", NULL, 0, 0,
     levels, NULL},
    {"log", "lines_per_second", TYPE_COUNT, AT(log_lines_per_second), "10",
     "a number from 1 to 100000", NULL, 1, 100000, NULL, NULL},
};

#define N_KEYS (sizeof keys / sizeof keys[0])

static void *key_place(struct config *config, const struct key *key)
{
    return (char *)config + key->offset;
}

static const void *key_place_const(const struct config *config, const struct key *key)
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

static int parse_word(const struct word *words, const char *text, uint64_t *number_p)
{
    for (; words->text; words++)
        if (strcmp(words->text, text) == 0) {
            *number_p = (uint64_t)words->value;
            return 0;
        }
    return -EINVAL;
}

/* Every type but text is a number, within the key's bounds. */
static int parse_number(const struct config *config, const struct key *key, const char *text,
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

static void store_number(void *place, const struct key *key, uint64_t number)
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

static int key_assign(struct config *config, const struct key *key, const char *value)
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
    for (size_t i = 0; i < N_KEYS; i++)
        if (key_assign(config, &keys[i], keys[i].standard) < 0)
            abort(); /* out of memory, or a default in the table that is not allowed */
}

void config_deinit(struct config *config)
{
    for (size_t i = 0; i < N_KEYS; i++)
        if (keys[i].type == TYPE_TEXT) {
            char **text_p = key_place(config, &keys[i]);
            free(*text_p);
            *text_p = NULL;
        }
}

/* '-', '_' and '.' are one, and so are capital and small letters: these are what people mistake. */
static char fold(char c)
{
    if (c == '-' || c == '.')
        return '_';
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Levenshtein's distance. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[NAME_BYTES + 1];
    size_t n = strlen(b);

    for (size_t j = 0; j <= n; j++)
        row[j] = (unsigned)j;
    for (size_t i = 0; a[i]; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t j = 0; j < n; j++) {
            unsigned best = diagonal + (fold(a[i]) != fold(b[j]));
            diagonal = row[j + 1];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (diagonal + 1 < best)
                best = diagonal + 1;
            row[j + 1] = best;
        }
    }
    return row[n];
}

/* The key that was most likely meant: by the whole name, or by a name in the wrong section. */
static const struct key *key_nearest(const char *section, const char *name)
{
    const struct key *nearest = &keys[0];
    unsigned least = UINT32_MAX;
    char written[NAME_BYTES];

    snprintf(written, sizeof written, "%s%s%s", section, *section ? "." : "", name);
    for (size_t i = 0; i < N_KEYS; i++) {
        char full[NAME_BYTES];
        snprintf(full, sizeof full, "%s.%s", keys[i].section, keys[i].name);
        unsigned d[] = {distance(written, full), distance(name, full),
                        distance(name, keys[i].name) + (strcmp(section, keys[i].section) != 0)};
        for (size_t k = 0; k < sizeof d / sizeof d[0]; k++)
            if (d[k] < least) {
                least = d[k];
                nearest = &keys[i];
            }
    }
    return nearest;
}

int config_assign(struct config *config, const char *place, const char *section, const char *name,
                  const char *value, struct failure *failure)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        const struct key *key = &keys[i];
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
    const struct key *nearest = key_nearest(section, name);
    return failure_set(failure, -EINVAL, "%s: unknown key %.60s%s%.60s; the nearest is %s.%s",
                       place, section, *section ? "." : "", name, nearest->section, nearest->name);
}

int config_set(struct config *config, const char *assignment, struct failure *failure)
{
    cleanup_free char *text = strdup(assignment);
    const char *section = "";
    char place[NAME_BYTES];

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

    if (config->pool_region < REGION_MIN || config->pool_region % REGION_MIN)
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

static void print_value(const struct config *config, const struct key *key, FILE *stream)
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
        fputs(*(char *const *)place, stream);
        return;
    case TYPE_MODE:
        fprintf(stream, "%04o", (unsigned)*(const mode_t *)place);
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
    if (key->zero && !number)
        fputs(key->zero, stream);
    else if (key->type == TYPE_BYTES)
        print_units(bytes, number, stream);
    else if (key->type == TYPE_DURATION)
        print_units(durations, number, stream);
    else if (key->type == TYPE_COUNT)
        fprintf(stream, "%" PRIu64, number);
    else
        for (const struct word *word = key->words; word->text; word++)
            if ((uint64_t)word->value == number)
                fputs(word->text, stream);
}

void config_print(const struct config *config, FILE *stream)
{
    const char *section = "";

    for (size_t i = 0; i < N_KEYS; i++) {
        if (strcmp(section, keys[i].section) != 0) {
            fprintf(stream, "%s[%s]\n", *section ? "\n" : "", keys[i].section);
            section = keys[i].section;
        }
        fprintf(stream, "%s = ", keys[i].name);
        print_value(config, &keys[i], stream);
        fputc('\n', stream);
    }
}
