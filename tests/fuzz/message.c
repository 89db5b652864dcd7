/*
 * Fuzz target: packets as a hostile client sends them, to the daemon's own
 * server in this process: its handlers, jobs, indexes, probes, workers and
 * answers, on the host device. After each turn of the loop the core is checked
 * against itself; after each input nothing of the client is left, and at exit
 * no account is charged.
 *
 * Input: steps. A step is a byte that says what is done, a byte for what goes
 * beside it, a byte for the size, and as many bytes of a packet. Jobs number on
 * from input to input, so that numbers of jobs in packets are counted from the
 * first of this input; others than the client's own are as easily had.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "control/listener.h"
#include "control/peer.h"
#include "fuzz.h"
#include "log.h"
#include "memory_file.h"

#define STEPS_MAX 64
#define WAITS_MAX 50000 /* of a moment each, until nothing is left: more, and it hangs */
#define MEMBER_BYTES 1024

enum {
    STEP_KINDS = 8,
    STEP_RAW = 0,     /* the packet as it is */
    STEP_CONNECT = 1, /* the client goes; another comes */
    STEP_SETTLE = 2,  /* the client waits until nothing happens any more */
    STEP_GREET = 3,   /* a good Hello first */
};

static struct config config;
static struct server server;
static uint64_t first_job; /* of the input */
static int socket_fd = -1; /* the client's end */
static int files[8];       /* that a client may send; -1: made of the packet's own bytes */

/* -- the server ------------------------------------------------------------------------------ */

static void check_core(void)
{
    struct failure failure;

    if (core_check(server.core, &failure) < 0) {
        fprintf(stderr, "core_check: %s\n", failure.text);
        abort();
    }
}

static void turn(void)
{
    uv_run(&server.loop, UV_RUN_NOWAIT);
    check_core();
}

static bool is_idle(void)
{
    return list_empty(&server.tasks) && list_empty(&server.peers) && list_empty(&server.departed) &&
           server.busy == 0;
}

/* Answers are read, or the server would stop to read. */
static void drain(void)
{
    struct wire_packet packet = WIRE_PACKET_INIT;

    while (wire_receive(socket_fd, &packet, MSG_DONTWAIT) == 0)
        wire_packet_deinit(&packet);
}

/* The next thing that happens. False: nothing did for a moment, and no thread is at work. */
static bool wait_a_little(void)
{
    struct pollfd poll_fd = {.fd = uv_backend_fd(&server.loop), .events = POLLIN};
    const struct timespec moment = {.tv_nsec = 300000};
    int n = ppoll(&poll_fd, 1, &moment, NULL);

    turn();
    drain();
    return n > 0 || server.busy > 0;
}

/* At exit: the daemon's orderly end. */
static void end_server(void)
{
    server_stop(&server);
    int left = server_run(&server);
    server_deinit(&server);
    config_deinit(&config);
    if (left || server.exit_code)
        abort();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        close(files[i]);
}

static void on_ready(void *user)
{
    (void)user;
}

/* One member of a tar, of two blocks. */
static void write_member(uint8_t *at, const char *name, const void *bytes, size_t size)
{
    char *header = (char *)at;
    unsigned sum = 0;

    memset(at, 0, MEMBER_BYTES);
    snprintf(header, 100, "%s", name);
    memcpy(header + 100, "0000644\0000000000\0000000000", 24);
    snprintf(header + 124, 12, "%011zo", size);
    memcpy(header + 136, "00000000000", 12);
    memset(header + 148, ' ', 8);
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    for (int i = 0; i < MEMBER_BYTES / 2; i++)
        sum += at[i];
    snprintf(header + 148, 8, "%06o", sum);
    memcpy(at + MEMBER_BYTES / 2, bytes, size);
}

static int text_tar(void)
{
    uint8_t bytes[2 * MEMBER_BYTES] = {0};

    write_member(bytes, "a.txt", "text\n", 5);
    return memory_file(bytes, sizeof bytes);
}

/* Images of 2 x 2 pixels; the second one is cut off. */
static int image_tar(void)
{
    static const uint8_t png[] = {
        0x89, 'P',  'N',  'G',  '\r', '\n', 0x1a, '\n', 0,    0,    0,    13,   'I',  'H',  'D',
        'R',  0,    0,    0,    2,    0,    0,    0,    2,    8,    0,    0,    0,    0,    0x57,
        0xdd, 0x52, 0xf8, 0,    0,    0,    14,   'I',  'D',  'A',  'T',  0x78, 0xda, 0x63, 0x10,
        0x98, 0xc0, 0x70, 0xc1, 0x01, 0,    0x04, 0x76, 0x01, 0xb1, 0x29, 0x25, 0x8c, 0x70, 0,
        0,    0,    0,    'I',  'E',  'N',  'D',  0xae, 'B',  0x60, 0x82};
    uint8_t bytes[7 * MEMBER_BYTES] = {0};

    write_member(bytes, "a.png", png, sizeof png);
    write_member(bytes + MEMBER_BYTES, "a.cls", "7", 1);
    write_member(bytes + 2 * MEMBER_BYTES, "b.png", png, sizeof png / 2);
    write_member(bytes + 3 * MEMBER_BYTES, "b.cls", "8", 1);
    write_member(bytes + 4 * MEMBER_BYTES, "c.png", png, sizeof png);
    write_member(bytes + 5 * MEMBER_BYTES, "c.cls", "9", 1);
    return memory_file(bytes, sizeof bytes);
}

static void make_files(void)
{
    static const char npy[] =
        "\x93NUMPY\1\0\x46\0{'descr': '|u1', 'fortran_order': False, 'shape': "
        "(16, 2), }         \n0123456789abcdef0123456789abcdef";
    static const char tokens[256] = {1};
    char path[] = "/tmp/pinserve-fuzz-XXXXXX";
    int ends[2];

    if (!mkdtemp(path) || pipe(ends) < 0)
        abort();
    files[0] = -1;
    files[1] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* empty */
    files[2] = memory_file(npy, sizeof npy - 1);
    files[3] = text_tar();
    files[4] = memory_file(tokens, sizeof tokens);
    files[5] = ends[0]; /* no regular file; its other end is closed */
    files[6] = image_tar();
    files[7] = memory_file("c/a.png 1\n", 10);
    close(ends[1]);
    rmdir(path);
}

static void start_server(void)
{
    static const char *const settings[] = {
        "device.use=host",   "pool.region=2 MiB", "pool.max=8 MiB", "pool.lock=off",
        "io.threads=2",      "io.ahead=1 MiB",    "limits.jobs=4",  "workers.per_numa_node=1",
        "limits.index=1 MiB"};
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    struct failure failure;
    int listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (bind(listening, (struct sockaddr *)&any, sizeof any.sun_family) < 0 ||
        listen(listening, 1) < 0)
        abort();
    struct server_socket at = {.fd_consume = listening};
    log_init(LOG_LEVEL_ERROR, 10);
    config_init(&config, UINT64_C(1) << 30);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (config_set(&config, settings[i], &failure) < 0)
            abort();
    }
    if (config_finish(&config, &failure) < 0 || server_init(&server, &config, &at, &failure) < 0 ||
        server_start(&server, on_ready, NULL, &failure) < 0) {
        fprintf(stderr, "%s\n", failure.text);
        abort();
    }
    make_files();
    atexit(end_server);
}

/* -- the client ------------------------------------------------------------------------------ */

static void connect_peer(void)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) < 0)
        abort();
    socket_fd = ends[0];
    peer_new(&server, ends[1]);
}

static void leave(void)
{
    close(socket_fd);
    socket_fd = -1;
    turn();
}

static void greet(void)
{
    char *capabilities[] = {"host", "mapped"};
    Pinserve__Hello hello = PINSERVE__HELLO__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;

    hello.major = PROTOCOL_MAJOR;
    hello.n_capabilities = 2;
    hello.capabilities = capabilities;
    message.id = 1;
    message.body_case = PINSERVE__MESSAGE__BODY_HELLO;
    message.hello = &hello;
    wire_send(socket_fd, &message, NULL, 0, MSG_DONTWAIT);
}

/* Jobs are told from the first of this input. */
static void number_jobs(Pinserve__Message *message)
{
    switch (message->body_case) {
    case PINSERVE__MESSAGE__BODY_CLOSE_JOB:
        message->close_job->job += first_job;
        break;
    case PINSERVE__MESSAGE__BODY_RELEASE:
        message->release->job += first_job;
        break;
    case PINSERVE__MESSAGE__BODY_RING_OPENED:
        message->ring_opened->job += first_job;
        break;
    case PINSERVE__MESSAGE__BODY_RING_CLOSED:
        message->ring_closed->job += first_job;
        break;
    case PINSERVE__MESSAGE__BODY_COMMIT:
        message->commit->job += first_job;
        break;
    case PINSERVE__MESSAGE__BODY_EVICT:
        message->evict->job += first_job;
        break;
    case PINSERVE__MESSAGE__BODY_QUERY:
        message->query->job += message->query->job > 0 ? first_job : 0;
        break;
    default:
        break;
    }
}

/* beside: three bits for how many fds, the others for which. */
static void send_packet(const uint8_t *bytes, size_t size, uint8_t beside)
{
    const size_t n_files = sizeof files / sizeof *files;
    size_t n_fds = beside & 7;
    int fds[8], own = -1;

    for (size_t i = 0; i < n_fds; i++) {
        fds[i] = files[((beside >> 3) + i) % n_files];
        if (fds[i] < 0)
            fds[i] = own = own < 0 ? memory_file(bytes, size) : own;
    }
    Pinserve__Message *message = pinserve__message__unpack(NULL, size, bytes);
    if (message) {
        number_jobs(message);
        wire_send(socket_fd, message, fds, n_fds, MSG_DONTWAIT);
        pinserve__message__free_unpacked(message, NULL);
    } else {
        wire_send_bytes(socket_fd, bytes, size, fds, n_fds, MSG_DONTWAIT);
    }
    if (own >= 0)
        close(own);
}

static void do_step(unsigned kind, uint8_t beside, const uint8_t *bytes, size_t size)
{
    if (kind == STEP_CONNECT) {
        leave();
        connect_peer();
    }
    if (kind == STEP_GREET)
        greet();
    if (kind == STEP_SETTLE) {
        for (int i = 0; i < 50 && wait_a_little(); i++)
            ;
    }
    if (size > 0)
        send_packet(bytes, size, beside);
    turn();
    drain();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct core_stages stages;
    uint64_t bytes_copied, failed;

    if (!server.core)
        start_server();
    core_totals(server.core, &stages, &bytes_copied, &first_job, &failed);
    connect_peer();
    for (int i = 0; i < STEPS_MAX && size >= 3; i++) {
        size_t packet = bytes[2] < size - 3 ? bytes[2] : size - 3;

        do_step(bytes[0] % STEP_KINDS, bytes[1], bytes + 3, packet);
        bytes += 3 + packet;
        size -= 3 + packet;
    }
    leave();
    peers_close(&server, "the input ends"); /* as when its process ends */
    for (uint32_t i = 0; i < server.n_stations; i++)
        station_resume(&server.stations[i], "the next input");
    for (int waits = 0; !is_idle(); waits++) {
        wait_a_little();
        if (waits == WAITS_MAX) {
            fprintf(stderr, "something of the client is left\n");
            abort();
        }
    }
    return 0;
}
