/*
 * Handlers: what a client's message does, and in which state it may come. A
 * reason returned here ends the peer; a refusal that a sane client can meet is
 * an Error instead, and the peer lives on.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/peer.h"
#include "log.h"
#include "proto/cleanup.h"

static void peer_send_hello(struct peer *peer, uint64_t id)
{
    Pinserve__Hello hello = PINSERVE__HELLO__INIT;
    Pinserve__Limits limits = PINSERVE__LIMITS__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    char *capabilities[] = {"fd", "ipc", "copy", "host", "mapped"};
    const struct account_limits *of_tenant = &peer->tenant->limits;

    limits.message_bytes = MESSAGE_MAX;
    limits.message_fds = MESSAGE_FDS_MAX;
    limits.dataset_fds = DATASET_FDS_MAX;
    limits.depth = DEPTH_MAX;
    limits.batch = BATCH_MAX;
    limits.jobs = (uint32_t)of_tenant->max[ACCOUNT_JOBS];
    limits.pinned_bytes = of_tenant->max[ACCOUNT_PINNED];
    limits.device_bytes = of_tenant->max[ACCOUNT_DEVICE];
    hello.major = PROTOCOL_MAJOR;
    hello.minor_min = PROTOCOL_MINOR_MIN;
    hello.minor_max = PROTOCOL_MINOR_MAX;
    hello.program = "pinserved " PINSERVE_VERSION;
    hello.n_capabilities = sizeof capabilities / sizeof capabilities[0];
    hello.capabilities = capabilities;
    hello.limits = &limits;
    message.id = id;
    message.body_case = PINSERVE__MESSAGE__BODY_HELLO;
    message.hello = &hello;
    peer_send(peer, &message, NULL, 0);
}

static int peer_handle_hello(struct peer *peer, uint64_t id, const Pinserve__Hello *hello,
                             struct failure *reason)
{
    if (peer->greeted)
        return failure_set(reason, -EPROTO, "a second Hello");
    uint32_t low = PROTOCOL_MINOR_MIN, high = PROTOCOL_MINOR_MAX;
    if (hello->major != PROTOCOL_MAJOR || hello->minor_max < low || hello->minor_min > high) {
        struct failure failure;
        failure_set(&failure, -EPROTONOSUPPORT,
                    "no common protocol version: the client (%.64s) speaks %u.%u to %u.%u, the "
                    "daemon (pinserved %s) %u.%u to %u.%u",
                    hello->program, hello->major, hello->minor_min, hello->major, hello->minor_max,
                    PINSERVE_VERSION, PROTOCOL_MAJOR, PROTOCOL_MINOR_MIN, PROTOCOL_MAJOR,
                    PROTOCOL_MINOR_MAX);
        peer_send_error(peer, id, &failure);
        peer->refused = true;
        return 0;
    }
    for (size_t i = 0; i < hello->n_capabilities; i++) {
        const char *capability = hello->capabilities[i];

        peer->client_fd |= strcmp(capability, "fd") == 0;
        peer->client_ipc |= strcmp(capability, "ipc") == 0;
        peer->client_copy |= strcmp(capability, "copy") == 0;
        peer->client_mapped |= strcmp(capability, "mapped") == 0;
        peer->client_coherent |= strcmp(capability, "coherent") == 0;
    }
    peer->greeted = true;
    peer_send_hello(peer, id);
    return 0;
}

/* It hears why before it is dropped: the message has no reply. */
static int peer_charge_files(struct peer *peer, size_t n, struct failure *reason)
{
    charge_release(&peer->files);
    int r = charge_acquire(&peer->files, peer->tenant, ACCOUNT_FILES, n, reason);
    if (r < 0)
        peer_send_error(peer, 0, reason);
    return r;
}

static int peer_handle_dataset_fds(struct peer *peer, struct wire_packet *packet,
                                   struct failure *reason)
{
    const Pinserve__DatasetFds *message = packet->message->dataset_fds;
    size_t n = peer->n_dataset + packet->n_fds;

    if (packet->n_fds == 0 || message->n_names != packet->n_fds)
        return failure_set(reason, -EPROTO, "DatasetFds with %zu names and %zu fds",
                           message->n_names, packet->n_fds);
    if (n > DATASET_FDS_MAX)
        return failure_set(reason, -EPROTO, "more than %d fds for one dataset", DATASET_FDS_MAX);
    int r = peer_charge_files(peer, n, reason);
    if (r < 0)
        return r;
    int *fds = realloc(peer->dataset_fds, n * sizeof *fds);
    if (fds)
        peer->dataset_fds = fds;
    char **names = realloc(peer->dataset_names, n * sizeof *names);
    if (names)
        peer->dataset_names = names;
    if (!fds || !names)
        return failure_set(reason, -ENOMEM, "no memory for %zu fds", n);
    for (size_t i = 0; i < packet->n_fds; i++) {
        char *name = strndup(message->names[i], NAME_MAX_BYTES);
        if (!name)
            return failure_set(reason, -ENOMEM, "no memory for %zu fds", n);
        peer->dataset_fds[peer->n_dataset] = wire_take_fd(packet, i);
        peer->dataset_names[peer->n_dataset++] = name;
    }
    return 0;
}

void peer_send_done(struct peer *peer, uint64_t id)
{
    Pinserve__Done done = PINSERVE__DONE__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;

    message.id = id;
    message.body_case = PINSERVE__MESSAGE__BODY_DONE;
    message.done = &done;
    peer_send(peer, &message, NULL, 0);
}

/* Requests have an id, notices have none, and only DatasetFds and Probe bring fds. */
static int peer_check_form(const struct peer *peer, const struct wire_packet *packet,
                           struct failure *reason)
{
    const Pinserve__Message *message = packet->message;
    bool notice = message->body_case == PINSERVE__MESSAGE__BODY_RING_OPENED ||
                  message->body_case == PINSERVE__MESSAGE__BODY_RELEASE ||
                  message->body_case == PINSERVE__MESSAGE__BODY_RING_CLOSED ||
                  message->body_case == PINSERVE__MESSAGE__BODY_COMMIT ||
                  message->body_case == PINSERVE__MESSAGE__BODY_DATASET_FDS;

    if (!peer->greeted && message->body_case != PINSERVE__MESSAGE__BODY_HELLO)
        return failure_set(reason, -EPROTO, "message of type %d before Hello",
                           (int)message->body_case);
    if (packet->n_fds > 0 && message->body_case != PINSERVE__MESSAGE__BODY_DATASET_FDS &&
        message->body_case != PINSERVE__MESSAGE__BODY_PROBE)
        return failure_set(reason, -EPROTO, "%zu fds beside a message of type %d, which takes none",
                           packet->n_fds, (int)message->body_case);
    if (!notice && message->id == 0)
        return failure_set(reason, -EPROTO, "a request of type %d without an id",
                           (int)message->body_case);
    return 0;
}

static int peer_handle_ring_opened(struct peer *peer, const Pinserve__RingOpened *opened,
                                   struct failure *reason)
{
    struct server *server = peer->server;

    if (!opened->ok && task_keep_refusal(server, peer, opened->job, opened->ring, opened->error))
        return 0;
    int r = core_ring_opened(server->core, peer->id, opened->job, opened->ring, opened->ok,
                             opened->error, server_now(server));
    if (r < 0)
        return failure_set(reason, r,
                           "RingOpened of ring %u of job %" PRIu64 ", which is not on "
                           "offer to it",
                           opened->ring, opened->job);
    return 0;
}

static int peer_handle_release(struct peer *peer, const Pinserve__Release *release,
                               struct failure *reason)
{
    struct server *server = peer->server;

    int r = core_release(server->core, peer->id, release->job, release->lease, release->generation,
                         server_now(server));
    if (r < 0)
        return failure_set(reason, r,
                           "Release of lease %u, generation %u, of job %" PRIu64
                           ", which it does not hold",
                           release->lease, release->generation, release->job);
    return 0;
}

static int peer_handle_ring_closed(struct peer *peer, const Pinserve__RingClosed *closed,
                                   struct failure *reason)
{
    struct server *server = peer->server;

    int r = core_ring_closed(server->core, peer->id, closed->job, closed->ring, server_now(server));
    if (r < 0)
        return failure_set(reason, r,
                           "RingClosed of ring %u of job %" PRIu64
                           ", which it does not have, or still leases",
                           closed->ring, closed->job);
    return 0;
}

static int peer_handle_close_job(struct peer *peer, uint64_t id, const Pinserve__CloseJob *close,
                                 struct failure *reason)
{
    struct server *server = peer->server;

    int r = core_job_close(server->core, peer->id, close->job, server_now(server));
    if (r < 0)
        return failure_set(reason, r, "CloseJob of job %" PRIu64 ", which it does not have",
                           close->job);
    struct task *task = task_find(server, close->job);
    if (task)
        task_stop_reading(task);
    peer_send_done(peer, id);
    return 0;
}

int peer_handle(struct peer *peer, struct wire_packet *packet, struct failure *reason)
{
    const Pinserve__Message *message = packet->message;

    int r = peer_check_form(peer, packet, reason);
    if (r < 0)
        return r;
    switch (message->body_case) {
    case PINSERVE__MESSAGE__BODY_HELLO:
        return peer_handle_hello(peer, message->id, message->hello, reason);
    case PINSERVE__MESSAGE__BODY_DATASET_FDS:
        return peer_handle_dataset_fds(peer, packet, reason);
    case PINSERVE__MESSAGE__BODY_OPEN_JOB:
        return peer_handle_open(peer, message->id, message->open_job, reason);
    case PINSERVE__MESSAGE__BODY_CLOSE_JOB:
        return peer_handle_close_job(peer, message->id, message->close_job, reason);
    case PINSERVE__MESSAGE__BODY_QUERY:
        peer_handle_query(peer, message->id, message->query);
        return 0;
    case PINSERVE__MESSAGE__BODY_PROBE:
        return peer_handle_probe(peer, packet, reason);
    case PINSERVE__MESSAGE__BODY_EVICT:
        peer_handle_evict(peer, message->id, message->evict);
        return 0;
    case PINSERVE__MESSAGE__BODY_DRAIN:
        peer_handle_drain(peer, message->id, message->drain);
        return 0;
    case PINSERVE__MESSAGE__BODY_RING_OPENED:
        return peer_handle_ring_opened(peer, message->ring_opened, reason);
    case PINSERVE__MESSAGE__BODY_RELEASE:
        return peer_handle_release(peer, message->release, reason);
    case PINSERVE__MESSAGE__BODY_RING_CLOSED:
        return peer_handle_ring_closed(peer, message->ring_closed, reason);
    case PINSERVE__MESSAGE__BODY_COMMIT:
        return peer_handle_commit(peer, message->commit, reason);
    default:
        return failure_set(reason, -EPROTO, "a message of type %d, which only a daemon sends",
                           (int)message->body_case);
    }
}
