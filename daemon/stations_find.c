/*
 * Which station a client means: by the name of its device, or by the address of
 * a GPU of which the client has a part.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server.h"

int station_find(struct server *server, const char *device, struct station **station_p,
                 struct failure *failure)
{
    struct station *found = NULL;
    bool any = device[0] == '\0';
    unsigned matches = 0;

    for (uint32_t i = 0; i < server->n_stations; i++) {
        const char *uuid = server->stations[i].device->info.uuid;
        if (strcmp(uuid, device) == 0) {
            *station_p = &server->stations[i];
            return 0;
        }
        if (strncmp(uuid, device, strlen(device)) == 0) {
            if (!found || (any && found->draining && !server->stations[i].draining))
                found = &server->stations[i];
            matches++;
        }
    }
    if (matches == 1 || (found && any)) {
        *station_p = found;
        return 0;
    }
    char all[256] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < server->n_stations && used < sizeof all; i++)
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "",
                                 server->stations[i].device->info.uuid);
    return failure_set(failure, -ENODEV, "device '%.64s' is %s; there are: %s", device,
                       matches ? "not unique" : "unknown", all);
}

int station_find_pci(struct server *server, const char *pci, struct station **station_p)
{
    for (uint32_t i = 0; i < server->n_stations; i++) {
        const struct device *device = server->stations[i].device;

        if (!device->ops->has_ring || strcasecmp(device->info.pci, pci) != 0)
            continue;
        *station_p = &server->stations[i];
        return 0;
    }
    return -ENODEV;
}
