/*
 * The test's side of importer.c.
 */
#include "contract/importer.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/message.h"
#include "proto/cleanup.h"

int importer_start(struct importer *importer, const char *program, const char *uuid)
{
    char *const argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)uuid, NULL};
    posix_spawn_file_actions_t actions;
    int sockets[2], r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
        return -errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, sockets[1], STDIN_FILENO);
    r = posix_spawn(&importer->pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(sockets[1]);
    importer->socket = sockets[0];
    return -r;
}

void importer_stop(struct importer *importer)
{
    close_fd(&importer->socket);
    waitpid(importer->pid, NULL, 0);
}

static int ask(struct importer *importer, const struct importer_request *request, int fd,
               struct importer_answer *answer)
{
    if (message_send(importer->socket, request, sizeof *request, fd) < 0 ||
        recv(importer->socket, answer, sizeof *answer, 0) != (ssize_t)sizeof *answer) {
        fprintf(stderr, "the importer is gone\n");
        return -1;
    }
    if (answer->result)
        fprintf(stderr, "the importer was told: %s\n", answer->text);
    return answer->result;
}

int importer_open(struct importer *importer, enum ring_export export_as, size_t bytes, int fd,
                  const uint8_t *ipc_handle)
{
    static struct importer_answer answer;
    struct importer_request request = {
        .kind = IMPORTER_OPEN, .export_as = export_as, .bytes = bytes};

    memcpy(request.ipc_handle, ipc_handle, sizeof request.ipc_handle);
    return ask(importer, &request, fd, &answer);
}

int importer_read(struct importer *importer, size_t offset, void *data, size_t bytes)
{
    static struct importer_answer answer;

    for (size_t done = 0; done < bytes;) {
        size_t part = bytes - done < IMPORTER_CHUNK ? bytes - done : IMPORTER_CHUNK;
        struct importer_request request = {
            .kind = IMPORTER_READ, .offset = offset + done, .bytes = part};
        int r = ask(importer, &request, -1, &answer);

        if (r)
            return r;
        memcpy((char *)data + done, answer.data, part);
        done += part;
    }
    return 0;
}

int importer_write(struct importer *importer, size_t offset)
{
    static struct importer_answer answer;
    struct importer_request request = {.kind = IMPORTER_WRITE, .offset = offset};

    return ask(importer, &request, -1, &answer);
}

int importer_close(struct importer *importer)
{
    static struct importer_answer answer;
    struct importer_request request = {.kind = IMPORTER_CLOSE};

    return ask(importer, &request, -1, &answer);
}
