/*
 * What is decoded next: the batch of the job whose ring is emptiest, as a share
 * of its depth; among equals the one that was served longest ago. The workers
 * of a NUMA node have a few batches at a time, so that a later choice is made
 * by what is true then. Slots that clients fill cost the workers nothing: they
 * are given out as soon as they are free; so do batches that a mate has.
 *
 * Where the workers are what all wait for, a job that is a little behind its
 * mate is served first, until they are level: decoding for each of them costs
 * both half the workers for as long as they run. Of mates that are level always the
 * same one asks, because what it asks for is read ahead from storage for it alone.
 */
#include "core_private.h"

/* Of mates that are no further apart than that, the one behind comes first. */
#define CATCH_UP_STEPS 64

/* Whether a is to catch up with its mate b: so that from then on each batch is decoded for both. */
static bool job_catches_up(const struct job *a, const struct job *b)
{
    struct cursor at = a->feed.ahead, of = b->feed.ahead;

    if (!cursor_before(at, of) || of.epoch - at.epoch > CATCH_UP_STEPS)
        return false;
    return (unsigned __int128)(of.epoch - at.epoch) * a->steps + of.step - at.step <=
           CATCH_UP_STEPS;
}

static bool job_before(const struct job *a, const struct job *b)
{
    if (job_is_mate(a, b) && (job_catches_up(a, b) || job_catches_up(b, a)))
        return cursor_before(a->feed.ahead, b->feed.ahead);
    uint64_t fill_a = (uint64_t)batches_filled(a) * b->depth;
    uint64_t fill_b = (uint64_t)batches_filled(b) * a->depth;

    return fill_a != fill_b ? fill_a < fill_b : a->served < b->served;
}

static struct job *schedule_choose(struct core *core, const struct node *node)
{
    struct job *best = NULL;

    for (uint32_t i = 0; i < core->n_jobs; i++) {
        struct job *job = core->jobs[i];
        const struct job *lender = job->pushed ? NULL : batch_lender(job);

        if (lender && job_node(lender) == node && (!best || job_before(job, best)))
            best = job;
    }
    return best;
}

/* What needs no workers. */
static void schedule_free(struct core *core, uint64_t now)
{
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        struct job *job = core->jobs[i];

        while (job->pushed && batch_lender(job))
            batch_start(job, now);
        while (job->mates > 0 && batch_share(job, now))
            ;
    }
}

static void schedule_node(struct core *core, struct node *node, uint64_t now)
{
    while (node->busy < core->batches_per_numa) {
        struct job *job = schedule_choose(core, node);

        if (!job)
            break;
        struct job *leader = share_leader(job);
        job->served = leader->served = ++core->turn;
        batch_start(leader, now);
        if (job->mates > 0)
            schedule_free(core, now);
    }
}

void schedule_run(struct core *core, uint64_t now)
{
    do {
        jobs_settle(core, now);
        schedule_free(core, now);
        for (uint32_t i = 0; i < core->n_nodes; i++)
            schedule_node(core, &core->nodes[i], now);
    } while (core->touched);
}
