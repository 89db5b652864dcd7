/*
 * A peer: one connection of a client process, its credentials, and what is
 * queued for it. It speaks the protocol; what the messages do is in
 * handlers.c.
 */
#ifndef PINSERVE_CONTROL_PEER_H
#define PINSERVE_CONTROL_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/limits.h"
#include "proto/wire.h"
#include "server.h"
#include "source/identity.h"

/* A message that the socket did not take yet. */
struct peer_message;

struct peer {
    struct list link; /* in server->peers, then in server->departed */
    struct server *server;
    uint64_t id;
    int fd;
    int pidfd;
    uv_poll_t *poll, *pid_poll;
    int polled_events;
    struct identity identity;
    uint64_t pid;
    struct account *tenant;
    struct charge charge;
    bool greeted;     /* Hello was exchanged */
    bool refused;     /* told why, to be closed */
    bool reads_links; /* its query about devices waits for a reading */
    bool broken; /* the socket failed while an event was carried out: closed on the next turn */
    bool client_fd, client_ipc, client_copy, client_mapped, client_coherent;
    int *dataset_fds; /* for the next OpenJob */
    char **dataset_names;
    size_t n_dataset;
    struct charge files; /* these */
    struct list queue;   /* struct peer_message */
    uint32_t queued;
};

/* Takes a connected socket over. Negative errno: refused, the client was told why where it could
 * be. */
int peer_new(struct server *server, int fd_consume);
/* Ends the connection: its jobs close; what it leases stays until its process is gone. With a
 * reason, one log line. */
void peer_drop(struct peer *peer, const char *reason);
/* Ends every peer, with a Goodbye. For the end: nothing waits for their processes. */
void peers_close(struct server *server, const char *text);
/* A job of the peer has ended: when its connection is closed and that was its last, it leases and
 * maps nothing any more, and its process need not be waited for. */
void peers_forget(struct server *server, uint64_t peer);
/* Marks a peer whose socket cannot be used any more, from any depth of calls. */
void peer_break(struct peer *peer);
/* Ends the peers that are so marked. */
void peers_sweep(struct server *server);
/* Gives back the fds that DatasetFds brought. */
void peer_drop_dataset(struct peer *peer);

/* Sends, or queues behind what is queued. Fds stay the caller's. */
void peer_send(struct peer *peer, const Pinserve__Message *message, const int *fds, size_t n_fds);
void peer_send_error(struct peer *peer, uint64_t id, const struct failure *failure);
void peer_send_done(struct peer *peer, uint64_t id);

/* Events about a job. */
void peer_send_progress(struct peer *peer, uint64_t job, uint64_t indexed);
void peer_send_job_ready(struct peer *peer, struct task *task, const struct core_action *action);
void peer_send_ring_replaced(struct peer *peer, struct task *task,
                             const struct core_action *action);
void peer_send_batch_ready(struct peer *peer, struct task *task, const struct core_action *action);
void peer_send_epoch_end(struct peer *peer, const struct core_action *action);
/* Answers a Probe; fd -1: no pixels. Without such a peer nothing happens. */
void peer_send_probed(struct server *server, uint64_t peer, uint64_t id,
                      const Pinserve__Probed *probed, int fd);
void peer_send_probe_error(struct server *server, uint64_t peer, uint64_t id,
                           const struct failure *failure);
void peer_send_job_failed(struct peer *peer, const struct core_action *action);

/* handlers.c: one received message. 0, or a negative errno with the reason why the peer is dropped.
 */
int peer_handle(struct peer *peer, struct wire_packet *packet, struct failure *reason);
/* opening.c */
int peer_handle_open(struct peer *peer, uint64_t id, const Pinserve__OpenJob *open,
                     struct failure *reason);
/* opening_source.c: takes over the fds that DatasetFds brought. The request is the caller's,
 * whatever is returned. */
int source_request_from_wire(struct peer *peer, const Pinserve__Source *source,
                             struct source_request **request_p, struct failure *failure);
/* probe.c */
int peer_handle_probe(struct peer *peer, struct wire_packet *packet, struct failure *reason);
/* operate.c */
void peer_handle_evict(struct peer *peer, uint64_t id, const Pinserve__Evict *evict);
void peer_handle_drain(struct peer *peer, uint64_t id, const Pinserve__Drain *drain);
/* push.c */
/* The layout of a job whose batches the client fills. */
int push_open(struct task *task, const Pinserve__OpenJob *open, struct failure *failure);
int peer_handle_commit(struct peer *peer, const Pinserve__Commit *commit, struct failure *reason);
/* reports.c */
void peer_handle_query(struct peer *peer, uint64_t id, const Pinserve__Query *query);

#endif
