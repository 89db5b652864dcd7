/*
 * Gathering: records that need no decoding go from the page cache to the GPU by
 * the copy engine alone. The device's process registers the file of such a
 * source in the background; until it has, and whenever something about it is
 * refused, the workers fill the slots as ever. The bytes are the same.
 *
 * A batch to be gathered is decoded at once: only its small tensors are filled
 * in, here. When it is to be copied, the device gathers the records into the
 * ring and copies the small tensors beside them.
 *
 * What is registered for the tasks of a source is one object, charged to their
 * tenant for all of the file while one of them is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "log.h"
#include "memory/available.h"
#include "proto/cleanup.h"
#include "proto/units.h"
#include "server.h"

/* A source's file in a device's process. */
struct gather {
    struct list link; /* in station->gathers */
    struct station *station;
    struct source *source;
    struct charge charge; /* of all of the file */
    unsigned tasks;
    int fd; /* the source's */
    uint64_t size;
    uint32_t file;    /* its number there */
    bool is_checking; /* a thread looks whether there is memory for it */
    bool is_checked;
    bool is_added;   /* the process that is up has it */
    bool is_ready;   /* registered */
    bool is_refused; /* never tried again */
    uv_work_t work;
    uint64_t need; /* bytes: of this one, and of others that are not registered yet */
    struct failure failure;
};

/* -- whether --------------------------------------------------------------------------------- */

/* Where the records of a source lie, when they are all in one file as they are to be delivered. */
static bool source_file_find(const struct task *task, int *fd_p, uint64_t *size_p)
{
    uint64_t offset, bytes, last = source_samples(task->source) - 1;
    struct statx status;
    int fd, last_fd;

    if (source_extent(task->source, 0, &fd, &offset, &bytes) < 0 ||
        bytes != task->layout.tensors[TENSOR_SAMPLE].sample_bytes ||
        source_extent(task->source, last, &last_fd, &offset, &bytes) < 0 || last_fd != fd)
        return false;
    /* What the kernel knows will do: nothing here may wait for a server. */
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &status) < 0 ||
        status.stx_size < offset + bytes)
        return false;
    *fd_p = fd;
    *size_p = offset + bytes;
    return true;
}

static uint64_t whole_pages(uint64_t bytes)
{
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

/* A record that was cut off meanwhile is noticed when its batch is complete: too late for another
 * in its place. */
static bool task_may_gather(const struct task *task)
{
    const struct config *config = task->server->config;

    return config->device_gather && task->station->device->ops->has_ring && task->source &&
           task->order.bad == ORDER_BAD_FAIL && task->pipeline.crop == CROP_KIND_NONE &&
           task->order.batch <= GATHER_PIECES_MAX && task->layout.n_tensors == TENSOR_FIELDS &&
           task->layout.tensors[TENSOR_SAMPLE].sample_bytes >= config->device_gather_min;
}

static struct gather *gather_new(struct task *task, struct failure *failure)
{
    struct station *station = task->station;
    uint64_t max = task->server->config->device_gather_max, used = 0;
    char need[32], left[32];
    uint64_t size;
    int fd;

    if (!source_file_find(task, &fd, &size)) {
        failure_set(failure, -EOPNOTSUPP, "they do not lie in one file as they are delivered");
        return NULL;
    }
    list_for_each(item, &station->gathers) used += list_entry(item, struct gather, link)->size;
    if (used > max || size > max - used) {
        failure_set(failure, -E2BIG, "%s do not fit into what is left of device.gather_max, %s",
                    units_format_bytes(size, need, sizeof need),
                    units_format_bytes(used > max ? 0 : max - used, left, sizeof left));
        return NULL;
    }
    struct gather *gather = calloc(1, sizeof *gather);
    if (!gather) {
        failure_set(failure, -ENOMEM, "out of memory");
        return NULL;
    }
    if (charge_acquire(&gather->charge, task->tenant, ACCOUNT_PINNED, whole_pages(size), failure) <
        0) {
        free(gather);
        return NULL;
    }
    gather->station = station;
    gather->source = source_ref(task->source);
    gather->fd = fd;
    gather->size = size;
    list_append(&station->gathers, &gather->link);
    return gather;
}

static void gather_refuse(struct gather *gather, const struct failure *failure)
{
    log_warning("%s: its records go through slots: %s", source_name(gather->source), failure->text);
    gather->is_refused = true;
    gather->is_added = gather->is_ready = false;
    charge_release(&gather->charge);
}

static void gather_free(struct gather *gather)
{
    struct station *station = gather->station;

    if (gather->is_added && station->up)
        station->device->ops->remove_file(station->device, gather->file);
    charge_release(&gather->charge);
    list_remove(&gather->link);
    server_give_up_source(station->server, gather->source);
    free(gather);
    station_poll(station);
}

/* -- memory for it --------------------------------------------------------------------------- */

/* What is registered cannot be reclaimed any more. A limit of a cgroup would be told by a signal.
 */
static void gather_check(uv_work_t *work)
{
    struct gather *gather = work->data;
    struct memory_available memory;
    char need[32], left[32];
    int r = memory_available_get("", &memory);

    if (r < 0)
        failure_set(&gather->failure, r, "the memory of this machine: %s", strerror(-r));
    else if (gather->need > memory.free)
        failure_set(&gather->failure, -ENOMEM, "%s are more than what is free: %s (%s)",
                    units_format_bytes(gather->need, need, sizeof need),
                    units_format_bytes(memory.free, left, sizeof left), memory.bound);
}

/* Gives the file to the process that is up. */
static void gather_add(struct gather *gather)
{
    struct station *station = gather->station;
    struct failure failure;
    int fd = fcntl(gather->fd, F_DUPFD_CLOEXEC, 3);
    int r = fd < 0 ? -errno : 0;

    gather->file = ++station->last_file;
    if (r == 0)
        r = station->device->ops->add_file(station->device, gather->file, fd, gather->size);
    gather->is_added = r == 0;
    if (r < 0 && r != -ENOTCONN) { /* the next process may get it */
        failure_set(&failure, r, "device %s: %s", station->device->info.uuid, strerror(-r));
        gather_refuse(gather, &failure);
    }
    station_poll(station);
}

static void gather_checked(uv_work_t *work, int status)
{
    struct gather *gather = work->data;
    struct server *server = gather->station->server;

    (void)status;
    server->busy--;
    gather->is_checking = false;
    gather->is_checked = true;
    if (gather->tasks == 0)
        gather_free(gather);
    else if (gather->failure.code < 0)
        gather_refuse(gather, &gather->failure);
    else if (gather->station->up)
        gather_add(gather);
    server_check_stopped(server);
}

static void gather_start_check(struct gather *gather)
{
    struct server *server = gather->station->server;

    for (uint32_t i = 0; i < server->n_stations; i++)
        list_for_each(item, &server->stations[i].gathers)
        {
            const struct gather *other = list_entry(item, struct gather, link);
            gather->need += other->is_ready || other->is_refused ? 0 : other->size;
        }
    gather->work.data = gather;
    gather->is_checking = true;
    server->busy++;
    uv_queue_work(&server->loop, &gather->work, gather_check, gather_checked);
}

/* -- tasks ------------------------------------------------------------------------------------ */

/* The gather of the task's source, which another task has, or a new one. */
static struct gather *gather_find(struct task *task)
{
    struct failure failure = {0};
    struct gather *gather;

    list_for_each(item, &task->station->gathers)
    {
        gather = list_entry(item, struct gather, link);
        if (gather->source == task->source && gather->charge.account == task->tenant &&
            gather->tasks > 0)
            return gather;
    }
    gather = gather_new(task, &failure);
    if (!gather)
        log_info("job %" PRIu64 ": its records go through slots: %s", task->job, failure.text);
    return gather;
}

void gather_attach(struct task *task)
{
    if (!task->gather && !task->gather_told && task_may_gather(task)) {
        task->gather_told = true;
        task->gather = gather_find(task);
        if (task->gather)
            task->gather->tasks++;
    }
    struct gather *gather = task->gather;
    if (!gather || gather->is_checking || gather->is_added || gather->is_refused)
        return;
    if (gather->is_checked)
        gather_add(gather);
    else
        gather_start_check(gather);
}

void gather_detach(struct task *task)
{
    struct gather *gather = steal_ptr(task->gather);

    if (gather && --gather->tasks == 0 && !gather->is_checking)
        gather_free(gather);
}

/* -- the device's events ---------------------------------------------------------------------- */

void gathers_on_ready(struct station *station, uint32_t file, const struct failure *failure)
{
    list_for_each(item, &station->gathers)
    {
        struct gather *gather = list_entry(item, struct gather, link);

        if (!gather->is_added || gather->file != file)
            continue;
        gather->is_ready = !failure;
        if (!failure) {
            log_debug("%s: registered", source_name(gather->source));
            return;
        }
        station->device->ops->remove_file(station->device, file);
        gather_refuse(gather, failure);
        return;
    }
}

void gathers_on_lost(struct station *station)
{
    station->gathered_bytes = 0;
    list_for_each(item, &station->gathers)
    {
        struct gather *gather = list_entry(item, struct gather, link);
        gather->is_added = gather->is_ready = false;
    }
}

/* -- batches ---------------------------------------------------------------------------------- */

/* Fills in what is not in the file. */
static void slot_fill_rest(const struct task *task, const struct core_action *action, uint8_t *slot)
{
    const struct tensor *tensors = task->layout.tensors;
    int64_t *labels = (int64_t *)(void *)(slot + tensors[TENSOR_LABEL].offset);
    uint64_t *indices = (uint64_t *)(void *)(slot + tensors[TENSOR_INDEX].offset);
    uint8_t *statuses = slot + tensors[TENSOR_STATUS].offset;

    for (uint32_t i = 0; i < action->count; i++) {
        struct order_item item = order_at(&task->order, action->epoch, action->step, i);

        labels[i] = source_label(task->source, item.sample);
        indices[i] = item.sample;
        statuses[i] = (uint8_t)item.status;
    }
}

bool gather_decode(struct task *task, const struct core_action *action)
{
    struct server *server = task->server;
    struct work *work = &task->works[action->slot];
    void *slot = NULL;

    task->gathered[action->slot] = task->gather && task->gather->is_ready && !action->lent;
    if (!task->gathered[action->slot])
        return false;
    pool_slot(task->station->pool, action->memory, &slot, NULL);
    slot_fill_rest(task, action, slot);
    work->epoch = action->epoch;
    work->step = action->step;
    work->count = action->count;
    core_gathered(server->core, task->job, action->slot, action->generation, server_now(server));
    return true;
}

/* The slot that is copied, when its batch is to be gathered; -1: it is copied as a whole. */
static int slot_gathered(const struct task *task, uint64_t memory)
{
    for (uint32_t i = 0; task->gather && i < task->depth; i++)
        if (task->memory[i] == memory)
            return task->gathered[i] ? (int)i : -1;
    return -1;
}

/* The pieces of a batch, to be freed; index has its samples. */
static struct device_piece *pieces_new(const struct task *task, const uint64_t *index, uint32_t n)
{
    struct device_piece *pieces = calloc(n, sizeof *pieces);

    for (uint32_t i = 0; pieces && i < n; i++) {
        uint64_t bytes;
        int fd;

        pieces[i].file = task->gather->file;
        source_extent(task->source, index[i], &fd, &pieces[i].offset, &bytes);
    }
    return pieces;
}

int gather_copy(struct task *task, const struct core_action *action, struct copy *copy,
                const struct copy_place *place)
{
    const struct station *station = task->station;
    const struct tensor *tensors = task->layout.tensors;
    uint64_t rest = tensors[TENSOR_LABEL].offset;
    void *slot = NULL;

    copy->gathered_slot = slot_gathered(task, action->memory);
    if (copy->gathered_slot < 0)
        return 0;
    if (!task->gather->is_added)
        return -ESTALE;
    pool_slot(station->pool, action->memory, &slot, NULL);
    uint32_t n = task->works[copy->gathered_slot].count;
    const void *index = (const uint8_t *)slot + tensors[TENSOR_INDEX].offset;
    cleanup_free struct device_piece *pieces = pieces_new(task, index, n);
    if (!pieces)
        return -ENOMEM;
    struct device_gather gather = {
        .pieces = pieces,
        .n = n,
        .piece_bytes = tensors[TENSOR_SAMPLE].sample_bytes,
        .ring = place->ring,
        .ring_offset = place->ring_offset + tensors[TENSOR_SAMPLE].offset,
        .region = place->region,
        .rest_bytes = task->layout.slot_bytes - rest,
        .rest_offset = place->offset + rest,
        .rest_ring_offset = place->ring_offset + rest,
    };
    int r = station->device->ops->gather(station->device, &gather, (uint64_t)(uintptr_t)copy);
    if (r < 0)
        return r;
    task->station->gathered_batches++;
    return 1;
}

void gather_explain(const struct copy *copy, struct failure *failure)
{
    const struct task *task = copy->task;

    if (copy->gathered_slot < 0 || failure->code != -ENODATA)
        return;
    const struct work *work = &task->works[copy->gathered_slot];
    for (uint32_t i = 0; i < work->count; i++) {
        struct order_item item = order_at(&task->order, work->epoch, work->step, i);

        if (source_extent_check(task->source, item.sample, failure) < 0)
            return;
    }
}
