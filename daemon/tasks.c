/*
 * Tasks: what the server keeps of a job of the core: its source, its pipeline
 * and layout, and the works that fill its slots.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/peer.h"
#include "log.h"
#include "proto/cleanup.h"
#include "server.h"

/* -- what a client asked for ----------------------------------------------------------------- */

struct source_request *source_request_new(const char *name, const struct identity *identity)
{
    struct source_request *request = calloc(1, sizeof *request);

    if (!request)
        return NULL;
    request->identity = *identity;
    request->name = strdup(name);
    request->spec.name = request->name;
    request->spec.identity = &request->identity;
    if (!request->name)
        source_request_free(steal_ptr(request));
    return request;
}

void source_request_free(struct source_request *request)
{
    if (!request)
        return;
    for (size_t i = 0; i < request->spec.n_fds; i++) {
        if (request->fds)
            close_fd(&request->fds[i]);
        if (request->fd_names)
            free(request->fd_names[i]);
    }
    free(request->fds);
    free(request->fd_names);
    free(request->name);
    free(request->fields);
    free(request->parts);
    free(request);
}

/* -- tasks ----------------------------------------------------------------------------------- */

struct task *task_new(struct server *server, uint64_t job, uint32_t depth)
{
    struct task *task = calloc(1, sizeof *task);

    if (!task)
        return NULL;
    list_init(&task->link);
    task->server = server;
    task->job = job;
    task->depth = depth;
    task->ring_fd = -1;
    task->memory = calloc(depth, sizeof *task->memory);
    task->works = calloc(depth, sizeof *task->works);
    task->generations = calloc(depth, sizeof *task->generations);
    task->copies = calloc(depth, sizeof *task->copies);
    task->gathered = calloc(depth, sizeof *task->gathered);
    if (!task->memory || !task->works || !task->generations || !task->copies || !task->gathered) {
        task_free(task);
        return NULL;
    }
    for (uint32_t i = 0; i < depth; i++) {
        task->copies[i].task = task;
        list_init(&task->works[i].link);
    }
    return task;
}

void task_free(struct task *task)
{
    list_remove(&task->link);
    gather_detach(task);
    push_free(task->push);
    source_request_free(task->request);
    stream_close(task->stream);
    bad_list_unref(task->bad);
    if (task->source)
        server_give_up_source(task->server, task->source);
    charge_release(&task->files);
    if (task->tenant)
        account_unref(task->tenant);
    close_fd(&task->ring_fd);
    free(task->name);
    free(task->refusal);
    free(task->source_name);
    free(task->pipeline_name);
    free(task->memory);
    free(task->works);
    free(task->generations);
    free(task->copies);
    free(task->gathered);
    task_forget_regions(task);
    free(task->told_regions);
    free(task);
}

struct task *task_find(struct server *server, uint64_t job)
{
    list_for_each(item, &server->tasks)
    {
        struct task *task = list_entry(item, struct task, link);
        if (task->job == job)
            return task;
    }
    return NULL;
}

void task_report_progress(struct server *server)
{
    list_for_each(item, &server->tasks)
    {
        struct task *task = list_entry(item, struct task, link);
        if (!task->indexing || !task->peer)
            continue;
        uint64_t indexed = task_indexed(task);
        if (indexed != task->indexed_told)
            peer_send_progress(task->peer, task->job, indexed);
        task->indexed_told = indexed;
    }
}

/* -- rings that a client could not open ------------------------------------------------------ */

#define REFUSAL_KEPT_NS UINT64_C(200000000)

bool task_keep_refusal(struct server *server, const struct peer *peer, uint64_t job, uint32_t ring,
                       const char *error)
{
    struct task *task = task_find(server, job);
    struct core_job_info info;

    if (!task || task->peer != peer || ring == 0 || task->refused ||
        !core_job_find(server->core, job, &info) || info.ring != ring)
        return false;
    free(task->refusal);
    task->refusal = strndup(error, FAILURE_TEXT_MAX);
    task->refused = ring;
    task->refused_at = server_now(server);
    server_wake(server);
    return true;
}

void tasks_settle_refusals(struct server *server, uint64_t now)
{
    list_for_each_safe(item, &server->tasks)
    {
        struct task *task = list_entry(item, struct task, link);
        if (!task->refused || now - task->refused_at < REFUSAL_KEPT_NS)
            continue;
        uint32_t ring = task->refused;
        task->refused = 0;
        /* Of a ring that is gone by now nobody needs to hear. */
        core_ring_opened(server->core, task->peer_id, task->job, ring, false, task->refusal, now);
    }
    server_act(server);
}

void task_share_bad(struct task *task)
{
    list_for_each(item, &task->server->tasks)
    {
        const struct task *mate = list_entry(item, struct task, link);

        if (mate == task || mate->source != task->source || mate->tenant != task->tenant ||
            !mate->bad || !task->bad || !order_same(&mate->order, &task->order) ||
            strcmp(mate->pipeline_name, task->pipeline_name) != 0)
            continue;
        bad_list_unref(task->bad);
        task->bad = bad_list_ref(mate->bad);
        return;
    }
}

/* -- decoding -------------------------------------------------------------------------------- */

/* On a worker's thread. */
static void task_on_work_done(struct work *work)
{
    struct task *task = work->user;
    struct server *server = task->server;

    pthread_mutex_lock(&server->done_lock);
    bool first = list_empty(&server->done);
    list_append(&server->done, &work->link);
    pthread_mutex_unlock(&server->done_lock);
    if (first)
        uv_async_send(&server->works_done);
}

/* On a worker's thread. */
static void task_on_bad(struct work *work, uint64_t sample, const char *reason)
{
    struct task *task = work->user;
    char place[FAILURE_TEXT_MAX];

    bad_list_add(task->bad, task->job, sample,
                 source_sample_place(work->source, sample, place, sizeof place), reason);
}

/* On a reader's thread. */
static void task_on_fetched(void *user)
{
    workers_wake(user);
}

void task_forget_regions(struct task *task)
{
    for (; task->n_told > 0; task->n_told--)
        for (uint32_t i = 0; i < task->server->n_stations; i++)
            pool_hold(task->server->stations[i].pool, task->told_regions[task->n_told - 1], false);
}

void task_stop_reading(struct task *task)
{
    task_forget_regions(task);
    if (task->stream)
        stream_stop(task->stream);
}

void tasks_stop_reading(struct server *server, uint64_t peer)
{
    list_for_each(item, &server->tasks)
    {
        struct task *task = list_entry(item, struct task, link);
        if (task->peer_id == peer)
            task_stop_reading(task);
    }
}

/* What readers read for the batch: in the order of the job that asks for it, whosever slot it is
 * decoded into, unless other workers wait for that. */
static struct stream *task_stream(struct task *task, const struct core_action *action)
{
    struct task *asker = action->lent ? task_find(task->server, action->asker) : task;

    if (!asker || asker->station->crew != task->station->crew)
        asker = task;
    if (!asker->stream && source_may_wait(asker->source))
        asker->stream = stream_new(asker->server->readers, asker->source, &asker->order,
                                   task_on_fetched, asker->station->crew->workers);
    return asker->stream;
}

void task_decode(struct task *task, const struct core_action *action)
{
    struct work *work = &task->works[action->slot];
    void *address = NULL;

    if (task->push) {
        push_grant(task, action);
        return;
    }
    if (gather_decode(task, action))
        return;
    pool_slot(task->station->pool, action->memory, &address, NULL);
    memset(work, 0, sizeof *work);
    list_init(&work->link);
    work->source = task->source;
    work->stream = task_stream(task, action);
    work->pipeline = &task->pipeline;
    work->layout = &task->layout;
    work->order = &task->order;
    work->epoch = action->epoch;
    work->step = action->step;
    work->count = action->count;
    work->slot = address;
    work->done = task_on_work_done;
    work->bad = task_on_bad;
    work->user = task;
    task->generations[action->slot] = action->generation;
    workers_submit(task->station->crew->workers, work);
}

void tasks_collect(uv_async_t *async)
{
    struct server *server = async->data;

    indexing_collect(server);
    probing_collect(server);
    for (;;) {
        pthread_mutex_lock(&server->done_lock);
        struct work *work = NULL;
        if (!list_empty(&server->done)) {
            work = list_entry(server->done.next, struct work, link);
            list_remove(&work->link);
        }
        pthread_mutex_unlock(&server->done_lock);
        if (!work)
            break;
        struct task *task = work->user;
        uint32_t slot = (uint32_t)(work - task->works);
        server->without_end += work->without_end;
        server->plain_inks += work->plain_inks;
        core_decoded(server->core, task->job, slot, task->generations[slot],
                     work->failure.code < 0 ? &work->failure : NULL, work->n_bad, work->read_ns,
                     work->decode_ns, server_now(server));
        server_act(server);
    }
    server_check_stopped(server);
}

static void tasks_on_stuck(struct work *work, const char *name, void *user)
{
    struct server *server = user;
    struct task *task = work->user;
    uint32_t slot = (uint32_t)(work - task->works);
    struct failure failure;

    failure_set(&failure, -ETIMEDOUT, "%s: a read has hung for %" PRIu64 " s", name,
                server->config->io_stuck / UINT64_C(1000000000));
    log_error("job %" PRIu64 ": %s", task->job, failure.text);
    core_stuck(server->core, task->job, slot, task->generations[slot], &failure,
               server_now(server));
}

static void tasks_on_stuck_reader(void *owner, const char *name, void *user)
{
    tasks_on_stuck(owner, name, user);
}

void tasks_check_stuck(struct server *server)
{
    for (uint32_t i = 0; i < server->n_crews; i++) {
        if (server->crews[i].workers)
            workers_check(server->crews[i].workers, server->config->io_stuck, tasks_on_stuck,
                          server);
    }
    readers_check(server->readers, server->config->io_stuck, tasks_on_stuck_reader, server);
    indexing_check_stuck(server, server_now(server));
    server_act(server);
}
