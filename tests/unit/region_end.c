/*
 * The end of a region: who holds one, and when it is nobody's.
 */
#include "memory/region.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "region_here.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held_until_nobody_has_it),
        cmocka_unit_test(test_held_by_another_process),
        cmocka_unit_test(test_probe_survives_opens),
        cmocka_unit_test(test_charge_is_returned),
    };

    return cmocka_run_group_tests(tests, machine_read, machine_forget);
}
