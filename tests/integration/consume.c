/*
 * A client for the tests: opens one job by the public interface, prints what
 * it gets as one JSON line an event, and does on command what trainers do
 * wrong. Reads commands from standard input when told to.
 *
 *   consume [--socket PATH] --source S [--image I] [--flip P] [--batch N] [--device D]
 *           [--deliver D] [--depth N] [--seed S] [--shuffle S] [--last L] [--bad B]
 *           [--rank R --world W]
 *           [--start EPOCH:STEP|live] [--token TOKEN] [--batches N] [--epochs N] [--timeout MS]
 *           [--seq N] [--values] [--hold N] [--step-ms MS] [--pause N] [--wait] [--fork]
 *           [--close-first] [--again N] [--reconnect] [--patient] [--second] [--peek]
 *
 * --values     prints the bytes of the samples' tensor and of further ones, too, on the host
 * --hold N     keeps the last N batches leased
 * --pause N    after N batches: waits for a byte on standard input
 * --wait       after the batches asked for: waits for end of standard input, leases held
 * --fork       after the first batch: a child tries to go on, and prints what it was told
 * --again N    opens the job N times more, each after closing the one before
 * --close-first  closes the job before the held leases are released, and reads them after
 * --reconnect  the job goes on with the next daemon
 * --patient    a timeout is no error: prints it, and goes on
 * --second     opens a second job by the same spec, and takes the same from it beside the first
 * --peek       reads device memory, too: the stand-in's
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pinclient.h"

#define HOLD_MAX 128

struct consume {
    struct pinclient *client;
    struct pinclient_spec *spec;
    struct pinclient_job *job, *second_job;
    struct pinclient_batch *held[HOLD_MAX];
    unsigned n_held, hold, again;
    uint64_t batches, epochs, pause;
    int timeout_ms, step_ms;
    bool wait, fork_child, close_first, on_host, values;
    bool patient, second, peek;
};

static int consume_fail(const char *what, int code, const char *text)
{
    printf("{\"event\": \"error\", \"call\": \"%s\", \"code\": %d, \"text\": \"", what, code);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < 32 ? ' ' : *text);
    }
    puts("\"}");
    fflush(stdout);
    return 1;
}

static void print_u64(const struct pinclient_batch *batch, const char *name)
{
    struct pinclient_tensor tensor;

    if (pinclient_batch_tensor(batch, name, &tensor) < 0)
        return;
    printf(", \"%s\": [", name);
    for (uint64_t i = 0; i < tensor.shape[0]; i++) {
        const char *comma = i ? ", " : "";
        if (tensor.dtype == PINCLIENT_U8)
            printf("%s%u", comma, ((const uint8_t *)tensor.data)[i]);
        else if (tensor.dtype == PINCLIENT_I64)
            printf("%s%" PRId64, comma, ((const int64_t *)tensor.data)[i]);
        else
            printf("%s%" PRIu64, comma, ((const uint64_t *)tensor.data)[i]);
    }
    printf("]");
}

/* In hexadecimal digits. */
static void print_tensor(const struct pinclient_tensor *tensor)
{
    printf("\"tensor\": \"%s\", \"dtype\": %d, \"shape\": [", tensor->name, (int)tensor->dtype);
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        printf("%s%" PRIu64, i ? ", " : "", tensor->shape[i]);
    printf("], \"values\": \"");
    for (uint64_t i = 0; i < tensor->bytes; i++)
        printf("%02x", ((const uint8_t *)tensor->data)[i]);
    printf("\"");
}

/* The first tensor, and those behind label, index and status as a list. */
static void print_values(const struct pinclient_batch *batch)
{
    struct pinclient_tensor tensor;

    if (pinclient_batch_tensor_at(batch, 0, &tensor) < 0)
        return;
    printf(", ");
    print_tensor(&tensor);
    for (uint32_t i = 4; pinclient_batch_tensor_at(batch, i, &tensor) == 0; i++) {
        printf("%s{", i == 4 ? ", \"further\": [" : ", ");
        print_tensor(&tensor);
        printf("}");
    }
    if (pinclient_batch_tensor_at(batch, 4, &tensor) == 0)
        printf("]");
}

/* Device memory is not read here unless told to: only the stand-in's is readable. */
static void print_batch(const struct consume *consume, const struct pinclient_batch *batch)
{
    struct pinclient_batch_info info;

    pinclient_batch_info(batch, &info);
    printf("{\"event\": \"batch\", \"epoch\": %" PRIu64 ", \"step\": %" PRIu64 ", \"count\": %u",
           info.epoch, info.step, info.count);
    if (consume->on_host) {
        print_u64(batch, "index");
        print_u64(batch, "label");
        print_u64(batch, "status");
        if (consume->values)
            print_values(batch);
    }
    puts("}");
    fflush(stdout);
}

static void print_job(struct consume *consume)
{
    struct pinclient_job_info info;

    pinclient_job_info(consume->job, &info);
    consume->on_host = consume->peek || strcmp(info.delivery, "host") == 0;
    printf("{\"event\": \"job\", \"id\": %" PRIu64 ", \"steps\": %" PRIu64 ", \"samples\": %" PRIu64
           ", \"device\": \"%s\", \"delivery\": \"%s\"}\n",
           info.id, info.steps, info.samples, info.device, info.delivery);
    fflush(stdout);
}

static void print_token(const struct consume *consume)
{
    char text[8192];
    size_t size = sizeof text;

    int r = pinclient_job_token(consume->job, text, &size);
    if (r == 0)
        printf("{\"event\": \"token\", \"token\": \"%s\"}\n", text);
    fflush(stdout);
}

static void try_in_child(struct consume *consume)
{
    struct pinclient_batch *batch;

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int r = pinclient_next(consume->job, 1000, &batch);
        consume_fail("next in a child", r, pinclient_error(consume->job));
        exit(0); // the library's own handlers must leave the parent's leases alone
    }
    waitpid(child, NULL, 0);
}

static int consume_keep(struct consume *consume, struct pinclient_batch *batch)
{
    if (consume->hold == 0)
        return pinclient_release(batch, PINCLIENT_NO_STREAM);
    int r = 0;
    if (consume->n_held == consume->hold) {
        r = pinclient_release(consume->held[0], PINCLIENT_NO_STREAM);
        memmove(&consume->held[0], &consume->held[1], sizeof(void *) * --consume->n_held);
    }
    consume->held[consume->n_held++] = batch;
    return r;
}

/* The second job's next batch must be batch's, or with NULL the end of its epoch. */
static int consume_second(struct consume *consume, const struct pinclient_batch *batch)
{
    struct pinclient_batch *other;
    struct pinclient_batch_info info, other_info;
    struct pinclient_tensor tensor, other_tensor;
    int r;

    do
        r = pinclient_next(consume->second_job, -1, &other);
    while (r == -EINTR);
    if (r < 0 || r != (batch ? 0 : PINCLIENT_EPOCH_END))
        return consume_fail("next of the second", r, pinclient_error(consume->second_job));
    if (!batch)
        return 0;
    pinclient_batch_info(batch, &info);
    pinclient_batch_info(other, &other_info);
    pinclient_batch_tensor_at(batch, 0, &tensor);
    pinclient_batch_tensor_at(other, 0, &other_tensor);
    bool same = info.epoch == other_info.epoch && info.step == other_info.step &&
                tensor.bytes == other_tensor.bytes &&
                (!consume->on_host || memcmp(tensor.data, other_tensor.data, tensor.bytes) == 0);
    r = pinclient_release(other, PINCLIENT_NO_STREAM);
    if (r < 0)
        return consume_fail("release of the second", r, pinclient_error(consume->second_job));
    return same ? 0 : consume_fail("next of the second", 0, "another batch");
}

static int consume_run(struct consume *consume)
{
    uint64_t batches = 0, epochs = 0;
    char byte;

    while (batches < consume->batches && epochs < consume->epochs) {
        struct pinclient_batch *batch;
        int r = pinclient_next(consume->job, consume->timeout_ms, &batch);
        if (r == -EINTR)
            continue;
        if (r == -ETIMEDOUT && consume->patient) {
            consume_fail("next", r, pinclient_error(consume->job));
            continue;
        }
        if (r < 0)
            return consume_fail("next", r, pinclient_error(consume->job));
        if (consume->second && consume_second(consume, r == 0 ? batch : NULL) != 0)
            return 1;
        if (r == PINCLIENT_EPOCH_END) {
            epochs++;
            puts("{\"event\": \"epoch_end\"}");
            fflush(stdout);
            continue;
        }
        batches++;
        print_batch(consume, batch);
        if (consume->fork_child && batches == 1)
            try_in_child(consume);
        if (batches == consume->pause && read(STDIN_FILENO, &byte, 1) < 0)
            return 1;
        if (consume->step_ms > 0)
            nanosleep(
                &(struct timespec){consume->step_ms / 1000, consume->step_ms % 1000 * 1000000L},
                NULL);
        r = consume_keep(consume, batch);
        if (r < 0)
            return consume_fail("release", r, pinclient_error(consume->job));
    }
    print_token(consume);
    return 0;
}

static int consume_end(struct consume *consume)
{
    char byte;

    if (consume->wait) {
        while (read(STDIN_FILENO, &byte, 1) > 0) {
        }
    }
    if (consume->close_first)
        pinclient_job_close(consume->job);
    for (unsigned i = 0; i < consume->n_held; i++) {
        if (consume->close_first)
            print_batch(consume, consume->held[i]);
        int r = pinclient_release(consume->held[i], PINCLIENT_NO_STREAM);
        if (r < 0)
            consume_fail("release", r, consume->close_first ? "" : pinclient_error(consume->job));
    }
    if (!consume->close_first)
        pinclient_job_close(consume->job);
    pinclient_job_close(consume->second_job);
    return 0;
}

enum {
    SOCKET = 1,
    SOURCE,
    IMAGE,
    FLIP,
    BATCH,
    DEVICE,
    DELIVER,
    DEPTH,
    SEED,
    SHUFFLE,
    LAST,
    BAD,
    RANK,
    WORLD,
    START,
    TOKEN,
    BATCHES,
    EPOCHS,
    TIMEOUT,
    HOLD,
    STEP,
    PAUSE,
    WAIT,
    FORK,
    CLOSE_FIRST,
    AGAIN,
    SEQ,
    VALUES,
    RECONNECT,
    PATIENT,
    SECOND,
    PEEK,
};

static const struct option options[] = {
    {"socket", required_argument, NULL, SOCKET},
    {"source", required_argument, NULL, SOURCE},
    {"image", required_argument, NULL, IMAGE},
    {"flip", required_argument, NULL, FLIP},
    {"batch", required_argument, NULL, BATCH},
    {"device", required_argument, NULL, DEVICE},
    {"deliver", required_argument, NULL, DELIVER},
    {"depth", required_argument, NULL, DEPTH},
    {"seed", required_argument, NULL, SEED},
    {"shuffle", required_argument, NULL, SHUFFLE},
    {"last", required_argument, NULL, LAST},
    {"bad", required_argument, NULL, BAD},
    {"rank", required_argument, NULL, RANK},
    {"world", required_argument, NULL, WORLD},
    {"start", required_argument, NULL, START},
    {"token", required_argument, NULL, TOKEN},
    {"batches", required_argument, NULL, BATCHES},
    {"epochs", required_argument, NULL, EPOCHS},
    {"timeout", required_argument, NULL, TIMEOUT},
    {"hold", required_argument, NULL, HOLD},
    {"step-ms", required_argument, NULL, STEP},
    {"pause", required_argument, NULL, PAUSE},
    {"wait", no_argument, NULL, WAIT},
    {"fork", no_argument, NULL, FORK},
    {"close-first", no_argument, NULL, CLOSE_FIRST},
    {"again", required_argument, NULL, AGAIN},
    {"seq", required_argument, NULL, SEQ},
    {"values", no_argument, NULL, VALUES},
    {"reconnect", no_argument, NULL, RECONNECT},
    {"patient", no_argument, NULL, PATIENT},
    {"second", no_argument, NULL, SECOND},
    {"peek", no_argument, NULL, PEEK},
    {NULL, 0, NULL, 0},
};

/* Options that are one call of the spec. */
static int spec_option(struct pinclient_spec *spec, int option, const char *value)
{
    static unsigned rank, world = 1;
    char *end;

    switch (option) {
    case SOURCE:
        return pinclient_spec_source(spec, value);
    case IMAGE:
        return pinclient_spec_image(spec, value);
    case FLIP:
        return pinclient_spec_flip(spec, strtod(value, NULL));
    case BATCH:
        return pinclient_spec_batch(spec, (uint32_t)strtoul(value, NULL, 10));
    case DEVICE:
        return pinclient_spec_device(spec, value);
    case DELIVER:
        return pinclient_spec_delivery(spec, value);
    case DEPTH:
        return pinclient_spec_depth(spec, (uint32_t)strtoul(value, NULL, 10));
    case SEED:
        return pinclient_spec_seed(spec, strtoull(value, NULL, 10));
    case SEQ:
        return pinclient_spec_seq(spec, (uint32_t)strtoul(value, NULL, 10));
    case SHUFFLE:
        return pinclient_spec_shuffle(spec, value);
    case LAST:
        return pinclient_spec_last(spec, value);
    case BAD:
        return pinclient_spec_bad(spec, value);
    case RECONNECT:
        return pinclient_spec_reconnect(spec, 1);
    case RANK:
        rank = (unsigned)strtoul(value, NULL, 10);
        return world > rank ? pinclient_spec_shard(spec, rank, world) : 0;
    case WORLD:
        world = (unsigned)strtoul(value, NULL, 10);
        return pinclient_spec_shard(spec, rank, world);
    case START: {
        if (strcmp(value, "live") == 0)
            return pinclient_spec_live(spec);
        uint64_t epoch = strtoull(value, &end, 10);
        return pinclient_spec_start(spec, epoch, strtoull(end + 1, NULL, 10));
    }
    default:
        return pinclient_spec_token(spec, value);
    }
}

static int consume_parse(struct consume *consume, int argc, char **argv, const char **socket_p)
{
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        int r = 0;
        if (option == SOCKET)
            *socket_p = optarg;
        else if (option == BATCHES)
            consume->batches = strtoull(optarg, NULL, 10);
        else if (option == EPOCHS)
            consume->epochs = strtoull(optarg, NULL, 10);
        else if (option == TIMEOUT)
            consume->timeout_ms = atoi(optarg);
        else if (option == HOLD)
            consume->hold = (unsigned)strtoul(optarg, NULL, 10) % (HOLD_MAX + 1);
        else if (option == AGAIN)
            consume->again = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == STEP)
            consume->step_ms = atoi(optarg);
        else if (option == PAUSE)
            consume->pause = strtoull(optarg, NULL, 10);
        else if (option == WAIT)
            consume->wait = true;
        else if (option == FORK)
            consume->fork_child = true;
        else if (option == CLOSE_FIRST)
            consume->close_first = true;
        else if (option == VALUES)
            consume->values = true;
        else if (option == PATIENT)
            consume->patient = true;
        else if (option == SECOND)
            consume->second = true;
        else if (option == PEEK)
            consume->peek = true;
        else if (option == '?')
            return 2;
        else
            r = spec_option(consume->spec, option, optarg);
        if (r < 0)
            return consume_fail("spec", r, pinclient_error(consume->spec));
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct consume consume = {.batches = UINT64_MAX, .epochs = UINT64_MAX, .timeout_ms = -1};
    const char *socket = NULL;

    pinclient_spec_new(&consume.spec);
    pinclient_spec_device(consume.spec, "host");
    int status = consume_parse(&consume, argc, argv, &socket);
    if (status == 0) {
        int r = pinclient_connect(socket, &consume.client);
        if (r < 0)
            status = consume_fail("connect", r, pinclient_error(consume.client));
    }
    for (unsigned i = 0; status == 0 && i <= consume.again; i++) {
        int r = pinclient_job_open(consume.client, consume.spec, &consume.job);
        if (r == 0 && consume.second)
            r = pinclient_job_open(consume.client, consume.spec, &consume.second_job);
        if (r < 0) {
            status = consume_fail("open", r, pinclient_error(consume.client));
            break;
        }
        print_job(&consume);
        status = consume_run(&consume);
        consume_end(&consume);
        consume.n_held = 0;
    }
    pinclient_spec_free(consume.spec);
    pinclient_close(consume.client);
    return status;
}
