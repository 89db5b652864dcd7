/*
 * config.c and config_file.c: values, and the relations between them.
 */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config_file.h"
#include "log.h"

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
    assert_string_equal(config.cache, "auto");
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
    assert_int_equal(config.device_gather_min, 32768);
    assert_int_equal(config.device_gather_max, 0);
    assert_string_equal(config.device_use, "auto");
    assert_int_equal(config.limits_peers, 256);
    assert_int_equal(config.limits_jobs, 64);
    assert_int_equal(config.limits_peers_total, 1024);
    assert_int_equal(config.limits_pinned, 0);
    assert_int_equal(config.limits_device, 0);
    assert_int_equal(config.limits_index, GIB);
    assert_int_equal(config.limits_cache, GIB);
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
    assert_string_equal(config.cache, "/var/cache/p");
    assert_int_equal(config.limits_cache, 7 * MIB);
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

static void assert_set_refused(const char *assignment, const char *expected)
{
    struct config config;
    struct failure failure = {0};

    config_init(&config, 100 * GIB);
    assert_int_equal(config_set(&config, assignment, &failure), -EINVAL);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_pool_max_auto_is_bounded_on_both_sides),
        cmocka_unit_test(test_values_from_file),
        cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_percent_of_the_cgroup_limit),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_relations),
        cmocka_unit_test(test_pool_min_is_whole_regions),
    };

    return cmocka_run_group_tests(tests, config_dir_make, dir_remove);
}
