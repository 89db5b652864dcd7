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

static bool wants_same(const struct job *a, const struct job *b)
{
    return a->identity != 0 && a->identity == b->identity && a->tenant == b->tenant && !a->pushed &&
           !b->pushed && a->slot_bytes == b->slot_bytes && order_same(&a->order, &b->order) &&
           strcmp(a->pipeline, b->pipeline) == 0;
}

void mates_find(struct core *core)
{
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        struct job *job = core->jobs[i];

        job->group = job->id;
        job->mates = 0;
        for (uint32_t k = 0; k < i; k++) {
            if (!wants_same(job, core->jobs[k]))
                continue;
            job->group = core->jobs[k]->group;
            job->mates++;
            core->jobs[k]->mates++;
        }
    }
}

/* A slot of mate that has the batch, or is about to have it; NONE. */
static uint32_t slot_with(const struct job *mate, struct cursor at)
{
    for (uint32_t i = 0; i < mate->feed.n_slots; i++) {
        const struct slot *slot = &mate->feed.slots[i];

        if (!cursor_same(slot->at, at))
            continue;
        if (slot->whole || (slot->state == SLOT_DECODING && slot_used(slot)))
            return i;
    }
    return NONE;
}

static bool may_share(const struct job *job, const struct job *mate)
{
    return job_is_mate(job, mate) && !mate->moving && job_in_place(job) == job_in_place(mate);
}

bool share_find(struct job *job, struct cursor at, struct job **from_p, uint32_t *slot_p)
{
    const struct core *core = job->core;

    if (job->missing && cursor_same(job->missed, at))
        return false;
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        struct job *mate = core->jobs[i];

        if (mate != job && !may_share(job, mate))
            continue;
        uint32_t slot = slot_with(mate, at);
        if (slot == NONE)
            continue;
        *from_p = mate;
        *slot_p = slot;
        return true;
    }
    job->missing = true;
    job->missed = at;
    return false;
}

void share_begun(const struct job *job, struct cursor at)
{
    const struct core *core = job->core;

    for (uint32_t i = 0; job->mates > 0 && i < core->n_jobs; i++) {
        struct job *mate = core->jobs[i];

        if (job_is_mate(job, mate) && cursor_same(mate->missed, at))
            mate->missing = false;
    }
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

struct job *share_leader(struct job *job)
{
    const struct core *core = job->core;
    const struct node *node = job_node(batch_lender(job));

    for (uint32_t i = 0; job->mates > 0 && job->unfilled == 0 && i < core->n_jobs; i++) {
        struct job *mate = core->jobs[i];
        const struct job *lender;

        if (mate == job)
            break;
        if (!may_share(job, mate) || mate->unfilled > 0 ||
            !cursor_same(mate->feed.ahead, job->feed.ahead))
            continue;
        lender = batch_lender(mate);
        if (lender && job_node(lender) == node)
            return mate;
    }
    return job;
}

bool share_needed(const struct job *job, struct cursor *first_p)
{
    const struct core *core = job->core;
    bool any = false;

    for (uint32_t i = 0; job->mates > 0 && i < core->n_jobs; i++) {
        const struct job *mate = core->jobs[i];

        if (!job_is_mate(job, mate) || !job_live(mate))
            continue;
        if (!any || cursor_before(mate->feed.ahead, *first_p))
            *first_p = mate->feed.ahead;
        any = true;
    }
    return any;
}

void share_join(const struct job *job, struct cursor *start_p)
{
    const struct core *core = job->core;

    for (uint32_t i = 0; i < core->n_jobs; i++) {
        const struct job *mate = core->jobs[i];

        if (job_is_mate(job, mate) && job_live(mate) && cursor_before(*start_p, mate->next))
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

        for (uint32_t k = 0; job_is_mate(job, mate) && k < mate->depth; k++) {
            struct lease *lease = &mate->leases[k];

            if (lease->from != job || lease->slot != slot)
                continue;
            others--;
            use(mate, lease, user);
            break; /* a job wants a batch once */
        }
    }
}
