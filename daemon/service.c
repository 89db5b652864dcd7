/*
 * Readiness, watchdog and activation, by libsystemd.
 */
#include "service.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>

#include "log.h"
#include "proto/cleanup.h"

/* systemd ends a service that is silent for the whole interval; a third of it leaves room for a
 * late timer, and is still more often than every half. */
#define PINGS_PER_INTERVAL 3

static int check_socket(int fd, struct failure *failure)
{
    if (sd_is_socket(fd, AF_UNIX, 0, -1) <= 0)
        return failure_set(failure, -EINVAL,
                           "the socket passed by the service manager (fd %d) is not a Unix socket",
                           fd);
    if (sd_is_socket(fd, AF_UNIX, SOCK_SEQPACKET, -1) <= 0)
        return failure_set(failure, -EINVAL,
                           "the socket passed by the service manager (fd %d) is not of type "
                           "SOCK_SEQPACKET: it needs ListenSequentialPacket=",
                           fd);
    if (sd_is_socket(fd, AF_UNIX, SOCK_SEQPACKET, 1) <= 0)
        return failure_set(failure, -EINVAL,
                           "the socket passed by the service manager (fd %d) does not listen: it "
                           "needs Accept=no",
                           fd);
    return 0;
}

static int take_activation_socket(int *fd_p, struct failure *failure)
{
    int n = sd_listen_fds(true);

    if (n < 0)
        return failure_set(failure, n, "LISTEN_FDS of the service manager: %s", strerror(-n));
    if (n == 0)
        return 0;
    /* From here on they are ours, and none may be left open unseen. */
    cleanup_fd int first = SD_LISTEN_FDS_START;
    for (int fd = first + 1; fd < first + n; fd++)
        close(fd);
    if (n > 1)
        return failure_set(failure, -EINVAL,
                           "the service manager passed %d sockets; exactly one is wanted", n);
    int r = check_socket(first, failure);
    if (r < 0)
        return r;
    int flags = fcntl(first, F_GETFL);
    if (flags < 0 || fcntl(first, F_SETFL, flags | O_NONBLOCK) < 0)
        return failure_set(failure, -errno, "the socket passed by the service manager: %s",
                           strerror(errno));
    *fd_p = steal_fd(&first);
    return 0;
}

int service_init(struct service *service, struct failure *failure)
{
    uint64_t microseconds = 0;

    *service = (struct service){.listen_fd = -1};
    int r = sd_watchdog_enabled(true, &microseconds);
    if (r < 0)
        return failure_set(failure, r, "WATCHDOG_USEC of the service manager: %s", strerror(-r));
    if (r > 0)
        service->ping_interval = microseconds * 1000 / PINGS_PER_INTERVAL;
    return take_activation_socket(&service->listen_fd, failure);
}

void service_deinit(struct service *service)
{
    close_fd(&service->listen_fd);
}

/* Without $NOTIFY_SOCKET there is nobody to tell, and sd_notify does nothing. */
static void notify(const char *state)
{
    int r = sd_notify(false, state);

    if (r < 0)
        log_warning("telling the service manager \"%s\": %s", state, strerror(-r));
}

void service_extend(uint64_t duration)
{
    char state[64];

    snprintf(state, sizeof state, "EXTEND_TIMEOUT_USEC=%" PRIu64, duration / 1000);
    notify(state);
}

void service_ready(const char *status)
{
    char state[512];

    snprintf(state, sizeof state, "READY=1\nSTATUS=%.480s", status);
    notify(state);
}

void service_ping(void)
{
    notify("WATCHDOG=1");
}

void service_stopping(void)
{
    notify("STOPPING=1\nSTATUS=stopping");
}

void service_raise_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        log_warning("RLIMIT_NOFILE stays at what it is: %s", strerror(errno));
}
