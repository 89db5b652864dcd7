/*
 * Packets with at most one fd beside them: what both ends of the socket share.
 */
#include "device/message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int message_send(int socket, const void *data, size_t bytes, int fd)
{
    struct iovec content = {(void *)(uintptr_t)data, bytes};
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct msghdr message = {.msg_iov = &content, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    if (sendmsg(socket, &message, MSG_NOSIGNAL) >= 0)
        return 0;
    return errno == EPIPE || errno == ECONNRESET ? 0 : -errno;
}

ssize_t message_receive(int socket, void *data, size_t size, int *fd_p)
{
    struct iovec content = {data, size};
    char control[CMSG_SPACE(sizeof *fd_p)];
    struct msghdr message = {.msg_iov = &content,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    const struct cmsghdr *header;
    ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *fd_p = -1;
    if (n < 0 && errno == ECONNRESET) {
        /* The other end went with packets unread, which is said once, before what it had sent. */
        message.msg_controllen = sizeof control;
        n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    }
    if (n < 0)
        return errno == ECONNRESET ? 0 : -errno;
    header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(fd_p, CMSG_DATA(header), sizeof *fd_p);
    return n;
}
