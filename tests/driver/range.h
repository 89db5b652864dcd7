/*
 * The stand-in's record of memory: every allocation is a memfd, every mapping of
 * one, and every registration of host memory, is a range in one list. A memory
 * lives as long as its handle or a mapping does. All with the lock held.
 */
#ifndef PINSERVE_TESTS_RANGE_H
#define PINSERVE_TESTS_RANGE_H

#include "driver.h"
#include "proto/list.h"

enum range_kind { RANGE_RESERVED, RANGE_MAPPED, RANGE_ALLOCATED, RANGE_IPC, RANGE_REGISTERED };

struct memory {
    unsigned references;
    int fd;
    size_t bytes;
    bool exportable, charged;
};

struct range {
    struct list link;
    enum range_kind kind;
    uintptr_t address;
    size_t bytes;
    bool readable, writable;
    struct memory *memory;
};

extern struct list ranges;
extern size_t memory_used; /* of the devices */

struct memory *memory_new(size_t bytes);
/* A memory that another process made; the fd is taken over. */
struct memory *memory_adopt(int fd_consume, size_t bytes);
void memory_unref(struct memory *memory);

struct range *range_new(enum range_kind kind, uintptr_t address, size_t bytes);
void range_free(struct range *range);
/* The range of this kind that holds address. */
struct range *range_find(enum range_kind kind, uintptr_t address);

/* Maps all of memory as a range that owns it, with full access; and undoes it. */
CUresult range_map(enum range_kind kind, struct memory *memory, CUdeviceptr *pointer_p);
CUresult range_unmap(enum range_kind kind, CUdeviceptr pointer);

/* A call that wants a context, with the lock taken when it succeeds; and its way out. */
CUresult lock_enter(void);
CUresult leave(CUresult result);

#endif
