/*
 * client/connection.c and client.c: finding the daemon, the Hellos, replies,
 * and what an outsider is told.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/connection.h"
#include "client_peer.h"

#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

static void test_version(void **state)
{
    (void)state;
    assert_string_equal(pinclient_version(), PROJECT_VERSION);
    assert_non_null(strstr(pinclient_error(NULL), "no handle"));
    assert_non_null(strstr(pinclient_error("neither is this"), "not a handle"));
}

static void test_connects(void **state)
{
    struct peer peer;

    (void)state;
    peer_init(&peer);
    assert_int_equal(peer_connect(&peer), 0);
    assert_string_equal(peer.capabilities, "host ");
    assert_string_equal(pinclient_error(peer.client), "");
    peer_deinit(&peer);
}

static void test_finds_the_socket(void **state)
{
    struct pinclient *client;
    struct peer peer;

    (void)state;
    peer_init(&peer);
    setenv("PINSERVE_SOCKET", "/nonexistent/pinserve.sock", 1);
    assert_int_equal(pinclient_connect(NULL, &client), -ENOENT);
    assert_error(client, "/nonexistent/pinserve.sock");
    pinclient_close(client);
    if (access("/run/pinserve/pinserve.sock", F_OK) < 0) {
        unsetenv("PINSERVE_SOCKET");
        setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
        assert_int_equal(pinclient_connect(NULL, &client), -ENOENT);
        assert_error(client, "/run/pinserve/pinserve.sock");
        assert_error(client, "/nonexistent/pinserve.sock");
        pinclient_close(client);
        unsetenv("XDG_RUNTIME_DIR");
        assert_int_equal(pinclient_connect(NULL, &client), -ENOENT);
        pinclient_close(client);
    }
    peer_deinit(&peer);
}

static void test_nobody_listens(void **state)
{
    struct pinclient *client;
    struct peer peer;
    char path[108];

    (void)state;
    peer_init(&peer);
    shutdown(peer.listener, SHUT_RDWR);
    close(peer.listener);
    peer.listener = -1;
    assert_int_equal(pinclient_connect(peer.path, &client), -ECONNREFUSED);
    assert_error(client, peer.path);
    pinclient_close(client);

    snprintf(path, sizeof path, "%.80s/file", peer.directory);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(pinclient_connect(path, &client), -ECONNREFUSED);
    assert_error(client, path);
    pinclient_close(client);
    unlink(path);
    peer_deinit(&peer);
}

/* 107 bytes fit the kernel's structure, 108 do not. */
static void test_long_paths(void **state)
{
    struct pinclient *client;
    struct peer peer;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[200];

    (void)state;
    peer_init(&peer);
    int length = snprintf(path, sizeof path, "%s/", peer.directory);
    memset(path + length, 'x', (size_t)(108 - length));
    path[108] = '\0';
    assert_int_equal(pinclient_connect(path, &client), -ENAMETOOLONG);
    assert_error(client, path);
    assert_error(client, "108 bytes");
    pinclient_close(client);

    path[107] = '\0';
    unlink(peer.path);
    close(peer.listener);
    peer.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path, path, 108);
    assert_int_equal(bind(peer.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(peer.listener, 8), 0);
    memcpy(peer.path, path, 108);
    assert_int_equal(peer_connect(&peer), 0);
    peer_deinit(&peer);
}

/* What the text says is checked in a child that is neither root nor the owner. */
static int outsider(const char *path, const char *part)
{
    struct pinclient *client;

    if (geteuid() != 0 || setgid(65534) < 0 || setuid(65534) < 0)
        return 0; /* an ordinary user cannot become another one */
    int r = pinclient_connect(path, &client);
    bool good = r == -EACCES && strstr(pinclient_error(client), path) &&
                strstr(pinclient_error(client), part);
    if (!good)
        fprintf(stderr, "%d %s\n", r, pinclient_error(client));
    pinclient_close(client);
    return good ? 0 : 1;
}

static void test_outsiders(void **state)
{
    struct peer peer;
    int status = 0;

    (void)state;
    peer_init(&peer);
    chmod(peer.directory, 0755);
    chmod(peer.path, 0660);
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(outsider(peer.path, i == 0 ? "members of group" : "directory"));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        chmod(peer.directory, 0700);
    }
    peer_deinit(&peer);
}

static void test_other_versions(void **state)
{
    struct peer peer;

    (void)state;
    peer_init(&peer);
    peer.major = 9;
    assert_int_equal(peer_connect(&peer), -EPROTONOSUPPORT);
    assert_error(peer.client, "9.0");
    assert_error(peer.client, "test peer");
    peer_deinit(&peer);

    peer_init(&peer);
    peer.refuse = "pid 0: the client is in another pid namespace";
    assert_int_equal(peer_connect(&peer), -EPERM);
    assert_string_equal(pinclient_error(peer.client), peer.refuse);
    peer_deinit(&peer);

    peer_init(&peer);
    peer.garbage = true;
    assert_int_equal(peer_connect(&peer), -EPROTO);
    assert_error(peer.client, "no message of the protocol");
    peer_deinit(&peer);
}

/* -- requests: the test holds the daemon's end ------------------------------------------------- */

struct caller {
    struct peer peer;
    struct connection *connection;
    pthread_t thread;
    int result;
    struct failure failure;
    Pinserve__Message__BodyCase reply;
};

static void *caller_open(void *argument)
{
    struct caller *caller = argument;

    caller->result = connection_open(caller->peer.path, &caller->connection, &caller->failure);
    return NULL;
}

static void *caller_call(void *argument)
{
    struct caller *caller = argument;
    Pinserve__Message request = PINSERVE__MESSAGE__INIT;
    Pinserve__Query query = PINSERVE__QUERY__INIT;
    struct wire_packet reply = WIRE_PACKET_INIT;

    request.body_case = PINSERVE__MESSAGE__BODY_QUERY;
    request.query = &query;
    caller->result =
        connection_call(caller->connection, &request, NULL, 0, &reply, &caller->failure);
    caller->reply = reply.message ? reply.message->body_case : PINSERVE__MESSAGE__BODY__NOT_SET;
    wire_packet_deinit(&reply);
    return NULL;
}

static void caller_init(struct caller *caller)
{
    memset(caller, 0, sizeof *caller);
    peer_init(&caller->peer);
    assert_int_equal(pthread_create(&caller->thread, NULL, caller_open, caller), 0);
    caller->peer.job = peer_accept(&caller->peer);
    pthread_join(caller->thread, NULL);
    assert_int_equal(caller->result, 0);
    assert_string_equal(connection_path(caller->connection), caller->peer.path);
    assert_int_equal(connection_hello(caller->connection)->limits->dataset_fds, 16);
}

static void caller_deinit(struct caller *caller)
{
    connection_close(caller->connection);
    peer_deinit(&caller->peer);
}

/* Starts a call and takes its request; returns the request's id. */
static uint64_t caller_start(struct caller *caller)
{
    struct wire_packet packet = WIRE_PACKET_INIT;

    assert_int_equal(pthread_create(&caller->thread, NULL, caller_call, caller), 0);
    assert_int_equal(wire_receive(caller->peer.job, &packet, 0), 0);
    assert_int_equal(packet.message->body_case, PINSERVE__MESSAGE__BODY_QUERY);
    uint64_t id = packet.message->id;
    assert_int_not_equal(id, 0);
    wire_packet_deinit(&packet);
    return id;
}

static void test_calls(void **state)
{
    struct caller caller;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Report report = PINSERVE__REPORT__INIT;
    Pinserve__Progress progress = PINSERVE__PROGRESS__INIT;
    Pinserve__Error error = PINSERVE__ERROR__INIT;

    (void)state;
    caller_init(&caller);
    uint64_t id = caller_start(&caller);
    message.body_case = PINSERVE__MESSAGE__BODY_PROGRESS;
    message.progress = &progress;
    peer_send(&caller.peer, &message, -1);
    message.id = id;
    message.body_case = PINSERVE__MESSAGE__BODY_REPORT;
    message.report = &report;
    peer_send(&caller.peer, &message, -1);
    pthread_join(caller.thread, NULL);
    assert_int_equal(caller.result, 0);
    assert_int_equal(caller.reply, PINSERVE__MESSAGE__BODY_REPORT);

    uint64_t second = caller_start(&caller);
    assert_int_not_equal(second, id);
    error.code = -EDQUOT;
    error.text = "the limit is 8 jobs";
    message.id = second;
    message.body_case = PINSERVE__MESSAGE__BODY_ERROR;
    message.error = &error;
    peer_send(&caller.peer, &message, -1);
    pthread_join(caller.thread, NULL);
    assert_int_equal(caller.result, -EDQUOT);
    assert_string_equal(caller.failure.text, "the limit is 8 jobs");

    /* A code that is no negative errno must not look like success. */
    message.id = caller_start(&caller);
    error.code = 0;
    peer_send(&caller.peer, &message, -1);
    pthread_join(caller.thread, NULL);
    assert_int_equal(caller.result, -EIO);
    caller_deinit(&caller);
}

static void test_last_words(void **state)
{
    struct caller caller;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Goodbye goodbye = PINSERVE__GOODBYE__INIT;

    (void)state;
    caller_init(&caller);
    caller_start(&caller);
    goodbye.text = "stopped by its service manager";
    message.body_case = PINSERVE__MESSAGE__BODY_GOODBYE;
    message.goodbye = &goodbye;
    peer_send(&caller.peer, &message, -1);
    peer_hang_up(&caller.peer);
    pthread_join(caller.thread, NULL);
    assert_int_equal(caller.result, -EPIPE);
    assert_non_null(strstr(caller.failure.text, "stopped by its service manager"));
    assert_non_null(strstr(caller.failure.text, caller.peer.path));
    caller_call(&caller);
    assert_int_equal(caller.result, -EPIPE);
    assert_non_null(strstr(caller.failure.text, "stopped by its service manager"));
    caller_deinit(&caller);
}

static void test_no_answer(void **state)
{
    struct caller caller;
    struct wire_packet packet = WIRE_PACKET_INIT;

    (void)state;
    caller_init(&caller);
    assert_int_equal(connection_receive_until(caller.connection, connection_clock_ms() + 30,
                                              &packet, &caller.failure),
                     -ETIMEDOUT);
    assert_non_null(strstr(caller.failure.text, "does not answer"));
    caller_deinit(&caller);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),          cmocka_unit_test(test_connects),
        cmocka_unit_test(test_finds_the_socket), cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_long_paths),       cmocka_unit_test(test_outsiders),
        cmocka_unit_test(test_other_versions),   cmocka_unit_test(test_calls),
        cmocka_unit_test(test_last_words),       cmocka_unit_test(test_no_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
