/*
 * Peers: the life of a connection. A client is hostile: whatever it sends or
 * fails to read ends at worst in its own disconnection, and costs one log
 * line. Its leases end with its process, which a pidfd tells.
 */
#include "control/peer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "disposal.h"
#include "log.h"
#include "proto/cleanup.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define MESSAGES_AT_ONCE 32
/* Events that may wait for a peer that does not read: its batches, the ends of their epochs, and a
 * few of each job's opening. A peer that is behind is not read, so it cannot ask for more. */
#define QUEUE_MAX (4 * DEPTH_MAX)

struct peer_message {
    struct list link;
    size_t size;
    size_t n_fds;
    int fds[MESSAGE_FDS_MAX];
    uint8_t bytes[];
};

static void peer_message_free(struct peer_message *message)
{
    list_remove(&message->link);
    for (size_t i = 0; i < message->n_fds; i++)
        close(message->fds[i]);
    free(message);
}

static void peer_on_handle_closed(uv_handle_t *handle)
{
    free(handle);
}

static void peer_poll_free(uv_poll_t **poll)
{
    if (*poll)
        uv_close((uv_handle_t *)*poll, peer_on_handle_closed);
    *poll = NULL;
}

void peer_drop_dataset(struct peer *peer)
{
    disposal_give_fds(peer->server->disposal, peer->dataset_fds, peer->n_dataset);
    charge_release(&peer->files);
    for (size_t i = 0; i < peer->n_dataset; i++)
        free(peer->dataset_names[i]);
    free(peer->dataset_fds);
    free(peer->dataset_names);
    peer->dataset_fds = NULL;
    peer->dataset_names = NULL;
    peer->n_dataset = 0;
}

static void peer_free(struct peer *peer)
{
    list_remove(&peer->link);
    peer_poll_free(&peer->pid_poll);
    close_fd(&peer->pidfd);
    charge_release(&peer->charge);
    if (peer->tenant)
        account_unref(peer->tenant);
    free(peer);
}

/* -- the end --------------------------------------------------------------------------------- */

static bool peer_has_jobs(const struct peer *peer)
{
    list_for_each(item, &peer->server->tasks)
    {
        if (list_entry(item, struct task, link)->peer_id == peer->id)
            return true;
    }
    return false;
}

void peers_forget(struct server *server, uint64_t id)
{
    list_for_each_safe(item, &server->departed)
    {
        struct peer *peer = list_entry(item, struct peer, link);
        if (peer->id == id && !peer_has_jobs(peer))
            peer_free(peer);
    }
}

/* Closes the socket; the process may live on. */
static void peer_leave(struct peer *peer)
{
    struct server *server = peer->server;

    peer_poll_free(&peer->poll);
    close_fd(&peer->fd);
    while (!list_empty(&peer->queue))
        peer_message_free(list_entry(peer->queue.next, struct peer_message, link));
    peer->queued = 0;
    peer_drop_dataset(peer);
    list_for_each(item, &server->tasks)
    {
        struct task *task = list_entry(item, struct task, link);
        if (task->peer == peer)
            task->peer = NULL;
    }
    list_remove(&peer->link);
    list_append(&server->departed, &peer->link);
    server->n_peers--;
    tasks_stop_reading(server, peer->id);
    core_peer_gone(server->core, peer->id, server_now(server));
}

static void peer_on_exit(uv_poll_t *poll, int status, int events)
{
    struct peer *peer = poll->data;
    struct server *server = peer->server;

    (void)status;
    (void)events;
    if (peer->fd >= 0)
        peer_leave(peer); /* what the socket still holds is of a dead process */
    core_peer_dead(server->core, peer->id, server_now(server));
    peer_free(peer);
    server_act(server);
    server_check_stopped(server);
}

void peer_drop(struct peer *peer, const char *reason)
{
    struct server *server = peer->server;

    if (peer->fd < 0)
        return;
    if (reason) {
        server->peers_dropped++;
        log_warning("peer %" PRIu64 " (pid %" PRIu64 ", uid %u): dropped: %s", peer->id, peer->pid,
                    (unsigned)peer->identity.uid, reason);
    }
    uint64_t id = peer->id;
    peer_leave(peer);
    peers_forget(server, id);
    server_act(server);
}

/* The peer is in use by whoever is sending: it ends on the loop's next turn. */
void peer_break(struct peer *peer)
{
    peer->broken = true;
    peer->server->any_broken = true;
}

void peers_sweep(struct server *server)
{
    if (!server->any_broken)
        return;
    server->any_broken = false;
    list_for_each_safe(item, &server->peers)
    {
        struct peer *peer = list_entry(item, struct peer, link);
        if (peer->broken)
            peer_drop(peer, peer->queued > QUEUE_MAX ? "it does not read" : NULL);
    }
}

void peers_close(struct server *server, const char *text)
{
    Pinserve__Goodbye goodbye = PINSERVE__GOODBYE__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;

    goodbye.text = (char *)text;
    message.body_case = PINSERVE__MESSAGE__BODY_GOODBYE;
    message.goodbye = &goodbye;
    list_for_each_safe(item, &server->peers)
    {
        struct peer *peer = list_entry(item, struct peer, link);
        peer_send(peer, &message, NULL, 0);
        peer_leave(peer);
    }
    list_for_each_safe(departed, &server->departed)
    {
        struct peer *peer = list_entry(departed, struct peer, link);
        core_peer_dead(server->core, peer->id, server_now(server));
        peer_free(peer);
    }
    server_act(server);
}

/* -- sending --------------------------------------------------------------------------------- */

static void peer_on_poll(uv_poll_t *poll, int status, int events);

/* Reads while nothing is queued, writes while something is. */
static void peer_poll(struct peer *peer)
{
    int events = list_empty(&peer->queue) ? UV_READABLE : UV_WRITABLE;

    if (!peer->poll || events == peer->polled_events)
        return;
    peer->polled_events = events;
    uv_poll_start(peer->poll, events, peer_on_poll);
}

static void peer_queue(struct peer *peer, const Pinserve__Message *message, const int *fds,
                       size_t n_fds)
{
    size_t size = pinserve__message__get_packed_size(message);
    struct peer_message *queued = malloc(sizeof *queued + size);

    if (!queued || ++peer->queued > QUEUE_MAX) {
        free(queued);
        peer_break(peer);
        return;
    }
    list_init(&queued->link);
    queued->size = size;
    queued->n_fds = 0;
    pinserve__message__pack(message, queued->bytes);
    for (size_t i = 0; i < n_fds; i++) {
        int fd = dup(fds[i]);
        if (fd < 0)
            peer_break(peer);
        else
            queued->fds[queued->n_fds++] = fd;
    }
    list_append(&peer->queue, &queued->link);
    peer_poll(peer);
}

void peer_send(struct peer *peer, const Pinserve__Message *message, const int *fds, size_t n_fds)
{
    if (peer->fd < 0 || peer->broken)
        return;
    if (list_empty(&peer->queue)) {
        int r = wire_send(peer->fd, message, fds, n_fds, MSG_DONTWAIT);
        if (r == 0)
            return;
        if (r != -EAGAIN && r != -ENOBUFS) {
            peer_break(peer);
            if (r == -EMSGSIZE)
                log_error("peer %" PRIu64 ": a message of type %d does not fit a packet", peer->id,
                          (int)message->body_case);
            return;
        }
    }
    peer_queue(peer, message, fds, n_fds);
}

static void peer_flush(struct peer *peer)
{
    while (!list_empty(&peer->queue)) {
        struct peer_message *first = list_entry(peer->queue.next, struct peer_message, link);
        int r = wire_send_bytes(peer->fd, first->bytes, first->size, first->fds, first->n_fds,
                                MSG_DONTWAIT);
        if (r == -EAGAIN)
            break;
        if (r < 0) {
            peer_break(peer);
            return;
        }
        peer_message_free(first);
        peer->queued--;
    }
    peer_poll(peer);
}

void peer_send_error(struct peer *peer, uint64_t id, const struct failure *failure)
{
    Pinserve__Error error = PINSERVE__ERROR__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;

    error.code = failure->code;
    error.text = (char *)failure->text;
    message.id = id;
    message.body_case = PINSERVE__MESSAGE__BODY_ERROR;
    message.error = &error;
    peer_send(peer, &message, NULL, 0);
}

/* -- receiving ------------------------------------------------------------------------------- */

/* The fds that came where none belong. */
static void packet_give_up_fds(struct server *server, struct wire_packet *packet)
{
    int fds[MESSAGE_FDS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < packet->n_fds; i++) {
        int fd = wire_take_fd(packet, i);
        if (fd >= 0)
            fds[n++] = fd;
    }
    disposal_give_fds(server->disposal, fds, n);
}

/* One packet. 1: there is none; 0: handled; negative: the connection is over. */
static int peer_receive(struct peer *peer)
{
    struct wire_packet packet = WIRE_PACKET_INIT;
    struct failure reason = {0};

    int r = wire_receive_keep(peer->fd, &packet, MSG_DONTWAIT);
    if (r == -EAGAIN || r == -EINTR)
        return 1;
    if (r == 0)
        r = peer_handle(peer, &packet, &reason);
    else if (r == -EBADMSG)
        failure_set(&reason, r, "what it sent is no message, or is over the bounds");
    packet_give_up_fds(peer->server, &packet);
    wire_packet_deinit(&packet);
    if (r < 0)
        peer_drop(peer, r == -EPIPE ? NULL : reason.text);
    return r;
}

static void peer_on_poll(uv_poll_t *poll, int status, int events)
{
    struct peer *peer = poll->data;
    struct server *server = peer->server;

    if (status < 0) {
        peer_drop(peer, NULL);
        return;
    }
    if (events & UV_WRITABLE)
        peer_flush(peer);
    for (int i = 0; i < MESSAGES_AT_ONCE && list_empty(&peer->queue) && !peer->broken; i++) {
        int r = peer_receive(peer);
        if (r < 0)
            return; /* the peer is gone */
        if (r > 0)
            break;
        server_act(server);
    }
    if (peer->refused)
        peer_drop(peer, NULL);
}

/* -- the beginning --------------------------------------------------------------------------- */

static int peer_identify(struct peer *peer, struct failure *failure)
{
    struct ucred cred;
    socklen_t size = sizeof cred;

    if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
        return failure_set(failure, -errno, "its credentials: %s", strerror(errno));
    if (cred.pid == 0)
        return failure_set(failure, -EPERM,
                           "pid 0: the client is in a pid namespace that the daemon cannot see");
    peer->pid = (uint64_t)cred.pid;
    peer->identity.uid = cred.uid;
    peer->identity.gid = cred.gid;
    size = sizeof peer->identity.groups;
    if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERGROUPS, peer->identity.groups, &size) == 0)
        peer->identity.n_groups = (uint32_t)(size / sizeof(gid_t));
    size = sizeof peer->pidfd;
    if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERPIDFD, &peer->pidfd, &size) < 0)
        peer->pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
    if (peer->pidfd < 0)
        return failure_set(failure, -errno, "pidfd of %d: %s", (int)cred.pid, strerror(errno));
    return 0;
}

/* Whom the peer's use is charged to. A cgroup's path can be long: its end tells more. */
static void peer_tenant_key(const struct peer *peer, char key[64])
{
    char path[64], line[512] = "";

    snprintf(key, 64, "uid:%u", (unsigned)peer->identity.uid);
    if (peer->server->config->tenant != CONFIG_TENANT_CGROUP)
        return;
    snprintf(path, sizeof path, "/proc/%" PRIu64 "/cgroup", peer->pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::", 3) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        size_t length = strlen(line + 3);
        const char *tail = line + 3 + (length > 55 ? length - 55 : 0);
        snprintf(key, 64, "cgroup:%s", tail);
    }
    fclose(file);
}

static int peer_charge(struct peer *peer, struct failure *failure)
{
    struct server *server = peer->server;
    char key[64];

    peer_tenant_key(peer, key);
    peer->tenant = account_ref(&server->accounts, key);
    if (!peer->tenant)
        return failure_set(failure, -ENOMEM, "no memory for the account of %s", key);
    return charge_acquire(&peer->charge, peer->tenant, ACCOUNT_PEERS, 1, failure);
}

static int peer_watch(struct peer *peer, struct failure *failure)
{
    peer->poll = calloc(1, sizeof *peer->poll);
    peer->pid_poll = calloc(1, sizeof *peer->pid_poll);
    if (peer->poll && uv_poll_init(&peer->server->loop, peer->poll, peer->fd) < 0) {
        free(peer->poll);
        peer->poll = NULL;
    }
    if (peer->pid_poll && uv_poll_init(&peer->server->loop, peer->pid_poll, peer->pidfd) < 0) {
        free(peer->pid_poll);
        peer->pid_poll = NULL;
    }
    if (!peer->poll || !peer->pid_poll)
        return failure_set(failure, -ENOMEM, "the connection cannot be polled");
    peer->poll->data = peer;
    peer->pid_poll->data = peer;
    return 0;
}

int peer_new(struct server *server, int fd_consume)
{
    cleanup_fd int fd = fd_consume;
    struct failure failure = {0};
    struct peer *peer = calloc(1, sizeof *peer);

    if (!peer)
        return -ENOMEM;
    peer->server = server;
    peer->id = ++server->next_peer;
    peer->fd = steal_fd(&fd);
    peer->pidfd = -1;
    list_init(&peer->link);
    list_init(&peer->queue);
    server->peers_seen++;

    int r = peer_identify(peer, &failure);
    if (r == 0)
        r = peer_charge(peer, &failure);
    if (r == 0)
        r = peer_watch(peer, &failure);
    if (r < 0) {
        /* It hears why, as far as a fresh socket takes it. */
        peer_send_error(peer, 0, &failure);
        server->peers_dropped++;
        log_warning("peer %" PRIu64 " (pid %" PRIu64 ", uid %u): refused: %s", peer->id, peer->pid,
                    (unsigned)peer->identity.uid, failure.text);
        peer_poll_free(&peer->poll);
        close_fd(&peer->fd);
        peer_free(peer);
        return r;
    }
    list_append(&server->peers, &peer->link);
    server->n_peers++;
    uv_poll_start(peer->pid_poll, UV_READABLE, peer_on_exit);
    peer_poll(peer);
    return 0;
}
