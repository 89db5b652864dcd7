/*
 * Stations: a device with its pool and its workers. Devices are found at start
 * without opening any; a device's process lives from the first ring to
 * device.idle after the last.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/sysfs.h"
#include "log.h"
#include "proto/cleanup.h"
#include "proto/limits.h"
#include "server.h"

static void station_on_poll(uv_poll_t *poll, int status, int events)
{
    struct station *station = poll->data;

    (void)status;
    (void)events;
    station->device->ops->dispatch(station->device);
    server_act(station->server);
    station_poll(station);
}

static void station_on_poll_closed(uv_handle_t *handle)
{
    free(handle);
}

/* A handle of its own for each fd: libuv still needs it for a moment after it is closed. */
static uv_poll_t *station_poll_new(struct station *station, int fd)
{
    uv_poll_t *poll = fd >= 0 ? calloc(1, sizeof *poll) : NULL;

    if (poll && uv_poll_init(&station->server->loop, poll, fd) != 0) {
        free(poll);
        poll = NULL;
    }
    if (poll)
        poll->data = station;
    return poll;
}

static void station_poll_free(uv_poll_t **poll)
{
    if (*poll)
        uv_close((uv_handle_t *)*poll, station_on_poll_closed);
    *poll = NULL;
}

static void station_stop_polling(struct station *station)
{
    station_poll_free(&station->poll);
    station_poll_free(&station->pid_poll);
    station->polled_events = 0;
}

void station_poll(struct station *station)
{
    const struct device_ops *ops = station->device->ops;
    int events = UV_READABLE;

    if (!station->up || !station->poll)
        return;
    if (ops->wants_write(station->device))
        events |= UV_WRITABLE;
    if (events != station->polled_events) {
        uv_poll_start(station->poll, events, station_on_poll);
        station->polled_events = events;
    }
}

int station_open(struct station *station, struct failure *failure)
{
    const struct device_ops *ops = station->device->ops;

    if (station->up)
        return 0;
    int r = ops->open(station->device, failure);
    if (r < 0)
        return r;
    station->up = true;
    station->n_registered = 0;
    station->poll = station_poll_new(station, ops->get_fd(station->device));
    station->pid_poll = station_poll_new(station, ops->get_pidfd(station->device));
    if (station->pid_poll)
        uv_poll_start(station->pid_poll, UV_READABLE, station_on_poll);
    log_info("device %s: started", station->device->info.uuid);
    station_poll(station);
    return 0;
}

/* -- the device's events -------------------------------------------------------------------- */

static void station_on_opened(void *user)
{
    struct station *station = user;

    station->opened = true;
    log_debug("device %s: ready", station->device->info.uuid);
}

static void station_on_ring_made(void *user, uint64_t ring, int fd, const uint8_t *ipc_handle)
{
    struct station *station = user;
    struct server *server = station->server;
    cleanup_fd int ring_fd = fd;
    struct task *task = task_find(server, ring >> 32);

    if (!task)
        return;
    close_fd(&task->ring_fd);
    task->ring_fd = steal_fd(&ring_fd);
    if (ipc_handle)
        memcpy(task->ipc_handle, ipc_handle, sizeof task->ipc_handle);
    uint64_t job = task->job;
    core_ring_made(server->core, job, (uint32_t)ring, server_now(server));
    server_act(server);
    /* Announced to nobody, it would keep the ring's memory from being free. */
    task = task_find(server, job);
    if (task)
        close_fd(&task->ring_fd);
}

static void station_on_ring_failed(void *user, uint64_t ring, bool unsupported,
                                   const struct failure *failure)
{
    struct station *station = user;
    struct server *server = station->server;

    core_ring_failed(server->core, ring >> 32, (uint32_t)ring, unsupported, failure,
                     server_now(server));
    server_act(server);
}

static void station_on_copied(void *user, uint64_t cookie, const struct failure *failure)
{
    struct station *station = user;
    struct server *server = station->server;
    struct copy *copy = (struct copy *)(uintptr_t)cookie; // NOLINT(performance-no-int-to-ptr)

    struct failure named;

    if (failure) {
        named = *failure;
        gather_explain(copy, &named);
    } else {
        station->copied_bytes += copy->bytes;
    }
    core_copied(server->core, copy->task->job, copy->ring, copy->lease, copy->generation,
                failure ? &named : NULL, server_now(server));
    server_act(server);
}

static void station_on_lost(void *user, const struct failure *failure)
{
    struct station *station = user;
    struct server *server = station->server;

    /* It was never up: the GPU is another process's alone, or divided, or full. */
    bool refused = !station->opened && (failure->code == -EBUSY || failure->code == -ENODEV ||
                                        failure->code == -ENOMEM);

    station_stop_polling(station);
    station->up = station->opened = station->closing = false;
    station->idle_since = 0;
    station->n_registered = 0;
    gathers_on_lost(station);
    if (failure->code < 0) {
        station->restarts++;
        log_error("%s", failure->text);
    } else {
        log_info("device %s: ended", station->device->info.uuid);
    }
    if (refused)
        core_device_refused(server->core, station->number, failure, server_now(server));
    core_device_lost(server->core, station->number, failure, server_now(server));
    server_act(server);
    server_check_stopped(server);
}

static void station_on_file_ready(void *user, uint32_t file, const struct failure *failure)
{
    gathers_on_ready(user, file, failure);
}

static void station_on_registered(void *user, uint64_t bytes)
{
    struct station *station = user;

    station->gathered_bytes = bytes;
}

static const struct device_events station_events = {
    .opened = station_on_opened,
    .ring_made = station_on_ring_made,
    .ring_failed = station_on_ring_failed,
    .copied = station_on_copied,
    .file_ready = station_on_file_ready,
    .registered = station_on_registered,
    .lost = station_on_lost,
};

/* -- regions in the device's process --------------------------------------------------------- */

int station_register(struct station *station, struct region *region)
{
    for (uint32_t i = 0; i < station->n_registered; i++) {
        if (station->registered[i] == region->id)
            return 0;
    }
    if (station->n_registered == station->registered_capacity) {
        uint32_t capacity = station->registered_capacity ? station->registered_capacity * 2 : 16;
        uint32_t *larger = realloc(station->registered, capacity * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        station->registered = larger;
        station->registered_capacity = capacity;
    }
    int fd = -1;
    int r = region_open_readonly(region, &fd);
    if (r < 0)
        return r;
    r = station->device->ops->add_region(station->device, region->id, fd, region->bytes);
    if (r < 0)
        return r;
    station->registered[station->n_registered++] = region->id;
    return 0;
}

void station_unregister(struct station *station, uint32_t region)
{
    for (uint32_t i = 0; i < station->n_registered; i++) {
        if (station->registered[i] != region)
            continue;
        station->registered[i] = station->registered[--station->n_registered];
        station->device->ops->remove_region(station->device, region);
        station_poll(station);
        return;
    }
}

/* -- workers --------------------------------------------------------------------------------- */

int station_crew(struct station *station, struct failure *failure)
{
    struct server *server = station->server;
    unsigned n = server->config->workers_per_numa_node;

    if (station->crew->workers)
        return 0;
    if (n == 0)
        n = station->placement.n_cpus > 1 ? station->placement.n_cpus / 2 : 1;
    return workers_new(server->topology, &station->placement, n, &station->crew->workers, failure);
}

static struct crew *crew_for(struct server *server, int cpu_node)
{
    for (uint32_t i = 0; i < server->n_crews; i++) {
        if (server->crews[i].cpu_node == cpu_node)
            return &server->crews[i];
    }
    struct crew *crew = &server->crews[server->n_crews++];
    crew->cpu_node = cpu_node;
    return crew;
}

/* -- all of them ----------------------------------------------------------------------------- */

static bool device_is_used(const struct config *config, const struct device_info *info)
{
    const char *use = config->device_use;

    if (strcmp(use, "auto") == 0)
        return true;
    size_t length = strlen(info->uuid);
    for (const char *at = use; (at = strstr(at, info->uuid)); at += length) {
        bool begins = at == use || at[-1] == ',' || at[-1] == ' ';
        bool ends = at[length] == '\0' || at[length] == ',' || at[length] == ' ';
        if (begins && ends)
            return true;
    }
    return false;
}

/* What placement.numa = strict refuses is refused at start and not when the first job comes: a
 * region of one page goes the way of all. */
static int station_prove(const struct station *station, struct failure *failure)
{
    const struct server *server = station->server;
    const char *uuid = station->device->info.uuid;
    const struct region_spec spec = {
        .bytes = (size_t)sysconf(_SC_PAGESIZE),
        .lock = REGION_LOCK_OFF,
        .numa_strict = true,
        .placement = &station->placement,
        .topology = server->topology,
    };
    struct region *page;
    struct failure cause = {0};

    if (!server->config->placement_strict)
        return 0;
    if (station->placement.displaced)
        return failure_set(failure, -EXDEV, "device %s: %s; placement.numa = strict", uuid,
                           station->placement.why);
    if (station->placement.memory_node < 0)
        return 0;
    int r = region_new(&spec, &page, &cause);
    if (r < 0)
        return failure_set(failure, r, "device %s: %s", uuid, cause.text);
    region_destroy(page);
    region_free(page);
    return 0;
}

static int station_add(struct server *server, struct device *device, struct failure *failure)
{
    struct station *station = &server->stations[server->n_stations];
    const char *pci = device->info.pci[0] ? device->info.pci : NULL;

    memset(station, 0, sizeof *station);
    station->server = server;
    station->device = device;
    list_init(&station->reservations);
    list_init(&station->gathers);
    int r =
        placement_find(server->topology, pci, device->info.numa_node, &station->placement, failure);
    if (r < 0) {
        device->ops->free(device);
        return r;
    }
    device->user = station;
    server->n_stations++;
    station->crew = crew_for(server, station->placement.cpu_node);
    station->pool = pool_new(server->config->pool_region);
    if (!station->pool)
        return failure_set(failure, -ENOMEM, "device %s: no memory for its pool",
                           device->info.uuid);
    pool_number_with(station->pool, &server->next_region);
    struct core_device_spec spec = {
        .has_ring = device->ops->has_ring,
        .allow_ipc = server->config->device_ipc,
        .rings_off = !server->config->device_rings,
        .numa = (uint32_t)(station->crew - server->crews),
    };
    r = station_prove(station, failure);
    if (r < 0)
        return r;
    if (station->placement.degraded)
        server_warn(server, "device %s: %s", device->info.uuid, station->placement.why);
    return core_device_add(server->core, &spec, &station->number);
}

/* Where the daemon's own programs are: beside itself when run from the build, else in the libexec
 * beside its bin, also of another prefix than the build was made for. */
static void device_program_path(const struct config *config, char *path, size_t size)
{
    static const char *const places[] = {"pinserved-device", "device/pinserved-device",
                                         "../libexec/pinserve/pinserved-device"};
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    if (config->device_program[0]) {
        snprintf(path, size, "%s", config->device_program);
        return;
    }
    self[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, size, "%s/%s", self, places[i]);
        if (access(path, X_OK) == 0)
            return;
    }
    snprintf(path, size, "%s", PINSERVE_LIBEXECDIR "/pinserved-device");
}

static int stations_add_gpus(struct server *server, struct failure *failure)
{
    struct device_info infos[STATIONS_MAX - 1];
    char program[4352];

    if (strncmp(server->config->device_use, "host", 4) == 0)
        return 0;
    device_program_path(server->config, program, sizeof program);
    if (access(program, X_OK) < 0) {
        log_info("%s: %s: GPUs are not served", program, strerror(errno));
        return 0;
    }
    struct failure listing = {0};
    int n = device_discover("", infos, STATIONS_MAX - 1);
    if (n <= 0 && (n = device_list(program, infos, STATIONS_MAX - 1, &listing)) < 0)
        log_info("no GPU: %s", listing.text);
    const struct config *config = server->config;
    struct device_process_spec spec = {
        .program = program,
        .keep_stderr = true,
        .gather_max = config->device_gather ? config->device_gather_max : 0,
    };
    for (int i = 0; i < n && i < STATIONS_MAX - 1; i++) {
        struct device *device;
        if (!device_is_used(server->config, &infos[i]))
            continue;
        int r = device_process_new(&spec, &infos[i], &station_events, NULL, &device);
        if (r < 0)
            return failure_set(failure, r, "device %s: %s", infos[i].uuid, strerror(-r));
        r = station_add(server, device, failure);
        if (r < 0)
            return r;
    }
    return 0;
}

int stations_init(struct server *server, struct failure *failure)
{
    struct device *host;
    int r = stations_add_gpus(server, failure);

    if (r < 0)
        return r;
    /* "host:0000:81:00.0": the host device near that address. */
    const char *use = server->config->device_use;
    const char *pci = strncmp(use, "host:", 5) == 0 ? use + 5 : "";
    if (*pci && !server->config->placement_topology[0] && !sysfs_has_device("", pci))
        return failure_set(failure, -ENODEV, "device.use = %s: there is no PCI device %s", use,
                           pci);
    r = device_host_new(pci, &station_events, NULL, &host);
    if (r < 0)
        return failure_set(failure, r, "device host: %s", strerror(-r));
    return station_add(server, host, failure);
}

/* Its end comes as lost; a ring that is asked for until then is made by the next process. */
static void station_close(struct station *station)
{
    if (!station->closing)
        station->device->ops->close(station->device);
    station->closing = true;
}

/* An idle device costs nothing: its process ends device.idle after its last ring. */
void stations_tick(struct server *server, uint64_t now)
{
    for (uint32_t i = 0; i < server->n_stations; i++) {
        struct station *station = &server->stations[i];
        if (!station->device->ops->has_ring || !station->up)
            continue;
        rate_sample(&station->copied_rate, now, station->copied_bytes);
        if (core_device_ring_bytes(server->core, station->number) > 0)
            station->idle_since = 0;
        else if (station->idle_since == 0)
            station->idle_since = now;
        else if (station->draining || now - station->idle_since >= server->config->device_idle)
            station_close(station);
        station_poll(station);
    }
}

void stations_close(struct server *server)
{
    for (uint32_t i = 0; i < server->n_stations; i++) {
        struct station *station = &server->stations[i];
        if (station->up && station->device->ops->has_ring)
            station_close(station);
        station_poll(station);
    }
}

bool stations_closed(const struct server *server)
{
    for (uint32_t i = 0; i < server->n_stations; i++) {
        if (server->stations[i].up && server->stations[i].device->ops->has_ring)
            return false;
    }
    return true;
}

void stations_deinit(struct server *server)
{
    for (uint32_t i = 0; i < server->n_crews; i++) {
        if (server->crews[i].workers)
            workers_free(server->crews[i].workers);
    }
    for (uint32_t i = 0; i < server->n_stations; i++) {
        struct station *station = &server->stations[i];
        station_stop_polling(station);
        station->device->ops->free(station->device);
        if (station->pool)
            pool_free(station->pool);
        placement_deinit(&station->placement);
        free(station->registered);
    }
}
