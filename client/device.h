/*
 * GPUs as this process uses them: which one is meant, rings mapped into it, and
 * work that waits for streams. device_cuda.c where CUDA's headers are, else
 * device_none.c; the driver is loaded at run time.
 */
#ifndef PINSERVE_CLIENT_DEVICE_H
#define PINSERVE_CLIENT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/failure.h"

#define DEVICE_NAME_MAX 128
#define DEVICE_IPC_HANDLE_BYTES 64
#define DEVICE_PCI_MAX 16

struct device;       /* a GPU with its primary context and a stream of the library's own */
struct device_event; /* a place in a stream */

/* Finds what `auto`, `host`, `cuda:N`, a UUID or the beginning of one means here: "host", or the
 * UUID to ask the daemon for. A UUID that this process does not see is passed on as it is. -ENODEV
 * lists what is there; -EINVAL: a beginning that fits several. */
int device_resolve(const char *wanted, char name[DEVICE_NAME_MAX], struct failure *failure);

/* Opens a GPU by UUID. -ENODEV: no driver, or no such GPU in this process; -EIO: CUDA refused. */
int device_open(const char *uuid, struct device **device_p, struct failure *failure);
/* Only when no ring is open and no function is pending. NULL is allowed. */
void device_close(struct device *device);

/* Which GPU of this process it is, as the CUDA runtime counts. */
int device_number(const struct device *device);

/* Whether a ring can be taken as a file descriptor. As an IPC handle it always can. */
bool device_can_fd(const struct device *device);

/* Its UUID, and its address: "0000:81:00.0", or "". Of a part of a GPU (MIG) the UUID is its own.
 */
const char *device_uuid(const struct device *device);
void device_pci(const struct device *device, char pci[DEVICE_PCI_MAX]);

/* Whether it can use regions where they lie; and whether it shares the host's memory, so that this
 * is the best way. */
bool device_can_map(const struct device *device);
bool device_is_coherent(const struct device *device);

/* A mapped ring. */
struct device_ring {
    void *address;
    size_t bytes;
    bool from_fd;
};

/* Maps a ring: from fd, which stays the caller's, or when that is -1 from an IPC handle of
 * DEVICE_IPC_HANDLE_BYTES. Read-only where the driver can. */
int device_ring_open(struct device *device, int fd, const uint8_t *ipc_handle, size_t bytes,
                     struct device_ring *ring_p, struct failure *failure);
/* No stream may work on it any more. */
void device_ring_close(struct device *device, struct device_ring *ring);

/* Makes host memory fit for fast copies; false when the driver will not, which costs speed only. */
bool device_register(struct device *device, const void *address, size_t bytes);
void device_unregister(struct device *device, const void *address);

/* Whether a release can follow stream now: 0; -EBUSY: it is being captured; -EIO. */
int device_stream_check(struct device *device, void *stream, struct failure *failure);

/* The address that the GPU uses for host memory; NULL: it has none. */
const void *device_host_address(struct device *device, const void *address, bool registered);

/* Memory of the GPU for copies of host memory, and the stream that makes them. */
struct device_copies;
int device_copies_new(struct device *device, size_t bytes, struct device_copies **copies_p,
                      struct failure *failure);
/* No stream may use the memory any more. */
void device_copies_free(struct device *device, struct device_copies *copies);
const void *device_copies_address(const struct device_copies *copies);
/* Copies bytes from origin to offset; then done is called on a thread of the driver's, as by
 * device_call_behind. On an error it is not, and nothing is under way. */
int device_copies_start(struct device *device, struct device_copies *copies, size_t offset,
                        const void *origin, size_t bytes, void (*done)(void *), void *argument,
                        struct failure *failure);
/* -EIO: the context is broken, so that done is never called. */
int device_copies_check(struct device *device, struct device_copies *copies,
                        struct failure *failure);

/* Takes the place where stream is now; give it back with device_event_free. -EBUSY: stream is being
 * captured; -EIO. */
int device_event_record(struct device *device, void *stream, struct device_event **event_p,
                        struct failure *failure);
void device_event_free(struct device *device, struct device_event *event);

/* Calls function on a thread of the driver's once all events have passed; may give the events back
 * at once. Calls for one device come in the order asked for. In function no CUDA call is allowed,
 * and so no function of this header. */
int device_call_behind(struct device *device, struct device_event *const *events, size_t n,
                       void (*function)(void *), void *argument, struct failure *failure);

struct transform_work;

/* Queues the work on stream; in is memory of the GPU. The plan and flip, where that is host memory,
 * are read before the call returns. -EOPNOTSUPP: no kernel for this GPU; -EINVAL: out is not memory
 * of it; -EIO. */
int device_transform(struct device *device, const struct transform_work *work, void *stream,
                     struct failure *failure);

/* Waits until the GPU has nothing left to do for this process, or can do nothing any more. */
void device_drain(struct device *device);

#endif
