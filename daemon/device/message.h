/*
 * What passes between process.c and pinserved-device, each in one packet of a
 * SOCK_SEQPACKET pair: commands down, replies up. Both ends are built together,
 * so that the layouts are simply structs; only a reply's text is cut to its length.
 *
 * The daemon never waits to send, and always reads: so the device process may.
 */
#ifndef PINSERVE_DEVICE_MESSAGE_H
#define PINSERVE_DEVICE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "device/device.h"

#define DEVICE_SOCKET_FD 3

enum command_kind {
    COMMAND_ADD_REGION, /* region, bytes; beside it its fd */
    COMMAND_REMOVE_REGION,
    COMMAND_MAKE_RING, /* ring, bytes, export_as */
    COMMAND_FREE_RING,
    COMMAND_COPY,
    COMMAND_ADD_FILE, /* file, bytes; beside it its fd */
    COMMAND_REMOVE_FILE,
    COMMAND_GATHER, /* as device_gather has it, bytes of a piece; and behind it pieces */
    COMMAND_CLOSE,
};

struct device_command {
    uint32_t kind;
    union {
        uint32_t region, file;
    };
    uint64_t ring, offset, ring_offset, bytes, cookie;
    uint64_t rest_bytes, rest_ring_offset; /* of a gather: from offset of region */
    uint32_t export_as;
    uint32_t pieces,
        first; /* of a gather: how many in all, and the number of this packet's first */
    uint32_t reserved;
};

/* A gather of more pieces is several packets, one right behind the other. */
#define PACKET_PIECES_MAX 1024

struct device_packet {
    struct device_command command;
    struct device_piece pieces[PACKET_PIECES_MAX];
};

enum reply_kind {
    REPLY_OPENED,
    REPLY_RING_MADE, /* id, ipc_handle; or beside it an fd */
    REPLY_RING_FAILED,
    REPLY_COPIED,     /* id: the cookie; code 0: it is there */
    REPLY_FILE_READY, /* id: the file; code 0: all of it is registered */
    REPLY_REGISTERED, /* id: how many bytes of files are */
    REPLY_FAILED,     /* the process is about to end, and this is why */
};

struct device_reply {
    uint32_t kind;
    int32_t code;
    uint64_t id;
    uint32_t unsupported, has_fd;
    uint8_t ipc_handle[DEVICE_IPC_HANDLE_BYTES];
    char text[FAILURE_TEXT_MAX]; /* sent up to its end */
};

/* Sends one packet; fd, only lent, may be -1. 0 or a negative errno; that the other end is gone is
 * no error here: receiving says it. */
int message_send(int socket, const void *data, size_t bytes, int fd);

/* Receives one packet if there is one, and its fd or -1: the packet's bytes; 0: no more will come;
 * -EAGAIN; another negative errno. */
ssize_t message_receive(int socket, void *data, size_t size, int *fd_p);

#endif
