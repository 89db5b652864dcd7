/*
 * The listening socket: made here, with its mode and group, or handed over by
 * the service manager, and then never unlinked.
 */
#ifndef PINSERVE_CONTROL_LISTENER_H
#define PINSERVE_CONTROL_LISTENER_H

#include "server.h"

/* Binds and listens. -EADDRINUSE: a live daemon is there; -EEXIST: something that is no socket;
 * -ENAMETOOLONG; in words. A socket file without a daemon behind it is replaced. */
int listener_new(struct server *server, const struct server_socket *socket,
                 struct failure *failure);
/* Accepts from now on. */
void listener_start(struct listener *listener);
/* Tries again after running out of fds; now and then. */
void listener_resume(struct listener *listener);
void listener_free(struct listener *listener);
const char *listener_path(const struct listener *listener);

#endif
