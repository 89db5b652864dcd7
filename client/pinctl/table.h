/*
 * Tables for people: rows of formatted cells under headings, laid out by libsmartcols, which also
 * makes harmless what a terminal would take for a command. A row that could not be stored is
 * remembered and told when the table is printed.
 */
#ifndef PINCTL_TABLE_H
#define PINCTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct table;

struct table_column {
    const char *name;
    bool right; /* numbers */
    bool trunc; /* may be cut where a terminal is too narrow */
};

/* headings: print the columns' names. NULL without memory. */
struct table *table_new(const struct table_column *columns, size_t n, bool headings);
void table_free(struct table *table);

/* Begins a row; table_cell then fills it from the left. */
void table_row(struct table *table);
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A row of two cells: what it is and its value. */
void table_pair(struct table *table, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* 0 or -ENOMEM. */
int table_print(struct table *table, FILE *out);

#endif
