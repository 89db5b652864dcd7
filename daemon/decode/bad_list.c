/*
 * An array ordered by sample numbers. Texts stay where they are while rows move,
 * so that a copy of a row holds as long as the list.
 */
#include "decode/bad_list.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"

struct bad_list {
    pthread_mutex_t lock;
    unsigned refs; /* one thread's: the lock does not guard them */
    uint32_t n;
    struct bad_sample rows[BAD_LIST_MAX];
};

struct bad_list *bad_list_new(void)
{
    struct bad_list *list = calloc(1, sizeof *list);

    if (list) {
        pthread_mutex_init(&list->lock, NULL);
        list->refs = 1;
    }
    return list;
}

struct bad_list *bad_list_ref(struct bad_list *list)
{
    list->refs++;
    return list;
}

void bad_list_unref(struct bad_list *list)
{
    if (!list || --list->refs > 0)
        return;
    for (uint32_t i = 0; i < list->n; i++) {
        free(list->rows[i].name);
        free(list->rows[i].reason);
    }
    pthread_mutex_destroy(&list->lock);
    free(list);
}

/* The first row whose sample is not below this one. */
static uint32_t lower_bound(const struct bad_list *list, uint64_t sample)
{
    uint32_t low = 0, high = list->n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (list->rows[middle].sample < sample)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns how many there are then, 0 when nothing was added. Lock held. */
static uint32_t insert(struct bad_list *list, uint64_t sample, const char *name, const char *reason)
{
    uint32_t at = lower_bound(list, sample);
    struct bad_sample row;

    if (list->n == BAD_LIST_MAX || (at < list->n && list->rows[at].sample == sample))
        return 0;
    row = (struct bad_sample){sample, strdup(name), strdup(reason)};
    if (!row.name || !row.reason) {
        free(row.name);
        free(row.reason);
        return 0;
    }
    memmove(&list->rows[at + 1], &list->rows[at], (list->n - at) * sizeof row);
    list->rows[at] = row;
    return ++list->n;
}

void bad_list_add(struct bad_list *list, uint64_t job, uint64_t sample, const char *name,
                  const char *reason)
{
    pthread_mutex_lock(&list->lock);
    uint32_t n = insert(list, sample, name, reason);
    pthread_mutex_unlock(&list->lock);
    if (n > 0 && n <= BAD_LIST_LOGGED)
        log_warning("job %" PRIu64 ": bad sample: %s%s", job, reason,
                    n == BAD_LIST_LOGGED ? "; further ones are not logged, only counted and listed"
                                         : "");
}

uint32_t bad_list_rows(struct bad_list *list, uint32_t skip, uint32_t max,
                       struct bad_sample *rows_p, uint32_t *left_p)
{
    uint32_t n = 0;

    pthread_mutex_lock(&list->lock);
    if (skip < list->n)
        n = list->n - skip < max ? list->n - skip : max;
    if (n > 0)
        memcpy(rows_p, &list->rows[skip], n * sizeof *rows_p);
    *left_p = skip < list->n ? list->n - skip - n : 0;
    pthread_mutex_unlock(&list->lock);
    return n;
}
