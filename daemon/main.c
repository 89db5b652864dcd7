/*
 * pinserved: arguments, configuration, run, one way out.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "control/listener.h"
#include "log.h"
#include "memory/available.h"
#include "private.h"
#include "proto/cleanup.h"
#include "server.h"
#include "service.h"

#define EXIT_USAGE 2
#define EXTEND_NS UINT64_C(10000000000) /* asked for again each quarter of it while starting */
#define SETS_MAX 128

struct arguments {
    const char *config_file, *socket;
    const char *sets[SETS_MAX];
    unsigned n_sets;
    bool check_config, private;
    char **command; /* of run */
};

/* The daemon as a service: what the loop does beside serving. */
struct app {
    struct server server;
    struct service service;
    uv_timer_t ping;
    uv_signal_t signals[3];
};

static const char usage[] =
    "usage: pinserved [--config FILE] [--socket PATH] [--set SECTION.KEY=VALUE]...\n"
    "                 [--check-config] [--version] [--help]\n"
    "       pinserved run [--config FILE] [--set SECTION.KEY=VALUE]... -- COMMAND [ARGUMENT]...\n"
    "\n"
    "Serves the training jobs of this node with batches from pinned memory.\n"
    "run: a private daemon for one command, which finds it by $PINSERVE_SOCKET.\n";

/* 0: go on; otherwise the exit status + 1. */
static int arguments_parse(struct arguments *arguments, int argc, char **argv)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"socket", required_argument, NULL, 's'},
        {"set", required_argument, NULL, 'o'},
        {"check-config", no_argument, NULL, 'k'},
        {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;

    memset(arguments, 0, sizeof *arguments);
    if (argc > 1 && strcmp(argv[1], "run") == 0) {
        arguments->private = true;
        argv[1] = argv[0];
        argc--;
        argv++;
    }
    while ((option = getopt_long(argc, argv, "+hv", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            arguments->config_file = optarg;
            break;
        case 's':
            arguments->socket = optarg;
            break;
        case 'o':
            if (arguments->n_sets == SETS_MAX) {
                fprintf(stderr, "pinserved: more than %d --set\n", SETS_MAX);
                return EXIT_USAGE + 1;
            }
            arguments->sets[arguments->n_sets++] = optarg;
            break;
        case 'k':
            arguments->check_config = true;
            break;
        case 'v':
            puts("pinserved " PINSERVE_VERSION);
            return EXIT_SUCCESS + 1;
        case 'h':
            fputs(usage, stdout);
            return EXIT_SUCCESS + 1;
        default:
            fputs(usage, stderr);
            return EXIT_USAGE + 1;
        }
    }
    arguments->command = argv + optind;
    if (arguments->private && !arguments->command[0]) {
        fprintf(stderr, "pinserved run: no command\n%s", usage);
        return EXIT_USAGE + 1;
    }
    if (!arguments->private && arguments->command[0]) {
        fprintf(stderr, "pinserved: unexpected argument '%s'\n%s", arguments->command[0], usage);
        return EXIT_USAGE + 1;
    }
    return 0;
}

static int config_load(struct config *config, const struct arguments *arguments,
                       struct failure *failure)
{
    struct memory_available memory;
    int r = memory_available_get("", &memory);

    if (r < 0)
        return failure_set(failure, r, "the memory of this machine: %s", strerror(-r));
    config_init(config, memory.total);
    /* A private daemon may be in another service, whose cache directory is not ours. */
    if (arguments->private)
        (void)config_set(config, "daemon.cache=off", failure);
    if (arguments->config_file) {
        r = config_read_file(config, arguments->config_file, failure);
    } else if (!arguments->private) {
        r = config_read_file(config, PINSERVE_CONFIG_FILE, failure);
        r = r == -ENOENT ? 0 : r;
    }
    for (unsigned i = 0; r == 0 && i < arguments->n_sets; i++)
        r = config_set(config, arguments->sets[i], failure);
    if (r == 0)
        r = config_finish(config, failure);
    return r;
}

/* Where the socket is: named, or /run/pinserve for root and the service, or the user's own place.
 */
static int socket_path(const struct arguments *arguments, const struct config *config, char *path,
                       size_t size, struct failure *failure)
{
    const char *environment = getenv("PINSERVE_SOCKET");
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int length;

    if (arguments->socket) {
        length = snprintf(path, size, "%s", arguments->socket);
    } else if (environment && environment[0]) {
        length = snprintf(path, size, "%s", environment);
    } else if (config->socket && config->socket[0]) {
        length = snprintf(path, size, "%s", config->socket);
    } else if (geteuid() == 0 || getenv("RUNTIME_DIRECTORY")) {
        if (mkdir("/run/pinserve", 0755) < 0 && errno != EEXIST)
            return failure_set(failure, -errno, "/run/pinserve: %s", strerror(errno));
        length = snprintf(path, size, "/run/pinserve/pinserve.sock");
    } else if (runtime && runtime[0]) {
        length = snprintf(path, size, "%s/pinserve.sock", runtime);
    } else {
        return failure_set(failure, -EINVAL,
                           "no place for the socket: give --socket, or set XDG_RUNTIME_DIR");
    }
    return length > 0 ? 0 : -EINVAL;
}

static void app_on_ping(uv_timer_t *timer)
{
    struct app *app = timer->data;

    if (app->server.is_ready)
        service_ping();
    else
        service_extend(EXTEND_NS);
}

static void app_on_signal(uv_signal_t *handle, int signal)
{
    struct app *app = handle->data;

    log_info("%s: ending", strsignal(signal));
    service_stopping();
    server_stop(&app->server);
}

static void app_on_ready(void *user)
{
    struct app *app = user;
    uint64_t interval = app->service.ping_interval / 1000000;

    listener_start(app->server.listener);
    log_info("pinserved " PINSERVE_VERSION " serves %s", listener_path(app->server.listener));
    service_ready("serving");
    if (interval > 0)
        uv_timer_start(&app->ping, app_on_ping, 0, interval);
    else
        uv_timer_stop(&app->ping);
}

static void app_watch(struct app *app)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uv_signal_init(&app->server.loop, &app->signals[i]);
        app->signals[i].data = app;
        uv_signal_start(&app->signals[i], app_on_signal, numbers[i]);
    }
    uv_timer_init(&app->server.loop, &app->ping);
    app->ping.data = app;
    if (!app->server.is_ready)
        uv_timer_start(&app->ping, app_on_ping, 0, EXTEND_NS / 4 / 1000000);
}

static int run_service(const struct arguments *arguments, const struct config *config)
{
    static struct app app;
    struct failure failure = {0};
    char path[4096] = "";

    service_raise_files();
    int r = service_init(&app.service, &failure);
    if (r == 0 && app.service.listen_fd < 0)
        r = socket_path(arguments, config, path, sizeof path, &failure);
    if (r == 0) {
        struct server_socket socket = {steal_fd(&app.service.listen_fd), path};
        r = server_init(&app.server, config, &socket, &failure);
        if (r == 0) {
            app_watch(&app);
            r = server_start(&app.server, app_on_ready, &app, &failure);
        }
        if (r == 0)
            r = server_run(&app.server);
        server_deinit(&app.server);
    }
    service_deinit(&app.service);
    if (r < 0)
        log_error("%s", failure.text);
    return r < 0 || app.server.exit_code ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct arguments arguments;
    struct config config = {0};
    struct failure failure = {0};
    int status;

    int parsed = arguments_parse(&arguments, argc, argv);
    if (parsed)
        return parsed - 1;
    signal(SIGPIPE, SIG_IGN);
    int r = config_load(&config, &arguments, &failure);
    if (r < 0) {
        fprintf(stderr, "pinserved: %s\n", failure.text);
        status = EXIT_FAILURE;
    } else if (arguments.check_config) {
        config_print(&config, stdout);
        status = EXIT_SUCCESS;
    } else {
        log_init((enum log_level)config.log_level, config.log_lines_per_second);
        status = arguments.private ? private_run(&config, arguments.command)
                                   : run_service(&arguments, &config);
    }
    config_deinit(&config);
    return status;
}
