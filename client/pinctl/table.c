/*
 * Tables on libsmartcols. A struct table owns its libscols_table; cells are copied into it.
 */
#include "table.h"

#include <errno.h>
#include <libsmartcols/libsmartcols.h>
#include <stdarg.h>
#include <stdlib.h>

#include "proto/cleanup.h"

struct table {
    struct libscols_table *table;
    struct libscols_line *line; /* being filled, the table's */
    size_t cell;                /* the next one of line */
    int error;
};

struct table *table_new(const struct table_column *columns, size_t n, bool headings)
{
    struct table *table = calloc(1, sizeof(*table));
    if (!table)
        return NULL;
    table->table = scols_new_table();
    if (!table->table)
        goto err_table;
    scols_table_enable_noheadings(table->table, !headings);
    for (size_t i = 0; i < n; i++) {
        int flags =
            (columns[i].right ? SCOLS_FL_RIGHT : 0) | (columns[i].trunc ? SCOLS_FL_TRUNC : 0);
        if (!scols_table_new_column(table->table, columns[i].name, 0, flags))
            goto err_table;
    }
    return table;

err_table:
    table_free(table);
    return NULL;
}

void table_free(struct table *table)
{
    if (!table)
        return;
    scols_unref_table(table->table);
    free(table);
}

void table_row(struct table *table)
{
    table->line = scols_table_new_line(table->table, NULL);
    table->cell = 0;
    if (!table->line)
        table->error = -ENOMEM;
}

static void table_vcell(struct table *table, const char *format, va_list args)
{
    if (!table->line)
        return;
    cleanup_free char *text = NULL;
    if (vasprintf(&text, format, args) < 0) {
        text = NULL;
        table->error = -ENOMEM;
        return;
    }
    if (scols_line_set_data(table->line, table->cell++, text) != 0)
        table->error = -ENOMEM;
}

void table_cell(struct table *table, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    table_vcell(table, format, args);
    va_end(args);
}

void table_pair(struct table *table, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    table_row(table);
    table_cell(table, "%s", name);
    table_vcell(table, format, args);
    va_end(args);
}

int table_print(struct table *table, FILE *out)
{
    if (table->error)
        return table->error;
    scols_table_set_stream(table->table, out);
    return scols_print_table(table->table) == 0 ? 0 : -ENOMEM;
}
