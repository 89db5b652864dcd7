/*
 * A GPU, served by pinserved-device in a process of its own. The object outlives
 * its processes: each open starts one, and lost tells of its end, after every
 * reply that it still sent.
 *
 * Its commands are in process_commands.c. The process is told by its pidfd, never
 * by its number.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/process.h"
#include "proto/cleanup.h"

#define DISPATCH_MAX 256 /* events of one dispatch */

/* -- starting it ------------------------------------------------------------------------------ */

/* The process gets its socket, nothing to read, the log if wanted, and no other file of ours. */
static int spawn_set_files(posix_spawn_file_actions_t *actions, int socket, bool keep_stderr)
{
    int r = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

    if (!r)
        r = posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (!r && !keep_stderr)
        r = posix_spawn_file_actions_addopen(actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!r)
        r = posix_spawn_file_actions_adddup2(actions, socket, DEVICE_SOCKET_FD);
    if (!r)
        r = posix_spawn_file_actions_addclosefrom_np(actions, DEVICE_SOCKET_FD + 1);
    return r;
}

/* Signals as a program expects them, and a group of its own: the terminal's are for the daemon. */
static int spawn_set_signals(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    int r;

    sigemptyset(&none);
    sigfillset(&all);
    r = posix_spawnattr_setsigmask(attributes, &none);
    if (!r)
        r = posix_spawnattr_setsigdefault(attributes, &all);
    if (!r)
        r = posix_spawnattr_setpgroup(attributes, 0);
    if (!r)
        r = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                     POSIX_SPAWN_SETPGROUP);
    return r;
}

static int process_spawn(const struct process *process, int socket, pid_t *pid_p)
{
    char gather_max[24];
    char *const argv[] = {process->program, (char *)(uintptr_t)process->device.info.uuid,
                          gather_max, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int r = posix_spawn_file_actions_init(&actions);

    if (r)
        return -r;
    snprintf(gather_max, sizeof gather_max, "%" PRIu64, process->gather_max);
    r = posix_spawnattr_init(&attributes);
    if (r)
        goto err_actions;
    r = spawn_set_files(&actions, socket, process->keep_stderr);
    if (!r)
        r = spawn_set_signals(&attributes);
    if (!r)
        r = posix_spawn(pid_p, process->program, &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
err_actions:
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

static int process_open(struct device *device, struct failure *failure)
{
    struct process *process = process_of(device);
    int sockets[2], r;

    if (process->up)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets)) {
        r = -errno;
        return failure_set(failure, r, "device %s: no socket: %s", device->info.uuid, strerror(-r));
    }
    cleanup_fd int ours = sockets[0], theirs = sockets[1];
    /* Of the two descriptions only ours is non-blocking. */
    if (fcntl(ours, F_SETFL, O_NONBLOCK))
        return failure_set(failure, -errno, "device %s: its socket: %s", device->info.uuid,
                           strerror(errno));
    r = process_spawn(process, theirs, &process->pid);
    if (r < 0)
        return failure_set(failure, r, "device %s: %s cannot be started: %s", device->info.uuid,
                           process->program, strerror(-r));
    process->pidfd = pidfd_open(process->pid, 0);
    if (process->pidfd < 0) {
        r = -errno;
        kill(process->pid, SIGKILL);
        waitpid(process->pid, NULL, 0);
        return failure_set(failure, r, "device %s: pidfd_open: %s", device->info.uuid,
                           strerror(-r));
    }
    process->socket = steal_fd(&ours);
    process->last_words = (struct failure){0};
    process->up = true;
    return 0;
}

/* -- its end ---------------------------------------------------------------------------------- */

/* From here the fd number is kept, but nothing comes by it: the end of a process that has closed
 * its socket can still take a while, and its pidfd says when. */
static void process_hang_up(struct process *process)
{
    cleanup_fd int silent = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    process->ended = true;
    if (silent >= 0)
        dup3(silent, process->socket, O_CLOEXEC);
    commands_drop(process);
}

static void describe_end(const struct process *process, const siginfo_t *end,
                         struct failure *failure)
{
    const char *uuid = process->device.info.uuid;

    if (process->last_words.code < 0)
        failure_set(failure, process->last_words.code, "device %s: %.400s", uuid,
                    process->last_words.text);
    else if (end->si_code != CLD_EXITED)
        failure_set(failure, -EIO, "device %s: its process %d was killed by signal %d (%s)", uuid,
                    (int)process->pid, end->si_status, strsignal(end->si_status));
    else if (end->si_status)
        failure_set(failure, -EIO, "device %s: its process %d ended with status %d", uuid,
                    (int)process->pid, end->si_status);
    else if (!process->closing)
        failure_set(failure, -EIO, "device %s: its process %d ended unasked", uuid,
                    (int)process->pid);
    else
        failure_set(failure, 0, "device %s: closed", uuid);
}

/* Reaps the process if it has ended, and tells. The event may open the device again, so the old fds
 * are closed behind it. */
static void process_reap(struct process *process)
{
    struct failure failure = {0};
    siginfo_t end = {0};

    if (waitid(P_PIDFD, (id_t)process->pidfd, &end, WEXITED | WNOHANG) || !end.si_pid)
        return;
    if (!process->ended)
        process_hang_up(process);
    describe_end(process, &end, &failure);
    int socket = steal_fd(&process->socket), pidfd = steal_fd(&process->pidfd);
    process->up = process->closing = process->ended = false;
    process->device.events->lost(process->device.user, &failure);
    close(socket);
    close(pidfd);
}

/* -- replies ---------------------------------------------------------------------------------- */

static void ring_made(const struct process *process, const struct device_reply *reply, int fd)
{
    const struct device_events *events = process->device.events;
    void *user = process->device.user;
    struct failure failure;

    if (reply->has_fd && fd < 0) {
        failure_set(&failure, -EMFILE, "device %s: the fd of a ring was lost: too many open files",
                    process->device.info.uuid);
        events->ring_failed(user, reply->id, false, &failure);
    } else {
        events->ring_made(user, reply->id, fd, reply->has_fd ? NULL : reply->ipc_handle);
    }
}

static void reply_handle(struct process *process, const struct device_reply *reply, int fd_consume)
{
    const struct device_events *events = process->device.events;
    void *user = process->device.user;
    cleanup_fd int fd = fd_consume;
    struct failure failure = {0};

    if (reply->code < 0)
        failure_set(&failure, reply->code, "device %s: %.400s", process->device.info.uuid,
                    reply->text);
    switch (reply->kind) {
    case REPLY_OPENED:
        events->opened(user);
        break;
    case REPLY_RING_MADE:
        ring_made(process, reply, steal_fd(&fd));
        break;
    case REPLY_RING_FAILED:
        events->ring_failed(user, reply->id, reply->unsupported, &failure);
        break;
    case REPLY_COPIED:
        events->copied(user, reply->id, reply->code < 0 ? &failure : NULL);
        break;
    case REPLY_FILE_READY:
        events->file_ready(user, (uint32_t)reply->id, reply->code < 0 ? &failure : NULL);
        break;
    case REPLY_REGISTERED:
        events->registered(user, reply->id);
        break;
    case REPLY_FAILED:
        failure_set(&process->last_words, reply->code, "%s", reply->text);
        break;
    default:
        break;
    }
}

static void process_dispatch(struct device *device)
{
    struct process *process = process_of(device);

    if (!process->up)
        return;
    commands_flush(process);
    for (int n = 0; n < DISPATCH_MAX && !process->ended; n++) {
        struct device_reply reply;
        int fd;
        ssize_t bytes = message_receive(process->socket, &reply, sizeof reply, &fd);

        if (bytes == -EAGAIN)
            break;
        if (bytes == -EINTR)
            continue;
        if (bytes <= (ssize_t)offsetof(struct device_reply, text)) {
            close_fd(&fd);
            process_hang_up(process);
            break;
        }
        ((char *)&reply)[bytes - 1] = '\0';
        reply_handle(process, &reply, fd);
    }
    if (process->ended)
        process_reap(process);
}

static int process_get_fd(struct device *device)
{
    return process_of(device)->socket;
}

static bool process_wants_write(struct device *device)
{
    return !list_empty(&process_of(device)->pending);
}

static int process_get_pidfd(struct device *device)
{
    return process_of(device)->pidfd;
}

static void process_free(struct device *device)
{
    struct process *process = process_of(device);

    commands_drop(process);
    if (process->up) {
        siginfo_t end;

        pidfd_send_signal(process->pidfd, SIGKILL, NULL, 0);
        while (waitid(P_PIDFD, (id_t)process->pidfd, &end, WEXITED) && errno == EINTR)
            ;
    }
    close_fd(&process->socket);
    close_fd(&process->pidfd);
    free(process->program);
    free(process);
}

static const struct device_ops process_ops = {
    .kind = "cuda",
    .has_ring = true,
    .open = process_open,
    .get_fd = process_get_fd,
    .wants_write = process_wants_write,
    .get_pidfd = process_get_pidfd,
    .dispatch = process_dispatch,
    .add_region = process_add_region,
    .remove_region = process_remove_region,
    .make_ring = process_make_ring,
    .free_ring = process_free_ring,
    .copy = process_copy,
    .add_file = process_add_file,
    .remove_file = process_remove_file,
    .gather = process_gather,
    .close = process_close,
    .free = process_free,
};

int device_process_new(const struct device_process_spec *spec, const struct device_info *info,
                       const struct device_events *events, void *user, struct device **device_p)
{
    struct process *process = calloc(1, sizeof *process);

    if (!process)
        return -ENOMEM;
    process->program = strdup(spec->program);
    if (!process->program) {
        free(process);
        return -ENOMEM;
    }
    process->keep_stderr = spec->keep_stderr;
    process->gather_max = spec->gather_max;
    process->socket = process->pidfd = -1;
    list_init(&process->pending);
    process->device =
        (struct device){.ops = &process_ops, .info = *info, .events = events, .user = user};
    *device_p = &process->device;
    return 0;
}
