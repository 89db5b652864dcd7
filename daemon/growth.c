/*
 * Pools grow and shrink: regions are made and destroyed on threads of the
 * loop's own pool, one growth a station at a time, so that the reservations
 * are served in order and none takes the room that another was made for.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "memory/available.h"
#include "proto/cleanup.h"
#include "proto/limits.h"
#include "proto/units.h"
#include "server.h"

/* A task that waits for its slots. */
struct reservation {
    struct list link; /* in station->reservations */
    struct task *task;
    uint64_t bytes;
    uint32_t count;
};

/* Regions being made, or one being destroyed, on a thread. */
struct growth {
    uv_work_t work;
    struct station *station;
    struct region_spec spec;
    uint32_t wanted, made;
    struct region **regions;
    struct charge *charges;
    struct failure failure;
};

/* A region on its way out. Off the loop, too, it is looked at again while somebody still maps it:
 * with the last description of it goes its memory, which takes time. */
struct retirement {
    uv_work_t work;
    struct server *server;
    struct list link; /* in server->lingering, when a client still maps it */
    struct region *region;
    bool destroyed; /* all that the daemon had of it */
    bool released;  /* by everybody */
};

/* Whoever has just closed its job or its device is about to let go of its regions: so long a
 * reservation waits for them. */
#define LINGER_GRACE_NS UINT64_C(2000000000)

static void station_serve(struct station *station);

/* -- shrinking ------------------------------------------------------------------------------- */

static void retirement_end(struct retirement *retirement)
{
    region_free(retirement->region);
    free(retirement);
}

static void retirement_run(uv_work_t *work)
{
    struct retirement *retirement = work->data;

    retirement->released = retirement->destroyed ? region_is_released(retirement->region)
                                                 : region_destroy(retirement->region);
}

static void reservations_serve(struct server *server)
{
    for (uint32_t i = 0; i < server->n_stations; i++)
        station_serve(&server->stations[i]);
}

static void retirement_done(uv_work_t *work, int status)
{
    struct retirement *retirement = work->data;
    struct server *server = retirement->server;

    (void)status;
    server->busy--;
    if (!retirement->destroyed) {
        server->retiring--;
        server->lingering_bytes += retirement->region->bytes;
        server->lingering_until = server_now(server) + LINGER_GRACE_NS;
    }
    retirement->destroyed = true;
    if (retirement->released) {
        server->lingering_bytes -= retirement->region->bytes;
        retirement_end(retirement);
    } else {
        list_append(&server->lingering, &retirement->link);
    }
    reservations_serve(server);
    server_check_stopped(server);
}

static void retirement_start(struct retirement *retirement)
{
    struct server *server = retirement->server;

    server->busy++;
    uv_queue_work(&server->loop, &retirement->work, retirement_run, retirement_done);
}

static void station_retire(struct station *station, struct region *region)
{
    struct server *server = station->server;
    struct retirement *retirement = calloc(1, sizeof *retirement);

    /* Also where mates of its tenant's jobs have copied from it. */
    for (uint32_t i = 0; i < server->n_stations; i++)
        station_unregister(&server->stations[i], region->id);
    if (!retirement) {
        log_error("region %" PRIu32 ": no memory to destroy it in the background", region->id);
        region_destroy(region);
        region_free(region);
        return;
    }
    retirement->server = server;
    retirement->region = region;
    retirement->work.data = retirement;
    list_init(&retirement->link);
    server->retiring++;
    retirement_start(retirement);
}

/* Takes back every region of any pool that has been without slots for idle ns. */
static uint32_t retire_idle(struct server *server, uint64_t now, uint64_t idle, bool keep_min)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < server->n_stations; i++) {
        struct station *station = &server->stations[i];
        uint64_t keep = keep_min && i == 0 ? server->config->pool_min : 0;
        struct region *region;
        while ((region = pool_take_idle(station->pool, now, idle, keep))) {
            station_retire(station, region);
            n++;
        }
    }
    return n;
}

void growth_tick(struct server *server, uint64_t now)
{
    retire_idle(server, now, server->config->pool_idle, true);
    list_for_each_safe(item, &server->lingering)
    {
        struct retirement *retirement = list_entry(item, struct retirement, link);
        list_remove(&retirement->link);
        retirement_start(retirement);
    }
    reservations_serve(server);
}

void growth_release_all(struct server *server)
{
    retire_idle(server, server_now(server), 0, false);
    /* Nobody waits for clients that outlive the daemon: their mapping keeps the memory. */
    list_for_each_safe(item, &server->lingering)
    {
        struct retirement *retirement = list_entry(item, struct retirement, link);
        list_remove(&retirement->link);
        server->lingering_bytes -= retirement->region->bytes;
        retirement_end(retirement);
    }
}

bool growth_idle(const struct server *server)
{
    return server->busy == 0;
}

/* -- growing --------------------------------------------------------------------------------- */

static void growth_free(struct growth *growth)
{
    for (uint32_t i = 0; growth->charges && i < growth->wanted; i++)
        charge_release(&growth->charges[i]);
    free(growth->charges);
    free(growth->regions);
    free(growth);
}

static void growth_run(uv_work_t *work)
{
    struct growth *growth = work->data;

    while (growth->made < growth->wanted) {
        growth->spec.behind = growth->wanted - growth->made - 1;
        if (region_new(&growth->spec, &growth->regions[growth->made], &growth->failure) < 0)
            return;
        growth->made++;
    }
}

static void station_warn(struct station *station, const struct region *region)
{
    struct server *server = station->server;

    if (!region->locked && region->lock_failure.code < 0 && !station->warned_lock) {
        station->warned_lock = true;
        if (!server->quiet_lock)
            server_warn(server, "pool of %s: %s", station->device->info.uuid,
                        region->lock_failure.text);
        server->quiet_lock = true;
    }
    if (station->warned_bind)
        return;
    if (region->bind_failure.code < 0) {
        station->warned_bind = true;
        server_warn(server, "pool of %s: %s", station->device->info.uuid,
                    region->bind_failure.text);
    } else if (region->numa_node >= 0 && region->pages_local < region->pages) {
        station->warned_bind = true;
        server_warn(server,
                    "pool of %s: NUMA node %d has no room: %" PRIu64 " of %" PRIu64
                    " pages of a region are on another node",
                    station->device->info.uuid, region->numa_node,
                    region->pages - region->pages_local, region->pages);
    }
}

static void station_fail_first(struct station *station, const struct failure *failure)
{
    struct server *server = station->server;
    struct reservation *first = list_entry(station->reservations.next, struct reservation, link);
    struct task *task = first->task;

    list_remove(&first->link);
    task->reservation = NULL;
    free(first);
    core_job_refused(server->core, task->job, failure, server_now(server));
}

/* Memory is about to come back: what nobody uses is given up for it. */
static bool regions_make_room(struct server *server)
{
    retire_idle(server, server_now(server), 0, false);
    return server->retiring > 0 ||
           (server->lingering_bytes > 0 && server_now(server) < server->lingering_until);
}

static void growth_done(uv_work_t *work, int status)
{
    struct growth *growth = work->data;
    struct station *station = growth->station;
    struct server *server = station->server;
    uint64_t now = server_now(server);

    (void)status;
    server->busy--;
    station->growing = false;
    for (uint32_t i = 0; i < growth->made; i++) {
        struct region *region = growth->regions[i];
        region->charge = growth->charges[i];
        memset(&growth->charges[i], 0, sizeof growth->charges[i]);
        station_warn(station, region);
        pool_add_region(station->pool, region, now);
    }
    bool waits = false; /* until regions are gone, and then tries again */
    if (growth->made < growth->wanted) {
        if (growth->failure.code == -ENOMEM && server->is_ready && regions_make_room(server)) {
            waits = true;
        } else if (!list_empty(&station->reservations)) {
            station_fail_first(station, &growth->failure);
        } else if (!server->is_ready) {
            log_error("%s", growth->failure.text);
            server->exit_code = 1;
            server_stop(server);
        }
    } else if (!server->is_ready && !server->stopping) {
        server->is_ready = true;
        server->ready(server->ready_user);
    }
    growth_free(growth);
    if (!waits)
        station_serve(station);
    server_act(server);
    server_check_stopped(server);
}

/* All of them or none: refused, they are told in one figure. */
static int growth_charge(struct growth *growth, struct account *account, uint64_t bytes,
                         struct failure *failure)
{
    struct charge all = {0};
    uint64_t sum;

    if (__builtin_mul_overflow(bytes, growth->wanted, &sum))
        sum = UINT64_MAX;
    int r = charge_acquire(&all, account, ACCOUNT_PINNED, sum, failure);
    charge_release(&all);
    for (uint32_t i = 0; r == 0 && i < growth->wanted; i++)
        r = charge_acquire(&growth->charges[i], account, ACCOUNT_PINNED, bytes, failure);
    return r;
}

/* Charges n regions and starts making them. owner: of push regions; else 0. */
static int station_grow(struct station *station, struct account *account, uint64_t owner,
                        uint32_t n, uint64_t bytes, struct failure *failure)
{
    struct server *server = station->server;
    struct growth *growth = calloc(1, sizeof *growth);

    if (growth) {
        growth->regions = calloc(n, sizeof *growth->regions);
        growth->charges = calloc(n, sizeof *growth->charges);
    }
    if (!growth || !growth->regions || !growth->charges) {
        if (growth)
            growth_free(growth);
        return failure_set(failure, -ENOMEM, "no memory to grow the pool of %s",
                           station->device->info.uuid);
    }
    growth->wanted = n;
    int r = growth_charge(growth, account, bytes, failure);
    if (r < 0) {
        growth_free(growth);
        return r;
    }
    growth->station = station;
    growth->work.data = growth;
    growth->spec = (struct region_spec){
        .bytes = bytes,
        .lock = (enum region_lock)server->config->pool_lock,
        .numa_strict = server->config->placement_strict,
        .owner = owner,
        .placement = &station->placement,
        .topology = server->topology,
    };
    station->growing = true;
    server->busy++;
    uv_queue_work(&server->loop, &growth->work, growth_run, growth_done);
    return 0;
}

/* Nobody waits for it any more. */
static bool reservation_is_void(const struct reservation *reservation)
{
    const struct task *task = reservation->task;
    struct core_job_info info;

    return !core_job_find(task->server->core, task->job, &info) || info.ended;
}

/* 0: served. 1: wait, a growth is under way. Negative: refused. */
static int reservation_serve(struct reservation *reservation, struct failure *failure)
{
    struct task *task = reservation->task;
    struct station *station = task->station;
    struct server *server = station->server;
    uint64_t region_bytes = 0;
    uint32_t regions = 0;

    if (reservation_is_void(reservation))
        return failure_set(failure, -ECANCELED, "job %" PRIu64 ": ended", task->job);
    int r = task->push
                ? pool_take_pushed(station->pool, task->tenant, task->job, reservation->bytes,
                                   reservation->count, task->memory, &regions, &region_bytes)
                : pool_take(station->pool, task->tenant, task->mapped, reservation->bytes,
                            reservation->count, task->memory, &regions, &region_bytes);
    if (r == 0)
        return 0;
    if (r < 0)
        return failure_set(failure, r, "pool of %s: %s", station->device->info.uuid, strerror(-r));
    r = station_grow(station, task->tenant, task->push ? task->job : 0, regions, region_bytes,
                     failure);
    if (r == -EDQUOT && regions_make_room(server))
        return 1; /* served again when they are gone, and by the tick */
    return r < 0 ? r : 1;
}

static void station_serve(struct station *station)
{
    struct server *server = station->server;

    while (!station->growing && !list_empty(&station->reservations)) {
        struct reservation *first =
            list_entry(station->reservations.next, struct reservation, link);
        struct failure failure = {0};
        int r = reservation_serve(first, &failure);
        if (r == 1)
            return;
        if (r < 0) {
            station_fail_first(station, &failure);
            continue;
        }
        struct task *task = first->task;
        list_remove(&first->link);
        task->reservation = NULL;
        free(first);
        core_job_reserved(server->core, task->job, task->memory, server_now(server));
    }
    server_act(server);
}

void growth_reserve(struct task *task, uint64_t bytes, uint32_t count)
{
    struct reservation *reservation = calloc(1, sizeof *reservation);
    struct failure failure;

    if (!reservation) {
        failure_set(&failure, -ENOMEM, "no memory for the reservation of job %" PRIu64, task->job);
        core_job_refused(task->server->core, task->job, &failure, server_now(task->server));
        return;
    }
    reservation->task = task;
    reservation->bytes = bytes;
    reservation->count = count;
    task->reservation = reservation;
    list_append(&task->station->reservations, &reservation->link);
    station_serve(task->station);
}

/* All of it is compared at once, before the first region: a start that must fail fails at once. */
static int min_check(uint64_t bytes, struct failure *failure)
{
    struct memory_available memory;
    char need[32], left[32];
    int r = memory_available_get("", &memory);

    if (r < 0)
        return failure_set(failure, r, "the memory of this machine: %s", strerror(-r));
    if (bytes > memory.free)
        return failure_set(failure, -ENOMEM, "pool.min = %s is more than what is free: %s (%s)",
                           units_format_bytes(bytes, need, sizeof need),
                           units_format_bytes(memory.free, left, sizeof left), memory.bound);
    return 0;
}

int growth_start(struct server *server, struct failure *failure)
{
    uint64_t bytes = server->config->pool_region;
    uint64_t n = (server->config->pool_min + bytes - 1) / bytes;
    int r;

    if (n == 0) {
        server->is_ready = true;
        server->ready(server->ready_user);
        return 0;
    }
    r = min_check(n * bytes, failure);
    if (r < 0)
        return r;
    return station_grow(&server->stations[0], &server->accounts.node, 0, (uint32_t)n, bytes,
                        failure);
}
