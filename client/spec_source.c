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

#define SAMPLES_DEFAULT 65536
#define SEQ_MAX (1u << 28)
#define LABELS ",labels="
#define LIST ",list="

/* A source, taken apart; its texts are static or within source. */
struct source_parts {
    Pinserve__Source source;
    uint32_t shape[DIMS_MAX];
    struct parse_text path, labels, list; /* text NULL: none */
    const char *pattern_of; /* path is a pattern of files of this kind; NULL: it is not */
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

/* Takes what is behind the last separator off text; false: there is none. */
static bool cut_last(struct parse_text *text, char separator, struct parse_text *piece_p)
{
    const char *at = memrchr(text->text, separator, text->size);

    if (!at)
        return false;
    piece_p->text = at + 1;
    piece_p->size = text->size - (size_t)(at + 1 - text->text);
    text->size = (size_t)(at - text->text);
    return true;
}

/* Whether text begins with word; then *rest_p is what follows. */
static bool begins(struct parse_text text, const char *word, struct parse_text *rest_p)
{
    size_t size = strlen(word);

    if (text.size < size || memcmp(text.text, word, size) != 0)
        return false;
    *rest_p = (struct parse_text){.text = text.text + size, .size = text.size - size};
    return true;
}

static bool ends(struct parse_text text, const char *word)
{
    size_t size = strlen(word);

    return text.size >= size && memcmp(text.text + text.size - size, word, size) == 0;
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
    if (!ends(text, ".npy") && cut_last(&before, ':', &piece) &&
        !memchr(piece.text, '/', piece.size)) {
        int dtype = dtype_find(piece.text, piece.size);
        if (dtype < 0)
            return failure_set(
                failure, -EINVAL,
                "source \"%.200s\": \"%.*s\" is no element type: there are " DTYPE_NAMES, source,
                (int)piece.size, piece.text);
        if (!cut_last(&before, ':', &shape))
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

/* One of "stride=N", "stride=random" ("random" alone means it, too), "out=i64" and "vocab=N". 1: it
 * is none of them. */
static int tokens_option(const char *source, struct parse_text option, Pinserve__Source *parsed,
                         struct failure *failure)
{
    struct parse_text value;
    uint64_t *number = NULL;

    if (parse_is(option, "stride=random") || parse_is(option, "random")) {
        parsed->random = true;
        return 0;
    }
    if (begins(option, "out=", &value)) {
        if (parse_is(value, "i32") || parse_is(value, "i64")) {
            parsed->out = parse_is(value, "i64") ? "i64" : "i32";
            return 0;
        }
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": \"%.*s\": tokens are delivered as i32 or i64",
                           source, (int)value.size, value.text);
    }
    if (begins(option, "stride=", &value))
        number = &parsed->stride;
    else if (begins(option, "vocab=", &value))
        number = &parsed->vocabulary;
    else if (!memchr(option.text, '=', option.size) || memchr(option.text, '/', option.size))
        return 1;
    else
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": \"%.*s\" is no option: stride=N, "
                           "stride=random, out=i64 or vocab=N",
                           source, (int)option.size, option.text);
    if (parse_whole(value, INT64_MAX, number) < 0 || *number == 0)
        return failure_set(failure, -EINVAL, "source \"%.200s\": \"%.*s\" is no number of tokens",
                           source, (int)value.size, value.text);
    return 0;
}

/* "PATTERN[:u16|u32|i32]", then options, each behind a comma. */
static int tokens_parse(const char *source, const char *rest, struct source_parts *parts,
                        struct failure *failure)
{
    struct parse_text text = parse_from(rest), piece = {0}, before = text;
    int r = 0;

    parts->source.dtype = "u16";
    parts->source.out = "i32";
    while (r == 0 && cut_last(&before, ',', &piece)) {
        r = tokens_option(source, piece, &parts->source, failure);
        if (r < 0)
            return r;
        if (r == 0)
            text = before;
    }
    if (parts->source.random && parts->source.stride)
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": windows begin at random or at a stride, not both",
                           source);
    before = text;
    /* A path may have colons; a type has neither dots nor slashes. */
    if (cut_last(&before, ':', &piece) && !memchr(piece.text, '/', piece.size) &&
        !memchr(piece.text, '.', piece.size)) {
        if (!parse_is(piece, "u16") && !parse_is(piece, "u32") && !parse_is(piece, "i32"))
            return failure_set(failure, -EINVAL,
                               "source \"%.200s\": \"%.*s\" is no type of tokens: u16, u32 or i32",
                               source, (int)piece.size, piece.text);
        parts->source.dtype = parse_is(piece, "u16")   ? "u16"
                              : parse_is(piece, "u32") ? "u32"
                                                       : "i32";
        text = before;
    }
    parts->path = text;
    return 0;
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
    {"tar", PINSERVE__SOURCE_KIND__SOURCE_TAR, "file", true, NULL},
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
        r = dataset_pattern_check(parts.pattern_of, path, failure);
    if (r == 0)
        r = spec_text_replace(spec, &spec->source_text, source);
    if (r < 0)
        return r;
    free(spec->source_path);
    free(spec->labels_path);
    free(spec->list_path);
    spec->source_path = steal_ptr(path);
    spec->labels_path = steal_ptr(labels);
    spec->list_path = steal_ptr(list);
    memcpy(spec->shape, parts.shape, sizeof spec->shape);
    parts.source.shape = spec->shape;
    parts.source.name = spec->source_text;
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
