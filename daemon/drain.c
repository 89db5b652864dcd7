/*
 * What an operator ends: a job, or all jobs of a device, whose process then ends,
 * too, so that the GPU can be reset or its driver upgraded. A job that is ended
 * fails as any other: what its client leases stays readable until it is given
 * back, and until then the device is draining.
 */
#include <errno.h>
#include <inttypes.h>

#include "log.h"
#include "server.h"

/* The job fails with failure; what was read ahead for it is dropped. */
static int job_end(struct server *server, uint64_t job, const struct failure *failure)
{
    int r = core_job_evict(server->core, job, failure, server_now(server));
    struct task *task = r == 0 ? task_find(server, job) : NULL;

    if (task)
        task_stop_reading(task);
    server_act(server);
    return r;
}

int server_evict(struct server *server, uint64_t job, const char *by, struct failure *failure)
{
    struct failure why;

    failure_set(&why, -ECANCELED, "job %" PRIu64 " was evicted by %s", job, by);
    int r = job_end(server, job, &why);
    if (r == -EALREADY)
        failure_set(failure, r, "job %" PRIu64 " has ended; its client is yet to close it", job);
    else if (r < 0)
        failure_set(failure, r, "there is no job %" PRIu64, job);
    return r;
}

void station_drain(struct station *station, const char *by)
{
    struct server *server = station->server;
    struct core_job_info info;
    struct failure why;

    if (station->draining)
        return;
    station->draining = true;
    log_info("device %s: drained by %s", station->device->info.uuid, by);
    failure_set(&why, -ESHUTDOWN, "device %s was drained by %s", station->device->info.uuid, by);
    for (uint64_t from = 0; core_job_next(server->core, from, &info); from = info.id + 1)
        if (info.device == station->number)
            job_end(server, info.id, &why);
    server_wake(server);
}

void station_resume(struct station *station, const char *by)
{
    if (!station->draining)
        return;
    station->draining = false;
    log_info("device %s: taken into service again by %s", station->device->info.uuid, by);
}

int station_accepts(const struct station *station, struct failure *failure)
{
    if (!station->draining)
        return 0;
    return failure_set(failure, -ESHUTDOWN,
                       "device %s is out of service: an operator is draining it",
                       station->device->info.uuid);
}

const char *station_state(const struct station *station)
{
    bool up = station->up && station->device->ops->has_ring;

    if (!station->draining)
        return "serving";
    return up || core_device_jobs(station->server->core, station->number) > 0 ? "draining"
                                                                              : "drained";
}
