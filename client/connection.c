/*
 * A connection to the daemon. The connection owns its socket and the daemon's
 * Hello. After an error that ended it every call fails again: who reconnects
 * makes another one.
 */
#include "connection.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "handle.h"
#include "proto/cleanup.h"
#include "proto/limits.h"

#define SYSTEM_SOCKET "/run/pinserve/pinserve.sock"
#define USER_SOCKET "pinserve.sock"
#define AHEAD_MAX 8

struct connection {
    int socket;
    uint64_t last_id;
    struct wire_packet hello;
    struct wire_packet ahead[AHEAD_MAX]; /* received, and not asked for yet: a circle */
    unsigned ahead_first, n_ahead;
    bool gone;
    int ahead_error;                    /* what ended the reading ahead; 0: nothing did */
    char goodbye[FAILURE_TEXT_MAX / 2]; /* why the daemon ended it, in its words; or "" */
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
};

int64_t connection_clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int connection_code(int32_t code)
{
    return code < 0 && code > -4096 ? code : -EIO;
}

const Pinserve__Hello *connection_hello(const struct connection *connection)
{
    return connection->hello.message->hello;
}

const char *connection_path(const struct connection *connection)
{
    return connection->path;
}

int connection_socket(const struct connection *connection)
{
    return connection->socket;
}

bool connection_is_gone(const struct connection *connection)
{
    return connection->gone;
}

uint64_t connection_next_id(struct connection *connection)
{
    return ++connection->last_id;
}

static int path_copy(const char *path, char *copy, size_t size, struct failure *failure)
{
    size_t length = strlen(path);

    if (length == 0)
        return failure_set(failure, -ENOENT, "the path of the daemon's socket is empty");
    if (length >= size)
        return failure_set(failure, -ENAMETOOLONG,
                           "socket %s: a path of %zu bytes, and the system allows %zu", path,
                           length, size - 1);
    memcpy(copy, path, length + 1);
    return 0;
}

/* The first of the usual places that is there. */
static int path_find(char *copy, size_t size, struct failure *failure)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    const char *path = getenv("PINSERVE_SOCKET");
    char user[4096] = "";

    if (path && *path)
        return path_copy(path, copy, size, failure);
    if (access(SYSTEM_SOCKET, F_OK) == 0 || errno == EACCES)
        return path_copy(SYSTEM_SOCKET, copy, size, failure);
    if (runtime && *runtime) {
        snprintf(user, sizeof user, "%s/%s", runtime, USER_SOCKET);
        if (access(user, F_OK) == 0)
            return path_copy(user, copy, size, failure);
        return failure_set(failure, -ENOENT,
                           "no daemon: neither " SYSTEM_SOCKET " nor %s is there, and "
                           "PINSERVE_SOCKET names no other",
                           user);
    }
    return failure_set(failure, -ENOENT,
                       "no daemon: " SYSTEM_SOCKET " is not there, and PINSERVE_SOCKET names no "
                       "other");
}

/* Says who may connect, so that an outsider knows what to ask for. */
static int path_denied(const char *path, struct failure *failure)
{
    struct stat st;
    struct group entry, *group = NULL;
    char buffer[4096];
    char name[64];

    if (stat(path, &st) < 0)
        return failure_set(failure, -EACCES,
                           "socket %s: permission denied: this user may not look into its "
                           "directory",
                           path);
    if (getgrgid_r(st.st_gid, &entry, buffer, sizeof buffer, &group) == 0 && group)
        snprintf(name, sizeof name, "\"%.48s\"", group->gr_name);
    else
        snprintf(name, sizeof name, "number %u", (unsigned)st.st_gid);
    return failure_set(failure, -EACCES,
                       "socket %s: permission denied: it is for its owner and members of group %s "
                       "(mode %04o)",
                       path, name, (unsigned)st.st_mode & 07777);
}

static int connection_connect(struct connection *connection, struct failure *failure)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cleanup_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int r;

    if (fd < 0)
        return failure_set(failure, -errno, "no socket: %s", strerror(errno));
    memcpy(address.sun_path, connection->path, sizeof address.sun_path);
    do {
        r = connect(fd, (struct sockaddr *)&address, sizeof address);
    } while (r < 0 && errno == EINTR);
    if (r < 0) {
        switch (errno) {
        case ENOENT:
            return failure_set(failure, -ENOENT, "no daemon: socket %s is not there",
                               connection->path);
        case ECONNREFUSED:
        case ENOTSOCK:
            return failure_set(failure, -ECONNREFUSED, "no daemon: nobody listens on %s",
                               connection->path);
        case EACCES:
            return path_denied(connection->path, failure);
        case EPROTOTYPE:
            return failure_set(failure, -ECONNREFUSED,
                               "no daemon: socket %s is of another type, not of pinserved",
                               connection->path);
        default:
            return failure_set(failure, -errno, "socket %s: %s", connection->path, strerror(errno));
        }
    }
    connection->socket = steal_fd(&fd);
    return 0;
}

static int hello_send(struct connection *connection, unsigned can, struct failure *failure)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Hello hello = PINSERVE__HELLO__INIT;
    char program[128];
    char *capabilities[6];
    size_t n = 0;

    if (can & CONNECTION_CAN_FD)
        capabilities[n++] = "fd";
    if (can & CONNECTION_CAN_IPC)
        capabilities[n++] = "ipc";
    if (can & CONNECTION_CAN_COPY)
        capabilities[n++] = "copy";
    capabilities[n++] = "host";
    if (can & CONNECTION_CAN_MAPPED)
        capabilities[n++] = "mapped";
    if (can & CONNECTION_IS_COHERENT)
        capabilities[n++] = "coherent";
    snprintf(program, sizeof program, "%.64s, libpinclient " PINCLIENT_VERSION,
             program_invocation_short_name);
    hello.major = PROTOCOL_MAJOR;
    hello.minor_min = PROTOCOL_MINOR_MIN;
    hello.minor_max = PROTOCOL_MINOR_MAX;
    hello.program = program;
    hello.capabilities = capabilities;
    hello.n_capabilities = n;
    message.id = connection_next_id(connection);
    message.body_case = PINSERVE__MESSAGE__BODY_HELLO;
    message.hello = &hello;
    return connection_send(connection, &message, NULL, 0, failure);
}

static int hello_check(const struct connection *connection, const Pinserve__Message *message,
                       struct failure *failure)
{
    const Pinserve__Hello *hello = message->hello;
    const uint32_t oldest = PROTOCOL_MINOR_MIN, newest = PROTOCOL_MINOR_MAX;

    if (message->body_case == PINSERVE__MESSAGE__BODY_ERROR)
        return failure_set(failure, connection_code(message->error->code), "%s",
                           message->error->text);
    if (message->body_case != PINSERVE__MESSAGE__BODY_HELLO)
        return failure_set(failure, -EPROTO, "the daemon at %s did not begin with its Hello",
                           connection->path);
    if (hello->major != PROTOCOL_MAJOR || hello->minor_min > newest || hello->minor_max < oldest)
        return failure_set(failure, -EPROTONOSUPPORT,
                           "the daemon at %s (%s) speaks protocol %u.%u to %u.%u, this library "
                           "%d.%d to %d.%d",
                           connection->path, hello->program, hello->major, hello->minor_min,
                           hello->major, hello->minor_max, PROTOCOL_MAJOR, PROTOCOL_MINOR_MIN,
                           PROTOCOL_MAJOR, PROTOCOL_MINOR_MAX);
    if (!hello->limits)
        return failure_set(failure, -EPROTO, "the daemon at %s did not name its limits",
                           connection->path);
    return 0;
}

static void connection_close_p(struct connection **connection)
{
    connection_close(*connection);
}

int connection_open_for(const char *socket, unsigned can, struct connection **connection_p,
                        struct failure *failure)
{
    cleanup(connection_close_p) struct connection *connection = calloc(1, sizeof *connection);
    int r;

    if (!connection)
        return failure_set(failure, -ENOMEM, "no memory for a connection");
    connection->socket = -1;
    if (socket)
        r = path_copy(socket, connection->path, sizeof connection->path, failure);
    else
        r = path_find(connection->path, sizeof connection->path, failure);
    if (r == 0)
        r = connection_connect(connection, failure);
    if (r == 0)
        r = hello_send(connection, can, failure);
    if (r == 0)
        r = connection_receive_until(connection, connection_clock_ms() + CONNECTION_ANSWER_MS,
                                     &connection->hello, failure);
    if (r == 0)
        r = hello_check(connection, connection->hello.message, failure);
    if (r < 0)
        return r;
    *connection_p = steal_ptr(connection);
    return 0;
}

int connection_open(const char *socket, struct connection **connection_p, struct failure *failure)
{
    return connection_open_for(socket, 0, connection_p, failure);
}

void connection_close(struct connection *connection)
{
    if (!connection)
        return;
    wire_packet_deinit(&connection->hello);
    for (; connection->n_ahead > 0; connection->n_ahead--) {
        wire_packet_deinit(&connection->ahead[connection->ahead_first]);
        connection->ahead_first = (connection->ahead_first + 1) % AHEAD_MAX;
    }
    close_fd(&connection->socket);
    free(connection);
}

static int connection_gone(struct connection *connection, struct failure *failure)
{
    connection->gone = true;
    if (*connection->goodbye)
        return failure_set(failure, -EPIPE, "the daemon at %s is gone: %s", connection->path,
                           connection->goodbye);
    return failure_set(failure, -EPIPE, "the daemon at %s is gone", connection->path);
}

/* Keeps what the daemon says on leaving: the end of the connection follows. */
static void connection_note(struct connection *connection, const Pinserve__Message *message)
{
    const char *text = NULL;

    if (message->body_case == PINSERVE__MESSAGE__BODY_GOODBYE)
        text = message->goodbye->text;
    else if (message->body_case == PINSERVE__MESSAGE__BODY_ERROR && message->id == 0)
        text = message->error->text;
    if (text)
        snprintf(connection->goodbye, sizeof connection->goodbye, "%s", text);
}

/* The last words of a daemon that takes no more messages may still lie in the socket. */
static int connection_last_words(struct connection *connection, struct failure *failure)
{
    struct wire_packet packet = WIRE_PACKET_INIT;

    while (connection_receive(connection, MSG_DONTWAIT, &packet, NULL) == 0)
        wire_packet_deinit(&packet);
    return connection_gone(connection, failure);
}

int connection_post(const struct connection *connection, const Pinserve__Message *message)
{
    return wire_send(connection->socket, message, NULL, 0, 0);
}

int connection_send(struct connection *connection, const Pinserve__Message *message, const int *fds,
                    size_t n_fds, struct failure *failure)
{
    int r = wire_send(connection->socket, message, fds, n_fds, 0);

    if (r == -EPIPE || r == -ECONNRESET)
        return connection_last_words(connection, failure);
    if (r == -EMSGSIZE)
        return failure_set(failure, r, "a message to the daemon is over %d bytes", MESSAGE_MAX);
    if (r == -ETOOMANYREFS)
        return failure_set(failure, r,
                           "too many file descriptors of this user are on their way through "
                           "sockets");
    if (r < 0)
        return failure_set(failure, r, "cannot send to the daemon at %s: %s", connection->path,
                           strerror(-r));
    return 0;
}

void connection_read_ahead(struct connection *connection)
{
    while (connection->n_ahead < AHEAD_MAX && connection->ahead_error == 0) {
        unsigned last = (connection->ahead_first + connection->n_ahead) % AHEAD_MAX;
        int r = wire_receive(connection->socket, &connection->ahead[last], MSG_DONTWAIT);
        if (r == 0)
            connection->n_ahead++;
        else if (r == -EAGAIN || r == -EINTR || r == -EPIPE)
            return; /* the end of a connection is told again */
        else
            connection->ahead_error = r;
    }
}

bool connection_has_ahead(const struct connection *connection)
{
    return connection->n_ahead > 0 || connection->ahead_error < 0;
}

static int connection_take_ahead(struct connection *connection, struct wire_packet *packet)
{
    if (connection->n_ahead == 0) {
        int r = connection->ahead_error;
        connection->ahead_error = 0;
        return r;
    }
    *packet = connection->ahead[connection->ahead_first];
    connection->ahead_first = (connection->ahead_first + 1) % AHEAD_MAX;
    connection->n_ahead--;
    return 0;
}

int connection_receive(struct connection *connection, int flags, struct wire_packet *packet,
                       struct failure *failure)
{
    int r;

    if (connection_has_ahead(connection)) {
        r = connection_take_ahead(connection, packet);
    } else {
        r = wire_receive(connection->socket, packet, flags);
        /* A reset comes before what still lies in the socket; the end comes twice. */
        if (r == -EPIPE)
            r = wire_receive(connection->socket, packet, flags);
    }
    if (r == 0) {
        connection_note(connection, packet->message);
        return 0;
    }
    if (r == -EAGAIN || r == -EINTR)
        return r;
    if (r == -EPIPE)
        return connection_gone(connection, failure);
    if (r == -EBADMSG)
        return failure_set(failure, -EPROTO,
                           "the daemon at %s sent what is no message of the protocol",
                           connection->path);
    return failure_set(failure, r, "cannot receive from the daemon at %s: %s", connection->path,
                       strerror(-r));
}

int connection_receive_until(struct connection *connection, int64_t deadline_ms,
                             struct wire_packet *packet, struct failure *failure)
{
    for (;;) {
        int r = connection_receive(connection, MSG_DONTWAIT, packet, failure);
        if (r != -EAGAIN && r != -EINTR)
            return r;
        int64_t left = deadline_ms - connection_clock_ms();
        if (left <= 0)
            return failure_set(failure, -ETIMEDOUT, "the daemon at %s does not answer",
                               connection->path);
        struct pollfd pollfd = {.fd = connection->socket, .events = POLLIN};
        if (poll(&pollfd, 1, (int)left) < 0 && errno != EINTR)
            return failure_set(failure, -errno, "poll: %s", strerror(errno));
    }
}

int connection_call(struct connection *connection, Pinserve__Message *request, const int *fds,
                    size_t n_fds, struct wire_packet *reply, struct failure *failure)
{
    struct wire_packet packet = WIRE_PACKET_INIT;
    int64_t deadline = connection_clock_ms() + CONNECTION_ANSWER_MS;

    request->id = connection_next_id(connection);
    int r = connection_send(connection, request, fds, n_fds, failure);
    if (r < 0)
        return r;
    for (;;) {
        r = connection_receive_until(connection, deadline, &packet, failure);
        if (r < 0 || !packet.message)
            return r < 0 ? r : -EPROTO;
        if (packet.message->body_case == PINSERVE__MESSAGE__BODY_ERROR) {
            const Pinserve__Error *error = packet.message->error;
            r = failure_set(failure, connection_code(error->code), "%s", error->text);
            wire_packet_deinit(&packet);
            return r;
        }
        if (packet.message->id == request->id)
            break;
        wire_packet_deinit(&packet);
    }
    *reply = packet;
    return 0;
}
