/*
 * Tasks: what the server keeps of a job of the core: its source, its pipeline
 * and layout, and the works that fill its slots. Indexing runs on a thread of
 * the loop's pool; an index is kept and given to the next job of the tenant
 * that names the same data.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/peer.h"
#include "log.h"
#include "proto/cleanup.h"
#include "server.h"

#define KEPT_SOURCES_MAX 32

/* An index that a tenant made, for its next job. */
struct kept_source {
    struct list link; /* in server->kept_sources, the last used first */
    struct account *tenant;
    struct source *source;
};

/* Indexing on a thread. */
struct index_run {
    uv_work_t work;
    struct task *task;
    struct source_progress progress;
    struct source *candidates[KEPT_SOURCES_MAX];
    unsigned n_candidates;
    struct source *source;
    struct failure failure;
};

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
    task->told_regions = calloc(depth, sizeof *task->told_regions);
    if (!task->memory || !task->works || !task->generations || !task->copies ||
        !task->told_regions) {
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
    source_request_free(task->request);
    if (task->source)
        source_unref(task->source);
    if (task->tenant)
        account_unref(task->tenant);
    close_fd(&task->ring_fd);
    free(task->name);
    free(task->source_name);
    free(task->pipeline_name);
    free(task->memory);
    free(task->works);
    free(task->generations);
    free(task->copies);
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

/* -- indexing -------------------------------------------------------------------------------- */

static void kept_source_free(struct kept_source *kept)
{
    list_remove(&kept->link);
    source_unref(kept->source);
    account_unref(kept->tenant);
    free(kept);
}

void tasks_release_sources(struct server *server)
{
    list_for_each_safe(item, &server->kept_sources)
    {
        kept_source_free(list_entry(item, struct kept_source, link));
    }
}

/* Puts a source first among the kept ones of its tenant. */
static void source_keep(struct server *server, struct account *tenant, struct source *source)
{
    unsigned n = 0;
    struct kept_source *kept = NULL;

    list_for_each_safe(item, &server->kept_sources)
    {
        struct kept_source *other = list_entry(item, struct kept_source, link);
        if (other->source == source && other->tenant == tenant) {
            kept = other;
            list_remove(&kept->link);
        } else if (++n >= KEPT_SOURCES_MAX) {
            kept_source_free(other);
        }
    }
    if (!kept) {
        kept = calloc(1, sizeof *kept);
        if (!kept)
            return;
        kept->tenant = account_ref(&server->accounts, tenant->key);
        kept->source = source_ref(source);
        list_init(&kept->link);
    }
    list_append(server->kept_sources.next, &kept->link);
}

static void index_run(uv_work_t *work)
{
    struct index_run *run = work->data;
    const struct source_spec *spec = &run->task->request->spec;

    for (unsigned i = 0; i < run->n_candidates && !run->source; i++) {
        if (source_matches(run->candidates[i], spec))
            run->source = source_ref(run->candidates[i]);
    }
    if (!run->source)
        source_new(spec, &run->progress, &run->source, &run->failure);
}

/* The same data is being indexed for the same tenant: that index will do. */
static bool task_same_data(const struct task *a, const struct task *b)
{
    return a->tenant == b->tenant && a->request && b->request &&
           a->request->spec.kind == b->request->spec.kind &&
           strcmp(a->request->name, b->request->name) == 0;
}

static int task_accept_source(struct task *task, struct source *source,
                              struct core_dataset *dataset, struct failure *failure)
{
    task->source = source_ref(source);
    int r = layout_init(&task->layout, &task->pipeline, source, task->order.batch, failure);
    if (r < 0)
        return r;
    task->order.samples = source_samples(source);
    *dataset = (struct core_dataset){
        .samples = task->order.samples,
        .fingerprint = source_fingerprint(source),
        .slot_bytes = task->layout.slot_bytes,
    };
    return 0;
}

static void index_done(uv_work_t *work, int status)
{
    struct index_run *run = work->data;
    struct task *task = run->task;
    struct server *server = task->server;
    struct core_dataset dataset;

    (void)status;
    server->busy--;
    task->indexing = NULL;
    for (unsigned i = 0; i < run->n_candidates; i++)
        source_unref(run->candidates[i]);
    if (run->source) {
        source_keep(server, task->tenant, run->source);
        if (atomic_load(&run->progress.cancelled))
            failure_set(&run->failure, -ECANCELED, "%s: closed while it was indexed",
                        task->source_name);
        else
            task_accept_source(task, run->source, &dataset, &run->failure);
        source_unref(run->source);
    }

    list_for_each(item, &server->tasks)
    {
        struct task *other = list_entry(item, struct task, link);
        if (other != task && !other->indexing && other->request && task_same_data(task, other))
            task_index(other);
    }
    source_request_free(steal_ptr(task->request));
    if (run->failure.code < 0)
        core_job_refused(server->core, task->job, &run->failure, server_now(server));
    else
        core_job_indexed(server->core, task->job, &dataset, server_now(server));
    free(run);
    server_act(server);
    server_check_stopped(server);
}

void task_index(struct task *task)
{
    struct server *server = task->server;

    list_for_each(item, &server->tasks)
    {
        struct task *other = list_entry(item, struct task, link);
        if (other != task && other->indexing && task_same_data(task, other))
            return; /* started again by index_done of that one */
    }
    struct index_run *run = calloc(1, sizeof *run);
    if (!run) {
        struct failure failure;
        failure_set(&failure, -ENOMEM, "%s: no memory to index it", task->source_name);
        core_job_refused(server->core, task->job, &failure, server_now(server));
        return;
    }
    list_for_each(item, &server->kept_sources)
    {
        struct kept_source *kept = list_entry(item, struct kept_source, link);
        if (kept->tenant == task->tenant && run->n_candidates < KEPT_SOURCES_MAX)
            run->candidates[run->n_candidates++] = source_ref(kept->source);
    }
    run->task = task;
    run->work.data = run;
    task->indexing = run;
    server->busy++;
    uv_queue_work(&server->loop, &run->work, index_run, index_done);
}

void task_index_cancel(struct task *task)
{
    if (task->indexing) {
        atomic_store(&task->indexing->progress.cancelled, true);
        return;
    }
    if (!task->request)
        return; /* its answer is under way */
    struct failure failure;
    source_request_free(steal_ptr(task->request));
    failure_set(&failure, -ECANCELED, "%s: closed before it was indexed", task->source_name);
    core_job_refused(task->server->core, task->job, &failure, server_now(task->server));
}

void task_report_progress(struct server *server)
{
    list_for_each(item, &server->tasks)
    {
        struct task *task = list_entry(item, struct task, link);
        if (!task->indexing || !task->peer)
            continue;
        uint64_t indexed = atomic_load(&task->indexing->progress.indexed);
        if (indexed != task->indexed_told)
            peer_send_progress(task->peer, task->job, indexed);
        task->indexed_told = indexed;
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

void task_decode(struct task *task, const struct core_action *action)
{
    struct work *work = &task->works[action->slot];
    void *address = NULL;

    pool_slot(task->station->pool, action->memory, &address, NULL);
    memset(work, 0, sizeof *work);
    list_init(&work->link);
    work->source = task->source;
    work->pipeline = &task->pipeline;
    work->layout = &task->layout;
    work->order = &task->order;
    work->epoch = action->epoch;
    work->step = action->step;
    work->count = action->count;
    work->slot = address;
    work->done = task_on_work_done;
    work->user = task;
    task->generations[action->slot] = action->generation;
    workers_submit(task->station->crew->workers, work);
}

void tasks_collect(uv_async_t *async)
{
    struct server *server = async->data;

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
        core_decoded(server->core, task->job, slot, task->generations[slot],
                     work->failure.code < 0 ? &work->failure : NULL, work->read_ns, work->decode_ns,
                     server_now(server));
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

void tasks_check_stuck(struct server *server)
{
    for (uint32_t i = 0; i < server->n_crews; i++) {
        if (server->crews[i].workers)
            workers_check(server->crews[i].workers, server->config->io_stuck, tasks_on_stuck,
                          server);
    }
    server_act(server);
}
