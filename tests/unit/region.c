/*
 * Regions on this machine: seals and modes, who holds one, limits on locking,
 * too little memory, mbind refused, pages elsewhere. What needs another uid, a
 * limit or a system call filter is done in a child, which answers by its exit
 * status: 0, or the line that failed.
 */
#include "memory/region.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)
#define BYTES (2 * MIB)

#define expect(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static struct topology *machine;
static struct placement here;

static struct region_spec spec_of(size_t bytes)
{
    return (struct region_spec){
        .bytes = bytes, .lock = REGION_LOCK_TRY, .placement = &here, .topology = machine};
}

static struct region *region_make(size_t bytes)
{
    struct region_spec spec = spec_of(bytes);
    struct region *region = NULL;
    struct failure failure = {0};

    if (region_new(&spec, &region, &failure))
        fail_msg("%s", failure.text);
    return region;
}

static void region_end(struct region *region)
{
    assert_true(region_destroy(region));
    region_free(region);
}

/* Runs body in a child; with drop as nobody, when this is root. */
static void in_child(int (*body)(void), bool drop)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        if (drop && geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(99);
        _exit(body());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static unsigned fds_open(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* -- what a region is ------------------------------------------------------------------------ */

static int body_region_is_what_it_says(void)
{
    unsigned before = fds_open();
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
    expect(fds_open() == before);
    return 0;
}

static void test_region_is_what_it_says(void **state)
{
    (void)state;
    in_child(body_region_is_what_it_says, false);
    in_child(body_region_is_what_it_says, true);
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

/* -- its end --------------------------------------------------------------------------------- */

static int body_held_until_nobody_has_it(void)
{
    struct region_spec spec = spec_of(BYTES);
    struct region *region = NULL;
    struct failure failure = {0};
    int fd = -1, pair[2];

    expect(region_new(&spec, &region, &failure) == 0);
    memcpy(region->address, "batch", 6);
    expect(region_open_readonly(region, &fd) == 0);
    expect(!region_destroy(region));
    expect(region->fd == -1 && region->address == NULL && region->linger_fd >= 0);
    expect(!region_is_released(region));

    /* A mapping alone holds it. */
    char *mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    expect(mapped != MAP_FAILED);

    /* So does a description on its way through a socket. */
    expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)),
                            .cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS}};
    struct iovec part = {.iov_base = "x", .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    expect(sendmsg(pair[0], &message, 0) == 1);
    close(fd);
    expect(!region_is_released(region));
    munmap(mapped, BYTES);
    expect(!region_is_released(region));
    close(pair[1]);
    close(pair[0]);
    expect(region_is_released(region));
    expect(region->linger_fd == -1);
    expect(region_is_released(region));
    region_free(region);

    expect(region_new(&spec, &region, &failure) == 0);
    expect(region_open_readonly(region, &fd) == 0);
    mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    expect(!region_destroy(region));
    munmap(mapped, BYTES);
    expect(region_is_released(region));
    region_free(region);
    return 0;
}

static void test_held_until_nobody_has_it(void **state)
{
    (void)state;
    in_child(body_held_until_nobody_has_it, false);
    in_child(body_held_until_nobody_has_it, true);
}

/* A process that was killed holds nothing once it is reaped. */
static void test_held_by_another_process(void **state)
{
    struct region *region = region_make(BYTES);
    int fd = -1, ready[2];
    char byte;

    (void)state;
    assert_int_equal(region_open_readonly(region, &fd), 0);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *mapped = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (mapped == MAP_FAILED || write(ready[1], "x", 1) != 1)
            _exit(1);
        while (true)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(fd);
    close(ready[0]);
    close(ready[1]);
    assert_false(region_destroy(region));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(region_is_released(region));
    region_free(region);
}

/* An open in the moment of the probe signals the prober, which must live. */
static int body_probe_survives_opens(void)
{
    struct region_spec spec = spec_of(BYTES);
    struct region *region = NULL;
    struct failure failure = {0};
    char path[64];
    int fd = -1;

    expect(region_new(&spec, &region, &failure) == 0);
    expect(region_open_readonly(region, &fd) == 0);
    expect(!region_destroy(region));
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), region->linger_fd);
    close(fd);
    pid_t opener = fork();
    expect(opener >= 0);
    if (opener == 0) {
        close(region->linger_fd);
        for (int i = 0; i < 2000; i++) {
            int own = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
            if (own >= 0)
                close(own);
        }
        _exit(0);
    }
    for (int i = 0; i < 2000 && region->linger_fd >= 0; i++) {
        int keep = fcntl(region->linger_fd, F_DUPFD_CLOEXEC, 0);
        if (region_is_released(region))
            region->linger_fd = fcntl(keep, F_DUPFD_CLOEXEC, 0);
        close(keep);
    }
    int status = 0;
    expect(waitpid(opener, &status, 0) == opener);
    expect(region_is_released(region));
    region_free(region);
    return 0;
}

static void test_probe_survives_opens(void **state)
{
    (void)state;
    in_child(body_probe_survives_opens, false);
}

static void test_charge_is_returned(void **state)
{
    struct account_limits limits = {.max = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    struct accounts accounts;
    struct failure failure = {0};

    (void)state;
    accounts_init(&accounts, &limits, &limits);
    struct account *tenant = account_ref(&accounts, "uid 1000");
    struct region *region = region_make(BYTES);
    assert_int_equal(
        charge_acquire(&region->charge, tenant, ACCOUNT_PINNED, region->bytes, &failure), 0);
    assert_int_equal(tenant->used[ACCOUNT_PINNED], BYTES);
    int fd = -1;
    assert_int_equal(region_open_readonly(region, &fd), 0);
    assert_false(region_destroy(region));
    assert_int_equal(tenant->used[ACCOUNT_PINNED], BYTES); /* while a client has it */
    close(fd);
    assert_true(region_is_released(region));
    region_free(region);
    assert_int_equal(tenant->used[ACCOUNT_PINNED], 0);
    account_unref(tenant);
    assert_int_equal(accounts_deinit(&accounts), 0);
    region_free(NULL);
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

static void put(const char *root, const char *path, const char *text)
{
    char full[512];

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        if (mkdir(full, 0755))
            assert_int_equal(errno, EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(full, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void test_too_little_memory(void **state)
{
    const char *tmp = getenv("TMPDIR");
    char root[256], command[300];
    struct region_spec spec = spec_of(64 * MIB);
    struct region *region = NULL;
    struct failure failure = {0};

    (void)state;
    snprintf(root, sizeof(root), "%s/pinserve-region-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(root));
    put(root, "/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
    put(root, "/proc/self/cgroup", "0::/job\n");
    put(root, "/sys/fs/cgroup/job/memory.max", "67108864\n");
    put(root, "/sys/fs/cgroup/job/memory.current", "1048576\n");
    spec.root = root;
    unsigned before = fds_open();
    assert_int_equal(region_new(&spec, &region, &failure), -ENOMEM);
    assert_string_equal(failure.text,
                        "too little memory: a region needs 67108864 bytes (64 MiB, and 1310720 "
                        "for page tables and as a reserve), 66060288 bytes (63 MiB) are left of "
                        "what /sys/fs/cgroup/job/memory.max allows");
    assert_null(region);
    assert_int_equal(fds_open(), before);

    put(root, "/sys/fs/cgroup/job/memory.max", "max\n");
    spec.bytes = 4 * MIB;
    assert_int_equal(region_new(&spec, &region, &failure), 0);
    region_end(region);
    snprintf(command, sizeof(command), "%s/none", root);
    spec.root = command;
    assert_int_equal(region_new(&spec, &region, &failure), -ENOENT);
    snprintf(command, sizeof(command), "rm -r '%s'", root);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
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
    unsigned before = fds_open();

    expect(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    spec.lock = REGION_LOCK_REQUIRE;
    expect(region_new(&spec, &region, &failure) == -EPERM);
    expect(strcmp(failure.text, text) == 0);
    expect(region == NULL);
    expect(fds_open() == before);

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

/* -- NUMA ------------------------------------------------------------------------------------ */

/* What a container's default profile does: the system call answers EPERM. */
static int call_refuse(int call)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int body_mbind_refused(void)
{
    struct region_spec spec = spec_of(BYTES);
    struct placement placement = here;
    struct region *region = NULL;
    struct failure failure = {0};
    char text[160];

    placement.memory_node =
        (int)hwloc_bitmap_first(hwloc_topology_get_allowed_nodeset(topology_hwloc(machine)));
    spec.placement = &placement;
    expect(call_refuse(SYS_mbind) == 0);
    expect(region_new(&spec, &region, &failure) == 0);
    expect(region->bind_failure.code == -EPERM);
    snprintf(text, sizeof(text),
             "cannot bind 2097152 bytes to NUMA node %d: mbind: Operation not permitted (a "
             "container's seccomp",
             placement.memory_node);
    expect(strstr(region->bind_failure.text, text));
    expect(region_destroy(region));
    region_free(region);

    spec.numa_strict = true;
    region = NULL;
    expect(region_new(&spec, &region, &failure) == -EPERM);
    expect(strstr(failure.text, "mbind: Operation not permitted"));
    expect(strstr(failure.text, "placement.numa = strict"));
    expect(region == NULL);

    /* With nothing to bind there is nothing to refuse. */
    placement.memory_node = -1;
    expect(region_new(&spec, &region, &failure) == 0);
    expect(region->bind_failure.code == 0);
    expect(region->numa_node == -1);
    expect(region_destroy(region));
    region_free(region);
    return 0;
}

static void test_mbind_refused(void **state)
{
    (void)state;
    in_child(body_mbind_refused, false);
}

static int body_move_pages_refused(void)
{
    struct region_spec spec = spec_of(BYTES);
    struct placement placement = here;
    struct region *region = NULL;
    struct failure failure = {0};

    placement.memory_node = 0;
    spec.placement = &placement;
    expect(call_refuse(SYS_move_pages) == 0);
    expect(region_new(&spec, &region, &failure) == 0);
    expect(region->pages == 0 && region->pages_local == 0);
    expect(region_destroy(region));
    region_free(region);
    spec.numa_strict = true;
    int error = region_new(&spec, &region, &failure);
    expect(error == -EXDEV || error == -EPERM); /* or mbind was refused already */
    expect(strstr(failure.text, "Operation not permitted; placement.numa = strict") ||
           error == -EPERM);
    return 0;
}

static void test_move_pages_refused(void **state)
{
    (void)state;
    in_child(body_move_pages_refused, false);
}

/* The described machine has a node that this one has not: binding does nothing, the check finds
 * every page elsewhere. */
static void test_pages_elsewhere(void **state)
{
    struct topology *described = NULL;
    struct placement placement;
    struct failure failure = {0};
    uint64_t pages, local;

    (void)state;
    char probe = 1;
    if (placement_check(&probe, 1, -1, &pages, &local))
        skip();
    assert_int_equal(
        topology_new("synthetic:pack:16 [numa(memory=1GB)] core:1 pu:1", &described, &failure), 0);
    assert_int_equal(placement_find(described, "0000:81:00.0", 15, &placement, &failure), 0);
    assert_int_equal(placement.memory_node, 15);
    struct region_spec spec = {
        .bytes = BYTES, .lock = REGION_LOCK_TRY, .placement = &placement, .topology = described};
    struct region *region = NULL;
    assert_int_equal(region_new(&spec, &region, &failure), 0);
    assert_int_equal(region->pages, BYTES / (size_t)getpagesize());
    assert_int_equal(region->pages_local, 0);
    assert_int_equal(region->numa_node, 15);
    region_end(region);
    spec.numa_strict = true;
    region = NULL;
    assert_int_equal(region_new(&spec, &region, &failure), -EXDEV);
    char text[128];
    snprintf(text, sizeof(text),
             "%zu of %zu pages of a region are not on NUMA node 15; placement.numa = strict",
             BYTES / (size_t)getpagesize(), BYTES / (size_t)getpagesize());
    assert_string_equal(failure.text, text);
    assert_null(region);
    placement_deinit(&placement);
    topology_free(described);
}

static void test_pages_are_where_they_should_be(void **state)
{
    struct region_spec spec = spec_of(BYTES);
    struct region *region = NULL;
    struct failure failure = {0};

    (void)state;
    spec.numa_strict = true;
    int error = region_new(&spec, &region, &failure);
    if (error == -EPERM || error == -ENOSYS)
        skip(); /* in a container that refuses mbind */
    if (error)
        fail_msg("%s", failure.text);
    assert_int_equal(region->pages_local, region->pages);
    assert_int_equal(region->bind_failure.code, 0);
    region_end(region);
}

static int machine_read(void **state)
{
    struct failure failure = {0};

    (void)state;
    if (topology_new(NULL, &machine, &failure) ||
        placement_find(machine, NULL, -1, &here, &failure)) {
        fprintf(stderr, "%s\n", failure.text);
        return -1;
    }
    return 0;
}

static int machine_forget(void **state)
{
    (void)state;
    placement_deinit(&here);
    topology_free(machine);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_region_is_what_it_says),
        cmocka_unit_test(test_client_can_only_read),
        cmocka_unit_test(test_held_until_nobody_has_it),
        cmocka_unit_test(test_held_by_another_process),
        cmocka_unit_test(test_probe_survives_opens),
        cmocka_unit_test(test_charge_is_returned),
        cmocka_unit_test(test_size_is_a_multiple_of_pages),
        cmocka_unit_test(test_too_little_memory),
        cmocka_unit_test(test_memlock_is_too_low),
        cmocka_unit_test(test_locked_in_full),
        cmocka_unit_test(test_mbind_refused),
        cmocka_unit_test(test_move_pages_refused),
        cmocka_unit_test(test_pages_elsewhere),
        cmocka_unit_test(test_pages_are_where_they_should_be),
    };

    return cmocka_run_group_tests(tests, machine_read, machine_forget);
}
