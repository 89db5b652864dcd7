/*
 * Packets on a SOCK_SEQPACKET socket: one packet is one protobuf message with
 * its fds. Nothing here knows what a message means.
 */
#ifndef PINSERVE_WIRE_H
#define PINSERVE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "limits.h"
#include "pinserve.pb-c.h"

/* A received message and the fds beside it. The fds belong to the packet until
 * wire_take_fd or wire_packet_deinit. */
struct wire_packet {
    Pinserve__Message *message;
    int fds[MESSAGE_FDS_MAX];
    size_t n_fds;
};

#define WIRE_PACKET_INIT                                                                           \
    {                                                                                              \
        .message = NULL, .n_fds = 0                                                                \
    }

/* Frees the message and closes the fds that nobody took. */
void wire_packet_deinit(struct wire_packet *packet);

/* Takes ownership of fd i; -1 when there is none. */
int wire_take_fd(struct wire_packet *packet, size_t i);

/* Sends one message with n_fds fds, which stay the caller's. Never raises SIGPIPE. flags as for
 * sendmsg. 0; -EAGAIN when the peer does not read; -EMSGSIZE when the message is over MESSAGE_MAX;
 * -EPIPE, -ECONNRESET; other negative errno. */
int wire_send(int socket, const Pinserve__Message *message, const int *fds, size_t n_fds,
              int flags);

/* Receives one message into packet (WIRE_PACKET_INIT). 0; -EAGAIN; -EPIPE at the end of the
 * connection; -EBADMSG when the bytes are no message or are over the bounds: truncated, too many
 * fds, or empty. Received fds are CLOEXEC. On error every received fd has been closed. */
int wire_receive(int socket, struct wire_packet *packet, int flags);

/* The same, but on error the packet keeps what was received, for the caller to give up: closing an
 * fd can take as long as its file system likes. */
int wire_receive_keep(int socket, struct wire_packet *packet, int flags);

/* Sends already packed bytes. For queues. Same results as wire_send. */
int wire_send_bytes(int socket, const void *bytes, size_t size, const int *fds, size_t n_fds,
                    int flags);

#endif
