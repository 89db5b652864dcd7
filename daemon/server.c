/*
 * The server: start, the loop, timers and the orderly end, in which everything
 * that was charged is returned before the daemon exits.
 */
#include "server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "control/listener.h"
#include "control/peer.h"
#include "disposal.h"
#include "log.h"
#include "proto/cleanup.h"
#include "source/index_cache.h"

#define TICK_MS 250
#define STOP_NS UINT64_C(10000000000)

void server_warn(struct server *server, const char *format, ...)
{
    char text[sizeof server->warnings[0]];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log_warning("%s", text);
    if (server->n_warnings < WARNINGS_MAX)
        memcpy(server->warnings[server->n_warnings++], text, sizeof text);
}

/* -- the tick -------------------------------------------------------------------------------- */

static bool server_needs_tick(const struct server *server)
{
    if (!list_empty(&server->tasks) || !list_empty(&server->lingering) || server->stopping)
        return true;
    for (uint32_t i = 0; i < server->n_stations; i++) {
        const struct station *station = &server->stations[i];
        uint64_t keep = i == 0 ? server->config->pool_min : 0;
        if (pool_can_shrink(station->pool, keep) || (station->up && station->device->ops->has_ring))
            return true;
    }
    return false;
}

static void server_on_tick(uv_timer_t *timer)
{
    struct server *server = timer->data;
    uint64_t now = server_now(server);

    if (server->listener)
        listener_resume(server->listener);
    tasks_check_stuck(server);
    task_report_progress(server);
    tasks_settle_refusals(server, now);
    stations_tick(server, now);
    growth_tick(server, now);
    server_check_stopped(server);
    if (!server_needs_tick(server))
        uv_timer_stop(timer);
}

void server_wake(struct server *server)
{
    if (server->stop_phase != STOP_DONE && !uv_is_active((uv_handle_t *)&server->tick))
        uv_timer_start(&server->tick, server_on_tick, TICK_MS, TICK_MS);
}

static void server_after_poll(uv_check_t *check)
{
    struct server *server = check->data;

    peers_sweep(server);
}

/* -- the end --------------------------------------------------------------------------------- */

void server_stop(struct server *server)
{
    if (server->stopping)
        return;
    server->stopping = true;
    server->stop_deadline = server_now(server) + STOP_NS;
    listener_free(server->listener);
    server->listener = NULL;
    peers_close(server, "the daemon is ending");
    server_wake(server);
    server_check_stopped(server);
}

static void server_close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* What still hangs (a read, a device) must not keep the daemon from ending. */
static void server_force_end(void)
{
    log_error("not everything ended within %d s: exiting all the same",
              (int)(STOP_NS / UINT64_C(1000000000)));
    fflush(NULL);
    _exit(1);
}

/* Readers are in reads, if only for jobs that are gone. */
static bool server_reads(const struct server *server)
{
    struct readers_info info;

    readers_info_get(server->readers, &info);
    return info.reading > 0;
}

void server_check_stopped(struct server *server)
{
    if (!server->stopping || server->stop_phase == STOP_DONE)
        return;
    if (server_now(server) > server->stop_deadline)
        server_force_end();
    if (server->stop_phase == STOP_JOBS && list_empty(&server->tasks) && !server_reads(server)) {
        server->stop_phase = STOP_DEVICES;
        stations_close(server);
    }
    if (server->stop_phase == STOP_DEVICES && stations_closed(server) && growth_idle(server)) {
        server->stop_phase = STOP_REGIONS;
        indexing_release_sources(server);
        growth_release_all(server);
    }
    if (server->stop_phase == STOP_REGIONS && growth_idle(server) &&
        disposal_idle(server->disposal)) {
        server->stop_phase = STOP_DONE;
        growth_release_all(server); /* what a client still maps */
        uv_walk(&server->loop, server_close_handle, NULL);
    }
}

/* -- start ----------------------------------------------------------------------------------- */

static void server_accounts_init(struct server *server)
{
    const struct config *config = server->config;
    struct account_limits node = {
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX},
    };
    struct account_limits tenant = node;
    struct rlimit files;

    node.max[ACCOUNT_PINNED] = config->pool_max;
    node.max[ACCOUNT_PEERS] = config->limits_peers_total;
    tenant.max[ACCOUNT_PINNED] = config->limits_pinned;
    if (config->limits_device > 0)
        tenant.max[ACCOUNT_DEVICE] = config->limits_device;
    tenant.max[ACCOUNT_JOBS] = config->limits_jobs;
    tenant.max[ACCOUNT_PEERS] = config->limits_peers;
    /* What clients send; the rest is for connections, devices and what is read. */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max != RLIM_INFINITY) {
        node.max[ACCOUNT_FILES] = files.rlim_max / 4 * 3;
        tenant.max[ACCOUNT_FILES] = files.rlim_max / 2;
    }
    accounts_init(&server->accounts, &node, &tenant);
}

static void server_lists_init(struct server *server)
{
    list_init(&server->done);
    list_init(&server->index_runs);
    list_init(&server->indexed);
    list_init(&server->probes);
    list_init(&server->probed);
    list_init(&server->tasks);
    list_init(&server->peers);
    list_init(&server->departed);
    list_init(&server->kept_sources);
    list_init(&server->lingering);
}

/* On the disposal's thread. */
static void server_on_disposed(void *user)
{
    struct server *server = user;

    uv_async_send(&server->works_done);
}

static void server_loop_init(struct server *server)
{
    uv_loop_init(&server->loop);
    uv_timer_init(&server->loop, &server->tick);
    uv_async_init(&server->loop, &server->works_done, tasks_collect);
    uv_check_init(&server->loop, &server->after_poll);
    server->tick.data = server;
    server->works_done.data = server;
    server->after_poll.data = server;
    uv_check_start(&server->after_poll, server_after_poll);
}

/* What is wrong with it costs time when tars are opened, and nothing else. */
static void server_open_cache(struct server *server)
{
    const char *path = server->config->cache;
    const char *given = getenv("CACHE_DIRECTORY");
    cleanup_free char *first = NULL;
    struct failure failure;

    if (strcmp(path, "off") == 0)
        return;
    if (strcmp(path, "auto") == 0) {
        /* systemd separates several by colons. */
        first = given ? strndup(given, strcspn(given, ":")) : NULL;
        if (!first || *first != '/')
            return;
        path = first;
    }
    if (index_cache_new(path, server->config->limits_cache, &server->cache, &failure) < 0)
        server_warn(server, "indexes are not saved: %s", failure.text);
}

int server_init(struct server *server, const struct config *config,
                const struct server_socket *socket, struct failure *failure)
{
    memset(server, 0, sizeof *server);
    server->config = config;
    server->started = uv_hrtime();
    server->next_region = 1;
    pthread_mutex_init(&server->done_lock, NULL);
    server_lists_init(server);
    server_accounts_init(server);
    server_loop_init(server);
    server_open_cache(server);
    server->disposal = disposal_new(server_on_disposed, server);
    server->core = core_new(&server->accounts, config->workers_batches);
    if (!server->core || !server->disposal)
        return failure_set(failure, -ENOMEM, "no memory for the core");
    const char *topology = config->placement_topology[0] ? config->placement_topology : NULL;
    int r = topology_new(topology, &server->topology, failure);
    if (r == 0)
        r = readers_new(config->io_threads, config->io_ahead, &server->readers, failure);
    if (r == 0)
        r = listener_new(server, socket, failure);
    if (r == 0)
        r = stations_init(server, failure);
    return r;
}

int server_start(struct server *server, void (*ready)(void *user), void *user,
                 struct failure *failure)
{
    server->ready = ready;
    server->ready_user = user;
    return growth_start(server, failure);
}

int server_run(struct server *server)
{
    uv_run(&server->loop, UV_RUN_DEFAULT);
    return server->exit_code;
}

static void server_free_readers(struct server *server)
{
    struct readers_info info = {0};

    if (server->readers)
        readers_info_get(server->readers, &info);
    if (info.streams > 0 || info.bytes > 0) {
        log_error("%u streams and %" PRIu64 " bytes of theirs were left over at the end",
                  info.streams, info.bytes);
        server->exit_code = 1;
        return;
    }
    readers_free(server->readers);
}

void server_deinit(struct server *server)
{
    if (server->listener)
        listener_free(server->listener);
    disposal_free(server->disposal);
    if (server->stop_phase != STOP_DONE) /* it never ran */
        uv_walk(&server->loop, server_close_handle, NULL);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    server_free_readers(server); /* before the workers, which they wake */
    stations_deinit(server);
    unsigned jobs = server->core ? core_free(server->core) : 0;
    unsigned accounts = accounts_deinit(&server->accounts);
    if (jobs > 0 || accounts > 0) {
        log_error("%u jobs and %u accounts were left over at the end", jobs, accounts);
        server->exit_code = 1;
    }
    index_cache_free(server->cache);
    if (server->topology)
        topology_free(server->topology);
    uv_loop_close(&server->loop);
    pthread_mutex_destroy(&server->done_lock);
}
