/*
 * The stand-in's IPC handles: see ipc.h. The listener is a thread, started by
 * the first export; it holds the lock while it gives an fd away.
 */
#include "ipc.h"

#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "driver.h"
#include "proto/cleanup.h"

#define HANDLE_MAGIC 0x70696e7365727665u

struct ipc_handle {
    uint64_t magic, secret, bytes, inode;
    int32_t pid, fd;
};

_Static_assert(sizeof(struct ipc_handle) <= CU_IPC_HANDLE_SIZE, "a handle fits the driver's");

static int listener = -1;
static uint64_t secret;

static socklen_t address_of(int32_t pid, uint64_t of_secret, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1,
                          "pinserve-driver-%d-%llx", pid, (unsigned long long)of_secret);

    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static void send_fd(int socket_fd, int fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    sendmsg(socket_fd, &message, MSG_NOSIGNAL);
}

/* The fd of a handle that is still the memory it was made for: numbers are reused. */
static bool is_current(const struct ipc_handle *handle)
{
    struct stat status;

    return handle->magic == HANDLE_MAGIC && handle->secret == secret &&
           !fstat(handle->fd, &status) && status.st_ino == handle->inode;
}

static void *listener_main(void *argument)
{
    (void)argument;
    for (;;) {
        cleanup_fd int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        struct ipc_handle handle;

        if (peer < 0)
            continue;
        if (recv(peer, &handle, sizeof handle, MSG_WAITALL) != sizeof handle)
            continue;
        pthread_mutex_lock(&driver_lock);
        if (is_current(&handle))
            send_fd(peer, handle.fd);
        pthread_mutex_unlock(&driver_lock);
    }
    return NULL;
}

static bool listener_start(void)
{
    struct sockaddr_un address;
    socklen_t length;
    pthread_t thread;

    if (listener >= 0)
        return true;
    if (getrandom(&secret, sizeof secret, 0) != sizeof secret)
        return false;
    length = address_of(getpid(), secret, &address);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) ||
        listen(listener, 64) || pthread_create(&thread, NULL, listener_main, NULL)) {
        close_fd(&listener);
        return false;
    }
    pthread_detach(thread);
    return true;
}

bool ipc_offer(int fd, size_t bytes, char *handle)
{
    struct ipc_handle made = {.magic = HANDLE_MAGIC, .bytes = bytes, .pid = getpid(), .fd = fd};
    struct stat status;

    if (!listener_start() || fstat(fd, &status))
        return false;
    made.secret = secret;
    made.inode = status.st_ino;
    memset(handle, 0, CU_IPC_HANDLE_SIZE);
    memcpy(handle, &made, sizeof made);
    return true;
}

bool ipc_is_own(const char *handle)
{
    struct ipc_handle given;

    memcpy(&given, handle, sizeof given);
    return given.pid == getpid();
}

int ipc_take(const char *handle, size_t *bytes_p)
{
    struct ipc_handle given;
    struct sockaddr_un address;
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    const struct cmsghdr *header;
    socklen_t length;
    int fd;

    memcpy(&given, handle, sizeof given);
    length = address_of(given.pid, given.secret, &address);
    cleanup_fd int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (given.magic != HANDLE_MAGIC || peer < 0 ||
        connect(peer, (struct sockaddr *)&address, length) ||
        send(peer, &given, sizeof given, MSG_NOSIGNAL) != sizeof given ||
        recvmsg(peer, &message, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_RIGHTS)
        return -1;
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    *bytes_p = given.bytes;
    return fd;
}
