/*
 * The report on devices. What sysfs says of their links is read on a thread of
 * the loop's pool, for it may wake a device; one reading a peer at a time, and
 * what a peer asks meanwhile is answered with what was read last.
 */
#include <stdlib.h>
#include <string.h>

#include "control/reports.h"
#include "device/link.h"

#define DELIVERIES (DELIVERY_MAPPED + 1)

/* One reading, and the query that waits for it. */
struct reading {
    uv_work_t work;
    struct server *server;
    uint64_t peer, id; /* of the query */
    uint32_t skip, n;
    struct link links[REPORT_ROWS_MAX];
};

/* Adds the jobs on the station, by delivery. */
static void deliveries_count(const struct station *station, uint32_t *counts)
{
    struct core_job_info info;

    for (uint64_t from = 0; core_job_next(station->server->core, from, &info); from = info.id + 1)
        if (info.device == station->number && (unsigned)info.delivery < DELIVERIES &&
            info.delivery != DELIVERY_AUTO)
            counts[info.delivery]++;
}

static void row_add_deliveries(Pinserve__DeviceReport *row, const struct station *station,
                               Pinserve__DeliveryCount *counts,
                               Pinserve__DeliveryCount **counts_list)
{
    uint32_t jobs[DELIVERIES] = {0};

    deliveries_count(station, jobs);
    for (unsigned i = 0; i < DELIVERIES; i++) {
        if (!jobs[i])
            continue;
        Pinserve__DeliveryCount *count = &counts[row->n_deliveries];
        pinserve__delivery_count__init(count);
        count->delivery = (Pinserve__Delivery)i;
        count->jobs = jobs[i];
        counts_list[row->n_deliveries++] = count;
    }
    row->deliveries = counts_list;
}

static void row_fill(Pinserve__DeviceReport *row, const struct station *station)
{
    const struct device_info *info = &station->device->info;
    const struct crew *crew = station->crew;
    struct server *server = station->server;
    struct pool_info pool;

    pool_info_get(station->pool, &pool);
    pinserve__device_report__init(row);
    row->uuid = (char *)info->uuid;
    row->name = (char *)info->name;
    row->pci = (char *)info->pci;
    row->numa_node = station->placement.memory_node;
    row->placement = (char *)station->placement.why;
    row->workers = crew->workers ? workers_count(crew->workers) : 0;
    row->jobs = core_device_jobs(server->core, station->number);
    row->pool_bytes = pool.bytes;
    row->ring_bytes = core_device_ring_bytes(server->core, station->number);
    row->process = station->up && station->device->ops->has_ring;
    row->copied_bytes = station->copied_bytes;
    row->restarts = station->restarts;
    row->link_generation = station->link.generation;
    row->link_width = station->link.width;
    row->link_generation_max = station->link.generation_max;
    row->link_width_max = station->link.width_max;
    row->gathered_bytes = station->gathered_bytes;
    row->gathered_batches = station->gathered_batches;
    row->state = (char *)station_state(station);
    row->copy_rate = rate_get(&station->copied_rate, server_now(server), station->copied_bytes);
}

static void devices_send(struct peer *peer, uint64_t id, uint32_t skip)
{
    struct server *server = peer->server;
    Pinserve__Report report = PINSERVE__REPORT__INIT;
    Pinserve__DeviceReport rows[REPORT_ROWS_MAX], *list[REPORT_ROWS_MAX];
    Pinserve__DeliveryCount counts[REPORT_ROWS_MAX][DELIVERIES];
    Pinserve__DeliveryCount *counts_list[REPORT_ROWS_MAX][DELIVERIES];
    uint32_t n = 0;

    for (uint32_t i = skip; i < server->n_stations && n < REPORT_ROWS_MAX; i++, n++) {
        row_fill(&rows[n], &server->stations[i]);
        row_add_deliveries(&rows[n], &server->stations[i], counts[n], counts_list[n]);
        list[n] = &rows[n];
    }
    report.n_devices = n;
    report.devices = list;
    report.more = skip + n < server->n_stations;
    peer_send_report(peer, id, &report);
}

static void reading_run(uv_work_t *work)
{
    struct reading *reading = work->data;

    for (uint32_t i = 0; i < reading->n; i++)
        link_get("", reading->server->stations[reading->skip + i].device->info.pci,
                 &reading->links[i]);
}

static void reading_done(uv_work_t *work, int status)
{
    struct reading *reading = work->data;
    struct server *server = reading->server;

    (void)status;
    server->busy--;
    for (uint32_t i = 0; i < reading->n; i++)
        server->stations[reading->skip + i].link = reading->links[i];
    list_for_each(item, &server->peers)
    {
        struct peer *peer = list_entry(item, struct peer, link);
        if (peer->id != reading->peer)
            continue;
        peer->reads_links = false;
        if (!peer->broken)
            devices_send(peer, reading->id, reading->skip);
        break;
    }
    free(reading);
    server_check_stopped(server);
}

void report_devices(struct peer *peer, uint64_t id, uint32_t skip)
{
    struct server *server = peer->server;
    struct reading *reading =
        peer->reads_links || skip >= server->n_stations ? NULL : calloc(1, sizeof *reading);

    if (!reading) {
        devices_send(peer, id, skip);
        return;
    }
    reading->work.data = reading;
    reading->server = server;
    reading->peer = peer->id;
    reading->id = id;
    reading->skip = skip;
    reading->n = server->n_stations - skip;
    if (reading->n > REPORT_ROWS_MAX)
        reading->n = REPORT_ROWS_MAX;
    peer->reads_links = true;
    server->busy++;
    uv_queue_work(&server->loop, &reading->work, reading_run, reading_done);
}
