/*
 * The daemon as a service of systemd: what it tells the service manager, and
 * the socket that it may be given. Started by hand, all of this does nothing.
 * Nothing here blocks.
 *
 * service_init takes LISTEN_* and WATCHDOG_* out of the environment. NOTIFY_SOCKET
 * stays: the environment must not be changed while there are threads. The unit's
 * NotifyAccess=main keeps processes that inherit it from speaking for the daemon.
 */
#ifndef PINSERVE_SERVICE_H
#define PINSERVE_SERVICE_H

#include <stdint.h>

#include "proto/failure.h"

struct service {
    int listen_fd; /* the activation socket, non-blocking; -1: none; the caller may take it */
    uint64_t ping_interval; /* ns between service_ping; 0: no watchdog */
};

/* Reads the environment, once, before there are other threads. -EINVAL when what was passed is not
 * exactly one listening Unix socket of type SOCK_SEQPACKET. */
int service_init(struct service *service, struct failure *failure);
/* Closes listen_fd unless it was taken. */
void service_deinit(struct service *service);

/* The start takes longer: another duration (ns) from now on. To be repeated while it does. */
void service_extend(uint64_t duration);
/* The start is done. status: one line for people. */
void service_ready(const char *status);
/* The loop is alive; at least every ping_interval. */
void service_ping(void);
void service_stopping(void);

/* Raises the soft limit of open files to the hard one: shards, folders and clients are fds, and the
 * limit is low for the sake of select, which nothing here uses. */
void service_raise_files(void);

#endif
