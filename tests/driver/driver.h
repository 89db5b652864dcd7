/*
 * A stand-in for libcuda.so.1, for tests on machines without a GPU: the calls that
 * pinserved-device and the client library make, with the driver's rules about
 * contexts, registrations, access and order, and none of its hardware.
 *
 * Device memory is a memfd mapped into the process, so a device pointer is an
 * ordinary address that a test can read, an exported fd is a real fd, and a
 * mapping with read access really is read-only. Streams are threads.
 *
 * One lock guards everything; driver_progress is signalled whenever a stream
 * has done something. Environment, read by cuInit:
 *
 *   PINSERVE_DRIVER_DEVICES        how many devices (1)
 *   PINSERVE_DRIVER_MEMORY         bytes of each (4 GiB)
 *   PINSERVE_DRIVER_COPY_DELAY_US  what each asynchronous copy takes in addition (0)
 *   PINSERVE_DRIVER_REGISTER_DELAY_MS  what registering read-only memory takes in addition (0)
 *   PINSERVE_DRIVER_FAIL_COPY      the Nth asynchronous copy is refused (0: none)
 *   PINSERVE_DRIVER_BREAK_COPY     the Nth one breaks the context: every later call
 *                                  fails and no host function is called (0: none)
 *   PINSERVE_DRIVER_NO_FD          memory cannot be exported as a file descriptor
 *   PINSERVE_DRIVER_NO_IPC         nor as an IPC handle
 *   PINSERVE_DRIVER_NO_READ_ONLY   host memory cannot be registered read-only
 *   PINSERVE_DRIVER_NO_REGISTER    nor registered at all
 *   PINSERVE_DRIVER_REGISTERED     the name of a file: a byte longer with each registration
 *   PINSERVE_DRIVER_VERSION        of the driver (that of the header): before 12080 many pieces
 *                                  are not copied by one call, before 13000 by another one
 *   PINSERVE_DRIVER_NO_IMPORT      rings of other processes cannot be opened, as from a foreign
 *                                  pid namespace or with another driver: a knob for clients
 *   PINSERVE_DRIVER_EXCLUSIVE      the name of a file: the first process that makes a context locks
 *                                  it, and no other gets a context
 *   PINSERVE_DRIVER_COHERENT       the devices share the host's memory
 *   PINSERVE_DRIVER_SLICE          devices are parts of those that others see (MIG): with UUIDs
 *                                  of their own, at the same PCI addresses
 *   CUDA_VISIBLE_DEVICES           as for the real one
 */
#ifndef PINSERVE_TESTS_DRIVER_H
#define PINSERVE_TESTS_DRIVER_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DRIVER_DEVICES_MAX 16
#define DRIVER_GRANULARITY (2ul << 20)
#define DRIVER_PAGE 4096

struct driver_settings {
    int devices; /* that are visible */
    int device_numbers[DRIVER_DEVICES_MAX];
    size_t memory;
    unsigned register_delay_ms, copy_delay_us, fail_copy, break_copy;
    bool no_fd, no_ipc, no_read_only, no_register, no_import, coherent, slice;
};

extern struct driver_settings driver_settings;
extern pthread_mutex_t driver_lock;
extern pthread_cond_t driver_progress;

/* What every call begins with: the driver is initialised in this process, the caller is no host
 * function, the context is not broken and, with need_context, one is current. */
CUresult driver_enter(bool need_context);

/* From here on every call fails with error. With the lock held. */
void driver_break(CUresult error);
bool driver_is_broken(void);

/* Marks the thread as one that runs a host function, in which no call is permitted. */
void driver_set_in_host_function(bool inside);

/* The device of the current context. */
CUdevice driver_current_device(void);

/* Whether [address, address + bytes) lies within one range of device memory with that access. */
bool driver_is_device_memory(CUdeviceptr address, size_t bytes, bool to_write);

enum host_memory { HOST_MEMORY_PAGEABLE, HOST_MEMORY_LOCKED, HOST_MEMORY_SPLIT };

/* Whether host memory is registered as a whole, not at all, or across registrations. */
enum host_memory driver_host_memory(const void *address, size_t bytes);

/* Waits until every stream that is not non-blocking is empty, as a synchronous copy does. */
void driver_wait_for_streams(void);

#endif
