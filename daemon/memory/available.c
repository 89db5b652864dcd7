/*
 * Memory that is left, from <root>/proc/meminfo, <root>/proc/self/cgroup and
 * the cgroup files under <root>/sys/fs/cgroup; and, where a cpuset allows only
 * some NUMA nodes, from the meminfo of these.
 *
 * What must hold: a level that does not exist or has no limit is passed over,
 * never taken for zero. In a container without a cgroup namespace the path in
 * /proc/self/cgroup is the host's while the mount shows the container's own
 * cgroup as its top, so the walk always ends at the top of the mount.
 */
#include "memory/available.h"

#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/cleanup.h"

#define PATH_BYTES 4096
#define FILE_BYTES 16384

/* The files of one kind of cgroup. */
struct cgroup_files {
    const char *limits[3]; /* NULL-terminated */
    const char *usage;
    const char *inactive; /* the key in memory.stat */
};

static const struct cgroup_files cgroup_v2 = {
    .limits = {"memory.max", "memory.high", NULL},
    .usage = "memory.current",
    .inactive = "inactive_file",
};

static const struct cgroup_files cgroup_v1 = {
    .limits = {"memory.limit_in_bytes", NULL},
    .usage = "memory.usage_in_bytes",
    .inactive = "total_inactive_file",
};

/* Reads all of a small file as text; 0 or negative errno. */
static int file_read(const char *path, char *text, size_t size)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;

    text[0] = '\0';
    if (fd < 0)
        return -errno;
    while (length < size - 1) {
        ssize_t n = read(fd, text + length, size - 1 - length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        length += (size_t)n;
    }
    text[length] = '\0';
    return 0;
}

/* Finds "key VALUE" at the start of a line. */
static bool text_find(const char *text, const char *key, uint64_t *value_p)
{
    size_t length = strlen(key);

    for (const char *line = text; line && *line;) {
        if (!strncmp(line, key, length) && (line[length] == ' ' || line[length] == '\t')) {
            const char *number = line + length + strspn(line + length, " \t");
            char *end;
            errno = 0;
            uint64_t value = strtoull(number, &end, 10);
            if (errno || end == number)
                return false;
            *value_p = value;
            return true;
        }
        line = strchr(line, '\n');
        if (line)
            line++;
    }
    return false;
}

/* Reads one number; false when the file is missing or says "max". */
static bool number_read(const char *folder, const char *name, uint64_t *value_p)
{
    char path[PATH_BYTES], text[64], *end;

    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
        return false;
    if (file_read(path, text, sizeof(text)))
        return false;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno || end == text)
        return false;
    *value_p = value;
    return true;
}

/* What the kernel takes back before it kills. */
static uint64_t inactive_read(const char *folder, const char *key)
{
    char path[PATH_BYTES], text[FILE_BYTES];
    uint64_t value = 0;

    if (snprintf(path, sizeof(path), "%s/memory.stat", folder) >= (int)sizeof(path))
        return 0;
    if (file_read(path, text, sizeof(text)) || !text_find(text, key, &value))
        return 0;
    return value;
}

/* Names the cgroup's file as it is called without the tests' root. */
static void bound_set(char *bound, size_t size, const char *folder, const char *name)
{
    size_t length = strlen(folder), tail = strlen(name) + 1, room = size - 1 - tail;
    size_t kept = length < room ? length : room; /* the end of a long path tells more */

    memcpy(bound, folder + length - kept, kept);
    bound[kept] = '/';
    memcpy(bound + kept + 1, name, tail);
}

/* Lowers *available_p to what the cgroup at root + folder has left. */
static void level_apply(const struct cgroup_files *files, size_t root_length, const char *folder,
                        struct memory_available *available_p)
{
    for (const char *const *name = files->limits; *name; name++) {
        uint64_t limit, usage = 0;

        if (!number_read(folder, *name, &limit))
            continue;
        number_read(folder, files->usage, &usage);
        uint64_t inactive = inactive_read(folder, files->inactive);
        uint64_t held = usage > inactive ? usage - inactive : 0;
        uint64_t left = limit > held ? limit - held : 0;
        if (limit < available_p->total) {
            available_p->total = limit;
            bound_set(available_p->total_bound, sizeof(available_p->total_bound),
                      folder + root_length, *name);
        }
        if (left < available_p->free) {
            available_p->free = left;
            bound_set(available_p->bound, sizeof(available_p->bound), folder + root_length, *name);
        }
    }
}

/* Applies every level from mount + path up to the mount itself. */
static int hierarchy_apply(const struct cgroup_files *files, const char *root, const char *mount,
                           const char *path, struct memory_available *available_p)
{
    char folder[PATH_BYTES];

    /* Outside of the namespace's own cgroup nothing can be seen but the top of the mount. */
    if (strstr(path, "/.."))
        path = "";
    int length = snprintf(folder, sizeof(folder), "%s%s%s", root, mount, path);
    if (length >= (int)sizeof(folder))
        return -ENAMETOOLONG;
    size_t top = strlen(root) + strlen(mount);

    while (true) {
        size_t end = strlen(folder);
        while (end > top && folder[end - 1] == '/')
            end--;
        folder[end] = '\0';
        level_apply(files, strlen(root), folder, available_p);
        if (end <= top)
            return 0;
        *strrchr(folder, '/') = '\0';
    }
}

/* Whether the comma-separated list of a v1 line names the memory controller. */
static bool controllers_have_memory(const char *list, const char *end)
{
    static const char name[] = "memory";
    const size_t length = sizeof(name) - 1;

    while (list < end) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        const char *stop = comma ? comma : end;
        if ((size_t)(stop - list) == length && !memcmp(list, name, length))
            return true;
        list = stop + 1;
    }
    return false;
}

/* Lines of /proc/self/cgroup: "0::/path" of v2, "4:memory:/path" of v1. */
static int cgroups_apply(const char *root, struct memory_available *available_p)
{
    char path[PATH_BYTES], text[FILE_BYTES], *rest = text;

    if (snprintf(path, sizeof(path), "%s/proc/self/cgroup", root) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    if (file_read(path, text, sizeof(text)))
        return 0; /* a kernel without cgroups */
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *list = strchr(line, ':');
        char *where = list ? strchr(list + 1, ':') : NULL;
        int error = 0;

        if (!where)
            continue;
        if (list + 1 == where) {
            error = hierarchy_apply(&cgroup_v2, root, "/sys/fs/cgroup", where + 1, available_p);
            if (!error)
                error = hierarchy_apply(&cgroup_v2, root, "/sys/fs/cgroup/unified", where + 1,
                                        available_p);
        } else if (controllers_have_memory(list + 1, where)) {
            error =
                hierarchy_apply(&cgroup_v1, root, "/sys/fs/cgroup/memory", where + 1, available_p);
        }
        if (error)
            return error;
    }
    return 0;
}

/* -- NUMA nodes ------------------------------------------------------------------------------ */

static void bitmap_free_p(hwloc_bitmap_t *bitmap)
{
    hwloc_bitmap_free(*bitmap);
}

/* Reads a list such as "0,2-3" that follows the key (may be "") in a file. */
static bool list_read(const char *root, const char *name, const char *key, hwloc_bitmap_t list)
{
    char path[PATH_BYTES], text[FILE_BYTES];

    if (snprintf(path, sizeof(path), "%s%s", root, name) >= (int)sizeof(path) ||
        file_read(path, text, sizeof(text)))
        return false;
    char *start = strstr(text, key);
    if (!start)
        return false;
    start += strlen(key);
    start += strspn(start, " \t");
    start[strcspn(start, "\n")] = '\0';
    return !hwloc_bitmap_list_sscanf(list, start);
}

static void close_file(FILE **file)
{
    if (*file)
        fclose(*file);
}

/* "protection: (0, 3419, 7812)" -> 7812 */
static uint64_t protection_most(const char *list)
{
    uint64_t most = 0;

    for (list = strpbrk(list, "0123456789"); list; list = strpbrk(list, "0123456789")) {
        char *end;
        uint64_t pages = strtoull(list, &end, 10);
        most = pages > most ? pages : most;
        list = end;
    }
    return most;
}

/* Bytes of a node that the kernel lets nobody have, as it takes them off MemAvailable: of each zone
 * what it keeps free, and what it keeps for those who can use no other zone. */
static uint64_t node_reserve(const char *root, unsigned node)
{
    char path[PATH_BYTES], line[512];
    uint64_t pages = 0, high = 0, managed = 0;
    unsigned current = UINT_MAX;

    if (snprintf(path, sizeof(path), "%s/proc/zoneinfo", root) >= (int)sizeof(path))
        return 0;
    cleanup(close_file) FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        const char *key = line + strspn(line, " ");
        if (!strncmp(key, "Node ", 5))
            current = (unsigned)strtoul(key + 5, NULL, 10);
        else if (!strncmp(key, "high ", 5))
            high = strtoull(key + 5, NULL, 10);
        else if (!strncmp(key, "managed ", 8))
            managed = strtoull(key + 8, NULL, 10);
        else if (!strncmp(key, "protection:", 11) && current == node) {
            uint64_t kept = high + protection_most(key);
            pages += kept < managed ? kept : managed;
        }
    }
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Adds what one node has, and has left: free pages and page cache, of which the kernel keeps some
 * of what is in use. */
static void node_add(const char *root, unsigned node, uint64_t *total_p, uint64_t *free_p)
{
    char path[PATH_BYTES], text[FILE_BYTES], key[64];
    uint64_t values[4] = {0};
    static const char *const names[] = {
        "MemTotal:", "MemFree:", "Inactive(file):", "Active(file):"};

    if (snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%u/meminfo", root, node) >=
            (int)sizeof(path) ||
        file_read(path, text, sizeof(text)))
        return;
    for (size_t i = 0; i < 4; i++) {
        snprintf(key, sizeof(key), "Node %u %s", node, names[i]);
        text_find(text, key, &values[i]);
    }
    *total_p += values[0] * 1024;
    uint64_t left = (values[1] + values[2] + values[3] / 2) * 1024;
    uint64_t reserve = node_reserve(root, node);
    *free_p += left > reserve ? left - reserve : 0;
}

/* A cpuset that leaves out NUMA nodes leaves out their memory: where the allowed ones are full, the
 * kernel kills and takes no page of the others. */
static int nodes_apply(const char *root, struct memory_available *available_p)
{
    cleanup(bitmap_free_p) hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    cleanup(bitmap_free_p) hwloc_bitmap_t present = hwloc_bitmap_alloc();
    uint64_t total = 0, left = 0;
    char nodes[256];
    int node;

    if (!allowed || !present)
        return -ENOMEM;
    if (!list_read(root, "/proc/self/status", "Mems_allowed_list:", allowed) ||
        !list_read(root, "/sys/devices/system/node/has_memory", "", present) ||
        hwloc_bitmap_isincluded(present, allowed))
        return 0;
    hwloc_bitmap_and(allowed, allowed, present);
    hwloc_bitmap_foreach_begin(node, allowed) node_add(root, (unsigned)node, &total, &left);
    hwloc_bitmap_foreach_end();
    if (total == 0)
        return 0;
    hwloc_bitmap_list_snprintf(nodes, sizeof(nodes), allowed);
    if (total < available_p->total) {
        available_p->total = total;
        snprintf(available_p->total_bound, sizeof(available_p->total_bound),
                 "the cpuset (NUMA nodes %s)", nodes);
    }
    if (left < available_p->free) {
        available_p->free = left;
        snprintf(available_p->bound, sizeof(available_p->bound), "the cpuset (NUMA nodes %s)",
                 nodes);
    }
    return 0;
}

int memory_available_get(const char *root, struct memory_available *available_p)
{
    char path[PATH_BYTES], text[FILE_BYTES];
    uint64_t total, left;
    struct memory_available available = {.bound = "RAM", .total_bound = "RAM"};

    if (!root)
        root = "";
    if (snprintf(path, sizeof(path), "%s/proc/meminfo", root) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    int error = file_read(path, text, sizeof(text));
    if (error)
        return error;
    if (!text_find(text, "MemTotal:", &total))
        return -ENODATA;
    if (!text_find(text, "MemAvailable:", &left) && !text_find(text, "MemFree:", &left))
        return -ENODATA;
    available.total = total * 1024;
    available.free = left * 1024;
    if ((error = nodes_apply(root, &available)) || (error = cgroups_apply(root, &available)))
        return error;
    *available_p = available;
    return 0;
}
