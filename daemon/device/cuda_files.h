/*
 * Files whose page cache the copy engine reads: mapped read-only and registered
 * in windows, within a bound on the registered bytes.
 *
 * Registering a window faults its pages in, from storage if need be, and
 * unregistering one waits for the device: both are done by a thread, the
 * registrar. Everything else of a file and its windows is the command loop's,
 * but for the counters of use, which the driver's threads lower.
 */
#ifndef PINSERVE_DEVICE_CUDA_FILES_H
#define PINSERVE_DEVICE_CUDA_FILES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_driver.h"
#include "proto/list.h"

#define WINDOW_BYTES (UINT64_C(64) << 20)

struct cuda;

enum window_state {
    WINDOW_ABSENT,
    WINDOW_WANTED,  /* waits for room, in files->wanted */
    WINDOW_AT_WORK, /* with the registrar */
    WINDOW_READY,   /* in files->used */
};

struct cuda_window {
    struct list link; /* in wanted or used; with the registrar: in its queue or done */
    struct cuda_file *file;
    enum window_state state;
    bool is_leaving; /* with the registrar: to be unregistered */
    uint64_t offset; /* in the file */
    size_t bytes;
    void *address;    /* while registered */
    atomic_uint busy; /* copies that read it */
};

struct cuda_file {
    struct list link; /* in files->all, or in files->removed */
    uint32_t id;
    int fd;
    uint64_t size;
    atomic_uint busy; /* gathers that use it */
    bool is_told;     /* the daemon knows whether it can be registered */
    uint32_t n_windows, n_ready;
    struct cuda_window windows[];
};

struct cuda_files {
    uint64_t max, bytes; /* the bound, and what is registered or with the registrar */
    uint64_t told_bytes;
    struct list all, removed;
    struct list wanted; /* windows, in order */
    struct list used;   /* windows that are ready, the least recently used first */

    int wake_fd;          /* readable while the command loop has something to do here */
    atomic_bool starving; /* it waits for a copy or a gather to end */

    struct registrar {
        CUcontext context;
        pthread_t thread;
        bool is_up;
        pthread_mutex_t lock;
        pthread_cond_t wake;
        struct list queue, done; /* windows */
        bool is_ending;
    } registrar;
};

int cuda_files_init(struct cuda_files *files, uint64_t max, struct failure *failure);
/* Every copy has ended. False: the registrar hangs in a file, nothing can be taken down. */
bool cuda_files_deinit(struct cuda_files *files);

struct cuda_file *cuda_file_find(struct cuda_files *files, uint32_t id);
/* Its size now. The kernel is not to ask a server for it: nothing here may wait. */
uint64_t cuda_file_size(const struct cuda_file *file);

/* The window is to be registered, ahead of those that nothing waits for. */
void cuda_window_want(struct cuda_files *files, struct cuda_window *window);
/* The window is used now. */
void cuda_window_touch(struct cuda_files *files, struct cuda_window *window);

/* Starts what there is room for. */
void cuda_files_serve(struct cuda *cuda);
/* A copy or a gather has ended: from any thread. */
void cuda_files_notify(struct cuda_files *files);

/* -- the registrar's ------------------------------------------------------------------------- */

/* Gives it a window, whose state becomes WINDOW_AT_WORK. */
int registrar_give(struct cuda_files *files, struct cuda_window *window, bool is_leaving,
                   struct failure *failure);
/* A window that it is done with, or NULL. failure->code is 0 when it went well. */
struct cuda_window *registrar_take(struct cuda_files *files, struct failure *failure);
/* False: it hangs. */
bool registrar_stop(struct cuda_files *files);

#endif
