/*
 * The bounds that both ends of the protocol hold. What an operator may change
 * is in the configuration instead.
 */
#ifndef PINSERVE_LIMITS_H
#define PINSERVE_LIMITS_H

#define PROTOCOL_MAJOR 1
#define PROTOCOL_MINOR_MIN 0
#define PROTOCOL_MINOR_MAX 1 /* 1: Evict, Drain */

#define MESSAGE_MAX 65536    /* bytes of one packet */
#define MESSAGE_FDS_MAX 64   /* fds beside one packet */
#define DATASET_FDS_MAX 4096 /* fds of one dataset, over all its packets */
#define DEPTH_MAX 128        /* ring slots of a job */
#define BATCH_MAX (1u << 20) /* samples of a batch */
#define TENSORS_MAX 16
#define DIMS_MAX 8 /* the batch dimension is one of them */
#define NAME_MAX_BYTES 4096
#define TENSOR_ALIGN 512   /* bytes, offset of a tensor in its slot */
#define SLOT_ALIGN 4096    /* bytes, size of a slot */
#define RING_ALIGN 2097152 /* bytes, size of a ring */

#endif
