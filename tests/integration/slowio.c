/*
 * Slow storage for tests, preloaded into pinserved: what it reads of datasets is
 * not in the page cache until it was read once (or never is), and takes a while.
 * It stands before the C library's pread, preadv2 and syscall(SYS_openat2), and
 * syscall(SYS_mlock2).
 *
 *   SLOWIO_MS=N         milliseconds that each open and each read of a file takes
 *   SLOWIO_DIR_MS=N     milliseconds that it takes to open a directory to be listed
 *   SLOWIO_LOCK_MS=N    milliseconds that it takes to lock a region
 *   SLOWIO_ALWAYS=1     nothing is ever in the page cache
 *   SLOWIO_COUNTS=FILE  at the end: how many opens and reads were slow
 *   SLOWIO_HELD=FILE    while FILE exists: reads and opens of files in whose path the text in FILE
 *                       occurs do not return
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SEEN_MAX (1u << 16)

static long (*next_syscall)(long number, ...);
static ssize_t (*next_pread)(int fd, void *bytes, size_t size, off_t offset);
static ssize_t (*next_preadv2)(int fd, const struct iovec *pieces, int n, off_t offset, int flags);

static long delay_ms, dir_delay_ms, lock_delay_ms;
static bool always;
static const char *held;
static atomic_uint slow_opens, slow_reads;

/* Keys of what is in the page cache. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t seen[SEEN_MAX];

static void *next_of(const char *name)
{
    void *address = dlsym(RTLD_NEXT, name);

    if (!address)
        abort();
    return address;
}

static long number_of(const char *name)
{
    const char *text = getenv(name);

    return text ? strtol(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void slowio_init(void)
{
    *(void **)&next_syscall = next_of("syscall");
    *(void **)&next_pread = next_of("pread64");
    *(void **)&next_preadv2 = next_of("preadv64v2");
    delay_ms = number_of("SLOWIO_MS");
    dir_delay_ms = number_of("SLOWIO_DIR_MS");
    lock_delay_ms = number_of("SLOWIO_LOCK_MS");
    always = getenv("SLOWIO_ALWAYS") != NULL;
    held = getenv("SLOWIO_HELD");
}

__attribute__((destructor)) static void slowio_deinit(void)
{
    const char *path = getenv("SLOWIO_COUNTS");
    FILE *file = path ? fopen(path, "we") : NULL;

    if (!file)
        return;
    fprintf(file, "%u %u\n", slow_opens, slow_reads);
    fclose(file);
}

static bool is_cached(uint64_t key)
{
    bool found = false;

    if (always)
        return false;
    pthread_mutex_lock(&lock);
    for (uint64_t i = key % SEEN_MAX; seen[i] != 0 && !found; i = (i + 1) % SEEN_MAX)
        found = seen[i] == key;
    pthread_mutex_unlock(&lock);
    return found;
}

static void set_cached(uint64_t key)
{
    if (always)
        return;
    pthread_mutex_lock(&lock);
    uint64_t i = key % SEEN_MAX;
    while (seen[i] != 0 && seen[i] != key)
        i = (i + 1) % SEEN_MAX;
    seen[i] = key;
    pthread_mutex_unlock(&lock);
}

static void sleep_ms(long ms)
{
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&pause, NULL);
}

static bool is_held(const char *path)
{
    char part[256] = "";
    FILE *file = held ? fopen(held, "re") : NULL;

    if (!file)
        return false;
    bool found = fgets(part, sizeof part, file) && *part && strstr(path, part);
    fclose(file);
    return found;
}

/* What storage does before the bytes are there. */
static void wait_for_storage(uint64_t key, const char *path)
{
    while (is_held(path))
        sleep_ms(10);
    if (delay_ms > 0)
        sleep_ms(delay_ms);
    set_cached(key);
}

static uint64_t key_of(const char *text, uint64_t a, uint64_t b)
{
    uint64_t key = 0xcbf29ce484222325u ^ a * 0x9e3779b97f4a7c15u ^ b * 0xd6e8feb86659fd93u;

    for (; *text; text++)
        key = (key ^ (unsigned char)*text) * 0x100000001b3u;
    return key | 1;
}

static void fd_path(int fd, char *path, size_t size)
{
    char link[64];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, size - 1);
    path[n > 0 ? n : 0] = '\0';
}

static long slow_openat2(int dir, const char *path, struct open_how *how, size_t size)
{
    uint64_t key = key_of(path, 1, (uint64_t)dir);

    if ((how->flags & (O_DIRECTORY | O_PATH)) == O_DIRECTORY && dir_delay_ms > 0)
        sleep_ms(dir_delay_ms);
    if (how->flags & (O_DIRECTORY | O_PATH))
        return next_syscall(SYS_openat2, dir, path, how, size);
    if (!is_cached(key)) {
        if (how->resolve & RESOLVE_CACHED) {
            errno = EAGAIN;
            return -1;
        }
        atomic_fetch_add(&slow_opens, 1);
        wait_for_storage(key, path);
    }
    return next_syscall(SYS_openat2, dir, path, how, size);
}

__attribute__((visibility("default"))) long syscall(long number, ...)
{
    long args[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        args[i] = va_arg(list, long);
    va_end(list);
    if (!next_syscall)
        *(void **)&next_syscall = next_of("syscall");
    if (number == SYS_mlock2 && lock_delay_ms > 0)
        sleep_ms(lock_delay_ms);
    if (number == SYS_openat2)
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        return slow_openat2((int)args[0], (const char *)args[1], (struct open_how *)args[2],
                            (size_t)args[3]);
    return next_syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

static uint64_t read_key(int fd, off_t offset, char *path, size_t size)
{
    *path = '\0';
    if (always && !held)
        return 1; /* nobody asks which */
    fd_path(fd, path, size);
    return key_of(path, 2, (uint64_t)offset);
}

__attribute__((visibility("default"))) ssize_t pread(int fd, void *bytes, size_t size, off_t offset)
{
    char path[4096];
    uint64_t key = read_key(fd, offset, path, sizeof path);

    if (!is_cached(key)) {
        atomic_fetch_add(&slow_reads, 1);
        wait_for_storage(key, path);
    }
    return next_pread(fd, bytes, size, offset);
}

__attribute__((visibility("default"), alias("pread"))) ssize_t pread64(int fd, void *bytes,
                                                                       size_t size, off_t offset);

__attribute__((visibility("default"))) ssize_t preadv2(int fd, const struct iovec *pieces, int n,
                                                       off_t offset, int flags)
{
    char path[4096];

    if ((flags & RWF_NOWAIT) && !is_cached(read_key(fd, offset, path, sizeof path))) {
        errno = EAGAIN;
        return -1;
    }
    return next_preadv2(fd, pieces, n, offset, flags);
}

__attribute__((visibility("default"), alias("preadv2"))) ssize_t
preadv64v2(int fd, const struct iovec *pieces, int n, off_t offset, int flags);
