/*
 * Making and ending regions.
 *
 * The order of making is what keeps the daemon alive: the need is compared
 * with what is left, and the right to lock is proved on the untouched mapping,
 * before a page is touched; pages are bound before they are touched. One
 * region is made at a time, so that two never count on the same free memory.
 *
 * The end: the daemon's mapping and its writable description go; what is left
 * is a read-only description, on which a write lease is refused exactly while
 * another description or mapping exists (a description that was opened O_PATH
 * is not seen). Only then the memory is free and the charge may be returned.
 */
#include "memory/region.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"
#include "memory/available.h"
#include "proto/cleanup.h"
#include "proto/units.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

#define TOUCH_BYTES ((size_t)16 << 20) /* for one thread */
#define TOUCH_THREADS_MAX 8

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static void unlock_p(pthread_mutex_t **mutex)
{
    pthread_mutex_unlock(*mutex);
}

/* -- what is allowed ------------------------------------------------------------------------- */

/* Page tables, and what the rest of the process still allocates: at the limit itself the next page
 * of anybody is the one that kills. */
static uint64_t need_with_reserve(uint64_t bytes)
{
    return bytes + bytes / 256 + (1 << 20);
}

static int need_compare(const struct region_spec *spec, struct failure *failure)
{
    struct memory_available available;
    char need[32], left[32], count[32] = "a region needs";
    uint64_t bytes;
    int error = memory_available_get(spec->root, &available);

    if (error)
        return failure_set(failure, error, "cannot tell how much memory is left: %s",
                           strerror(-error));
    if (__builtin_mul_overflow(spec->bytes, UINT64_C(1) + spec->behind, &bytes))
        bytes = UINT64_MAX / 2;
    if (need_with_reserve(bytes) <= available.free)
        return 0;
    if (spec->behind > 0)
        snprintf(count, sizeof count, "%" PRIu64 " regions need", UINT64_C(1) + spec->behind);
    return failure_set(failure, -ENOMEM,
                       "too little memory: %s %" PRIu64 " bytes (%s, and %" PRIu64
                       " for page tables and as a reserve), %" PRIu64
                       " bytes (%s) are left of what %s allows",
                       count, bytes, units_format_bytes(bytes, need, sizeof(need)),
                       need_with_reserve(bytes) - bytes, available.free,
                       units_format_bytes(available.free, left, sizeof(left)), available.bound);
}

/* The raw system call: sanitizers replace mlock by nothing. */
static int lock_call(const struct region *region, unsigned flags)
{
    return syscall(SYS_mlock2, region->address, region->bytes, flags) ? -errno : 0;
}

static void lock_refused(const struct region *region, int error, struct failure *failure)
{
    struct rlimit limit = {0};
    char need[32], most[32];

    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY) {
        failure_set(failure, error, "cannot lock %zu bytes (%s): mlock2: %s", region->bytes,
                    units_format_bytes(region->bytes, need, sizeof(need)), strerror(-error));
        return;
    }
    failure_set(failure, -EPERM,
                "cannot lock %zu bytes (%s) more: RLIMIT_MEMLOCK is %" PRIu64
                " bytes (%s) and CAP_IPC_LOCK is missing: raise LimitMEMLOCK= of the service "
                "(ulimit -l in a shell)",
                region->bytes, units_format_bytes(region->bytes, need, sizeof(need)),
                (uint64_t)limit.rlim_cur, units_format_bytes(limit.rlim_cur, most, sizeof(most)));
}

/* With MLOCK_ONFAULT the kernel judges limit and capability for the whole region without touching
 * it; each page is then locked as it is touched. */
static int region_lock(struct region *region, const struct region_spec *spec,
                       struct failure *failure)
{
    if (spec->lock == REGION_LOCK_OFF) {
        failure_set(&region->lock_failure, 0, "pool.lock = off");
        return 0;
    }
    int error = lock_call(region, MLOCK_ONFAULT);
    if (!error) {
        region->locked = true;
        return 0;
    }
    lock_refused(region, error, &region->lock_failure);
    if (spec->lock == REGION_LOCK_REQUIRE)
        return failure_set(failure, region->lock_failure.code, "%s", region->lock_failure.text);
    return 0;
}

/* -- NUMA ------------------------------------------------------------------------------------ */

static void bind_refused(int error, const struct region *region, struct failure *failure)
{
    const char *hint = "";

    if (error == -EPERM)
        hint = " (a container's seccomp profile refuses mbind: run it with CAP_SYS_NICE or with a "
               "profile that allows mbind)";
    else if (error == -ENOSYS)
        hint = " (this kernel has no NUMA)";
    else if (error == -EINVAL)
        hint = " (the cpuset does not allow this node)";
    failure_set(failure, error, "cannot bind %zu bytes to NUMA node %d: mbind: %s%s", region->bytes,
                region->numa_node, strerror(-error), hint);
}

static int region_bind(struct region *region, const struct region_spec *spec,
                       struct failure *failure)
{
    int error =
        placement_bind_memory(spec->topology, spec->placement, region->address, region->bytes);

    if (!error)
        return 0;
    bind_refused(error, region, &region->bind_failure);
    if (spec->numa_strict)
        return failure_set(failure, error, "%s; placement.numa = strict",
                           region->bind_failure.text);
    return 0;
}

/* -- touching -------------------------------------------------------------------------------- */

/* A thread's share of a region. Where the kernel does not tell where pages are (move_pages
 * refused), pages and local stay 0. */
struct touch {
    const struct region_spec *spec;
    char *address;
    size_t bytes;
    pthread_t thread;
    int error, check_error, move_error;
    uint64_t pages, local;
    bool started;
};

static void touch_pages(struct touch *touch)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    /* Says what is wrong where a store would raise SIGBUS. */
    while (madvise(touch->address, touch->bytes, MADV_POPULATE_WRITE)) {
        if (errno == EINTR || errno == EAGAIN)
            continue;
        if (errno != EINVAL) {
            touch->error = -errno;
            return;
        }
        for (size_t i = 0; i < touch->bytes; i += page) /* before Linux 5.14 */
            ((volatile char *)touch->address)[i] = 0;
        return;
    }
}

static void touch_check(struct touch *touch)
{
    touch->check_error =
        placement_check(touch->address, touch->bytes, touch->spec->placement->memory_node,
                        &touch->pages, &touch->local);
}

static void touch_share(struct touch *touch)
{
    touch_pages(touch);
    if (touch->error)
        return;
    touch_check(touch);
    if (touch->check_error || touch->local == touch->pages)
        return;
    touch->move_error =
        placement_move(touch->spec->topology, touch->spec->placement, touch->address, touch->bytes);
    touch_check(touch);
}

static void *touch_run(void *argument)
{
    struct touch *touch = argument;

    /* Unbound it works too: where pages go is mbind's to say. */
    placement_bind_thread(touch->spec->topology, touch->spec->placement);
    touch_share(touch);
    return NULL;
}

static unsigned touch_count(const struct region_spec *spec)
{
    size_t count = (spec->bytes + TOUCH_BYTES - 1) / TOUCH_BYTES;

    if (count > spec->placement->n_cpus)
        count = spec->placement->n_cpus;
    if (count > TOUCH_THREADS_MAX)
        count = TOUCH_THREADS_MAX;
    return count > 0 ? (unsigned)count : 1;
}

/* Gives the sums of all shares, and the first error of each kind. */
static void region_touch(struct region *region, const struct region_spec *spec, struct touch *sum_p)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned count = touch_count(spec);
    size_t share = (spec->bytes / page + count - 1) / count * page;
    struct touch touches[TOUCH_THREADS_MAX] = {0};
    struct touch sum = {0};
    sigset_t all, saved;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    for (unsigned i = 0; i < count; i++) {
        size_t start = i * share < spec->bytes ? i * share : spec->bytes;
        size_t left = spec->bytes - start;
        touches[i].spec = spec;
        touches[i].address = (char *)region->address + start;
        touches[i].bytes = left < share ? left : share;
        if (touches[i].bytes > 0)
            touches[i].started = !pthread_create(&touches[i].thread, NULL, touch_run, &touches[i]);
    }
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    for (unsigned i = 0; i < count; i++) {
        if (touches[i].started)
            pthread_join(touches[i].thread, NULL);
        else if (touches[i].bytes > 0)
            touch_share(&touches[i]);
        sum.error = sum.error ? sum.error : touches[i].error;
        sum.check_error = sum.check_error ? sum.check_error : touches[i].check_error;
        sum.move_error = sum.move_error ? sum.move_error : touches[i].move_error;
        sum.pages += touches[i].pages;
        sum.local += touches[i].local;
    }
    *sum_p = sum;
}

static int region_populate(struct region *region, const struct region_spec *spec,
                           struct failure *failure)
{
    struct touch sum;

    region_touch(region, spec, &sum);
    if (sum.error)
        return failure_set(failure, sum.error, "cannot touch a region of %zu bytes: %s",
                           spec->bytes, strerror(-sum.error));
    if (!sum.check_error) {
        region->pages = sum.pages;
        region->pages_local = sum.local;
    }
    if (region->numa_node < 0 || !spec->numa_strict)
        return 0;
    if (sum.check_error)
        return failure_set(failure, -EXDEV,
                           "cannot check that pages are on NUMA node %d: move_pages: %s; "
                           "placement.numa = strict",
                           region->numa_node, strerror(-sum.check_error));
    if (sum.local < sum.pages)
        return failure_set(failure, -EXDEV,
                           "%" PRIu64 " of %" PRIu64
                           " pages of a region are not on NUMA node %d%s; placement.numa = strict",
                           sum.pages - sum.local, sum.pages, region->numa_node,
                           sum.move_error == -ENOMEM ? ", which is full" : "");
    return 0;
}

/* -- making ---------------------------------------------------------------------------------- */

static int memfd_make(size_t bytes, mode_t mode, int *fd_p, struct failure *failure)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    cleanup_fd int fd = memfd_create("pinserve-region", flags | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create("pinserve-region", flags);
    if (fd < 0)
        return failure_set(failure, -errno, "cannot make a region: memfd_create: %s",
                           strerror(errno));
    if (fchmod(fd, mode))
        return failure_set(failure, -errno, "cannot make a region: fchmod: %s", strerror(errno));
    if (ftruncate(fd, (off_t)bytes))
        return failure_set(failure, -errno, "cannot make a region of %zu bytes: ftruncate: %s",
                           bytes, strerror(errno));
    *fd_p = steal_fd(&fd);
    return 0;
}

static int region_map(struct region *region, struct failure *failure)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int error = memfd_make(region->bytes, region->owner ? 0600 : 0400, &region->fd, failure);

    if (error)
        return error;
    void *address = mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
    if (address == MAP_FAILED)
        return failure_set(failure, -errno, "cannot map a region of %zu bytes: %s", region->bytes,
                           strerror(errno));
    region->address = address;
    /* A child between fork and exec would hold it; a core dump would be as large as the pools. */
    madvise(address, region->bytes, MADV_DONTFORK);
    madvise(address, region->bytes, MADV_DONTDUMP);
    if (!region->owner)
        seals |= F_SEAL_FUTURE_WRITE;
    if (fcntl(region->fd, F_ADD_SEALS, seals))
        return failure_set(failure, -errno, "cannot seal a region: %s", strerror(errno));
    return 0;
}

static int region_fill(struct region *region, const struct region_spec *spec,
                       struct failure *failure)
{
    cleanup(unlock_p) pthread_mutex_t *held = &making;
    int error;

    pthread_mutex_lock(held);
    if ((error = need_compare(spec, failure)) || (error = region_map(region, failure)) ||
        (error = region_lock(region, spec, failure)) ||
        (error = region_bind(region, spec, failure)))
        return error;
    return region_populate(region, spec, failure);
}

int region_new(const struct region_spec *spec, struct region **region_p, struct failure *failure)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (spec->bytes == 0 || spec->bytes % page != 0)
        return failure_set(failure, -EINVAL, "a region of %zu bytes: not a multiple of %zu",
                           spec->bytes, page);
    struct region *region = calloc(1, sizeof(*region));
    if (!region)
        return failure_set(failure, -ENOMEM, "cannot make a region: no memory for its record");
    region->fd = region->linger_fd = -1;
    region->bytes = spec->bytes;
    region->owner = spec->owner;
    region->numa_node = spec->placement->memory_node;
    int error = region_fill(region, spec, failure);
    if (error) {
        region_free(region);
        return error;
    }
    *region_p = region;
    return 0;
}

/* -- sharing and ending ---------------------------------------------------------------------- */

/* Through /proc, because dup would share one description: its end could not be seen. */
static int open_again(int fd, int flags)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int opened = open(path, flags | O_CLOEXEC);
    return opened < 0 ? -errno : opened;
}

static int region_open(const struct region *region, int flags, int *fd_p)
{
    if (region->fd < 0)
        return -EBADF;
    int fd = open_again(region->fd, flags);
    if (fd < 0)
        return fd;
    *fd_p = fd;
    return 0;
}

int region_open_readonly(const struct region *region, int *fd_p)
{
    return region_open(region, O_RDONLY, fd_p);
}

int region_open_writable(const struct region *region, int *fd_p)
{
    return region->owner ? region_open(region, O_RDWR, fd_p) : -EPERM;
}

/* Whether another description or mapping of the file exists. */
static bool held_by_others(int fd)
{
    /* An open during the moment of the lease signals its holder: SIGIO would end the daemon, SIGURG
     * is ignored. */
    fcntl(fd, F_SETSIG, SIGURG);
    if (!fcntl(fd, F_SETLEASE, F_WRLCK)) {
        fcntl(fd, F_SETLEASE, F_UNLCK);
        return false;
    }
    if (errno == EAGAIN)
        return true;
    /* fs.leases-enable = 0, or a security module. The memory goes to nobody else in any case; the
     * charge of a region that is held for good would never be returned. */
    log_warning("region: cannot tell whether a client still holds it (F_SETLEASE: %s): its memory "
                "is counted as free",
                strerror(errno));
    return false;
}

bool region_is_released(struct region *region)
{
    if (region->fd >= 0) {
        int fd = open_again(region->fd, O_RDONLY);
        if (fd < 0) { /* no fd is left to ask with: later */
            log_warning("region: cannot open it to see who holds it: %s", strerror(-fd));
            return false;
        }
        region->linger_fd = fd;
        close_fd(&region->fd);
    }
    if (region->linger_fd < 0)
        return true;
    if (held_by_others(region->linger_fd))
        return false;
    close_fd(&region->linger_fd);
    return true;
}

bool region_destroy(struct region *region)
{
    if (region->address) {
        munmap(region->address, region->bytes);
        region->address = NULL;
        region->locked = false;
    }
    return region_is_released(region);
}

void region_free(struct region *region)
{
    if (!region)
        return;
    if (region->address)
        munmap(region->address, region->bytes);
    close_fd(&region->fd);
    close_fd(&region->linger_fd);
    charge_release(&region->charge);
    free(region);
}
