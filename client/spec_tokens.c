/*
 * Sources of tokens, as users write them. Options are taken off the end, one by
 * one, as long as they are options; then the type of the tokens; what is left
 * is a pattern, or the parts of a blend.
 */
#include "spec_tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cleanup.h"

#define BLEND "blend="
/* A weight has so many digits before and behind its point; so one unit is 10^-9. */
#define WEIGHT_DIGITS 9
#define WEIGHT_WHOLE_MAX UINT64_C(1000000000)

#define OPTIONS                                                                                    \
    "stride=N, stride=random, out=i64, vocab=N, offset=N, documents=within, position or document"

/* -- options ---------------------------------------------------------------------------------- */

static int option_number(const char *source, struct parse_text text, uint64_t min, const char *what,
                         uint64_t *number_p, struct failure *failure)
{
    uint64_t number;

    if (parse_whole(text, INT64_MAX, &number) < 0 || number < min)
        return failure_set(failure, -EINVAL, "source \"%.200s\": \"%.*s\" is no number of %s",
                           source, (int)text.size, text.text, what);
    *number_p = number;
    return 0;
}

/* "random" alone means stride=random, too. */
static bool option_word(struct parse_text option, Pinserve__Source *parsed)
{
    if (parse_is(option, "stride=random") || parse_is(option, "random"))
        parsed->random = true;
    else if (parse_is(option, "position"))
        parsed->position = true;
    else if (parse_is(option, "document"))
        parsed->document = true;
    else if (parse_is(option, "documents=within") || parse_is(option, "documents=across"))
        parsed->within = parse_is(option, "documents=within");
    else if (parse_is(option, "out=i32") || parse_is(option, "out=i64"))
        parsed->out = parse_is(option, "out=i64") ? "i64" : "i32";
    else
        return false;
    return true;
}

/* "0.7:", as a part of a blend begins. */
static bool is_part(struct parse_text text)
{
    size_t i = 0;

    while (i < text.size && ((text.text[i] >= '0' && text.text[i] <= '9') || text.text[i] == '.'))
        i++;
    return i > 0 && i < text.size && text.text[i] == ':';
}

/* 1: it is no option, but the end of a pattern. */
static int tokens_option(const char *source, struct parse_text option, Pinserve__Source *parsed,
                         struct failure *failure)
{
    struct parse_text value;

    if (option_word(option, parsed))
        return 0;
    if (parse_begins(option, "stride=", &value))
        return option_number(source, value, 1, "tokens", &parsed->stride, failure);
    if (parse_begins(option, "vocab=", &value))
        return option_number(source, value, 1, "tokens", &parsed->vocabulary, failure);
    if (parse_begins(option, "offset=", &value)) {
        parsed->has_offset = true;
        return option_number(source, value, 0, "bytes", &parsed->offset, failure);
    }
    if (parse_begins(option, "out=", &value))
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": \"%.*s\": tokens are delivered as i32 or i64",
                           source, (int)value.size, value.text);
    if (parse_begins(option, "documents=", &value))
        return failure_set(
            failure, -EINVAL,
            "source \"%.200s\": \"%.*s\": windows go across documents or stay within", source,
            (int)value.size, value.text);
    if (!memchr(option.text, '=', option.size) || memchr(option.text, '/', option.size) ||
        is_part(option))
        return 1;
    return failure_set(failure, -EINVAL, "source \"%.200s\": \"%.*s\" is no option: " OPTIONS,
                       source, (int)option.size, option.text);
}

/* Takes the type of the tokens off the end of a pattern. A path may have colons; a type has neither
 * dots nor slashes. */
static int tokens_type(const char *source, struct parse_text *text, Pinserve__Source *parsed,
                       struct failure *failure)
{
    struct parse_text before = *text, piece;

    if (!parse_cut_last(&before, ':', &piece) || memchr(piece.text, '/', piece.size) ||
        memchr(piece.text, '.', piece.size))
        return 0;
    char *type = parse_is(piece, "u16")   ? "u16"
                 : parse_is(piece, "u32") ? "u32"
                 : parse_is(piece, "i32") ? "i32"
                                          : NULL;
    if (!type)
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": \"%.*s\" is no type of tokens: u16, u32 or i32",
                           source, (int)piece.size, piece.text);
    if (*parsed->dtype && strcmp(parsed->dtype, type) != 0)
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": type %s for one part and %s for another; files "
                           "without a header have one type",
                           source, parsed->dtype, type);
    parsed->dtype = type;
    *text = before;
    return 0;
}

/* -- blends ----------------------------------------------------------------------------------- */

static struct spec_blend *blend_new(size_t n, size_t text_bytes)
{
    struct spec_blend *blend =
        calloc(1, sizeof *blend + n * (sizeof *blend->list + sizeof *blend->parts) + text_bytes);

    if (!blend)
        return NULL;
    blend->n = n;
    blend->list = (Pinserve__BlendPart **)(blend + 1);
    blend->parts = (Pinserve__BlendPart *)(blend->list + n);
    for (size_t i = 0; i < n; i++) {
        pinserve__blend_part__init(&blend->parts[i]);
        blend->list[i] = &blend->parts[i];
    }
    return blend;
}

int spec_blend_clone(const struct spec_blend *blend, struct spec_blend **clone_p,
                     struct failure *failure)
{
    struct spec_blend *clone = blend ? blend_new(blend->n, 0) : NULL;

    if (blend && !clone)
        return failure_set(failure, -ENOMEM, "no memory for a blend of %zu parts", blend->n);
    for (size_t i = 0; clone && i < clone->n; i++)
        clone->parts[i] = blend->parts[i];
    *clone_p = clone;
    return 0;
}

/* "0.7" in units of 10^-9. */
static int weight_parse(struct parse_text text, uint64_t *weight_p)
{
    struct parse_text whole = parse_cut(&text, '.');
    uint64_t weight, part = 0;

    if (parse_whole(whole, WEIGHT_WHOLE_MAX, &weight) < 0)
        return -EINVAL;
    if (!whole.last) {
        if (text.size > WEIGHT_DIGITS || parse_whole(text, UINT64_MAX, &part) < 0)
            return -EINVAL;
        for (size_t i = text.size; i < WEIGHT_DIGITS; i++)
            part *= 10;
    }
    weight = weight * WEIGHT_WHOLE_MAX + part;
    if (weight == 0)
        return -EINVAL;
    *weight_p = weight;
    return 0;
}

/* "WEIGHT:PATTERN[:TYPE]" */
static int part_parse(const char *source, struct parse_text text, Pinserve__BlendPart *part,
                      char *name, Pinserve__Source *parsed, struct failure *failure)
{
    struct parse_text pattern = text;
    struct parse_text weight = parse_cut(&pattern, ':');

    if (weight.last)
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": \"%.*s\" is no part of a blend: write "
                           "WEIGHT:PATTERN, like 0.7:web-*.bin",
                           source, (int)text.size, text.text);
    if (weight_parse(weight, &part->weight) < 0)
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": \"%.*s\" is no weight: it is above 0, at most 10^9, "
                           "with at most %d digits behind the point",
                           source, (int)weight.size, weight.text, WEIGHT_DIGITS);
    int r = tokens_type(source, &pattern, parsed, failure);
    if (r < 0)
        return r;
    if (pattern.size == 0)
        return failure_set(failure, -EINVAL, "source \"%.200s\": a part of the blend names no file",
                           source);
    memcpy(name, pattern.text, pattern.size);
    part->name = name;
    return 0;
}

static int blend_parse(const char *source, struct parse_text text, Pinserve__Source *parsed,
                       struct spec_blend **blend_p, struct failure *failure)
{
    struct parse_text left = text;
    size_t n = 1;
    int r = 0;

    for (size_t i = 0; i < text.size; i++)
        n += text.text[i] == ',';
    cleanup_free struct spec_blend *blend = blend_new(n, text.size + 1);
    if (!blend)
        return failure_set(failure, -ENOMEM, "no memory for \"%.64s\"", source);
    /* Each name ends where the comma was: all is zero before. */
    char *name = (char *)(blend->parts + n);
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct parse_text part = parse_cut(&left, ',');
        r = part_parse(source, part, &blend->parts[i], name, parsed, failure);
        name += part.size + 1;
    }
    if (r < 0)
        return r;
    parsed->n_blend = n;
    parsed->blend = blend->list;
    *blend_p = steal_ptr(blend);
    return 0;
}

int spec_tokens_parse(const char *source, const char *rest, Pinserve__Source *parsed,
                      struct parse_text *pattern_p, struct spec_blend **blend_p,
                      struct failure *failure)
{
    struct parse_text text = parse_from(rest), piece = {0};
    bool blend = parse_begins(text, BLEND, &text);
    struct parse_text before = text;
    int r = 0;

    parsed->out = "i32";
    while (r == 0 && parse_cut_last(&before, ',', &piece)) {
        r = tokens_option(source, piece, parsed, failure);
        if (r < 0)
            return r;
        if (r == 0)
            text = before;
    }
    if (parsed->random && parsed->stride)
        return failure_set(failure, -EINVAL,
                           "source \"%.200s\": windows begin at random or at a stride, not both",
                           source);
    r = blend ? blend_parse(source, text, parsed, blend_p, failure)
              : tokens_type(source, &text, parsed, failure);
    if (r == 0)
        *pattern_p = text;
    return r;
}
