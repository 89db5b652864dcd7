/*
 * The daemon's end of the protocol, for tests: see client_peer.h.
 */
#include "client_peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/cleanup.h"

static void check(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "test peer: %s: %s\n", what, strerror(errno));
        abort();
    }
}

void peer_init(struct peer *peer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *base = getenv("TMPDIR");

    memset(peer, 0, sizeof *peer);
    snprintf(peer->directory, sizeof peer->directory, "%.40s/pinclient.XXXXXX",
             base && strlen(base) < 40 ? base : "/tmp");
    check(mkdtemp(peer->directory) != NULL, "mkdtemp");
    snprintf(peer->path, sizeof peer->path, "%s/socket", peer->directory);
    peer->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path, peer->path, sizeof address.sun_path);
    check(bind(peer->listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    check(listen(peer->listener, 8) == 0, "listen");
    peer->question = peer->job = -1;
    peer->depth = 2;
    peer->batch = 4;
    peer->device = "host";
    peer->region_fd = memfd_create("region", MFD_CLOEXEC);
    check(ftruncate(peer->region_fd, 16 * PEER_SLOT) == 0, "ftruncate");
    peer->region =
        mmap(NULL, 16 * PEER_SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, peer->region_fd, 0);
    check(peer->region != MAP_FAILED, "mmap");
}

void peer_deinit(struct peer *peer)
{
    pinclient_close(peer->client);
    close_fd(&peer->question);
    close_fd(&peer->job);
    close_fd(&peer->listener);
    close_fd(&peer->region_fd);
    munmap(peer->region, 16 * PEER_SLOT);
    unlink(peer->path);
    rmdir(peer->directory);
}

/* -- sending --------------------------------------------------------------------------------- */

void peer_send(const struct peer *peer, const Pinserve__Message *message, int fd)
{
    check(wire_send(peer->job, message, &fd, fd >= 0 ? 1 : 0, 0) == 0, "send");
}

void peer_send_batch(const struct peer *peer, uint32_t lease, uint32_t generation, uint64_t epoch,
                     uint64_t step, uint32_t ring)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__BatchReady ready = PINSERVE__BATCH_READY__INIT;

    ready.job = PEER_JOB;
    ready.lease = lease;
    ready.generation = generation;
    ready.epoch = epoch;
    ready.step = step;
    ready.count = peer->batch;
    ready.ring = ring;
    ready.region = ring ? 0 : PEER_REGION;
    ready.offset = ring ? 0 : lease * PEER_SLOT;
    message.body_case = PINSERVE__MESSAGE__BODY_BATCH_READY;
    message.batch_ready = &ready;
    peer_send(peer, &message, -1);
}

struct pinclient_batch *peer_take(struct peer *peer, struct pinclient_job *job, uint32_t lease,
                                  uint64_t step, uint32_t ring)
{
    struct pinclient_batch *batch = NULL;

    peer_send_batch(peer, lease, 1, 0, step, ring);
    if (pinclient_next(job, 5000, &batch) != 0) {
        fprintf(stderr, "test peer: next: %s\n", pinclient_error(job));
        abort();
    }
    return batch;
}

uint8_t peer_first_byte(const struct pinclient_batch *batch)
{
    struct pinclient_tensor tensor;

    check(pinclient_batch_tensor(batch, "data", &tensor) == 0, "tensor");
    return *(const uint8_t *)tensor.data;
}

void peer_send_epoch_end(const struct peer *peer, uint64_t epoch)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__EpochEnd end = PINSERVE__EPOCH_END__INIT;

    end.job = PEER_JOB;
    end.epoch = epoch;
    message.body_case = PINSERVE__MESSAGE__BODY_EPOCH_END;
    message.epoch_end = &end;
    peer_send(peer, &message, -1);
}

void peer_send_failed(const struct peer *peer, int code, const char *text)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__JobFailed failed = PINSERVE__JOB_FAILED__INIT;

    failed.job = PEER_JOB;
    failed.code = code;
    failed.text = (char *)text;
    message.body_case = PINSERVE__MESSAGE__BODY_JOB_FAILED;
    message.job_failed = &failed;
    peer_send(peer, &message, -1);
}

static void ring_fill(const struct peer *peer, int i, uint32_t number, Pinserve__Ring *ring)
{
    ring->ring = number;
    ring->delivery = peer->rings[i].delivery;
    ring->bytes = peer->rings[i].bytes;
    ring->why = "";
    if (peer->rings[i].delivery == PINSERVE__DELIVERY__DELIVERY_IPC) {
        ring->ipc_handle.data = (uint8_t *)peer->rings[i].handle;
        ring->ipc_handle.len = sizeof peer->rings[i].handle;
    }
}

void peer_send_ring_replaced(const struct peer *peer, int i, uint32_t number)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__RingReplaced replaced = PINSERVE__RING_REPLACED__INIT;
    Pinserve__Ring ring = PINSERVE__RING__INIT;

    ring_fill(peer, i, number, &ring);
    replaced.job = PEER_JOB;
    replaced.ring = &ring;
    message.body_case = PINSERVE__MESSAGE__BODY_RING_REPLACED;
    message.ring_replaced = &replaced;
    peer_send(peer, &message,
              ring.delivery == PINSERVE__DELIVERY__DELIVERY_FD ? peer->rings[i].fd : -1);
}

void peer_hang_up(struct peer *peer)
{
    close_fd(&peer->job);
}

/* -- opening --------------------------------------------------------------------------------- */

static void send_error(int socket_fd, uint64_t id, int code, const char *text)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Error error = PINSERVE__ERROR__INIT;

    error.code = code;
    error.text = (char *)text;
    message.id = id;
    message.body_case = PINSERVE__MESSAGE__BODY_ERROR;
    message.error = &error;
    wire_send(socket_fd, &message, NULL, 0, 0);
}

int peer_accept(struct peer *peer)
{
    struct wire_packet packet = WIRE_PACKET_INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Hello hello = PINSERVE__HELLO__INIT;
    Pinserve__Limits limits = PINSERVE__LIMITS__INIT;
    cleanup_fd int fd = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return -1; /* the client gave up before it connected */
    check(wire_receive(fd, &packet, 0) == 0, "the client's Hello");
    check(packet.message->body_case == PINSERVE__MESSAGE__BODY_HELLO, "Hello comes first");
    peer->capabilities[0] = '\0';
    for (size_t i = 0; i < packet.message->hello->n_capabilities; i++)
        snprintf(peer->capabilities + strlen(peer->capabilities),
                 sizeof peer->capabilities - strlen(peer->capabilities), "%s ",
                 packet.message->hello->capabilities[i]);
    uint64_t id = packet.message->id;
    wire_packet_deinit(&packet);
    if (peer->refuse) {
        send_error(fd, id, -EPERM, peer->refuse);
        return -1;
    }
    if (peer->garbage) {
        check(send(fd, "\xff\xff\xff\xff", 4, MSG_NOSIGNAL) == 4, "send");
        return -1;
    }
    if (peer->silent)
        return steal_fd(&fd);
    hello.major = peer->major ? peer->major : PROTOCOL_MAJOR;
    hello.minor_min = PROTOCOL_MINOR_MIN;
    hello.minor_max = PROTOCOL_MINOR_MAX;
    hello.program = "test peer";
    limits.message_bytes = MESSAGE_MAX;
    limits.message_fds = 5;
    limits.dataset_fds = 16;
    limits.depth = DEPTH_MAX;
    limits.batch = BATCH_MAX;
    hello.limits = &limits;
    message.id = id;
    message.body_case = PINSERVE__MESSAGE__BODY_HELLO;
    message.hello = &hello;
    check(wire_send(fd, &message, NULL, 0, 0) == 0, "send Hello");
    return steal_fd(&fd);
}

static void send_region(const struct peer *peer)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__RegionAdded added = PINSERVE__REGION_ADDED__INIT;

    added.job = PEER_JOB;
    added.region = PEER_REGION;
    added.bytes = 16 * PEER_SLOT;
    message.body_case = PINSERVE__MESSAGE__BODY_REGION_ADDED;
    message.region_added = &added;
    peer_send(peer, &message, peer->region_fd);
}

/* Two tensors: "data", uint8 of 4 a sample, and "index". */
static void send_ready(const struct peer *peer)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__JobReady ready = PINSERVE__JOB_READY__INIT;
    Pinserve__Ring ring = PINSERVE__RING__INIT;
    Pinserve__ResumeToken token = PINSERVE__RESUME_TOKEN__INIT;
    Pinserve__Tensor data = PINSERVE__TENSOR__INIT, index = PINSERVE__TENSOR__INIT;
    Pinserve__Tensor *tensors[] = {&data, &index};
    uint32_t data_shape[] = {peer->batch, 4}, index_shape[] = {peer->batch};
    uint64_t data_strides[] = {4, 1}, index_strides[] = {8};

    data.name = "data";
    data.n_shape = data.n_strides = 2;
    data.shape = data_shape;
    data.strides = data_strides;
    index.name = "index";
    index.dtype = PINSERVE__DTYPE__DTYPE_U64;
    index.n_shape = index.n_strides = 1;
    index.shape = index_shape;
    index.strides = index_strides;
    index.offset = 512;
    token.version = 1;
    token.dataset = "synthetic:4";
    token.pipeline = "none";
    token.global_batch = 2 * peer->batch;
    ready.job = PEER_JOB;
    ready.n_tensors = 2;
    ready.tensors = tensors;
    ready.slot_bytes = PEER_SLOT;
    ready.batch = peer->batch;
    ready.depth = peer->depth;
    ready.steps = PEER_STEPS;
    ready.samples = 2 * PEER_STEPS * peer->batch;
    ready.token = &token;
    ready.device = (char *)peer->device;
    ready.delivery = PINSERVE__DELIVERY__DELIVERY_HOST;
    if (peer->n_rings > 0) {
        ring_fill(peer, 0, 1, &ring);
        ready.delivery = ring.delivery;
        ready.ring = &ring;
    }
    if (peer->ready)
        peer->ready(&ready);
    message.body_case = PINSERVE__MESSAGE__BODY_JOB_READY;
    message.job_ready = &ready;
    peer_send(peer, &message,
              ring.delivery == PINSERVE__DELIVERY__DELIVERY_FD ? peer->rings[0].fd : -1);
}

static void event_record(struct peer *peer, const Pinserve__Message *message)
{
    struct peer_event event = {.kind = message->body_case};

    switch (message->body_case) {
    case PINSERVE__MESSAGE__BODY_RELEASE:
        event.lease = message->release->lease;
        event.generation = message->release->generation;
        break;
    case PINSERVE__MESSAGE__BODY_RING_OPENED:
        event.ring = message->ring_opened->ring;
        event.ok = message->ring_opened->ok;
        snprintf(event.error, sizeof event.error, "%s", message->ring_opened->error);
        break;
    case PINSERVE__MESSAGE__BODY_RING_CLOSED:
        event.ring = message->ring_closed->ring;
        break;
    default:
        break;
    }
    check(peer->n_events < PEER_EVENTS_MAX, "too many events");
    peer->events[peer->n_events++] = event;
}

static void take_request(struct peer *peer, const struct wire_packet *packet)
{
    const Pinserve__Message *message = packet->message;

    if (message->body_case == PINSERVE__MESSAGE__BODY_DATASET_FDS) {
        check(message->dataset_fds->n_names == packet->n_fds, "a name for each fd");
        if (peer->n_dataset_packets++ == 0)
            snprintf(peer->first_name, sizeof peer->first_name, "%s",
                     message->dataset_fds->names[0]);
        peer->n_dataset_fds += packet->n_fds;
    } else if (message->body_case == PINSERVE__MESSAGE__BODY_OPEN_JOB) {
        snprintf(peer->device_asked, sizeof peer->device_asked, "%s", message->open_job->device);
        peer->samples_asked = message->open_job->source->samples;
        peer->start_asked = message->open_job->start;
        if (message->open_job->token) {
            peer->epoch_asked = message->open_job->token->epoch;
            peer->position_asked = message->open_job->token->position;
        }
    }
}

static void offer_rings(struct peer *peer)
{
    struct peer_event event;

    for (int i = 0; i < peer->n_rings; i++) {
        if (i > 0)
            peer_send_ring_replaced(peer, i, (uint32_t)i + 1);
        if (!peer_expect(peer, 20000, &event) || event.ok)
            return;
    }
    if (peer->n_rings > 0)
        peer_send_failed(peer, -EIO, "no rung works");
}

static void *close_thread(void *argument)
{
    struct peer *peer = argument;
    struct wire_packet packet = WIRE_PACKET_INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__Done done = PINSERVE__DONE__INIT;

    while (wire_receive(peer->job, &packet, 0) == 0) {
        event_record(peer, packet.message);
        bool close_job = packet.message->body_case == PINSERVE__MESSAGE__BODY_CLOSE_JOB;
        message.id = packet.message->id;
        wire_packet_deinit(&packet);
        if (close_job) {
            message.body_case = PINSERVE__MESSAGE__BODY_DONE;
            message.done = &done;
            peer_send(peer, &message, -1);
        }
    }
    return NULL;
}

static void *open_thread(void *argument)
{
    struct peer *peer = argument;
    struct wire_packet packet = WIRE_PACKET_INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__JobOpened opened = PINSERVE__JOB_OPENED__INIT;
    bool asked = false;

    peer->job = peer_accept(peer);
    while (peer->job >= 0 && !asked) {
        if (wire_receive(peer->job, &packet, 0) < 0)
            return NULL;
        take_request(peer, &packet);
        asked = packet.message->body_case == PINSERVE__MESSAGE__BODY_OPEN_JOB;
        message.id = packet.message->id;
        wire_packet_deinit(&packet);
    }
    if (peer->job < 0)
        return NULL;
    if (peer->refuse_job) {
        send_error(peer->job, message.id, peer->refuse_code ? peer->refuse_code : -ENODEV,
                   peer->refuse_job);
        return NULL;
    }
    opened.job = PEER_JOB;
    message.body_case = PINSERVE__MESSAGE__BODY_JOB_OPENED;
    message.job_opened = &opened;
    peer_send(peer, &message, -1);
    if (peer->keep_opening)
        return NULL;
    if (peer->n_rings == 0)
        send_region(peer);
    if (peer->fail_job)
        peer_send_failed(peer, -ENOENT, peer->fail_job);
    else
        send_ready(peer);
    offer_rings(peer);
    if (peer->opening_fails)
        close_thread(peer);
    return NULL;
}

static void *question_thread(void *argument)
{
    struct peer *peer = argument;

    peer->question = peer_accept(peer);
    return NULL;
}

int peer_connect(struct peer *peer)
{
    check(pthread_create(&peer->thread, NULL, question_thread, peer) == 0, "thread");
    int r = pinclient_connect(peer->path, &peer->client);
    pthread_join(peer->thread, NULL);
    return r;
}

void peer_open_start(struct peer *peer)
{
    check(pthread_create(&peer->thread, NULL, open_thread, peer) == 0, "thread");
}

void peer_open_end(struct peer *peer)
{
    pthread_join(peer->thread, NULL);
}

int peer_open(struct peer *peer, const struct pinclient_spec *spec, struct pinclient_job **job_p)
{
    check(pthread_create(&peer->thread, NULL, open_thread, peer) == 0, "thread");
    int r = pinclient_job_open(peer->client, spec, job_p);
    if (r < 0)
        shutdown(peer->listener, SHUT_RDWR);
    pthread_join(peer->thread, NULL);
    return r;
}

int peer_open_default(struct peer *peer, struct pinclient_job **job_p)
{
    struct pinclient_spec *spec;

    check(pinclient_spec_new(&spec) == 0 && pinclient_spec_source(spec, "synthetic:4:u8:24") == 0 &&
              pinclient_spec_batch(spec, peer->batch) == 0 &&
              pinclient_spec_device(spec, peer->device) == 0 &&
              pinclient_spec_reconnect(spec, peer->reconnect) == 0,
          "spec");
    int r = peer_open(peer, spec, job_p);
    pinclient_spec_free(spec);
    return r;
}

void peer_close_start(struct peer *peer)
{
    check(pthread_create(&peer->thread, NULL, close_thread, peer) == 0, "thread");
}

void peer_close_end(struct peer *peer)
{
    pthread_join(peer->thread, NULL);
}

void peer_close(struct peer *peer, struct pinclient_job *job)
{
    peer_close_start(peer);
    pinclient_job_close(job);
    peer_close_end(peer);
}

/* -- what came ------------------------------------------------------------------------------- */

bool peer_expect(struct peer *peer, int timeout_ms, struct peer_event *event_p)
{
    struct wire_packet packet = WIRE_PACKET_INIT;
    struct pollfd pollfd = {.fd = peer->job, .events = POLLIN};

    if (poll(&pollfd, 1, timeout_ms) <= 0 || wire_receive(peer->job, &packet, MSG_DONTWAIT) < 0)
        return false;
    event_record(peer, packet.message);
    wire_packet_deinit(&packet);
    *event_p = peer->events[peer->n_events - 1];
    return true;
}

size_t peer_count(const struct peer *peer, Pinserve__Message__BodyCase kind)
{
    size_t n = 0;

    for (size_t i = 0; i < peer->n_events; i++)
        n += peer->events[i].kind == kind;
    return n;
}
