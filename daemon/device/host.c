/*
 * The host device: batches are used in the pool where they lie, so there is
 * nothing to open, to copy or to lose. Its events wait for dispatch as those of
 * any device do.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "device/device.h"
#include "device/sysfs.h"
#include "proto/cleanup.h"

struct host {
    struct device device;
    int event_fd; /* readable while an event waits */
    bool up, opened_due, lost_due;
};

static struct host *host_of(struct device *device)
{
    return (struct host *)device;
}

static void host_wake(struct host *host)
{
    eventfd_write(host->event_fd, 1);
}

static int host_open(struct device *device, struct failure *failure)
{
    struct host *host = host_of(device);

    (void)failure;
    if (host->up)
        return 0;
    host->up = host->opened_due = true;
    host_wake(host);
    return 0;
}

static int host_get_fd(struct device *device)
{
    struct host *host = host_of(device);

    return host->up ? host->event_fd : -1;
}

static bool host_wants_write(struct device *device)
{
    (void)device;
    return false;
}

static int host_get_pidfd(struct device *device)
{
    (void)device;
    return -1;
}

static void host_dispatch(struct device *device)
{
    struct host *host = host_of(device);
    struct failure closed = {0};
    eventfd_t count;

    eventfd_read(host->event_fd, &count);
    if (host->opened_due) {
        host->opened_due = false;
        device->events->opened(device->user);
    }
    if (host->lost_due) {
        host->lost_due = host->up = false;
        failure_set(&closed, 0, "device %s: closed", device->info.uuid);
        device->events->lost(device->user, &closed);
    }
}

static int host_add_region(struct device *device, uint32_t region, int fd_consume, size_t bytes)
{
    cleanup_fd int fd = fd_consume;
    const struct host *host = host_of(device);

    (void)region, (void)bytes;
    return host->up && !host->lost_due ? 0 : -ENOTCONN;
}

static int host_remove_region(struct device *device, uint32_t region)
{
    const struct host *host = host_of(device);

    (void)region;
    return host->up && !host->lost_due ? 0 : -ENOTCONN;
}

static int host_make_ring(struct device *device, uint64_t ring, enum ring_export export_as,
                          size_t bytes)
{
    (void)device, (void)ring, (void)export_as, (void)bytes;
    return -EOPNOTSUPP;
}

static int host_free_ring(struct device *device, uint64_t ring)
{
    (void)device, (void)ring;
    return -EOPNOTSUPP;
}

static int host_copy(struct device *device, uint32_t region, size_t offset, uint64_t ring,
                     size_t ring_offset, size_t bytes, uint64_t cookie)
{
    (void)device, (void)region, (void)offset, (void)ring, (void)ring_offset, (void)bytes;
    (void)cookie;
    return -EOPNOTSUPP;
}

static int host_add_file(struct device *device, uint32_t file, int fd_consume, uint64_t size)
{
    cleanup_fd int fd = fd_consume;

    (void)device, (void)file, (void)size;
    return -EOPNOTSUPP;
}

static int host_remove_file(struct device *device, uint32_t file)
{
    (void)device, (void)file;
    return -EOPNOTSUPP;
}

static int host_gather(struct device *device, const struct device_gather *gather, uint64_t cookie)
{
    (void)device, (void)gather, (void)cookie;
    return -EOPNOTSUPP;
}

static void host_close(struct device *device)
{
    struct host *host = host_of(device);

    if (!host->up)
        return;
    host->lost_due = true;
    host_wake(host);
}

static void host_free(struct device *device)
{
    struct host *host = host_of(device);

    close_fd(&host->event_fd);
    free(host);
}

static const struct device_ops host_ops = {
    .kind = "host",
    .has_ring = false,
    .open = host_open,
    .get_fd = host_get_fd,
    .wants_write = host_wants_write,
    .get_pidfd = host_get_pidfd,
    .dispatch = host_dispatch,
    .add_region = host_add_region,
    .remove_region = host_remove_region,
    .make_ring = host_make_ring,
    .free_ring = host_free_ring,
    .copy = host_copy,
    .add_file = host_add_file,
    .remove_file = host_remove_file,
    .gather = host_gather,
    .close = host_close,
    .free = host_free,
};

int device_host_new(const char *pci, const struct device_events *events, void *user,
                    struct device **device_p)
{
    struct host *host = calloc(1, sizeof *host);

    if (!host)
        return -ENOMEM;
    host->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (host->event_fd < 0) {
        int r = -errno;
        free(host);
        return r;
    }
    host->device = (struct device){.ops = &host_ops, .events = events, .user = user};
    snprintf(host->device.info.uuid, sizeof host->device.info.uuid, "host");
    snprintf(host->device.info.name, sizeof host->device.info.name, "host memory");
    snprintf(host->device.info.pci, sizeof host->device.info.pci, "%s", pci);
    host->device.info.numa_node = sysfs_numa_node("", pci);
    *device_p = &host->device;
    return 0;
}
