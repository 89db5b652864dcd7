/*
 * Batches that a client fills itself: a number of samples, and nothing that
 * could be read. No worker and no reader is ever given such a source.
 */
#include "source/kind.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static int push_index(struct source *source, const struct source_spec *spec,
                      struct source_progress *progress, struct failure *failure)
{
    if (spec->samples == 0)
        return failure_set(failure, -EINVAL, "source %s: an epoch of 0 samples", source->name);
    source->samples = spec->samples;
    source->fingerprint = spec->samples;
    return source_progress_set(source, progress, source->samples, failure);
}

static int push_read(struct source *source, uint64_t index, struct sample *sample,
                     struct failure *failure)
{
    (void)sample;
    return failure_set(failure, -EOPNOTSUPP,
                       "source %s: sample %" PRIu64 " is the client's to fill", source->name,
                       index);
}

static bool push_matches(const struct source *source, const struct source_spec *spec)
{
    return source->samples == spec->samples;
}

static const char *push_sample_name(const struct source *source, uint64_t index, char *text,
                                    size_t size)
{
    snprintf(text, size, "%s: sample %" PRIu64, source->name, index);
    return text;
}

static void push_free(struct source *source)
{
    (void)source;
}

const struct source_ops source_push_ops = {
    .name = "push",
    .index = push_index,
    .read = push_read,
    .matches = push_matches,
    .sample_name = push_sample_name,
    .free = push_free,
};
