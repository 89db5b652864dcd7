/*
 * What is decoded next: the batch of the job whose ring is emptiest, as a share
 * of its depth; among equals the one that was served longest ago. The workers
 * of a NUMA node have a few batches at a time, so that a later choice is made
 * by what is true then. Slots that clients fill cost the workers nothing: they
 * are given out as soon as they are free.
 */
#include "core_private.h"

static bool job_before(const struct job *a, const struct job *b)
{
    uint64_t fill_a = (uint64_t)batches_filled(a) * b->depth;
    uint64_t fill_b = (uint64_t)batches_filled(b) * a->depth;

    return fill_a != fill_b ? fill_a < fill_b : a->served < b->served;
}

static struct job *schedule_choose(struct core *core, const struct node *node)
{
    struct job *best = NULL;

    for (uint32_t i = 0; i < core->n_jobs; i++) {
        struct job *job = core->jobs[i];

        if (job_node(job) == node && !job->pushed && batch_wanted(job) &&
            (!best || job_before(job, best)))
            best = job;
    }
    return best;
}

void schedule_run(struct core *core, uint64_t now)
{
    for (uint32_t i = 0; i < core->n_jobs; i++) {
        while (core->jobs[i]->pushed && batch_wanted(core->jobs[i]))
            batch_start(core->jobs[i], now);
    }
    for (uint32_t i = 0; i < core->n_nodes; i++) {
        struct node *node = &core->nodes[i];

        while (node->busy < core->batches_per_numa) {
            struct job *job = schedule_choose(core, node);

            if (!job)
                break;
            job->served = ++core->turn;
            batch_start(job, now);
        }
    }
}
