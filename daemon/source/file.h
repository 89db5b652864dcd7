/*
 * Files of a dataset, as a client passed them: kept open, read by pread at any
 * offset, never mapped for the CPU, and told from others that have their name.
 */
#ifndef PINSERVE_SOURCE_FILE_H
#define PINSERVE_SOURCE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "proto/failure.h"

struct source_file {
    int fd;         /* ours */
    char *name;     /* as the client wrote it */
    struct stat st; /* when it was taken */
};

#define SOURCE_FILE_INIT                                                                           \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* Keeps a description of fd, which must be of a regular file open for plain reading. what is the
 * kind of file, for failures. */
int source_file_take(struct source_file *file, const char *what, int fd, const char *name,
                     struct failure *failure);
void source_file_deinit(struct source_file *file);

static inline uint64_t source_file_bytes(const struct source_file *file)
{
    return (uint64_t)file->st.st_size;
}

/* Behind the last slash of its name. */
const char *source_file_base(const struct source_file *file);

/* Whether fd, by that name, is the same file with the same size and times. */
bool source_file_matches(const struct source_file *file, int fd, const char *name);

/* Whether the file is as long as it was when it was taken, or longer. */
bool source_file_whole(const struct source_file *file);

#endif
