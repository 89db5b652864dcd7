/*
 * evict and drain against a daemon's end of the protocol, played by a thread: what is asked for,
 * how long a device is waited for, and what an older daemon is not sent.
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

#include "client/pinctl/operate.h"
#include "client/pinctl/pinctl.h"
#include "proto/wire.h"

#define GPU "GPU-1"

struct server {
    char folder[64];
    struct sockaddr_un address;
    int listener;
    pthread_t thread;
    uint32_t minor;
    const char *busy_state; /* of the device, for so many answers; then it is drained */
    unsigned busy;
    /* What was asked for. */
    unsigned requests, looks;
    uint64_t evicted;
    char device[32];
    bool undo;
};

static void send_body(int socket, Pinserve__Message *message)
{
    wire_send(socket, message, NULL, 0, 0);
}

static void send_hello(int socket, uint32_t minor)
{
    Pinserve__Limits limits = PINSERVE__LIMITS__INIT;
    Pinserve__Hello hello = PINSERVE__HELLO__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;

    hello.major = PROTOCOL_MAJOR;
    hello.minor_max = minor;
    hello.program = "test";
    hello.limits = &limits;
    message.body_case = PINSERVE__MESSAGE__BODY_HELLO;
    message.hello = &hello;
    send_body(socket, &message);
}

/* A drained device beside one that is none of the operator's business; and three jobs. */
static void answer_query(struct server *server, int socket, const Pinserve__Message *asked)
{
    Pinserve__Report report = PINSERVE__REPORT__INIT;
    Pinserve__DeviceReport devices[2], *device_rows[] = {&devices[0], &devices[1]};
    Pinserve__JobReport jobs[3], *job_rows[] = {&jobs[0], &jobs[1], &jobs[2]};
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;

    for (int i = 0; i < 2; i++) {
        pinserve__device_report__init(&devices[i]);
        devices[i].uuid = i ? GPU : "GPU-2";
        devices[i].state = (char *)(uintptr_t)(server->busy ? server->busy_state : "drained");
    }
    devices[0].state = "draining";
    for (int i = 0; i < 3; i++) {
        pinserve__job_report__init(&jobs[i]);
        jobs[i].job = 7 + (uint64_t)i;
        jobs[i].device = i == 1 ? "GPU-2" : GPU;
        jobs[i].pid = 4000 + (uint64_t)i;
        jobs[i].uid = 1000;
        jobs[i].state = "failed";
        jobs[i].leased = (uint32_t)i;
    }
    if (asked->query->kind == PINSERVE__QUERY_KIND__QUERY_DEVICES) {
        server->looks++;
        server->busy -= server->busy > 0;
        report.n_devices = 2;
        report.devices = device_rows;
    } else {
        report.n_jobs = 3;
        report.jobs = job_rows;
    }
    message.id = asked->id;
    message.body_case = PINSERVE__MESSAGE__BODY_REPORT;
    message.report = &report;
    send_body(socket, &message);
}

static void answer(struct server *server, int socket, const Pinserve__Message *asked)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Done done = PINSERVE__DONE__INIT;
    Pinserve__DeviceList list = PINSERVE__DEVICE_LIST__INIT;
    char *uuids[] = {GPU};

    message.id = asked->id;
    switch (asked->body_case) {
    case PINSERVE__MESSAGE__BODY_HELLO:
        return;
    case PINSERVE__MESSAGE__BODY_QUERY:
        answer_query(server, socket, asked);
        return;
    case PINSERVE__MESSAGE__BODY_DRAIN:
        snprintf(server->device, sizeof(server->device), "%s", asked->drain->device);
        server->undo = asked->drain->undo;
        list.uuids = uuids;
        list.n_uuids = 1;
        message.body_case = PINSERVE__MESSAGE__BODY_DEVICE_LIST;
        message.device_list = &list;
        break;
    default:
        server->evicted = asked->evict->job;
        message.body_case = PINSERVE__MESSAGE__BODY_DONE;
        message.done = &done;
    }
    server->requests++;
    send_body(socket, &message);
}

static void *serve(void *argument)
{
    struct server *server = argument;
    int socket = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
    struct wire_packet packet = WIRE_PACKET_INIT;

    send_hello(socket, server->minor);
    while (wire_receive(socket, &packet, 0) == 0) {
        answer(server, socket, packet.message);
        wire_packet_deinit(&packet);
    }
    close(socket);
    return NULL;
}

/* Runs one command against the server, which is gone then. Returns what it printed. */
static int run(struct server *server, struct options *options, char *text, size_t size,
               struct failure *failure)
{
    const char *tmp = getenv("TMPDIR");
    FILE *out = fmemopen(text, size, "w");
    int status;

    *text = '\0';
    snprintf(server->folder, sizeof(server->folder), "%s/pinctl-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(server->folder));
    server->address.sun_family = AF_UNIX;
    snprintf(server->address.sun_path, sizeof(server->address.sun_path), "%s/s", server->folder);
    server->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(
        bind(server->listener, (struct sockaddr *)&server->address, sizeof(server->address)), 0);
    assert_int_equal(listen(server->listener, 1), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
    options->socket = server->address.sun_path;
    *failure = (struct failure){.code = 0};
    status = options->command == COMMAND_EVICT ? evict_run(options, out, failure)
                                               : drain_run(options, out, failure);
    fclose(out);
    pthread_join(server->thread, NULL);
    close(server->listener);
    unlink(server->address.sun_path);
    rmdir(server->folder);
    return status;
}

static void test_evict(void **state)
{
    struct server server = {.minor = 1};
    struct options options = {.command = COMMAND_EVICT, .job = 42};
    struct failure failure;
    char text[256];

    (void)state;
    assert_int_equal(run(&server, &options, text, sizeof(text), &failure), PINCTL_DONE);
    assert_int_equal(server.evicted, 42);
    assert_string_equal(text, "job 42: evicted\n");
    options.json = true;
    assert_int_equal(run(&server, &options, text, sizeof(text), &failure), PINCTL_DONE);
    assert_string_equal(text, "{\n  \"job\": 42\n}\n");
}

static void test_drain_waits_until_it_is_so(void **state)
{
    struct server server = {.minor = 1, .busy_state = "draining", .busy = 3};
    struct options options = {.command = COMMAND_DRAIN, .device = "GPU", .timeout_s = 60};
    struct failure failure;
    char text[256];

    (void)state;
    assert_int_equal(run(&server, &options, text, sizeof(text), &failure), PINCTL_DONE);
    assert_string_equal(text, "device " GPU ": drained\n");
    assert_string_equal(server.device, "GPU");
    assert_false(server.undo);
    assert_int_equal(server.requests, 1);
    assert_int_equal(server.looks, 4);
}

static void test_drain_that_takes_too_long_names_who_is_left(void **state)
{
    struct server server = {.minor = 1, .busy_state = "draining", .busy = 100};
    struct options options = {.command = COMMAND_DRAIN, .timeout_s = 0};
    struct failure failure;
    char text[256];

    (void)state;
    assert_int_equal(run(&server, &options, text, sizeof(text), &failure), PINCTL_FAILED);
    assert_string_equal(server.device, "");
    assert_string_equal(text, "");
    assert_string_equal(failure.text,
                        "not drained within 0 s; 2 left: job 7 (pid 4000, uid 1000, "
                        "failed, 0 leased), job 9 (pid 4002, uid 1000, failed, 2 leased)");
}

static void test_drain_undone(void **state)
{
    struct server server = {.minor = 1, .busy_state = "serving", .busy = 100};
    struct options options = {.command = COMMAND_DRAIN, .device = GPU, .undo = true};
    struct failure failure;
    char text[256];

    (void)state;
    assert_int_equal(run(&server, &options, text, sizeof(text), &failure), PINCTL_DONE);
    assert_string_equal(text, "device " GPU ": serving\n");
    assert_true(server.undo);
    assert_int_equal(server.looks, 0);
    /* By another operator, while this one waits. */
    options.undo = false;
    assert_int_equal(run(&server, &options, text, sizeof(text), &failure), PINCTL_FAILED);
    assert_string_equal(failure.text,
                        "device " GPU " was taken into service again by somebody else");
}

static void test_an_older_daemon_is_not_asked(void **state)
{
    struct server server = {.minor = 0};
    struct options options = {.command = COMMAND_EVICT, .job = 42};
    struct failure failure;
    char text[256];

    (void)state;
    for (int i = 0; i < 2; i++) {
        options.command = i == 0 ? COMMAND_EVICT : COMMAND_DRAIN;
        assert_int_equal(run(&server, &options, text, sizeof(text), &failure), PINCTL_FAILED);
        assert_non_null(strstr(failure.text, i == 0 ? "(test) is too old for evict: it speaks "
                                                      "protocol 1.0, they came with 1.1"
                                                    : "(test) is too old for drain"));
        assert_int_equal(server.requests, 0);
    }
}

static void test_no_daemon(void **state)
{
    struct options options = {.socket = "/nonexistent/pinserve.sock", .job = 42};
    struct failure failure;

    (void)state;
    assert_int_equal(evict_run(&options, stdout, &failure), PINCTL_NO_DAEMON);
    assert_int_equal(drain_run(&options, stdout, &failure), PINCTL_NO_DAEMON);
    assert_non_null(strstr(failure.text, "/nonexistent/pinserve.sock"));
}

/* However many there are, the text holds. */
static void test_many_are_left(void **state)
{
    static Pinserve__JobReport job = PINSERVE__JOB_REPORT__INIT;
    ProtobufCMessage *rows[100];
    struct report report = {.rows = rows, .n_rows = 100};
    char *devices[] = {"host"}, text[80];

    (void)state;
    job.device = "host";
    job.state = "closing";
    for (int i = 0; i < 100; i++)
        rows[i] = (ProtobufCMessage *)&job;
    assert_int_equal(drain_left(&report, devices, 1, text, sizeof(text)), 100);
    assert_string_equal(text, "job 0 (pid 0, uid 0, closing, 0 leased), job 0 (pid 0, uid 0, "
                              "closing, 0 leased");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evict),
        cmocka_unit_test(test_drain_waits_until_it_is_so),
        cmocka_unit_test(test_drain_that_takes_too_long_names_who_is_left),
        cmocka_unit_test(test_drain_undone),
        cmocka_unit_test(test_an_older_daemon_is_not_asked),
        cmocka_unit_test(test_no_daemon),
        cmocka_unit_test(test_many_are_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
