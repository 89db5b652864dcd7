/*
 * The files of one GPU, their windows, and the bound on what is registered: see
 * cuda_files.h. A window is registered when a gather needs it, or in advance
 * where its file fits the bound; room is made by giving up windows that no copy
 * reads, the least recently used first.
 */
#include "cuda_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_internal.h"
#include "log.h"
#include "proto/cleanup.h"

int cuda_files_init(struct cuda_files *files, uint64_t max, struct failure *failure)
{
    files->max = max;
    list_init(&files->all);
    list_init(&files->removed);
    list_init(&files->wanted);
    list_init(&files->used);
    list_init(&files->registrar.queue);
    list_init(&files->registrar.done);
    pthread_mutex_init(&files->registrar.lock, NULL);
    pthread_cond_init(&files->registrar.wake, NULL);
    files->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return files->wake_fd < 0 ? failure_set(failure, -errno, "eventfd: %m") : 0;
}

static void file_free(struct cuda_file *file)
{
    list_remove(&file->link);
    for (uint32_t i = 0; i < file->n_windows; i++) {
        struct cuda_window *window = &file->windows[i];

        if (window->address) {
            driver.cuMemHostUnregister(window->address);
            munmap(window->address, window->bytes);
        }
    }
    close(file->fd);
    free(file);
}

bool cuda_files_deinit(struct cuda_files *files)
{
    if (!registrar_stop(files))
        return false;
    list_for_each_safe(item, &files->all) file_free(list_entry(item, struct cuda_file, link));
    list_for_each_safe(item, &files->removed) file_free(list_entry(item, struct cuda_file, link));
    pthread_cond_destroy(&files->registrar.wake);
    pthread_mutex_destroy(&files->registrar.lock);
    close_fd(&files->wake_fd);
    return true;
}

void cuda_files_notify(struct cuda_files *files)
{
    if (atomic_exchange(&files->starving, false))
        eventfd_write(files->wake_fd, 1);
}

/* -- files ------------------------------------------------------------------------------------ */

struct cuda_file *cuda_file_find(struct cuda_files *files, uint32_t id)
{
    list_for_each(item, &files->all)
    {
        struct cuda_file *file = list_entry(item, struct cuda_file, link);
        if (file->id == id)
            return file;
    }
    return NULL;
}

uint64_t cuda_file_size(const struct cuda_file *file)
{
    struct statx status;

    if (statx(file->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &status) < 0)
        return 0;
    return status.stx_size;
}

static void file_tell(struct cuda *cuda, struct cuda_file *file, const struct failure *failure)
{
    if (!file->is_told)
        cuda->events->file_ready(file->id, failure);
    file->is_told = true;
}

int cuda_add_file(struct cuda *cuda, uint32_t id, int fd_consume, uint64_t size,
                  struct failure *failure)
{
    cleanup_fd int fd = fd_consume;
    struct cuda_files *files = &cuda->files;
    uint64_t n = size / WINDOW_BYTES + (size % WINDOW_BYTES > 0);
    struct cuda_file *file;

    if (cuda_file_find(files, id) || !size || fd < 0)
        return failure_set(failure, -EINVAL, "file %" PRIu32 " of %" PRIu64 " bytes: %s", id, size,
                           fd < 0 ? "its descriptor was lost" : "it is empty or there already");
    if (!cuda->read_only_registers)
        return failure_set(failure, -EOPNOTSUPP,
                           "file %" PRIu32 ": this device registers no read-only memory", id);
    if (size > files->max)
        return failure_set(failure, -E2BIG,
                           "file %" PRIu32 ": its %" PRIu64 " bytes are over the bound of %" PRIu64,
                           id, size, files->max);
    file = calloc(1, sizeof *file + n * sizeof file->windows[0]);
    if (!file)
        return failure_set(failure, -ENOMEM, "file %" PRIu32 ": out of memory", id);
    file->id = id;
    file->fd = steal_fd(&fd);
    file->size = size;
    file->n_windows = (uint32_t)n;
    list_append(&files->all, &file->link);
    for (uint32_t i = 0; i < n; i++) {
        struct cuda_window *window = &file->windows[i];

        window->file = file;
        window->offset = i * WINDOW_BYTES;
        window->bytes = size - window->offset < WINDOW_BYTES ? size - window->offset : WINDOW_BYTES;
        window->state = WINDOW_WANTED;
        list_append(&files->wanted, &window->link);
    }
    cuda_files_serve(cuda);
    return 0;
}

int cuda_remove_file(struct cuda *cuda, uint32_t id, struct failure *failure)
{
    struct cuda_file *file = cuda_file_find(&cuda->files, id);

    if (!file)
        return failure_set(failure, -ENOENT, "there is no file %" PRIu32, id);
    list_remove(&file->link);
    list_append(&cuda->files.removed, &file->link);
    cuda_files_serve(cuda);
    return 0;
}

/* -- windows ---------------------------------------------------------------------------------- */

void cuda_window_want(struct cuda_files *files, struct cuda_window *window)
{
    if (window->state != WINDOW_ABSENT && window->state != WINDOW_WANTED)
        return;
    if (window->state == WINDOW_ABSENT)
        list_init(&window->link);
    list_remove(&window->link);
    window->state = WINDOW_WANTED;
    list_append(files->wanted.next, &window->link);
}

void cuda_window_touch(struct cuda_files *files, struct cuda_window *window)
{
    list_remove(&window->link);
    list_append(&files->used, &window->link);
}

static void window_leave(struct cuda_files *files, struct cuda_window *window)
{
    struct failure failure;

    window->file->n_ready--;
    if (registrar_give(files, window, true, &failure) == 0)
        return;
    window->file->n_ready++;
    log_error("%s", failure.text);
}

/* Gives up what files that were removed still have; ends those that have nothing. */
static void removed_serve(struct cuda_files *files)
{
    list_for_each_safe(item, &files->removed)
    {
        struct cuda_file *file = list_entry(item, struct cuda_file, link);
        bool in_use = atomic_load(&file->busy) > 0;

        for (uint32_t i = 0; i < file->n_windows; i++) {
            struct cuda_window *window = &file->windows[i];

            if (!in_use && window->state == WINDOW_WANTED) {
                list_remove(&window->link);
                window->state = WINDOW_ABSENT;
            } else if (!in_use && window->state == WINDOW_READY) {
                window_leave(files, window);
            }
        }
        bool is_gone = !in_use;
        for (uint32_t i = 0; i < file->n_windows && is_gone; i++)
            is_gone = file->windows[i].state == WINDOW_ABSENT;
        if (is_gone)
            file_free(file);
    }
}

/* Bytes with the registrar that are about to be given up. */
static uint64_t leaving_bytes(const struct cuda_files *files)
{
    uint64_t bytes = 0;

    for (int removed = 0; removed < 2; removed++)
        list_for_each(item, removed ? &files->removed : &files->all)
        {
            const struct cuda_file *file = list_entry(item, struct cuda_file, link);

            for (uint32_t i = 0; i < file->n_windows; i++)
                if (file->windows[i].state == WINDOW_AT_WORK && file->windows[i].is_leaving)
                    bytes += file->windows[i].bytes;
        }
    return bytes;
}

/* Room for bytes: true; else what can be given up for it is on its way. */
static bool room_make(struct cuda_files *files, uint64_t bytes)
{
    uint64_t leaving;

    if (files->bytes + bytes <= files->max)
        return true;
    leaving = leaving_bytes(files);
    list_for_each_safe(item, &files->used)
    {
        struct cuda_window *window = list_entry(item, struct cuda_window, link);

        if (files->bytes - leaving + bytes <= files->max)
            break;
        if (atomic_load(&window->busy))
            continue;
        leaving += window->bytes;
        window_leave(files, window);
    }
    return false;
}

void cuda_files_serve(struct cuda *cuda)
{
    struct cuda_files *files = &cuda->files;

    /* Before looking: what ends from here on is told. */
    atomic_store(&files->starving, true);
    removed_serve(files);
    while (!list_empty(&files->wanted)) {
        struct cuda_window *window = list_entry(files->wanted.next, struct cuda_window, link);
        struct failure failure;

        if (!room_make(files, window->bytes))
            break;
        if (registrar_give(files, window, false, &failure) < 0) {
            log_error("%s", failure.text);
            break;
        }
        files->bytes += window->bytes;
    }
    if (list_empty(&files->wanted) && list_empty(&files->removed))
        atomic_store(&files->starving, false);
    if (files->bytes != files->told_bytes)
        cuda->events->registered(files->bytes);
    files->told_bytes = files->bytes;
}

/* The registrar is done with a window. */
static void window_done(struct cuda *cuda, struct cuda_window *window, struct failure *failure)
{
    struct cuda_files *files = &cuda->files;
    struct cuda_file *file = window->file;

    list_init(&window->link);
    if (window->address) {
        window->state = WINDOW_READY;
        list_append(&files->used, &window->link);
        if (++file->n_ready == file->n_windows)
            file_tell(cuda, file, NULL);
        return;
    }
    window->state = WINDOW_ABSENT;
    files->bytes -= window->bytes;
    if (window->is_leaving) {
        if (failure->code < 0)
            log_warning("%s", failure->text);
        return;
    }
    /* Not the file's fault: the end of the process is what is told. */
    cuda->is_lost = cuda->is_lost || cuda_check(cuda, NULL) < 0;
    if (cuda->is_lost)
        return;
    file_tell(cuda, file, failure);
    cuda_gathers_fail(cuda, window, failure);
}

int cuda_get_fd(struct cuda *cuda)
{
    return cuda->files.wake_fd;
}

void cuda_dispatch(struct cuda *cuda)
{
    struct cuda_files *files = &cuda->files;
    struct cuda_window *window;
    struct failure failure;
    eventfd_t count;

    if (eventfd_read(files->wake_fd, &count) < 0)
        return;
    while ((window = registrar_take(files, &failure)))
        window_done(cuda, window, &failure);
    cuda_gathers_advance(cuda);
    cuda_files_serve(cuda);
}
