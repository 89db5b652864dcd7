/*
 * Tokens: files of integers, cut into windows of seq + 1 of them, at a stride
 * or at random offsets. A window lies within one file, and on request within
 * one document of it. The index holds a few numbers a file, and two a document
 * where these are asked for; where a window begins is computed.
 *
 * An epoch at random offsets has as many windows as one at a stride of seq;
 * each begins at any place in any file (of its part, in a blend) with equal
 * probability.
 */
#include "source/tokens.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "source/kind.h"

#define RANDOM_VERSION 1  /* of where random windows begin */
#define PROGRESS_FILES 64 /* between two looks at the progress */
#define SEQ_MAX (1u << 28)
#define COUNT_MAX (UINT64_C(1) << 62) /* of samples, places, documents */

/* -- what a source is asked for --------------------------------------------------------------- */

static int tokens_shape(const struct source *source, uint32_t *shape_p, size_t *n_dims_p,
                        enum sample_dtype *dtype_p)
{
    const struct tokens *tokens = source->index;

    shape_p[0] = tokens->length;
    *n_dims_p = 1;
    *dtype_p = tokens->windows.out;
    return 0;
}

/* The position comes first where both are wanted. */
static int tokens_field(const struct source *source, uint64_t index, struct sample_key key,
                        const struct sample *sample, size_t field, void *out,
                        struct failure *failure)
{
    const struct tokens *tokens = source->index;

    (void)sample;
    if (field == 0)
        return failure_set(failure, -EINVAL, "source %s: its tokens are read", source->name);
    struct place place = tokens_place(tokens, index, key);
    if (tokens->windows.position && field == 1)
        tokens_positions(tokens, &place, out);
    else
        tokens_documents(tokens, &place, out);
    return 0;
}

/* Where a window is known from its number alone, its place is told. */
static const char *tokens_sample_name(const struct source *source, uint64_t index, char *text,
                                      size_t size)
{
    const struct tokens *tokens = source->index;

    if (tokens->windows.random || tokens->blend.n_parts > 0) {
        snprintf(text, size, "%s: window %" PRIu64, source->name, index);
        return text;
    }
    struct place place = tokens_place(tokens, index, (struct sample_key){0});
    snprintf(text, size, "%s: the window at token %" PRIu64, place.file->file.name, place.token);
    return text;
}

/* -- indexing --------------------------------------------------------------------------------- */

static int windows_check(const struct source *source, const struct token_windows *windows,
                         struct failure *failure)
{
    if (windows->seq == 0 || windows->seq > SEQ_MAX)
        return failure_set(failure, -EINVAL,
                           "source %s: sequences of %" PRIu32 " tokens; 1 to %u are possible",
                           source->name, windows->seq, SEQ_MAX);
    if (windows->width != SAMPLE_U16 && windows->width != SAMPLE_U32 &&
        windows->width != SAMPLE_I32)
        return failure_set(failure, -EINVAL, "source %s: tokens are u16, u32 or i32", source->name);
    if (windows->out != SAMPLE_I32 && windows->out != SAMPLE_I64)
        return failure_set(failure, -EINVAL, "source %s: tokens are delivered as i32 or i64",
                           source->name);
    if (windows->stride == 0)
        return failure_set(failure, -EINVAL, "source %s: a stride of 0", source->name);
    return 0;
}

/* All files are of one part where the spec has none. */
static int parts_check(const struct source *source, const struct source_spec *spec,
                       struct failure *failure)
{
    uint64_t files = 0;

    if (spec->n_fds == 0)
        return failure_set(failure, -EINVAL, "source %s: no file came with it", source->name);
    if (spec->n_parts > BLEND_PARTS_MAX)
        return failure_set(failure, -EINVAL, "source %s: a blend of %zu parts; %d are possible",
                           source->name, spec->n_parts, BLEND_PARTS_MAX);
    for (size_t i = 0; i < spec->n_parts; i++) {
        if (spec->parts[i].files == 0 || spec->parts[i].weight == 0)
            return failure_set(failure, -EINVAL, "source %s: part %.200s of the blend has no %s",
                               source->name, spec->parts[i].name,
                               spec->parts[i].files ? "weight" : "files");
        files += spec->parts[i].files;
    }
    if (spec->n_parts > 0 && files != spec->n_fds)
        return failure_set(failure, -EINVAL,
                           "source %s: its parts have %" PRIu64 " files, and %zu came with it",
                           source->name, files, spec->n_fds);
    return 0;
}

static int tokens_make(struct source *source, const struct source_spec *spec,
                       struct failure *failure)
{
    size_t n_parts = spec->n_parts > 0 ? spec->n_parts : 1;
    struct tokens *tokens = calloc(1, sizeof *tokens);

    source->index = tokens;
    source->tensor = "tokens";
    if (tokens) {
        tokens->files = calloc(spec->n_fds, sizeof *tokens->files);
        tokens->parts = calloc(n_parts, sizeof *tokens->parts);
        source->fields = calloc(2, sizeof *source->fields);
    }
    if (!tokens || !tokens->files || !tokens->parts || !source->fields)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    tokens->windows = spec->tokens;
    if (tokens->windows.random)
        tokens->windows.stride = tokens->windows.seq;
    tokens->length = spec->tokens.seq + 1;
    tokens->step = tokens->windows.random ? 1 : tokens->windows.stride;
    tokens->arena = (struct arena){.name = source->name, .max = spec->index_bytes_max};
    tokens->n_parts = n_parts;
    for (size_t i = 0; i < n_parts; i++) {
        tokens->parts[i].n_fds = spec->n_parts > 0 ? spec->parts[i].files : spec->n_fds;
        tokens->parts[i].weight = spec->n_parts > 0 ? spec->parts[i].weight : 1;
    }
    struct source_field field = {
        .dtype = SAMPLE_I64, .shape = {tokens->length}, .n_dims = 1, .name = "position"};
    if (tokens->windows.position)
        source->fields[source->n_fields++] = field;
    field.name = "document";
    if (tokens->windows.document)
        source->fields[source->n_fields++] = field;
    return 0;
}

static int count_add(const struct source *source, uint64_t *count, uint64_t n,
                     struct failure *failure)
{
    if (n > COUNT_MAX - *count)
        return failure_set(failure, -E2BIG, "source %s: more than 2^62 samples", source->name);
    *count += n;
    return 0;
}

/* One file, and its index if there is one; *fd_p moves on behind them. */
static int file_index(struct source *source, struct token_part *part,
                      const struct source_spec *spec, size_t *fd_p, size_t end, uint64_t *longest_p,
                      struct source_progress *progress, struct failure *failure)
{
    struct tokens *tokens = source->index;
    struct token_file *file = &tokens->files[tokens->n_files++];
    struct token_counts counts = {0};
    size_t taken = 0;

    int r = token_file_take(tokens, file, spec->fds + *fd_p, spec->fd_names + *fd_p, end - *fd_p,
                            progress, &taken, failure);
    if (r == 0)
        r = tokens_count(tokens, file, &counts, longest_p, failure);
    if (r < 0)
        return r;
    *fd_p += taken;
    part->n_files++;
    file->first_place = part->places;
    file->first_document = tokens->documents;
    source->skipped += counts.skipped;
    r = count_add(source, &part->places, counts.places, failure);
    if (r == 0)
        r = count_add(source, &part->samples, counts.samples, failure);
    if (r == 0)
        r = count_add(source, &source->samples, counts.samples, failure);
    return r < 0 ? r : count_add(source, &tokens->documents, file->documents, failure);
}

static int part_index(struct source *source, const struct source_spec *spec, size_t number,
                      size_t *fd_p, struct source_progress *progress, struct failure *failure)
{
    struct tokens *tokens = source->index;
    struct token_part *part = &tokens->parts[number];
    size_t end = *fd_p + part->n_fds;
    uint64_t longest = 0;
    int r = 0;

    part->first_file = tokens->n_files;
    while (r == 0 && *fd_p < end) {
        r = file_index(source, part, spec, fd_p, end, &longest, progress, failure);
        if (r == 0 && (tokens->n_files - 1) % PROGRESS_FILES == 0)
            r = source_progress_set(source, progress, source->samples, failure);
    }
    if (r < 0 || part->samples > 0)
        return r;
    const char *of = spec->n_parts > 0 ? spec->parts[number].name : NULL;
    return failure_set(failure, -ENOENT,
                       "source %s: no window of %" PRIu32
                       " tokens (seq + 1) fits %s%.300s%s %zu files: the longest%s has %" PRIu64,
                       source->name, tokens->length, of ? "the part " : "its", of ? of : "",
                       of ? ", its" : "", part->n_files, tokens->windows.within ? " document" : "",
                       longest);
}

static int tokens_blend(struct tokens *tokens, struct failure *failure)
{
    uint64_t weights[BLEND_PARTS_MAX], samples[BLEND_PARTS_MAX];

    for (size_t i = 0; i < tokens->n_parts; i++) {
        weights[i] = tokens->parts[i].weight;
        samples[i] = tokens->parts[i].samples;
    }
    return blend_init(&tokens->blend, weights, samples, tokens->n_parts, &tokens->arena, failure);
}

/* -- fingerprint ------------------------------------------------------------------------------ */

static void hash_file(XXH64_state_t *state, const struct source_file *file)
{
    const char *name = source_file_base(file);
    uint64_t bytes = source_file_bytes(file);

    XXH64_update(state, name, strlen(name) + 1);
    XXH64_update(state, &bytes, sizeof bytes);
}

/* What bare files in their order do without. */
static void hash_more(XXH64_state_t *state, const struct tokens *tokens)
{
    for (size_t i = 0; i < tokens->n_files; i++) {
        const struct token_file *file = &tokens->files[i];
        uint64_t numbers[] = {i, (uint64_t)file->format, (uint64_t)file->width, file->skip,
                              file->documents};
        if (file->format != TOKENS_BARE || file->skip > 0)
            XXH64_update(state, numbers, sizeof numbers);
        if (file->index.name)
            hash_file(state, &file->index);
    }
    if (tokens->windows.within)
        XXH64_update(state, "within", sizeof "within");
    for (size_t i = 0; i < tokens->blend.n_parts; i++) {
        uint64_t numbers[] = {BLEND_VERSION, tokens->blend.period, tokens->blend.parts[i].weight,
                              tokens->parts[i].n_files};
        XXH64_update(state, numbers, sizeof numbers);
    }
}

/* Of names, sizes and what makes windows of them; not of where the files lie. */
static int tokens_fingerprint(struct source *source, const struct tokens *tokens,
                              struct failure *failure)
{
    const struct token_windows *windows = &tokens->windows;
    uint64_t numbers[] = {windows->seq,
                          windows->stride,
                          windows->random ? RANDOM_VERSION : 0,
                          (uint64_t)windows->width,
                          (uint64_t)windows->out,
                          tokens->n_files};
    XXH64_state_t *state = XXH64_createState();

    if (!state)
        return failure_set(failure, -ENOMEM, "source %s: no memory", source->name);
    XXH64_reset(state, 0);
    XXH64_update(state, numbers, sizeof numbers);
    for (size_t i = 0; i < tokens->n_files; i++)
        hash_file(state, &tokens->files[i].file);
    hash_more(state, tokens);
    source->fingerprint = XXH64_digest(state);
    XXH64_freeState(state);
    return 0;
}

static int tokens_index(struct source *source, const struct source_spec *spec,
                        struct source_progress *progress, struct failure *failure)
{
    size_t fd = 0;

    int r = windows_check(source, &spec->tokens, failure);
    if (r == 0)
        r = parts_check(source, spec, failure);
    if (r == 0)
        r = tokens_make(source, spec, failure);
    struct tokens *tokens = source->index;
    for (size_t i = 0; r == 0 && i < tokens->n_parts; i++)
        r = part_index(source, spec, i, &fd, progress, failure);
    if (r == 0 && spec->n_parts > 0)
        r = tokens_blend(tokens, failure);
    if (r < 0)
        return r;
    array_trim(&tokens->starts, sizeof(uint64_t));
    array_trim(&tokens->places, sizeof(uint64_t));
    r = tokens_fingerprint(source, tokens, failure);
    return r < 0 ? r : source_progress_set(source, progress, source->samples, failure);
}

/* -- again, and the end ----------------------------------------------------------------------- */

static bool windows_equal(const struct token_windows *a, const struct token_windows *b)
{
    return a->seq == b->seq && a->random == b->random && (a->random || a->stride == b->stride) &&
           a->within == b->within && a->has_width == b->has_width && a->width == b->width &&
           a->has_offset == b->has_offset && a->offset == b->offset && a->position == b->position &&
           a->document == b->document && a->out == b->out && a->vocabulary == b->vocabulary;
}

static bool parts_equal(const struct tokens *tokens, const struct source_spec *spec)
{
    if (spec->n_parts != tokens->blend.n_parts)
        return false;
    for (size_t i = 0; i < spec->n_parts; i++) {
        if (spec->parts[i].files != tokens->parts[i].n_fds ||
            spec->parts[i].weight != tokens->parts[i].weight)
            return false;
    }
    return true;
}

static bool tokens_matches(const struct source *source, const struct source_spec *spec)
{
    const struct tokens *tokens = source->index;
    size_t fd = 0;

    if (!windows_equal(&tokens->windows, &spec->tokens) || !parts_equal(tokens, spec))
        return false;
    for (size_t i = 0; i < tokens->n_files; i++) {
        const struct token_file *file = &tokens->files[i];
        const struct source_file *files[] = {&file->file, &file->index};
        for (size_t k = 0; k < 2 && files[k]->name; k++, fd++) {
            if (fd >= spec->n_fds ||
                !source_file_matches(files[k], spec->fds[fd], spec->fd_names[fd]))
                return false;
        }
    }
    return fd == spec->n_fds;
}

static void tokens_free(struct source *source)
{
    struct tokens *tokens = source->index;

    for (size_t i = 0; i < tokens->n_files; i++)
        token_file_deinit(&tokens->files[i]);
    blend_deinit(&tokens->blend);
    array_deinit(&tokens->starts);
    array_deinit(&tokens->places);
    free(tokens->files);
    free(tokens->parts);
    free(tokens);
}

const struct source_ops source_tokens_ops = {
    .name = "tokens",
    .index = tokens_index,
    .fill = tokens_fill,
    .try_fill = tokens_try_fill,
    .field = tokens_field,
    .shape = tokens_shape,
    .matches = tokens_matches,
    .sample_name = tokens_sample_name,
    .free = tokens_free,
};
