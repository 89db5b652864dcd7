/*
 * Regions on this machine: seals and modes, limits on locking, too little
 * memory.
 */
#include "memory/region.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "region_here.h"
#include "temp_dir.h"

/* -- what a region is ------------------------------------------------------------------------ */

static int body_region_is_what_it_says(void)
{
    int before = open_fds();
    struct region_spec spec = spec_of(40 * MIB);
    struct region *region = NULL;
    struct failure failure = {0};
    struct stat info;

    expect(region_new(&spec, &region, &failure) == 0);
    expect(region->bytes == 40 * MIB);
    expect(region->numa_node == here.memory_node);
    expect(fstat(region->fd, &info) == 0);
    expect(info.st_size == (off_t)(40 * MIB));
    expect(info.st_blocks == (blkcnt_t)(40 * MIB / 512)); /* every page is there */
    expect((info.st_mode & 07777) == 0400);
    expect(fcntl(region->fd, F_GETFD) == FD_CLOEXEC);
    int seals = fcntl(region->fd, F_GET_SEALS);
    int wanted = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    expect((seals & wanted) == wanted);
    expect(ftruncate(region->fd, 0) < 0 && errno == EPERM);
    expect(fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) < 0 &&
           errno == EPERM);
    memset(region->address, 7, region->bytes);
    if (region->pages > 0) /* the kernel tells */
        expect(region->pages == 40 * MIB / (size_t)getpagesize());
    if (region->locked)
        expect(region->lock_failure.code == 0);
    else
        expect(region->lock_failure.code < 0);
    expect(region_destroy(region));
    expect(region->fd == -1 && region->address == NULL && region->linger_fd == -1);
    region_free(region);
    expect(open_fds() == before);
    return 0;
}

static void test_region_is_what_it_says(void **state)
{
    (void)state;
    in_child(body_region_is_what_it_says, false);
    in_child(body_region_is_what_it_says, true);
}

static int body_push_region_is_writable(void)
{
    struct region_spec spec = spec_of(BYTES);
    struct region *region = NULL;
    struct failure failure = {0};
    struct stat info;
    int fd = -1;

    expect(region_new(&spec, &region, &failure) == 0);
    expect(region_open_writable(region, &fd) == -EPERM && fd == -1);
    expect(region_destroy(region));
    region_free(region);

    spec.owner = 7;
    expect(region_new(&spec, &region, &failure) == 0);
    expect(region->owner == 7);
    expect(fstat(region->fd, &info) == 0 && (info.st_mode & 07777) == 0600);
    int seals = fcntl(region->fd, F_GET_SEALS);
    expect((seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) ==
           (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    expect(!(seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)));
    expect(region_open_writable(region, &fd) == 0);
    expect(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    expect(ftruncate(fd, 0) < 0 && errno == EPERM);
    char *client = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    expect(client != MAP_FAILED);
    memcpy(client, "batch", 6);
    expect(memcmp(region->address, "batch", 6) == 0);
    close(fd);
    expect(!region_destroy(region)); /* the client's mapping holds it */
    expect(!region_is_released(region));
    munmap(client, BYTES);
    expect(region_is_released(region));
    region_free(region);
    return 0;
}

static void test_push_region_is_writable(void **state)
{
    (void)state;
    in_child(body_push_region_is_writable, false);
}

static int body_client_can_only_read(void)
{
    struct region_spec spec = spec_of(BYTES);
    struct region *region = NULL;
    struct failure failure = {0};
    char path[64];
    int fd = -1;

    expect(region_new(&spec, &region, &failure) == 0);
    memcpy(region->address, "batch", 6);
    expect(region_open_readonly(region, &fd) == 0);
    expect(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    expect((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
    char *mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    expect(mapped != MAP_FAILED);
    expect(strcmp(mapped, "batch") == 0);
    memcpy(region->address, "later", 6); /* the daemon's mapping stays writable */
    expect(strcmp(mapped, "later") == 0);
    expect(mprotect(mapped, BYTES, PROT_READ | PROT_WRITE) < 0 && errno == EACCES);
    expect(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    expect(write(fd, "x", 1) < 0 && errno == EBADF);

    /* Root may open it for writing, and still not write. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    if (again < 0) {
        expect(errno == EACCES);
    } else {
        expect(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
        expect(errno == EPERM);
        expect(write(again, "x", 1) < 0 && errno == EPERM);
        close(again);
    }
    munmap(mapped, BYTES);
    close(fd);
    expect(region_destroy(region));
    expect(region_open_readonly(region, &fd) == -EBADF);
    region_free(region);
    return 0;
}

static void test_client_can_only_read(void **state)
{
    (void)state;
    in_child(body_client_can_only_read, false);
    in_child(body_client_can_only_read, true);
}

/* -- refusals -------------------------------------------------------------------------------- */

static void test_size_is_a_multiple_of_pages(void **state)
{
    struct region_spec spec = spec_of(0);
    struct region *region = NULL;
    struct failure failure = {0};
    char text[128];

    (void)state;
    assert_int_equal(region_new(&spec, &region, &failure), -EINVAL);
    spec.bytes = 10 * MIB + 1;
    assert_int_equal(region_new(&spec, &region, &failure), -EINVAL);
    snprintf(text, sizeof(text), "a region of 10485761 bytes: not a multiple of %d", getpagesize());
    assert_string_equal(failure.text, text);
    assert_null(region);
}

static void put(const struct temp_dir *dir, const char *path, const char *text)
{
    assert_true(temp_dir_write(dir, path, text, strlen(text)));
}

static void test_too_little_memory(void **state)
{
    struct temp_dir root;
    char none[160];
    struct region_spec spec = spec_of(64 * MIB);
    struct region *region = NULL;
    struct failure failure = {0};

    (void)state;
    assert_true(temp_dir_init(&root));
    put(&root, "proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
    put(&root, "proc/self/cgroup", "0::/job\n");
    put(&root, "sys/fs/cgroup/job/memory.max", "67108864\n");
    put(&root, "sys/fs/cgroup/job/memory.current", "1048576\n");
    spec.root = root.path;
    int before = open_fds();
    assert_int_equal(region_new(&spec, &region, &failure), -ENOMEM);
    assert_string_equal(failure.text,
                        "too little memory: a region needs 67108864 bytes (64 MiB, and 1310720 "
                        "for page tables and as a reserve), 66060288 bytes (63 MiB) are left of "
                        "what /sys/fs/cgroup/job/memory.max allows");
    assert_null(region);
    assert_int_equal(open_fds(), before);

    /* Room for this one is not enough when more are to follow. */
    spec.bytes = 4 * MIB;
    spec.behind = 15;
    assert_int_equal(region_new(&spec, &region, &failure), -ENOMEM);
    assert_non_null(strstr(failure.text, "too little memory: 16 regions need 67108864 bytes (64 "
                                         "MiB, and 1310720 for page tables and as a reserve), "
                                         "66060288 bytes (63 MiB) are left of what"));
    spec.behind = UINT32_MAX;
    spec.bytes = (size_t)1 << 40;
    assert_int_equal(region_new(&spec, &region, &failure), -ENOMEM);

    spec.bytes = 4 * MIB;
    spec.behind = 13;
    assert_int_equal(region_new(&spec, &region, &failure), 0);
    region_end(region);
    spec.behind = 0;
    put(&root, "sys/fs/cgroup/job/memory.max", "max\n");
    assert_int_equal(region_new(&spec, &region, &failure), 0);
    region_end(region);
    snprintf(none, sizeof(none), "%s/none", root.path);
    spec.root = none;
    assert_int_equal(region_new(&spec, &region, &failure), -ENOENT);
    temp_dir_deinit(&root);
}

static int body_memlock_is_too_low(void)
{
    struct rlimit limit = {.rlim_cur = 65536, .rlim_max = 65536};
    struct region_spec spec = spec_of(BYTES);
    struct region *region = NULL;
    struct failure failure = {0};
    static const char text[] =
        "cannot lock 2097152 bytes (2 MiB) more: RLIMIT_MEMLOCK is 65536 bytes (64 KiB) and "
        "CAP_IPC_LOCK is missing: raise LimitMEMLOCK= of the service (ulimit -l in a shell)";
    int before = open_fds();

    expect(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    spec.lock = REGION_LOCK_REQUIRE;
    expect(region_new(&spec, &region, &failure) == -EPERM);
    expect(strcmp(failure.text, text) == 0);
    expect(region == NULL);
    expect(open_fds() == before);

    spec.lock = REGION_LOCK_TRY;
    expect(region_new(&spec, &region, &failure) == 0);
    expect(!region->locked);
    expect(region->lock_failure.code == -EPERM);
    expect(strcmp(region->lock_failure.text, text) == 0);
    memset(region->address, 1, region->bytes);
    expect(region_destroy(region));
    region_free(region);

    spec.lock = REGION_LOCK_OFF;
    expect(region_new(&spec, &region, &failure) == 0);
    expect(!region->locked);
    expect(region->lock_failure.code == 0);
    expect(strcmp(region->lock_failure.text, "pool.lock = off") == 0);
    expect(region_destroy(region));
    region_free(region);

    /* No right at all is told the same way. */
    limit.rlim_cur = limit.rlim_max = 0;
    expect(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    spec.lock = REGION_LOCK_REQUIRE;
    expect(region_new(&spec, &region, &failure) == -EPERM);
    expect(strstr(failure.text, "RLIMIT_MEMLOCK is 0 bytes"));
    return 0;
}

static void test_memlock_is_too_low(void **state)
{
    (void)state;
    in_child(body_memlock_is_too_low, true);
}

static unsigned long locked_kib(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");

    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "VmLck: %lu", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib;
}

static int body_locked_in_full(void)
{
    struct rlimit limit;
    struct region_spec spec = spec_of(BYTES);
    struct region *region = NULL;
    struct failure failure = {0};
    unsigned long before = locked_kib();

    expect(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (limit.rlim_cur < BYTES && geteuid() != 0)
        return 0;
    spec.lock = REGION_LOCK_REQUIRE;
    expect(region_new(&spec, &region, &failure) == 0);
    expect(region->locked);
    expect(locked_kib() - before == BYTES / 1024);
    expect(region_destroy(region));
    expect(locked_kib() == before);
    region_free(region);
    return 0;
}

static void test_locked_in_full(void **state)
{
    (void)state;
    in_child(body_locked_in_full, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_region_is_what_it_says),
        cmocka_unit_test(test_push_region_is_writable),
        cmocka_unit_test(test_client_can_only_read),
        cmocka_unit_test(test_size_is_a_multiple_of_pages),
        cmocka_unit_test(test_too_little_memory),
        cmocka_unit_test(test_memlock_is_too_low),
        cmocka_unit_test(test_locked_in_full),
    };

    return cmocka_run_group_tests(tests, machine_read, machine_forget);
}
