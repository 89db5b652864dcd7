/* Bytes as a file, for what reads files. */
#ifndef PINSERVE_TESTS_FUZZ_MEMORY_FILE_H
#define PINSERVE_TESTS_FUZZ_MEMORY_FILE_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The fd of a new memory file that holds the bytes; its position is at the start. */
static inline int memory_file(const void *bytes, size_t size)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    if (fd < 0 || pwrite(fd, bytes, size, 0) != (ssize_t)size)
        abort();
    return fd;
}

#endif
