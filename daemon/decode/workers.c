/*
 * The workers. A batch stays in the queue until its last sample is taken; every
 * worker that comes by helps with it. Whoever leaves an exhausted batch last
 * calls its done: until then the batch has a holder, and nobody else may free it.
 *
 * A sample that is not in the page cache is given to readers, and whoever comes
 * by when it is fetched decodes it. Meanwhile its batch stays in the queue, and
 * workers take what can be had, of this batch or the next; they sleep only when
 * there is nothing.
 *
 * Waking a thread costs more than filling a small batch, so a new batch wakes
 * one worker at most, and a worker wakes another one only when what is left of
 * the batch is worth it. Right after work one of them spins for a moment before
 * it sleeps. None of this decides a byte.
 *
 * One lock guards everything that is not atomic. It is never held while reading,
 * decoding or calling back.
 */
#include "decode/workers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode/fill.h"
#include "log.h"

#define STUCK_MAX 4           /* threads that are stuck in a read and replaced, at a time */
#define SPIN_NS 10000         /* about what it costs to be woken */
#define WORTH_WAKING_NS 50000 /* of work that is left */
#define COST_STEADY_NS 20000  /* samples of at least this are worth a note of their cost each */

enum worker_state { WORKER_ABSENT, WORKER_RUNNING, WORKER_ENDED };

struct worker {
    struct workers *workers;
    pthread_t thread;
    enum worker_state state;
    atomic_bool replaced; /* ends when it has left its batch */
    struct work *work;    /* the batch that it holds */
    uint64_t told;        /* the read of this start has been told as stuck */
    struct filler filler;
};

struct workers {
    struct topology *topology;
    const struct placement *placement;
    unsigned n;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list queue; /* batches that may have samples left to take */
    atomic_uint queued;
    atomic_uint sleeping; /* threads that wait for a wake-up */
    unsigned wakeups;     /* sent to them and not taken yet */
    unsigned active;      /* workers that hold a batch */
    uint64_t taken;       /* when the last of them took it */
    bool spinning;        /* one worker is about to look at the queue again */
    bool ending;
    bool unbound_told;
    _Atomic uint64_t cost_ns; /* of one sample, of late */
    struct worker worker[];   /* n + STUCK_MAX */
};

static void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Wakes a sleeping worker unless enough are on their way for `left` samples. Lock held. */
static void wake_one(struct workers *workers, uint32_t left)
{
    if (workers->wakeups >= workers->sleeping || workers->wakeups >= left)
        return;
    workers->wakeups++;
    pthread_cond_signal(&workers->wake);
}

/* Whether cost_ns for each of n samples is worth another thread's waking up. */
static bool is_large(uint64_t n, uint64_t cost_ns)
{
    return n * cost_ns >= WORTH_WAKING_NS;
}

/* Wakes a worker for a batch that nobody has begun. Lock held. */
static void wake_for(struct workers *workers, const struct work *work)
{
    bool large =
        is_large(work->count, atomic_load_explicit(&workers->cost_ns, memory_order_relaxed));
    bool awake = workers->spinning || workers->wakeups > 0 ||
                 (workers->active > 0 && now_ns() - workers->taken < WORTH_WAKING_NS);

    /* One that is awake takes a small batch along. Should it not (samples cost more of a sudden),
     * the next submission or workers_check mends that. */
    if (large || !awake)
        wake_one(workers, UINT32_MAX);
}

/* Has another worker help when that pays. */
static void work_share(struct workers *workers, struct work *work, uint64_t cost_ns)
{
    uint32_t next = atomic_load_explicit(&work->next, memory_order_relaxed);
    uint32_t left = next < work->count ? work->count - next : 0;

    if (work->intake)
        left += intake_ready(work->intake);
    if (atomic_load_explicit(&workers->sleeping, memory_order_relaxed) == 0 || left < 2 ||
        !is_large(left, cost_ns))
        return;
    pthread_mutex_lock(&workers->lock);
    wake_one(workers, left - 1);
    pthread_mutex_unlock(&workers->lock);
}

/* Whether a worker finds something to do in it now. */
static bool work_has_some(const struct work *work)
{
    if (!work->intake)
        return atomic_load(&work->next) < work->count;
    return intake_ready(work->intake) > 0 || (atomic_load(&work->next) < work->count &&
                                              intake_pending(work->intake) < INTAKE_PENDING_MAX);
}

/* Whether nobody will find anything in it again. */
static bool work_is_over(const struct work *work)
{
    return atomic_load(&work->next) >= work->count &&
           (!work->intake || intake_pending(work->intake) == 0);
}

static void work_fail(struct workers *workers, struct work *work, uint32_t position,
                      const struct failure *failure)
{
    /* All lower positions are taken already or pending, so the lowest bad one is found all the
     * same. */
    atomic_store(&work->next, work->count);
    if (work->intake)
        intake_limit(work->intake, failure->code == -ECANCELED ? 0 : position);
    pthread_mutex_lock(&workers->lock);
    if (position <= work->failed_at) {
        work->failed_at = position;
        work->failure = *failure;
    }
    pthread_mutex_unlock(&workers->lock);
}

/* Gives up one hold on work, with the lock held; lets go of the lock for done when it was the last.
 */
static void work_leave(struct workers *workers, struct work *work)
{
    /* While anybody holds it, a sample that is taken may still be passed on to readers. */
    if (--work->holders > 0 || !work_is_over(work))
        return;
    list_remove(&work->link);
    atomic_fetch_sub(&workers->queued, 1);
    pthread_mutex_unlock(&workers->lock);
    intake_free(work->intake);
    work->intake = NULL;
    work->done(work);
    pthread_mutex_lock(&workers->lock);
}

/* Takes samples of the batch as long as there are any. */
static void worker_fill(struct worker *worker, struct work *work)
{
    struct workers *workers = worker->workers;
    uint64_t cost_ns = atomic_load_explicit(&workers->cost_ns, memory_order_relaxed);
    struct filler *filler = &worker->filler;
    struct failure failure = {0};

    filler_begin(filler);
    for (;;) {
        uint64_t start = filler->now;
        struct taken taken;
        int rc;

        if (atomic_load(&work->cancelled)) {
            failure_set(&failure, -ECANCELED, "cancelled");
            if (!work_is_over(work))
                work_fail(workers, work, UINT32_MAX, &failure);
            break;
        }
        work_share(workers, work, cost_ns);
        if (!filler_take(filler, work, &taken, &failure))
            break;
        rc = filler_fill(filler, work, &taken, &failure);
        if (rc < 0)
            work_fail(workers, work, taken.position, &failure);
        if (rc == FILL_PASSED_ON)
            continue;
        cost_ns = filler->now - start;
        if (cost_ns >= COST_STEADY_NS)
            atomic_store_explicit(&workers->cost_ns, cost_ns, memory_order_relaxed);
        if (atomic_load(&worker->replaced))
            break;
    }
    atomic_store_explicit(&workers->cost_ns, cost_ns, memory_order_relaxed);
    pthread_mutex_lock(&workers->lock);
    filler_end(filler, work);
    worker->work = NULL;
    workers->active--;
    work_leave(workers, work);
    pthread_mutex_unlock(&workers->lock);
}

/* Looks at the queue for a moment without the lock. Lock held before and after. */
static void worker_spin(struct workers *workers)
{
    uint64_t until = now_ns() + SPIN_NS;

    workers->spinning = true;
    pthread_mutex_unlock(&workers->lock);
    do
        for (int i = 0; i < 16 && atomic_load_explicit(&workers->queued, memory_order_relaxed) == 0;
             i++)
            spin_pause();
    while (atomic_load_explicit(&workers->queued, memory_order_relaxed) == 0 && now_ns() < until);
    pthread_mutex_lock(&workers->lock);
    workers->spinning = false;
}

/* The first batch in which a worker finds something, if only that it is over; NULL: none. Lock
 * held. */
static struct work *workers_find(struct workers *workers)
{
    list_for_each(item, &workers->queue)
    {
        struct work *work = list_entry(item, struct work, link);
        if (work_has_some(work) || (work->holders == 0 && work_is_over(work)))
            return work;
    }
    return NULL;
}

/* The next batch to help with, held; NULL when the workers end. */
static struct work *worker_next(struct worker *worker)
{
    struct workers *workers = worker->workers;
    struct work *work = NULL;
    bool may_spin = true;

    pthread_mutex_lock(&workers->lock);
    while (!work && !atomic_load(&worker->replaced)) {
        work = workers_find(workers);
        if (work) {
            work->holders++;
            worker->work = work;
            workers->active++;
            workers->taken = now_ns();
            if (work->link.next != &workers->queue)
                wake_for(workers, list_entry(work->link.next, struct work, link));
        } else if (workers->ending) {
            break;
        } else if (may_spin && !workers->spinning) {
            may_spin = false;
            worker_spin(workers);
        } else {
            atomic_fetch_add(&workers->sleeping, 1);
            /* Looked at once more: see workers_wake. */
            while (workers->wakeups == 0 && !workers->ending && !workers_find(workers))
                pthread_cond_wait(&workers->wake, &workers->lock);
            workers->wakeups -= workers->wakeups > 0;
            atomic_fetch_sub(&workers->sleeping, 1);
            may_spin = false;
        }
    }
    pthread_mutex_unlock(&workers->lock);
    return work;
}

static void worker_bind(struct workers *workers)
{
    int rc = placement_bind_thread(workers->topology, workers->placement);
    bool first;

    if (rc == 0)
        return;
    pthread_mutex_lock(&workers->lock);
    first = !workers->unbound_told;
    workers->unbound_told = true;
    pthread_mutex_unlock(&workers->lock);
    if (first)
        log_warning("workers run on any CPU: binding them to NUMA node %d: %s",
                    workers->placement->cpu_node, strerror(-rc));
}

static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    struct workers *workers = worker->workers;
    struct work *work;

    pthread_setname_np(pthread_self(), "pinserve-worker");
    worker_bind(workers);
    while ((work = worker_next(worker)))
        worker_fill(worker, work);
    filler_deinit(&worker->filler);
    pthread_mutex_lock(&workers->lock);
    worker->state = WORKER_ENDED;
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

/* Starts a thread that leaves the process's signals to others. Lock held, or nobody else there. */
static int worker_start(struct workers *workers, struct worker *worker)
{
    sigset_t all, before;
    int error;

    *worker = (struct worker){.workers = workers, .state = WORKER_RUNNING};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&worker->thread, NULL, worker_run, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        worker->state = WORKER_ABSENT;
    return -error;
}

int workers_new(struct topology *topology, const struct placement *placement, unsigned n,
                struct workers **workers_p, struct failure *failure)
{
    struct workers *workers;

    if (n == 0)
        return failure_set(failure, -EINVAL, "no workers: at least one thread has to decode");
    workers = calloc(1, sizeof *workers + (n + STUCK_MAX) * sizeof workers->worker[0]);
    if (!workers)
        return failure_set(failure, -ENOMEM, "no memory for %u workers", n);
    workers->topology = topology;
    workers->placement = placement;
    workers->n = n;
    workers->cost_ns = WORTH_WAKING_NS;
    list_init(&workers->queue);
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->wake, NULL);
    for (unsigned i = 0; i < n; i++) {
        int rc = worker_start(workers, &workers->worker[i]);

        if (rc < 0) {
            workers_free(workers);
            return failure_set(failure, rc, "starting thread %u of %u workers: %s", i + 1, n,
                               strerror(-rc));
        }
    }
    *workers_p = workers;
    return 0;
}

void workers_free(struct workers *workers)
{
    if (!workers)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->ending = true;
    pthread_cond_broadcast(&workers->wake);
    pthread_mutex_unlock(&workers->lock);
    for (unsigned i = 0; i < workers->n + STUCK_MAX; i++) {
        enum worker_state state;

        pthread_mutex_lock(&workers->lock);
        state = workers->worker[i].state;
        pthread_mutex_unlock(&workers->lock);
        if (state != WORKER_ABSENT)
            pthread_join(workers->worker[i].thread, NULL);
    }
    pthread_cond_destroy(&workers->wake);
    pthread_mutex_destroy(&workers->lock);
    free(workers);
}

unsigned workers_count(const struct workers *workers)
{
    return workers->n;
}

void workers_submit(struct workers *workers, struct work *work)
{
    work->failure = (struct failure){0};
    work->read_ns = work->decode_ns = 0;
    work->without_end = work->plain_inks = 0;
    work->failed_at = UINT32_MAX;
    atomic_store(&work->n_bad, 0);
    work->holders = 0;
    work->intake = NULL;
    if (work->stream)
        work->intake = stream_want(work->stream, (struct cursor){work->epoch, work->step}, work);
    atomic_store(&work->next, work->intake ? intake_asked(work->intake) : 0);
    pthread_mutex_lock(&workers->lock);
    list_append(&workers->queue, &work->link);
    atomic_fetch_add(&workers->queued, 1);
    wake_for(workers, work);
    pthread_mutex_unlock(&workers->lock);
}

void workers_wake(struct workers *workers)
{
    /* One that is about to sleep counts itself first and then looks. */
    if (atomic_load(&workers->sleeping) == 0)
        return;
    pthread_mutex_lock(&workers->lock);
    wake_one(workers, UINT32_MAX);
    pthread_mutex_unlock(&workers->lock);
}

/* Starts a thread in place of a stuck one, if there is room for one more. Lock held. */
static bool worker_replace(struct workers *workers)
{
    for (unsigned i = 0; i < workers->n + STUCK_MAX; i++)
        if (workers->worker[i].state == WORKER_ABSENT)
            return worker_start(workers, &workers->worker[i]) == 0;
    return false;
}

void workers_check(struct workers *workers, uint64_t limit_ns,
                   void (*stuck)(struct work *work, const char *name, void *user), void *user)
{
    uint64_t now = now_ns();
    char name[FAILURE_TEXT_MAX];

    pthread_mutex_lock(&workers->lock);
    for (unsigned i = 0; i < workers->n + STUCK_MAX; i++) {
        struct worker *worker = &workers->worker[i];
        uint64_t since = atomic_load_explicit(&worker->filler.reading_since, memory_order_acquire);
        uint64_t sample =
            atomic_load_explicit(&worker->filler.reading_sample, memory_order_relaxed);
        struct work *work = worker->work;

        if (worker->state == WORKER_ENDED) {
            pthread_join(worker->thread, NULL);
            worker->state = WORKER_ABSENT;
            continue;
        }
        if (worker->state != WORKER_RUNNING || !work || since == 0 || since == worker->told ||
            now < since || now - since <= limit_ns)
            continue;
        worker->told = since;
        atomic_store(&worker->replaced, worker_replace(workers));
        /* Held, the batch stays when the read returns meanwhile. */
        work->holders++;
        pthread_mutex_unlock(&workers->lock);
        stuck(work, source_sample_name(work->source, sample, name, sizeof name), user);
        pthread_mutex_lock(&workers->lock);
        work_leave(workers, work);
    }
    if (!list_empty(&workers->queue))
        wake_one(workers, UINT32_MAX);
    pthread_mutex_unlock(&workers->lock);
}
