/*
 * The command line of pinctl: what is taken, from where, and what a refusal names.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/pinctl/options.h"

static struct options options;
static struct failure failure;

/* Parses "pinctl" and words, which end with NULL. */
static int parse(const char *const *words)
{
    static char store[32][64];
    static char *argv[33];
    int argc = 1;

    snprintf(store[0], sizeof(store[0]), "pinctl");
    for (; words[argc - 1]; argc++)
        snprintf(store[argc], sizeof(store[argc]), "%s", words[argc - 1]);
    for (int i = 0; i < argc; i++)
        argv[i] = store[i];
    argv[argc] = NULL;
    failure = (struct failure){.code = 0};
    return options_parse(argc, argv, &options, &failure);
}

#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL})
#define BENCH(...) PARSE("bench", "--source", "synthetic:8", "--batch", "4", __VA_ARGS__)

#define assert_refused(expected, ...)                                                              \
    do {                                                                                           \
        assert_int_equal(PARSE(__VA_ARGS__), -EINVAL);                                             \
        assert_string_equal(failure.text, expected);                                               \
    } while (0)

static void test_commands(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum command command;
    } commands[] = {
        {"status", COMMAND_STATUS}, {"devices", COMMAND_DEVICES}, {"pools", COMMAND_POOLS},
        {"jobs", COMMAND_JOBS},     {"stats", COMMAND_STATS},     {"version", COMMAND_VERSION},
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        assert_int_equal(PARSE(commands[i].name), 0);
        assert_int_equal(options.command, commands[i].command);
        assert_false(options.json || options.watch || options.help);
        assert_null(options.socket);
    }
}

static void test_options_of_the_program_stand_anywhere(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--json", "--socket", "/a", "jobs"), 0);
    assert_true(options.json);
    assert_string_equal(options.socket, "/a");
    assert_int_equal(PARSE("jobs", "--socket=/b", "--json"), 0);
    assert_true(options.json);
    assert_string_equal(options.socket, "/b");
    assert_int_equal(BENCH("--json", "--socket", "/c"), 0);
    assert_true(options.json);
    assert_string_equal(options.socket, "/c");
    assert_string_equal(options.bench.source, "synthetic:8");
}

static void test_help(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--help"), 0);
    assert_true(options.help);
    assert_int_equal(options.command, COMMAND_NONE);
    assert_int_equal(PARSE("-h"), 0);
    assert_true(options.help);
    assert_int_equal(PARSE("bench", "--help"), 0);
    assert_true(options.help);
    assert_int_equal(options.command, COMMAND_BENCH);
}

static void test_refusals_name_the_word(void **state)
{
    (void)state;
    static const char *const none[] = {NULL};
    assert_int_equal(parse(none), -EINVAL);
    assert_string_equal(failure.text, "a command is missing; see pinctl --help");
    assert_refused("unknown command frobnicate; see pinctl --help", "frobnicate");
    assert_refused("unknown option --nope", "--nope", "jobs");
    assert_refused("unknown option --nope", "jobs", "--nope");
    assert_refused("unknown option --nope=3", "jobs", "--nope=3");
    assert_refused("unknown option -x", "-x", "jobs");
    assert_refused("unknown option -y", "jobs", "-y");
    assert_refused("unknown option --watch", "jobs", "--watch");
    assert_refused("--socket needs a value", "jobs", "--socket");
    assert_refused("--json takes no value", "--json=1", "jobs");
    assert_refused("jobs: unexpected argument 7", "jobs", "7");
    assert_refused("bench: unexpected argument x", "bench", "x", "--source", "a", "--batch", "1");
}

static void test_evict_and_drain(void **state)
{
    (void)state;
    assert_int_equal(PARSE("evict", "3", "--json"), 0);
    assert_int_equal(options.command, COMMAND_EVICT);
    assert_int_equal(options.job, 3);
    assert_true(options.json);
    assert_refused("evict: the number of a JOB is missing", "evict");
    assert_refused("evict x3: the number of a job is wanted", "evict", "x3");
    assert_refused("evict 0: the number of a job is wanted", "evict", "0");
    assert_refused("evict 18446744073709551616: the number of a job is wanted", "evict",
                   "18446744073709551616");
    assert_refused("evict: unexpected argument 4", "evict", "3", "4");
    assert_refused("unknown option --undo", "evict", "3", "--undo");
    assert_int_equal(PARSE("drain"), 0);
    assert_int_equal(options.command, COMMAND_DRAIN);
    assert_null(options.device);
    assert_int_equal(options.timeout_s, 60);
    assert_false(options.undo);
    assert_int_equal(PARSE("drain", "--device", "GPU-1", "--timeout", "0", "--undo"), 0);
    assert_string_equal(options.device, "GPU-1");
    assert_int_equal(options.timeout_s, 0);
    assert_true(options.undo);
    assert_refused("--timeout 5s: seconds are wanted, at most 1000000", "drain", "--timeout", "5s");
    assert_refused("--timeout 1000001: seconds are wanted, at most 1000000", "drain", "--timeout",
                   "1000001");
    assert_refused("drain: unexpected argument GPU-1", "drain", "GPU-1");
}

static void test_bad_samples_of_a_job(void **state)
{
    (void)state;
    assert_int_equal(PARSE("jobs"), 0);
    assert_int_equal(options.bad, 0);
    assert_int_equal(PARSE("jobs", "--bad", "17"), 0);
    assert_int_equal(options.bad, 17);
    assert_refused("--bad x: the number of a job is wanted", "jobs", "--bad", "x");
    assert_refused("--bad 0: the number of a job is wanted", "jobs", "--bad", "0");
    assert_refused("--bad needs a value", "jobs", "--bad");
    assert_refused("unknown option --bad", "pools", "--bad", "1");
    assert_int_equal(BENCH("--bad", "blank:3"), 0);
    assert_string_equal(options.bench.bad, "blank:3");
}

static void test_watch(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--json", "stats", "--watch"), 0);
    assert_true(options.watch && options.json);
}

static void test_bench_defaults(void **state)
{
    (void)state;
    assert_int_equal(PARSE("bench", "--source", "folder:/x", "--batch", "256"), 0);
    const struct bench_options *bench = &options.bench;
    assert_string_equal(bench->source, "folder:/x");
    assert_null(bench->image);
    assert_true(bench->flip == 0);
    assert_int_equal(bench->batch, 256);
    assert_string_equal(bench->device, "auto");
    assert_string_equal(bench->deliver, "auto");
    assert_int_equal(bench->depth, 4);
    assert_int_equal(bench->seed, 0);
    assert_string_equal(bench->shuffle, "full");
    assert_string_equal(bench->last, "drop");
    assert_int_equal(bench->rank, 0);
    assert_int_equal(bench->world, 1);
    assert_int_equal(bench->jobs, 1);
    assert_true(bench->step_ms == 0);
    assert_int_equal(bench->epochs, 1);
    assert_true(bench->seconds == 0);
    assert_int_equal(bench->batches, 0);
    assert_false(bench->checksum);
    assert_false(bench_options_given(bench, "jobs"));
}

static void test_bench_values(void **state)
{
    (void)state;
    assert_int_equal(BENCH("--image", "random-crop:224", "--flip", "0.5", "--device", "cuda:1",
                           "--deliver=fd", "--depth", "16", "--seed", "18446744073709551615",
                           "--shuffle", "none", "--last", "pad"),
                     0);
    const struct bench_options *bench = &options.bench;
    assert_string_equal(bench->image, "random-crop:224");
    assert_true(bench->flip == 0.5);
    assert_string_equal(bench->device, "cuda:1");
    assert_string_equal(bench->deliver, "fd");
    assert_int_equal(bench->depth, 16);
    assert_true(bench->seed == UINT64_MAX);
    assert_string_equal(bench->shuffle, "none");
    assert_string_equal(bench->last, "pad");

    assert_int_equal(BENCH("--rank", "2", "--world", "4", "--jobs", "3", "--step-ms", "2.5",
                           "--batches", "7", "--checksum"),
                     0);
    assert_int_equal(bench->rank, 2);
    assert_int_equal(bench->world, 4);
    assert_int_equal(bench->jobs, 3);
    assert_true(bench->step_ms == 2.5);
    assert_int_equal(bench->batches, 7);
    assert_int_equal(bench->epochs, 0);
    assert_true(bench->checksum);
    assert_true(bench_options_given(bench, "jobs"));

    assert_int_equal(BENCH("--seconds", "1.5"), 0);
    assert_true(bench->seconds == 1.5);
    assert_int_equal(bench->epochs, 0);
}

static void test_bench_refusals(void **state)
{
    (void)state;
    assert_refused("bench needs --source", "bench", "--batch", "4");
    assert_refused("bench needs --batch", "bench", "--source", "synthetic:8");
    static const struct {
        const char *option, *value, *text;
    } cases[] = {
        {"--depth", "x", "--depth x: a whole number from 0 to 4294967295 is wanted"},
        {"--depth", "-1", "--depth -1: a whole number from 0 to 4294967295 is wanted"},
        {"--depth", "", "--depth : a whole number from 0 to 4294967295 is wanted"},
        {"--depth", "4294967296",
         "--depth 4294967296: a whole number from 0 to 4294967295 is wanted"},
        {"--seed", "18446744073709551616",
         "--seed 18446744073709551616: a whole number from 0 to 18446744073709551615 is wanted"},
        {"--seed", " 1", "--seed  1: a whole number from 0 to 18446744073709551615 is wanted"},
        {"--flip", "1.5", "--flip 1.5: a number from 0 to 1 is wanted"},
        {"--flip", "nan", "--flip nan: a number from 0 to 1 is wanted"},
        {"--flip", "0.5.5", "--flip 0.5.5: a number from 0 to 1 is wanted"},
        {"--flip", ".", "--flip .: a number from 0 to 1 is wanted"},
        {"--jobs", "0", "--jobs 0: a whole number from 1 to 256 is wanted"},
        {"--jobs", "257", "--jobs 257: a whole number from 1 to 256 is wanted"},
        {"--world", "0", "--world 0: a whole number from 1 to 4294967295 is wanted"},
        {"--seconds", "0", "--seconds must be more than 0"},
        {"--step-ms", "0", "--step-ms must be more than 0"},
        {"--rank", "1", "--rank needs --world"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(BENCH(cases[i].option, cases[i].value), -EINVAL);
        assert_string_equal(failure.text, cases[i].text);
    }
    assert_int_equal(BENCH("--epochs", "1", "--batches", "2"), -EINVAL);
    assert_string_equal(failure.text, "--epochs and --batches exclude each other");
    assert_int_equal(BENCH("--seconds", "1", "--checksum"), -EINVAL);
    assert_string_equal(failure.text,
                        "--checksum needs --epochs or --batches: what --seconds takes varies");
}

static void test_seq_and_tokens_need_each_other(void **state)
{
    (void)state;
    assert_int_equal(PARSE("bench", "--source", "tokens:a.bin", "--batch", "1", "--seq", "128"), 0);
    assert_int_equal(options.bench.seq, 128);
    assert_refused("a source of tokens needs --seq N, the length of its sequences", "bench",
                   "--source", "tokens:a.bin", "--batch", "1");
    assert_refused("--seq is for a source of tokens", "bench", "--source", "synthetic:8", "--batch",
                   "1", "--seq", "128");
    assert_refused("--seq 0: a whole number from 1 to 4294967295 is wanted", "bench", "--source",
                   "tokens:a.bin", "--batch", "1", "--seq", "0");
}

/* A zero batch passes the parser and is refused by the library, in its words. */
static void test_library_refuses_values(void **state)
{
    (void)state;
    struct pinclient_spec *spec = NULL;
    assert_int_equal(PARSE("bench", "--source", "synthetic:8", "--batch", "0"), 0);
    assert_int_equal(bench_options_spec(&options.bench, 0, &spec, &failure), -EINVAL);
    assert_null(spec);
    assert_non_null(strstr(failure.text, "batch"));
    assert_int_equal(BENCH("--shuffle", "some"), 0);
    assert_int_equal(bench_options_spec(&options.bench, 0, &spec, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, "some"));
    assert_int_equal(BENCH("--jobs", "2"), 0);
    assert_int_equal(bench_options_spec(&options.bench, 1, &spec, &failure), 0);
    pinclient_spec_free(spec);
}

static void test_help_lists_every_option(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    options_help(COMMAND_BENCH, out);
    fclose(out);
    for (size_t i = 0; i < bench_options_count; i++) {
        char line[40];
        snprintf(line, sizeof(line), "\n  --%s ", bench_options_table[i].name);
        assert_non_null(strstr(text, line));
    }
    free(text);
}

static void test_probe(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--json", "probe", "a.jpg", "--", "-b.tar:c.png"), 0);
    assert_int_equal(options.command, COMMAND_PROBE);
    assert_true(options.json);
    assert_null(options.output);
    assert_int_equal(options.n_files, 2);
    assert_string_equal(options.files[0], "a.jpg");
    assert_string_equal(options.files[1], "-b.tar:c.png");
    assert_int_equal(PARSE("probe", "a.jpg", "--output", "x.ppm"), 0);
    assert_string_equal(options.output, "x.ppm");
    assert_int_equal(options.n_files, 1);
    assert_refused("probe: a FILE or SHARD:MEMBER is missing", "probe");
    assert_refused("probe: --output takes the pixels of one file, not 2", "probe", "--output", "x",
                   "a", "b");
    assert_refused("unknown option --output", "jobs", "--output", "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_options_of_the_program_stand_anywhere),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_refusals_name_the_word),
        cmocka_unit_test(test_evict_and_drain),
        cmocka_unit_test(test_bad_samples_of_a_job),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_bench_defaults),
        cmocka_unit_test(test_bench_values),
        cmocka_unit_test(test_bench_refusals),
        cmocka_unit_test(test_seq_and_tokens_need_each_other),
        cmocka_unit_test(test_library_refuses_values),
        cmocka_unit_test(test_help_lists_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
