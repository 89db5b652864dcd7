/*
 * A printed configuration reads back, and the configuration file and the manual
 * page tell the defaults of the code.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config_file.h"

static char *print(const struct config *config)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);

    assert_non_null(stream);
    config_print(config, stream);
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void test_print_reads_back(void **state)
{
    struct config a, b;

    (void)state;
    config_init(&a, 100 * GIB);
    assert_int_equal(read_text(&a, other_values, NULL), 0);
    char *printed = print(&a);
    assert_string_equal(printed, other_values);
    config_init(&b, 100 * GIB);
    assert_int_equal(read_text(&b, printed, NULL), 0);
    char *again = print(&b);
    assert_string_equal(again, printed);
    free(again);
    free(printed);

    /* And with what config_finish computes. */
    config_deinit(&a);
    config_deinit(&b);
    config_init(&a, 100 * GIB + 1);
    config_init(&b, 100 * GIB + 1);
    assert_int_equal(config_finish(&a, NULL), 0);
    printed = print(&a);
    assert_int_equal(read_text(&b, printed, NULL), 0);
    assert_int_equal(b.pool_max, a.pool_max);
    again = print(&b);
    assert_string_equal(again, printed);
    free(again);
    free(printed);
    config_deinit(&a);
    config_deinit(&b);
}

/* value, as it is read; then printed and read again. */
static void assert_text_survives(const char *text, const char *value)
{
    struct config config, again;
    struct failure failure = {0};

    config_init(&config, 100 * GIB);
    config_init(&again, 100 * GIB);
    if (read_text(&config, text, &failure) < 0)
        fail_msg("%s", failure.text);
    assert_string_equal(config.device_program, value);
    char *printed = print(&config);
    if (read_text(&again, printed, &failure) < 0)
        fail_msg("%s", failure.text);
    assert_string_equal(again.device_program, value);
    free(printed);
    config_deinit(&config);
    config_deinit(&again);
}

#define X16 "xxxxxxxxxxxxxxxx"
#define X160 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16
#define KEY "[daemon]\ndevice_program"

/* A line holds 198 bytes; lines that go on are joined by a blank, and may be comments. */
static void test_texts_survive(void **state)
{
    (void)state;
    assert_text_survives(KEY "=" X160 "\n " X160 "y\n", X160 " " X160 "y");
    assert_text_survives(KEY "=a  b\n " X160 X16 "\n c\n", "a  b " X160 X16 " c");
    assert_text_survives(KEY " =\n y\n\tz\n", "y z");
    assert_text_survives(KEY " = y ; not this\n\tz;z\t; nor this\n ;nor this\n a\n", "y z;z a");
    assert_text_survives(KEY "=;y\n", ";y");
    assert_text_survives(KEY "=#" X160 " #y\n z\n", "#" X160 " #y z");
    assert_text_survives(KEY "=" X16 " y " X160 "\n z\n", X16 " y " X160 " z");
    assert_text_survives(KEY "=\n", "");
    assert_text_survives(KEY "=" X16 "\f " X160 "\r y z\n", X16 "\f " X160 "\r y z");
}

/* The first key of a section may be indented, and is no rest of the value before it. */
static void test_indented_sections(void **state)
{
    struct config config;

    (void)state;
    config_init(&config, 100 * GIB);
    assert_int_equal(
        read_text(&config, KEY " = a\n[pool]\n  min = 128MiB\n[daemon]\n\ttenant = uid\n", NULL),
        0);
    assert_string_equal(config.device_program, "a");
    assert_int_equal(config.pool_min, UINT64_C(128) << 20);
    config_deinit(&config);
    assert_text_survives(KEY " = a\n[daemon]\n  device_program = b\n c\n", "b c");
}

/* Appends "section.key" of each key of a file, in order. */
static void list_keys(const char *text, FILE *list)
{
    char section[32] = "", key[32];

    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (sscanf(line, "[%31[a-z_]]", section) == 1)
            continue;
        if (sscanf(line, "%31[a-z_] =", key) == 1)
            fprintf(list, "%s.%s\n", section, key);
    }
}

/* text, a file with every key, has all keys, no others, and the defaults. */
static void assert_defaults(const char *text)
{
    struct config standard, told;
    char *expected = NULL, *found = NULL;
    size_t size;

    config_init(&standard, 100 * GIB);
    char *printed = print(&standard);
    FILE *list = open_memstream(&expected, &size);
    list_keys(printed, list);
    fclose(list);
    list = open_memstream(&found, &size);
    list_keys(text, list);
    fclose(list);
    assert_string_equal(found, expected);

    config_init(&told, 100 * GIB);
    struct failure failure = {0};
    assert_int_equal(read_text(&told, other_values, NULL), 0);
    if (read_text(&told, text, &failure) < 0)
        fail_msg("%s", failure.text);
    char *as_told = print(&told);
    assert_string_equal(as_told, printed);
    free(as_told);
    free(found);
    free(expected);
    free(printed);
    config_deinit(&told);
    config_deinit(&standard);
}

static FILE *open_source(const char *name)
{
    char path[1024];

    snprintf(path, sizeof path, "%s/%s", SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    return file;
}

static void test_defaults_of_the_configuration_file(void **state)
{
    FILE *source = open_source("config/pinserved.conf");
    char line[256], *text = NULL, key[32];
    size_t size;
    FILE *uncommented = open_memstream(&text, &size);

    (void)state;
    while (fgets(line, sizeof line, source))
        if (line[0] == '[')
            fputs(line, uncommented);
        else if (sscanf(line, "#%31[a-z_] =", key) == 1 && strchr(line, '='))
            fputs(line + 1, uncommented);
        else
            assert_true(line[0] == '#' || line[0] == '\n');
    fclose(source);
    fclose(uncommented);
    assert_defaults(text);
    free(text);
}

static void test_defaults_of_the_manual_page(void **state)
{
    FILE *source = open_source("config/pinserved.conf.5");
    char line[256], *text = NULL, section[32], key[32], value[64];
    size_t size;
    FILE *file = open_memstream(&text, &size);

    (void)state;
    while (fgets(line, sizeof line, source))
        if (sscanf(line, ".SS [%31[a-z]]", section) == 1)
            fprintf(file, "[%s]\n", section);
        else if (sscanf(line, ".BR %31[a-z_] \" (default: %63[^)])\"", key, value) == 2)
            fprintf(file, "%s = %s\n", key, strcmp(value, "empty") == 0 ? "" : value);
    fclose(source);
    fclose(file);
    assert_defaults(text);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_print_reads_back),
        cmocka_unit_test(test_texts_survive),
        cmocka_unit_test(test_indented_sections),
        cmocka_unit_test(test_defaults_of_the_configuration_file),
        cmocka_unit_test(test_defaults_of_the_manual_page),
    };

    return cmocka_run_group_tests(tests, config_dir_make, dir_remove);
}
