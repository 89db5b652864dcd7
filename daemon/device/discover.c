/*
 * Finding the GPUs without opening one: by the driver's files under /proc and
 * by sysfs; and where these are hidden, by asking the driver in another process.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device/device.h"
#include "device/sysfs.h"
#include "proto/cleanup.h"

#define GPUS_DIRECTORY "/proc/driver/nvidia/gpus"
#define LIST_BYTES_MAX 16384
#define LIST_SECONDS_MAX 30

static void close_file(FILE **file)
{
    if (*file)
        fclose(*file);
}

static void close_directory(DIR **directory)
{
    if (*directory)
        closedir(*directory);
}

/* The path of a device's attribute; false when that is no address. */
static bool attribute_path(const char *root, const char *pci, const char *name, char *path,
                           size_t size)
{
    unsigned domain, bus, device, function;
    int end = -1;

    if (sscanf(pci, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) != 4 || end < 0 ||
        pci[end])
        return false;
    int length = snprintf(path, size, "%s/sys/bus/pci/devices/%04x:%02x:%02x.%x/%s", root, domain,
                          bus, device, function, name);
    return length > 0 && (size_t)length < size;
}

bool sysfs_has_device(const char *root, const char *pci)
{
    char path[PATH_MAX];

    return attribute_path(root, pci, "", path, sizeof path) && !access(path, F_OK);
}

int sysfs_numa_node(const char *root, const char *pci)
{
    char path[PATH_MAX];
    int node = -1;

    if (!attribute_path(root, pci, "numa_node", path, sizeof path))
        return -1;
    cleanup(close_file) FILE *file = fopen(path, "re");
    if (!file || fscanf(file, "%d", &node) != 1)
        return -1;
    return node < 0 ? -1 : node;
}

/* "Model: 	 NVIDIA H200\n": the value of a line with this key, or NULL. */
static char *line_value(char *line, const char *key)
{
    size_t length = strlen(key);

    if (strncmp(line, key, length) != 0 || line[length] != ':')
        return NULL;
    line += length + 1;
    line += strspn(line, " \t");
    length = strlen(line);
    while (length && isspace((unsigned char)line[length - 1]))
        line[--length] = '\0';
    return line;
}

/* A driver that has not opened the GPU yet prints question marks. */
static bool is_uuid(const char *text)
{
    if (strncmp(text, "GPU-", 4) != 0 || strlen(text) != 40)
        return false;
    return strspn(text + 4, "0123456789abcdefABCDEF-") == 36;
}

/* Of a container's GPUs only those with a device file are its own; where there are no files at all,
 * they come with the first use. */
static bool is_hidden(const char *root, int minor)
{
    char path[PATH_MAX];
    bool others = false;

    if (minor < 0)
        return false;
    snprintf(path, sizeof path, "%s/dev/nvidia%d", root, minor);
    if (!access(path, F_OK))
        return false;
    snprintf(path, sizeof path, "%s/dev", root);
    cleanup(close_directory) DIR *directory = opendir(path);
    for (struct dirent *entry; directory && !others && (entry = readdir(directory));)
        others = !strncmp(entry->d_name, "nvidia", 6) && isdigit((unsigned char)entry->d_name[6]);
    return others;
}

enum gpu_state { GPU_USABLE, GPU_HIDDEN, GPU_UNKNOWN };

static enum gpu_state gpu_read(const char *root, const char *pci, struct device_info *info)
{
    char path[PATH_MAX], line[256];
    bool excluded = false;
    int minor = -1;

    *info = (struct device_info){.numa_node = -1};
    snprintf(info->pci, sizeof info->pci, "%.*s", (int)sizeof info->pci - 1, pci);
    snprintf(path, sizeof path, "%s" GPUS_DIRECTORY "/%s/information", root, pci);
    cleanup(close_file) FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        const char *value;

        if ((value = line_value(line, "Model")))
            snprintf(info->name, sizeof info->name, "%s", value);
        else if ((value = line_value(line, "GPU UUID")) && is_uuid(value))
            snprintf(info->uuid, sizeof info->uuid, "%s", value);
        else if ((value = line_value(line, "Device Minor")))
            minor = (int)strtol(value, NULL, 10);
        else if ((value = line_value(line, "GPU Excluded")))
            excluded = !strcmp(value, "Yes");
    }
    info->numa_node = sysfs_numa_node(root, pci);
    if (excluded || (file && is_hidden(root, minor)))
        return GPU_HIDDEN;
    return info->uuid[0] ? GPU_USABLE : GPU_UNKNOWN;
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int device_discover(const char *root, struct device_info *infos, size_t max)
{
    char path[PATH_MAX];
    struct dirent **entries;
    bool unknown = false;
    int found = 0, n;

    snprintf(path, sizeof path, "%s" GPUS_DIRECTORY, root);
    n = scandir(path, &entries, not_hidden, alphasort);
    for (int i = 0; i < n; i++) {
        struct device_info info;
        enum gpu_state state = gpu_read(root, entries[i]->d_name, &info);

        unknown = unknown || state == GPU_UNKNOWN;
        if (state == GPU_USABLE) {
            if ((size_t)found < max)
                infos[found] = info;
            found++;
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return unknown ? 0 : found;
}

/* -- asking the driver ------------------------------------------------------------------------ */

static int list_spawn(const char *program, int output, pid_t *pid_p)
{
    char *const argv[] = {(char *)(uintptr_t)program, "--list", NULL};
    posix_spawn_file_actions_t actions;
    int r = posix_spawn_file_actions_init(&actions);

    if (r)
        return -r;
    r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
    if (!r)
        r = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (!r)
        r = posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    if (!r)
        r = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    if (!r)
        r = posix_spawn(pid_p, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

static int64_t milliseconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Reads what the program writes until it ends. */
static int list_read(int fd, char *text, size_t size)
{
    int64_t end = milliseconds_now() + (int64_t)LIST_SECONDS_MAX * 1000;
    size_t length = 0;

    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        int64_t left = end - milliseconds_now();
        char rest[512];
        bool full = length + 1 >= size;
        ssize_t n;

        if (left <= 0 || poll(&poll_fd, 1, (int)left) == 0)
            return -ETIMEDOUT;
        n = read(fd, full ? rest : text + length, full ? sizeof rest : size - 1 - length);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        length += full ? 0 : (size_t)n;
    }
    text[length] = '\0';
    return 0;
}

/* "UUID\tPCI\tname\t...": other lines are a driver's chatter. */
static bool list_parse(char *line, struct device_info *info)
{
    const char *uuid = strsep(&line, "\t"), *pci = strsep(&line, "\t");
    const char *name = strsep(&line, "\t");

    if (!uuid || !pci || !name || strlen(uuid) >= sizeof info->uuid ||
        strlen(pci) >= sizeof info->pci)
        return false;
    *info = (struct device_info){.numa_node = sysfs_numa_node("", pci)};
    snprintf(info->uuid, sizeof info->uuid, "%s", uuid);
    snprintf(info->pci, sizeof info->pci, "%s", pci);
    snprintf(info->name, sizeof info->name, "%s", name);
    return true;
}

int device_list(const char *program, struct device_info *infos, size_t max, struct failure *failure)
{
    char text[LIST_BYTES_MAX], *rest = text;
    int fds[2], status = 0, found = 0, r;
    pid_t pid = -1;

    if (pipe2(fds, O_CLOEXEC))
        return failure_set(failure, -errno, "%s --list: %s", program, strerror(errno));
    cleanup_fd int reader = fds[0], writer = fds[1];
    r = list_spawn(program, writer, &pid);
    if (r < 0)
        return failure_set(failure, r, "%s: %s", program, strerror(-r));
    close_fd(&writer);
    r = list_read(reader, text, sizeof text);
    if (r < 0)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (r < 0)
        return failure_set(failure, r, "%s --list: %s", program, strerror(-r));
    if (WIFSIGNALED(status))
        return failure_set(failure, -EIO, "%s --list was killed by signal %d", program,
                           WTERMSIG(status));
    if (WEXITSTATUS(status))
        return failure_set(failure, -ENODEV, "%s --list: %.*s", program, (int)strcspn(text, "\n"),
                           text);
    for (char *line; (line = strsep(&rest, "\n"));) {
        struct device_info info;

        if (!list_parse(line, &info))
            continue;
        if ((size_t)found < max)
            infos[found] = info;
        found++;
    }
    return found;
}
