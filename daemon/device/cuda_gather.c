/*
 * Gathers: records of registered files, one behind the other into a ring, in as
 * few calls as the windows allow.
 *
 * A gather is cut into fragments, each within one window (the driver refuses a
 * copy across two registrations). Fragments whose windows are ready go out at
 * once; for the others the gather waits, and takes each window as it comes: so
 * that it needs no more of them at a time than the bound holds.
 *
 * Whoever ends the last part of a gather ends the gather: it asks whether a
 * record was cut off meanwhile, and reports. The pages that were copied are
 * pinned; what a shorter file does to them is their content at worst.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "cuda_internal.h"
#include "proto/cleanup.h"
#include "range.h"

#define BATCH_COPIES_MAX 1024 /* of one call to the driver */

struct fragment {
    struct cuda_window *window;
    uint64_t offset; /* in the window */
    uint64_t target; /* in the ring */
    uint64_t bytes;
};

/* A file of a gather, and the end of its last record there. */
struct gather_file {
    struct cuda_file *file;
    uint64_t end;
};

/* Bytes of a region, which go with the first of the fragments. */
struct rest {
    struct cuda_region *region; /* NULL: none */
    uint64_t offset, target, bytes;
    bool is_sent;
};

struct cuda_gather {
    struct list link; /* in cuda->gathers, while fragments wait for windows */
    struct cuda *cuda;
    struct cuda_ring *ring;
    uint64_t cookie, range;
    atomic_uint holds; /* the command loop's, and one a call under way */
    struct failure failure;
    uint32_t n_files, n_fragments;
    uint32_t n_sent; /* the first of the fragments */
    struct gather_file *files;
    struct rest rest;
    struct fragment fragments[];
};

/* What the host function behind some fragments knows; it frees it. */
struct gather_note {
    struct cuda_gather *gather;
    uint32_t first, end;
};

/* -- its end ---------------------------------------------------------------------------------- */

static bool gather_is_cut(struct cuda_gather *gather, struct failure *failure)
{
    for (uint32_t i = 0; i < gather->n_files; i++) {
        const struct cuda_file *file = gather->files[i].file;
        uint64_t size = cuda_file_size(file);

        if (size >= gather->files[i].end)
            continue;
        failure_set(failure, -ENODATA,
                    "file %" PRIu32 " was cut off to %" PRIu64 " bytes while records up to %" PRIu64
                    " were copied",
                    file->id, size, gather->files[i].end);
        return true;
    }
    return false;
}

static void gather_free(struct cuda_gather *gather)
{
    free(gather->files);
    free(gather);
}

/* Gives up one hold; the last one ends the gather. From any thread. */
static void gather_release(struct cuda_gather *gather)
{
    struct cuda *cuda = gather->cuda;

    if (atomic_fetch_sub(&gather->holds, 1) > 1)
        return;
    bool failed = gather->failure.code < 0 || gather_is_cut(gather, &gather->failure);
    range_end(gather->range);
    cuda->events->copied(gather->cookie, failed ? &gather->failure : NULL);
    for (uint32_t i = 0; i < gather->n_files; i++)
        atomic_fetch_sub(&gather->files[i].file->busy, 1);
    atomic_fetch_sub(&gather->ring->busy, 1);
    atomic_fetch_sub(&cuda->busy, 1);
    if (gather->rest.region)
        atomic_fetch_sub(&gather->rest.region->busy, 1);
    cuda_files_notify(&cuda->files);
    gather_free(gather);
}

static void fragments_end(struct cuda_gather *gather, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        atomic_fetch_sub(&gather->fragments[i].window->busy, 1);
}

static void CUDA_CB gather_on_copied(void *user)
{
    struct gather_note *note = user;
    struct cuda *cuda = note->gather->cuda;

    fragments_end(note->gather, note->first, note->end);
    cuda_files_notify(&cuda->files);
    gather_release(note->gather);
    free(note);
}

/* -- sending ---------------------------------------------------------------------------------- */

static CUresult fragments_copy_each(struct cuda_gather *gather, uint32_t first, uint32_t end)
{
    CUresult result = CUDA_SUCCESS;

    for (uint32_t i = first; i < end && result == CUDA_SUCCESS; i++) {
        const struct fragment *fragment = &gather->fragments[i];

        result =
            driver.cuMemcpyHtoDAsync(gather->ring->address + fragment->target,
                                     (const char *)fragment->window->address + fragment->offset,
                                     fragment->bytes, gather->cuda->copies);
    }
    return result;
}

static CUresult fragments_copy_batch(struct cuda_gather *gather, uint32_t first, uint32_t end)
{
    static CUdeviceptr targets[BATCH_COPIES_MAX], origins[BATCH_COPIES_MAX];
    static size_t sizes[BATCH_COPIES_MAX];
    CUmemcpyAttributes attributes = {
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE,
    };
    uint32_t n = end - first;

    for (uint32_t i = 0; i < n; i++) {
        const struct fragment *fragment = &gather->fragments[first + i];

        targets[i] = gather->ring->address + fragment->target;
        origins[i] =
            (CUdeviceptr)(uintptr_t)((const char *)fragment->window->address + fragment->offset);
        sizes[i] = fragment->bytes;
    }
    return cuda_copy_batch(targets, origins, sizes, n, &attributes, gather->cuda->copies);
}

static CUresult rest_copy(struct cuda_gather *gather)
{
    struct rest *rest = &gather->rest;

    if (!rest->region || rest->is_sent)
        return CUDA_SUCCESS;
    rest->is_sent = true;
    return driver.cuMemcpyHtoDAsync(gather->ring->address + rest->target,
                                    (const char *)rest->region->address + rest->offset, rest->bytes,
                                    gather->cuda->copies);
}

static CUresult fragments_copy(struct cuda_gather *gather, uint32_t first, uint32_t end)
{
    struct cuda *cuda = gather->cuda;
    CUresult result = CUDA_SUCCESS;

    if (!atomic_load(&gather->ring->is_zeroed))
        result = driver.cuStreamWaitEvent(cuda->copies, gather->ring->zeroed, 0);
    if (result == CUDA_SUCCESS)
        result = rest_copy(gather);
    if (!cuda_can_copy_batch())
        return result == CUDA_SUCCESS ? fragments_copy_each(gather, first, end) : result;
    for (uint32_t i = first; i < end && result == CUDA_SUCCESS; i += BATCH_COPIES_MAX)
        result = fragments_copy_batch(gather, i,
                                      end - i < BATCH_COPIES_MAX ? end : i + BATCH_COPIES_MAX);
    /* The driver has the call, the device may lack it. */
    return result == CUDA_ERROR_NOT_SUPPORTED ? fragments_copy_each(gather, first, end) : result;
}

/* Sends fragments whose windows are ready and held. */
static void fragments_send(struct cuda_gather *gather, uint32_t first, uint32_t end)
{
    struct gather_note *note = malloc(sizeof *note);
    CUresult result = note ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    if (note)
        *note = (struct gather_note){.gather = gather, .first = first, .end = end};
    atomic_fetch_add(&gather->holds, 1);
    if (result == CUDA_SUCCESS)
        result = fragments_copy(gather, first, end);
    if (result == CUDA_SUCCESS)
        result = cuda_report(gather->cuda, gather_on_copied, note);
    if (result == CUDA_SUCCESS)
        return;
    cuda_failure(&gather->failure, result, "a gather of %" PRIu32 " pieces into ring %" PRIu64,
                 end - first, gather->ring->id);
    free(note);
    /* The context is lost: that is what is told, and no gather's end any more. */
    if (cuda_check(gather->cuda, NULL) < 0) {
        gather->cuda->is_lost = true;
        return;
    }
    /* Some of them may be under way. */
    driver.cuStreamSynchronize(gather->cuda->copies);
    fragments_end(gather, first, end);
    gather_release(gather);
}

/* Takes the windows that are ready to the front of what is not sent, and holds them. */
static uint32_t fragments_take_ready(struct cuda_gather *gather)
{
    struct cuda_files *files = &gather->cuda->files;
    uint32_t end = gather->n_sent;

    for (uint32_t i = gather->n_sent; i < gather->n_fragments; i++) {
        struct cuda_window *window = gather->fragments[i].window;
        struct fragment fragment = gather->fragments[i];

        /* Every fragment has a window, which the analyzer cannot see. */
        if (!window || window->state != WINDOW_READY)
            continue;
        if (atomic_fetch_add(&window->busy, 1) == 0)
            cuda_window_touch(files, window);
        gather->fragments[i] = gather->fragments[end];
        gather->fragments[end++] = fragment;
    }
    return end;
}

/* Sends what can be sent. True: nothing of the gather waits any more, and it is gone or will be. */
static bool gather_advance(struct cuda_gather *gather)
{
    uint32_t first = gather->n_sent, end = fragments_take_ready(gather);

    gather->n_sent = end;
    if (first < end && gather->failure.code == 0)
        fragments_send(gather, first, end);
    else
        fragments_end(gather, first, end);
    if (gather->n_sent < gather->n_fragments && gather->failure.code == 0)
        return false;
    list_remove(&gather->link);
    gather_release(gather);
    return true;
}

void cuda_gathers_advance(struct cuda *cuda)
{
    list_for_each_safe(item, &cuda->gathers)
        gather_advance(list_entry(item, struct cuda_gather, link));
    /* The windows of the first one come first. */
    for (struct list *item = cuda->gathers.prev; item != &cuda->gathers; item = item->prev) {
        struct cuda_gather *gather = list_entry(item, struct cuda_gather, link);

        for (uint32_t i = gather->n_fragments; i-- > gather->n_sent;)
            cuda_window_want(&cuda->files, gather->fragments[i].window);
    }
}

void cuda_gathers_fail(struct cuda *cuda, const struct cuda_window *window,
                       const struct failure *failure)
{
    list_for_each_safe(item, &cuda->gathers)
    {
        struct cuda_gather *gather = list_entry(item, struct cuda_gather, link);

        for (uint32_t i = gather->n_sent; i < gather->n_fragments && !gather->failure.code; i++)
            if (gather->fragments[i].window == window)
                gather->failure = *failure;
    }
    cuda_gathers_advance(cuda);
}

/* -- its beginning ---------------------------------------------------------------------------- */

/* Finds the file of every piece, and checks the piece; counts the fragments that they make. */
static int pieces_find(struct cuda *cuda, const struct device_gather *what,
                       struct cuda_file **found, uint64_t *fragments_p, struct failure *failure)
{
    uint64_t fragments = 0;

    for (uint32_t i = 0; i < what->n; i++) {
        const struct device_piece *piece = &what->pieces[i];
        struct cuda_file *file = i && found[i - 1]->id == piece->file
                                     ? found[i - 1]
                                     : cuda_file_find(&cuda->files, piece->file);

        if (!file)
            return failure_set(failure, -ENOENT, "a gather: there is no file %" PRIu32,
                               piece->file);
        if (piece->offset > file->size || what->piece_bytes > file->size - piece->offset)
            return failure_set(failure, -EINVAL,
                               "a gather of %" PRIu64 " bytes from %" PRIu64 " of file %" PRIu32
                               " (%" PRIu64 " bytes) is out of bounds",
                               what->piece_bytes, piece->offset, piece->file, file->size);
        fragments += (piece->offset + what->piece_bytes - 1) / WINDOW_BYTES -
                     piece->offset / WINDOW_BYTES + 1;
        found[i] = file;
    }
    *fragments_p = fragments;
    return 0;
}

/* The gather uses the file up to end, and holds it from its first piece there on. */
static void gather_use(struct cuda_gather *gather, struct cuda_file *file, uint64_t end)
{
    uint32_t i = gather->n_files;

    /* Mostly the one that was used last. */
    while (i > 0 && gather->files[i - 1].file != file)
        i--;
    if (i == 0) {
        i = ++gather->n_files;
        gather->files[i - 1] = (struct gather_file){.file = file};
        atomic_fetch_add(&file->busy, 1);
    }
    if (gather->files[i - 1].end < end)
        gather->files[i - 1].end = end;
}

/* Records in the file's own order are one copy. */
static void fragment_add(struct cuda_gather *gather, const struct fragment *fragment)
{
    struct fragment *last =
        gather->n_fragments ? &gather->fragments[gather->n_fragments - 1] : NULL;

    if (last && last->window == fragment->window &&
        last->offset + last->bytes == fragment->offset &&
        last->target + last->bytes == fragment->target)
        last->bytes += fragment->bytes;
    else
        gather->fragments[gather->n_fragments++] = *fragment;
}

static void gather_cut(struct cuda_gather *gather, const struct device_gather *what,
                       struct cuda_file **found)
{
    uint64_t target = what->ring_offset;

    for (uint32_t i = 0; i < what->n; i++) {
        uint64_t offset = what->pieces[i].offset;

        gather_use(gather, found[i], offset + what->piece_bytes);
        for (uint64_t left = what->piece_bytes; left > 0;) {
            uint64_t within = offset % WINDOW_BYTES;
            uint64_t bytes = WINDOW_BYTES - within < left ? WINDOW_BYTES - within : left;

            fragment_add(gather, &(struct fragment){
                                     .window = &found[i]->windows[offset / WINDOW_BYTES],
                                     .offset = within,
                                     .target = target,
                                     .bytes = bytes,
                                 });
            offset += bytes;
            target += bytes;
            left -= bytes;
        }
    }
}

static struct cuda_gather *gather_new(uint32_t n_files, uint64_t n_fragments)
{
    struct cuda_gather *gather =
        calloc(1, sizeof *gather + n_fragments * sizeof gather->fragments[0]);

    if (!gather)
        return NULL;
    gather->files = calloc(n_files, sizeof *gather->files);
    if (gather->files)
        return gather;
    free(gather);
    return NULL;
}

/* What the gather copies beside its pieces. */
static int rest_take(struct cuda *cuda, struct cuda_gather *gather,
                     const struct device_gather *what, struct failure *failure)
{
    struct cuda_region *region = cuda_region_find(cuda, what->region);

    if (!what->rest_bytes)
        return 0;
    if (!region)
        return failure_set(failure, -ENOENT, "a gather: there is no region %" PRIu32, what->region);
    int r = cuda_copy_check(region, what->rest_offset, gather->ring, what->rest_ring_offset,
                            what->rest_bytes, failure);
    if (r < 0)
        return r;
    gather->rest = (struct rest){.region = region,
                                 .offset = what->rest_offset,
                                 .target = what->rest_ring_offset,
                                 .bytes = what->rest_bytes};
    return 0;
}

static int ring_check(const struct cuda_ring *ring, const struct device_gather *what,
                      struct failure *failure)
{
    if (!ring)
        return failure_set(failure, -ENOENT, "a gather to ring %" PRIu64 ": there is no such ring",
                           what->ring);
    if (what->n && what->piece_bytes && what->ring_offset <= ring->bytes &&
        what->piece_bytes <= (ring->bytes - what->ring_offset) / what->n)
        return 0;
    return failure_set(failure, -EINVAL,
                       "a gather of %" PRIu32 " times %" PRIu64 " bytes to %" PRIu64
                       " of ring %" PRIu64 " (%zu bytes) is out of bounds",
                       what->n, what->piece_bytes, what->ring_offset, what->ring, ring->bytes);
}

int cuda_gather(struct cuda *cuda, const struct device_gather *what, uint64_t cookie,
                struct failure *failure)
{
    struct cuda_ring *ring = cuda_ring_find(cuda, what->ring);
    uint64_t n_fragments = 0;

    int r = ring_check(ring, what, failure);
    if (r < 0)
        return r;
    cleanup_free struct cuda_file **found = calloc(what->n, sizeof *found);
    if (!found)
        return failure_set(failure, -ENOMEM, "a gather: out of memory");
    r = pieces_find(cuda, what, found, &n_fragments, failure);
    if (r < 0)
        return r;
    struct cuda_gather *gather = gather_new(what->n, n_fragments);
    if (!gather)
        return failure_set(failure, -ENOMEM, "a gather: out of memory");
    gather->cuda = cuda;
    gather->ring = ring;
    gather->cookie = cookie;
    r = rest_take(cuda, gather, what, failure);
    if (r < 0) {
        gather_free(gather);
        return r;
    }
    gather->range = range_begin(RANGE_GATHER, what->n * what->piece_bytes + what->rest_bytes);
    atomic_init(&gather->holds, 1);
    atomic_fetch_add(&ring->busy, 1);
    atomic_fetch_add(&cuda->busy, 1);
    if (gather->rest.region)
        atomic_fetch_add(&gather->rest.region->busy, 1);
    gather_cut(gather, what, found);
    list_append(&cuda->gathers, &gather->link);
    if (!gather_advance(gather)) {
        cuda_gathers_advance(cuda);
        cuda_files_serve(cuda);
    }
    return cuda->is_lost ? cuda_check(cuda, failure) : 0;
}
