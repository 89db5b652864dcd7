/*
 * The workers. A batch stays in the queue until its last sample is taken; every
 * worker that comes by helps with it. Whoever leaves an exhausted batch last
 * calls its done: until then the batch has a holder, and nobody else may free it.
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
#include <time.h>

#include "log.h"

#define STUCK_MAX 4           /* threads that are stuck in a read and replaced, at a time */
#define SPIN_NS 10000         /* about what it costs to be woken */
#define WORTH_WAKING_NS 50000 /* of work that is left */
#define COST_STEADY_NS 20000  /* samples of at least this are worth a note of their cost each */

/* The tensors of a slot, in layout_init's order. */
enum { TENSOR_SAMPLE, TENSOR_LABEL, TENSOR_INDEX, TENSOR_STATUS };

enum worker_state { WORKER_ABSENT, WORKER_RUNNING, WORKER_ENDED };

struct worker {
    struct workers *workers;
    pthread_t thread;
    enum worker_state state;
    atomic_bool replaced; /* ends when it has left its batch */
    struct work *work;    /* the batch that it holds */
    uint64_t told;        /* the read of this start has been told as stuck */
    _Atomic uint64_t reading_since, reading_sample; /* ns, 0: in no read */
    struct decoder *decoder;
    struct sample sample;
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

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

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

    if (atomic_load_explicit(&workers->sleeping, memory_order_relaxed) == 0 || left < 2 ||
        !is_large(left, cost_ns))
        return;
    pthread_mutex_lock(&workers->lock);
    wake_one(workers, left - 1);
    pthread_mutex_unlock(&workers->lock);
}

/* Nobody takes another sample of it. */
static void work_exhaust(struct work *work)
{
    atomic_store(&work->next, work->count);
}

static void work_fail(struct workers *workers, struct work *work, uint32_t position,
                      const struct failure *failure)
{
    /* All lower positions are taken already, so the lowest bad one is found all the same. */
    work_exhaust(work);
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
    bool exhausted = atomic_load(&work->next) >= work->count;

    if (exhausted && !list_empty(&work->link)) {
        list_remove(&work->link);
        atomic_fetch_sub(&workers->queued, 1);
    }
    if (--work->holders > 0 || !exhausted)
        return;
    pthread_mutex_unlock(&workers->lock);
    work->done(work);
    pthread_mutex_lock(&workers->lock);
}

/* What one worker adds to a batch's times. */
struct times {
    uint64_t read_ns, decode_ns;
};

static void reading_begin(struct worker *worker, uint64_t sample, uint64_t now)
{
    atomic_store_explicit(&worker->reading_sample, sample, memory_order_relaxed);
    atomic_store_explicit(&worker->reading_since, now, memory_order_release);
}

static void reading_end(struct worker *worker)
{
    atomic_store_explicit(&worker->reading_since, 0, memory_order_release);
}

static int fill_raw(struct worker *worker, struct work *work, uint64_t index, uint8_t *out,
                    int64_t *label, uint64_t *now, struct times *times, struct failure *failure)
{
    uint64_t start = *now;
    int rc;

    reading_begin(worker, index, start);
    rc = source_fill(work->source, index, (struct sample_key){work->order->seed, work->epoch}, out,
                     label, failure);
    reading_end(worker);
    *now = now_ns();
    times->read_ns += *now - start;
    return rc;
}

static int fill_image(struct worker *worker, struct work *work, uint64_t index, uint8_t *out,
                      int64_t *label, uint64_t *now, struct times *times, struct failure *failure)
{
    uint64_t start = *now;
    char name[FAILURE_TEXT_MAX];
    int rc;

    if (!worker->decoder)
        worker->decoder = decoder_new();
    if (!worker->decoder)
        return failure_set(failure, -ENOMEM, "no memory for a decoder");
    reading_begin(worker, index, start);
    rc = source_read(work->source, index, &worker->sample, failure);
    reading_end(worker);
    *now = now_ns();
    times->read_ns += *now - start;
    if (rc < 0)
        return rc;
    start = *now;
    *label = worker->sample.label;
    rc = decoder_image(worker->decoder, work->pipeline, worker->sample.bytes, worker->sample.size,
                       work->order->seed, work->epoch, index, out,
                       source_sample_name(work->source, index, name, sizeof name), failure);
    *now = now_ns();
    times->decode_ns += *now - start;
    return rc;
}

static int fill_sample(struct worker *worker, struct work *work, uint32_t i, uint64_t *now,
                       struct times *times, struct failure *failure)
{
    const struct tensor *tensors = work->layout->tensors;
    struct order_item item = order_at(work->order, work->epoch, work->step, i);
    uint8_t *slot = work->slot;
    uint8_t *out = slot + tensors[TENSOR_SAMPLE].offset + i * tensors[TENSOR_SAMPLE].sample_bytes;
    int64_t label = 0;
    int rc = (work->pipeline->crop == CROP_KIND_NONE ? fill_raw : fill_image)(
        worker, work, item.sample, out, &label, now, times, failure);

    if (rc < 0)
        return rc;
    memcpy(slot + tensors[TENSOR_LABEL].offset + (size_t)i * sizeof label, &label, sizeof label);
    memcpy(slot + tensors[TENSOR_INDEX].offset + (size_t)i * sizeof item.sample, &item.sample,
           sizeof item.sample);
    slot[tensors[TENSOR_STATUS].offset + i] = (uint8_t)item.status;
    return 0;
}

/* Takes samples of the batch as long as there are any. */
static void worker_fill(struct worker *worker, struct work *work)
{
    struct workers *workers = worker->workers;
    uint64_t cost_ns = atomic_load_explicit(&workers->cost_ns, memory_order_relaxed);
    uint64_t now = now_ns();
    struct times times = {0};
    struct failure failure = {0};

    for (;;) {
        uint64_t start = now;
        uint32_t i;

        if (atomic_load(&work->cancelled)) {
            failure_set(&failure, -ECANCELED, "cancelled");
            if (atomic_load(&work->next) < work->count)
                work_fail(workers, work, UINT32_MAX, &failure);
            break;
        }
        work_share(workers, work, cost_ns);
        i = atomic_fetch_add(&work->next, 1);
        if (i >= work->count)
            break;
        if (fill_sample(worker, work, i, &now, &times, &failure) < 0)
            work_fail(workers, work, i, &failure);
        cost_ns = now - start;
        if (cost_ns >= COST_STEADY_NS)
            atomic_store_explicit(&workers->cost_ns, cost_ns, memory_order_relaxed);
        if (atomic_load(&worker->replaced))
            break;
    }
    atomic_store_explicit(&workers->cost_ns, cost_ns, memory_order_relaxed);
    pthread_mutex_lock(&workers->lock);
    work->read_ns += times.read_ns;
    work->decode_ns += times.decode_ns;
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

/* The next batch to help with, held; NULL when the workers end. */
static struct work *worker_next(struct worker *worker)
{
    struct workers *workers = worker->workers;
    struct work *work = NULL;
    bool may_spin = true;

    pthread_mutex_lock(&workers->lock);
    while (!work && !atomic_load(&worker->replaced)) {
        if (!list_empty(&workers->queue)) {
            work = list_entry(workers->queue.next, struct work, link);
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
            while (workers->wakeups == 0 && !workers->ending)
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
    decoder_free(worker->decoder);
    sample_deinit(&worker->sample);
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
    work->failed_at = UINT32_MAX;
    work->holders = 0;
    atomic_store(&work->next, 0);
    pthread_mutex_lock(&workers->lock);
    list_append(&workers->queue, &work->link);
    atomic_fetch_add(&workers->queued, 1);
    wake_for(workers, work);
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
        uint64_t since = atomic_load_explicit(&worker->reading_since, memory_order_acquire);
        uint64_t sample = atomic_load_explicit(&worker->reading_sample, memory_order_relaxed);
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
