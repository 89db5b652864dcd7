/*
 * service.c against a notify socket and activation sockets of its own. What
 * comes with activation sits at fd 3, so each such case runs in a child.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "service.h"

static char folder[64];
static int notify_fd = -1;

static struct sockaddr_un address_of(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", folder, name);
    return address;
}

static int start(void **state)
{
    const char *base = getenv("TMPDIR");

    (void)state;
    log_init(LOG_LEVEL_WARNING, 10);
    snprintf(folder, sizeof folder, "%.40s/service.XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    struct sockaddr_un address = address_of("notify");
    notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return bind(notify_fd, (struct sockaddr *)&address, sizeof address);
}

static int stop(void **state)
{
    struct sockaddr_un address = address_of("notify");

    (void)state;
    close(notify_fd);
    unlink(address.sun_path);
    return rmdir(folder);
}

static void assert_told(const char *expected)
{
    char text[1024];
    ssize_t n = recv(notify_fd, text, sizeof text - 1, 0);

    assert_true(n >= 0);
    text[n] = '\0';
    assert_string_equal(text, expected);
}

static void test_what_the_service_manager_is_told(void **state)
{
    struct sockaddr_un address = address_of("notify");
    struct service service;
    char status[700], expected[700];

    (void)state;
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    assert_int_equal(service_init(&service, NULL), 0);
    assert_int_equal(service.listen_fd, -1);
    service_extend(UINT64_C(30000000000));
    assert_told("EXTEND_TIMEOUT_USEC=30000000");
    service_ready("2 devices");
    assert_told("READY=1\nSTATUS=2 devices");
    memset(status, 'x', sizeof status - 1);
    status[sizeof status - 1] = '\0';
    service_ready(status);
    snprintf(expected, sizeof expected, "READY=1\nSTATUS=%.480s", status);
    assert_told(expected);
    service_ping();
    assert_told("WATCHDOG=1");
    service_stopping();
    assert_told("STOPPING=1\nSTATUS=stopping");
    service_deinit(&service);
    unsetenv("NOTIFY_SOCKET");
    service_ping();
    char byte;
    assert_int_equal(recv(notify_fd, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
}

static void test_nothing_without_a_service_manager(void **state)
{
    struct service service;

    (void)state;
    assert_int_equal(service_init(&service, NULL), 0);
    assert_int_equal(service.listen_fd, -1);
    assert_int_equal(service.ping_interval, 0);
    service_ready("alone");
    service_deinit(&service);
}

static void test_watchdog(void **state)
{
    struct service service;
    struct failure failure = {0};
    char pid[32];

    (void)state;
    setenv("WATCHDOG_USEC", "1000000", 1);
    assert_int_equal(service_init(&service, NULL), 0);
    /* More often than every half interval. */
    assert_in_range(service.ping_interval, 100000000, 499999999);
    service_deinit(&service);
    assert_null(getenv("WATCHDOG_USEC"));

    setenv("WATCHDOG_USEC", "1000000", 1);
    snprintf(pid, sizeof pid, "%d", (int)getpid() + 1);
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(service_init(&service, NULL), 0);
    assert_int_equal(service.ping_interval, 0);
    service_deinit(&service);

    unsetenv("WATCHDOG_PID");
    setenv("WATCHDOG_USEC", "soon", 1);
    assert_int_equal(service_init(&service, &failure), -EINVAL);
    assert_string_equal(failure.text, "WATCHDOG_USEC of the service manager: Invalid argument");
    service_deinit(&service);
    unsetenv("WATCHDOG_USEC");
}

/* In a child: fds becomes 3, 4..., then service_init. Exit status 0: it went as expected. */
static void activate(const int *fds, int n, const char *expected_error)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct service service;
        struct failure failure = {0};
        char text[16];
        int copies[4];

        for (int i = 0; i < n; i++)
            copies[i] = fcntl(fds[i], F_DUPFD, 20);
        for (int i = 0; i < n; i++)
            dup2(copies[i], 3 + i);
        snprintf(text, sizeof text, "%d", n);
        setenv("LISTEN_FDS", text, 1);
        snprintf(text, sizeof text, "%d", (int)getpid());
        setenv("LISTEN_PID", text, 1);
        int r = service_init(&service, &failure);
        if (getenv("LISTEN_FDS"))
            _exit(10);
        if (expected_error) {
            if (r != -EINVAL || service.listen_fd != -1)
                _exit(11);
            if (strcmp(failure.text, expected_error) != 0) {
                fprintf(stderr, "%s\n", failure.text);
                _exit(12);
            }
            /* Nothing that was passed stays open. */
            for (int i = 0; i < n; i++)
                if (fcntl(3 + i, F_GETFD) >= 0)
                    _exit(13);
            _exit(0);
        }
        if (r != 0 || service.listen_fd != 3)
            _exit(14);
        if (!(fcntl(3, F_GETFD) & FD_CLOEXEC) || !(fcntl(3, F_GETFL) & O_NONBLOCK))
            _exit(15);
        service_deinit(&service);
        _exit(fcntl(3, F_GETFD) >= 0 ? 16 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int make_socket(const char *name, int type, int backlog)
{
    struct sockaddr_un address = address_of(name);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    unlink(address.sun_path);
    if (backlog)
        assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static void test_activation_socket(void **state)
{
    int fd = make_socket("good", SOCK_SEQPACKET, 5);

    (void)state;
    activate(&fd, 1, NULL);
    close(fd);
}

static void test_activation_sockets_that_are_wrong(void **state)
{
    int two[2] = {make_socket("a", SOCK_SEQPACKET, 5), make_socket("b", SOCK_SEQPACKET, 5)};
    int stream = make_socket("stream", SOCK_STREAM, 5);
    int deaf = make_socket("deaf", SOCK_SEQPACKET, 0);
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)state;
    activate(two, 2, "the service manager passed 2 sockets; exactly one is wanted");
    activate(&stream, 1,
             "the socket passed by the service manager (fd 3) is not of type SOCK_SEQPACKET: it "
             "needs ListenSequentialPacket=");
    activate(&deaf, 1,
             "the socket passed by the service manager (fd 3) does not listen: it needs Accept=no");
    activate(&file, 1, "the socket passed by the service manager (fd 3) is not a Unix socket");
    close(two[0]);
    close(two[1]);
    close(stream);
    close(deaf);
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_service_manager_is_told),
        cmocka_unit_test(test_nothing_without_a_service_manager),
        cmocka_unit_test(test_watchdog),
        cmocka_unit_test(test_activation_socket),
        cmocka_unit_test(test_activation_sockets_that_are_wrong),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
