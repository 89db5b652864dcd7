/*
 * The commands to pinserved-device: they go out at once, or wait in a queue while
 * the socket is full; how many is bounded by what the caller lets be under way.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>

#include "device/process.h"
#include "proto/cleanup.h"

struct pending_command {
    struct list link;
    int fd;
    size_t bytes;
    char packet[];
};

static void pending_free(struct pending_command *pending)
{
    list_remove(&pending->link);
    close_fd(&pending->fd);
    free(pending);
}

void commands_drop(struct process *process)
{
    list_for_each_safe(item, &process->pending)
        pending_free(list_entry(item, struct pending_command, link));
}

/* -ETOOMANYREFS: the system has too many fds on their way for us; these go out as they arrive. */
static bool is_full(int r)
{
    return r == -EAGAIN || r == -ENOBUFS || r == -ETOOMANYREFS || r == -EINTR || r == -ENOMEM;
}

/* Sends a packet, or queues it; the fd, which may be -1, is taken over. */
static int packet_give(struct process *process, const void *packet, size_t bytes, int fd_consume)
{
    cleanup_fd int fd = fd_consume;
    struct pending_command *pending;
    int r = -EAGAIN;

    if (!process->up || process->closing)
        return -ENOTCONN;
    if (process->ended)
        return 0;
    if (list_empty(&process->pending))
        r = message_send(process->socket, packet, bytes, fd);
    if (!is_full(r))
        return r;
    pending = calloc(1, sizeof *pending + bytes);
    if (!pending)
        return -ENOMEM;
    memcpy(pending->packet, packet, bytes);
    pending->bytes = bytes;
    pending->fd = steal_fd(&fd);
    list_append(&process->pending, &pending->link);
    return 0;
}

static int command_give(struct device *device, const struct device_command *command, int fd_consume)
{
    return packet_give(process_of(device), command, sizeof *command, fd_consume);
}

void commands_flush(struct process *process)
{
    while (!process->ended && !list_empty(&process->pending)) {
        struct pending_command *first =
            list_entry(process->pending.next, struct pending_command, link);

        if (is_full(message_send(process->socket, first->packet, first->bytes, first->fd)))
            return;
        pending_free(first);
    }
}

int process_add_region(struct device *device, uint32_t region, int fd_consume, size_t bytes)
{
    struct device_command command = {.kind = COMMAND_ADD_REGION, .region = region, .bytes = bytes};

    return command_give(device, &command, fd_consume);
}

int process_remove_region(struct device *device, uint32_t region)
{
    struct device_command command = {.kind = COMMAND_REMOVE_REGION, .region = region};

    return command_give(device, &command, -1);
}

int process_make_ring(struct device *device, uint64_t ring, enum ring_export export_as,
                      size_t bytes)
{
    struct device_command command = {
        .kind = COMMAND_MAKE_RING, .ring = ring, .bytes = bytes, .export_as = export_as};

    return command_give(device, &command, -1);
}

int process_free_ring(struct device *device, uint64_t ring)
{
    struct device_command command = {.kind = COMMAND_FREE_RING, .ring = ring};

    return command_give(device, &command, -1);
}

int process_copy(struct device *device, uint32_t region, size_t offset, uint64_t ring,
                 size_t ring_offset, size_t bytes, uint64_t cookie)
{
    struct device_command command = {.kind = COMMAND_COPY,
                                     .region = region,
                                     .offset = offset,
                                     .ring = ring,
                                     .ring_offset = ring_offset,
                                     .bytes = bytes,
                                     .cookie = cookie};

    return command_give(device, &command, -1);
}

int process_add_file(struct device *device, uint32_t file, int fd_consume, uint64_t size)
{
    struct device_command command = {.kind = COMMAND_ADD_FILE, .file = file, .bytes = size};

    return command_give(device, &command, fd_consume);
}

int process_remove_file(struct device *device, uint32_t file)
{
    struct device_command command = {.kind = COMMAND_REMOVE_FILE, .file = file};

    return command_give(device, &command, -1);
}

/* What was sent of a gather whose rest cannot be is dropped by the process: the next command is
 * none of its packets. */
int process_gather(struct device *device, const struct device_gather *gather, uint64_t cookie)
{
    struct device_packet packet = {.command = {.kind = COMMAND_GATHER,
                                               .region = gather->region,
                                               .offset = gather->rest_offset,
                                               .ring = gather->ring,
                                               .ring_offset = gather->ring_offset,
                                               .bytes = gather->piece_bytes,
                                               .rest_bytes = gather->rest_bytes,
                                               .rest_ring_offset = gather->rest_ring_offset,
                                               .pieces = gather->n,
                                               .cookie = cookie}};

    if (gather->n == 0 || gather->n > GATHER_PIECES_MAX)
        return -EINVAL;
    for (uint32_t first = 0; first < gather->n; first += PACKET_PIECES_MAX) {
        uint32_t left = gather->n - first;
        uint32_t n = left < PACKET_PIECES_MAX ? left : PACKET_PIECES_MAX;

        packet.command.first = first;
        memcpy(packet.pieces, gather->pieces + first, n * sizeof packet.pieces[0]);
        int r = packet_give(process_of(device), &packet,
                            sizeof packet.command + n * sizeof packet.pieces[0], -1);
        if (r < 0)
            return r;
    }
    return 0;
}

void process_close(struct device *device)
{
    struct process *process = process_of(device);
    struct device_command command = {.kind = COMMAND_CLOSE};

    /* Without memory for the command, its end is asked for by the only other means. */
    if (process->up && !process->closing && command_give(device, &command, -1) < 0)
        pidfd_send_signal(process->pidfd, SIGKILL, NULL, 0);
    process->closing = process->up;
}
