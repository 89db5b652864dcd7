/*
 * daemon/device/message.c: packets between the daemon and a device's process.
 */
#include "device/message.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void pair_open(int pair[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
}

static void test_packets_and_fds(void **state)
{
    int pair[2], fds[2], fd;
    char data[16];

    (void)state;
    pair_open(pair);
    assert_int_equal(message_receive(pair[1], data, sizeof data, &fd), -EAGAIN);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(message_send(pair[0], "one", 4, fds[0]), 0);
    assert_int_equal(message_send(pair[0], "three", 6, -1), 0);
    assert_int_equal(message_receive(pair[1], data, sizeof data, &fd), 4);
    assert_string_equal(data, "one");
    assert_true(fd >= 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(read(fd, data, 1), 1);
    close(fd);
    assert_int_equal(message_receive(pair[1], data, sizeof data, &fd), 6);
    assert_string_equal(data, "three");
    assert_int_equal(fd, -1);
    close(fds[0]);
    close(fds[1]);
    close(pair[0]);
    assert_int_equal(message_receive(pair[1], data, sizeof data, &fd), 0);
    close(pair[1]);
}

/* A process that ends while commands wait for it is still heard. */
static void test_last_words_of_a_process_with_unread_commands(void **state)
{
    int pair[2], fd;
    char data[16];

    (void)state;
    pair_open(pair);
    assert_int_equal(message_send(pair[0], "command", 8, -1), 0);
    assert_int_equal(message_send(pair[1], "last words", 11, -1), 0);
    close(pair[1]);
    assert_int_equal(message_receive(pair[0], data, sizeof data, &fd), 11);
    assert_string_equal(data, "last words");
    assert_int_equal(message_receive(pair[0], data, sizeof data, &fd), 0);
    close(pair[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packets_and_fds),
        cmocka_unit_test(test_last_words_of_a_process_with_unread_commands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
