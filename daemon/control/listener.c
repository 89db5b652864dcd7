/*
 * The listening socket. A lock beside it tells a live daemon from a stale file,
 * so that two daemons that start at once cannot both replace it.
 */
#include "control/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/peer.h"
#include "log.h"
#include "proto/cleanup.h"

#define LISTEN_BACKLOG 128
#define ACCEPTS_AT_ONCE 16

struct listener {
    struct server *server;
    int fd;
    int lock_fd; /* held as long as the socket is ours; -1: handed over */
    bool bound;  /* the file is ours to remove */
    bool paused; /* out of fds */
    char path[sizeof((struct sockaddr_un *)0)->sun_path + 1];
    uv_poll_t *poll;
};

/* What a client did is no error. Out of fds, accepting rests until listener_resume: the socket
 * stays readable, and polling it would only burn the loop. */
static void listener_on_poll(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR)
                return;
            log_error("socket %s: accept: %s", listener->path, strerror(errno));
            listener->paused = true;
            uv_poll_stop(poll);
            server_wake(listener->server); /* the tick resumes it */
            return;
        }
        peer_new(listener->server, fd);
    }
}

static int path_lock(const char *path, int *lock_p, struct failure *failure)
{
    char name[sizeof((struct listener *)0)->path + 8];

    snprintf(name, sizeof name, "%s.lock", path);
    cleanup_fd int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return failure_set(failure, -errno, "socket %s: its lock %s: %s", path, name,
                           strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return failure_set(failure, -EADDRINUSE, "socket %s: a daemon serves it already", path);
    *lock_p = steal_fd(&fd);
    return 0;
}

/* Removes what a daemon that died left; keeps everything else. */
static int path_clear(const char *path, struct failure *failure)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT
                   ? 0
                   : failure_set(failure, -errno, "socket %s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return failure_set(failure, -EEXIST, "socket %s: there is something that is no socket",
                           path);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    cleanup_fd int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return failure_set(failure, -errno, "socket %s: %s", path, strerror(errno));
    if (connect(probe, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN ||
        errno == EPROTOTYPE)
        return failure_set(failure, -EADDRINUSE, "socket %s: a daemon serves it already", path);
    if (unlink(path) < 0 && errno != ENOENT)
        return failure_set(failure, -errno, "socket %s: %s", path, strerror(errno));
    return 0;
}

/* The mode is set on the file before anybody can connect: listen comes after. */
static int path_grant(const char *path, const struct config *config, struct failure *failure)
{
    if (config->socket_group[0]) {
        const struct group *group = getgrnam(config->socket_group);
        if (!group)
            return failure_set(failure, -EINVAL, "daemon.socket_group: no group '%s'",
                               config->socket_group);
        if (lchown(path, (uid_t)-1, group->gr_gid) < 0)
            return failure_set(failure, -errno, "socket %s: group %s: %s", path,
                               config->socket_group, strerror(errno));
    }
    if (chmod(path, config->socket_mode) < 0)
        return failure_set(failure, -errno, "socket %s: mode %o: %s", path,
                           (unsigned)config->socket_mode, strerror(errno));
    return 0;
}

static int listener_bind(struct listener *listener, const char *path, struct failure *failure)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof address.sun_path)
        return failure_set(failure, -ENAMETOOLONG, "socket %s: %zu bytes, at most %zu are possible",
                           path, strlen(path), sizeof address.sun_path - 1);
    snprintf(listener->path, sizeof listener->path, "%s", path);
    memcpy(address.sun_path, path, strlen(path));
    int r = path_lock(path, &listener->lock_fd, failure);
    if (r == 0)
        r = path_clear(path, failure);
    if (r < 0)
        return r;
    listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0 || bind(listener->fd, (struct sockaddr *)&address, sizeof address) < 0)
        return failure_set(failure, -errno, "socket %s: %s", path, strerror(errno));
    listener->bound = true;
    r = path_grant(path, listener->server->config, failure);
    if (r < 0)
        return r;
    if (listen(listener->fd, LISTEN_BACKLOG) < 0)
        return failure_set(failure, -errno, "socket %s: %s", path, strerror(errno));
    return 0;
}

int listener_new(struct server *server, const struct server_socket *socket, struct failure *failure)
{
    struct listener *listener = calloc(1, sizeof *listener);

    if (!listener)
        return failure_set(failure, -ENOMEM, "no memory for the listening socket");
    listener->server = server;
    listener->fd = listener->lock_fd = -1;
    server->listener = listener;
    if (socket->fd_consume >= 0) {
        struct sockaddr_un address = {0};
        socklen_t size = sizeof address;
        listener->fd = socket->fd_consume;
        getsockname(listener->fd, (struct sockaddr *)&address, &size);
        snprintf(listener->path, sizeof listener->path, "%.*s", (int)sizeof address.sun_path,
                 address.sun_path);
        fcntl(listener->fd, F_SETFL, fcntl(listener->fd, F_GETFL) | O_NONBLOCK);
        return 0;
    }
    return listener_bind(listener, socket->path, failure);
}

void listener_start(struct listener *listener)
{
    listener->poll = calloc(1, sizeof *listener->poll);
    if (!listener->poll || uv_poll_init(&listener->server->loop, listener->poll, listener->fd)) {
        log_error("socket %s: cannot be polled", listener->path);
        free(listener->poll);
        listener->poll = NULL;
        return;
    }
    listener->poll->data = listener;
    uv_poll_start(listener->poll, UV_READABLE, listener_on_poll);
}

void listener_resume(struct listener *listener)
{
    if (listener->poll && listener->paused)
        uv_poll_start(listener->poll, UV_READABLE, listener_on_poll);
    listener->paused = false;
}

static void listener_on_closed(uv_handle_t *handle)
{
    free(handle);
}

void listener_free(struct listener *listener)
{
    if (!listener)
        return;
    if (listener->poll)
        uv_close((uv_handle_t *)listener->poll, listener_on_closed);
    if (listener->bound)
        unlink(listener->path);
    if (listener->lock_fd >= 0) {
        char name[sizeof listener->path + 8];
        snprintf(name, sizeof name, "%s.lock", listener->path);
        unlink(name);
    }
    close_fd(&listener->fd);
    close_fd(&listener->lock_fd);
    free(listener);
}

const char *listener_path(const struct listener *listener)
{
    return listener->path;
}
