/*
 * A doubly linked list threaded through its members. A list head and a member
 * that is in no list both point to themselves.
 */
#ifndef PINSERVE_LIST_H
#define PINSERVE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

static inline void list_init(struct list *list)
{
    list->next = list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
    return list->next == list;
}

/* Puts item before head: at the end of the list. */
static inline void list_append(struct list *head, struct list *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

/* Takes item out of the list that it is in, if any. */
static inline void list_remove(struct list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

#define list_entry(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#define list_for_each(item, head)                                                                  \
    for (struct list *item = (head)->next; item != (head); item = item->next)

/* Safe against removal of item itself. */
#define list_for_each_safe(item, head)                                                             \
    for (struct list *item = (head)->next, *item##_next = item->next; item != (head);              \
         item = item##_next, item##_next = item->next)

#endif
