/*
 * Questions to the daemon. A report that does not fit a packet comes in several; here they become
 * one list of rows.
 */
#ifndef PINCTL_QUERY_H
#define PINCTL_QUERY_H

#include <stddef.h>
#include <stdint.h>

#include "pinserve.pb-c.h"
#include "proto/failure.h"

struct connection;

/* Connects to the daemon at socket (NULL: the usual places). An exit status of pinctl.h. */
int query_connect(const char *socket, struct connection **connection_p, struct failure *failure);

/* The rows of a report: DeviceReports, PoolReports, JobReports or BadSamples as the kind says, or
 * one StatusReport or StatsReport. The rows belong to the pages, and these to the report. */
struct report {
    Pinserve__QueryKind kind;
    ProtobufCMessage **rows;
    size_t n_rows;
    Pinserve__Message **pages;
    size_t n_pages;
};

#define REPORT_INIT                                                                                \
    {                                                                                              \
        .n_rows = 0                                                                                \
    }

/* Asks for all rows; job 0: of all jobs; bad samples are those of one. *report (REPORT_INIT) is
 * deinitialised by the caller also on error. The daemon's error; -EPROTO: it answered something
 * else. */
int query_report(struct connection *connection, Pinserve__QueryKind kind, uint64_t job,
                 struct report *report, struct failure *failure);

void report_deinit(struct report *report);

/* Takes a reply's rows into the report, and the reply's message with them. -EPROTO, -ENOMEM. */
int report_add_page(struct report *report, Pinserve__Message **message, struct failure *failure);

#endif
