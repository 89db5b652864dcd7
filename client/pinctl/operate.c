/*
 * evict and drain. The daemon answers both at once; that a device is drained
 * shows in its state, which is asked for until then.
 */
#include "operate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "client/connection.h"
#include "json.h"
#include "pinctl.h"
#include "proto/cleanup.h"

#define MINOR_NEEDED 1
#define ASK_AGAIN_MS 100

static void connection_close_p(struct connection **connection)
{
    connection_close(*connection);
}

/* A daemon that does not know the message would hang up instead of answering. */
static int operate_connect(const struct options *options, const char *what,
                           struct connection **connection_p, struct failure *failure)
{
    int status = query_connect(options->socket, connection_p, failure);
    if (status != PINCTL_DONE)
        return status;
    const Pinserve__Hello *hello = connection_hello(*connection_p);
    if (hello->minor_max >= MINOR_NEEDED)
        return PINCTL_DONE;
    failure_set(failure, -EPROTONOSUPPORT,
                "the daemon at %s (%.64s) is too old for %s: it speaks protocol %" PRIu32
                ".%" PRIu32 ", they came with %d.%d",
                connection_path(*connection_p), hello->program, what, hello->major,
                hello->minor_max, PROTOCOL_MAJOR, MINOR_NEEDED);
    return PINCTL_FAILED;
}

/* -- evict ----------------------------------------------------------------------------------- */

int evict_run(const struct options *options, FILE *out, struct failure *failure)
{
    cleanup(connection_close_p) struct connection *connection = NULL;
    int status = operate_connect(options, "evict", &connection, failure);
    if (status != PINCTL_DONE)
        return status;

    cleanup(wire_packet_deinit) struct wire_packet reply = WIRE_PACKET_INIT;
    Pinserve__Evict evict = PINSERVE__EVICT__INIT;
    Pinserve__Message request = PINSERVE__MESSAGE__INIT;
    evict.job = options->job;
    request.body_case = PINSERVE__MESSAGE__BODY_EVICT;
    request.evict = &evict;
    if (connection_call(connection, &request, NULL, 0, &reply, failure) < 0)
        return PINCTL_FAILED;
    if (reply.message->body_case != PINSERVE__MESSAGE__BODY_DONE) {
        failure_set(failure, -EPROTO, "the daemon answered Evict with another message");
        return PINCTL_FAILED;
    }
    if (options->json) {
        struct json json;
        json_init(&json, out, false);
        json_object_begin(&json, NULL);
        json_unsigned(&json, "job", options->job);
        json_object_end(&json);
    } else {
        fprintf(out, "job %" PRIu64 ": evicted\n", options->job);
    }
    return PINCTL_DONE;
}

/* -- drain ----------------------------------------------------------------------------------- */

static bool device_is_meant(const char *device, char *const *devices, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(device, devices[i]) == 0)
            return true;
    }
    return false;
}

size_t drain_left(const struct report *jobs, char *const *devices, size_t n, char *text,
                  size_t size)
{
    size_t left = 0, used = 0;

    *text = '\0';
    for (size_t i = 0; i < jobs->n_rows; i++) {
        const Pinserve__JobReport *job = (const Pinserve__JobReport *)jobs->rows[i];
        if (!device_is_meant(job->device, devices, n))
            continue;
        if (used < size)
            used += (size_t)snprintf(
                text + used, size - used,
                "%sjob %" PRIu64 " (pid %" PRIu64 ", uid %" PRIu64 ", %s, %" PRIu32 " leased)",
                left ? ", " : "", job->job, job->pid, job->uid, job->state, job->leased);
        left++;
    }
    return left;
}

static int drain_ask(struct connection *connection, const struct options *options,
                     struct wire_packet *reply, struct failure *failure)
{
    Pinserve__Drain drain = PINSERVE__DRAIN__INIT;
    Pinserve__Message request = PINSERVE__MESSAGE__INIT;

    drain.device = (char *)(uintptr_t)(options->device ? options->device : "");
    drain.undo = options->undo;
    request.body_case = PINSERVE__MESSAGE__BODY_DRAIN;
    request.drain = &drain;
    int rc = connection_call(connection, &request, NULL, 0, reply, failure);
    if (rc == 0 && reply->message->body_case != PINSERVE__MESSAGE__BODY_DEVICE_LIST)
        rc = failure_set(failure, -EPROTO, "the daemon answered Drain with another message");
    return rc;
}

/* How many of the devices have something left. */
static int count_draining(struct connection *connection, const Pinserve__DeviceList *devices,
                          size_t *draining_p, struct failure *failure)
{
    cleanup(report_deinit) struct report report = REPORT_INIT;
    int rc = query_report(connection, PINSERVE__QUERY_KIND__QUERY_DEVICES, 0, &report, failure);

    *draining_p = 0;
    for (size_t i = 0; rc == 0 && i < report.n_rows; i++) {
        const Pinserve__DeviceReport *row = (const Pinserve__DeviceReport *)report.rows[i];
        if (!device_is_meant(row->uuid, devices->uuids, devices->n_uuids))
            continue;
        if (strcmp(row->state, "serving") == 0)
            return failure_set(failure, -ECANCELED,
                               "device %s was taken into service again by somebody else",
                               row->uuid);
        *draining_p += strcmp(row->state, "drained") != 0;
    }
    return rc;
}

/* Nobody has taken what a client holds: it is named. */
static int refuse_left(struct connection *connection, const Pinserve__DeviceList *devices,
                       size_t draining, uint64_t seconds, struct failure *failure)
{
    cleanup(report_deinit) struct report jobs = REPORT_INIT;
    char text[FAILURE_TEXT_MAX];
    int rc = query_report(connection, PINSERVE__QUERY_KIND__QUERY_JOBS, 0, &jobs, failure);

    if (rc < 0)
        return rc;
    size_t left = drain_left(&jobs, devices->uuids, devices->n_uuids, text, sizeof(text));
    if (left == 0)
        return failure_set(failure, -ETIMEDOUT,
                           "not drained within %" PRIu64 " s: of %zu devices a device process "
                           "still runs",
                           seconds, draining);
    return failure_set(failure, -ETIMEDOUT, "not drained within %" PRIu64 " s; %zu left: %.400s",
                       seconds, left, text);
}

static int drain_wait(struct connection *connection, const Pinserve__DeviceList *devices,
                      uint64_t seconds, struct failure *failure)
{
    int64_t deadline = connection_clock_ms() + (int64_t)seconds * 1000;

    for (;;) {
        size_t draining = 0;
        int rc = count_draining(connection, devices, &draining, failure);
        if (rc < 0 || draining == 0)
            return rc;
        if (connection_clock_ms() >= deadline)
            return refuse_left(connection, devices, draining, seconds, failure);
        nanosleep(&(struct timespec){.tv_nsec = ASK_AGAIN_MS * 1000000L}, NULL);
    }
}

static void print_devices(const Pinserve__DeviceList *devices, const struct options *options,
                          FILE *out)
{
    const char *state = options->undo ? "serving" : "drained";
    struct json json;

    if (!options->json) {
        for (size_t i = 0; i < devices->n_uuids; i++)
            fprintf(out, "device %s: %s\n", devices->uuids[i], state);
        return;
    }
    json_init(&json, out, false);
    json_object_begin(&json, NULL);
    json_array_begin(&json, "devices");
    for (size_t i = 0; i < devices->n_uuids; i++) {
        json_object_begin(&json, NULL);
        json_string(&json, "uuid", devices->uuids[i]);
        json_string(&json, "state", state);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
}

int drain_run(const struct options *options, FILE *out, struct failure *failure)
{
    cleanup(connection_close_p) struct connection *connection = NULL;
    int status = operate_connect(options, "drain", &connection, failure);
    if (status != PINCTL_DONE)
        return status;

    cleanup(wire_packet_deinit) struct wire_packet reply = WIRE_PACKET_INIT;
    int rc = drain_ask(connection, options, &reply, failure);
    if (rc < 0)
        return PINCTL_FAILED;
    const Pinserve__DeviceList *devices = reply.message->device_list;
    if (!options->undo)
        rc = drain_wait(connection, devices, options->timeout_s, failure);
    if (rc < 0)
        return PINCTL_FAILED;
    print_devices(devices, options, out);
    return PINCTL_DONE;
}
