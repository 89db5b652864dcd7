/*
 * The ladder of deliveries: which one a job gets, why that one and none above
 * it, and what comes when it does not work. A delivery that was asked for by
 * name is tried alone.
 *
 * The last rung, `copy`, needs no ring: the client reads the slots themselves.
 * A job that comes to it from a ring gives its slots back first and reserves
 * others, because those may lie in memory that no client may map.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core_private.h"

static const char *const delivery_names[] = {
    [DELIVERY_AUTO] = "auto", [DELIVERY_FD] = "fd",     [DELIVERY_IPC] = "ipc",
    [DELIVERY_COPY] = "copy", [DELIVERY_HOST] = "host", [DELIVERY_MAPPED] = "mapped",
};

static const enum delivery rungs[] = {DELIVERY_FD, DELIVERY_IPC, DELIVERY_COPY};
#define N_RUNGS (sizeof rungs / sizeof rungs[0])

/* -- choosing ------------------------------------------------------------------------------ */

/* Why the job cannot have each delivery of a GPU. */
static void refusals_find(struct job *job, const struct core_job_spec *spec)
{
    const struct core_device_spec *device = &job_device(job)->spec;
    const char *no_ring = spec->no_ring;

    if (device->rings_off)
        no_ring = "rings are off for this device (device.rings)";
    if (no_ring)
        job->refusals[DELIVERY_FD] = job->refusals[DELIVERY_IPC] = no_ring;
    if (!no_ring && !spec->client_fd)
        job->refusals[DELIVERY_FD] = "the client cannot take fd";
    if (!no_ring && !spec->client_ipc)
        job->refusals[DELIVERY_IPC] = "the client cannot take ipc";
    if (!no_ring && !device->allow_ipc)
        job->refusals[DELIVERY_IPC] = "ipc is off for this device (device.ipc)";
    if (!spec->client_copy)
        job->refusals[DELIVERY_COPY] = "the client cannot take copy";
    if (!spec->client_mapped)
        job->refusals[DELIVERY_MAPPED] = "the client cannot take mapped";
}

/* Adds a reason, unless it is the one that was added before. */
static void why_add(struct job *job, const char *text)
{
    size_t used = strlen(job->why), length = strlen(text);

    if (used >= length && strcmp(job->why + used - length, text) == 0)
        return;
    snprintf(job->why + used, sizeof job->why - used, "%s%s", used ? "; " : "", text);
}

/* The first rung from `from` on that the job can have, with the reasons of those that it cannot;
 * DELIVERY_AUTO: there is none. */
static enum delivery rung_find(struct job *job, enum delivery from)
{
    for (size_t i = 0; i < N_RUNGS; i++) {
        if (rungs[i] < from)
            continue;
        if (!job->refusals[rungs[i]])
            return rungs[i];
        why_add(job, job->refusals[rungs[i]]);
    }
    return DELIVERY_AUTO;
}

static int choose_auto(struct job *job, struct failure *failure)
{
    if (!job_device(job)->spec.has_ring) {
        job->delivery = DELIVERY_HOST;
        why_add(job, "the host device has no other");
        return 0;
    }
    if (job->coherent && !job->refusals[DELIVERY_MAPPED]) {
        job->delivery = DELIVERY_MAPPED;
        why_add(job, "the GPU shares the host's memory");
        return 0;
    }
    job->delivery = rung_find(job, DELIVERY_FD);
    if (job->delivery == DELIVERY_AUTO)
        return failure_set(failure, -EOPNOTSUPP, "delivery auto finds no way to the device: %.400s",
                           job->why);
    if (job->delivery == DELIVERY_FD)
        why_add(job, "the first of the ladder");
    return 0;
}

int ladder_choose(struct job *job, const struct core_job_spec *spec, struct failure *failure)
{
    enum delivery asked = spec->delivery;

    if ((unsigned)asked > DELIVERY_MAPPED)
        return failure_set(failure, -EINVAL, "delivery %d is unknown", (int)asked);
    job->asked = job->delivery = asked;
    job->coherent = spec->client_coherent;
    refusals_find(job, spec);
    if (asked == DELIVERY_AUTO)
        return choose_auto(job, failure);
    why_add(job, "asked for");
    if (asked == DELIVERY_HOST)
        return 0;
    if (!job_device(job)->spec.has_ring)
        return failure_set(failure, -EINVAL,
                           "delivery %s needs a GPU: the host device delivers by host only",
                           delivery_names[asked]);
    if (job->refusals[asked])
        return failure_set(failure, -EINVAL, "delivery %s: %s", delivery_names[asked],
                           job->refusals[asked]);
    return 0;
}

/* -- going down ---------------------------------------------------------------------------- */

static void ladder_move(struct job *job)
{
    job->moving = true;
    job->missing = false; /* it will have other mates to share with */
    batches_unfill(job);
}

void ladder_descend(struct job *job, const char *text, int code, bool no_device, uint64_t now)
{
    enum delivery failed = job->delivery, next = DELIVERY_AUTO;
    struct failure failure;
    char reason[FAILURE_TEXT_MAX];

    if (job->asked == DELIVERY_AUTO) {
        if (failed == DELIVERY_FD)
            job->why[0] = '\0';
        snprintf(reason, sizeof reason, "%s does not work: %.300s", delivery_names[failed], text);
        why_add(job, reason);
        next = rung_find(job, no_device ? DELIVERY_COPY : failed + 1);
    }
    if (next == DELIVERY_AUTO) {
        const char *no_ipc = job->refusals[DELIVERY_IPC];

        if (job->asked == DELIVERY_AUTO && failed == DELIVERY_FD && !no_device && no_ipc)
            failure_set(&failure, code, "delivery fd: %.350s; %s", text, no_ipc);
        else
            failure_set(&failure, code, "delivery %s: %.450s", delivery_names[failed], text);
        job_fail(job, &failure, now);
        return;
    }
    job->delivery = next;
    if (job_in_place(job))
        ladder_move(job);
    else
        ring_make(job, now);
}

/* -- on the way ---------------------------------------------------------------------------- */

void ladder_reserve(struct job *job)
{
    struct core_action *action = job_emit(job, CORE_RESERVE);

    job->wait = WAIT_RESERVE;
    action->delivery = job->delivery;
    action->count = job->depth;
    action->bytes = job->slot_bytes;
}

void ladder_announce(struct job *job, uint64_t now)
{
    struct core_action *action =
        job_emit(job, job->announced ? CORE_RING_REPLACED : CORE_JOB_READY);

    action->ring = job->ring ? job->ring->id : 0;
    action->delivery = job->delivery;
    action->why = job->why;
    action->bytes = job->ring ? job->ring->bytes : 0;
    if (!job->announced)
        batches_begin(job, now);
    job->announced = true;
    if (job_in_place(job) && job->state == JOB_OPENING)
        job->state = JOB_RUNNING;
}
