/*
 * A process that opens rings as a client does, by request of a test: importer.c
 * is its program, importer_client.c the test's side. One request and one answer
 * at a time, over a SOCK_SEQPACKET pair that is the program's stdin.
 */
#ifndef PINSERVE_TESTS_IMPORTER_H
#define PINSERVE_TESTS_IMPORTER_H

#include <stdint.h>
#include <sys/types.h>

#include "device/device.h"

#define IMPORTER_CHUNK 65536

enum importer_kind { IMPORTER_OPEN, IMPORTER_READ, IMPORTER_WRITE, IMPORTER_CLOSE };

struct importer_request {
    uint32_t kind, export_as;
    uint64_t offset, bytes;
    uint8_t ipc_handle[DEVICE_IPC_HANDLE_BYTES];
};

struct importer_answer {
    int32_t result; /* a CUresult */
    char text[124];
    uint8_t data[IMPORTER_CHUNK];
};

struct importer {
    pid_t pid;
    int socket;
};

/* Starts program on the device. */
int importer_start(struct importer *importer, const char *program, const char *uuid);
void importer_stop(struct importer *importer);

/* The calls return the driver's result: 0 is success. The fd is only lent. */
int importer_open(struct importer *importer, enum ring_export export_as, size_t bytes, int fd,
                  const uint8_t *ipc_handle);
int importer_read(struct importer *importer, size_t offset, void *data, size_t bytes);
/* Tries to write a byte. */
int importer_write(struct importer *importer, size_t offset);
int importer_close(struct importer *importer);

#endif
