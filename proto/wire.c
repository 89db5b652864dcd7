/*
 * Packets on a SOCK_SEQPACKET socket. The buffer is on the stack: MESSAGE_MAX
 * bounds it, and a batch must cost no allocation but protobuf's own.
 */
#include "wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void wire_packet_deinit(struct wire_packet *packet)
{
    for (size_t i = 0; i < packet->n_fds; i++) {
        if (packet->fds[i] >= 0)
            close(packet->fds[i]);
    }
    packet->n_fds = 0;
    if (packet->message)
        pinserve__message__free_unpacked(packet->message, NULL);
    packet->message = NULL;
}

int wire_take_fd(struct wire_packet *packet, size_t i)
{
    if (i >= packet->n_fds)
        return -1;
    int fd = packet->fds[i];
    packet->fds[i] = -1;
    return fd;
}

int wire_send_bytes(int socket, const void *bytes, size_t size, const int *fds, size_t n_fds,
                    int flags)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * MESSAGE_FDS_MAX)];
    } control;
    struct iovec iov = {.iov_base = (void *)bytes, .iov_len = size};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    if (size > MESSAGE_MAX || n_fds > MESSAGE_FDS_MAX)
        return -EMSGSIZE;
    if (n_fds > 0) {
        memset(&control, 0, sizeof control);
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * n_fds);
    }

    ssize_t sent;
    do {
        sent = sendmsg(socket, &header, flags | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

int wire_send(int socket, const Pinserve__Message *message, const int *fds, size_t n_fds, int flags)
{
    uint8_t bytes[MESSAGE_MAX];
    size_t size = pinserve__message__get_packed_size(message);

    if (size > sizeof bytes)
        return -EMSGSIZE;
    pinserve__message__pack(message, bytes);
    return wire_send_bytes(socket, bytes, size, fds, n_fds, flags);
}

/* Takes the fds out of the control data; more than there is room for are closed by the kernel. */
static void packet_take_fds(struct wire_packet *packet, struct msghdr *header)
{
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(header); cmsg; cmsg = CMSG_NXTHDR(header, cmsg)) {
        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        const unsigned char *data = CMSG_DATA(cmsg);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, data + i * sizeof(int), sizeof fd);
            if (packet->n_fds < MESSAGE_FDS_MAX)
                packet->fds[packet->n_fds++] = fd;
            else
                close(fd);
        }
    }
}

int wire_receive_keep(int socket, struct wire_packet *packet, int flags)
{
    uint8_t bytes[MESSAGE_MAX];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * MESSAGE_FDS_MAX)];
    } control;
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof control};

    packet->message = NULL;
    packet->n_fds = 0;
    ssize_t size = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
    if (size < 0)
        return errno == ECONNRESET ? -EPIPE : -errno;
    packet_take_fds(packet, &header);
    if (size == 0 && packet->n_fds == 0)
        return -EPIPE;
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 && size > 0)
        packet->message = pinserve__message__unpack(NULL, (size_t)size, bytes);
    if (!packet->message || packet->message->body_case == PINSERVE__MESSAGE__BODY__NOT_SET)
        return -EBADMSG;
    return 0;
}

int wire_receive(int socket, struct wire_packet *packet, int flags)
{
    int r = wire_receive_keep(socket, packet, flags);

    if (r < 0)
        wire_packet_deinit(packet);
    return r;
}
