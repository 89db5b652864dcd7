/*
 * One device under test, and what it has said so far. Every event checks that it
 * comes from dispatch, from no other call, and not after lost.
 */
#ifndef PINSERVE_TESTS_FIXTURE_H
#define PINSERVE_TESTS_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contract/importer.h"
#include "device/device.h"

#define REGION_BYTES ((size_t)4 << 20)
#define RING_BYTES ((size_t)4 << 20)
#define COOKIES_MAX 4096

/* What the tests run on: set up once by main. */
struct target {
    const char *kind; /* "host", "stand-in", "cuda" */
    const char *program, *importer;
    struct device_info info;
    uint64_t gather_max;
};

extern struct target target;

struct fixture {
    struct device *device;
    bool dispatching, up;

    unsigned opened, lost, rings_made, rings_failed, copied, copies_failed;
    unsigned files_ready, files_failed;
    uint64_t registered; /* bytes of files, as told last */
    uint64_t registered_most;
    struct failure lost_failure, ring_failure, copy_failure, file_failure;
    uint64_t ring, failed_ring, failed_cookie;
    bool ring_unsupported;
    int ring_fd; /* of the last ring made */
    uint8_t ipc_handle[DEVICE_IPC_HANDLE_BYTES];
    uint8_t ended[COOKIES_MAX]; /* how often, by cookie */
};

/* A fresh device object, not open. */
void fixture_init(struct fixture *fixture);
void fixture_deinit(struct fixture *fixture);
/* The same as setup and teardown of a test, whose state it is. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* Dispatches until *counter is at least count; fails the test after 20 s. */
void fixture_wait(struct fixture *fixture, const unsigned *counter, unsigned count);
/* Dispatches for a while, whatever comes. */
void fixture_idle(struct fixture *fixture, int milliseconds);

/* Opens and waits for opened; closes and waits for lost with code 0. */
void fixture_open(struct fixture *fixture);
void fixture_close(struct fixture *fixture);

/* A sealed memfd with bytes that depend on their position and on seed: its read-only description.
 */
int region_fd(size_t bytes, unsigned seed);
uint8_t region_byte(size_t position, unsigned seed);

/* Adds a region, which is asserted to be taken. */
void fixture_add_region(struct fixture *fixture, uint32_t region, size_t bytes, unsigned seed);

/* A file of size bytes, all holes: its description; and bytes of it as region_byte has them. */
int records_fd(uint64_t size);
void records_fill(int fd, uint64_t offset, size_t bytes, unsigned seed);

/* Makes a ring and waits for it. False: this export is not supported. */
bool fixture_make_ring(struct fixture *fixture, uint64_t ring, enum ring_export export_as,
                       size_t bytes);

/* Starts a process that has opened the ring made last. */
void fixture_import(struct fixture *fixture, struct importer *importer, enum ring_export export_as,
                    size_t bytes);

#endif
