/*
 * Memory of a GPU for tests of the client library: two rings, made through the
 * driver's stand-in, that a peer offers.
 *
 * The exporter is a process of its own, forked before the driver is loaded: a
 * process cannot open its own IPC handles.
 */
#ifndef PINSERVE_TESTS_CLIENT_EXPORTER_H
#define PINSERVE_TESTS_CLIENT_EXPORTER_H

#include <stdbool.h>
#include <stdint.h>

#include "client/device.h"
#include "client/driver.h"
#include "client_peer.h"
#include "proto/limits.h"

#define RING_BYTES RING_ALIGN

/* Calls that only a test and a daemon make. */
struct exporter_driver {
    __typeof__(&cuMemCreate) mem_create;
    __typeof__(&cuMemExportToShareableHandle) mem_export;
    __typeof__(&cuMemAlloc) mem_alloc;
    __typeof__(&cuIpcGetMemHandle) ipc_get;
    __typeof__(&cuMemcpyHtoD) copy_to;
    __typeof__(&cuStreamBeginCapture) begin_capture;
    __typeof__(&cuStreamEndCapture) end_capture;
};

/* The ring behind fd begins with 1, the one behind the handle with 101. */
struct exported {
    uint8_t handle[64];
    char uuid[DEVICE_NAME_MAX]; /* of the GPU they are on, the first of two */
};

extern struct exporter_driver exporter_driver;
extern struct exported exported;
extern int exported_fd;

/* Setup and teardown of a group of tests. */
int exporter_start(void **state);
int exporter_stop(void **state);

/* Makes peer, whose jobs are for the exporter's GPU, and connects. */
void exporter_connect(struct peer *peer);
/* The ring to offer as the i-th, and as the last one; broken: neither fd nor handle is a ring's. */
void exporter_offer(struct peer *peer, int i, Pinserve__Delivery delivery, bool broken);
/* The job has this delivery, on the exporter's GPU. */
void exporter_check(const struct pinclient_job *job, const char *delivery);

#endif
