/*
 * Where samples come from, as users write it: the texts of sources, taken
 * apart. What depends on the files, the daemon checks.
 */
#include "spec.h"

#include <stdlib.h>

#include "dataset.h"
#include "parse.h"
#include "proto/cleanup.h"
#include "proto/dtype.h"
#include "spec_tokens.h"

#define SAMPLES_DEFAULT 65536
#define SEQ_MAX (1u << 28)
#define LABELS ",labels="
#define LIST ",list="
#define FIELDS ",fields="

/* A source, taken apart; its texts are static or within source. */
struct source_parts {
    Pinserve__Source source;
    uint32_t shape[DIMS_MAX];
    struct parse_text path, labels, list; /* text NULL: none */
    const char *pattern_of;   /* path is a pattern of files of this kind; NULL: it is not */
    const char *fields;       /* the end of source; NULL: none */
    struct spec_blend *blend; /* owned; NULL: none */
};

/* "DIR", or "DIR,list=FILE". */
static int folder_parse(const char *source, const char *rest, struct source_parts *parts,
                        struct failure *failure)
{
    const char *list = strstr(rest, LIST);

    parts->path = parse_from(rest);
    if (!list)
        return 0;
    parts->path.size = (size_t)(list - rest);
    parts->list = parse_from(list + strlen(LIST));
    if (parts->list.size == 0)
        return failure_set(failure, -EINVAL, "source \"%.200s\": names no list of files", source);
    return 0;
}

/* "PATTERN", or "PATTERN,fields=F+F...". What fields there can be, the daemon knows. */
static int tar_parse(const char *source, const char *rest, struct source_parts *parts,
                     struct failure *failure)
{
    const char *fields = NULL;

    parts->path = parse_from(rest);
    for (const char *at = strstr(rest, FIELDS); at; at = strstr(at + 1, FIELDS))
        fields = at;
    if (!fields)
        return 0;
    parts->path.size = (size_t)(fields - rest);
    parts->fields = fields + strlen(FIELDS);
    if (!*parts->fields)
        return failure_set(failure, -EINVAL, "source \"%.200s\": names no fields, like jpg+cls",
                           source);
    return 0;
}

/* "3x224x224": the dimensions of one sample, so one fewer than a tensor may have. */
static int shape_parse(const char *source, struct parse_text text, uint32_t shape[DIMS_MAX],
                       size_t *n_p, struct failure *failure)
{
    uint64_t bytes = 1;
    size_t n = 0;

    for (;;) {
        struct parse_text part = parse_cut(&text, 'x');
        uint64_t value;
        if (n == DIMS_MAX - 1)
            return failure_set(failure, -EINVAL,
                               "source \"%.200s\": the shape has more than %d dimensions", source,
                               DIMS_MAX - 1);
        if (parse_whole(part, UINT32_MAX, &value) < 0 || value == 0)
            return failure_set(failure, -EINVAL,
                               "source \"%.200s\": \"%.*s\" is no dimension: a shape is written "
                               "3x224x224",
                               source, (int)part.size, part.text);
        if (__builtin_mul_overflow(bytes, value, &bytes) || bytes > UINT64_MAX / 16)
            return failure_set(failure, -EINVAL, "source \"%.200s\": the shape is too large",
                               source);
        shape[n++] = (uint32_t)value;
        if (part.last)
            break;
    }
    *n_p = n;
    return 0;
}

static int synthetic_parse(const char *source, const char *rest, struct source_parts *parts,
                           struct failure *failure)
{
    Pinserve__Source *parsed = &parts->source;
    struct parse_text text = parse_from(rest);
    struct parse_text part = parse_cut(&text, ':');
    int r = shape_parse(source, part, parts->shape, &parsed->n_shape, failure);

    if (r < 0)
        return r;
    parsed->dtype = "u8";
    parsed->samples = SAMPLES_DEFAULT;
    if (part.last)
        return 0;
    part = parse_cut(&text, ':');
    if (parse_is(part, "f32"))
        parsed->dtype = "f32";
    else if (!parse_is(part, "u8"))
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": \"%.*s\" is no element type: u8 or f32", source,
                           (int)part.size, part.text);
    if (part.last)
        return 0;
    if (parse_whole(text, INT64_MAX, &parsed->samples) < 0 || parsed->samples == 0)
        return failure_set(failure, -EINVAL, "source \"%.200s\": \"%.*s\" is no number of samples",
                           source, (int)text.size, text.text);
    return 0;
}

/* "FILE.npy", or "FILE:SHAPE:DTYPE" for a raw file; then ",labels=FILE.npy" or nothing. */
static int records_parse(const char *source, const char *rest, struct source_parts *parts,
                         struct failure *failure)
{
    struct parse_text text = parse_from(rest), piece = {0}, shape = {0};

    const char *labels = strstr(rest, LABELS);
    if (labels) {
        parts->labels = parse_from(labels + strlen(LABELS));
        text.size = (size_t)(labels - rest);
        if (parts->labels.size == 0)
            return failure_set(failure, -EINVAL, "source \"%.200s\": names no file of labels",
                               source);
    }
    struct parse_text before = text;
    if (!parse_ends(text, ".npy") && parse_cut_last(&before, ':', &piece) &&
        !memchr(piece.text, '/', piece.size)) {
        int dtype = dtype_find(piece.text, piece.size);
        if (dtype < 0)
            return failure_set(
                failure, -EINVAL,
                "source \"%.200s\": \"%.*s\" is no element type: there are " DTYPE_NAMES, source,
                (int)piece.size, piece.text);
        if (!parse_cut_last(&before, ':', &shape))
            return failure_set(failure, -EINVAL,
                               "source \"%.200s\": write records:FILE:SHAPE:DTYPE, like "
                               "records:data.bin:3x224x224:u8",
                               source);
        int r = shape_parse(source, shape, parts->shape, &parts->source.n_shape, failure);
        if (r < 0)
            return r;
        parts->source.dtype = (char *)dtype_table[dtype].name;
        text = before;
    }
    parts->source.labels = parts->labels.text != NULL;
    parts->path = text;
    return 0;
}

/* A pattern, or the parts of a blend. */
static int tokens_parse(const char *source, const char *rest, struct source_parts *parts,
                        struct failure *failure)
{
    return spec_tokens_parse(source, rest, &parts->source, &parts->path, &parts->blend, failure);
}

static const struct {
    const char *name;
    Pinserve__SourceKind kind;
    const char *what; /* it names */
    bool pattern;     /* many of them */
    int (*parse)(const char *source, const char *rest, struct source_parts *parts,
                 struct failure *failure); /* NULL: all of it is the path */
} kinds[] = {
    {"folder", PINSERVE__SOURCE_KIND__SOURCE_FOLDER, "directory", false, folder_parse},
    {"tar", PINSERVE__SOURCE_KIND__SOURCE_TAR, "file", true, tar_parse},
    {"records", PINSERVE__SOURCE_KIND__SOURCE_RECORDS, "file", false, records_parse},
    {"tokens", PINSERVE__SOURCE_KIND__SOURCE_TOKENS, "file", true, tokens_parse},
    {"synthetic", PINSERVE__SOURCE_KIND__SOURCE_SYNTHETIC, NULL, false, synthetic_parse},
};
#define KINDS (sizeof kinds / sizeof kinds[0])

static int source_parse(const char *source, struct source_parts *parts, struct failure *failure)
{
    const char *rest = strchr(source, ':');
    size_t i = 0;

    if (!rest)
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": write folder:DIR, tar:PATTERN, records:FILE, "
                           "tokens:PATTERN or synthetic:SHAPE",
                           source);
    rest++;
    if (strlen(source) >= NAME_MAX_BYTES)
        return failure_set(failure, -EINVAL, "source \"%.200s...\": over %d bytes", source,
                           NAME_MAX_BYTES - 1);
    struct parse_text name = {.text = source, .size = (size_t)(rest - source) - 1};
    while (i < KINDS && !parse_is(name, kinds[i].name))
        i++;
    if (i == KINDS)
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": unknown kind \"%.*s\": there are folder, tar, "
                           "records, tokens and synthetic",
                           source, (int)name.size, name.text);
    parts->source.kind = kinds[i].kind;
    int r = 0;
    if (kinds[i].parse)
        r = kinds[i].parse(source, rest, parts, failure);
    else
        parts->path = parse_from(rest);
    if (r == 0 && kinds[i].what && parts->path.size == 0)
        return failure_set(failure, -EINVAL, "source \"%s\": names no %s", source, kinds[i].what);
    parts->pattern_of = r == 0 && kinds[i].pattern ? kinds[i].name : NULL;
    return r;
}

/* Of every part, where there are some. */
static int patterns_check(const struct source_parts *parts, const char *path,
                          struct failure *failure)
{
    int r = 0;

    if (!parts->blend)
        return dataset_pattern_check(parts->pattern_of, path, failure);
    for (size_t i = 0; r == 0 && i < parts->blend->n; i++)
        r = dataset_pattern_check(parts->pattern_of, parts->blend->parts[i].name, failure);
    return r;
}

/* NULL stays NULL. */
static int text_copy(struct parse_text text, char **copy_p)
{
    char *copy = text.text ? strndup(text.text, text.size) : NULL;

    if (text.text && !copy)
        return -ENOMEM;
    *copy_p = copy;
    return 0;
}

int pinclient_spec_source(struct pinclient_spec *spec, const char *source)
{
    struct source_parts parts = {.source = PINSERVE__SOURCE__INIT};
    cleanup_free char *path = NULL;
    cleanup_free char *labels = NULL;
    cleanup_free char *list = NULL;
    struct failure *failure = spec->handle.failure;

    int r = source_parse(source, &parts, failure);
    if (r == 0 && (text_copy(parts.path, &path) < 0 || text_copy(parts.labels, &labels) < 0 ||
                   text_copy(parts.list, &list) < 0))
        r = failure_set(failure, -ENOMEM, "no memory for \"%.64s\"", source);
    if (r == 0 && parts.pattern_of)
        r = patterns_check(&parts, path, failure);
    if (r == 0)
        r = spec_text_replace(spec, &spec->source_text, source);
    if (r < 0) {
        free(parts.blend);
        return r;
    }
    free(spec->source_path);
    free(spec->labels_path);
    free(spec->list_path);
    free(spec->blend);
    spec->blend = parts.blend;
    spec->source_path = steal_ptr(path);
    spec->labels_path = steal_ptr(labels);
    spec->list_path = steal_ptr(list);
    memcpy(spec->shape, parts.shape, sizeof spec->shape);
    parts.source.shape = spec->shape;
    parts.source.name = spec->source_text;
    if (parts.fields)
        parts.source.fields = spec->source_text + (parts.fields - source);
    parts.source.seq = spec->source.seq;
    spec->source = parts.source;
    return 0;
}

int pinclient_spec_seq(struct pinclient_spec *spec, uint32_t seq)
{
    if (seq < 1 || seq > SEQ_MAX)
        return failure_set(spec->handle.failure, -EINVAL, "seq %u: from 1 to %u tokens", seq,
                           SEQ_MAX);
    spec->source.seq = seq;
    return 0;
}
