/*
 * What the core says of itself, compared with the model after every event.
 */
#include <inttypes.h>
#include <string.h>

#include "sim.h"

#define JOB "job %" PRIu64 ": "

static void check_tenant(struct sim *sim, unsigned tenant)
{
    uint64_t bytes = 0, jobs = 0, used_bytes = 0, used_jobs = 0;
    char key[16];

    snprintf(key, sizeof key, "uid:%u", tenant);
    for (int i = 0; i < SIM_JOBS; i++) {
        const struct sim_job *job = &sim->jobs[i];

        if (!job->used || job->tenant != tenant)
            continue;
        jobs++;
        for (int k = 0; k < SIM_RINGS; k++)
            bytes += job->rings[k].used ? job->rings[k].bytes : 0;
    }
    list_for_each(link, &sim->accounts.tenants)
    {
        const struct account *account = list_entry(link, struct account, link);

        if (strcmp(account->key, key) != 0)
            continue;
        used_bytes = account->used[ACCOUNT_DEVICE];
        used_jobs = account->used[ACCOUNT_JOBS];
    }
    EXPECT(sim, used_bytes == bytes && used_jobs == jobs,
           "tenant %s is charged %" PRIu64 " bytes and %" PRIu64 " jobs, it has %" PRIu64
           " and %" PRIu64,
           key, used_bytes, used_jobs, bytes, jobs);
}

static void check_job(struct sim *sim, const struct sim_job *job)
{
    struct core_job_info info;
    uint64_t bytes = 0;
    const char *state;

    EXPECT(sim, core_job_find(sim->core, job->id, &info), JOB "it is not to be found", job->id);
    for (int i = 0; i < SIM_RINGS; i++)
        bytes += job->rings[i].used ? job->rings[i].bytes : 0;
    EXPECT(sim,
           info.leased == sim_job_held(job) && info.ready >= info.leased &&
               info.ready <= info.depth,
           JOB "%" PRIu32 " leased and %" PRIu32 " ready, the client holds %" PRIu32, job->id,
           info.leased, info.ready, sim_job_held(job));
    EXPECT(sim, info.ring_bytes == bytes, JOB "%" PRIu64 " bytes of rings are %" PRIu64, job->id,
           bytes, info.ring_bytes);
    EXPECT(sim, info.next.epoch == job->next.epoch && info.next.step == job->next.step,
           JOB "its next step is %" PRIu64 ":%" PRIu64, job->id, info.next.epoch, info.next.step);
    EXPECT(sim, info.delivered == (uint64_t)job->delivered, JOB "%" PRIu64 " delivered", job->id,
           info.delivered);
    EXPECT(sim, info.bad == job->bad, JOB "%" PRIu64 " bad samples are %" PRIu64, job->id, job->bad,
           info.bad);
    state = info.state_text;
    EXPECT(sim, (strcmp(state, "closing") == 0) == job->closing, JOB "it is %s", job->id, state);
    EXPECT(sim, !job->told || job->closing || strcmp(state, "failed") == 0, JOB "it is %s", job->id,
           state);
}

static void check_device(struct sim *sim, uint32_t device)
{
    uint64_t bytes = 0;
    uint32_t jobs = 0;

    for (int i = 0; i < SIM_JOBS; i++) {
        const struct sim_job *job = &sim->jobs[i];

        if (!job->used || job->spec.device != device)
            continue;
        jobs++;
        for (int k = 0; k < SIM_RINGS; k++)
            bytes += job->rings[k].used ? job->rings[k].bytes : 0;
    }
    EXPECT(sim,
           core_device_jobs(sim->core, device) == jobs &&
               core_device_ring_bytes(sim->core, device) == bytes,
           "device %" PRIu32 " has other jobs or rings", device);
}

void sim_check(struct sim *sim)
{
    struct failure failure;

    if (core_check(sim->core, &failure) < 0)
        sim_fail(sim, "core_check: %s", failure.text);
    for (unsigned tenant = 0; tenant < SIM_TENANTS; tenant++)
        check_tenant(sim, tenant);
    for (uint32_t device = 0; device < SIM_DEVICES; device++)
        check_device(sim, device);
    for (int i = 0; i < SIM_JOBS; i++)
        if (sim->jobs[i].used)
            check_job(sim, &sim->jobs[i]);
}
