/*
 * pinctl stats --watch: what the daemon does each second.
 */
#ifndef PINCTL_STATS_H
#define PINCTL_STATS_H

#include <stdbool.h>
#include <stdio.h>

#include "query.h"

/* Prints rates every second until SIGINT or SIGTERM, which end it with 0. -ENOMEM; an error of the
 * connection. With json one object a line. */
int stats_watch(struct connection *connection, bool json, FILE *out, struct failure *failure);

/* What the daemon did between two moments, told by its own clock. stats and jobs are the reports of
 * each; a job that is in `after` only has counted from 0. */
struct stats_moment {
    struct report stats, jobs;
};
int stats_print_text(const struct stats_moment *before, const struct stats_moment *after,
                     FILE *out);
void stats_print_json(const struct stats_moment *before, const struct stats_moment *after,
                      FILE *out);

#endif
