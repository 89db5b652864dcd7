/*
 * Tables: columns that line up, and text that cannot steer a terminal.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/pinctl/table.h"

static char *print(struct table *table)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    assert_int_equal(table_print(table, out), 0);
    fclose(out);
    table_free(table);
    return text;
}

static void test_rows(void **state)
{
    (void)state;
    static const struct table_column columns[] = {{"JOB", true}, {"NAME"}, {"ERROR", false, true}};
    struct table *table = table_new(columns, 3, true);
    table_row(table);
    table_cell(table, "%d", 7);
    table_cell(table, "train");
    table_cell(table, "none");
    table_row(table);
    table_cell(table, "%d", 12345);
    table_cell(table, "%s", "x");
    table_cell(table, "-");
    char *text = print(table);
    assert_string_equal(text, "  JOB NAME  ERROR\n"
                              "    7 train none\n"
                              "12345 x     -\n");
    free(text);
}

static void test_pairs_without_headings(void **state)
{
    (void)state;
    static const struct table_column columns[] = {{"NAME"}, {"VALUE"}};
    struct table *table = table_new(columns, 2, false);
    table_pair(table, "pid", "%d", 3);
    table_pair(table, "socket", "%s", "/run/x");
    char *text = print(table);
    assert_string_equal(text, "pid    3\nsocket /run/x\n");
    free(text);
}

static void test_control_characters_do_no_harm(void **state)
{
    (void)state;
    static const struct table_column columns[] = {{"NAME"}};
    struct table *table = table_new(columns, 1, true);
    table_row(table);
    table_cell(table, "a\033[31mb\nc\r");
    char *text = print(table);
    assert_null(strchr(text, '\033'));
    assert_null(strchr(text, '\r'));
    free(text);
}

static void test_more_cells_than_columns_are_told(void **state)
{
    (void)state;
    static const struct table_column columns[] = {{"NAME"}};
    struct table *table = table_new(columns, 1, true);
    table_row(table);
    table_cell(table, "a");
    table_cell(table, "b");
    assert_int_not_equal(table_print(table, stderr), 0);
    table_free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_pairs_without_headings),
        cmocka_unit_test(test_control_characters_do_no_harm),
        cmocka_unit_test(test_more_cells_than_columns_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
