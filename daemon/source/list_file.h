/*
 * File lists, as text: a path a line, and a label behind it or not. What the
 * paths lead to is no matter of this file.
 */
#ifndef PINSERVE_SOURCE_LIST_FILE_H
#define PINSERVE_SOURCE_LIST_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/failure.h"

#define LIST_LINE_MAX (PATH_MAX - 1) /* bytes of a line, without its end */
#define LIST_BUFFER_BYTES ((size_t)64 << 10)

/* One line that is not empty. */
struct list_entry {
    const char *path; /* within the reader, until the next call */
    bool has_label;
    int64_t label;
};

/* Zero-initialised but for name, read and user. */
struct list_reader {
    const char *name; /* of the list, for failures; borrowed */
    /* Up to size further bytes. Returns how many, 0 at the end, or a negative errno. */
    int (*read)(void *user, void *bytes, size_t size);
    void *user;
    uint64_t line; /* that was taken last; the first is 1 */
    uint64_t entries;
    bool labelled; /* whether the entries so far have labels */
    bool ended;
    size_t begin, end; /* in buffer: what is not taken yet */
    char buffer[LIST_BUFFER_BYTES + 1];
};

/* Takes the next entry. 1: there is one; 0: the end; -EINVAL, and what read returns, in words that
 * name list and line. An entry either has a label as all before it, or none as all before it. */
int list_next(struct list_reader *reader, struct list_entry *entry_p, struct failure *failure);

#endif
