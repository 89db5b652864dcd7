/*
 * What an operator asks for: the end of a job, a device out of service or in it
 * again. A user may end jobs of its own; root and the daemon's user may do all.
 * Nobody's name is looked up: that could take as long as a directory server likes.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "control/peer.h"

#define WHO_MAX 64

static bool may_operate(const struct peer *peer)
{
    return peer->identity.uid == 0 || peer->identity.uid == geteuid();
}

static const char *who(const struct peer *peer, char text[WHO_MAX])
{
    uint64_t uid = peer->identity.uid;
    const char *is = uid == 0 ? " (root)" : uid == geteuid() ? " (the daemon's user)" : "";

    snprintf(text, WHO_MAX, "uid %" PRIu64 "%s", uid, is);
    return text;
}

void peer_handle_evict(struct peer *peer, uint64_t id, const Pinserve__Evict *evict)
{
    const struct task *task = task_find(peer->server, evict->job);
    struct failure failure;
    char by[WHO_MAX];
    int r;

    if (task && task->uid != peer->identity.uid && !may_operate(peer))
        r = failure_set(&failure, -EPERM,
                        "job %" PRIu64 " is of uid %" PRIu64 ": that user, root and the daemon's "
                        "user may evict it, not uid %" PRIu64,
                        evict->job, task->uid, (uint64_t)peer->identity.uid);
    else
        r = server_evict(peer->server, evict->job, who(peer, by), &failure);
    if (r < 0)
        peer_send_error(peer, id, &failure);
    else
        peer_send_done(peer, id);
}

static void peer_send_device_list(struct peer *peer, uint64_t id, char **uuids, size_t n)
{
    Pinserve__DeviceList list = PINSERVE__DEVICE_LIST__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;

    list.n_uuids = n;
    list.uuids = uuids;
    message.id = id;
    message.body_case = PINSERVE__MESSAGE__BODY_DEVICE_LIST;
    message.device_list = &list;
    peer_send(peer, &message, NULL, 0);
}

/* The stations that are meant, n_p of them: one by its name, or without one all GPUs. */
static int stations_meant(struct server *server, const char *device, struct station **stations,
                          size_t *n_p, struct failure *failure)
{
    size_t n = 0;

    if (*device) {
        *n_p = 1;
        return station_find(server, device, &stations[0], failure);
    }
    for (uint32_t i = 0; i < server->n_stations; i++)
        if (server->stations[i].device->ops->has_ring)
            stations[n++] = &server->stations[i];
    if (n == 0)
        return failure_set(failure, -ENODEV, "there is no GPU; the host device is named \"host\"");
    *n_p = n;
    return 0;
}

void peer_handle_drain(struct peer *peer, uint64_t id, const Pinserve__Drain *drain)
{
    struct station *stations[STATIONS_MAX];
    char *uuids[STATIONS_MAX], by[WHO_MAX];
    struct failure failure;
    size_t n = 0;
    int r;

    if (!may_operate(peer))
        r = failure_set(&failure, -EPERM,
                        "root and the daemon's user may drain a device, not uid %" PRIu64,
                        (uint64_t)peer->identity.uid);
    else
        r = stations_meant(peer->server, drain->device, stations, &n, &failure);
    if (r < 0) {
        peer_send_error(peer, id, &failure);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (drain->undo)
            station_resume(stations[i], who(peer, by));
        else
            station_drain(stations[i], who(peer, by));
        uuids[i] = stations[i]->device->info.uuid;
    }
    peer_send_device_list(peer, id, uuids, n);
}
