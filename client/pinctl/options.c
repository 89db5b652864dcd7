/*
 * The command line: options of the program, a command, its options. getopt_long runs twice, first
 * up to the command, then over what follows it with the command's options added.
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

#include "client/parse.h"

#define OPTIONS_MAX 40
#define TIMEOUT_MAX_S 1000000

enum {
    OPTION_SOCKET = 256, /* above every character, so that optopt tells long from short */
    OPTION_JSON,
    OPTION_HELP,
    OPTION_WATCH,
    OPTION_BAD,
    OPTION_OUTPUT,
    OPTION_DEVICE,
    OPTION_UNDO,
    OPTION_TIMEOUT,
    OPTION_BENCH, /* and the places in bench_options_table behind it */
};

static const struct {
    const char *name;
    enum command command;
    const char *help;
} commands[] = {
    {"status", COMMAND_STATUS, "the daemon at a glance, with its warnings"},
    {"devices", COMMAND_DEVICES, "GPUs and the host device, and where they are fed from"},
    {"pools", COMMAND_POOLS, "pinned memory of each device and where its pages lie"},
    {"jobs", COMMAND_JOBS, "who is fed, who starves and why; --bad JOB: its bad samples"},
    {"stats", COMMAND_STATS, "totals since the start; --watch: rates, every second"},
    {"bench", COMMAND_BENCH, "consume batches and measure; see pinctl bench --help"},
    {"probe", COMMAND_PROBE, "what the daemon makes of image files: FILE or SHARD:MEMBER"},
    {"evict", COMMAND_EVICT, "end a job: evict JOB"},
    {"drain", COMMAND_DRAIN, "end all jobs and the process on a GPU, or --undo it; see below"},
    {"version", COMMAND_VERSION, "the version of pinctl"},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void add_option(struct option *table, size_t *n, const char *name, bool value, int code)
{
    table[(*n)++] = (struct option){name, value ? required_argument : no_argument, NULL, code};
}

/* The options that may stand behind command. */
static void build_table(enum command command, struct option *table)
{
    size_t n = 0;

    add_option(table, &n, "socket", true, OPTION_SOCKET);
    add_option(table, &n, "json", false, OPTION_JSON);
    add_option(table, &n, "help", false, OPTION_HELP);
    if (command == COMMAND_STATS)
        add_option(table, &n, "watch", false, OPTION_WATCH);
    if (command == COMMAND_JOBS)
        add_option(table, &n, "bad", true, OPTION_BAD);
    if (command == COMMAND_PROBE)
        add_option(table, &n, "output", true, OPTION_OUTPUT);
    if (command == COMMAND_DRAIN) {
        add_option(table, &n, "device", true, OPTION_DEVICE);
        add_option(table, &n, "undo", false, OPTION_UNDO);
        add_option(table, &n, "timeout", true, OPTION_TIMEOUT);
    }
    for (size_t i = 0; command == COMMAND_BENCH && i < bench_options_count; i++) {
        const struct bench_option *option = &bench_options_table[i];
        add_option(table, &n, option->name, option->kind != BENCH_FLAG, OPTION_BENCH + (int)i);
    }
    table[n] = (struct option){NULL, 0, NULL, 0};
}

static int refuse_option(int result, char **argv, const struct option *table,
                         struct failure *failure)
{
    for (const struct option *option = table; optopt >= OPTION_SOCKET && option->name; option++) {
        if (option->val == optopt)
            return failure_set(failure, -EINVAL,
                               result == ':' ? "--%s needs a value" : "--%s takes no value",
                               option->name);
    }
    if (optopt)
        return failure_set(failure, -EINVAL, "unknown option -%c", optopt);
    return failure_set(failure, -EINVAL, "unknown option %s", argv[optind - 1]);
}

/* Parses the options of argv up to its end, or with a rule of "+" to the first word that is none.
 */
static int parse_options(int argc, char **argv, const char *rule, struct options *options,
                         struct failure *failure)
{
    struct option table[OPTIONS_MAX];
    int result = 0;

    build_table(options->command, table);
    /* 0 makes glibc's getopt forget the run before. */
    optind = 0;
    opterr = 0;
    while ((result = getopt_long(argc, argv, rule, table, NULL)) != -1) {
        switch (result) {
        case OPTION_SOCKET:
            options->socket = optarg;
            break;
        case OPTION_JSON:
            options->json = true;
            break;
        case 'h':
        case OPTION_HELP:
            options->help = true;
            return 0;
        case OPTION_WATCH:
            options->watch = true;
            break;
        case OPTION_BAD:
            if (parse_whole(parse_from(optarg), UINT64_MAX, &options->bad) < 0 || !options->bad)
                return failure_set(failure, -EINVAL, "--bad %s: the number of a job is wanted",
                                   optarg);
            break;
        case OPTION_OUTPUT:
            options->output = optarg;
            break;
        case OPTION_DEVICE:
            options->device = optarg;
            break;
        case OPTION_UNDO:
            options->undo = true;
            break;
        case OPTION_TIMEOUT:
            if (parse_whole(parse_from(optarg), TIMEOUT_MAX_S, &options->timeout_s) < 0)
                return failure_set(failure, -EINVAL, "--timeout %s: seconds are wanted, at most %d",
                                   optarg, TIMEOUT_MAX_S);
            break;
        case '?':
        case ':':
            return refuse_option(result, argv, table, failure);
        default: {
            int rc = bench_options_set(&options->bench, (size_t)(result - OPTION_BENCH), optarg,
                                       failure);
            if (rc < 0)
                return rc;
        }
        }
    }
    return 0;
}

static enum command find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].command;
    }
    return COMMAND_NONE;
}

static int take_files(int argc, char **argv, struct options *options, struct failure *failure)
{
    options->files = argv + optind;
    options->n_files = (size_t)(argc - optind);
    if (options->n_files == 0)
        return failure_set(failure, -EINVAL, "probe: a FILE or SHARD:MEMBER is missing");
    if (options->output && options->n_files > 1)
        return failure_set(failure, -EINVAL,
                           "probe: --output takes the pixels of one file, not %zu",
                           options->n_files);
    return 0;
}

static int take_job(int argc, char **argv, struct options *options, struct failure *failure)
{
    if (optind >= argc)
        return failure_set(failure, -EINVAL, "evict: the number of a JOB is missing");
    const char *word = argv[optind++];
    if (parse_whole(parse_from(word), UINT64_MAX, &options->job) < 0 || options->job == 0)
        return failure_set(failure, -EINVAL, "evict %s: the number of a job is wanted", word);
    return 0;
}

int options_parse(int argc, char **argv, struct options *options, struct failure *failure)
{
    *options = (struct options){.command = COMMAND_NONE, .timeout_s = DRAIN_TIMEOUT_S};
    bench_options_init(&options->bench);

    int rc = parse_options(argc, argv, "+:h", options, failure);
    if (rc < 0 || options->help)
        return rc;
    if (optind >= argc)
        return failure_set(failure, -EINVAL, "a command is missing; see pinctl --help");
    argc -= optind;
    argv += optind;
    options->command = find_command(argv[0]);
    if (options->command == COMMAND_NONE)
        return failure_set(failure, -EINVAL, "unknown command %s; see pinctl --help", argv[0]);

    rc = parse_options(argc, argv, ":h", options, failure);
    if (rc < 0 || options->help)
        return rc;
    if (options->command == COMMAND_PROBE)
        return take_files(argc, argv, options, failure);
    if (options->command == COMMAND_EVICT)
        rc = take_job(argc, argv, options, failure);
    if (rc < 0)
        return rc;
    if (optind < argc)
        return failure_set(failure, -EINVAL, "%s: unexpected argument %s", argv[0], argv[optind]);
    if (options->command == COMMAND_BENCH)
        return bench_options_finish(&options->bench, failure);
    return 0;
}

void options_help(enum command command, FILE *out)
{
    if (command == COMMAND_BENCH) {
        bench_options_help(out);
        return;
    }
    fputs("usage: pinctl [--socket PATH] [--json] COMMAND\n\n", out);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-14s %s\n", commands[i].name, commands[i].help);
    fprintf(out,
            "\ndrain:\n"
            "  --device UUID  that GPU, or host (default all GPUs)\n"
            "  --timeout S    wait so long until nothing is left on it (default %d)\n"
            "  --undo         take it into service again\n",
            DRAIN_TIMEOUT_S);
    fputs("\n"
          "  --socket PATH  the daemon's socket (default $PINSERVE_SOCKET, else\n"
          "                 /run/pinserve/pinserve.sock, else $XDG_RUNTIME_DIR/pinserve.sock)\n"
          "  --json         print JSON\n"
          "  --help         print this\n\n"
          "Exit status: 0 done, 1 refused or failed, 2 usage, 3 no daemon.\n",
          out);
}
