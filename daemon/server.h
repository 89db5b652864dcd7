/*
 * The server: one loop thread that carries events to the core and the core's
 * actions out. It owns everything; its parts are files of their own:
 *
 *   server.c    start, end, timers
 *   stations.c  a station: a device with its pool and its workers; stations_find.c
 *   drain.c     stations that are taken out of service
 *   growth.c    pools that grow and shrink, off the loop
 *   tasks.c     a task: what the server keeps of a job (source, layout, works)
 *   indexing.c  from what a client asked for to a source, off the loop
 *   probing.c   what is to be made of one image file, off the loop
 *   disposal.c  closing what a client brought, off the loop
 *   gather.c    records that the copy engine takes from the page cache
 *   actions.c   the core's actions
 *   control/    sockets, peers, messages, slots that clients fill
 *
 * Everything here is touched by the loop thread only, but for struct work, what
 * is handed to uv_queue_work, struct index_run and struct probe, which belong to
 * their thread until done.
 */
#ifndef PINSERVE_SERVER_H
#define PINSERVE_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "config.h"
#include "core/core.h"
#include "decode/bad_list.h"
#include "decode/decode.h"
#include "decode/workers.h"
#include "device/device.h"
#include "device/link.h"
#include "memory/pool.h"
#include "proto/list.h"
#include "rate.h"
#include "source/source.h"

#define STATIONS_MAX 65 /* 64 GPUs and the host */
#define WARNINGS_MAX 16

struct peer;
struct listener;
struct disposal;
struct push;
struct server;

/* Workers of one NUMA node, shared by the stations that are near it. */
struct crew {
    int cpu_node;
    struct workers *workers; /* NULL until the first job */
};

/* A device with its pool and its workers. */
struct station {
    struct server *server;
    uint32_t number; /* the core's */
    struct device *device;
    struct placement placement;
    struct crew *crew;
    struct pool *pool;
    struct list reservations; /* waiting for room, in order */
    bool growing;
    bool up;       /* a process was started and not yet lost */
    bool opened;   /* it has its context */
    bool closing;  /* it was asked to end */
    bool draining; /* out of service: no job is accepted */
    uint64_t idle_since;
    uint64_t copied_bytes;
    struct rate copied_rate;
    struct list gathers; /* files that tasks gather from */
    uint32_t last_file;
    uint64_t gathered_bytes; /* of files, registered in its process */
    uint64_t gathered_batches;
    struct link link; /* as read last */
    uint32_t restarts;
    uint32_t *registered; /* regions that the process has, n_registered of them */
    uint32_t n_registered, registered_capacity;
    uv_poll_t *poll, *pid_poll;
    int polled_events;
    bool warned_lock, warned_bind;
};

/* A copy under way; its address is the device's cookie. */
struct copy {
    struct task *task;
    uint32_t ring, lease, generation;
    uint64_t bytes;
    int gathered_slot; /* -1: it is not gathered */
};

/* What the server keeps of a job of the core, until CORE_JOB_GONE. */
struct task {
    struct list link; /* in server->tasks */
    struct server *server;
    uint64_t job;
    struct peer *peer; /* NULL: its connection is closed */
    uint64_t peer_id;
    struct account *tenant;
    struct station *station;
    char *name, *source_name, *pipeline_name;
    uint64_t pid, uid;
    char device_text[DEVICE_UUID_MAX];
    struct pipeline pipeline;
    struct layout layout;
    struct order order;
    struct source *source;
    struct stream *stream; /* what readers read for it; NULL until it is decoded, or if it is raw */
    struct charge files;   /* that the source keeps open */
    struct bad_list *bad;  /* shared with its mates. NULL: a bad sample ends the job */
    uint32_t depth;
    bool mapped;       /* its client maps its slots: delivered in place, or pushed */
    struct push *push; /* its client fills its slots; NULL: the workers do */
    enum source_kind source_kind;
    struct source_request *request; /* until a thread indexes it */
    struct index_run *indexing;     /* while a thread indexes */
    struct reservation *reservation;
    uint64_t *memory;      /* of its slots, NULL: none */
    struct work *works;    /* of each slot, and */
    uint32_t *generations; /* the slot's when it was handed to the workers */
    struct copy *copies;
    struct gather *gather; /* NULL: its records go through slots */
    bool gather_told;      /* whether it gathers was decided */
    bool *gathered;        /* of each slot: its batch is to be gathered */
    bool ring_pending;     /* its ring was asked for, and the device's answer is due */
    uint32_t refused;      /* ring that the client could not open, not yet told to the core; or 0 */
    char *refusal;         /* why, in its words */
    uint64_t refused_at;
    int ring_fd; /* between ring_made and JobReady; -1 */
    uint8_t ipc_handle[DEVICE_IPC_HANDLE_BYTES];
    uint32_t *told_regions; /* that the client has, n_told of them */
    uint32_t n_told;
    uint64_t indexed_told;
};

struct server {
    const struct config *config;
    uv_loop_t loop;
    uv_timer_t tick;
    uv_check_t after_poll;
    uv_async_t works_done;
    pthread_mutex_t done_lock;
    struct list done;       /* struct work, by link */
    struct list index_runs; /* threads that index, and */
    struct list indexed;    /* those that are done */
    struct list probes;     /* threads that probe, and */
    struct list probed;     /* those that are done */
    struct disposal *disposal;

    struct readers *readers;
    struct index_cache *cache; /* NULL: indexes are not saved */
    struct topology *topology;
    struct accounts accounts;
    struct core *core;
    struct station stations[STATIONS_MAX];
    uint32_t n_stations;
    struct crew crews[STATIONS_MAX];
    uint32_t n_crews;

    struct list tasks, peers;
    struct list departed; /* peers whose socket is closed and whose process lives */
    struct list kept_sources;
    struct list lingering; /* regions destroyed here and still mapped elsewhere */
    uint64_t lingering_bytes;
    uint64_t lingering_until; /* reservations wait for them */
    uint32_t next_region;     /* its number, of all pools */
    struct listener *listener;
    uint64_t next_peer;
    uint32_t n_peers;
    bool any_broken; /* peers_sweep has something to do */

    uint64_t started; /* ns */
    uint64_t peers_seen, peers_dropped;
    uint64_t without_end, plain_inks; /* of images decoded */
    char warnings[WARNINGS_MAX][256];
    uint32_t n_warnings;
    unsigned busy;     /* uv_queue_work, index runs and probes under way */
    unsigned retiring; /* of these: regions being destroyed */
    bool acting;       /* server_act is running */
    bool stopping;     /* server_stop was called: */
    enum {
        STOP_JOBS,    /* the jobs end */
        STOP_DEVICES, /* then the devices' processes */
        STOP_REGIONS, /* then the regions are destroyed */
        STOP_DONE,
    } stop_phase;
    uint64_t stop_deadline;
    bool quiet_lock; /* one warning about locking, for all */
    int exit_code;
    void (*ready)(void *user); /* pools are at pool.min, the socket listens */
    void *ready_user;
    bool is_ready;
};

static inline uint64_t server_now(struct server *server)
{
    (void)server;
    return uv_hrtime();
}

/* server.c ------------------------------------------------------------------------------------ */

/* What the socket is: an fd that already listens (taken over), or -1 and a path to bind. */
struct server_socket {
    int fd_consume;
    const char *path;
};

int server_init(struct server *server, const struct config *config,
                const struct server_socket *socket, struct failure *failure);
/* Grows the pool to pool.min, then calls ready (perhaps before it returns): what listens may start.
 */
int server_start(struct server *server, void (*ready)(void *user), void *user,
                 struct failure *failure);
/* Runs until server_stop is done. 0, or 1 when something was left over. */
int server_run(struct server *server);
/* Starts the orderly end: peers are told, work ends, memory is returned. Idempotent. */
void server_stop(struct server *server);
void server_deinit(struct server *server);
/* A condition an operator should know of: logged once and shown by pinctl status. */
void server_warn(struct server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Called whenever something ended that the orderly end waits for. */
void server_check_stopped(struct server *server);
/* Something needs the tick: it rests while nothing does. */
void server_wake(struct server *server);

/* stations.c ---------------------------------------------------------------------------------- */

int stations_init(struct server *server, struct failure *failure);
void stations_close(struct server *server);
void stations_deinit(struct server *server);
bool stations_closed(const struct server *server);
void stations_tick(struct server *server, uint64_t now);
/* By UUID, a unique prefix of one, "host", or "" for the first that is in service, or else the
 * first; -ENODEV lists what there is. */
int station_find(struct server *server, const char *device, struct station **station_p,
                 struct failure *failure);
/* By its PCI address; -ENODEV. */
int station_find_pci(struct server *server, const char *pci, struct station **station_p);
/* Its device's process, started when it is not up. */
int station_open(struct station *station, struct failure *failure);
/* Polls what the device wants now; after every command. */
void station_poll(struct station *station);
/* The region is with the device's process: registers it when it is not. */
int station_register(struct station *station, struct region *region);
void station_unregister(struct station *station, uint32_t region);
/* The workers, started when they are not. */
int station_crew(struct station *station, struct failure *failure);

/* drain.c ------------------------------------------------------------------------------------- */

/* Ends a job on behalf of whom `by` names, who may. -ENOENT, -EALREADY in words. */
int server_evict(struct server *server, uint64_t job, const char *by, struct failure *failure);
/* Ends its jobs, and its process when no client has anything of it any more. */
void station_drain(struct station *station, const char *by);
void station_resume(struct station *station, const char *by);
/* Refuses a job on it, in words, when it is out of service. */
int station_accepts(const struct station *station, struct failure *failure);
/* "serving", "draining" or "drained": nothing is left on it. */
const char *station_state(const struct station *station);

/* growth.c ------------------------------------------------------------------------------------ */

/* Finds room for a task's slots, growing the pool; answers the core. */
void growth_reserve(struct task *task, uint64_t bytes, uint32_t count);
/* Grows the first station to pool.min and says so on server->ready. */
int growth_start(struct server *server, struct failure *failure);
void growth_tick(struct server *server, uint64_t now);
/* Destroys every region without a slot, for the end. */
void growth_release_all(struct server *server);
bool growth_idle(const struct server *server);

/* tasks.c ------------------------------------------------------------------------------------- */

/* A client's wish for a source, as OpenJob gave it; owns its fds. */
struct source_request {
    struct source_spec spec; /* points into this */
    struct identity identity;
    char *name;
    char *fields;              /* NULL: none */
    struct source_part *parts; /* and their names; NULL: none */
    int *fds;
    char **fd_names;
};

struct source_request *source_request_new(const char *name, const struct identity *identity);
void source_request_free(struct source_request *request);

struct task *task_new(struct server *server, uint64_t job, uint32_t depth);
void task_free(struct task *task);
struct task *task_find(struct server *server, uint64_t job);
void task_report_progress(struct server *server);
/* A client could not open a ring on offer. When its device's process has just ended that is why,
 * and no fault of the rung, but the end may be noticed later than the refusal: it is kept for a
 * moment. False: no such ring is on offer to the peer. */
bool task_keep_refusal(struct server *server, const struct peer *peer, uint64_t job, uint32_t ring,
                       const char *error);
void tasks_settle_refusals(struct server *server, uint64_t now);
/* Keeps its bad samples together with those of a job that wants the same batches: what one has
 * decoded the other may deliver. */
void task_share_bad(struct task *task);
/* Its client is about to let go of the regions that it was given: they may be taken out then. */
void task_forget_regions(struct task *task);
/* The job is closed: what was read ahead for it is dropped, its regions are forgotten. */
void task_stop_reading(struct task *task);
/* The same for every job of a peer. */
void tasks_stop_reading(struct server *server, uint64_t peer);
/* Hands a slot to the workers. */
void task_decode(struct task *task, const struct core_action *action);
void tasks_check_stuck(struct server *server);
/* Takes what the workers have done back to the core. */
void tasks_collect(uv_async_t *async);

/* indexing.c ---------------------------------------------------------------------------------- */

void task_index(struct task *task);
void task_index_cancel(struct task *task);
/* Samples found so far. */
uint64_t task_indexed(const struct task *task);
void indexing_collect(struct server *server);
void indexing_check_stuck(struct server *server, uint64_t now);
/* Lets go of the kept indexes. */
void indexing_release_sources(struct server *server);
/* Gives them up off the loop: that closes files. */
void server_give_up_source(struct server *server, struct source *source);
void server_give_up_request(struct server *server, struct source_request *request);

/* probing.c ----------------------------------------------------------------------------------- */

/* What is wanted of a file; answered to the peer, if it is still there. */
struct probe_request {
    uint64_t peer, id;
    int fd_consume; /* consumed in any case */
    const char *name, *member;
    bool pixels;
};

/* -EBUSY, -ENOMEM, ...: it was not begun. */
int probe_begin(struct server *server, struct account *tenant, const struct probe_request *request,
                struct failure *failure);
void probing_collect(struct server *server);

/* gather.c ------------------------------------------------------------------------------------ */

/* Has the task's file registered in the process that is up, if that is possible. */
void gather_attach(struct task *task);
void gather_detach(struct task *task);
/* The batch is to be gathered: core_decoded was called. False: decode it. */
bool gather_decode(struct task *task, const struct core_action *action);

/* Where a copy comes from and goes to. */
struct copy_place {
    uint32_t region;
    uint64_t offset, ring, ring_offset;
};

/* 1: the device was asked to gather the batch. 0: its slot is to be copied as a whole. */
int gather_copy(struct task *task, const struct core_action *action, struct copy *copy,
                const struct copy_place *place);
/* Names the record that was cut off. */
void gather_explain(const struct copy *copy, struct failure *failure);
void gathers_on_ready(struct station *station, uint32_t file, const struct failure *failure);
void gathers_on_lost(struct station *station);

/* control/push.c ------------------------------------------------------------------------------ */

void push_free(struct push *push);
/* Gives a slot to the client to be filled, and takes it back unfilled. */
void push_grant(struct task *task, const struct core_action *action);
void push_cancel(struct task *task, const struct core_action *action);

/* actions.c ----------------------------------------------------------------------------------- */

/* Carries out what the core wants; after every event. */
void server_act(struct server *server);

#endif
