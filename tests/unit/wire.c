/*
 * Packets: messages and fds arrive as sent; whatever else is on the socket
 * leaves no fd behind.
 */
#include "proto/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "temp_dir.h"

#define MANY_FDS 253 /* as many as the kernel takes in one packet */

struct pair {
    int here, there;
    int fds_before;
};

static int pair_init(void **state)
{
    struct pair *pair = malloc(sizeof *pair);
    int fds[2];

    if (!pair || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return -1;
    *pair = (struct pair){.here = fds[0], .there = fds[1], .fds_before = open_fds()};
    *state = pair;
    return 0;
}

static int pair_deinit(void **state)
{
    struct pair *pair = *state;
    int leaked = open_fds() - pair->fds_before;

    close(pair->here);
    if (pair->there >= 0)
        close(pair->there);
    else
        leaked++;
    free(pair);
    return leaked;
}

static void goodbye_send(int socket, const int *fds, size_t n_fds)
{
    Pinserve__Goodbye goodbye = PINSERVE__GOODBYE__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    char text[] = "so long";

    goodbye.text = text;
    message.body_case = PINSERVE__MESSAGE__BODY_GOODBYE;
    message.goodbye = &goodbye;
    assert_int_equal(wire_send(socket, &message, fds, n_fds, 0), 0);
}

static void raw_send(int socket, const void *bytes, size_t size, size_t n_fds)
{
    char control[CMSG_SPACE(sizeof(int) * MANY_FDS)] = {0};
    struct iovec iov = {.iov_base = (void *)bytes, .iov_len = size};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

    if (n_fds > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        for (size_t i = 0; i < n_fds; i++)
            memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &socket, sizeof socket);
    }
    assert_int_equal(sendmsg(socket, &header, MSG_NOSIGNAL), size);
}

static void bad_packet(struct pair *pair)
{
    struct wire_packet packet = WIRE_PACKET_INIT;

    assert_int_equal(wire_receive(pair->there, &packet, 0), -EBADMSG);
    assert_null(packet.message);
    assert_int_equal(packet.n_fds, 0);
    assert_int_equal(open_fds(), pair->fds_before);
}

static void carries_a_message(void **state)
{
    struct pair *pair = *state;
    struct wire_packet packet = WIRE_PACKET_INIT;

    goodbye_send(pair->here, NULL, 0);
    assert_int_equal(wire_receive(pair->there, &packet, 0), 0);
    assert_int_equal(packet.message->body_case, PINSERVE__MESSAGE__BODY_GOODBYE);
    assert_string_equal(packet.message->goodbye->text, "so long");
    assert_int_equal(packet.n_fds, 0);
    assert_int_equal(wire_take_fd(&packet, 0), -1);
    wire_packet_deinit(&packet);
}

static void carries_fds(void **state)
{
    struct pair *pair = *state;
    struct wire_packet packet = WIRE_PACKET_INIT;
    int fds[MESSAGE_FDS_MAX];
    struct stat sent;
    struct stat received;

    for (size_t i = 0; i < MESSAGE_FDS_MAX; i++)
        fds[i] = pair->here;
    goodbye_send(pair->here, fds, MESSAGE_FDS_MAX);
    assert_int_equal(wire_receive(pair->there, &packet, 0), 0);
    assert_int_equal(packet.n_fds, MESSAGE_FDS_MAX);
    assert_int_equal(fcntl(packet.fds[63], F_GETFD), FD_CLOEXEC);

    int taken = wire_take_fd(&packet, 5);
    assert_true(taken >= 0);
    assert_int_equal(wire_take_fd(&packet, 5), -1);
    assert_int_equal(wire_take_fd(&packet, MESSAGE_FDS_MAX), -1);
    wire_packet_deinit(&packet);
    assert_int_equal(open_fds(), pair->fds_before + 1);
    assert_int_equal(fstat(taken, &received), 0);
    assert_int_equal(fstat(pair->here, &sent), 0);
    assert_true(sent.st_ino == received.st_ino);
    close(taken);
}

static void refuses_too_many_fds(void **state)
{
    struct pair *pair = *state;
    static const uint8_t bytes[] = {0x08, 0x01, 0xfa, 0x01, 0x00};

    raw_send(pair->here, bytes, sizeof bytes, MESSAGE_FDS_MAX + 1);
    bad_packet(pair);
    raw_send(pair->here, bytes, sizeof bytes, MANY_FDS);
    bad_packet(pair);
}

static void refuses_a_packet_over_the_bound(void **state)
{
    struct pair *pair = *state;
    uint8_t *bytes = calloc(1, MESSAGE_MAX + 1);

    assert_non_null(bytes);
    raw_send(pair->here, bytes, MESSAGE_MAX + 1, 3);
    free(bytes);
    bad_packet(pair);
}

static void refuses_garbage(void **state)
{
    struct pair *pair = *state;
    uint8_t bytes[256];

    memset(bytes, 0xff, sizeof bytes);
    raw_send(pair->here, bytes, sizeof bytes, 2);
    bad_packet(pair);
    /* A message of an id alone, and one whose body ends too soon. */
    raw_send(pair->here, "\x08\x01", 2, 1);
    bad_packet(pair);
    raw_send(pair->here, "\x12\x7f\x08", 3, 0);
    bad_packet(pair);
}

static void refuses_any_cut_of_a_message(void **state)
{
    struct pair *pair = *state;
    /* id 1, hello { major 1, minor_max 2 } */
    static const uint8_t bytes[] = {0x08, 0x01, 0x12, 0x04, 0x08, 0x01, 0x18, 0x02};
    struct wire_packet packet = WIRE_PACKET_INIT;

    for (size_t n = 1; n < sizeof bytes; n++) {
        raw_send(pair->here, bytes, n, 1);
        bad_packet(pair);
    }
    raw_send(pair->here, bytes, sizeof bytes, 0);
    assert_int_equal(wire_receive(pair->there, &packet, 0), 0);
    assert_int_equal(packet.message->hello->minor_max, 2);
    wire_packet_deinit(&packet);
}

static void an_empty_packet_is_the_end(void **state)
{
    struct pair *pair = *state;
    struct wire_packet packet = WIRE_PACKET_INIT;

    raw_send(pair->here, "", 0, 0);
    assert_int_equal(wire_receive(pair->there, &packet, 0), -EPIPE);
    raw_send(pair->here, "", 0, 2);
    bad_packet(pair);
}

static void tells_the_end(void **state)
{
    struct pair *pair = *state;
    struct wire_packet packet = WIRE_PACKET_INIT;

    assert_int_equal(wire_receive(pair->here, &packet, MSG_DONTWAIT), -EAGAIN);
    close(pair->there);
    pair->there = -1;
    assert_int_equal(wire_receive(pair->here, &packet, 0), -EPIPE);
    assert_int_equal(wire_send_bytes(pair->here, "x", 1, NULL, 0, 0), -EPIPE);
}

static void a_peer_that_does_not_read_gives_eagain(void **state)
{
    struct pair *pair = *state;
    int r = 0;

    for (int i = 0; i < 1000000 && r == 0; i++)
        r = wire_send_bytes(pair->here, "\x08\x01", 2, NULL, 0, MSG_DONTWAIT);
    assert_int_equal(r, -EAGAIN);
}

static void sends_nothing_over_the_bounds(void **state)
{
    struct pair *pair = *state;
    Pinserve__Goodbye goodbye = PINSERVE__GOODBYE__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    struct wire_packet packet = WIRE_PACKET_INIT;
    int fds[MESSAGE_FDS_MAX + 1];
    char *text = malloc(MESSAGE_MAX + 1);

    assert_non_null(text);
    memset(text, 'x', MESSAGE_MAX);
    text[MESSAGE_MAX] = '\0';
    goodbye.text = text;
    message.body_case = PINSERVE__MESSAGE__BODY_GOODBYE;
    message.goodbye = &goodbye;
    assert_int_equal(wire_send(pair->here, &message, NULL, 0, 0), -EMSGSIZE);
    for (size_t i = 0; i < MESSAGE_FDS_MAX + 1; i++)
        fds[i] = pair->here;
    text[7] = '\0';
    assert_int_equal(wire_send(pair->here, &message, fds, MESSAGE_FDS_MAX + 1, 0), -EMSGSIZE);
    free(text);
    assert_int_equal(wire_receive(pair->there, &packet, MSG_DONTWAIT), -EAGAIN);
}

#define wire_test(f) cmocka_unit_test_setup_teardown(f, pair_init, pair_deinit)

int main(void)
{
    const struct CMUnitTest tests[] = {
        wire_test(carries_a_message),
        wire_test(carries_fds),
        wire_test(refuses_too_many_fds),
        wire_test(refuses_a_packet_over_the_bound),
        wire_test(refuses_garbage),
        wire_test(refuses_any_cut_of_a_message),
        wire_test(an_empty_packet_is_the_end),
        wire_test(tells_the_end),
        wire_test(a_peer_that_does_not_read_gives_eagain),
        wire_test(sends_nothing_over_the_bounds),
    };

    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
