/*
 * Probe: a client asks what the daemon makes of an image file.
 */
#include <errno.h>
#include <string.h>

#include "control/peer.h"

int peer_handle_probe(struct peer *peer, struct wire_packet *packet, struct failure *reason)
{
    const Pinserve__Message *message = packet->message;
    const Pinserve__Probe *probe = message->probe;
    struct failure failure;

    if (packet->n_fds != 1)
        return failure_set(reason, -EPROTO, "Probe with %zu fds", packet->n_fds);
    if (strlen(probe->name) > NAME_MAX_BYTES || strlen(probe->member) > NAME_MAX_BYTES)
        return failure_set(reason, -EPROTO, "Probe with a name over %d bytes", NAME_MAX_BYTES);
    const struct probe_request request = {
        .peer = peer->id,
        .id = message->id,
        .fd_consume = wire_take_fd(packet, 0),
        .name = probe->name,
        .member = probe->member,
        .pixels = probe->pixels,
    };
    if (probe_begin(peer->server, peer->tenant, &request, &failure) < 0)
        peer_send_error(peer, message->id, &failure);
    return 0;
}

static struct peer *peer_find(struct server *server, uint64_t id)
{
    list_for_each(item, &server->peers)
    {
        struct peer *peer = list_entry(item, struct peer, link);
        if (peer->id == id)
            return peer;
    }
    return NULL;
}

void peer_send_probed(struct server *server, uint64_t peer_id, uint64_t id,
                      const Pinserve__Probed *probed, int fd)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    struct peer *peer = peer_find(server, peer_id);

    if (!peer)
        return;
    message.id = id;
    message.body_case = PINSERVE__MESSAGE__BODY_PROBED;
    message.probed = (Pinserve__Probed *)probed;
    peer_send(peer, &message, &fd, fd >= 0);
}

void peer_send_probe_error(struct server *server, uint64_t peer_id, uint64_t id,
                           const struct failure *failure)
{
    struct peer *peer = peer_find(server, peer_id);

    if (peer)
        peer_send_error(peer, id, failure);
}
