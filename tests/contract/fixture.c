/*
 * The device under test: see fixture.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "contract/fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/cleanup.h"

#define WAIT_MS 20000

struct target target;

static struct fixture *event(void *user)
{
    struct fixture *fixture = user;

    assert_true(fixture->dispatching);
    assert_true(fixture->up);
    return fixture;
}

static void on_opened(void *user)
{
    event(user)->opened++;
}

static void on_ring_made(void *user, uint64_t ring, int fd, const uint8_t *ipc_handle)
{
    struct fixture *fixture = event(user);

    assert_true((fd >= 0) == (ipc_handle == NULL));
    if (fd >= 0)
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close_fd(&fixture->ring_fd);
    fixture->ring_fd = fd;
    if (ipc_handle)
        memcpy(fixture->ipc_handle, ipc_handle, sizeof fixture->ipc_handle);
    fixture->ring = ring;
    fixture->rings_made++;
}

static void on_ring_failed(void *user, uint64_t ring, bool unsupported,
                           const struct failure *failure)
{
    struct fixture *fixture = event(user);

    assert_true(failure->code < 0);
    fixture->failed_ring = ring;
    fixture->ring_unsupported = unsupported;
    fixture->ring_failure = *failure;
    fixture->rings_failed++;
}

static void on_copied(void *user, uint64_t cookie, const struct failure *failure)
{
    struct fixture *fixture = event(user);

    assert_in_range(cookie, 0, COOKIES_MAX - 1);
    fixture->ended[cookie]++;
    fixture->copied++;
    if (failure) {
        fixture->copies_failed++;
        fixture->failed_cookie = cookie;
        fixture->copy_failure = *failure;
    }
}

static void on_lost(void *user, const struct failure *failure)
{
    struct fixture *fixture = event(user);

    fixture->up = false;
    fixture->lost_failure = *failure;
    fixture->lost++;
}

static void on_file_ready(void *user, uint32_t file, const struct failure *failure)
{
    struct fixture *fixture = event(user);

    (void)file;
    if (failure) {
        fixture->files_failed++;
        fixture->file_failure = *failure;
    } else {
        fixture->files_ready++;
    }
}

static void on_registered(void *user, uint64_t bytes)
{
    struct fixture *fixture = event(user);

    fixture->registered = bytes;
    if (fixture->registered_most < bytes)
        fixture->registered_most = bytes;
}

static const struct device_events events = {
    .opened = on_opened,
    .ring_made = on_ring_made,
    .ring_failed = on_ring_failed,
    .copied = on_copied,
    .file_ready = on_file_ready,
    .registered = on_registered,
    .lost = on_lost,
};

void fixture_init(struct fixture *fixture)
{
    struct device_process_spec spec = {
        .program = target.program, .keep_stderr = true, .gather_max = target.gather_max};
    int r;

    *fixture = (struct fixture){.ring_fd = -1};
    if (!strcmp(target.kind, "host"))
        r = device_host_new("", &events, fixture, &fixture->device);
    else
        r = device_process_new(&spec, &target.info, &events, fixture, &fixture->device);
    assert_int_equal(r, 0);
}

void fixture_deinit(struct fixture *fixture)
{
    fixture->device->ops->free(fixture->device);
    close_fd(&fixture->ring_fd);
}

int fixture_setup(void **state)
{
    struct fixture *fixture = malloc(sizeof *fixture);

    *state = fixture;
    fixture_init(fixture);
    return 0;
}

int fixture_teardown(void **state)
{
    fixture_deinit(*state);
    free(*state);
    return 0;
}

static int64_t milliseconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits for the device's fds as an event loop would, and dispatches. */
static void turn(struct fixture *fixture, int milliseconds)
{
    const struct device_ops *ops = fixture->device->ops;
    struct pollfd fds[2] = {{.fd = ops->get_fd(fixture->device), .events = POLLIN},
                            {.fd = ops->get_pidfd(fixture->device), .events = POLLIN}};

    if (ops->wants_write(fixture->device))
        fds[0].events |= POLLOUT;
    if (poll(fds, 2, milliseconds) <= 0)
        return;
    fixture->dispatching = true;
    ops->dispatch(fixture->device);
    fixture->dispatching = false;
}

void fixture_wait(struct fixture *fixture, const unsigned *counter, unsigned count)
{
    int64_t end = milliseconds_now() + WAIT_MS;

    while (*counter < count) {
        int64_t left = end - milliseconds_now();

        if (left <= 0)
            fail_msg("an event did not come: %u of %u; copies %u, lost %u: %s", *counter, count,
                     fixture->copied, fixture->lost, fixture->lost_failure.text);
        turn(fixture, (int)left);
    }
}

void fixture_idle(struct fixture *fixture, int milliseconds)
{
    int64_t end = milliseconds_now() + milliseconds;

    for (int64_t left; (left = end - milliseconds_now()) > 0;)
        turn(fixture, (int)left);
}

void fixture_open(struct fixture *fixture)
{
    struct failure failure = {0};
    unsigned opened = fixture->opened;

    fixture->up = true;
    if (fixture->device->ops->open(fixture->device, &failure))
        fail_msg("%s", failure.text);
    assert_int_equal(fixture->opened, opened);
    fixture_wait(fixture, &fixture->opened, opened + 1);
}

void fixture_close(struct fixture *fixture)
{
    unsigned lost = fixture->lost;

    fixture->device->ops->close(fixture->device);
    assert_int_equal(fixture->lost, lost);
    fixture_wait(fixture, &fixture->lost, lost + 1);
    assert_string_not_equal(fixture->lost_failure.text, "");
    assert_int_equal(fixture->lost_failure.code, 0);
    assert_int_equal(fixture->device->ops->get_fd(fixture->device), -1);
    assert_int_equal(fixture->device->ops->get_pidfd(fixture->device), -1);
}

uint8_t region_byte(size_t position, unsigned seed)
{
    uint64_t mixed = (position + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;

    return (uint8_t)((mixed ^ (mixed >> 29)) >> 24);
}

int region_fd(size_t bytes, unsigned seed)
{
    char path[64];
    int fd = memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(data, MAP_FAILED);
    for (size_t i = 0; i < bytes; i++)
        data[i] = region_byte(i, seed);
    munmap(data, bytes);
    assert_int_equal(
        fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    assert_int_equal(fchmod(fd, 0400), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int read_only = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(read_only >= 0);
    close(fd);
    return read_only;
}

void fixture_add_region(struct fixture *fixture, uint32_t region, size_t bytes, unsigned seed)
{
    int fd = region_fd(bytes, seed);

    assert_int_equal(fixture->device->ops->add_region(fixture->device, region, fd, bytes), 0);
}

int records_fd(uint64_t size)
{
    const char *base = getenv("TMPDIR");
    char path[256];

    snprintf(path, sizeof path, "%s/pinserve-records-XXXXXX", base && *base ? base : "/tmp");
    int fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    return fd;
}

void records_fill(int fd, uint64_t offset, size_t bytes, unsigned seed)
{
    uint8_t *data = malloc(bytes);

    for (size_t i = 0; i < bytes; i++)
        data[i] = region_byte(offset + i, seed);
    assert_int_equal(pwrite(fd, data, bytes, (off_t)offset), bytes);
    free(data);
}

bool fixture_make_ring(struct fixture *fixture, uint64_t ring, enum ring_export export_as,
                       size_t bytes)
{
    unsigned answers = fixture->rings_made + fixture->rings_failed, now = answers;
    int64_t end = milliseconds_now() + WAIT_MS;

    assert_int_equal(fixture->device->ops->make_ring(fixture->device, ring, export_as, bytes), 0);
    for (; now == answers && milliseconds_now() < end;
         now = fixture->rings_made + fixture->rings_failed)
        turn(fixture, 100);
    assert_int_equal(now, answers + 1);
    if (fixture->rings_made && fixture->ring == ring) {
        assert_true((fixture->ring_fd >= 0) == (export_as == RING_EXPORT_FD));
        return true;
    }
    assert_int_equal(fixture->failed_ring, ring);
    if (!fixture->ring_unsupported)
        fail_msg("%s", fixture->ring_failure.text);
    return false;
}

void fixture_import(struct fixture *fixture, struct importer *importer, enum ring_export export_as,
                    size_t bytes)
{
    assert_int_equal(importer_start(importer, target.importer, target.info.uuid), 0);
    assert_int_equal(importer_open(importer, export_as, bytes,
                                   export_as == RING_EXPORT_FD ? fixture->ring_fd : -1,
                                   fixture->ipc_handle),
                     0);
}
