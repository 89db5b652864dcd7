/**
 * @file pinclient.h
 * libpinclient: the client side of pinserve.
 *
 * A training process opens a job with the daemon of its node (pinserved) and
 * takes batches from it that are complete in the memory of its GPU, or in
 * page-locked host memory:
 *
 *     pinclient_spec_new(&spec);
 *     pinclient_spec_source(spec, "folder:/data/train");
 *     pinclient_spec_image(spec, "random-crop:224");
 *     pinclient_spec_batch(spec, 256);
 *     pinclient_connect(NULL, &client);
 *     pinclient_job_open(client, spec, &job);
 *     while (pinclient_next(job, -1, &batch) == 0) {
 *         pinclient_batch_tensor(batch, "image", &image);
 *         ... work on image.data, queued on stream ...
 *         pinclient_release(batch, stream);
 *     }
 *
 * Results. Every function that can fail returns 0 or a negative errno; positive
 * values are expected conditions, named here. Outputs come last and are set on
 * success only. The text of the last error, with the thing named, is kept by
 * the handle that the call was made on: pinclient_error().
 *
 * Threads. Calls on different jobs may run at the same time; calls on one job,
 * its batches included, must not, but for the deleters of tensors that
 * pinclient_batch_dlpack() exported, which any thread may call. A connection or a job must not be
 * used in a child after fork(): calls return -EPERM there, and the child's exit leaves the parent's
 * leases alone. A spec is plain memory and may be used there.
 *
 * CUDA. The library loads the driver at run time and uses the device's primary
 * context, the one that the CUDA runtime uses; the caller's current context
 * stays as it was. A `stream` is a CUstream or cudaStream_t of that device; NULL
 * is the (legacy) default stream.
 */
#ifndef PINCLIENT_H
#define PINCLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PINCLIENT_API __attribute__((visibility("default")))
#else
#define PINCLIENT_API
#endif

/** pinclient_next: an epoch has ended. Comes once, after the epoch's last batch; the next call
 *  returns the next epoch's first batch, which is already on its way. */
#define PINCLIENT_EPOCH_END 1

/** pinclient_release, pinclient_batch_use: no stream works on the batch, but for those that
 *  pinclient_batch_use() named. */
#define PINCLIENT_NO_STREAM ((void *)(intptr_t)-1)

struct pinclient;       /**< a connection to the daemon */
struct pinclient_spec;  /**< what a job wants */
struct pinclient_job;   /**< a job, with a connection of its own */
struct pinclient_batch; /**< a leased batch */

/** Element types of tensors. */
enum pinclient_dtype {
    PINCLIENT_U8 = 0,
    PINCLIENT_F32 = 1,
    PINCLIENT_I64 = 2,
    PINCLIENT_U64 = 3,
    PINCLIENT_I8 = 4,
    PINCLIENT_U16 = 5,
    PINCLIENT_I16 = 6,
    PINCLIENT_U32 = 7,
    PINCLIENT_I32 = 8,
    PINCLIENT_F16 = 9,
    PINCLIENT_F64 = 10,
    PINCLIENT_BF16 = 11,
};

/** Values of the tensor `status`, one a sample. */
enum pinclient_status {
    PINCLIENT_STATUS_OK = 0,
    PINCLIENT_STATUS_PADDING = 1,
    PINCLIENT_STATUS_SUBSTITUTE = 2,
    PINCLIENT_STATUS_BLANK = 3,
};

#define PINCLIENT_DIMS_MAX 8

/** A tensor of a batch. The memory is read-only and valid until the batch is released. */
struct pinclient_tensor {
    const char *name; /**< "image", "data" or "tokens"; "label", "index", "status" */
    const void *data; /**< device address, or host address with delivery host */
    enum pinclient_dtype dtype;
    uint32_t n_dims;                      /**< the batch dimension included */
    uint64_t shape[PINCLIENT_DIMS_MAX];   /**< shape[0] is the count of samples of this batch */
    uint64_t strides[PINCLIENT_DIMS_MAX]; /**< in bytes */
    uint64_t bytes;                       /**< of shape, without padding */
};

/** What a batch is. */
struct pinclient_batch_info {
    uint64_t epoch, step;
    uint32_t count; /**< samples; fewer than asked for only in the last batch of `partial` */
};

/** What a job got. */
struct pinclient_job_info {
    uint64_t id;          /**< the daemon's number, as pinctl shows it */
    uint64_t steps;       /**< batches of an epoch */
    uint64_t samples;     /**< of the dataset */
    uint32_t batch;       /**< samples of a full batch */
    uint32_t depth;       /**< batches that may be leased or waiting at a time */
    uint32_t n_tensors;   /**< of each batch, in layout order */
    const char *device;   /**< "host" or the GPU's UUID; valid as long as the job */
    const char *delivery; /**< "fd", "ipc", "copy", "host", "mapped"; may become "copy" on the way,
                           * when the daemon's process on the GPU is lost for good */
};

/** @return the library's version, "0.1.0"; static. */
PINCLIENT_API const char *pinclient_version(void);

/* -- connection ------------------------------------------------------------------------------ */

/**
 * Connects to the daemon.
 *
 * @param socket  path of its socket; NULL: $PINSERVE_SOCKET, else /run/pinserve/pinserve.sock,
 *                else $XDG_RUNTIME_DIR/pinserve.sock, the first that is there
 * @param client_p  the connection; close it with pinclient_close(). Set on error, too, when there
 * was memory for it, so that pinclient_error() can tell; NULL otherwise
 * @return 0; -ENOENT or -ECONNREFUSED: no daemon; -EACCES: not allowed (names path and group);
 *         -ENAMETOOLONG; -EPROTONOSUPPORT: no protocol version in common; -ETIMEDOUT: the daemon
 * does not answer within 30 s; -EPROTO: what answers is no daemon; -EPERM, -EDQUOT: it refuses
 */
PINCLIENT_API int pinclient_connect(const char *socket, struct pinclient **client_p);

/** Closes the connection. Jobs opened through it live on. NULL is allowed. */
PINCLIENT_API void pinclient_close(struct pinclient *client);

/* -- what a job wants ------------------------------------------------------------------------ */

/** Makes a spec with the defaults named below. @return 0 or -ENOMEM */
PINCLIENT_API int pinclient_spec_new(struct pinclient_spec **spec_p);
PINCLIENT_API void pinclient_spec_free(struct pinclient_spec *spec);

/**
 * The dataset, required.
 *
 * - `folder:DIR`: class folders, sorted by bytes, are the labels; image files beneath them
 * - `folder:DIR,list=FILE`: the files beneath DIR that FILE names, in its order; a path a line,
 *   relative to DIR, then blanks and an integer, the label, or nothing (on all lines: label is -1).
 *   Other files than images are found when they are decoded
 * - `tar:PATTERN`: WebDataset shards; PATTERN is a path with `{000..099}` ranges (taken in the
 *   order of counting, the last range fastest), a glob (its files sorted by bytes), or both. A
 *   sample is the image among the members of one key (jpg, jpeg, png, webp); label is the integer
 *   in `cls`, or -1
 * - `tar:PATTERN,fields=F+F+...`: what of a sample is wanted; a sample that lacks a field is an
 *   error. F is what a member's name has behind the first dot of its base name:
 *   - `jpg`, `seg.png`, ... or `image` (whichever is there): tensor "image", the first; at most one
 *   - `cls`: label, which is -1 without
 *   - `npy`, `emb.npy`, ...: tensor of that name, of the type and shape of the first sample's array
 *   - any field with `:N`, like `json:4096`: its bytes, tensor of that name, uint8 [batch, N] with
 *     zeros behind, and how many there are, tensor "json.size", int32 [batch]. A sample with more
 *     is bad
 *
 *   Without an image the first field but `cls` is the first tensor
 * - `records:FILE.npy` or, for a raw file, `records:FILE:SHAPE:DTYPE` (like 3x224x224 and u8, i8,
 *   u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64): one sample for each element of the first
 *   dimension, tensor "data" of its type and shape. `,labels=FILE.npy` behind it names an array of
 *   integers, one a sample; label is -1 without
 * - `tokens:PATTERN[:u16|u32|i32][,OPTION]...`: files of integers; a sample is a window of seq + 1
 *   of them (see pinclient_spec_seq()) within one file, tensor "tokens" of int32. label is -1. What
 *   a file is its bytes tell, and files of a pattern may differ:
 *   - one of llm.c: behind 1,024 bytes with the magic number 20240520 and version 1 uint16, with
 *     20240801 and any version from 1 on uint32. The header is never taken for tokens, and their
 *     number in it must agree with the file's size
 *   - one of Megatron-LM: STEM.bin with its index STEM.idx beside it, either of which is named;
 *     uint16 or int32. The index says where documents begin
 *   - else bare integers, of type u16 unless another one is given
 *
 *   A type or an offset that a header or an index contradicts is refused. A bare file and one of
 *   llm.c are one document. Options:
 *   - `stride=N`: windows begin every N tokens; default seq. `random` (or `stride=random`): at
 *     random places, anew in each epoch, which has as many as with a stride of seq
 *   - `out=i64`: of int64
 *   - `vocab=N`: a token that is not below N is a bad sample
 *   - `offset=N`: bare files begin with N bytes that are no tokens
 *   - `documents=within`: windows begin at the stride (or at random) inside each document and end
 *     in it; shorter documents are left out. `across` (default): the file's tokens as they lie
 *   - `position`, `document`: further tensors, int64 [batch, seq + 1]: the index of each token in
 *     its document, and the number of its document, counted from 0 over all files in their order
 * - `tokens:blend=WEIGHT:PATTERN[,WEIGHT:PATTERN]...[,OPTION]...`: parts that are mixed by weight.
 *   A weight is a decimal above 0 with at most nine digits behind the point; a type may stand
 *   behind each pattern, and is the same for all. An epoch has N samples, as many as all parts
 *   together. Weights become whole numbers W of sum T: reduced, if T is then at most 65,536; else T
 *   is 65,536, shared out by largest remainders, and each part has at least 1. A table of T places
 *   holds part k W[k] times: place p goes, of the parts k whose count c so far has c * T < (p + 1)
 *   * W[k], to the one with the smallest (c + 1) / W[k], of equal ones the first; so at every place
 *   a count is less than one away from its share. Sample s is drawn from part k = table[s mod T].
 *   It is draw number j = (s div T) * W[k] + (places of k before s mod T) of the epoch, and, with
 *   M[k] draws an epoch, g = epoch * M[k] + j of all. Of the part's n[k] samples it is number g mod
 *   n[k] in pass g div n[k]; with shuffle `full` it is what stands there in the pass's permutation
 *   of the part. So each sample of a part comes once before any comes twice, small parts repeat
 *   within an epoch, and large ones go on in the next. With random windows each begins anywhere in
 *   its part
 * - `synthetic:SHAPE[:u8|f32[:N]]`: N samples (65,536) of a shape like 3x224x224, of pseudo-random
 *   values that depend on the sample's number only
 *
 * Files are opened by pinclient_job_open(), by this process.
 * @return 0 or -EINVAL
 */
PINCLIENT_API int pinclient_spec_source(struct pinclient_spec *spec, const char *source);

/**
 * In the place of pinclient_spec_source(): the batches are filled by this process, or by others
 * that it shares the slots with, see pinclient_slot_acquire(). The order of samples is the
 * caller's; shuffle becomes `none` and last `partial`. Each tensor of a batch is then named by
 * pinclient_spec_push_tensor().
 *
 * A slot's bytes are not kept: with a GPU that is lost, or a daemon that ends, the job ends.
 *
 * @param name     for people
 * @param samples  of an epoch
 * @return 0, -EINVAL or -ENOMEM
 */
PINCLIENT_API int pinclient_spec_push(struct pinclient_spec *spec, const char *name,
                                      uint64_t samples);

/** A tensor of the batches that are pushed: 1 to 16 of them. shape is of one sample, with n_dims
 *  dimensions from 0 to 7. @return 0, -EINVAL or -ENOMEM */
PINCLIENT_API int pinclient_spec_push_tensor(struct pinclient_spec *spec, const char *name,
                                             enum pinclient_dtype dtype, uint32_t n_dims,
                                             const uint64_t *shape);

/** Length of token sequences, required for tokens and for nothing else: samples have one token
 * more, so that inputs and targets are the same window, shifted. @return 0 or -EINVAL */
PINCLIENT_API int pinclient_spec_seq(struct pinclient_spec *spec, uint32_t seq);

/**
 * What images become: uint8, height x width x 3 (RGB).
 *
 * - `random-crop:S[,area=A..B][,ratio=A..B]`: a random box of 0.08 to 1 of the image's area and
 *   3/4 to 4/3 as wide as high, resized to S x S pixels. A and B are written 0.08 or 3/4
 * - `center-crop:S[:R]`: shorter side to R pixels (S * 8/7, 256 for 224), then the middle S x S
 * - `none` (default): no decoding; for sources of raw samples
 *
 * Both crops take `,filter=bicubic` (instead of bilinear) and `,orient=exif` behind them: images
 * are turned upright first, as their EXIF orientation says, instead of being taken as stored.
 *
 * @return 0 or -EINVAL
 */
PINCLIENT_API int pinclient_spec_image(struct pinclient_spec *spec, const char *image);

/** Probability of a horizontal flip, 0 (default) to 1, in steps of a millionth. @return 0 or
 *  -EINVAL */
PINCLIENT_API int pinclient_spec_flip(struct pinclient_spec *spec, double probability);

/** Samples of a batch, of this rank; default 1. @return 0 or -EINVAL */
PINCLIENT_API int pinclient_spec_batch(struct pinclient_spec *spec, uint32_t batch);

/** `cuda:N` (N as this process counts, after CUDA_VISIBLE_DEVICES), a GPU's UUID or a unique prefix
 *  of it ("GPU-8f1c"; "MIG-8f1c" for a part of a GPU that this process sees), `host`, or `auto`
 *  (default): this process's first GPU, else the host.
 *  @return 0 or -EINVAL */
PINCLIENT_API int pinclient_spec_device(struct pinclient_spec *spec, const char *device);

/**
 * How batches are handed over. The bytes are the same, and so is what a release means.
 *
 * - `auto` (default): on a GPU the first of `fd`, `ipc`, `copy` that works, or `mapped` where the
 * GPU shares the host's memory; on the host `host`. pinctl tells which, and why
 * - `fd`, `ipc`: complete in memory of the GPU that the daemon filled: shared as a file descriptor,
 *   or as a CUDA IPC handle
 * - `copy`: in memory of the GPU that is this process's own. The library copies, on a stream of its
 *   own, up to `depth` batches ahead; copies are started by calls on the job, and as soon as a
 * batch is announced when pinclient_next() waits
 * - `host`: in page-locked host memory
 * - `mapped`: in page-locked host memory, at addresses of the GPU, which reads it over the link
 *
 * Another one than `auto` is tried alone.
 * @return 0 or -EINVAL
 */
PINCLIENT_API int pinclient_spec_delivery(struct pinclient_spec *spec, const char *delivery);

/** Batches that are prefetched or leased at a time, 1 to 128; default 4. @return 0 or -EINVAL */
PINCLIENT_API int pinclient_spec_depth(struct pinclient_spec *spec, uint32_t depth);

/** Key of the order and of every random choice; default 0. @return 0 */
PINCLIENT_API int pinclient_spec_seed(struct pinclient_spec *spec, uint64_t seed);

/** `full` (default) or `none`. @return 0 or -EINVAL */
PINCLIENT_API int pinclient_spec_shuffle(struct pinclient_spec *spec, const char *shuffle);

/** The end of an epoch that does not divide: `drop` (default), `pad`, `partial`.
 *  @return 0 or -EINVAL */
PINCLIENT_API int pinclient_spec_last(struct pinclient_spec *spec, const char *last);

/**
 * What becomes of a sample whose bytes are bad: damaged, cut off, empty, no image, too large.
 *
 * - `fail` (default): the job ends, naming the sample
 * - `substitute`: the first readable sample behind it in the epoch's order takes its place, of at
 *   most 64, whoever's rank that is; `index` and `label` are the substitute's
 * - `blank`: zeros; `index` stays, and `label` where it is known without reading the sample
 *
 * The tensor `status` marks the sample, also where it would be padding. Behind the last two may
 * stand how many are borne in an epoch of this rank, counted in step order from where the job
 * starts: `substitute:100` or `blank:0.5%`. More of them end the job. Storage that fails is no bad
 * sample: it ends the job. `pinctl jobs --bad JOB` lists what was bad.
 * @return 0 or -EINVAL
 */
PINCLIENT_API int pinclient_spec_bad(struct pinclient_spec *spec, const char *bad);

/** This process's share: rank of world; default 0 of 1. @return 0 or -EINVAL */
PINCLIENT_API int pinclient_spec_shard(struct pinclient_spec *spec, uint32_t rank, uint32_t world);

/** Starts at a batch; default (0, 0). Undoes a token. @return 0 */
PINCLIENT_API int pinclient_spec_start(struct pinclient_spec *spec, uint64_t epoch, uint64_t step);

/**
 * Starts where the furthest of the jobs is that this one can share batches with: of the same user,
 * over the same data, by a spec that differs in nothing but device, delivery, depth, name and
 * start. Such jobs decode a batch once when they are at about the same step. With no such job the
 * start is (0, 0). Undoes a start and a token. @return 0
 */
PINCLIENT_API int pinclient_spec_live(struct pinclient_spec *spec);

/** Resumes where a token of pinclient_job_token() says. Undoes a start.
 *  @return 0 or -EINVAL when it is no token */
PINCLIENT_API int pinclient_spec_token(struct pinclient_spec *spec, const char *token);

/**
 * Whether the job goes on when its daemon is gone and another one is there, or the same again:
 * default not, and pinclient_next() is then -EPIPE. When on, pinclient_next() waits for a daemon at
 * the socket that the connection used, no longer than its timeout, and goes on there with the first
 * step that it has not returned, with the same bytes and ends of epochs. Meanwhile
 * pinclient_error() tells what is amiss.
 *
 * - The search goes on between the calls, in a thread that takes no signals. It opens the dataset's
 *   files again by the names given, as pinclient_job_open() does.
 * - Leases stay as they are until they are released, which is 0; the new job has all of its `depth`
 *   besides. Their memory goes with the last of them. id and delivery may be others then.
 * - What can never go well is final, and its text begins with "after reconnecting": data that are
 *   not the same, no access to them, a device that is gone; when it stays so for 5 s also a socket
 *   without permission, a device out of service, and a lack of memory or of room in a limit. So is
 *   what the daemon said while it was there, like that the job was evicted.
 * - The limit of pinclient_spec_bad() counts anew.
 *
 * @return 0; -EINVAL: source push, whose batches end with the daemon
 */
PINCLIENT_API int pinclient_spec_reconnect(struct pinclient_spec *spec, int on);

/** A name for people, shown by pinctl; default the program's. @return 0 or -ENOMEM */
PINCLIENT_API int pinclient_spec_name(struct pinclient_spec *spec, const char *name);

/* -- job ------------------------------------------------------------------------------------- */

/**
 * Opens a job and waits until its first batch is being made: the dataset is indexed, memory is
 * reserved, the ring is mapped.
 *
 * Indexing a large dataset takes its time. A signal whose handler was installed without SA_RESTART
 * ends the wait with -EINTR; nothing is left open then.
 *
 * @param client  tells which daemon; the job has a connection of its own. Errors are kept here
 * @param spec    stays the caller's
 * @return 0; -EINVAL (a value, or a token for other data); -ENOENT, -EACCES (data); -ENODEV
 * (device); -ESHUTDOWN (device out of service); -EDQUOT, -ENOMEM (limits, memory); -EOPNOTSUPP
 *         (delivery); -EIO (CUDA refused); -EPIPE (daemon gone); -EINTR; -EPROTO (the daemon
 * contradicts itself)
 */
PINCLIENT_API int pinclient_job_open(struct pinclient *client, const struct pinclient_spec *spec,
                                     struct pinclient_job **job_p);

/** Tells what the job got. @return 0 */
PINCLIENT_API int pinclient_job_info(const struct pinclient_job *job,
                                     struct pinclient_job_info *info_p);

/**
 * Takes the next batch, in step order.
 *
 * @param timeout_ms  how long to wait: 0 not at all, negative without end
 * @param batch_p     a lease; give it back with pinclient_release()
 * @return 0; PINCLIENT_EPOCH_END; -ETIMEDOUT; -EINTR (a signal); -EBUSY: all `depth` batches are
 *         leased, so that none can come; or an error that is final for the job: -EPIPE (the daemon
 *         is gone; see pinclient_spec_reconnect()), -EBADMSG (a bad sample, or too many), -EPROTO
 * (the daemon contradicts itself), -ECANCELED (evicted), -ESHUTDOWN (its device is taken out of
 * service), others of the daemon. -EPERM in a forked child
 */
PINCLIENT_API int pinclient_next(struct pinclient_job *job, int timeout_ms,
                                 struct pinclient_batch **batch_p);

/** @return a file descriptor that is readable when pinclient_next() has something: a batch, the end
 * of an epoch, a final error. It may also be readable when there turns out to be nothing: then next
 *  with timeout 0 is -ETIMEDOUT. It does not become readable because all batches are leased, which
 *  next would answer with -EBUSY. For poll; it stays the job's. -EPERM in a forked child */
PINCLIENT_API int pinclient_get_fd(const struct pinclient_job *job);

/**
 * Writes a token from which this job, or another rank's of it, can be resumed: behind the last
 * batch that pinclient_next() returned. After an epoch's last batch it resumes with
 * PINCLIENT_EPOCH_END.
 *
 * @param text    room for NUL-terminated text
 * @param size_p  its size on entry, the bytes needed on return
 * @return 0 or -ENOSPC
 */
PINCLIENT_API int pinclient_job_token(const struct pinclient_job *job, char *text, size_t *size_p);

/** Closes the job; waits for no stream, and for the daemon's answer only (at most a second, when it
 * is stopped). Batches that are still leased stay valid until they are released, with the functions
 *  below, and all else that belongs to the job lives until then. NULL is allowed. */
PINCLIENT_API void pinclient_job_close(struct pinclient_job *job);

/* -- slots that are filled here --------------------------------------------------------------- */

/** A slot of page-locked memory, to be filled with one batch. */
struct pinclient_slot {
    uint32_t number, generation;
    uint64_t epoch, step; /**< of the batch that it is for */
    uint32_t count;       /**< its samples; may be lowered for pinclient_slot_commit() */
    void *data;           /**< writable here; the tensors lie as pinclient_slot_tensor() says */
    uint64_t bytes;
    int fd;                /**< of the region: it stays the job's, and may be mapped writable by */
    uint64_t offset;       /**< other processes, where the slot begins at this offset */
    uint32_t region;       /**< the region's number */
    uint64_t region_bytes; /**< the region's size */
};

/**
 * Takes a slot for the next batch that has none, in the order of steps. Several may be filled at a
 * time, by any process that has the slot's memory, and committed in any order; pinclient_next()
 * gives the batches in step order, each as soon as it is complete where the job delivers.
 *
 * @param timeout_ms  as for pinclient_next()
 * @return 0; -ETIMEDOUT; -EINTR; -EBUSY: all slots are being filled, or hold batches that are not
 *         yet taken and released; -EINVAL: the job is not one of pinclient_spec_push(); or an error
 *         that is final for the job. -EPERM in a forked child
 */
PINCLIENT_API int pinclient_slot_acquire(struct pinclient_job *job, int timeout_ms,
                                         struct pinclient_slot *slot_p);

/** Tensor i of a slot in layout order, for slot->count samples; its data may be written to.
 *  -ERANGE. */
PINCLIENT_API int pinclient_slot_tensor(const struct pinclient_job *job,
                                        const struct pinclient_slot *slot, uint32_t i,
                                        struct pinclient_tensor *tensor_p);

/**
 * The slot is filled: nothing may write to it any more. With an error, it never will be: the job
 * fails with that text, after the batches before.
 *
 * @param error  NULL, or text
 * @return 0; -EINVAL: it is not being filled, or the count is wrong; -EPIPE: the daemon is gone;
 * -EPERM in a forked child
 */
PINCLIENT_API int pinclient_slot_commit(struct pinclient_job *job,
                                        const struct pinclient_slot *slot, const char *error);

/* -- batch ----------------------------------------------------------------------------------- */

/** @return 0 */
PINCLIENT_API int pinclient_batch_info(const struct pinclient_batch *batch,
                                       struct pinclient_batch_info *info_p);

/** A tensor by name; -ENOENT names those that there are. */
PINCLIENT_API int pinclient_batch_tensor(const struct pinclient_batch *batch, const char *name,
                                         struct pinclient_tensor *tensor_p);

/** Tensor i in layout order; -ERANGE. */
PINCLIENT_API int pinclient_batch_tensor_at(const struct pinclient_batch *batch, uint32_t i,
                                            struct pinclient_tensor *tensor_p);

/**
 * Names a further stream whose work so far must pass before the batch is reused.
 * @return 0; -EBUSY: the stream is being captured; -EIO: CUDA refused, in words
 */
PINCLIENT_API int pinclient_batch_use(struct pinclient_batch *batch, void *stream);

/**
 * Gives a batch back, behind the work that is on stream now: the call does not wait, and the stream
 * is not held up. The batch is consumed, on errors too.
 *
 * A job on device `host` knows no streams: its batches go at once, whatever `stream` is. Who copies
 * from them with CUDA waits before the release, or asks for the GPU with delivery `host`, where
 * releases follow streams.
 *
 * @param stream  what works on the batch; PINCLIENT_NO_STREAM: nothing does
 * @return 0; -EBUSY: the stream is being captured, and the lease stays; -EIO: CUDA refused, in
 * words (the call then waited until the device had nothing left to do); -EPIPE: the daemon is gone;
 *         -EINVAL: it was released already; -EPERM in a forked child
 */
PINCLIENT_API int pinclient_release(struct pinclient_batch *batch, void *stream);

/* -- tensors for other libraries -------------------------------------------------------------- */

/** pinclient_batch_dlpack: a DLManagedTensorVersioned, version 1.0, that is marked read-only. */
#define PINCLIENT_DLPACK_VERSIONED 1u

/**
 * Exports a tensor of a batch by DLPack, without a copy. PyTorch, CuPy, JAX, NumPy and others take
 * it. The batch stays leased until it was released and the deleter of each of its exported tensors
 * was called, in any order: so there is no need to know which tensor is the last. The deleter may
 * be called from any thread, behind pinclient_job_close() too, and does nothing in a forked child.
 *
 * The device is the GPU as the CUDA runtime counts in this process, or the CPU. Type uint64 is
 * exported as int64, which all libraries know; sample numbers are far smaller. The older form of
 * DLPack cannot say that the memory is read-only: it is so there, too.
 *
 * @param name       of the tensor
 * @param flags      0 or PINCLIENT_DLPACK_VERSIONED
 * @param managed_p  a DLManagedTensor (DLManagedTensorVersioned) with its deleter
 * @return 0; -ENOENT names the tensors that there are; -EINVAL: the batch was given back already;
 *         -ENOMEM; -EPERM in a forked child
 */
PINCLIENT_API int pinclient_batch_dlpack(struct pinclient_batch *batch, const char *name,
                                         unsigned flags, void **managed_p);

/**
 * Names a stream that will work on the batch: what is on it when the batch goes must pass before
 * the batch is reused. For batches that are given back by a deleter, which knows no stream. When
 * the stream is being captured at that time, the batch goes with the next call that takes or
 * closes. The stream must exist until then.
 * @return 0; -ENOMEM; -EPERM in a forked child
 */
PINCLIENT_API int pinclient_batch_follow(struct pinclient_batch *batch, void *stream);

/* -- images ---------------------------------------------------------------------------------- */

#define PINCLIENT_CHANNELS_MAX 4

/** Order of the dimensions of what pinclient_transform() writes. */
enum pinclient_layout {
    PINCLIENT_NCHW = 0,
    PINCLIENT_NHWC = 1,
};

/** pinclient_transform: gives the batch back behind its work, as pinclient_release(). */
#define PINCLIENT_RELEASE 1u

/** What becomes of images: (x / 255 - mean) / std of their channel, computed as if in double
 *  precision and rounded once, to the nearest of dtype. Unused members are 0. */
struct pinclient_transform {
    enum pinclient_dtype dtype;   /**< PINCLIENT_F32, PINCLIENT_F16 or PINCLIENT_BF16 */
    enum pinclient_layout layout; /**< of the output */
    uint32_t channels;            /**< of mean and std: those of the tensor, else -EINVAL. 0: as
                                       many as the tensor has, 4 at most */
    uint32_t flags;               /**< 0 or PINCLIENT_RELEASE */
    double mean[PINCLIENT_CHANNELS_MAX]; /**< of values from 0 to 1, like those of torchvision's
                                              Normalize */
    double std[PINCLIENT_CHANNELS_MAX];  /**< not 0 */
    const uint8_t *flip; /**< a byte a sample, other than 0: mirror it left to right. NULL: none.
                              Host memory, which is read before the call returns, or memory of the
                              GPU, which is read by the work on the stream */
};

/**
 * Turns the images of a batch, uint8 height x width x channels, into what a network takes: one
 * kernel on stream, or, where the batch lies in host memory (device or delivery `host`), on this
 * thread before the call returns.
 *
 * The samples of the batch lie in out one behind the other without gaps, as many as
 * pinclient_batch_info() counts. The call does not wait for the stream, and may be captured into a
 * graph when it has no PINCLIENT_RELEASE; a graph repeats it with the addresses, and the flip flags
 * of host memory, of this call.
 *
 * @param name    of the tensor: "image", "data"
 * @param out     memory of the caller: the GPU's, or the host's where the batch lies there; aligned
 *                to an element, and fastest when aligned to 16 bytes with a width that is a
 *                multiple of 16 bytes of elements
 * @param stream  where the kernel runs, and behind which PINCLIENT_RELEASE gives the batch back
 * @return 0; -ENOENT: no such tensor; -EINVAL: names what of the spec or the tensor does not fit;
 *         -EOPNOTSUPP: this library has no kernel for the GPU (built without nvcc, or none that
 *         fits its compute capability); -EIO: CUDA refused, in words; -ENOMEM; -EPERM in a forked
 *         child. The batch stays leased on these. With PINCLIENT_RELEASE also what
 *         pinclient_release() returns, with the batch as that leaves it, -EBUSY before anything
 *         was queued
 */
PINCLIENT_API int pinclient_transform(struct pinclient_batch *batch, const char *name, void *out,
                                      const struct pinclient_transform *spec, void *stream);

/* -- errors ---------------------------------------------------------------------------------- */

/** @return the text of the last error of a call on this handle (struct pinclient, pinclient_spec or
 *  pinclient_job), never NULL; valid until the next call on it. */
PINCLIENT_API const char *pinclient_error(const void *handle);

#ifdef __cplusplus
}
#endif

#endif
