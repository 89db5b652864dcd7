/*
 * The bad samples of a job, for operators: each once, with its place and what
 * is wrong with it, ordered by its number. The first ones are logged, too.
 * Bounded: of a dataset that is damaged all over, some thousand names tell
 * enough. Thread-safe.
 */
#ifndef PINSERVE_DECODE_BAD_LIST_H
#define PINSERVE_DECODE_BAD_LIST_H

#include <stdint.h>

#define BAD_LIST_MAX 1000
#define BAD_LIST_LOGGED 5

struct bad_list;

/* NULL: no memory. */
struct bad_list *bad_list_new(void);
struct bad_list *bad_list_ref(struct bad_list *list);
void bad_list_unref(struct bad_list *list);

/* One that is there already, or for which there is no room, is dropped. job is for the log. */
void bad_list_add(struct bad_list *list, uint64_t job, uint64_t sample, const char *name,
                  const char *reason);

struct bad_sample {
    uint64_t sample;
    char *name, *reason; /* the list's, until it is freed */
};

/* Copies up to max rows behind the first skip ones; returns how many, and in *left_p how many
 * follow them. */
uint32_t bad_list_rows(struct bad_list *list, uint32_t skip, uint32_t max,
                       struct bad_sample *rows_p, uint32_t *left_p);

#endif
