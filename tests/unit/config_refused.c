/*
 * What a configuration file must not hold, and the texts that say so.
 */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "config_file.h"

/* What reading text fails with; the path is replaced by FILE. */
static void assert_refused(const char *text, const char *expected)
{
    struct config config;
    struct failure failure = {0};
    char whole[FAILURE_TEXT_MAX];

    config_init(&config, 100 * GIB);
    assert_int_equal(read_text(&config, text, &failure), -EINVAL);
    assert_int_equal(failure.code, -EINVAL);
    snprintf(whole, sizeof whole, "%s:%s", file_path, expected);
    assert_string_equal(failure.text, whole);
    config_deinit(&config);
}

static void test_unknown_keys_name_line_and_nearest(void **state)
{
    (void)state;
    assert_refused("pool_sise = 1 GiB\n", "1: unknown key pool_sise; the nearest is pool.min");
    assert_refused("# x\n[pool]\nmin = 1\n\npool_sise = 1\n",
                   "5: unknown key pool.pool_sise; the nearest is pool.min");
    assert_refused("[pool]\nmaxx = 1\n", "2: unknown key pool.maxx; the nearest is pool.max");
    assert_refused("[pol]\nregion = 1\n", "2: unknown key pol.region; the nearest is pool.region");
    assert_refused("[pool]\nper-numa-node = 1\n",
                   "2: unknown key pool.per-numa-node; the nearest is workers.per_numa_node");
    assert_refused("[log]\nLevel = info\n", "2: unknown key log.Level; the nearest is log.level");
    assert_refused("[limits]\npool_max = 1\n",
                   "2: unknown key limits.pool_max; the nearest is pool.max");
}

static void test_wrong_values_name_line_and_what_is_allowed(void **state)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"[pool]\nregion = 1 MiB\n",
         "2: pool.region = \"1 MiB\" is not allowed: it is a size such as 64 MiB, at least 2 MiB "
         "and at most 1 GiB"},
        {"[pool]\nregion = 2 GiB\n",
         "2: pool.region = \"2 GiB\" is not allowed: it is a size such as 64 MiB, at least 2 MiB "
         "and at most 1 GiB"},
        {"[pool]\nmin = 64 Mb\n",
         "2: pool.min = \"64 Mb\" is not allowed: it is a size such as 512 MiB, 2 GB or 5%"},
        {"[pool]\nmax = 0\n", "2: pool.max = \"0\" is not allowed: it is auto, or a size such as "
                              "512 MiB, 2 GB or 10%, at least 2 MiB"},
        {"[pool]\nmin = 101%\n",
         "2: pool.min = \"101%\" is not allowed: it is a size such as 512 MiB, 2 GB or 5%"},
        {"[pool]\nidle = 5\n",
         "2: pool.idle = \"5\" is not allowed: it is a time such as 500ms, 60s or 5min"},
        {"[io]\nstuck = 99ms\n",
         "2: io.stuck = \"99ms\" is not allowed: it is a time such as 5s, at least 100ms"},
        {"[pool]\n\nlock = yes\n",
         "3: pool.lock = \"yes\" is not allowed: it is try, require or off"},
        {"[device]\nipc = true\n", "2: device.ipc = \"true\" is not allowed: it is on or off"},
        {"[daemon]\nsocket_mode = 0680\n",
         "2: daemon.socket_mode = \"0680\" is not allowed: it is an octal mode such as 0660, at "
         "most 0777"},
        {"[daemon]\nsocket_mode = 4660\n",
         "2: daemon.socket_mode = \"4660\" is not allowed: it is an octal mode such as 0660, at "
         "most 0777"},
        {"[limits]\njobs = 0\n",
         "2: limits.jobs = \"0\" is not allowed: it is a number from 1 to 65536"},
        {"[limits]\njobs = -1\n",
         "2: limits.jobs = \"-1\" is not allowed: it is a number from 1 to 65536"},
        {"[limits]\njobs = 18446744073709551617\n",
         "2: limits.jobs = \"18446744073709551617\" is not allowed: it is a number from 1 to "
         "65536"},
        {"[limits]\njobs =\n",
         "2: limits.jobs = \"\" is not allowed: it is a number from 1 to 65536"},
        {"[placement]\ntopology = x.xml\n",
         "2: placement.topology = \"x.xml\" is not allowed: it is empty, xml:FILE or "
         "synthetic:DESCRIPTION"},
        {"[daemon]\ncache = cache\n",
         "2: daemon.cache = \"cache\" is not allowed: it is auto, off or an absolute path"},
        {"[device]\nuse = GPU-1,,GPU-2\n",
         "2: device.use = \"GPU-1,,GPU-2\" is not allowed: it is auto, host, host:ADDRESS, or "
         "UUIDs such as GPU-8f1c2a..., with commas between them"},
        {"[device]\nuse = host:\n",
         "2: device.use = \"host:\" is not allowed: it is auto, host, host:ADDRESS, or UUIDs such "
         "as GPU-8f1c2a..., with commas between them"},
        {"[device]\nuse = 0\n",
         "2: device.use = \"0\" is not allowed: it is auto, host, host:ADDRESS, or "
         "UUIDs such as GPU-8f1c2a..., with commas between them"},
        /* An indented key is the rest of the value before it: this must not pass unseen. */
        {"[pool]\nmin = 1 MiB\n  max = 2 GiB\n",
         "2: pool.min = \"1 MiB max = 2 GiB\" is not allowed: it is a size such as 512 MiB, 2 GB "
         "or 5%"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused(cases[i].text, cases[i].expected);
}

static void test_lines_that_are_none(void **state)
{
    char text[512];

    (void)state;
    assert_refused("[pool]\nmin 1\n", "2: neither a comment, nor [section], nor key = value");
    assert_refused("[pool\nmin = 1\n", "1: neither a comment, nor [section], nor key = value");
    snprintf(text, sizeof text, "\n[daemon]\nsocket = /%0300d\n", 0);
    assert_refused(text, "3: the line is too long; a value may go on in indented lines");
}

static void test_the_first_failure_is_told(void **state)
{
    (void)state;
    assert_refused("[pool]\nmin = x\nmax = y\nbad\n",
                   "2: pool.min = \"x\" is not allowed: it is a size such as 512 MiB, 2 GB or 5%");
}

static void test_files_that_cannot_be_read(void **state)
{
    struct config config;
    struct failure failure = {0};
    char expected[256];

    (void)state;
    config_init(&config, GIB);
    assert_int_equal(config_read_file(&config, "/nowhere/pinserved.conf", &failure), -ENOENT);
    assert_string_equal(failure.text, "/nowhere/pinserved.conf: No such file or directory");
    assert_int_equal(config_read_file(&config, dir.path, &failure), -EISDIR);
    snprintf(expected, sizeof expected, "%s: Is a directory", dir.path);
    assert_string_equal(failure.text, expected);
    config_deinit(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_keys_name_line_and_nearest),
        cmocka_unit_test(test_wrong_values_name_line_and_what_is_allowed),
        cmocka_unit_test(test_lines_that_are_none),
        cmocka_unit_test(test_the_first_failure_is_told),
        cmocka_unit_test(test_files_that_cannot_be_read),
    };

    return cmocka_run_group_tests(tests, config_dir_make, dir_remove);
}
