/*
 * A private daemon: it lives in the caller's own cgroup and cpuset, needs no
 * root and no configuration, and is gone with its command.
 */
#include "private.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/listener.h"
#include "log.h"
#include "proto/cleanup.h"
#include "server.h"
#include "service.h"

struct private
{
    struct server server;
    char **command;
    char folder[4096 - 32];
    char path[4096];
    sigset_t old_mask;
    int signal_fd;
    uv_poll_t signals;
    pid_t child;
    int status;
};

static void private_end(struct private *private, int status)
{
    private->status = status;
    private->child = 0;
    server_stop(&private->server);
}

static void private_reap(struct private *private)
{
    int status;

    if (private->child <= 0 || waitpid(private->child, &status, WNOHANG) != private->child)
        return;
    private_end(private, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

/* A terminal sends its signals to the whole foreground group: the command has had them already. */
static void private_on_signal(uv_poll_t *poll, int status, int events)
{
    struct private *private = poll->data;
    struct signalfd_siginfo info;

    (void)status;
    (void)events;
    while (read(private->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        if (private->child > 0 && info.ssi_code != SI_KERNEL)
            kill(private->child, (int)info.ssi_signo);
        else if (private->child <= 0)
            private_end(private, 128 + (int)info.ssi_signo);
    }
    private_reap(private);
}

static void private_on_ready(void *user)
{
    struct private *private = user;
    posix_spawnattr_t attributes;
    sigset_t defaults;

    listener_start(private->server.listener);
    setenv("PINSERVE_SOCKET", private->path, 1);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &private->old_mask);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int r = posix_spawnp(&private->child, private->command[0], NULL, &attributes, private->command,
                         environ);
    posix_spawnattr_destroy(&attributes);
    service_raise_files(); /* the command has its own */
    if (r != 0) {
        fprintf(stderr, "pinserved run: %s: %s\n", private->command[0], strerror(r));
        private_end(private, r == ENOENT ? 127 : 126);
    }
}

/* The signals come by a file descriptor: it tells who sent them. */
static int private_watch(struct private *private)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
    sigset_t mask;

    sigemptyset(&mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaddset(&mask, numbers[i]);
    sigprocmask(SIG_BLOCK, &mask, &private->old_mask);
    private->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    return private->signal_fd < 0 ? -errno : 0;
}

static int private_folder(struct private *private, struct failure *failure)
{
    const char *base = getenv("XDG_RUNTIME_DIR");

    if (!base || !base[0] || access(base, W_OK) < 0)
        base = getenv("TMPDIR");
    if (!base || !base[0])
        base = "/tmp";
    snprintf(private->folder, sizeof private->folder, "%s/pinserve-XXXXXX", base);
    if (!mkdtemp(private->folder))
        return failure_set(failure, -errno, "%s: %s", private->folder, strerror(errno));
    snprintf(private->path, sizeof private->path, "%s/pinserve.sock", private->folder);
    return 0;
}

static int private_serve(struct private *private, const struct config *config,
                         struct failure *failure)
{
    struct server_socket socket = {-1, private->path};

    int r = server_init(&private->server, config, &socket, failure);
    if (r == 0) {
        uv_poll_init(&private->server.loop, &private->signals, private->signal_fd);
        private->signals.data = private;
        uv_poll_start(&private->signals, UV_READABLE, private_on_signal);
        r = server_start(&private->server, private_on_ready, private, failure);
    }
    if (r == 0)
        server_run(&private->server);
    server_deinit(&private->server);
    return r;
}

int private_run(const struct config *config, char **command)
{
    static struct private private;
    struct failure failure = {0};

    private.command = command;
    private.signal_fd = -1;
    private.status = EXIT_FAILURE;
    int r = private_watch(&private);
    if (r < 0)
        failure_set(&failure, r, "signalfd: %s", strerror(-r));
    if (r == 0)
        r = private_folder(&private, &failure);
    if (r == 0) {
        r = private_serve(&private, config, &failure);
        rmdir(private.folder);
    }
    close_fd(&private.signal_fd);
    if (r < 0) {
        log_error("%s", failure.text);
        return EXIT_FAILURE;
    }
    if (private.server.exit_code && private.status == 0)
        return EXIT_FAILURE;
    return private.status;
}
