/*
 * What is to be given up waits in a list for one thread, which starts with the
 * first and sleeps while there is nothing.
 */
#include "disposal.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/list.h"

struct item {
    struct list link;
    void (*end)(void *object);
    void *object;
};

struct fds {
    size_t n;
    int fds[];
};

struct disposal {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list items;
    bool busy; /* the thread is at one */
    bool started, ending;
    pthread_t thread;
    void (*idle)(void *user);
    void *user;
};

struct disposal *disposal_new(void (*idle)(void *user), void *user)
{
    struct disposal *disposal = calloc(1, sizeof *disposal);

    if (!disposal)
        return NULL;
    pthread_mutex_init(&disposal->lock, NULL);
    pthread_cond_init(&disposal->wake, NULL);
    list_init(&disposal->items);
    disposal->idle = idle;
    disposal->user = user;
    return disposal;
}

static void *disposal_run(void *argument)
{
    struct disposal *disposal = argument;

    pthread_mutex_lock(&disposal->lock);
    for (;;) {
        if (!list_empty(&disposal->items)) {
            struct item *item = list_entry(disposal->items.next, struct item, link);
            list_remove(&item->link);
            disposal->busy = true;
            pthread_mutex_unlock(&disposal->lock);
            item->end(item->object);
            free(item);
            pthread_mutex_lock(&disposal->lock);
            disposal->busy = false;
            /* Told with the lock held: who sees it idle is told nothing after that. */
            if (list_empty(&disposal->items))
                disposal->idle(disposal->user);
        } else if (disposal->ending) {
            break;
        } else {
            pthread_cond_wait(&disposal->wake, &disposal->lock);
        }
    }
    pthread_mutex_unlock(&disposal->lock);
    return NULL;
}

static bool disposal_start(struct disposal *disposal)
{
    sigset_t all, before;

    if (disposal->started)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    disposal->started = pthread_create(&disposal->thread, NULL, disposal_run, disposal) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (disposal->started)
        pthread_setname_np(disposal->thread, "pinserve-close");
    return disposal->started;
}

void disposal_give(struct disposal *disposal, void (*end)(void *object), void *object)
{
    struct item *item = disposal_start(disposal) ? malloc(sizeof *item) : NULL;

    if (!item) { /* better late than never */
        end(object);
        return;
    }
    *item = (struct item){.end = end, .object = object};
    list_init(&item->link);
    pthread_mutex_lock(&disposal->lock);
    list_append(&disposal->items, &item->link);
    pthread_cond_signal(&disposal->wake);
    pthread_mutex_unlock(&disposal->lock);
}

static void fds_end(void *object)
{
    struct fds *fds = object;

    for (size_t i = 0; i < fds->n; i++)
        close(fds->fds[i]);
    free(fds);
}

void disposal_give_fds(struct disposal *disposal, const int *fds, size_t n)
{
    struct fds *given = n > 0 ? malloc(sizeof *given + n * sizeof *fds) : NULL;

    if (given) {
        given->n = n;
        memcpy(given->fds, fds, n * sizeof *fds);
        disposal_give(disposal, fds_end, given);
        return;
    }
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

bool disposal_idle(struct disposal *disposal)
{
    pthread_mutex_lock(&disposal->lock);
    bool idle = list_empty(&disposal->items) && !disposal->busy;
    pthread_mutex_unlock(&disposal->lock);
    return idle;
}

void disposal_free(struct disposal *disposal)
{
    if (!disposal)
        return;
    pthread_mutex_lock(&disposal->lock);
    disposal->ending = true;
    pthread_cond_signal(&disposal->wake);
    pthread_mutex_unlock(&disposal->lock);
    if (disposal->started)
        pthread_join(disposal->thread, NULL);
    pthread_cond_destroy(&disposal->wake);
    pthread_mutex_destroy(&disposal->lock);
    free(disposal);
}
