/*
 * Reports: what pinctl asks for. A report that does not fit a packet is cut at
 * a row and says that there is more; rows are in an order that holds.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/listener.h"
#include "control/reports.h"
#include "proto/cleanup.h"

static void stages_to_wire(const struct core_stages *stages, Pinserve__Stages *out)
{
    pinserve__stages__init(out);
    out->samples = stages->samples;
    out->batches = stages->batches;
    out->read_ns = stages->read_ns;
    out->decode_ns = stages->decode_ns;
    out->slot_wait_ns = stages->slot_wait_ns;
    out->copy_ns = stages->copy_ns;
    out->hold_ns = stages->hold_ns;
}

void peer_send_report(struct peer *peer, uint64_t id, Pinserve__Report *report)
{
    Pinserve__Message message = PINSERVE__MESSAGE__INIT;

    message.id = id;
    message.body_case = PINSERVE__MESSAGE__BODY_REPORT;
    message.report = report;
    peer_send(peer, &message, NULL, 0);
}

static unsigned crew_workers(const struct crew *crew)
{
    return crew->workers ? workers_count(crew->workers) : 0;
}

static void report_status(struct peer *peer, uint64_t id)
{
    struct server *server = peer->server;
    Pinserve__Report report = PINSERVE__REPORT__INIT;
    Pinserve__StatusReport status = PINSERVE__STATUS_REPORT__INIT;
    char *warnings[WARNINGS_MAX];

    for (uint32_t i = 0; i < server->n_warnings; i++)
        warnings[i] = server->warnings[i];
    for (uint32_t i = 0; i < server->n_crews; i++)
        status.workers += crew_workers(&server->crews[i]);
    for (uint32_t i = 0; i < server->n_stations; i++)
        status.jobs += core_device_jobs(server->core, i);
    status.version = PINSERVE_VERSION;
    status.pid = (uint64_t)getpid();
    status.uptime_ns = server_now(server) - server->started;
    status.socket = (char *)listener_path(server->listener);
    status.peers = server->n_peers;
    status.pinned_bytes = server->accounts.node.used[ACCOUNT_PINNED];
    status.pinned_max = server->config->pool_max;
    status.device_bytes = server->accounts.node.used[ACCOUNT_DEVICE];
    status.n_warnings = server->n_warnings;
    status.warnings = warnings;
    report.status = &status;
    peer_send_report(peer, id, &report);
}

static void report_pools(struct peer *peer, uint64_t id, uint32_t skip)
{
    struct server *server = peer->server;
    Pinserve__Report report = PINSERVE__REPORT__INIT;
    Pinserve__PoolReport rows[REPORT_ROWS_MAX], *list[REPORT_ROWS_MAX];
    char bindings[REPORT_ROWS_MAX][sizeof(struct failure) + 16];
    uint32_t n = 0;

    for (uint32_t i = skip; i < server->n_stations && n < REPORT_ROWS_MAX; i++, n++) {
        struct station *station = &server->stations[i];
        struct pool_info pool;
        pool_info_get(station->pool, &pool);
        pinserve__pool_report__init(&rows[n]);
        list[n] = &rows[n];
        rows[n].device = station->device->info.uuid;
        rows[n].numa_node = station->placement.memory_node;
        rows[n].regions = pool.regions;
        rows[n].bytes = pool.bytes;
        rows[n].used_bytes = pool.used_bytes;
        rows[n].locked_bytes = pool.locked_bytes;
        rows[n].pages = pool.pages;
        rows[n].pages_local = pool.pages_local;
        rows[n].slots = pool.slots;
        rows[n].binding = bindings[n];
        if (pool.bind_failure)
            snprintf(bindings[n], sizeof bindings[n], "unbound: %s", pool.bind_failure->text);
        else if (station->placement.memory_node < 0)
            snprintf(bindings[n], sizeof bindings[n], "unbound: %s", station->placement.why);
        else
            snprintf(bindings[n], sizeof bindings[n], "bound");
        if (i == 0)
            rows[n].lingering_bytes = server->lingering_bytes;
    }
    report.n_pools = n;
    report.pools = list;
    report.more = skip + n < server->n_stations;
    peer_send_report(peer, id, &report);
}

/* Regions that the task's slots are in, counted once each. */
static uint64_t task_pinned_bytes(const struct task *task)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < task->depth; i++) {
        uint32_t id = memory_region(task->memory[i]);
        bool seen = false;
        for (uint32_t k = 0; k < i; k++)
            seen = seen || memory_region(task->memory[k]) == id;
        struct region *region = seen ? NULL : pool_region(task->station->pool, id);
        bytes += region ? region->bytes : 0;
    }
    return bytes;
}

static void job_to_wire(struct server *server, const struct core_job_info *info,
                        Pinserve__JobReport *row, Pinserve__Stages *stages)
{
    struct task *task = task_find(server, info->id);

    pinserve__job_report__init(row);
    stages_to_wire(&info->stages, stages);
    row->stages = stages;
    row->job = info->id;
    row->state = (char *)info->state_text;
    row->delivery = (Pinserve__Delivery)info->delivery;
    row->delivery_why = (char *)(info->why ? info->why : "");
    row->batch = info->order.batch;
    row->rank = info->order.rank;
    row->world = info->order.world;
    row->depth = info->depth;
    row->ready = info->ready;
    row->leased = info->leased;
    row->epoch = info->next.epoch;
    row->step = info->next.step;
    row->steps = info->steps;
    row->samples = info->order.samples;
    row->delivered = info->delivered;
    row->bad = info->bad;
    row->starved = info->starved;
    row->mates = info->mates;
    row->shared = info->shared;
    row->ring_bytes = info->ring_bytes;
    row->error = (char *)(info->failure && info->failure->code ? info->failure->text : "");
    if (!task)
        return;
    row->name = task->name;
    row->pid = task->pid;
    row->uid = task->uid;
    row->tenant = task->tenant->key;
    row->device = task->device_text;
    row->source = task->source_name;
    row->pipeline = task->pipeline_name;
    row->pinned_bytes = task_pinned_bytes(task);
    row->skipped_files = task->source ? source_skipped(task->source) : 0;
}

static void report_jobs(struct peer *peer, uint64_t id, const Pinserve__Query *query)
{
    struct server *server = peer->server;
    Pinserve__Report report = PINSERVE__REPORT__INIT;
    Pinserve__JobReport rows[REPORT_ROWS_MAX], *list[REPORT_ROWS_MAX];
    Pinserve__Stages stages[REPORT_ROWS_MAX];
    struct core_job_info info;
    uint64_t from = query->job;
    uint32_t n = 0, seen = 0;
    size_t bytes = 0;

    while (core_job_next(server->core, from, &info)) {
        if (query->job && info.id != query->job)
            break;
        from = info.id + 1;
        if (seen++ < query->skip)
            continue;
        if (n < REPORT_ROWS_MAX) {
            job_to_wire(server, &info, &rows[n], &stages[n]);
            bytes += pinserve__job_report__get_packed_size(&rows[n]) + 8;
        }
        if (n == REPORT_ROWS_MAX || (n > 0 && bytes > MESSAGE_MAX - 1024)) {
            report.more = true;
            break;
        }
        list[n] = &rows[n];
        n++;
    }
    report.n_jobs = n;
    report.jobs = list;
    peer_send_report(peer, id, &report);
}

static void report_stats(struct peer *peer, uint64_t id)
{
    struct server *server = peer->server;
    Pinserve__Report report = PINSERVE__REPORT__INIT;
    Pinserve__StatsReport stats = PINSERVE__STATS_REPORT__INIT;
    Pinserve__Stages wire;
    struct core_stages stages;

    core_totals(server->core, &stages, &stats.bytes, &stats.jobs_opened, &stats.jobs_failed);
    stages_to_wire(&stages, &wire);
    for (uint32_t i = 0; i < server->n_stations; i++)
        stats.device_restarts += server->stations[i].restarts;
    stats.bad = core_total_bad(server->core);
    stats.stages = &wire;
    stats.peers_seen = server->peers_seen;
    stats.without_end = server->without_end;
    stats.plain_inks = server->plain_inks;
    stats.peers_dropped = server->peers_dropped;
    stats.uptime_ns = server_now(server) - server->started;
    report.stats = &stats;
    peer_send_report(peer, id, &report);
}

/* The names of a user's files are that user's, root's and the daemon's. */
static bool may_list_bad(const struct peer *peer, const struct task *task)
{
    uint64_t uid = peer->identity.uid;

    return uid == task->uid || uid == 0 || uid == geteuid();
}

static void report_bad(struct peer *peer, uint64_t id, const Pinserve__Query *query)
{
    Pinserve__Report report = PINSERVE__REPORT__INIT;
    Pinserve__BadSample rows[REPORT_ROWS_MAX], *list[REPORT_ROWS_MAX];
    struct bad_sample samples[REPORT_ROWS_MAX];
    const struct task *task = task_find(peer->server, query->job);
    struct failure failure;
    uint32_t left = 0;

    if (!task) {
        failure_set(&failure, -ENOENT, "there is no job %" PRIu64, query->job);
        peer_send_error(peer, id, &failure);
        return;
    }
    if (!may_list_bad(peer, task)) {
        failure_set(&failure, -EACCES, "job %" PRIu64 " is of uid %" PRIu64 ", not of uid %" PRIu64,
                    query->job, task->uid, (uint64_t)peer->identity.uid);
        peer_send_error(peer, id, &failure);
        return;
    }
    if (task->bad)
        report.n_bad = bad_list_rows(task->bad, query->skip, REPORT_ROWS_MAX, samples, &left);
    for (size_t i = 0; i < report.n_bad; i++) {
        pinserve__bad_sample__init(&rows[i]);
        rows[i].sample = samples[i].sample;
        rows[i].name = samples[i].name;
        rows[i].reason = samples[i].reason;
        list[i] = &rows[i];
    }
    report.bad = list;
    report.more = left > 0;
    peer_send_report(peer, id, &report);
}

void peer_handle_query(struct peer *peer, uint64_t id, const Pinserve__Query *query)
{
    struct failure failure;

    switch (query->kind) {
    case PINSERVE__QUERY_KIND__QUERY_STATUS:
        report_status(peer, id);
        break;
    case PINSERVE__QUERY_KIND__QUERY_DEVICES:
        report_devices(peer, id, query->skip);
        break;
    case PINSERVE__QUERY_KIND__QUERY_POOLS:
        report_pools(peer, id, query->skip);
        break;
    case PINSERVE__QUERY_KIND__QUERY_JOBS:
        report_jobs(peer, id, query);
        break;
    case PINSERVE__QUERY_KIND__QUERY_STATS:
        report_stats(peer, id);
        break;
    case PINSERVE__QUERY_KIND__QUERY_BAD:
        report_bad(peer, id, query);
        break;
    default:
        failure_set(&failure, -EINVAL, "a query of kind %d is unknown", (int)query->kind);
        peer_send_error(peer, id, &failure);
    }
}
