/*
 * The registrar: the thread that maps, registers and unregisters windows of
 * files, one at a time. The pages are brought in before the driver is asked to
 * pin them: it would hold the process's address space locked meanwhile, and what
 * cannot be read is an error here, never a signal.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cuda_files.h"

#define STOP_SECONDS 2

/* What became of a window; in the queue's order, until the command loop takes it. */
struct outcome {
    struct list link;
    struct cuda_window *window;
    struct failure failure;
};

static int window_populate(const struct cuda_window *window, void *address, struct failure *failure)
{
    const struct cuda_file *file = window->file;
    int code;

    /* This window and, while it is registered, the next one. */
    posix_fadvise(file->fd, (off_t)window->offset, (off_t)(2 * WINDOW_BYTES), POSIX_FADV_WILLNEED);
    if (madvise(address, window->bytes, MADV_POPULATE_READ) == 0)
        return 0;
    code = -errno;
    if (code == -EINVAL)
        return 0; /* Linux before 5.14: the driver brings them in */
    if (cuda_file_size(file) < window->offset + window->bytes)
        return failure_set(failure, -ENODATA,
                           "file %" PRIu32 " was cut off to %" PRIu64 " bytes, it had %" PRIu64,
                           file->id, cuda_file_size(file), file->size);
    return failure_set(failure, code == -EFAULT ? -EIO : code,
                       "file %" PRIu32 ": %zu bytes at %" PRIu64 " cannot be read: %s", file->id,
                       window->bytes, window->offset, strerror(code == -EFAULT ? EIO : -code));
}

static int window_register(struct cuda_window *window, struct failure *failure)
{
    const struct cuda_file *file = window->file;
    void *address =
        mmap(NULL, window->bytes, PROT_READ, MAP_SHARED, file->fd, (off_t)window->offset);
    CUresult result;
    int r;

    if (address == MAP_FAILED) {
        r = -errno;
        return failure_set(failure, r,
                           "file %" PRIu32 ": %zu bytes at %" PRIu64 " cannot be mapped: %s",
                           file->id, window->bytes, window->offset, strerror(-r));
    }
    r = window_populate(window, address, failure);
    if (r < 0) {
        munmap(address, window->bytes);
        return r;
    }
    result = driver.cuMemHostRegister(address, window->bytes, CU_MEMHOSTREGISTER_READ_ONLY);
    if (result != CUDA_SUCCESS) {
        munmap(address, window->bytes);
        return cuda_failure(failure, result,
                            "file %" PRIu32 ": %zu bytes at %" PRIu64
                            " cannot be registered: cuMemHostRegister",
                            file->id, window->bytes, window->offset);
    }
    window->address = address;
    return 0;
}

static int window_unregister(struct cuda_window *window, struct failure *failure)
{
    CUresult result = driver.cuMemHostUnregister(window->address);

    munmap(window->address, window->bytes);
    window->address = NULL;
    if (result != CUDA_SUCCESS)
        return cuda_failure(failure, result, "file %" PRIu32 ": cuMemHostUnregister",
                            window->file->id);
    return 0;
}

static void *registrar_run(void *user)
{
    struct cuda_files *files = user;
    struct registrar *registrar = &files->registrar;

    pthread_setname_np(pthread_self(), "registrar");
    driver.cuCtxSetCurrent(registrar->context);
    pthread_mutex_lock(&registrar->lock);
    for (;;) {
        while (list_empty(&registrar->queue) && !registrar->is_ending)
            pthread_cond_wait(&registrar->wake, &registrar->lock);
        if (registrar->is_ending)
            break;
        struct outcome *outcome = list_entry(registrar->queue.next, struct outcome, link);
        pthread_mutex_unlock(&registrar->lock);
        if (outcome->window->is_leaving)
            window_unregister(outcome->window, &outcome->failure);
        else
            window_register(outcome->window, &outcome->failure);
        pthread_mutex_lock(&registrar->lock);
        list_remove(&outcome->link);
        list_append(&registrar->done, &outcome->link);
        eventfd_write(files->wake_fd, 1);
    }
    pthread_mutex_unlock(&registrar->lock);
    return NULL;
}

int registrar_give(struct cuda_files *files, struct cuda_window *window, bool is_leaving,
                   struct failure *failure)
{
    struct registrar *registrar = &files->registrar;
    struct outcome *outcome = calloc(1, sizeof *outcome);
    int r = 0;

    if (!outcome)
        return failure_set(failure, -ENOMEM, "file %" PRIu32 ": out of memory", window->file->id);
    if (!registrar->is_up)
        r = pthread_create(&registrar->thread, NULL, registrar_run, files);
    if (r) {
        free(outcome);
        return failure_set(failure, -r, "file %" PRIu32 ": no thread to register it: %s",
                           window->file->id, strerror(r));
    }
    registrar->is_up = true;
    list_remove(&window->link);
    window->state = WINDOW_AT_WORK;
    window->is_leaving = is_leaving;
    outcome->window = window;
    pthread_mutex_lock(&registrar->lock);
    list_append(&registrar->queue, &outcome->link);
    pthread_cond_signal(&registrar->wake);
    pthread_mutex_unlock(&registrar->lock);
    return 0;
}

struct cuda_window *registrar_take(struct cuda_files *files, struct failure *failure)
{
    struct registrar *registrar = &files->registrar;
    struct outcome *outcome = NULL;
    struct cuda_window *window = NULL;

    pthread_mutex_lock(&registrar->lock);
    if (!list_empty(&registrar->done)) {
        outcome = list_entry(registrar->done.next, struct outcome, link);
        list_remove(&outcome->link);
    }
    pthread_mutex_unlock(&registrar->lock);
    if (outcome) {
        window = outcome->window;
        *failure = outcome->failure;
    }
    free(outcome);
    return window;
}

static void outcomes_free(struct list *outcomes)
{
    list_for_each_safe(item, outcomes)
    {
        list_remove(item);
        free(list_entry(item, struct outcome, link));
    }
}

bool registrar_stop(struct cuda_files *files)
{
    struct registrar *registrar = &files->registrar;
    struct timespec end;

    pthread_mutex_lock(&registrar->lock);
    registrar->is_ending = true;
    pthread_cond_signal(&registrar->wake);
    pthread_mutex_unlock(&registrar->lock);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += STOP_SECONDS;
    if (registrar->is_up && pthread_timedjoin_np(registrar->thread, NULL, &end))
        return false;
    outcomes_free(&registrar->queue);
    outcomes_free(&registrar->done);
    return true;
}
