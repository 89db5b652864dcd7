/*
 * Queries against a daemon's end of the protocol, played by a thread: pages become one report, and
 * what is no answer is an error.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/connection.h"
#include "client/pinctl/pinctl.h"
#include "client/pinctl/query.h"
#include "proto/wire.h"

#define JOBS 5
#define PAGE 2

enum answer { ANSWER_ROWS, ANSWER_ERROR, ANSWER_DONE, ANSWER_EMPTY_MORE };

struct server {
    char folder[64];
    struct sockaddr_un address;
    int listener;
    enum answer answer;
    pthread_t thread;
};

static void send_hello(int socket)
{
    Pinserve__Limits limits = PINSERVE__LIMITS__INIT;
    Pinserve__Hello hello = PINSERVE__HELLO__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    hello.major = PROTOCOL_MAJOR;
    hello.minor_min = PROTOCOL_MINOR_MIN;
    hello.minor_max = PROTOCOL_MINOR_MAX;
    hello.program = "test";
    limits.message_bytes = MESSAGE_MAX;
    limits.message_fds = MESSAGE_FDS_MAX;
    limits.dataset_fds = DATASET_FDS_MAX;
    limits.depth = DEPTH_MAX;
    hello.limits = &limits;
    message.body_case = PINSERVE__MESSAGE__BODY_HELLO;
    message.hello = &hello;
    wire_send(socket, &message, NULL, 0, 0);
}

static void send_rows(int socket, uint64_t id, const Pinserve__Query *query)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Report report = PINSERVE__REPORT__INIT;
    Pinserve__JobReport jobs[PAGE], *rows[PAGE];

    for (; report.n_jobs < PAGE && query->skip + report.n_jobs < JOBS; report.n_jobs++) {
        Pinserve__JobReport *job = &jobs[report.n_jobs];
        pinserve__job_report__init(job);
        job->job = 100 + query->skip + report.n_jobs;
        rows[report.n_jobs] = job;
    }
    report.jobs = rows;
    report.more = query->skip + report.n_jobs < JOBS;
    message.id = id;
    message.body_case = PINSERVE__MESSAGE__BODY_REPORT;
    message.report = &report;
    wire_send(socket, &message, NULL, 0, 0);
}

static void send_other(int socket, uint64_t id, enum answer answer)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Error error = PINSERVE__ERROR__INIT;
    Pinserve__Done done = PINSERVE__DONE__INIT;
    Pinserve__Report report = PINSERVE__REPORT__INIT;

    message.id = id;
    if (answer == ANSWER_ERROR) {
        error.code = -EACCES;
        error.text = "not for you";
        message.body_case = PINSERVE__MESSAGE__BODY_ERROR;
        message.error = &error;
    } else if (answer == ANSWER_DONE) {
        message.body_case = PINSERVE__MESSAGE__BODY_DONE;
        message.done = &done;
    } else {
        report.more = true;
        message.body_case = PINSERVE__MESSAGE__BODY_REPORT;
        message.report = &report;
    }
    wire_send(socket, &message, NULL, 0, 0);
}

static void *serve(void *argument)
{
    struct server *server = argument;
    int socket = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);

    send_hello(socket);
    for (;;) {
        struct wire_packet packet = WIRE_PACKET_INIT;
        if (wire_receive(socket, &packet, 0) < 0)
            break;
        if (packet.message->body_case == PINSERVE__MESSAGE__BODY_QUERY) {
            if (server->answer == ANSWER_ROWS)
                send_rows(socket, packet.message->id, packet.message->query);
            else
                send_other(socket, packet.message->id, server->answer);
        }
        wire_packet_deinit(&packet);
    }
    close(socket);
    return NULL;
}

static void server_start(struct server *server, enum answer answer)
{
    const char *tmp = getenv("TMPDIR");
    server->answer = answer;
    snprintf(server->folder, sizeof(server->folder), "%s/pinctl-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(server->folder));
    server->address.sun_family = AF_UNIX;
    snprintf(server->address.sun_path, sizeof(server->address.sun_path), "%s/s", server->folder);
    server->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(
        bind(server->listener, (struct sockaddr *)&server->address, sizeof(server->address)), 0);
    assert_int_equal(listen(server->listener, 1), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void server_end(struct server *server)
{
    pthread_join(server->thread, NULL);
    close(server->listener);
    unlink(server->address.sun_path);
    rmdir(server->folder);
}

/* Asks a server for its jobs. */
static int ask(enum answer answer, struct report *report, struct failure *failure)
{
    struct server server = {.listener = -1};
    struct connection *connection = NULL;
    server_start(&server, answer);
    assert_int_equal(query_connect(server.address.sun_path, &connection, failure), PINCTL_DONE);
    int rc = query_report(connection, PINSERVE__QUERY_KIND__QUERY_JOBS, 0, report, failure);
    connection_close(connection);
    server_end(&server);
    return rc;
}

static void test_pages_become_one_report(void **state)
{
    (void)state;
    struct report report = REPORT_INIT;
    struct failure failure = {.code = 0};
    assert_int_equal(ask(ANSWER_ROWS, &report, &failure), 0);
    assert_int_equal(report.n_rows, JOBS);
    assert_int_equal(report.n_pages, 3);
    for (size_t i = 0; i < JOBS; i++)
        assert_int_equal(((Pinserve__JobReport *)report.rows[i])->job, 100 + i);
    report_deinit(&report);
    assert_null(report.rows);
}

static void test_error_is_passed_on(void **state)
{
    (void)state;
    struct report report = REPORT_INIT;
    struct failure failure = {.code = 0};
    assert_int_equal(ask(ANSWER_ERROR, &report, &failure), -EACCES);
    assert_non_null(strstr(failure.text, "not for you"));
    report_deinit(&report);
}

static void test_other_answers_are_refused(void **state)
{
    (void)state;
    struct report report = REPORT_INIT;
    struct failure failure = {.code = 0};
    assert_int_equal(ask(ANSWER_DONE, &report, &failure), -EPROTO);
    assert_string_equal(failure.text, "the daemon answered a query with another message");
    report_deinit(&report);
    assert_int_equal(ask(ANSWER_EMPTY_MORE, &report, &failure), -EPROTO);
    assert_string_equal(failure.text, "the daemon promised more rows and sent none");
    report_deinit(&report);
}

static void test_no_daemon(void **state)
{
    (void)state;
    struct connection *connection = NULL;
    struct failure failure = {.code = 0};
    assert_int_equal(query_connect("/nonexistent/pinserve.sock", &connection, &failure),
                     PINCTL_NO_DAEMON);
    assert_non_null(strstr(failure.text, "/nonexistent/pinserve.sock"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_become_one_report),
        cmocka_unit_test(test_error_is_passed_on),
        cmocka_unit_test(test_other_answers_are_refused),
        cmocka_unit_test(test_no_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
