/*
 * The public handle of a connection.
 */
#ifndef PINSERVE_CLIENT_CLIENT_H
#define PINSERVE_CLIENT_CLIENT_H

#include "connection.h"
#include "handle.h"
#include "pinclient.h"

struct pinclient {
    struct handle handle;
    struct connection *connection; /* NULL when connecting failed */
};

#endif
