/*
 * OpenJob: from what a client wrote to a job of the core and its task. Every
 * value is checked here; what only the dataset can tell is checked when it is
 * indexed.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/peer.h"
#include "log.h"
#include "proto/cleanup.h"

_Static_assert((int)ORDER_SHUFFLE_NONE == (int)PINSERVE__SHUFFLE__SHUFFLE_NONE, "shuffles");
_Static_assert((int)ORDER_LAST_PARTIAL == (int)PINSERVE__LAST__LAST_PARTIAL, "ends of epochs");
_Static_assert((int)ORDER_BAD_SUBSTITUTE == (int)PINSERVE__BAD_SAMPLES__BAD_SUBSTITUTE,
               "bad samples");
_Static_assert((int)FILTER_KIND_BICUBIC == (int)PINSERVE__FILTER__FILTER_BICUBIC, "filters");
_Static_assert((int)CROP_KIND_CENTER == (int)PINSERVE__CROP_KIND__CROP_CENTER, "crops");

static int pipeline_from_wire(const Pinserve__Pipeline *wire, struct pipeline *pipeline,
                              struct failure *failure)
{
    memset(pipeline, 0, sizeof *pipeline);
    if (wire) {
        if ((unsigned)wire->crop > CROP_KIND_CENTER)
            return failure_set(failure, -EINVAL, "a crop of kind %d is unknown", (int)wire->crop);
        *pipeline = (struct pipeline){
            .crop = (enum crop_kind)wire->crop,
            .size = wire->size,
            .resize = wire->resize,
            .area_min_ppm = wire->area_min_ppm,
            .area_max_ppm = wire->area_max_ppm,
            .ratio_min_ppm = wire->ratio_min_ppm,
            .ratio_max_ppm = wire->ratio_max_ppm,
            .flip_ppm = wire->flip_ppm,
            .filter = (enum filter_kind)wire->filter,
            .orient = wire->orient,
        };
    }
    return pipeline_check(pipeline, failure);
}

static int order_from_wire(const Pinserve__OpenJob *open, struct order *order,
                           struct failure *failure)
{
    const Pinserve__Order *wire = open->order;

    memset(order, 0, sizeof *order);
    order->batch = open->batch;
    order->world = 1;
    if ((unsigned)open->bad > ORDER_BAD_SUBSTITUTE)
        return failure_set(failure, -EINVAL, "bad samples %d is unknown", (int)open->bad);
    order->bad = (enum order_bad)open->bad;
    if (open->batch == 0 || open->batch > BATCH_MAX)
        return failure_set(failure, -EINVAL, "a batch of %u samples; 1 to %u are possible",
                           open->batch, BATCH_MAX);
    if (!wire)
        return 0;
    if ((unsigned)wire->shuffle > ORDER_SHUFFLE_NONE || (unsigned)wire->last > ORDER_LAST_PARTIAL)
        return failure_set(failure, -EINVAL, "shuffle %d or last %d is unknown", (int)wire->shuffle,
                           (int)wire->last);
    order->shuffle = (enum order_shuffle)wire->shuffle;
    order->last = (enum order_last)wire->last;
    order->seed = wire->seed;
    order->rank = wire->rank;
    order->world = wire->world;
    return 0;
}

static int start_from_wire(const Pinserve__OpenJob *open, struct core_job_spec *spec,
                           struct failure *failure)
{
    const Pinserve__ResumeToken *token = open->token;

    switch (open->start) {
    case PINSERVE__START__START_CURSOR:
        spec->start = (struct cursor){.epoch = open->epoch, .step = open->step};
        return 0;
    case PINSERVE__START__START_TOKEN:
        break;
    case PINSERVE__START__START_LIVE:
        spec->live = true;
        return 0;
    default:
        return failure_set(failure, -EINVAL, "start %d is unknown", (int)open->start);
    }
    if (!token)
        return failure_set(failure, -EINVAL, "a start from a token, without one");
    if (token->version != 1)
        return failure_set(failure, -EINVAL, "resume token: version %u is not served, 1 is",
                           token->version);
    spec->has_token = true;
    spec->token = (struct order_token){
        .dataset = token->dataset,
        .pipeline = token->pipeline,
        .fingerprint = token->fingerprint,
        .seed = token->seed,
        .shuffle = (enum order_shuffle)token->shuffle,
        .last = (enum order_last)token->last,
        .bad = (enum order_bad)token->bad,
        .global_batch = token->global_batch,
        .epoch = token->epoch,
        .position = token->position,
    };
    return 0;
}

/* Names, texts and the list that live as long as the task. */
static int task_name(struct task *task, const struct peer *peer, const Pinserve__OpenJob *open,
                     const char *pipeline)
{
    task->name = strndup(open->name, 128);
    task->source_name = strdup(open->source->name);
    task->pipeline_name = strdup(pipeline);
    snprintf(task->device_text, sizeof task->device_text, "%s", task->station->device->info.uuid);
    task->peer_id = peer->id;
    task->pid = peer->pid;
    task->uid = peer->identity.uid;
    if (task->order.bad != ORDER_BAD_FAIL && !(task->bad = bad_list_new()))
        return -ENOMEM;
    return task->name && task->source_name && task->pipeline_name ? 0 : -ENOMEM;
}

static void peer_send_job_opened(struct peer *peer, uint64_t id, uint64_t job)
{
    Pinserve__JobOpened opened = PINSERVE__JOB_OPENED__INIT;
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;

    opened.job = job;
    message.id = id;
    message.body_case = PINSERVE__MESSAGE__BODY_JOB_OPENED;
    message.job_opened = &opened;
    peer_send(peer, &message, NULL, 0);
}

/* A client with a part of a GPU (MIG) knows a UUID of its own for it, and the GPU's address. */
static int station_of_client(struct server *server, const Pinserve__OpenJob *open,
                             struct station **station_p, const char **no_ring_p,
                             struct failure *failure)
{
    int r = station_find(server, open->device, station_p, failure);

    if (r != -ENODEV || !open->pci[0] || station_find_pci(server, open->pci, station_p) < 0)
        return r;
    *no_ring_p = "the client has a part of the GPU (MIG)";
    return 0;
}

/* The job's own part of the spec: what its order, pipeline and start are is in it already. */
static void spec_fill(struct core_job_spec *spec, const struct peer *peer,
                      const Pinserve__OpenJob *open, const struct station *station)
{
    if (open->bad_limit)
        spec->bad_limit = (struct core_bad_limit){.has = true,
                                                  .samples = open->bad_limit->samples,
                                                  .share_ppm = open->bad_limit->share_ppm};
    spec->depth = open->depth;
    spec->device = station->number;
    spec->delivery = (enum delivery)open->delivery;
    spec->dataset = open->source->name;
    spec->client_fd = peer->client_fd;
    spec->client_ipc = peer->client_ipc;
    spec->client_copy = peer->client_copy;
    spec->client_mapped = peer->client_mapped;
    spec->client_coherent = peer->client_coherent;
}

/* Takes the request over when it succeeds. */
static int peer_open_job(struct peer *peer, uint64_t id, const Pinserve__OpenJob *open,
                         struct source_request **request_p, struct failure *failure)
{
    struct server *server = peer->server;
    struct core_job_spec spec = {0};
    struct pipeline pipeline;
    struct station *station = NULL;
    char text[256];

    int r = source_request_from_wire(peer, open->source, request_p, failure);
    if (r == 0)
        r = pipeline_from_wire(open->pipeline, &pipeline, failure);
    if (r == 0)
        r = order_from_wire(open, &spec.order, failure);
    if (r == 0)
        r = start_from_wire(open, &spec, failure);
    if (r == 0)
        r = station_of_client(server, open, &station, &spec.no_ring, failure);
    if (r == 0)
        r = station_accepts(station, failure);
    if (r < 0 || !station)
        return r;
    if ((unsigned)open->delivery > DELIVERY_MAPPED)
        return failure_set(failure, -EINVAL, "delivery %d is unknown", (int)open->delivery);
    if (server->stopping)
        return failure_set(failure, -ESHUTDOWN, "the daemon is ending");

    spec_fill(&spec, peer, open, station);
    spec.pipeline = pipeline_text(&pipeline, text, sizeof text);
    spec.pushed = (*request_p)->spec.kind == SOURCE_KIND_PUSH;
    if (spec.depth == 0 || spec.depth > DEPTH_MAX)
        return failure_set(failure, -EINVAL, "a depth of %u; 1 to %d are possible", spec.depth,
                           DEPTH_MAX);
    struct task *task = task_new(server, 0, spec.depth);
    if (!task)
        return failure_set(failure, -ENOMEM, "no memory for a job of depth %u", spec.depth);
    task->peer = peer;
    task->station = station;
    task->pipeline = pipeline;
    task->order = spec.order;
    r = task_name(task, peer, open, text);
    if (r < 0)
        failure_set(failure, r, "no memory for a job");
    if (r == 0 && spec.pushed)
        r = push_open(task, open, failure);
    if (r == 0)
        r = core_job_open(server->core, peer->tenant, peer->id, &spec, server_now(server),
                          &task->job, failure);
    if (r < 0) {
        task_free(task);
        return r;
    }
    task->tenant = account_ref(&server->accounts, peer->tenant->key);
    task->files = peer->files;
    peer->files = (struct charge){0};
    task->source_kind = (*request_p)->spec.kind;
    task->request = steal_ptr(*request_p);
    list_append(&server->tasks, &task->link);
    log_info("job %" PRIu64 ": opened by pid %" PRIu64 ", uid %" PRIu64 ": %s, %s, batch %u on %s",
             task->job, task->pid, task->uid, task->source_name, text, open->batch,
             task->device_text);
    peer_send_job_opened(peer, id, task->job);
    return 0;
}

int peer_handle_open(struct peer *peer, uint64_t id, const Pinserve__OpenJob *open,
                     struct failure *reason)
{
    struct source_request *request = NULL;
    struct failure failure = {0};

    (void)reason;
    if (peer_open_job(peer, id, open, &request, &failure) < 0)
        peer_send_error(peer, id, &failure);
    if (request)
        server_give_up_request(peer->server, request);
    peer_drop_dataset(peer);
    return 0;
}
