/*
 * The daemon's end of the protocol, for tests of the client library: a
 * listening socket, a thread that answers what the library waits for, and calls
 * to send and expect everything else from the test itself.
 */
#ifndef PINSERVE_TESTS_CLIENT_PEER_H
#define PINSERVE_TESTS_CLIENT_PEER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/pinclient.h"
#include "proto/wire.h"

#define PEER_SLOT 4096u
#define PEER_REGION 7u
#define PEER_JOB 42u
#define PEER_STEPS 3u
#define PEER_EVENTS_MAX 256

/* What a client sent behind the opening. */
struct peer_event {
    Pinserve__Message__BodyCase kind;
    uint32_t lease, generation, ring;
    bool ok;
    char error[256];
};

struct peer {
    char directory[64], path[108];
    int listener;
    int question, job; /* accepted connections */
    int region_fd;
    uint8_t *region;
    uint32_t depth, batch;
    const char *device; /* of JobReady */

    /* How the opening goes. */
    bool silent;            /* no Hello */
    bool garbage;           /* bytes that are no message, in place of the Hello */
    uint32_t major;         /* of the Hello; 0: the right one */
    const char *refuse;     /* Error in place of the Hello, or of JobOpened when there was a job */
    const char *refuse_job; /* Error in place of JobOpened */
    int refuse_code;        /* of that; 0: -ENODEV */
    const char *fail_job;   /* JobFailed in place of JobReady */
    bool keep_opening;      /* nothing in place of JobReady */
    void (*ready)(Pinserve__JobReady *ready); /* changes JobReady */
    bool opening_fails;                       /* the test expects the client to give up then */
    /* Rings to offer, one after the other until one is opened; n_rings 0: host memory. */
    struct {
        Pinserve__Delivery delivery;
        int fd;
        uint8_t handle[64];
        uint64_t bytes;
    } rings[3];
    int n_rings;

    /* What the client said on the way. */
    char capabilities[64];
    char device_asked[128];
    uint64_t samples_asked;
    Pinserve__Start start_asked;
    uint64_t epoch_asked, position_asked; /* of the token */
    size_t n_dataset_fds, n_dataset_packets;
    char first_name[256];

    struct peer_event events[PEER_EVENTS_MAX];
    size_t n_events;
    pthread_t thread;

    struct pinclient *client;
    bool reconnect; /* the default job's */
};

void peer_init(struct peer *peer);
void peer_deinit(struct peer *peer);

/* Connects; the result is pinclient_connect's. */
int peer_connect(struct peer *peer);
/* Opens a job by spec; the result is pinclient_job_open's. */
int peer_open(struct peer *peer, const struct pinclient_spec *spec, struct pinclient_job **job_p);
/* The same with a spec that fits the peer. */
int peer_open_default(struct peer *peer, struct pinclient_job **job_p);
/* In two parts: answers a job that is opened in the meantime; end waits until it is. */
void peer_open_start(struct peer *peer);
void peer_open_end(struct peer *peer);
/* Closes it, answering CloseJob; what came is in events. */
void peer_close(struct peer *peer, struct pinclient_job *job);
/* In two parts: answers CloseJob from start on; end waits until the client has hung up. */
void peer_close_start(struct peer *peer);
void peer_close_end(struct peer *peer);

/* Accepts a connection and exchanges Hellos as the test wants; -1: that was all. */
int peer_accept(struct peer *peer);

void peer_send(const struct peer *peer, const Pinserve__Message *message, int fd);
void peer_send_batch(const struct peer *peer, uint32_t lease, uint32_t generation, uint64_t epoch,
                     uint64_t step, uint32_t ring);
/* Sends a batch, and takes it from the job; ends the program when none comes. */
struct pinclient_batch *peer_take(struct peer *peer, struct pinclient_job *job, uint32_t lease,
                                  uint64_t step, uint32_t ring);
/* Of its tensor "data". */
uint8_t peer_first_byte(const struct pinclient_batch *batch);
void peer_send_epoch_end(const struct peer *peer, uint64_t epoch);
void peer_send_failed(const struct peer *peer, int code, const char *text);
void peer_send_ring_replaced(const struct peer *peer, int i, uint32_t ring);
/* The daemon dies. */
void peer_hang_up(struct peer *peer);

/* Waits for the client's next notice; false after timeout_ms without one. */
bool peer_expect(struct peer *peer, int timeout_ms, struct peer_event *event_p);
/* How many events of a kind there were. */
size_t peer_count(const struct peer *peer, Pinserve__Message__BodyCase kind);

#endif
