/*
 * A device as the daemon drives it: a table of functions, filled by host.c and
 * process.c, and the events that come back. Nothing blocks. All calls and all
 * events are on one thread; an event never comes from inside a call, only from
 * device_dispatch.
 *
 * Commands are carried out in the order given: a region added, or a ring made,
 * may be used by the next command without waiting for its event.
 */
#ifndef PINSERVE_DEVICE_DEVICE_H
#define PINSERVE_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/failure.h"

#define DEVICE_UUID_MAX 48
#define DEVICE_IPC_HANDLE_BYTES 64

#define GATHER_PIECES_MAX 65536 /* of one gather */

enum ring_export { RING_EXPORT_FD, RING_EXPORT_IPC };

/* Where one record lies that a gather takes. */
struct device_piece {
    uint32_t file, reserved;
    uint64_t offset;
};

/* n pieces of piece_bytes each, one behind the other to ring_offset of ring; and rest_bytes, if
 * any, from rest_offset of region to rest_ring_offset. */
struct device_gather {
    const struct device_piece *pieces;
    uint32_t n, region;
    uint64_t piece_bytes;
    uint64_t ring, ring_offset;
    uint64_t rest_bytes, rest_offset, rest_ring_offset;
};

/* What sysfs and /proc (or, for host, nothing) say of a device, before any process of it runs. */
struct device_info {
    char uuid[DEVICE_UUID_MAX]; /* "GPU-...", "host" */
    char name[96];
    char pci[16];  /* "0000:81:00.0" or "" */
    int numa_node; /* as sysfs says; -1 unknown */
};

struct device_events {
    /* The device process is up and has its context: commands before this one were queued. */
    void (*opened)(void *user);
    /* A ring is there: fd (owned by the receiver) or an IPC handle of DEVICE_IPC_HANDLE_BYTES. */
    void (*ring_made)(void *user, uint64_t ring, int fd, const uint8_t *ipc_handle);
    /* unsupported: this export cannot work here, another may. */
    void (*ring_failed)(void *user, uint64_t ring, bool unsupported, const struct failure *failure);
    /* A copy or a gather has ended; failure NULL: the bytes are in the ring, for every process. Of
     * a gather -ENODATA: a record was cut off meanwhile. */
    void (*copied)(void *user, uint64_t cookie, const struct failure *failure);
    /* A file that was added is registered as a whole; or, with failure, cannot be. */
    void (*file_ready)(void *user, uint32_t file, const struct failure *failure);
    /* How many bytes of files are registered now. */
    void (*registered)(void *user, uint64_t bytes);
    /* The process has ended (reaped): rings, regions and copies of it are gone, and no event about
     * them comes any more. failure.code 0: it was closed. The device may be opened again. */
    void (*lost)(void *user, const struct failure *failure);
};

struct device {
    const struct device_ops *ops;
    struct device_info info;
    const struct device_events *events;
    void *user;
};

struct device_ops {
    const char *kind; /* "host", "cuda" */
    bool has_ring;    /* false: batches are used where they lie */

    /* Starts it, when it is not up. */
    int (*open)(struct device *device, struct failure *failure);
    /* fd to poll for reading (and, while wants_write, for writing), the same until lost; -1: not
     * open. */
    int (*get_fd)(struct device *device);
    bool (*wants_write)(struct device *device);
    /* A pidfd that is readable when the process has ended; -1: none. */
    int (*get_pidfd)(struct device *device);
    /* Sends what waits and hands out the events that are there, some hundred at most. In an event
     * every call but free may be made. */
    void (*dispatch)(struct device *device);

    /* The commands below: -ENOTCONN when it is not open, and after close. One that its process,
     * dying, does not get is 0 all the same: lost follows.
     *
     * Regions, by the pool's number. fd: a read-only description, taken over. */
    int (*add_region)(struct device *device, uint32_t region, int fd_consume, size_t bytes);
    int (*remove_region)(struct device *device, uint32_t region);

    /* Rings, by the caller's number. bytes: a multiple of RING_ALIGN. */
    int (*make_ring)(struct device *device, uint64_t ring, enum ring_export export_as,
                     size_t bytes);
    int (*free_ring)(struct device *device, uint64_t ring);

    /* bytes from offset of region to ring_offset of ring. */
    int (*copy)(struct device *device, uint32_t region, size_t offset, uint64_t ring,
                size_t ring_offset, size_t bytes, uint64_t cookie);

    /* Files that gathers take records from, by the caller's number. fd: readable, taken over. They
     * are registered in the background, in windows, as far as the process's bound on registered
     * bytes goes: file_ready follows. The processor never reads them there. -EOPNOTSUPP: this
     * device gathers nothing. */
    int (*add_file)(struct device *device, uint32_t file, int fd_consume, uint64_t size);
    int (*remove_file)(struct device *device, uint32_t file);
    /* Windows that are not registered (any more) are awaited. Copies and gathers overtake each
     * other. */
    int (*gather)(struct device *device, const struct device_gather *gather, uint64_t cookie);

    /* Asks it to end, behind the commands given before; lost follows. No rings may be in use. */
    void (*close)(struct device *device);
    /* Kills it when it is up, waits for its end, and frees the object: no event follows. */
    void (*free)(struct device *device);
};

/* The host device. pci: "" or the address of a device that placement is to follow. Its fd is
 * readable while an event waits for device_dispatch. */
int device_host_new(const char *pci, const struct device_events *events, void *user,
                    struct device **device_p);

struct device_process_spec {
    const char *program; /* pinserved-device */
    bool keep_stderr;    /* its log goes where the daemon's goes */
    uint64_t gather_max; /* bytes of files registered at a time; 0: nothing is gathered */
};

/* A GPU, served by a process of its own. */
int device_process_new(const struct device_process_spec *spec, const struct device_info *info,
                       const struct device_events *events, void *user, struct device **device_p);

/* The GPUs of the machine, from sysfs and the NVIDIA driver's files below root ("" for the real
 * one), by PCI address: no device is opened. Fills at most max, returns how many there are. 0 also
 * when the driver keeps its files to itself (in a container) or does not know its GPUs yet: then
 * device_list may know more. */
int device_discover(const char *root, struct device_info *infos, size_t max);

/* The same by asking the driver: runs `program --list`, which takes up to a second or two; for the
 * start, or off the loop thread. Returns how many there are or a negative errno. */
int device_list(const char *program, struct device_info *infos, size_t max,
                struct failure *failure);

#endif
