/*
 * The checksum of a job's batches: XXH64 over the batches in the order they are added, of each its
 * tensors in layout order, of each tensor the bytes of its `count` samples and no padding. What
 * decides it is the data alone, not where it lies: bytes on a device are copied to the host first.
 */
#ifndef PINCTL_CHECKSUM_H
#define PINCTL_CHECKSUM_H

#include <stdbool.h>
#include <stdint.h>

#include "pinclient.h"
#include "proto/failure.h"

struct checksum;

/* device: where the tensors lie, "host" or a GPU's UUID; it is a GPU's only when its delivery is
 * not host. -ENOMEM; -ENODEV. */
int checksum_new(const char *device, struct checksum **checksum_p, struct failure *failure);
void checksum_free(struct checksum *checksum);

/* Adds a batch of n_tensors tensors. -ENOMEM; -EIO: the device refused the copy. */
int checksum_add(struct checksum *checksum, const struct pinclient_batch *batch, uint32_t n_tensors,
                 struct failure *failure);

/* Adds one tensor whose bytes are at data, on the host. */
void checksum_add_tensor(struct checksum *checksum, const struct pinclient_tensor *tensor,
                         const void *data);

uint64_t checksum_value(const struct checksum *checksum);

/* Bytes from a tensor's first to its last, padding between them included. */
uint64_t checksum_span(const struct pinclient_tensor *tensor);

#endif
