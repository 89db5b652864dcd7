/*
 * The options of pinctl bench. The table is all there is to know about an option; the rest of this
 * file walks it.
 */
#include "bench_options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define JOBS_MAX 256
#define AT(member) offsetof(struct bench_options, member)

const struct bench_option bench_options_table[] = {
    {"source", BENCH_TEXT, AT(source), 0, 0, "SOURCE",
     "folder:DIR[,list=FILE], tar:PATTERN[,fields=F+F...], records:FILE, tokens:PATTERN or "
     "synthetic:SHAPE[:u8|f32[:N]]"},
    {"image", BENCH_TEXT, AT(image), 0, 0, "IMAGE",
     "random-crop:S, center-crop:S[:R], each [,filter=bicubic][,orient=exif], or none (default "
     "none)"},
    {"flip", BENCH_REAL, AT(flip), 0, 1, "P", "probability of a horizontal flip (default 0)"},
    {"batch", BENCH_U32, AT(batch), 0, UINT32_MAX, "N", "samples of a batch"},
    {"device", BENCH_TEXT, AT(device), 0, 0, "DEVICE",
     "host, cuda:N or a GPU's UUID (default the first GPU, else host)"},
    {"deliver", BENCH_TEXT, AT(deliver), 0, 0, "HOW",
     "auto, ipc, fd, copy, host or mapped (default auto)"},
    {"depth", BENCH_U32, AT(depth), 0, UINT32_MAX, "N", "batches prefetched ahead (default 4)"},
    {"seed", BENCH_U64, AT(seed), 0, UINT64_MAX, "S", "key of the order (default 0)"},
    {"shuffle", BENCH_TEXT, AT(shuffle), 0, 0, "ORDER", "full or none (default full)"},
    {"last", BENCH_TEXT, AT(last), 0, 0, "HOW",
     "an epoch's incomplete batch: drop, pad or partial (default drop)"},
    {"bad", BENCH_TEXT, AT(bad), 0, 0, "HOW",
     "bad samples: fail, blank or substitute[:N|:P%], up to N or P% of an epoch (default fail)"},
    {"rank", BENCH_U32, AT(rank), 0, UINT32_MAX, "R", "this rank, with --world (default 0)"},
    {"world", BENCH_U32, AT(world), 1, UINT32_MAX, "W", "number of ranks (default 1)"},
    {"seq", BENCH_U32, AT(seq), 1, UINT32_MAX, "N",
     "length of token sequences, required with tokens: a sample has one token more"},
    {"jobs", BENCH_U32, AT(jobs), 1, JOBS_MAX, "N", "jobs at the same time (default 1)"},
    {"step-ms", BENCH_REAL, AT(step_ms), 0, 1000000, "T",
     "take one batch every T ms (default as fast as they come)"},
    {"epochs", BENCH_U64, AT(epochs), 1, UINT64_MAX, "N", "stop after N epochs (default 1)"},
    {"seconds", BENCH_REAL, AT(seconds), 0, 1000000000, "S",
     "stop S seconds after the first batch"},
    {"batches", BENCH_U64, AT(batches), 1, UINT64_MAX, "N", "stop after N batches of each job"},
    {"checksum", BENCH_FLAG, AT(checksum), 0, 0, NULL,
     "print the XXH64 of all batches (with --epochs or --batches)"},
};
const size_t bench_options_count = sizeof(bench_options_table) / sizeof(bench_options_table[0]);

void bench_options_init(struct bench_options *options)
{
    *options = (struct bench_options){
        .device = "auto",
        .deliver = "auto",
        .depth = 4,
        .shuffle = "full",
        .last = "drop",
        .bad = "fail",
        .world = 1,
        .jobs = 1,
    };
}

static int refuse_value(const struct bench_option *option, const char *value,
                        struct failure *failure)
{
    if (option->kind == BENCH_REAL)
        return failure_set(failure, -EINVAL,
                           "--%s %s: a number from %" PRIu64 " to %" PRIu64 " is wanted",
                           option->name, value, option->min, option->max);
    return failure_set(failure, -EINVAL,
                       "--%s %s: a whole number from %" PRIu64 " to %" PRIu64 " is wanted",
                       option->name, value, option->min, option->max);
}

/* Digits only: strtoull would take signs and spaces, too. */
static int parse_whole(const struct bench_option *option, const char *value, uint64_t *whole_p)
{
    char *end = NULL;

    if (!*value || strspn(value, "0123456789") != strlen(value))
        return -EINVAL;
    errno = 0;
    uint64_t whole = strtoull(value, &end, 10);
    if (errno || whole < option->min || whole > option->max)
        return -EINVAL;
    *whole_p = whole;
    return 0;
}

static int parse_real(const struct bench_option *option, const char *value, double *real_p)
{
    char *end = NULL;

    if (!*value || strspn(value, "0123456789.") != strlen(value))
        return -EINVAL;
    double real = strtod(value, &end);
    if (end == value || *end || real < (double)option->min || real > (double)option->max)
        return -EINVAL;
    *real_p = real;
    return 0;
}

int bench_options_set(struct bench_options *options, size_t i, const char *value,
                      struct failure *failure)
{
    const struct bench_option *option = &bench_options_table[i];
    void *target = (char *)options + option->offset;
    uint64_t whole = 0;

    switch (option->kind) {
    case BENCH_TEXT:
        *(const char **)target = value;
        break;
    case BENCH_U32:
        if (parse_whole(option, value, &whole) < 0)
            return refuse_value(option, value, failure);
        *(uint32_t *)target = (uint32_t)whole;
        break;
    case BENCH_U64:
        if (parse_whole(option, value, (uint64_t *)target) < 0)
            return refuse_value(option, value, failure);
        break;
    case BENCH_REAL:
        if (parse_real(option, value, (double *)target) < 0)
            return refuse_value(option, value, failure);
        break;
    case BENCH_FLAG:
        *(bool *)target = true;
        break;
    }
    options->given |= UINT32_C(1) << i;
    return 0;
}

bool bench_options_given(const struct bench_options *options, const char *name)
{
    for (size_t i = 0; i < bench_options_count; i++) {
        if (strcmp(bench_options_table[i].name, name) == 0)
            return options->given >> i & 1;
    }
    return false;
}

int bench_options_finish(struct bench_options *options, struct failure *failure)
{
    static const char *const required[] = {"source", "batch"};
    static const char *const positive[] = {"step-ms", "seconds"};
    static const char *const ends[] = {"epochs", "seconds", "batches"};
    const double values[] = {options->step_ms, options->seconds};
    const char *end = NULL;

    for (size_t i = 0; i < 2; i++) {
        if (!bench_options_given(options, required[i]))
            return failure_set(failure, -EINVAL, "bench needs --%s", required[i]);
        if (bench_options_given(options, positive[i]) && values[i] <= 0)
            return failure_set(failure, -EINVAL, "--%s must be more than 0", positive[i]);
    }
    bool tokens = strncmp(options->source, "tokens:", 7) == 0;
    if (bench_options_given(options, "seq") != tokens)
        return failure_set(failure, -EINVAL,
                           tokens ? "a source of tokens needs --seq N, the length of its sequences"
                                  : "--seq is for a source of tokens");
    if (bench_options_given(options, "rank") && !bench_options_given(options, "world"))
        return failure_set(failure, -EINVAL, "--rank needs --world");
    for (size_t i = 0; i < 3; i++) {
        if (!bench_options_given(options, ends[i]))
            continue;
        if (end)
            return failure_set(failure, -EINVAL, "--%s and --%s exclude each other", end, ends[i]);
        end = ends[i];
    }
    if (!end)
        options->epochs = 1;
    if (options->checksum && options->seconds > 0)
        return failure_set(failure, -EINVAL,
                           "--checksum needs --epochs or --batches: what --seconds takes varies");
    return 0;
}

int bench_options_spec(const struct bench_options *options, uint32_t i,
                       struct pinclient_spec **spec_p, struct failure *failure)
{
    struct pinclient_spec *spec = NULL;
    char name[32] = "bench";

    if (pinclient_spec_new(&spec) < 0)
        return failure_set(failure, -ENOMEM, "no memory for a spec");
    if (options->jobs > 1)
        snprintf(name, sizeof(name), "bench %" PRIu32, i);
    int rc = pinclient_spec_source(spec, options->source);
    rc = rc < 0 || !options->seq ? rc : pinclient_spec_seq(spec, options->seq);
    rc = rc < 0 || !options->image ? rc : pinclient_spec_image(spec, options->image);
    rc = rc < 0 ? rc : pinclient_spec_flip(spec, options->flip);
    rc = rc < 0 ? rc : pinclient_spec_batch(spec, options->batch);
    rc = rc < 0 ? rc : pinclient_spec_device(spec, options->device);
    rc = rc < 0 ? rc : pinclient_spec_delivery(spec, options->deliver);
    rc = rc < 0 ? rc : pinclient_spec_depth(spec, options->depth);
    rc = rc < 0 ? rc : pinclient_spec_seed(spec, options->seed);
    rc = rc < 0 ? rc : pinclient_spec_shuffle(spec, options->shuffle);
    rc = rc < 0 ? rc : pinclient_spec_last(spec, options->last);
    rc = rc < 0 ? rc : pinclient_spec_bad(spec, options->bad);
    rc = rc < 0 ? rc : pinclient_spec_shard(spec, options->rank, options->world);
    rc = rc < 0 ? rc : pinclient_spec_name(spec, name);
    if (rc < 0) {
        failure_set(failure, rc, "%s", pinclient_error(spec));
        pinclient_spec_free(spec);
        return rc;
    }
    *spec_p = spec;
    return 0;
}

void bench_options_help(FILE *out)
{
    fputs("usage: pinctl [--socket PATH] [--json] bench --source SOURCE --batch N [OPTION]...\n\n"
          "Consumes jobs as fast as they are fed, or one batch every T ms, and prints the rate,\n"
          "the wait for a batch and what the stages took.\n\n",
          out);
    for (size_t i = 0; i < bench_options_count; i++) {
        const struct bench_option *option = &bench_options_table[i];
        char left[32];
        snprintf(left, sizeof(left), "--%s %s", option->name, option->value ? option->value : "");
        fprintf(out, "  %-18s %s\n", left, option->help);
    }
}
