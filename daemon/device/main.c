/*
 * pinserved-device: one GPU of the daemon's, in a process of its own.
 *
 *   pinserved-device UUID [GATHER-MAX]  serves that device to the daemon on fd 3
 *   pinserved-device --list [--json] prints what the driver says of the devices
 *   pinserved-device --version
 *
 * Serving, it sleeps until a command comes, and carries the commands out in
 * order. What has ended is reported by the driver's own threads, straight into
 * the socket. It ends when the daemon asks it to, when the daemon is gone, or
 * when the GPU's context is lost: then with its last words as a reply.
 */
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/cuda.h"
#include "device/message.h"
#include "device/range.h"
#include "log.h"
#include "proto/cleanup.h"
#include "proto/units.h"

#define LIST_MAX 64
#define LOG_LINES_PER_SECOND 20
/* A broken context calls no host function: while one is due, how often to ask. */
#define CHECK_MS 200
#define DISPATCH_TURNS 64

/* -- replies ---------------------------------------------------------------------------------- */

/* Waits while the daemon is behind with reading. One that is gone hears nothing. */
static void reply_send(const struct device_reply *reply, int fd)
{
    size_t bytes = offsetof(struct device_reply, text) + strlen(reply->text) + 1;

    while (message_send(DEVICE_SOCKET_FD, reply, bytes, fd) == -EINTR)
        ;
}

static void reply_failure(enum reply_kind kind, uint64_t id, const struct failure *failure)
{
    struct device_reply reply = {.kind = kind, .id = id, .code = failure->code};

    reply.unsupported = failure->code == -EOPNOTSUPP;
    snprintf(reply.text, sizeof reply.text, "%s", failure->text);
    reply_send(&reply, -1);
}

static void on_ring_made(uint64_t ring, int fd, const uint8_t *ipc_handle)
{
    struct device_reply reply = {.kind = REPLY_RING_MADE, .id = ring, .has_fd = fd >= 0};

    memcpy(reply.ipc_handle, ipc_handle, sizeof reply.ipc_handle);
    reply_send(&reply, fd);
}

/* The answer that something is done, or with failure that it is not. */
static void reply_done(enum reply_kind kind, uint64_t id, const struct failure *failure)
{
    struct device_reply reply = {.kind = kind, .id = id};

    if (failure)
        reply_failure(kind, id, failure);
    else
        reply_send(&reply, -1);
}

static void on_copied(uint64_t cookie, const struct failure *failure)
{
    uint64_t range = range_begin(RANGE_HAND_OFF, 0);

    reply_done(REPLY_COPIED, cookie, failure);
    range_end(range);
}

static void on_file_ready(uint32_t file, const struct failure *failure)
{
    reply_done(REPLY_FILE_READY, file, failure);
}

static void on_registered(uint64_t bytes)
{
    reply_done(REPLY_REGISTERED, bytes, NULL);
}

static const struct cuda_events events = {
    .ring_made = on_ring_made,
    .copied = on_copied,
    .file_ready = on_file_ready,
    .registered = on_registered,
};

/* -- commands --------------------------------------------------------------------------------- */

/* Waits for a command. 0: one may be there; negative: the context is lost. */
static int command_wait(struct cuda *cuda, struct failure *failure)
{
    struct pollfd fds[2] = {{.fd = DEVICE_SOCKET_FD, .events = POLLIN},
                            {.fd = cuda_get_fd(cuda), .events = POLLIN}};

    if (poll(fds, 2, cuda_is_busy(cuda) ? CHECK_MS : -1) == 0)
        return cuda_check(cuda, failure);
    if (fds[1].revents)
        cuda_dispatch(cuda);
    return 0;
}

/* The pieces of one gather, as its packets come. */
static struct device_piece gathered[GATHER_PIECES_MAX];
static uint32_t n_gathered;

/* Takes the pieces of a packet; carries the gather out with the last of them. */
static int gather_take(struct cuda *cuda, const struct device_packet *packet, size_t n,
                       struct failure *failure)
{
    const struct device_command *command = &packet->command;
    struct device_gather gather = {
        .pieces = gathered,
        .n = command->pieces,
        .region = command->region,
        .piece_bytes = command->bytes,
        .ring = command->ring,
        .ring_offset = command->ring_offset,
        .rest_bytes = command->rest_bytes,
        .rest_offset = command->offset,
        .rest_ring_offset = command->rest_ring_offset,
    };

    if (command->first == 0)
        n_gathered = 0;
    if (command->pieces > GATHER_PIECES_MAX || command->first != n_gathered ||
        n > command->pieces - n_gathered)
        return failure_set(failure, -EBADMSG, "a gather of %u pieces: %zu came at %u",
                           command->pieces, n, command->first);
    memcpy(gathered + n_gathered, packet->pieces, n * sizeof *gathered);
    n_gathered += (uint32_t)n;
    if (n_gathered < command->pieces)
        return 0;
    return cuda_gather(cuda, &gather, command->cookie, failure);
}

/* Carries out one command, with n pieces behind it; the fd is taken over. */
static int command_run(struct cuda *cuda, const struct device_packet *packet, size_t n,
                       int fd_consume, struct failure *failure)
{
    const struct device_command *command = &packet->command;
    cleanup_fd int fd = fd_consume;

    switch (command->kind) {
    case COMMAND_ADD_REGION:
        return cuda_add_region(cuda, command->region, steal_fd(&fd), command->bytes, failure);
    case COMMAND_REMOVE_REGION:
        return cuda_remove_region(cuda, command->region, failure);
    case COMMAND_MAKE_RING:
        return cuda_make_ring(cuda, command->ring, (enum ring_export)command->export_as,
                              command->bytes, failure);
    case COMMAND_FREE_RING:
        return cuda_free_ring(cuda, command->ring, failure);
    case COMMAND_COPY:
        return cuda_copy(cuda, command->region, command->offset, command->ring,
                         command->ring_offset, command->bytes, command->cookie, failure);
    case COMMAND_ADD_FILE:
        return cuda_add_file(cuda, command->file, steal_fd(&fd), command->bytes, failure);
    case COMMAND_REMOVE_FILE:
        return cuda_remove_file(cuda, command->file, failure);
    case COMMAND_GATHER:
        return gather_take(cuda, packet, n, failure);
    default:
        return failure_set(failure, -EBADMSG, "a command of unknown kind %u", command->kind);
    }
}

/* Tells of a command that failed, with the context as it was. */
static void command_failed(const struct device_command *command, const struct failure *failure)
{
    if (command->kind == COMMAND_COPY || command->kind == COMMAND_GATHER)
        reply_failure(REPLY_COPIED, command->cookie, failure);
    else if (command->kind == COMMAND_ADD_FILE)
        reply_failure(REPLY_FILE_READY, command->file, failure);
    else if (command->kind == COMMAND_MAKE_RING)
        reply_failure(REPLY_RING_FAILED, command->ring, failure);
    else
        log_warning("%s", failure->text);
}

/* Serves until the daemon closes: 0; or the context is lost. */
static int serve_commands(struct cuda *cuda, struct failure *failure)
{
    static struct device_packet packet;
    const struct device_command *command = &packet.command;

    for (unsigned turn = 1;; turn++) {
        int fd, r;

        if (turn % DISPATCH_TURNS == 0) /* commands need not leave a gap */
            cuda_dispatch(cuda);
        ssize_t n = message_receive(DEVICE_SOCKET_FD, &packet, sizeof packet, &fd);

        if (n == 0 || (n >= (ssize_t)sizeof *command && command->kind == COMMAND_CLOSE))
            return 0;
        if (n == -EAGAIN || n == -EINTR) {
            r = command_wait(cuda, failure);
            if (r < 0)
                return r;
            continue;
        }
        if (n < (ssize_t)sizeof *command)
            return failure_set(failure, n < 0 ? (int)n : -EBADMSG, "its command socket: %s",
                               n < 0 ? strerror((int)-n) : "a packet of a wrong size");
        if (command_run(cuda, &packet, ((size_t)n - sizeof *command) / sizeof packet.pieces[0], fd,
                        failure) == 0)
            continue;
        struct failure lost;
        r = cuda_check(cuda, &lost);
        if (r < 0) {
            *failure = lost;
            return r;
        }
        command_failed(command, failure);
    }
}

static int serve(const char *uuid, uint64_t gather_max)
{
    struct device_reply opened = {.kind = REPLY_OPENED};
    struct failure failure = {0};
    struct cuda *cuda;
    int type = 0;
    socklen_t length = sizeof type;
    int r;

    if (getsockopt(DEVICE_SOCKET_FD, SOL_SOCKET, SO_TYPE, &type, &length) ||
        type != SOCK_SEQPACKET) {
        fprintf(stderr, "pinserved-device is started by pinserved, with a socket as fd %d\n",
                DEVICE_SOCKET_FD);
        return 2;
    }
    r = cuda_new(uuid, gather_max, &events, &cuda, &failure);
    if (r == 0) {
        reply_send(&opened, -1);
        r = serve_commands(cuda, &failure);
    }
    if (r < 0) {
        reply_failure(REPLY_FAILED, 0, &failure);
        /* Nothing of a lost context can be taken down in order: the kernel does it. */
        _exit(EXIT_FAILURE);
    }
    if (!cuda_free(cuda))
        _exit(EXIT_SUCCESS);
    return EXIT_SUCCESS;
}

/* -- the list --------------------------------------------------------------------------------- */

static void print_quoted(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        if ((unsigned char)*text >= ' ')
            putchar(*text);
    }
    putchar('"');
}

static void print_json(const struct cuda_device *devices, size_t n)
{
    printf("{\"devices\": [");
    for (size_t i = 0; i < n; i++) {
        const struct cuda_device *device = &devices[i];

        printf("%s\n  {\"uuid\": ", i ? "," : "");
        print_quoted(device->info.uuid);
        printf(", \"name\": ");
        print_quoted(device->info.name);
        printf(", \"pci\": ");
        print_quoted(device->info.pci);
        printf(", \"compute\": \"%d.%d\", \"memory\": %zu, \"fd\": %s, \"ipc\": %s}",
               device->compute_major, device->compute_minor, device->memory,
               device->can_export_fd ? "true" : "false", device->can_export_ipc ? "true" : "false");
    }
    printf("%s]}\n", n ? "\n" : "");
}

/* One line a device, its fields divided by tabs: what device_list reads. */
static void print_lines(const struct cuda_device *devices, size_t n)
{
    char memory[32];

    for (size_t i = 0; i < n; i++) {
        const struct cuda_device *device = &devices[i];

        printf("%s\t%s\t%s\tcompute %d.%d\t%s\tfd %s\tipc %s\n", device->info.uuid,
               device->info.pci, device->info.name, device->compute_major, device->compute_minor,
               units_format_bytes(device->memory, memory, sizeof memory),
               device->can_export_fd ? "yes" : "no", device->can_export_ipc ? "yes" : "no");
    }
}

static int list(bool json)
{
    static struct cuda_device devices[LIST_MAX];
    struct failure failure = {0};
    size_t n;

    if (cuda_list(devices, LIST_MAX, &n, &failure) < 0) {
        fprintf(stderr, "%s\n", failure.text);
        return EXIT_FAILURE;
    }
    if (n > LIST_MAX)
        n = LIST_MAX;
    if (json)
        print_json(devices, n);
    else
        print_lines(devices, n);
    return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* As a service the daemon hands CAP_SETUID and CAP_SETGID down to its programs. This one opens no
 * client's files, and loads a driver: it gives them up, for good. Root stays root. */
static int capabilities_drop(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};

    if (geteuid() == 0)
        return 0;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
        return -errno;
    return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}

static int usage(FILE *stream, int status)
{
    fprintf(stream, "usage: pinserved-device UUID [GATHER-MAX] | --list [--json] | --version\n");
    return status;
}

int main(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "";

    int r = capabilities_drop();
    if (r < 0) {
        fprintf(stderr, "pinserved-device: its capabilities cannot be given up: %s\n",
                strerror(-r));
        return EXIT_FAILURE;
    }
    log_init(LOG_LEVEL_INFO, LOG_LINES_PER_SECOND);
    if (!strcmp(first, "--version") && argc == 2)
        return printf("pinserved-device %s\n", PINSERVE_VERSION) < 0;
    if (!strcmp(first, "--help") && argc == 2)
        return usage(stdout, EXIT_SUCCESS);
    if (!strcmp(first, "--list") && argc == 2)
        return list(false);
    if (!strcmp(first, "--list") && argc == 3 && !strcmp(argv[2], "--json"))
        return list(true);
    if ((argc == 2 || argc == 3) && first[0] != '-' && strlen(first) < DEVICE_UUID_MAX && first[0])
        return serve(first, argc == 3 ? strtoull(argv[2], NULL, 10) : 0);
    return usage(stderr, 2);
}
