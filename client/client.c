/*
 * The public handle of a connection, the version and the text of errors.
 */
#include "client.h"

#include <stdlib.h>

int pinclient_connect(const char *socket, struct pinclient **client_p)
{
    struct pinclient *client = calloc(1, sizeof *client);

    *client_p = client;
    if (!client)
        return -ENOMEM;
    handle_init(&client->handle, HANDLE_CLIENT);
    return connection_open(socket, &client->connection, client->handle.failure);
}

void pinclient_close(struct pinclient *client)
{
    if (!client)
        return;
    connection_close(client->connection);
    free(client);
}

const char *pinclient_version(void)
{
    return PINCLIENT_VERSION;
}

const char *pinclient_error(const void *handle)
{
    const struct handle *header = handle;

    if (!header)
        return "no handle: there was no memory for it";
    switch (header->kind) {
    case HANDLE_CLIENT:
    case HANDLE_SPEC:
    case HANDLE_JOB:
        return header->failure->text;
    }
    return "not a handle of libpinclient";
}
