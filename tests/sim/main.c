/*
 * test-sim [--seed N] [--histories N] [--events N] [--verbose]: runs histories
 * of the core with the seeds N, N + 1, ... and says how fast. The first one
 * that goes wrong ends it, with the command that shows it again.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim.h"

static uint64_t events_per_history = 500;

void sim_fail(const struct sim *sim, const char *format, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "seed %" PRIu64 ", event %" PRIu64 ": ", sim->seed, sim->event);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr,
            "\nto see it: test-sim --seed %" PRIu64 " --histories 1 --events %" PRIu64
            " --verbose\n",
            sim->seed, events_per_history);
    exit(1);
}

void sim_log(const struct sim *sim, const char *format, ...)
{
    va_list args;

    if (!sim->verbose)
        return;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}

/* SplitMix64. */
static uint64_t random_next(struct sim *sim)
{
    uint64_t x = sim->random += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint32_t sim_random(struct sim *sim, uint32_t n)
{
    return (uint32_t)(((random_next(sim) >> 32) * n) >> 32);
}

bool sim_chance(struct sim *sim, uint32_t percent)
{
    return sim_random(sim, 100) < percent;
}

/* Returns how many events it had. */
static uint64_t history_run(struct sim *sim, uint64_t seed, bool verbose)
{
    memset(sim, 0, sizeof *sim);
    sim->seed = sim->random = seed;
    sim->verbose = verbose;
    sim_setup(sim);
    for (uint64_t i = 0; i < events_per_history; i++) {
        sim_log(sim, "event %" PRIu64 "\n", sim->event);
        sim_step(sim);
    }
    sim_settle(sim);
    sim_end(sim);
    return sim->events_total;
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);

    if (*text == '\0' || *end != '\0') {
        fprintf(stderr, "test-sim: %s is not a number\n", text);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},
        {"histories", required_argument, NULL, 'h'},
        {"events", required_argument, NULL, 'e'},
        {"verbose", no_argument, NULL, 'v'},
        {0},
    };
    uint64_t seed = 1, histories = 2000, events = 0;
    bool verbose = false;
    struct timespec start, end;
    struct sim *sim;
    double seconds;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 's':
            seed = number(optarg);
            break;
        case 'h':
            histories = number(optarg);
            break;
        case 'e':
            events_per_history = number(optarg);
            break;
        case 'v':
            verbose = true;
            break;
        default:
            return 2;
        }
    }
    sim = malloc(sizeof *sim);
    if (!sim)
        return 1;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (uint64_t i = 0; i < histories; i++)
        events += history_run(sim, seed + i, verbose);
    clock_gettime(CLOCK_MONOTONIC, &end);
    free(sim);
    seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    printf("%" PRIu64 " histories, %" PRIu64 " events, %.0f events a second\n", histories, events,
           (double)events / seconds);
    return 0;
}
