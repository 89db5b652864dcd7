/*
 * Jobs: opening one, which ends when its ring or its regions are mapped, and
 * closing it. The steps of opening are also those of opening again.
 */
#include "job.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "client.h"
#include "copier.h"
#include "dataset.h"
#include "proto/cleanup.h"
#include "push.h"
#include "reconnect.h"
#include "spec.h"

/* The daemon answers CloseJob at once; one that is stopped must not hold up the end of a program.
 */
#define CLOSE_ANSWER_MS 1000

/* -- references ------------------------------------------------------------------------------ */

void job_close_fds(struct pinclient_job *job)
{
    close_fd(&job->epoll_fd);
    close_fd(&job->event_fd);
    connection_close(job->connection);
    job->connection = NULL;
}

static void job_free(struct pinclient_job *job)
{
    struct pinclient_job *front = job->front;

    reconnect_free(job);
    copier_free(job);
    push_free(job);
    job_unmap_all(job);
    device_close(job->device);
    job_close_fds(job);
    job_forget_ready(job);
    pthread_mutex_destroy(&job->lock);
    pthread_mutex_destroy(&job->calls_store);
    free(job->plan);
    free(job);
    if (front)
        job_unref(front, false);
}

static void *job_free_thread(void *job)
{
    job_free(job);
    return NULL;
}

/* The last reference went where CUDA must not be called: the end needs a thread of its own. Without
 * one the memory stays mapped until the process ends, and the daemon keeps it as long. */
static void job_free_elsewhere(struct pinclient_job *job)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_create(&thread, &attributes, job_free_thread, job);
        pthread_attr_destroy(&attributes);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void job_ref(struct pinclient_job *job)
{
    pthread_mutex_lock(&job->lock);
    job->references++;
    pthread_mutex_unlock(&job->lock);
}

void job_unref(struct pinclient_job *job, bool in_driver)
{
    pthread_mutex_lock(&job->lock);
    bool last = --job->references == 0;
    pthread_mutex_unlock(&job->lock);

    if (last && in_driver)
        job_free_elsewhere(job);
    else if (last)
        job_free(job);
}

/* -- opening --------------------------------------------------------------------------------- */

struct pinclient_job *job_new(struct failure *failure)
{
    struct pinclient_job *job = calloc(1, sizeof *job);

    if (!job) {
        failure_set(failure, -ENOMEM, "no memory for a job");
        return NULL;
    }
    handle_init(&job->handle, HANDLE_JOB);
    job->epoll_fd = job->event_fd = -1;
    job->references = 1;
    list_init(&job->rings);
    pthread_mutex_init(&job->lock, NULL);
    pthread_mutex_init(&job->calls_store, NULL);
    job->calls = &job->calls_store;
    return job;
}

/* Batches in host memory can do without one. */
int job_open_device(struct pinclient_job *job, const struct pinclient_spec *spec,
                    struct failure *failure)
{
    int r = device_resolve(spec->device, job->device_name, failure);

    if (r < 0 || strcmp(job->device_name, "host") == 0)
        return r;
    r = device_open(job->device_name, &job->device, failure);
    return spec->delivery == PINSERVE__DELIVERY__DELIVERY_HOST ? 0 : r;
}

static int job_watch(struct pinclient_job *job, struct failure *failure)
{
    struct epoll_event event = {.events = EPOLLIN};

    job->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    job->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (job->epoll_fd < 0 || job->event_fd < 0 ||
        epoll_ctl(job->epoll_fd, EPOLL_CTL_ADD, job->event_fd, &event) < 0 ||
        epoll_ctl(job->epoll_fd, EPOLL_CTL_ADD, connection_socket(job->connection), &event) < 0)
        return failure_set(failure, -errno, "no file descriptor for a job: %s", strerror(errno));
    return 0;
}

/* blend: NULL, or the spec's as this job's files are. */
static int job_register(struct pinclient_job *job, const struct pinclient_spec *spec,
                        const struct spec_blend *blend, struct failure *failure)
{
    Pinserve__Source source = spec->source;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;
    Pinserve__OpenJob open = PINSERVE__OPEN_JOB__INIT;
    struct wire_packet reply = WIRE_PACKET_INIT;
    char pci[DEVICE_PCI_MAX];

    spec_open_job(spec, &open);
    open.device = job->device_name;
    open.source = &source;
    if (blend)
        source.blend = blend->list;
    if (job->device) {
        device_pci(job->device, pci);
        open.pci = pci;
    }
    message.body_case = PINSERVE__MESSAGE__BODY_OPEN_JOB;
    message.open_job = &open;
    int r = connection_call(job->connection, &message, NULL, 0, &reply, failure);
    if (r < 0)
        return r;
    if (reply.message->body_case == PINSERVE__MESSAGE__BODY_JOB_OPENED)
        job->info.id = reply.message->job_opened->job;
    else
        r = failure_set(failure, -EPROTO, "the daemon answered OpenJob with something else");
    wire_packet_deinit(&reply);
    return r;
}

int job_opening_event(struct pinclient_job *job, struct wire_packet *packet,
                      struct failure *failure)
{
    const Pinserve__Message *message = packet->message;
    const Pinserve__Ring *ring = NULL;
    int r;

    switch (message->body_case) {
    case PINSERVE__MESSAGE__BODY_PROGRESS:
    case PINSERVE__MESSAGE__BODY_GOODBYE:
        return 0;
    case PINSERVE__MESSAGE__BODY_REGION_ADDED:
        return job_add_region(job, packet, failure);
    case PINSERVE__MESSAGE__BODY_SLOT_GRANTED:
        return push_take_grant(job, message->slot_granted, failure);
    case PINSERVE__MESSAGE__BODY_JOB_FAILED:
        return failure_set(failure, connection_code(message->job_failed->code), "%s",
                           message->job_failed->text);
    case PINSERVE__MESSAGE__BODY_JOB_READY:
        if (job->token)
            break;
        r = job_take_ready(job, message->job_ready, failure);
        if (r < 0)
            return r;
        ring = message->job_ready->ring;
        if (!ring) {
            r = job_use_regions(job, failure);
            return r < 0 ? r : 1;
        }
        break;
    case PINSERVE__MESSAGE__BODY_RING_REPLACED:
        if (job->token)
            ring = message->ring_replaced->ring;
        break;
    default:
        break;
    }
    if (!ring)
        return failure_set(failure, -EPROTO, "the daemon sent message %d before the job was ready",
                           (int)message->body_case);
    r = job_replace_ring(job, ring, packet, failure);
    return r < 0 ? r : !r;
}

/* Waits as long as indexing takes. Not by poll: so a signal whose handler wants calls to go on
 * (SA_RESTART) does not end the opening. */
static int job_await_ready(struct pinclient_job *job, struct failure *failure)
{
    struct wire_packet packet = WIRE_PACKET_INIT;
    int r;

    do {
        r = connection_receive(job->connection, 0, &packet, failure);
        if (r == -EINTR)
            return failure_set(failure, r, "a signal interrupted the opening of the job");
        if (r < 0)
            return r;
        r = job_opening_event(job, &packet, failure);
        wire_packet_deinit(&packet);
    } while (r == 0);
    return r < 0 ? r : 0;
}

void job_say_close(struct pinclient_job *job)
{
    Pinserve__Message request = PINSERVE__MESSAGE__INIT;
    Pinserve__CloseJob close = PINSERVE__CLOSE_JOB__INIT;
    struct wire_packet packet = WIRE_PACKET_INIT;
    int64_t deadline = connection_clock_ms() + CLOSE_ANSWER_MS;
    bool answered = false;

    close.job = job->info.id;
    request.id = connection_next_id(job->connection);
    request.body_case = PINSERVE__MESSAGE__BODY_CLOSE_JOB;
    request.close_job = &close;
    if (connection_send(job->connection, &request, NULL, 0, NULL) < 0)
        return;
    while (!answered && connection_receive_until(job->connection, deadline, &packet, NULL) == 0) {
        const Pinserve__Message *message = packet.message;
        const Pinserve__Ring *ring = NULL;
        if (message->body_case == PINSERVE__MESSAGE__BODY_BATCH_READY)
            job_send_release(job, message->batch_ready->lease, message->batch_ready->generation);
        else if (message->body_case == PINSERVE__MESSAGE__BODY_JOB_READY)
            ring = message->job_ready->ring;
        else if (message->body_case == PINSERVE__MESSAGE__BODY_RING_REPLACED)
            ring = message->ring_replaced->ring;
        if (ring && ring->ring != 0)
            job_answer_ring(job, ring->ring, "the job is being closed");
        answered = message->id == request.id;
        wire_packet_deinit(&packet);
    }
}

/* Deliveries that the GPU and its driver can do here. */
static unsigned device_can(const struct device *device)
{
    unsigned can = CONNECTION_CAN_IPC | CONNECTION_CAN_COPY;

    if (device_can_fd(device))
        can |= CONNECTION_CAN_FD;
    if (device_can_map(device))
        can |= CONNECTION_CAN_MAPPED;
    if (device_can_map(device) && device_is_coherent(device))
        can |= CONNECTION_IS_COHERENT;
    return can;
}

int job_connect(struct pinclient_job *job, const char *socket, struct failure *failure)
{
    unsigned can = job->device ? device_can(job->device) : 0;
    int r = connection_open_for(socket, can, &job->connection, failure);

    return r < 0 ? r : job_watch(job, failure);
}

int job_ask(struct pinclient_job *job, const struct pinclient_spec *spec, struct failure *failure)
{
    cleanup_free struct spec_blend *blend = NULL;
    int r = spec_blend_clone(spec->blend, &blend, failure);

    if (r == 0)
        r = dataset_send(spec, blend, job->connection, failure);
    return r < 0 ? r : job_register(job, spec, blend, failure);
}

static int job_open(struct pinclient_job *job, const struct pinclient *client,
                    const struct pinclient_spec *spec, struct failure *failure)
{
    int r = job_open_device(job, spec, failure);

    if (r == 0 && spec->source.kind == PINSERVE__SOURCE_KIND__SOURCE_PUSH)
        r = push_new(job, spec->depth, failure);
    if (r == 0)
        r = job_connect(job, connection_path(client->connection), failure);
    if (r == 0)
        r = job_ask(job, spec, failure);
    if (r < 0)
        return r;
    r = job_await_ready(job, failure);
    if (r < 0 && r != -EPIPE)
        job_say_close(job);
    return r;
}

int pinclient_job_open(struct pinclient *client, const struct pinclient_spec *spec,
                       struct pinclient_job **job_p)
{
    struct failure *failure = client->handle.failure;
    int r = handle_check(&client->handle);

    if (r < 0)
        return r;
    if (!client->connection)
        return failure_set(failure, -ENOTCONN, "this client is not connected to a daemon");
    if (!spec->source_text)
        return failure_set(failure, -EINVAL, "the spec names no source");
    struct pinclient_job *job = job_new(failure);
    if (!job)
        return -ENOMEM;
    r = job_open(job, client, spec, failure);
    if (r < 0) {
        job_unref(job, false);
        return r;
    }
    if (spec->reconnect) {
        r = reconnect_new(job, spec, job_p, failure);
        if (r < 0)
            pinclient_job_close(job);
        return r;
    }
    *job_p = job;
    return 0;
}

int pinclient_job_info(const struct pinclient_job *job, struct pinclient_job_info *info_p)
{
    if (job->reconnect)
        reconnect_info(job, info_p);
    else
        *info_p = job->info;
    return 0;
}

static void job_close(struct pinclient_job *job)
{
    if (job->copier)
        copier_give_back(job);
    push_give_back(job);
    if (job->final.code != -EPIPE)
        job_say_close(job);
    pthread_mutex_lock(job->calls);
    job_drop_late(job);
    pthread_mutex_unlock(job->calls);
    job_unref(job, false);
}

void pinclient_job_close(struct pinclient_job *job)
{
    if (!job)
        return;
    if (handle_check(&job->handle) < 0) {
        /* A child: the descriptors are copies of its own; all else is the parent's, and the memory
         * goes with the process. */
        if (job->reconnect)
            reconnect_close_fds(job);
        job_close_fds(job);
        return;
    }
    if (job->reconnect)
        reconnect_close(job);
    else
        job_close(job);
}
