/*
 * Probing: a thread of its own reads one image file and decodes all of it, to
 * tell what it is and what is wrong with it.
 *
 * The file is a client's, and its file system may never answer: such a thread
 * is left alone until it returns. How many a tenant may have is bounded; then
 * it has to wait for them, and nobody else has.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control/peer.h"
#include "disposal.h"
#include "memory/available.h"
#include "proto/cleanup.h"
#include "server.h"
#include "source/file.h"
#include "source/kind.h"
#include "source/tar_find.h"

#define PROBES_OF_TENANT_MAX 4

struct probe {
    struct list link; /* in server->probes, then in server->probed */
    struct server *server;
    struct account *tenant;
    uint64_t peer, id;
    pthread_t thread;
    int fd;
    char *file, *member; /* the file, or the shard of the member */
    char *name;          /* both */
    bool wants_pixels;

    /* Results. readable, or why not in failure; error: that could not be found out. */
    bool readable, error;
    struct failure failure;
    struct image_facts facts;
    uint64_t bytes;
    int pixels; /* memory file; -1 */
};

/* -- on its thread --------------------------------------------------------------------------- */

static void free_decoder(struct decoder **decoder)
{
    decoder_free(*decoder);
}

/* Memory is compared with what there is before it is touched. */
static int probe_check_memory(struct probe *probe, uint64_t bytes)
{
    struct memory_available available;

    if (memory_available_get(NULL, &available) < 0 || bytes <= available.free)
        return 0;
    probe->error = true;
    return failure_set(&probe->failure, -ENOMEM,
                       "%s: %" PRIu64 " bytes of memory are needed, %" PRIu64 " are free (%s)",
                       probe->name, bytes, available.free, available.bound);
}

/* Where the image lies. */
static int probe_locate(struct probe *probe, const struct source_file *file, uint64_t *offset_p)
{
    *offset_p = 0;
    probe->bytes = (uint64_t)file->st.st_size;
    if (*probe->member) {
        int r = tar_find(file, probe->member, offset_p, &probe->bytes, &probe->failure);
        if (r < 0)
            return r;
    }
    if (probe->bytes > SAMPLE_BYTES_MAX)
        return failure_set(&probe->failure, -EFBIG,
                           "%s: %" PRIu64 " bytes, over the limit of 256 MiB", probe->name,
                           probe->bytes);
    return 0;
}

static int probe_read(struct probe *probe, uint8_t **image_p)
{
    struct source_file file = SOURCE_FILE_INIT;
    cleanup_free uint8_t *image = NULL;
    uint64_t offset = 0;

    int r = source_file_take(&file, *probe->member ? "shard" : "file", probe->fd, probe->file,
                             &probe->failure);
    if (r == 0)
        r = probe_locate(probe, &file, &offset);
    if (r == 0)
        r = probe_check_memory(probe, probe->bytes);
    if (r == 0) {
        image = malloc(probe->bytes + 1);
        r = image ? source_read_exactly(file.fd, image, probe->bytes, offset) : -ENOMEM;
        if (r < 0)
            failure_set(&probe->failure, r, "%s: %s", probe->name, strerror(-r));
    }
    source_file_deinit(&file);
    if (r < 0)
        return r;
    *image_p = steal_ptr(image);
    return 0;
}

/* The pixels of an image that was found good. */
static int probe_keep_pixels(struct probe *probe, struct decoder *decoder, const uint8_t *image)
{
    uint64_t pixels = (uint64_t)probe->facts.width * probe->facts.height;
    size_t bytes = (size_t)pixels * 3;
    struct image_facts facts;
    cleanup_fd int fd = -1;

    /* The decoder's, the resizer's, and those handed out. */
    int r = probe_check_memory(probe, pixels * 4 + 2 * (uint64_t)bytes);
    if (r == 0)
        r = decoder_whole(decoder, image, probe->bytes, true, probe->name, &facts, &probe->failure);
    if (r < 0)
        return r;
    fd = memfd_create("pinserve-pixels", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *out = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (out == MAP_FAILED) {
        probe->error = true;
        return failure_set(&probe->failure, -errno, "%s: no memory file for its pixels: %s",
                           probe->name, strerror(errno));
    }
    decoder_whole_pixels(decoder, out);
    munmap(out, bytes);
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    probe->pixels = steal_fd(&fd);
    return 0;
}

static int probe_look(struct probe *probe)
{
    cleanup_free uint8_t *image = NULL;
    cleanup(free_decoder) struct decoder *decoder = NULL;

    int r = probe_read(probe, &image);
    if (r < 0)
        return r;
    decoder = decoder_new();
    if (!decoder)
        return failure_set(&probe->failure, -ENOMEM, "%s: no memory for a decoder", probe->name);
    r = decoder_whole(decoder, image, probe->bytes, false, probe->name, &probe->facts,
                      &probe->failure);
    if (r == 0 && probe->wants_pixels)
        r = probe_keep_pixels(probe, decoder, image);
    return r;
}

static void *probe_run(void *argument)
{
    struct probe *probe = argument;
    struct server *server = probe->server;

    int r = probe_look(probe);
    probe->readable = r == 0;
    probe->error |= r == -ENOMEM;
    close_fd(&probe->fd);
    pthread_mutex_lock(&server->done_lock);
    list_remove(&probe->link);
    list_append(&server->probed, &probe->link);
    uv_async_send(&server->works_done);
    pthread_mutex_unlock(&server->done_lock);
    return NULL;
}

/* -- on the loop ----------------------------------------------------------------------------- */

static void probe_free(struct probe *probe)
{
    if (probe->fd >= 0)
        disposal_give_fds(probe->server->disposal, &probe->fd, 1);
    close_fd(&probe->pixels);
    if (probe->tenant)
        account_unref(probe->tenant);
    free(probe->name);
    free(probe->file);
    free(probe->member);
    free(probe);
}

static int probe_start(struct probe *probe)
{
    struct server *server = probe->server;
    sigset_t all, before;

    pthread_mutex_lock(&server->done_lock);
    list_append(&server->probes, &probe->link);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&probe->thread, NULL, probe_run, probe);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        list_remove(&probe->link);
    else
        pthread_setname_np(probe->thread, "pinserve-probe");
    pthread_mutex_unlock(&server->done_lock);
    return -error;
}

/* A connection asks for one file at a time, a tenant for a few. */
static int probe_admit(struct server *server, const struct account *tenant, uint64_t peer,
                       struct failure *failure)
{
    unsigned of_tenant = 0;
    bool of_peer = false;

    pthread_mutex_lock(&server->done_lock);
    list_for_each(item, &server->probes)
    {
        const struct probe *probe = list_entry(item, struct probe, link);
        of_tenant += probe->tenant == tenant;
        of_peer |= probe->peer == peer;
    }
    pthread_mutex_unlock(&server->done_lock);
    if (of_peer)
        return failure_set(failure, -EBUSY, "another file of this connection is being probed");
    if (of_tenant >= PROBES_OF_TENANT_MAX)
        return failure_set(failure, -EBUSY, "%u files of this tenant are being probed, or hang",
                           of_tenant);
    return 0;
}

static void give_up_fd(struct server *server, int fd)
{
    if (fd >= 0)
        disposal_give_fds(server->disposal, &fd, 1);
}

int probe_begin(struct server *server, struct account *tenant, const struct probe_request *request,
                struct failure *failure)
{
    int r = probe_admit(server, tenant, request->peer, failure);

    if (r < 0) {
        give_up_fd(server, request->fd_consume);
        return r;
    }
    struct probe *probe = calloc(1, sizeof *probe);
    if (!probe) {
        give_up_fd(server, request->fd_consume);
        return failure_set(failure, -ENOMEM, "no memory to probe a file");
    }
    list_init(&probe->link);
    probe->server = server;
    probe->peer = request->peer;
    probe->id = request->id;
    probe->fd = request->fd_consume;
    probe->pixels = -1;
    probe->wants_pixels = request->pixels;
    probe->tenant = account_ref(&server->accounts, tenant->key);
    probe->file = strdup(request->name);
    probe->member = strdup(request->member);
    if (asprintf(&probe->name, "%s%s%s", request->name, *request->member ? ":" : "",
                 request->member) < 0)
        probe->name = NULL;
    r = probe->tenant && probe->file && probe->member && probe->name ? probe_start(probe) : -ENOMEM;
    if (r < 0) {
        probe_free(probe);
        return failure_set(failure, r, "no thread to probe a file: %s", strerror(-r));
    }
    server->busy++;
    return 0;
}

static void probe_answer(struct probe *probe)
{
    Pinserve__Probed probed = PINSERVE__PROBED__INIT;
    const struct image_facts *facts = &probe->facts;

    if (probe->error) {
        peer_send_probe_error(probe->server, probe->peer, probe->id, &probe->failure);
        return;
    }
    probed.readable = probe->readable;
    if (!probe->readable)
        probed.reason = probe->failure.text;
    if (facts->format)
        probed.format = (char *)facts->format;
    probed.mode = (char *)facts->mode;
    probed.width = facts->width;
    probed.height = facts->height;
    probed.orientation = facts->orientation;
    probed.without_end = facts->without_end;
    probed.bytes = probe->bytes;
    peer_send_probed(probe->server, probe->peer, probe->id, &probed, probe->pixels);
}

void probing_collect(struct server *server)
{
    for (;;) {
        struct probe *probe = NULL;

        pthread_mutex_lock(&server->done_lock);
        if (!list_empty(&server->probed)) {
            probe = list_entry(server->probed.next, struct probe, link);
            list_remove(&probe->link);
        }
        pthread_mutex_unlock(&server->done_lock);
        if (!probe)
            return;
        pthread_join(probe->thread, NULL); /* it has done all but return */
        server->busy--;
        probe_answer(probe);
        probe_free(probe);
    }
}
