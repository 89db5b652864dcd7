/*
 * What the two files that drive one pinserved-device share.
 */
#ifndef PINSERVE_DEVICE_PROCESS_H
#define PINSERVE_DEVICE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "device/device.h"
#include "device/message.h"
#include "proto/list.h"

struct process {
    struct device device;
    char *program;
    bool keep_stderr;
    uint64_t gather_max;

    bool up, closing;
    bool ended; /* the socket has said all; only the process's end is still due */
    pid_t pid;
    int socket, pidfd;
    struct list pending;       /* commands that wait for room in the socket */
    struct failure last_words; /* of a process that ends; code 0: none */
};

static inline struct process *process_of(struct device *device)
{
    return (struct process *)device;
}

/* Sends what waits, as far as the socket takes it. */
void commands_flush(struct process *process);
void commands_drop(struct process *process);

/* The commands of device.h. */
int process_add_region(struct device *device, uint32_t region, int fd_consume, size_t bytes);
int process_remove_region(struct device *device, uint32_t region);
int process_make_ring(struct device *device, uint64_t ring, enum ring_export export_as,
                      size_t bytes);
int process_free_ring(struct device *device, uint64_t ring);
int process_copy(struct device *device, uint32_t region, size_t offset, uint64_t ring,
                 size_t ring_offset, size_t bytes, uint64_t cookie);
int process_add_file(struct device *device, uint32_t file, int fd_consume, uint64_t size);
int process_remove_file(struct device *device, uint32_t file);
int process_gather(struct device *device, const struct device_gather *gather, uint64_t cookie);
void process_close(struct device *device);

#endif
