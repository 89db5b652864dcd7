/*
 * Jobs: from registration to the end. A job ends in two phases: closing, it
 * asks for nothing new; then it waits for what is under way (an index, a
 * reservation, decodes, copies, the making of a ring) and for what the client
 * holds (leases, mappings), and is gone when nothing refers to it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core_private.h"

void job_free(struct job *job)
{
    if (!job)
        return;
    for (int i = 0; i < RINGS_MAX; i++)
        charge_release(&job->rings[i].charge);
    charge_release(&job->charge);
    feed_deinit(&job->feed);
    free(job->leases);
    free(job->pending);
    free(job->dataset);
    free(job->pipeline);
    free(job->token_dataset);
    free(job->token_pipeline);
    free(job);
}

bool job_live(const struct job *job)
{
    return !job->deaf && !job->told && job->state != JOB_CLOSING;
}

/* -- opening ------------------------------------------------------------------------------- */

static int spec_check(const struct core *core, const struct core_job_spec *spec,
                      struct failure *failure)
{
    struct order order = spec->order;

    if (spec->device >= core->n_devices)
        return failure_set(failure, -EINVAL, "there is no device %" PRIu32, spec->device);
    if (spec->depth < 1 || spec->depth > DEPTH_MAX)
        return failure_set(failure, -EINVAL, "depth is %" PRIu32 ": it may be 1 to %d", spec->depth,
                           DEPTH_MAX);
    if (spec->order.batch > BATCH_MAX)
        return failure_set(failure, -EINVAL, "batch is %" PRIu32 ": it may be 1 to %u",
                           spec->order.batch, BATCH_MAX);
    if (spec->bad_limit.share_ppm > 1000000)
        return failure_set(failure, -EINVAL,
                           "bad samples are limited to %" PRIu32 " millionths, more than all",
                           spec->bad_limit.share_ppm);
    /* All but the number of samples, which is not known yet. */
    order.samples = UINT64_C(1) << 63;
    return order_check(&order, failure);
}

static bool text_copy(const char *text, char **copy_p)
{
    *copy_p = strdup(text ? text : "");
    return *copy_p != NULL;
}

/* Copies the spec into the job and makes all that it will ever need. */
static int job_init(struct job *job, const struct core_job_spec *spec)
{
    job->order = spec->order;
    job->order.samples = 0;
    job->depth = spec->depth;
    job->start = job->next = spec->start;
    job->bad_limit = spec->bad_limit;
    job->live = spec->live;
    job->has_token = spec->has_token;
    job->token = spec->token;
    if (!text_copy(spec->dataset, &job->dataset) || !text_copy(spec->pipeline, &job->pipeline) ||
        !text_copy(spec->token.dataset, &job->token_dataset) ||
        !text_copy(spec->token.pipeline, &job->token_pipeline))
        return -ENOMEM;
    job->token.dataset = job->token_dataset;
    job->token.pipeline = job->token_pipeline;
    if (feed_init(&job->feed, spec->depth) < 0 || batches_init(job) < 0)
        return -ENOMEM;
    return 0;
}

int core_job_open(struct core *core, struct account *tenant, uint64_t peer,
                  const struct core_job_spec *spec, uint64_t now, uint64_t *job_p,
                  struct failure *failure)
{
    struct job *job;
    int rc = spec_check(core, spec, failure);

    (void)now;
    if (rc < 0)
        return rc;
    job = calloc(1, sizeof *job);
    if (!job)
        return failure_set(failure, -ENOMEM, "no memory for another job");
    job->core = core;
    list_init(&job->link);
    job->peer = peer;
    job->tenant = tenant;
    job->device = spec->device;
    job->pushed = spec->pushed;
    rc = ladder_choose(job, spec, failure);
    if (rc < 0)
        goto err_free;
    if (job_init(job, spec) < 0 || core_jobs_reserve(core) < 0) {
        rc = failure_set(failure, -ENOMEM, "no memory for another job");
        goto err_free;
    }
    rc = charge_acquire(&job->charge, tenant, ACCOUNT_JOBS, 1, failure);
    if (rc < 0)
        goto err_free;
    if (core_actions_reserve(core, job->depth) < 0) {
        rc = failure_set(failure, -ENOMEM, "no memory for another job");
        goto err_free;
    }
    core_jobs_append(core, job);
    core->opened++;
    job->wait = WAIT_INDEX;
    job_emit(job, CORE_INDEX);
    *job_p = job->id;
    return 0;

err_free:
    job_free(job);
    return rc;
}

static uint64_t bad_max(const struct core_bad_limit *limit, const struct order *order)
{
    if (!limit->has)
        return UINT64_MAX;
    if (limit->share_ppm == 0)
        return limit->samples;
    return (uint64_t)((__uint128_t)order_samples(order) * limit->share_ppm / 1000000);
}

/* What the dataset makes of the order: steps, and where to start. */
static int job_plan(struct job *job, const struct core_dataset *dataset, struct failure *failure)
{
    int rc;

    job->order.samples = dataset->samples;
    job->fingerprint = dataset->fingerprint;
    job->identity = job->pushed ? 0 : dataset->identity;
    job->slot_bytes = dataset->slot_bytes;
    rc = order_check(&job->order, failure);
    if (rc < 0)
        return rc;
    if (dataset->slot_bytes > (UINT64_MAX - RING_ALIGN) / job->depth)
        return failure_set(failure, -EINVAL,
                           "%" PRIu32 " batches of %" PRIu64 " bytes each are too many", job->depth,
                           dataset->slot_bytes);
    job->steps = order_steps(&job->order);
    job->bad_max = bad_max(&job->bad_limit, &job->order);
    if (job->has_token) {
        rc = order_resume(&job->order, job->dataset, job->fingerprint, job->pipeline, &job->token,
                          &job->start, failure);
        if (rc < 0)
            return rc;
    }
    mates_find(job->core);
    if (job->live)
        share_join(job, &job->start);
    if (job->start.step > job->steps)
        return failure_set(failure, -EINVAL,
                           "the start is step %" PRIu64 ", an epoch has %" PRIu64 " steps",
                           job->start.step, job->steps);
    job->next = job->feed.ahead = job->start;
    if (job->start.step == job->steps)
        job->feed.ahead = (struct cursor){.epoch = job->start.epoch + 1};
    return 0;
}

void core_job_indexed(struct core *core, uint64_t job_id, const struct core_dataset *dataset,
                      uint64_t now)
{
    struct job *job = core_job_get(core, job_id);
    struct failure inner, failure;

    if (!job || job->wait != WAIT_INDEX)
        return;
    job->wait = WAIT_NOTHING;
    if (job_live(job)) {
        if (job_plan(job, dataset, &inner) < 0) {
            failure_set(&failure, inner.code, "%.120s: %.380s", job->dataset, inner.text);
            job_fail(job, &failure, now);
        } else {
            ladder_reserve(job);
        }
    }
    job_advance(job, now);
    schedule_run(core, now);
}

void core_job_reserved(struct core *core, uint64_t job_id, const uint64_t *memory, uint64_t now)
{
    struct job *job = core_job_get(core, job_id);

    if (!job || job->wait != WAIT_RESERVE)
        return;
    job->wait = WAIT_NOTHING;
    feed_fill(&job->feed, memory);
    if (job_live(job)) {
        if (job_in_place(job))
            ladder_announce(job, now);
        else
            ring_make(job, now);
    }
    job_advance(job, now);
    schedule_run(core, now);
}

void core_job_refused(struct core *core, uint64_t job_id, const struct failure *failure,
                      uint64_t now)
{
    struct job *job = core_job_get(core, job_id);

    if (!job || job->wait == WAIT_NOTHING)
        return;
    job->wait = WAIT_NOTHING;
    if (job_live(job))
        job_fail(job, failure, now);
    job_advance(job, now);
    schedule_run(core, now);
}

/* -- failing ------------------------------------------------------------------------------- */

static void job_tell(struct job *job)
{
    job->told = true;
    job_emit(job, CORE_JOB_FAILED)->failure = &job->failure;
}

static void job_set_failed(struct job *job, const struct failure *failure)
{
    if (job->state != JOB_FAILED)
        job->core->failed++;
    job->state = JOB_FAILED;
    job->failure = *failure;
}

void job_fail_at(struct job *job, uint32_t place, const struct failure *failure, uint64_t now)
{
    job_set_failed(job, failure);
    job->fail_at = job->leases[job_pending(job, place)].at;
    batches_drop(job, place, now);
}

void job_fail(struct job *job, const struct failure *failure, uint64_t now)
{
    job_set_failed(job, failure);
    batches_drop(job, 0, now);
    job_tell(job);
}

int core_job_evict(struct core *core, uint64_t job_id, const struct failure *failure, uint64_t now)
{
    struct job *job = core_job_get(core, job_id);

    if (!job)
        return -ENOENT;
    if (!job_live(job))
        return -EALREADY;
    if (job->wait == WAIT_INDEX)
        job_emit(job, CORE_INDEX_CANCEL);
    job_fail(job, failure, now);
    job_advance(job, now);
    schedule_run(core, now);
    return 0;
}

/* -- closing ------------------------------------------------------------------------------- */

static void job_close(struct job *job, uint64_t now)
{
    job->state = JOB_CLOSING;
    if (job->wait == WAIT_INDEX)
        job_emit(job, CORE_INDEX_CANCEL);
    batches_drop(job, 0, now);
}

int core_job_close(struct core *core, uint64_t peer, uint64_t job_id, uint64_t now)
{
    struct job *job = core_job_of_peer(core, job_id, peer);

    if (!job || job->state == JOB_CLOSING)
        return -EPROTO;
    job_close(job, now);
    job_advance(job, now);
    schedule_run(core, now);
    return 0;
}

static void peer_end(struct core *core, uint64_t peer, bool dead, uint64_t now)
{
    for (uint32_t i = 0; i < core->n_jobs;) {
        struct job *job = core->jobs[i];

        if (job->peer == peer) {
            job->peer_gone = true;
            if (job->state != JOB_CLOSING)
                job_close(job, now);
            if (dead) {
                batches_reclaim(job, now);
                rings_reclaim(job);
            }
            job_advance(job, now);
        }
        /* Its end takes it out of the jobs. */
        if (i < core->n_jobs && core->jobs[i] == job)
            i++;
    }
    schedule_run(core, now);
}

void core_peer_gone(struct core *core, uint64_t peer, uint64_t now)
{
    peer_end(core, peer, false, now);
}

void core_peer_dead(struct core *core, uint64_t peer, uint64_t now)
{
    peer_end(core, peer, true, now);
}

static void job_end(struct job *job)
{
    struct core *core = job->core;

    charge_release(&job->charge);
    job->tenant = NULL;
    job_emit(job, CORE_JOB_GONE);
    core_actions_unreserve(core, job->depth);
    core_jobs_remove(core, job);
    if (job->mates > 0)
        mates_find(core);
}

void job_advance(struct job *job, uint64_t now)
{
    if (job_live(job)) {
        batches_copy(job, now);
        batches_deliver(job, now);
        if (job->state == JOB_FAILED && job->pending_count == 0 &&
            job->next.epoch == job->fail_at.epoch && job->next.step == job->fail_at.step)
            job_tell(job);
    }
    if (job_ended(job) || job->moving)
        feed_give_back(job);
    if (job->moving && job_live(job) && job->feed.held == 0) {
        job->moving = false;
        ladder_reserve(job);
    }
    if (job->state == JOB_CLOSING && job->wait == WAIT_NOTHING && job->feed.held == 0 &&
        job->free == job->depth && rings_gone(job))
        job_end(job);
}

void job_touch(struct job *job)
{
    job->touched = job->core->touched = true;
}

void jobs_settle(struct core *core, uint64_t now)
{
    while (core->touched) {
        core->touched = false;
        for (uint32_t i = 0; i < core->n_jobs;) {
            struct job *job = core->jobs[i];

            if (job->touched) {
                job->touched = false;
                job_advance(job, now);
            }
            /* Its end takes it out of the jobs. */
            if (i < core->n_jobs && core->jobs[i] == job)
                i++;
        }
    }
}
