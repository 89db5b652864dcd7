/*
 * Indexing: a thread of its own for each dataset that is being indexed. An
 * index is kept and given to the next job of the tenant that names the same
 * data.
 *
 * A client chooses the file system, and that may never answer: a thread that
 * hangs for io.stuck fails its job and is left alone until it returns. How many
 * a tenant may have of these is bounded; it then has to wait for them, and
 * nobody else has.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "disposal.h"
#include "log.h"
#include "proto/cleanup.h"
#include "server.h"

#define KEPT_SOURCES_MAX 32
#define KEPT_FILES_MAX 8192   /* over all of them */
#define RUNS_OF_TENANT_MAX 4  /* at a time */
#define HUNG_OF_TENANT_MAX 16 /* beside them: threads that hang */

/* An index that a tenant made, for its next job. */
struct kept_source {
    struct list link; /* in server->kept_sources, the last used first */
    struct account *tenant;
    struct source *source;
    uint64_t files; /* that it keeps open */
};

struct index_run {
    struct list link;  /* in server->index_runs, then in server->indexed */
    struct task *task; /* NULL: it hung, and its job was told so */
    struct server *server;
    struct account *tenant;
    struct source_request *request;
    pthread_t thread;
    struct source_progress progress;
    struct source *candidates[KEPT_SOURCES_MAX];
    unsigned n_candidates;
    struct source *source;
    struct failure failure;
    uint64_t cpu_ns;      /* of the thread, when last looked at */
    uint64_t moved_since; /* when it was last seen to have run */
};

/* -- kept sources ---------------------------------------------------------------------------- */

static void source_end(void *object)
{
    source_unref(object);
}

void server_give_up_source(struct server *server, struct source *source)
{
    disposal_give(server->disposal, source_end, source);
}

static void request_end(void *object)
{
    source_request_free(object);
}

void server_give_up_request(struct server *server, struct source_request *request)
{
    disposal_give(server->disposal, request_end, request);
}

static void kept_source_free(struct server *server, struct kept_source *kept)
{
    list_remove(&kept->link);
    server_give_up_source(server, kept->source);
    account_unref(kept->tenant);
    free(kept);
}

void indexing_release_sources(struct server *server)
{
    list_for_each_safe(item, &server->kept_sources)
    {
        kept_source_free(server, list_entry(item, struct kept_source, link));
    }
}

/* Puts a source first among the kept ones of its tenant. */
static void source_keep(struct server *server, struct account *tenant, struct source *source,
                        uint64_t files)
{
    uint64_t all_files = files;
    unsigned n = 0;
    struct kept_source *kept = NULL;

    list_for_each_safe(item, &server->kept_sources)
    {
        struct kept_source *other = list_entry(item, struct kept_source, link);
        if (other->source == source && other->tenant == tenant) {
            kept = other;
            list_remove(&kept->link);
            continue;
        }
        all_files += other->files;
        if (++n >= KEPT_SOURCES_MAX || all_files > KEPT_FILES_MAX) {
            all_files -= other->files;
            kept_source_free(server, other);
        }
    }
    if (!kept) {
        kept = calloc(1, sizeof *kept);
        if (!kept)
            return;
        kept->tenant = account_ref(&server->accounts, tenant->key);
        kept->source = source_ref(source);
        kept->files = files;
        list_init(&kept->link);
    }
    list_append(server->kept_sources.next, &kept->link);
}

/* -- a run ----------------------------------------------------------------------------------- */

static void *index_thread(void *argument)
{
    struct index_run *run = argument;
    struct server *server = run->server;

    for (unsigned i = 0; i < run->n_candidates && !run->source; i++) {
        if (source_matches(run->candidates[i], &run->request->spec))
            run->source = source_ref(run->candidates[i]);
    }
    if (!run->source)
        source_new(&run->request->spec, &run->progress, &run->source, &run->failure);
    source_request_free(steal_ptr(run->request));
    pthread_mutex_lock(&server->done_lock);
    list_remove(&run->link);
    list_append(&server->indexed, &run->link);
    uv_async_send(&server->works_done);
    pthread_mutex_unlock(&server->done_lock);
    return NULL;
}

static int run_start(struct index_run *run)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&run->thread, NULL, index_thread, run);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_setname_np(run->thread, "pinserve-index");
    return -error;
}

static void run_free(struct index_run *run)
{
    for (unsigned i = 0; i < run->n_candidates; i++)
        server_give_up_source(run->server, run->candidates[i]);
    if (run->source)
        server_give_up_source(run->server, run->source);
    if (run->tenant)
        account_unref(run->tenant);
    free(run);
}

static struct index_run *run_new(struct task *task)
{
    struct server *server = task->server;
    struct index_run *run = calloc(1, sizeof *run);

    if (!run)
        return NULL;
    run->server = server;
    run->task = task;
    run->moved_since = server_now(server);
    run->tenant = account_ref(&server->accounts, task->tenant->key);
    list_init(&run->link);
    list_for_each(item, &server->kept_sources)
    {
        struct kept_source *kept = list_entry(item, struct kept_source, link);
        if (kept->tenant == task->tenant && run->n_candidates < KEPT_SOURCES_MAX)
            run->candidates[run->n_candidates++] = source_ref(kept->source);
    }
    return run;
}

/* -- tasks that want an index ---------------------------------------------------------------- */

static void task_refuse(struct task *task, int code, const char *text)
{
    struct failure failure;

    if (task->request)
        server_give_up_request(task->server, steal_ptr(task->request));
    failure_set(&failure, code, "%s: %s", task->source_name, text);
    core_job_refused(task->server->core, task->job, &failure, server_now(task->server));
}

/* The same data is being indexed for the same tenant: that index will do. */
static bool task_same_data(const struct task *a, const struct task *b)
{
    return a->tenant == b->tenant && a->source_kind == b->source_kind &&
           strcmp(a->source_name, b->source_name) == 0;
}

/* Whether it must wait for others of its tenant, whose end starts it again. */
static bool task_must_wait(const struct task *task, unsigned running)
{
    if (running >= RUNS_OF_TENANT_MAX)
        return true;
    list_for_each(item, &task->server->tasks)
    {
        const struct task *other = list_entry(item, struct task, link);
        if (other != task && other->indexing && task_same_data(task, other))
            return true;
    }
    return false;
}

void task_index(struct task *task)
{
    struct server *server = task->server;
    unsigned running = 0, hung = 0;

    pthread_mutex_lock(&server->done_lock);
    list_for_each(item, &server->index_runs)
    {
        const struct index_run *run = list_entry(item, struct index_run, link);
        running += run->tenant == task->tenant && run->task;
        hung += run->tenant == task->tenant && !run->task;
    }
    pthread_mutex_unlock(&server->done_lock);
    if (hung >= HUNG_OF_TENANT_MAX && task->source_kind != SOURCE_KIND_SYNTHETIC) {
        task_refuse(task, -EBUSY, "the file systems of earlier datasets of this tenant hang");
        return;
    }
    if (task_must_wait(task, running))
        return;
    struct index_run *run = run_new(task);
    if (!run || !run->tenant) {
        if (run)
            run_free(run);
        task_refuse(task, -ENOMEM, "no memory to index it");
        return;
    }
    run->request = steal_ptr(task->request);
    pthread_mutex_lock(&server->done_lock);
    list_append(&server->index_runs, &run->link);
    pthread_mutex_unlock(&server->done_lock);
    int r = run_start(run);
    if (r < 0) {
        pthread_mutex_lock(&server->done_lock);
        list_remove(&run->link);
        pthread_mutex_unlock(&server->done_lock);
        task->request = steal_ptr(run->request);
        run_free(run);
        task_refuse(task, r, "no thread to index it");
        return;
    }
    task->indexing = run;
    server->busy++;
}

void task_index_cancel(struct task *task)
{
    if (task->indexing)
        atomic_store(&task->indexing->progress.cancelled, true);
    else if (task->request)
        task_refuse(task, -ECANCELED, "closed before it was indexed");
    /* Else its answer is under way. */
}

uint64_t task_indexed(const struct task *task)
{
    return task->indexing ? atomic_load(&task->indexing->progress.indexed) : 0;
}

/* Whoever waited may have become able to go on. */
static void indexing_restart(struct server *server)
{
    list_for_each(item, &server->tasks)
    {
        struct task *task = list_entry(item, struct task, link);
        if (task->request && !task->indexing)
            task_index(task);
    }
}

/* -- the end of a run ------------------------------------------------------------------------ */

static int task_accept_source(struct task *task, struct source *source,
                              struct core_dataset *dataset, struct failure *failure)
{
    task->source = source_ref(source);
    int r = task->push
                ? 0
                : layout_init(&task->layout, &task->pipeline, source, task->order.batch, failure);
    if (r < 0)
        return r;
    task->order.samples = source_samples(source);
    task_share_bad(task);
    *dataset = (struct core_dataset){
        .samples = task->order.samples,
        .identity = (uint64_t)(uintptr_t)source, /* kept as long as the task */
        .fingerprint = source_fingerprint(source),
        .slot_bytes = task->layout.slot_bytes,
    };
    return 0;
}

static void run_done(struct index_run *run)
{
    struct server *server = run->server;
    struct task *task = run->task;
    struct core_dataset dataset;

    pthread_join(run->thread, NULL); /* it has done all but return */
    server->busy--;
    if (task) {
        task->indexing = NULL;
        if (run->source) {
            source_keep(server, task->tenant, run->source, task->files.amount);
            if (atomic_load(&run->progress.cancelled))
                failure_set(&run->failure, -ECANCELED, "%s: closed while it was indexed",
                            task->source_name);
            else
                task_accept_source(task, run->source, &dataset, &run->failure);
        }
        if (run->failure.code < 0)
            core_job_refused(server->core, task->job, &run->failure, server_now(server));
        else
            core_job_indexed(server->core, task->job, &dataset, server_now(server));
    }
    run_free(run);
    indexing_restart(server);
    server_act(server);
}

void indexing_collect(struct server *server)
{
    for (;;) {
        struct index_run *run = NULL;
        pthread_mutex_lock(&server->done_lock);
        if (!list_empty(&server->indexed)) {
            run = list_entry(server->indexed.next, struct index_run, link);
            list_remove(&run->link);
        }
        pthread_mutex_unlock(&server->done_lock);
        if (!run)
            return;
        run_done(run);
    }
}

/* A thread that waits for its file system uses no CPU time. */
static bool run_hangs(struct index_run *run, uint64_t now)
{
    struct timespec cpu = {0};
    clockid_t clock;

    if (pthread_getcpuclockid(run->thread, &clock) == 0)
        clock_gettime(clock, &cpu);
    uint64_t cpu_ns = (uint64_t)cpu.tv_sec * UINT64_C(1000000000) + (uint64_t)cpu.tv_nsec;
    if (cpu_ns != run->cpu_ns)
        run->moved_since = now;
    run->cpu_ns = cpu_ns;
    return now - run->moved_since > run->server->config->io_stuck;
}

void indexing_check_stuck(struct server *server, uint64_t now)
{
    bool any = false;

    list_for_each(item, &server->tasks)
    {
        struct task *task = list_entry(item, struct task, link);
        struct index_run *run = task->indexing;
        struct failure failure;
        if (!run || !run_hangs(run, now))
            continue;
        failure_set(&failure, -ETIMEDOUT,
                    "%s: its file system has hung for %" PRIu64 " ms while "
                    "it was indexed",
                    task->source_name, server->config->io_stuck / UINT64_C(1000000));
        atomic_store(&run->progress.cancelled, true);
        run->task = NULL;
        task->indexing = NULL;
        core_job_refused(server->core, task->job, &failure, server_now(server));
        any = true;
    }
    if (!any)
        return;
    indexing_restart(server);
    server_act(server);
}
