/*
 * A connection to the daemon: the socket, the Hello of both sides, and requests
 * with their replies. One thread at a time, but for connection_post.
 */
#ifndef PINSERVE_CLIENT_CONNECTION_H
#define PINSERVE_CLIENT_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "pinserve.pb-c.h"
#include "proto/failure.h"
#include "proto/wire.h"

/* How long the daemon may take to answer what it answers at once: a start by socket activation fits
 * in, a daemon that is stopped does not. */
#define CONNECTION_ANSWER_MS 30000

/* Deliveries that this process can take besides host, for the Hello; and whether its GPU shares the
 * host's memory. */
enum connection_can {
    CONNECTION_CAN_FD = 1,
    CONNECTION_CAN_IPC = 2,
    CONNECTION_CAN_COPY = 4,
    CONNECTION_CAN_MAPPED = 8,
    CONNECTION_IS_COHERENT = 16,
};

struct connection;

/* Connects to socket (NULL: the usual places, see pinclient_connect) and exchanges Hellos. Set on
 * success only; the failure names the path. */
int connection_open(const char *socket, struct connection **connection_p, struct failure *failure);

/* The same, telling the daemon which deliveries this process can take. */
int connection_open_for(const char *socket, unsigned can, struct connection **connection_p,
                        struct failure *failure);

/* NULL is allowed. Nothing is sent. */
void connection_close(struct connection *connection);

/* The daemon's Hello; never NULL, and its limits are there. */
const Pinserve__Hello *connection_hello(const struct connection *connection);
/* The path that it is connected to. */
const char *connection_path(const struct connection *connection);
int connection_socket(const struct connection *connection);
/* Whether its end was seen: -EPIPE was returned for it. */
bool connection_is_gone(const struct connection *connection);

/* Sends request, under an id of its own, with n_fds fds (which stay the caller's), and waits for
 * the reply: reply is filled (deinit it) on success only. An Error becomes its code and text, also
 * one for an earlier request that was sent without waiting. Events that come before the reply are
 * dropped. */
int connection_call(struct connection *connection, Pinserve__Message *request, const int *fds,
                    size_t n_fds, struct wire_packet *reply, struct failure *failure);

/* Sends a message as it is; blocks while the socket is full, which within a job's credits it never
 * is. connection_post is the same without texts and for any thread. */
int connection_send(struct connection *connection, const Pinserve__Message *message, const int *fds,
                    size_t n_fds, struct failure *failure);
int connection_post(const struct connection *connection, const Pinserve__Message *message);

/* Gives the next id for a request that is sent with connection_send. */
uint64_t connection_next_id(struct connection *connection);

/* Receives one message into packet; flags as for recvmsg. -EAGAIN and -EINTR have no text. -EPIPE:
 * the daemon is gone (with its Goodbye, if it said one); -EPROTO: it sent what is no message. */
int connection_receive(struct connection *connection, int flags, struct wire_packet *packet,
                       struct failure *failure);

/* Takes what waits on the socket now, up to a few messages, for the next calls of
 * connection_receive: these then need no system call. The socket is not readable for what was
 * taken. */
void connection_read_ahead(struct connection *connection);
bool connection_has_ahead(const struct connection *connection);

/* The same, until a moment of connection_clock_ms; -ETIMEDOUT. Signals do not disturb it. */
int connection_receive_until(struct connection *connection, int64_t deadline_ms,
                             struct wire_packet *packet, struct failure *failure);

/* Monotonic, in milliseconds. */
int64_t connection_clock_ms(void);

/* A code of the daemon's as a result: a negative errno, or -EIO when it is none. */
int connection_code(int32_t code);

#endif
