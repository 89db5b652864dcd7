/*
 * Mates: jobs of one tenant, over the same data, that differ in nothing that
 * decides a batch. What one has in a slot is what another would decode.
 *
 * Those that are delivered in place share among themselves, and so do those that
 * have rings: the slots of the former are where clients may map them, and what
 * one has of another's slots it can give back in kind.
 */
#include <string.h>

#include "core_private.h"

static bool order_same(const struct order *a, const struct order *b)
{
    return a->shuffle == b->shuffle && a->last == b->last && a->seed == b->seed &&
           a->samples == b->samples && a->batch == b->batch && a->rank == b->rank &&
           a->world == b->world && a->bad == b->bad;
}

bool job_is_mate(const struct job *a, const struct job *b)
{
    return a != b && a->identity != 0 && a->identity == b->identity && a->tenant == b->tenant &&
           !a->pushed && !b->pushed && a->slot_bytes == b->slot_bytes &&
           order_same(&a->order, &b->order) && strcmp(a->pipeline, b->pipeline) == 0;
}

void mates_count(struct core *core)
{
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        struct job *job = core->jobs[i];

        job->mates = 0;
        for (uint32_t k = 0; k < core->n_jobs; k++)
            job->mates += job_is_mate(job, core->jobs[k]);
    }
}

/* A slot of mate that has the batch, or is about to have it; NONE. */
static uint32_t slot_with(const struct job *mate, struct cursor at)
{
    for (uint32_t i = 0; i < mate->feed.n_slots; i++) {
        const struct slot *slot = &mate->feed.slots[i];

        if (slot->at.step != at.step || slot->at.epoch != at.epoch)
            continue;
        if (slot->whole || (slot->state == SLOT_DECODING && !slot->stuck && slot_used(slot)))
            return i;
    }
    return NONE;
}

static bool may_share(const struct job *job, const struct job *mate)
{
    return job_is_mate(job, mate) && !mate->moving && job_in_place(job) == job_in_place(mate);
}

bool share_find(const struct job *job, struct cursor at, struct job **from_p, uint32_t *slot_p)
{
    const struct core *core = job->core;

    for (uint32_t i = 0; job->mates > 0 && i < core->n_jobs; i++) {
        struct job *mate = core->jobs[i];

        if (mate != job && !may_share(job, mate))
            continue;
        uint32_t slot = slot_with(mate, at);
        if (slot == NONE || (mate == job && mate->feed.slots[slot].lease != NONE))
            continue;
        *from_p = mate;
        *slot_p = slot;
        return true;
    }
    return false;
}

struct job *share_lender(struct job *job)
{
    const struct core *core = job->core;

    if (job->feed.free > 0)
        return job;
    for (uint32_t i = 0; job->mates > 0 && i < core->n_jobs; i++)
        if (core->jobs[i]->feed.free > 0 && may_share(job, core->jobs[i]))
            return core->jobs[i];
    return NULL;
}

bool share_needed(const struct job *job, struct cursor at)
{
    const struct core *core = job->core;

    for (uint32_t i = 0; i < core->n_jobs; i++) {
        const struct job *mate = core->jobs[i];

        if (job_is_mate(job, mate) && job_live(mate) && !cursor_before(at, mate->feed.ahead))
            return true;
    }
    return false;
}

void share_join(const struct job *job, struct cursor *start_p)
{
    const struct core *core = job->core;

    for (uint32_t i = 0; i < core->n_jobs; i++) {
        const struct job *mate = core->jobs[i];

        if (job_is_mate(job, mate) && job_live(mate) && mate->announced &&
            cursor_before(*start_p, mate->next))
            *start_p = mate->next;
    }
}

void slot_each_lease(struct job *job, uint32_t slot,
                     void (*use)(struct job *job, struct lease *lease, void *user), void *user)
{
    struct core *core = job->core;
    uint32_t own = job->feed.slots[slot].lease, others = job->feed.slots[slot].others;

    if (own != NONE)
        use(job, &job->leases[own], user);
    for (uint32_t i = 0; others > 0 && i < core->n_jobs; i++) {
        struct job *mate = core->jobs[i];

        for (uint32_t k = 0; mate != job && k < mate->depth; k++) {
            struct lease *lease = &mate->leases[k];

            if (lease->from != job || lease->slot != slot)
                continue;
            others--;
            use(mate, lease, user);
            break; /* a job wants a batch once */
        }
    }
}
