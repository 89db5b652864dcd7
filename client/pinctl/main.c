/*
 * pinctl, the operator's command: parses its command line, runs one command and says by its exit
 * status how that went. Errors go to stderr, as one line.
 */
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "client/connection.h"
#include "json.h"
#include "operate.h"
#include "options.h"
#include "pinctl.h"
#include "probe.h"
#include "query.h"
#include "report_json.h"
#include "report_text.h"
#include "stats.h"

/* Names in an error can be a stranger's: nothing of them may steer the terminal. */
static void print_error(const char *text)
{
    fputs("pinctl: ", stderr);
    for (; *text; text++)
        putc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, stderr);
    putc('\n', stderr);
}

static int run_version(const struct options *options)
{
    if (options->json) {
        struct json json;
        json_init(&json, stdout, false);
        json_object_begin(&json, NULL);
        json_string(&json, "version", pinclient_version());
        json_object_end(&json);
    } else {
        printf("pinctl %s\n", pinclient_version());
    }
    return PINCTL_DONE;
}

static Pinserve__QueryKind query_kind(const struct options *options)
{
    switch (options->command) {
    case COMMAND_DEVICES:
        return PINSERVE__QUERY_KIND__QUERY_DEVICES;
    case COMMAND_POOLS:
        return PINSERVE__QUERY_KIND__QUERY_POOLS;
    case COMMAND_JOBS:
        return options->bad ? PINSERVE__QUERY_KIND__QUERY_BAD : PINSERVE__QUERY_KIND__QUERY_JOBS;
    case COMMAND_STATS:
        return PINSERVE__QUERY_KIND__QUERY_STATS;
    default:
        return PINSERVE__QUERY_KIND__QUERY_STATUS;
    }
}

static int print_report(struct connection *connection, const struct options *options,
                        struct failure *failure)
{
    struct report report = REPORT_INIT;
    int rc = query_report(connection, query_kind(options), options->bad, &report, failure);

    if (rc == 0 && options->json)
        report_json(&report, stdout);
    else if (rc == 0 && (rc = report_text(&report, stdout)) < 0)
        failure_set(failure, rc, "no memory for a table");
    report_deinit(&report);
    return rc;
}

static int run_query(const struct options *options, struct failure *failure)
{
    struct connection *connection = NULL;
    int status = query_connect(options->socket, &connection, failure);
    if (status != PINCTL_DONE)
        return status;
    int rc = options->watch ? stats_watch(connection, options->json, stdout, failure)
                            : print_report(connection, options, failure);
    connection_close(connection);
    return rc < 0 ? PINCTL_FAILED : PINCTL_DONE;
}

static int run(int argc, char **argv, struct failure *failure)
{
    struct options options;

    int rc = options_parse(argc, argv, &options, failure);
    if (rc < 0)
        return PINCTL_USAGE;
    if (options.help) {
        options_help(options.command, stdout);
        return PINCTL_DONE;
    }
    switch (options.command) {
    case COMMAND_VERSION:
        return run_version(&options);
    case COMMAND_BENCH:
        return bench_run(options.socket, &options.bench, options.json, stdout, failure);
    case COMMAND_PROBE:
        return probe_run(&options, stdout, failure);
    case COMMAND_EVICT:
        return evict_run(&options, stdout, failure);
    case COMMAND_DRAIN:
        return drain_run(&options, stdout, failure);
    default:
        return run_query(&options, failure);
    }
}

int main(int argc, char **argv)
{
    struct failure failure = {.code = 0};

    /* For the width of characters only: numbers are read and written with a point. */
    setlocale(LC_CTYPE, "");
    int status = run(argc, argv, &failure);
    if (status == PINCTL_DONE && (fflush(stdout) != 0 || ferror(stdout))) {
        failure_set(&failure, -errno, "cannot write to the standard output: %s", strerror(errno));
        status = PINCTL_FAILED;
    }
    if (status != PINCTL_DONE)
        print_error(failure.text);
    return status;
}
