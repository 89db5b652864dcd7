/*
 * A job: its connection, what JobReady said, the memory that is mapped for it,
 * and its batches, one for each lease.
 *
 * References: the caller holds one until pinclient_job_close, and every batch
 * that is not yet given back holds one. The last one gone ends the job: rings
 * are unmapped, the daemon is told so, the connection is closed.
 *
 * Threads: the caller's thread does everything, but for two things. The end of
 * a release that waits for a stream runs on a thread of the driver's, in which
 * CUDA must not be called: `lock` guards what it touches, which is the state of
 * the batches, the leases of the rings, and the references. And a tensor that
 * was exported is dropped by any thread: `calls` is held by that and by each
 * call that takes or gives back batches, never while waiting. `calls` first.
 *
 * What the caller of a job that reconnects holds is a job in front of the others:
 * see reconnect.h.
 */
#ifndef PINSERVE_CLIENT_JOB_H
#define PINSERVE_CLIENT_JOB_H

#include <pthread.h>
#include <stdbool.h>

#include "connection.h"
#include "device.h"
#include "handle.h"
#include "pinclient.h"
#include "proto/limits.h"
#include "proto/list.h"

struct region {
    uint32_t number;
    int fd; /* of a push region, which is mapped writable; else -1 */
    void *address;
    const void *device_address; /* of the same bytes; NULL: none */
    uint64_t bytes;
    bool registered; /* with the device */
};

struct ring {
    struct list link;
    uint32_t number;
    uint32_t leases; /* batches in it that are not given back */
    struct device_ring mapping;
};

enum batch_state {
    BATCH_FREE,
    BATCH_COPYING,   /* delivery copy: its bytes are on their way */
    BATCH_COPIED,    /* delivery copy: not yet the caller's */
    BATCH_LEASED,    /* the caller's */
    BATCH_RELEASING, /* released; a stream still works on it */
};

/* A stream that must pass before the batch is given back. */
struct batch_use {
    void *stream;
    struct device_event *event;
};

struct pinclient_batch {
    struct pinclient_job *job;
    enum batch_state state;
    uint32_t lease, generation, count;
    uint64_t epoch, step;
    const uint8_t *data;    /* of the slot */
    struct ring *ring;      /* NULL: in a region, or copied */
    bool copied;            /* into memory of the job's own: the daemon's lease is released */
    bool on_device;         /* data is an address of the GPU's */
    struct batch_use *uses; /* room for n_uses_room, kept from lease to lease */
    size_t n_uses, n_uses_room;

    /* The lease is given back when all who hold it have dropped it. */
    unsigned holds;  /* the caller, until it releases, and each exported tensor */
    bool owned;      /* by the caller */
    bool late;       /* the last one dropped it while a stream was being captured */
    bool unfollowed; /* a stream could not be followed: the GPU is waited for in the end */
    void **follows;  /* streams that are followed from where they are in the end */
    size_t n_follows, n_follows_room;
};

/* Of a full batch; shape[0] is its count of samples. */
struct tensor {
    struct pinclient_tensor public;
    uint64_t offset; /* in the slot */
};

/* Where pinclient_next goes on. */
struct job_cursor {
    uint64_t epoch, step;
};

struct pinclient_job {
    struct handle handle;
    struct reconnect *reconnect; /* the job in front of others, which has nothing else; else NULL */
    struct pinclient_job *front; /* the one in front of this one, which it holds; else NULL */
    struct pinclient_job *next_late; /* of those that the front tends, see reconnect_note_late */
    bool noted_late;
    struct connection *connection;
    struct device *device; /* NULL: host memory only, and no streams */
    int epoll_fd, event_fd;
    bool fd_wanted;       /* the caller polls epoll_fd: it must tell what was read ahead, */
    bool fd_tells;        /* and does: event_fd is readable for it */
    struct failure final; /* code 0: none yet */

    /* Of JobReady. */
    struct pinclient_job_info info;
    char device_name[DEVICE_NAME_MAX];
    Pinserve__Delivery delivery;
    Pinserve__ResumeToken *token;
    uint64_t slot_bytes;
    struct tensor tensors[TENSORS_MAX];
    struct job_cursor next;
    uint32_t n_leased;           /* batches in state BATCH_LEASED */
    uint32_t n_late;             /* of these, those that are late */
    struct transform_plan *plan; /* of the last pinclient_transform; NULL */
    pthread_mutex_t *calls;      /* calls_store, or that of the job in front */
    pthread_mutex_t calls_store;

    struct region *regions;
    size_t n_regions;
    struct copier *copier; /* delivery copy; else NULL */
    struct push *push;     /* source push; else NULL */

    pthread_mutex_t lock;
    unsigned references;
    struct list rings;               /* the one in force is the last */
    struct pinclient_batch *batches; /* info.depth */
};

/* -- job.c ----------------------------------------------------------------------------------- */

/* Takes and gives a reference back. in_driver: on a thread of the driver's. */
void job_ref(struct pinclient_job *job);
void job_unref(struct pinclient_job *job, bool in_driver);

/* The steps of opening, in their order. First a job with one reference, the caller's; NULL: no
 * memory. */
struct pinclient_job *job_new(struct failure *failure);
/* Which GPU, and what of it this process can use. */
int job_open_device(struct pinclient_job *job, const struct pinclient_spec *spec,
                    struct failure *failure);
/* job->connection stays NULL when no daemon exchanged Hellos. */
int job_connect(struct pinclient_job *job, const char *socket, struct failure *failure);
/* Passes the dataset, and asks for the job. */
int job_ask(struct pinclient_job *job, const struct pinclient_spec *spec, struct failure *failure);
/* One event on the way to the first batch. 1: the job is ready; 0: there is more to come. */
int job_opening_event(struct pinclient_job *job, struct wire_packet *packet,
                      struct failure *failure);

/* Tells the daemon, and gives back what it had announced meanwhile and nobody will take. */
void job_say_close(struct pinclient_job *job);
/* Closes its file descriptors: the end of a job in a child, where all else is the parent's. */
void job_close_fds(struct pinclient_job *job);

/* -- next.c ---------------------------------------------------------------------------------- */

/* pinclient_next for a job with a connection. Under job->calls, which it leaves while it waits. */
int job_take(struct pinclient_job *job, int timeout_ms, struct pinclient_batch **batch_p);

/* Keeps an error that is final for the job and makes its fd readable for good. */
int job_end(struct pinclient_job *job, const struct failure *failure);

/* Makes the fd of pinclient_get_fd tell what was taken from the socket. */
void job_tell_ahead(struct pinclient_job *job);

/* Takes what waits on the socket without handing any of it out: grants are kept, and what is for
 * pinclient_next is set aside, or with delivery copy copied. An error is final for the job. */
int job_absorb(struct pinclient_job *job);

/* -- ready.c --------------------------------------------------------------------------------- */

/* Takes over what JobReady says, all but its ring. -EPROTO when it contradicts itself. */
int job_take_ready(struct pinclient_job *job, const Pinserve__JobReady *ready,
                   struct failure *failure);
const char *job_delivery_text(Pinserve__Delivery delivery);
void job_forget_ready(struct pinclient_job *job);

/* -- mapping.c ------------------------------------------------------------------------------- */

/* Sets up a delivery without a ring, once the regions are there. */
int job_use_regions(struct pinclient_job *job, struct failure *failure);

/* Maps the region that RegionAdded brings. */
int job_add_region(struct pinclient_job *job, struct wire_packet *packet, struct failure *failure);
const struct region *job_find_region(const struct pinclient_job *job, uint32_t number);

/* Maps the ring that JobReady or RingReplaced offers and tells the daemon whether that went well.
 * 0: mapped; 1: it did not, and the daemon will offer another or give up, saying why (`why` is what
 * it was told); negative: no longer any use. */
int job_add_ring(struct pinclient_job *job, const Pinserve__Ring *offer, struct wire_packet *packet,
                 struct failure *why);
/* The same for RingReplaced, which may also end the use of rings: then 0. */
int job_replace_ring(struct pinclient_job *job, const Pinserve__Ring *offer,
                     struct wire_packet *packet, struct failure *failure);
struct ring *job_find_ring(const struct pinclient_job *job, uint32_t number);

/* Tells the daemon whether the ring could be opened: error NULL, or why not. */
int job_answer_ring(struct pinclient_job *job, uint32_t number, const char *error);

/* Unmaps the rings that another has replaced and that no batch lies in, and tells the daemon. */
void job_reap_rings(struct pinclient_job *job);

/* Unmaps everything, and tells the daemon. */
void job_unmap_all(struct pinclient_job *job);

/* -- batch.c --------------------------------------------------------------------------------- */

/* Checks that BatchReady is of the step at the cursor, and finds its bytes; -EPROTO. Ring NULL:
 * they are in a region. */
int job_judge(const struct pinclient_job *job, const struct job_cursor *cursor,
              const Pinserve__BatchReady *ready, const uint8_t **data_p, struct ring **ring_p,
              struct failure *failure);

/* The same for EpochEnd. */
int job_judge_end(const struct pinclient_job *job, const struct job_cursor *cursor,
                  const Pinserve__EpochEnd *end, struct failure *failure);

/* A batch that is LEASED now is the caller's: its place is known. */
void batch_begin(struct pinclient_batch *batch);

/* Makes a lease of what BatchReady says; -EPROTO. */
int job_lease(struct pinclient_job *job, const Pinserve__BatchReady *ready,
              struct pinclient_batch **batch_p, struct failure *failure);

/* Drops one hold on a batch, behind stream; the last one gives it back. -EBUSY: a stream is being
 * captured, and the hold stays. Under job->calls, with a reference to the job. */
int batch_drop(struct pinclient_batch *batch, void *stream);

/* Tries again what was dropped while a stream was being captured. Under job->calls. */
void job_drop_late(struct pinclient_job *job);

/* Tells the daemon that a lease is free. Any thread. */
int job_send_release(const struct pinclient_job *job, uint32_t lease, uint32_t generation);

#endif
