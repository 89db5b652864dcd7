/*
 * The table of keys, and the nearest one to a name that is none: see
 * config_keys.h.
 */
#include "config_keys.h"

#include <stdio.h>
#include <string.h>

#include "config.h"
#include "log.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define NAME_BYTES 128 /* of a key as written; longer ones are not compared with ours */

static const struct key_word tenants[] = {
    {"uid", CONFIG_TENANT_UID}, {"cgroup", CONFIG_TENANT_CGROUP}, {NULL, 0}};
static const struct key_word locks[] = {{"try", CONFIG_LOCK_TRY},
                                        {"require", CONFIG_LOCK_REQUIRE},
                                        {"off", CONFIG_LOCK_OFF},
                                        {NULL, 0}};
static const struct key_word levels[] = {{"error", LOG_LEVEL_ERROR},
                                         {"warning", LOG_LEVEL_WARNING},
                                         {"info", LOG_LEVEL_INFO},
                                         {"debug", LOG_LEVEL_DEBUG},
                                         {NULL, 0}};
static const struct key_word numas[] = {{"prefer", false}, {"strict", true}, {NULL, 0}};
static const struct key_word switches[] = {{"on", true}, {"off", false}, {NULL, 0}};

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

static bool cache_is_known(const char *text)
{
    return strcmp(text, "auto") == 0 || strcmp(text, "off") == 0 || *text == '/';
}

#define AT(member) offsetof(struct config, member)

const struct config_key config_keys[] = {
    {"daemon", "socket", TYPE_TEXT, AT(socket), "", "a path", NULL, 0, 0, NULL, NULL},
    {"daemon", "socket_mode", TYPE_MODE, AT(socket_mode), "0660",
     "an octal mode such as 0660, at most 0777", NULL, 0, 0777, NULL, NULL},
    {"daemon", "socket_group", TYPE_TEXT, AT(socket_group), "", "the name of a group", NULL, 0, 0,
     NULL, NULL},
    {"daemon", "tenant", TYPE_WORD, AT(tenant), "uid", "uid or cgroup", NULL, 0, 0, tenants, NULL},
    {"daemon", "device_program", TYPE_TEXT, AT(device_program), "", "a path", NULL, 0, 0, NULL,
     NULL},
    {"daemon", "cache", TYPE_TEXT, AT(cache), "auto", "auto, off or an absolute path", NULL, 0, 0,
     NULL, cache_is_known},

    {"pool", "min", TYPE_BYTES, AT(pool_min), "0", "a size such as 512 MiB, 2 GB or 5%", NULL, 0, 0,
     NULL, NULL},
    {"pool", "max", TYPE_BYTES, AT(pool_max), "auto",
     "auto, or a size such as 512 MiB, 2 GB or 10%, at least 2 MiB", "auto", CONFIG_REGION_MIN, 0,
     NULL, NULL},
    {"pool", "region", TYPE_BYTES, AT(pool_region), "64 MiB",
     "a size such as 64 MiB, at least 2 MiB and at most 1 GiB", NULL, CONFIG_REGION_MIN, GIB, NULL,
     NULL},
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
    {"device", "gather_min", TYPE_BYTES, AT(device_gather_min), "32 KiB",
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
    {"limits", "cache", TYPE_BYTES, AT(limits_cache), "1 GiB",
     "a size such as 1 GiB, at least 1 MiB", NULL, MIB, 0, NULL, NULL},

    {"log", "level", TYPE_WORD, AT(log_level), "info", "error, warning, info or debug", NULL, 0, 0,
     levels, NULL},
    {"log", "lines_per_second", TYPE_COUNT, AT(log_lines_per_second), "10",
     "a number from 1 to 100000", NULL, 1, 100000, NULL, NULL},
};

const size_t config_keys_n = sizeof config_keys / sizeof config_keys[0];

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

const struct config_key *config_key_nearest(const char *section, const char *name)
{
    const struct config_key *nearest = &config_keys[0];
    unsigned least = UINT32_MAX;
    char written[NAME_BYTES];

    snprintf(written, sizeof written, "%s%s%s", section, *section ? "." : "", name);
    for (size_t i = 0; i < config_keys_n; i++) {
        char full[NAME_BYTES];
        snprintf(full, sizeof full, "%s.%s", config_keys[i].section, config_keys[i].name);
        unsigned d[] = {distance(written, full), distance(name, full),
                        distance(name, config_keys[i].name) +
                            (strcmp(section, config_keys[i].section) != 0)};
        for (size_t k = 0; k < sizeof d / sizeof d[0]; k++)
            if (d[k] < least) {
                least = d[k];
                nearest = &config_keys[i];
            }
    }
    return nearest;
}
