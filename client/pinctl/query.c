/*
 * Asks for a report page by page: `skip` of each query is the number of rows that there are.
 */
#include "query.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "client/connection.h"
#include "pinctl.h"
#include "proto/cleanup.h"

int query_connect(const char *socket, struct connection **connection_p, struct failure *failure)
{
    int rc = connection_open(socket, connection_p, failure);
    if (rc == 0)
        return PINCTL_DONE;
    return rc == -ENOENT || rc == -ECONNREFUSED ? PINCTL_NO_DAEMON : PINCTL_FAILED;
}

/* Where a report's rows of some kind stand. */
static void find_rows(Pinserve__Report *report, Pinserve__QueryKind kind,
                      ProtobufCMessage ***rows_p, size_t *n_p)
{
    switch (kind) {
    case PINSERVE__QUERY_KIND__QUERY_STATUS:
        *rows_p = (ProtobufCMessage **)&report->status;
        *n_p = report->status != NULL;
        return;
    case PINSERVE__QUERY_KIND__QUERY_STATS:
        *rows_p = (ProtobufCMessage **)&report->stats;
        *n_p = report->stats != NULL;
        return;
    case PINSERVE__QUERY_KIND__QUERY_DEVICES:
        *rows_p = (ProtobufCMessage **)report->devices;
        *n_p = report->n_devices;
        return;
    case PINSERVE__QUERY_KIND__QUERY_POOLS:
        *rows_p = (ProtobufCMessage **)report->pools;
        *n_p = report->n_pools;
        return;
    case PINSERVE__QUERY_KIND__QUERY_JOBS:
        *rows_p = (ProtobufCMessage **)report->jobs;
        *n_p = report->n_jobs;
        return;
    case PINSERVE__QUERY_KIND__QUERY_BAD:
        *rows_p = (ProtobufCMessage **)report->bad;
        *n_p = report->n_bad;
        return;
    default:
        *rows_p = NULL;
        *n_p = 0;
    }
}

int report_add_page(struct report *report, Pinserve__Message **message, struct failure *failure)
{
    ProtobufCMessage **rows = NULL;
    size_t n = 0;

    if ((*message)->body_case != PINSERVE__MESSAGE__BODY_REPORT)
        return failure_set(failure, -EPROTO, "the daemon answered a query with another message");
    find_rows((*message)->report, report->kind, &rows, &n);
    if (n == 0 && (*message)->report->more)
        return failure_set(failure, -EPROTO, "the daemon promised more rows and sent none");

    Pinserve__Message **pages =
        realloc(report->pages, (report->n_pages + 1) * sizeof(Pinserve__Message *));
    if (!pages)
        return failure_set(failure, -ENOMEM, "no memory for a report");
    report->pages = pages;
    ProtobufCMessage **all =
        realloc(report->rows, (report->n_rows + n + 1) * sizeof(ProtobufCMessage *));
    if (!all)
        return failure_set(failure, -ENOMEM, "no memory for a report");
    report->rows = all;
    for (size_t i = 0; i < n; i++)
        report->rows[report->n_rows++] = rows[i];
    report->pages[report->n_pages++] = steal_ptr(*message);
    return 0;
}

int query_report(struct connection *connection, Pinserve__QueryKind kind, uint64_t job,
                 struct report *report, struct failure *failure)
{
    bool more = true;

    report->kind = kind;
    while (more) {
        Pinserve__Query query = PINSERVE__QUERY__INIT;
        query.kind = kind;
        query.job = job;
        query.skip = (uint32_t)report->n_rows;
        Pinserve__Message request = PINSERVE__MESSAGE__INIT;
        request.body_case = PINSERVE__MESSAGE__BODY_QUERY;
        request.query = &query;

        cleanup(wire_packet_deinit) struct wire_packet reply = WIRE_PACKET_INIT;
        int rc = connection_call(connection, &request, NULL, 0, &reply, failure);
        if (rc < 0)
            return rc;
        more = reply.message->body_case == PINSERVE__MESSAGE__BODY_REPORT &&
               reply.message->report->more;
        rc = report_add_page(report, &reply.message, failure);
        if (rc < 0)
            return rc;
    }
    bool single =
        kind == PINSERVE__QUERY_KIND__QUERY_STATUS || kind == PINSERVE__QUERY_KIND__QUERY_STATS;
    if (single && report->n_rows != 1)
        return failure_set(failure, -EPROTO, "the daemon sent a report without what was asked for");
    return 0;
}

void report_deinit(struct report *report)
{
    for (size_t i = 0; i < report->n_pages; i++)
        pinserve__message__free_unpacked(report->pages[i], NULL);
    free(report->pages);
    free(report->rows);
    *report = (struct report)REPORT_INIT;
}
