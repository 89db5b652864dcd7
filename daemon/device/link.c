/*
 * Reading the files of sysfs about a link: "32.0 GT/s PCIe" and "16". A device
 * knows what it could do itself; the port above it, the directory that holds the
 * device's, bounds that.
 */
#include "device/link.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cleanup.h"

/* GT/s, in tenths, of each generation from the first on. */
static const unsigned speeds[] = {25, 50, 80, 160, 320, 640, 1280};

static void close_file(FILE **file)
{
    if (*file)
        fclose(*file);
}

/* The first line of a file of the device, or "". */
static const char *line_read(const char *folder, const char *name, char *line, int size)
{
    char path[PATH_MAX];

    line[0] = '\0';
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return line;
    cleanup(close_file) FILE *file = fopen(path, "re");
    if (!file || !fgets(line, size, file))
        line[0] = '\0';
    return line;
}

static unsigned generation_read(const char *folder, const char *name)
{
    char line[64], *end;
    const char *text = line_read(folder, name, line, sizeof line);
    double speed = strtod(text, &end);

    if (end == text || strncmp(end, " GT/s", 5) != 0)
        return 0;
    for (unsigned i = 0; i < sizeof speeds / sizeof speeds[0]; i++)
        if ((unsigned)(speed * 10 + 0.5) == speeds[i])
            return i + 1;
    return 0;
}

static unsigned width_read(const char *folder, const char *name)
{
    char line[64];
    unsigned long width = strtoul(line_read(folder, name, line, sizeof line), NULL, 10);

    return width <= 32 ? (unsigned)width : 0; /* 255: there is no link */
}

static unsigned lower(unsigned a, unsigned b)
{
    return a && (!b || a < b) ? a : b;
}

void link_get(const char *root, const char *pci, struct link *link_p)
{
    char folder[PATH_MAX], resolved[PATH_MAX];

    *link_p = (struct link){0};
    if (!*pci || snprintf(folder, sizeof folder, "%s/sys/bus/pci/devices/%s", root, pci) >=
                     (int)sizeof folder)
        return;
    link_p->generation = generation_read(folder, "current_link_speed");
    link_p->width = width_read(folder, "current_link_width");
    link_p->generation_max = generation_read(folder, "max_link_speed");
    link_p->width_max = width_read(folder, "max_link_width");
    char *slash = realpath(folder, resolved) ? strrchr(resolved, '/') : NULL;
    if (!slash)
        return;
    *slash = '\0';
    link_p->generation_max =
        lower(link_p->generation_max, generation_read(resolved, "max_link_speed"));
    link_p->width_max = lower(link_p->width_max, width_read(resolved, "max_link_width"));
}
