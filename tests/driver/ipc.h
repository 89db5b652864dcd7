/*
 * How the stand-in's IPC handles find their memory: the exporter listens on an
 * abstract socket that the handle names, and gives the memfd to whoever asks,
 * of any uid. So an allocation can be opened while its exporter lives, stays
 * mapped after it, and leaves nothing behind in a file system.
 */
#ifndef PINSERVE_TESTS_IPC_H
#define PINSERVE_TESTS_IPC_H

#include <stdbool.h>
#include <stddef.h>

/* Fills a handle of CU_IPC_HANDLE_SIZE bytes for memory whose fd stays open as long as it may be
 * asked for. */
bool ipc_offer(int fd, size_t bytes, char *handle);

/* Made by this process, which cannot open it; or, as the real driver has it, by one that has this
 * one's number in another pid namespace. */
bool ipc_is_own(const char *handle);

/* The memory of a handle: an fd of the caller's, or -1. */
int ipc_take(const char *handle, size_t *bytes_p);

#endif
