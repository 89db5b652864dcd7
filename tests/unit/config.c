/*
 * config.c and config_file.c: values, relations, error texts, and that the
 * configuration file and the manual page tell the defaults of the code.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "log.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* Every key with another value than its default. */
static const char other_values[] =
    "[daemon]\nsocket = /tmp/a b.sock\nsocket_mode = 0600\n"
    "socket_group = gpu\ntenant = cgroup\n"
    "device_program = /opt/pinserved-device\n"
    "\n[pool]\nmin = 128 MiB\nmax = 3 GiB\nregion = 2 MiB\n"
    "idle = 1500ms\nlock = require\n"
    "\n[placement]\nnuma = strict\ntopology = synthetic:node:2 pu:2\n"
    "\n[workers]\nper_numa_node = 7\nbatches = 3\n"
    "\n[io]\nstuck = 2min\nthreads = 9\nahead = 3 MiB\n"
    "\n[device]\nipc = off\nrings = off\nidle = 0\ngather = off\ngather_min = 1 MiB\n"
    "gather_max = 5 GiB\nuse = GPU-8f1c, GPU-0a2b\n"
    "\n[limits]\npeers = 5\njobs = 6\npeers_total = 7\n"
    "pinned = 1000001\ndevice = 5 KiB\nindex = 4 KiB\n"
    "\n[log]\nlevel = debug\nlines_per_second = 99\n";

static char folder[64];
static char file_path[96];

static int make_folder(void **state)
{
    const char *base = getenv("TMPDIR");

    (void)state;
    snprintf(folder, sizeof folder, "%.40s/config.XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file_path, sizeof file_path, "%s/test.conf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(file_path);
    return rmdir(folder);
}

static void write_file(const char *text)
{
    FILE *file = fopen(file_path, "w");

    assert_non_null(file);
    assert_int_not_equal(fputs(text, file), EOF);
    assert_int_equal(fclose(file), 0);
}

static int read_text(struct config *config, const char *text, struct failure *failure)
{
    write_file(text);
    return config_read_file(config, file_path, failure);
}

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

static void assert_set_refused(const char *assignment, const char *expected)
{
    struct config config;
    struct failure failure = {0};

    config_init(&config, 100 * GIB);
    assert_int_equal(config_set(&config, assignment, &failure), -EINVAL);
    assert_string_equal(failure.text, expected);
    config_deinit(&config);
}

static void test_defaults(void **state)
{
    struct config config;

    (void)state;
    config_init(&config, 100 * GIB);
    assert_string_equal(config.socket, "");
    assert_int_equal(config.socket_mode, 0660);
    assert_string_equal(config.socket_group, "");
    assert_int_equal(config.tenant, CONFIG_TENANT_UID);
    assert_string_equal(config.device_program, "");
    assert_int_equal(config.pool_min, 0);
    assert_int_equal(config.pool_max, 0);
    assert_int_equal(config.pool_region, 64 * MIB);
    assert_int_equal(config.pool_idle, UINT64_C(60000000000));
    assert_int_equal(config.pool_lock, CONFIG_LOCK_TRY);
    assert_false(config.placement_strict);
    assert_string_equal(config.placement_topology, "");
    assert_int_equal(config.workers_per_numa_node, 0);
    assert_int_equal(config.workers_batches, 2);
    assert_int_equal(config.io_stuck, UINT64_C(5000000000));
    assert_int_equal(config.io_threads, 128);
    assert_int_equal(config.io_ahead, UINT64_C(256) << 20);
    assert_true(config.device_ipc);
    assert_int_equal(config.device_idle, UINT64_C(30000000000));
    assert_true(config.device_gather);
    assert_int_equal(config.device_gather_min, 65536);
    assert_int_equal(config.device_gather_max, 0);
    assert_string_equal(config.device_use, "auto");
    assert_int_equal(config.limits_peers, 256);
    assert_int_equal(config.limits_jobs, 64);
    assert_int_equal(config.limits_peers_total, 1024);
    assert_int_equal(config.limits_pinned, 0);
    assert_int_equal(config.limits_device, 0);
    assert_int_equal(config.limits_index, GIB);
    assert_int_equal(config.log_level, LOG_LEVEL_INFO);
    assert_int_equal(config.log_lines_per_second, 10);
    assert_int_equal(config_finish(&config, NULL), 0);
    assert_int_equal(config.pool_max, 10 * GIB);
    assert_int_equal(config.limits_pinned, 10 * GIB);
    assert_int_equal(config.device_gather_max, 10 * GIB / 4);
    config_deinit(&config);
}

static void test_pool_max_auto_is_bounded_on_both_sides(void **state)
{
    struct config config;

    (void)state;
    config_init(&config, 2048 * GIB);
    assert_int_equal(config_finish(&config, NULL), 0);
    assert_int_equal(config.pool_max, 64 * GIB);
    config_deinit(&config);
    config_init(&config, 128 * MIB);
    assert_int_equal(config_finish(&config, NULL), 0);
    assert_int_equal(config.pool_max, 64 * MIB);
    config_deinit(&config);
}

static void test_values_from_file(void **state)
{
    struct config config;

    (void)state;
    config_init(&config, 100 * GIB);
    assert_int_equal(read_text(&config, other_values, NULL), 0);
    assert_string_equal(config.socket, "/tmp/a b.sock");
    assert_int_equal(config.socket_mode, 0600);
    assert_int_equal(config.tenant, CONFIG_TENANT_CGROUP);
    assert_int_equal(config.pool_min, 128 * MIB);
    assert_int_equal(config.pool_max, 3 * GIB);
    assert_int_equal(config.pool_idle, UINT64_C(1500000000));
    assert_int_equal(config.pool_lock, CONFIG_LOCK_REQUIRE);
    assert_true(config.placement_strict);
    assert_string_equal(config.placement_topology, "synthetic:node:2 pu:2");
    assert_int_equal(config.workers_per_numa_node, 7);
    assert_int_equal(config.io_stuck, UINT64_C(120000000000));
    assert_int_equal(config.io_threads, 9);
    assert_int_equal(config.io_ahead, 3 << 20);
    assert_false(config.device_ipc);
    assert_int_equal(config.device_idle, 0);
    assert_string_equal(config.device_use, "GPU-8f1c, GPU-0a2b");
    assert_int_equal(config.limits_pinned, 1000001);
    assert_int_equal(config.limits_device, 5120);
    assert_int_equal(config.log_level, LOG_LEVEL_DEBUG);
    assert_int_equal(config.log_lines_per_second, 99);
    config_deinit(&config);
}

static void test_syntax(void **state)
{
    struct config config;

    (void)state;
    config_init(&config, 100 * GIB);
    assert_int_equal(read_text(&config,
                               "; a comment\n# another\n\n [pool] \n min=1 MiB ; why\nmin = 2 MiB\n"
                               "[device]\nuse = GPU-1,\n   GPU-2,\n\tGPU-3\n[empty]\n"
                               "[log]\nlevel = error",
                               NULL),
                     0);
    assert_int_equal(config.pool_min, 2 * MIB);
    assert_string_equal(config.device_use, "GPU-1, GPU-2, GPU-3");
    assert_int_equal(config.log_level, LOG_LEVEL_ERROR);
    assert_int_equal(read_text(&config, "", NULL), 0);
    config_deinit(&config);
}

static void test_percent_of_the_cgroup_limit(void **state)
{
    struct config config;
    struct failure failure = {0};

    (void)state;
    config_init(&config, GIB);
    assert_int_equal(config_set(&config, "pool.max=50%", &failure), 0);
    assert_int_equal(config.pool_max, 536870912);
    assert_int_equal(config_finish(&config, &failure), 0);
    assert_int_equal(config_set(&config, "pool.max=2 GiB", &failure), 0);
    assert_int_equal(config_finish(&config, &failure), -EINVAL);
    assert_string_equal(failure.text, "pool.max = 2 GiB is more than the limit of memory, 1 GiB "
                                      "(the smaller of RAM and the cgroup's limit)");
    config_deinit(&config);
    config_init(&config, 0);
    assert_int_equal(config_set(&config, "pool.max=50%", &failure), -EINVAL);
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
    assert_int_equal(config_read_file(&config, folder, &failure), -EISDIR);
    snprintf(expected, sizeof expected, "%s: Is a directory", folder);
    assert_string_equal(failure.text, expected);
    config_deinit(&config);
}

static void test_set(void **state)
{
    struct config config;

    (void)state;
    config_init(&config, 100 * GIB);
    assert_int_equal(config_set(&config, "workers.per_numa_node=3", NULL), 0);
    assert_int_equal(config.workers_per_numa_node, 3);
    assert_int_equal(config_set(&config, "workers.per_numa_node=auto", NULL), 0);
    assert_int_equal(config.workers_per_numa_node, 0);
    assert_int_equal(config_set(&config, "daemon.socket=/a=b", NULL), 0);
    assert_string_equal(config.socket, "/a=b");
    assert_int_equal(config_set(&config, "limits.device=none", NULL), 0);
    config_deinit(&config);
    assert_set_refused("pool.max", "--set pool.max: this is not section.key=value");
    assert_set_refused("pool_sise=1",
                       "--set pool_sise=1: unknown key pool_sise; the nearest is pool.min");
    assert_set_refused("log.level=loud", "--set log.level=loud: log.level = \"loud\" is not "
                                         "allowed: it is error, warning, info or debug");
}

static void assert_finish_refused(const char *text, const char *expected)
{
    struct config config;
    struct failure failure = {0};

    config_init(&config, 100 * GIB);
    assert_int_equal(read_text(&config, text, NULL), 0);
    assert_int_equal(config_finish(&config, &failure), -EINVAL);
    assert_string_equal(failure.text, expected);
    config_deinit(&config);
}

static void test_relations(void **state)
{
    (void)state;
    assert_finish_refused("[pool]\nmin = 2 GiB\nmax = 1 GiB\n",
                          "pool.min = 2 GiB is more than pool.max = 1 GiB");
    assert_finish_refused("[pool]\nmin = 11 GiB\n",
                          "pool.min = 11 GiB is more than pool.max = 10 GiB");
    assert_finish_refused("[pool]\nmax = 32 MiB\n",
                          "pool.max = 32 MiB is less than one region: pool.region = 64 MiB");
    assert_finish_refused("[pool]\nregion = 3 MiB\n",
                          "pool.region = 3145728 bytes is not a multiple of 2 MiB");
}

static void test_pool_min_is_whole_regions(void **state)
{
    static const struct {
        const char *min;
        uint64_t bytes;
    } cases[] = {
        {"pool.min=0", 0},
        {"pool.min=1", 64 * MIB},
        {"pool.min=64 MiB", 64 * MIB},
        {"pool.min=127 MiB", 64 * MIB},
        {"pool.min=128 MiB", 128 * MIB},
        /* As much as pool.max, which is no multiple. */
        {"pool.min=10%", 10240 * MIB},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config config;
        config_init(&config, 100 * GIB + 999);
        assert_int_equal(config_set(&config, cases[i].min, NULL), 0);
        assert_int_equal(config_finish(&config, NULL), 0);
        assert_int_equal(config.pool_min, cases[i].bytes);
        assert_int_equal(config.pool_max, 10 * GIB + 99);
        config_deinit(&config);
    }
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
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_pool_max_auto_is_bounded_on_both_sides),
        cmocka_unit_test(test_values_from_file),
        cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_percent_of_the_cgroup_limit),
        cmocka_unit_test(test_unknown_keys_name_line_and_nearest),
        cmocka_unit_test(test_wrong_values_name_line_and_what_is_allowed),
        cmocka_unit_test(test_lines_that_are_none),
        cmocka_unit_test(test_the_first_failure_is_told),
        cmocka_unit_test(test_files_that_cannot_be_read),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_relations),
        cmocka_unit_test(test_pool_min_is_whole_regions),
        cmocka_unit_test(test_print_reads_back),
        cmocka_unit_test(test_defaults_of_the_configuration_file),
        cmocka_unit_test(test_defaults_of_the_manual_page),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
