/*
 * Histories: what happens next, by chance; then a time without faults, and an
 * end.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "sim.h"

#define TENANT_JOBS 4
#define NODE_JOBS 7
#define TENANT_BYTES (9 * (uint64_t)RING_ALIGN)

static void tenant_key(unsigned tenant, char key[static 16])
{
    snprintf(key, 16, "uid:%u", tenant);
}

static void peer_connect(struct sim *sim, struct sim_peer *peer)
{
    char key[16];

    tenant_key((unsigned)(peer - sim->peers) % SIM_TENANTS, key);
    *peer = (struct sim_peer){.id = ++sim->peer_last, .account = account_ref(&sim->accounts, key)};
    EXPECT(sim, peer->account, "no account");
}

void sim_setup(struct sim *sim)
{
    static const struct core_device_spec devices[SIM_DEVICES] = {
        {.has_ring = false, .numa = 0},
        {.has_ring = true, .allow_ipc = true, .numa = 0},
        {.has_ring = true, .allow_ipc = false, .numa = 1},
        {.has_ring = true, .allow_ipc = true, .numa = 1},
        {.has_ring = true, .allow_ipc = true, .rings_off = true, .numa = 0},
    };
    struct account_limits node = {{UINT64_MAX, 3 * TENANT_BYTES / 2, NODE_JOBS, UINT64_MAX}};
    struct account_limits tenant = {{UINT64_MAX, TENANT_BYTES, TENANT_JOBS, UINT64_MAX}};

    sim->batches_per_numa = 1 + sim_random(sim, 3);
    accounts_init(&sim->accounts, &node, &tenant);
    sim->core = core_new(&sim->accounts, sim->batches_per_numa);
    EXPECT(sim, sim->core, "no core");
    memcpy(sim->devices, devices, sizeof devices);
    for (uint32_t i = 0; i < SIM_DEVICES; i++) {
        uint32_t number;

        EXPECT(sim, core_device_add(sim->core, &devices[i], &number) == 0 && number == i,
               "device %" PRIu32, i);
    }
    for (int i = 0; i < SIM_PEERS; i++)
        peer_connect(sim, &sim->peers[i]);
}

/* -- jobs ---------------------------------------------------------------------------------- */

static void spec_choose(struct sim *sim, struct core_job_spec *spec)
{
    static const enum delivery deliveries[] = {DELIVERY_AUTO, DELIVERY_AUTO, DELIVERY_AUTO,
                                               DELIVERY_AUTO, DELIVERY_FD,   DELIVERY_IPC,
                                               DELIVERY_HOST, DELIVERY_COPY, DELIVERY_MAPPED};

    *spec = (struct core_job_spec){
        .order = {.shuffle = ORDER_SHUFFLE_FULL,
                  .last = (enum order_last)sim_random(sim, 3),
                  .seed = sim_random(sim, 100),
                  .batch = 1 + sim_random(sim, 4),
                  .world = 1 + sim_random(sim, 2)},
        .depth = 1 + sim_random(sim, SIM_DEPTH),
        .device = sim_random(sim, SIM_DEVICES),
        .delivery = deliveries[sim_random(sim, sizeof deliveries / sizeof *deliveries)],
        .start = {.epoch = sim_random(sim, 3), .step = sim_random(sim, 3)},
        .dataset = "folder:/photos",
        .pipeline = "random-crop:224",
        .client_fd = sim_chance(sim, 80),
        .client_ipc = sim_chance(sim, 80),
        .client_copy = sim_chance(sim, 80),
        .client_mapped = sim_chance(sim, 80),
        .client_coherent = sim_chance(sim, 10),
        .no_ring = sim_chance(sim, 95) ? NULL : "a part of a GPU",
        .pushed = sim_chance(sim, 20),
    };
    if (sim_chance(sim, 20))
        spec->bad_limit =
            (struct core_bad_limit){.has = true,
                                    .samples = sim_random(sim, 12),
                                    .share_ppm = sim_chance(sim, 50) ? sim_random(sim, 800001) : 0};
    spec->order.rank = sim_random(sim, spec->order.world);
    if (sim_chance(sim, 4))
        spec->depth = 0;
    if (sim_chance(sim, 4))
        spec->order.rank = spec->order.world;
    if (sim_chance(sim, 4))
        spec->device = SIM_DEVICES;
}

/* The code that the core must answer a spec with. */
static int spec_judge(const struct sim *sim, const struct core_job_spec *spec)
{
    const struct core_device_spec *device;
    bool fd, ipc;

    if (spec->depth == 0 || spec->device >= SIM_DEVICES || spec->order.rank >= spec->order.world ||
        (spec->order.last == ORDER_LAST_PARTIAL && spec->order.world > 1))
        return -EINVAL;
    device = &sim->devices[spec->device];
    fd = spec->client_fd && !device->rings_off && !spec->no_ring;
    ipc = spec->client_ipc && device->allow_ipc && !device->rings_off && !spec->no_ring;
    switch (spec->delivery) {
    case DELIVERY_AUTO:
        return !device->has_ring || fd || ipc || spec->client_copy ||
                       (spec->client_mapped && spec->client_coherent)
                   ? 0
                   : -EOPNOTSUPP;
    case DELIVERY_FD:
        return device->has_ring && fd ? 0 : -EINVAL;
    case DELIVERY_IPC:
        return device->has_ring && ipc ? 0 : -EINVAL;
    case DELIVERY_HOST:
        return 0;
    case DELIVERY_COPY:
        return device->has_ring && spec->client_copy ? 0 : -EINVAL;
    case DELIVERY_MAPPED:
        return device->has_ring && spec->client_mapped ? 0 : -EINVAL;
    default:
        return -EINVAL;
    }
}

static void job_plan(struct sim *sim, struct sim_job *job)
{
    uint64_t step = (uint64_t)job->spec.order.batch * job->spec.order.world;

    job->samples = 1 + sim_random(sim, 24);
    job->slot_bytes = sim_chance(sim, 80) ? 4096 : 1 << 20;
    job->steps = job->samples / step;
    if (job->spec.order.last != ORDER_LAST_DROP && job->samples % step)
        job->steps++;
    job->plan_ok = job->steps > 0 && job->spec.start.step <= job->steps;
    job->next = job->spec.start;
}

/* Makes the spec one for the batches of a job that there is; NULL: of none. */
static const struct sim_job *job_like(struct sim *sim, struct core_job_spec *spec)
{
    const struct sim_job *like = &sim->jobs[sim_random(sim, SIM_JOBS)];

    if (!like->used || !like->identity)
        return NULL;
    spec->order = like->spec.order;
    spec->pushed = false;
    spec->live = sim_chance(sim, 30);
    if (sim_chance(sim, 50))
        spec->start = like->next;
    return like;
}

static void event_open(struct sim *sim)
{
    struct sim_peer *peer = &sim->peers[sim_random(sim, SIM_PEERS)];
    unsigned tenant = (unsigned)(peer - sim->peers) % SIM_TENANTS, jobs = 0, all = 0;
    struct sim_job *job = NULL;
    const struct sim_job *like;
    struct core_job_spec spec;
    struct failure failure = {0};
    uint64_t id;
    int rc, expected;

    for (int i = 0; i < SIM_JOBS; i++) {
        all += sim->jobs[i].used;
        jobs += sim->jobs[i].used && sim->jobs[i].tenant == tenant;
        if (!sim->jobs[i].used)
            job = &sim->jobs[i];
    }
    if (!job || !peer->id || peer->gone)
        return;
    spec_choose(sim, &spec);
    like = sim_chance(sim, 60) ? job_like(sim, &spec) : NULL;
    expected = spec_judge(sim, &spec);
    if (expected == 0 && (jobs >= TENANT_JOBS || all >= NODE_JOBS))
        expected = -EDQUOT;
    rc = core_job_open(sim->core, peer->account, peer->id, &spec, sim->now, &id, &failure);
    sim_log(sim, "  peer %" PRIu64 " opens a job: %d %s\n", peer->id, rc, failure.text);
    EXPECT(sim, rc == expected, "opening a job gave %d (%s) instead of %d", rc, failure.text,
           expected);
    EXPECT(sim, rc == 0 || (failure.code == rc && *failure.text), "a refusal without a text");
    if (rc < 0)
        return;
    *job =
        (struct sim_job){.used = true, .id = id, .peer = peer->id, .tenant = tenant, .spec = spec};
    job_plan(sim, job);
    if (!spec.pushed && sim_chance(sim, 50)) {
        job->identity = id;
        job->gathers = sim_chance(sim, 20);
    }
    if (like) {
        job->identity = like->identity;
        job->samples = like->samples;
        job->slot_bytes = like->slot_bytes;
        job->steps = like->steps;
        job->plan_ok = job->steps > 0 && spec.start.step <= job->steps;
    }
}

static struct sim_job *job_choose(struct sim *sim)
{
    struct sim_job *job = &sim->jobs[sim_random(sim, SIM_JOBS)];

    return job->used ? job : NULL;
}

/* The job's own peer, mostly. */
static uint64_t peer_choose(struct sim *sim, const struct sim_job *job)
{
    return sim_chance(sim, 95) ? job->peer : sim->peers[sim_random(sim, SIM_PEERS)].id;
}

static void event_close(struct sim *sim)
{
    struct sim_job *job = job_choose(sim);

    if (job)
        sim_job_close(sim, job, peer_choose(sim, job));
}

static void event_evict(struct sim *sim)
{
    const struct sim_job *job = job_choose(sim);

    /* Now and then one that never was. */
    sim_job_evict(sim, job ? job->id : UINT64_MAX - sim_random(sim, 10));
}

/* -- clients ------------------------------------------------------------------------------- */

static void event_release(struct sim *sim)
{
    struct sim_job *job = job_choose(sim);
    uint32_t lease = sim_random(sim, SIM_DEPTH);

    if (!job)
        return;
    for (uint32_t i = 0; i < SIM_DEPTH && !job->leases[lease].held && sim_chance(sim, 95); i++)
        lease = (lease + 1) % SIM_DEPTH;
    sim_release(sim, job, peer_choose(sim, job), sim_chance(sim, 98) ? lease : lease + 200,
                job->leases[lease].generation + (sim_chance(sim, 97) ? 0 : 1));
}

static void event_ring(struct sim *sim, bool close)
{
    struct sim_job *job = job_choose(sim);
    uint32_t ring = 0;

    if (!job)
        return;
    for (int i = 0; i < SIM_RINGS; i++) {
        struct sim_ring *at = &job->rings[i];

        /* A client closes what was replaced; the ring in use seldom. */
        if (at->used && (!close || at->lost || sim_chance(sim, 5)))
            ring = at->id;
    }
    if (!ring && sim_chance(sim, 95))
        return;
    if (close)
        sim_ring_close(sim, job, peer_choose(sim, job), ring);
    else
        sim_ring_answer(sim, job, peer_choose(sim, job), ring, sim_chance(sim, 85));
}

static void event_peer(struct sim *sim)
{
    struct sim_peer *peer = &sim->peers[sim_random(sim, SIM_PEERS)];

    if (!peer->id)
        peer_connect(sim, peer);
    else if (!peer->gone)
        sim_peer_gone(sim, peer);
    else
        sim_peer_dead(sim, peer);
}

static void event_answer(struct sim *sim)
{
    uint32_t luck = sim_random(sim, 1000);

    if (sim->n_tasks)
        sim_answer(sim, sim_random(sim, sim->n_tasks),
                   luck < 975   ? OUTCOME_OK
                   : luck < 995 ? OUTCOME_FAILED
                                : OUTCOME_STUCK);
}

static void event_end(struct sim *sim)
{
    sim_drain(sim);
    sim_check(sim);
    sim->event++;
    sim->events_total++;
    sim->now += 1 + sim_random(sim, 1000);
}

void sim_step(struct sim *sim)
{
    uint32_t what = sim_random(sim, 1000);

    if (what < 550)
        event_answer(sim);
    else if (what < 780)
        event_release(sim);
    else if (what < 850)
        event_open(sim);
    else if (what < 910)
        event_ring(sim, false);
    else if (what < 940)
        event_ring(sim, true);
    else if (what < 965)
        sim_repeat(sim);
    else if (what < 970)
        event_evict(sim);
    else if (what < 980)
        event_close(sim);
    else if (what < 990)
        event_peer(sim);
    else if (what < 998)
        sim_device_lost(sim, sim_random(sim, SIM_DEVICES));
    else
        sim_device_refused(sim, sim_random(sim, SIM_DEVICES));
    event_end(sim);
}

/* -- without faults ------------------------------------------------------------------------ */

/* Everything that is due is done, once: by workers, devices and clients. */
static bool round_of_good_luck(struct sim *sim)
{
    bool any = false;

    for (uint32_t n = sim->n_tasks; n > 0 && sim->n_tasks > 0; n--) {
        sim_answer(sim, 0, OUTCOME_OK);
        event_end(sim);
        any = true;
    }
    for (int i = 0; i < SIM_JOBS; i++) {
        struct sim_job *job = &sim->jobs[i];

        for (uint32_t k = 0; k < SIM_DEPTH; k++)
            if (job->used && !job->peer_gone && job->leases[k].held) {
                sim_release(sim, job, job->peer, k, job->leases[k].generation);
                event_end(sim);
                any = true;
            }
        for (uint32_t k = 0; k < SIM_RINGS; k++) {
            struct sim_ring *ring = &job->rings[k];

            if (!job->used || job->peer_gone || !ring->used || !ring->offered)
                continue;
            if (ring->mapping == MAPPING_UNKNOWN)
                sim_ring_answer(sim, job, job->peer, ring->id, true);
            else if (ring->mapping == MAPPING_OPEN && (ring->lost || !sim_job_live(job)))
                sim_ring_close(sim, job, job->peer, ring->id);
            else
                continue;
            event_end(sim);
            any = true;
        }
    }
    return any;
}

/* Delivered what shows that it goes on, or has an end that was told. */
static bool job_content(const struct sim_job *job, int64_t before)
{
    if (!job->used || !sim_job_live(job))
        return true;
    return !job->failing && job->delivered >= before + 3 * (int64_t)job->spec.depth;
}

void sim_settle(struct sim *sim)
{
    uint64_t ids[SIM_JOBS];
    int64_t before[SIM_JOBS];
    bool content = false;

    sim_log(sim, "  -- no faults from here\n");
    for (int i = 0; i < SIM_JOBS; i++) {
        ids[i] = sim->jobs[i].id;
        before[i] = sim->jobs[i].delivered;
    }
    for (int round = 0; !content && round < 400; round++) {
        round_of_good_luck(sim);
        content = true;
        for (int i = 0; i < SIM_JOBS; i++)
            content =
                content && (sim->jobs[i].id != ids[i] || job_content(&sim->jobs[i], before[i]));
    }
    for (int i = 0; i < SIM_JOBS; i++)
        EXPECT(sim, job_content(&sim->jobs[i], before[i]),
               "job %" PRIu64 " does not go on: %" PRId64 " batches, then %" PRId64,
               sim->jobs[i].id, before[i], sim->jobs[i].delivered);
}

/* -- the end ------------------------------------------------------------------------------- */

void sim_end(struct sim *sim)
{
    sim_log(sim, "  -- the end\n");
    for (int i = 0; i < SIM_JOBS; i++) {
        struct sim_job *job = &sim->jobs[i];

        if (!job->used || job->closing || sim_chance(sim, 50))
            continue;
        sim_job_close(sim, job, job->peer);
        event_end(sim);
    }
    for (int i = 0; i < SIM_PEERS; i++) {
        struct sim_peer *peer = &sim->peers[i];

        if (peer->id && !peer->gone && sim_chance(sim, 50)) {
            sim_peer_gone(sim, peer);
            event_end(sim);
        }
    }
    for (int i = 0; i < SIM_JOBS; i++)
        if (sim->jobs[i].used && !sim->jobs[i].closing) {
            sim_job_close(sim, &sim->jobs[i], sim->jobs[i].peer);
            event_end(sim);
        }
    for (int round = 0; round < 100 && round_of_good_luck(sim); round++)
        ;
    for (int i = 0; i < SIM_JOBS; i++)
        EXPECT(sim, !sim->jobs[i].used || sim->jobs[i].peer_gone || sim->jobs[i].identity,
               "job %" PRIu64 " is closed, waits for nothing and stays", sim->jobs[i].id);
    for (int i = 0; i < SIM_PEERS; i++) {
        struct sim_peer *peer = &sim->peers[i];

        if (!peer->id)
            continue;
        if (!peer->gone)
            sim_peer_gone(sim, peer);
        sim_peer_dead(sim, peer);
        event_end(sim);
    }
    for (int i = 0; i < SIM_JOBS; i++)
        EXPECT(sim, !sim->jobs[i].used, "job %" PRIu64 " outlives its client", sim->jobs[i].id);
    EXPECT(sim, core_free(sim->core) == 0, "jobs are left");
    EXPECT(sim, accounts_deinit(&sim->accounts) == 0, "accounts are not zero");
}
