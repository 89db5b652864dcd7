/*
 * The text of a source of tokens, and the parts of a blend.
 */
#ifndef PINSERVE_CLIENT_SPEC_TOKENS_H
#define PINSERVE_CLIENT_SPEC_TOKENS_H

#include <stddef.h>

#include "parse.h"
#include "pinserve.pb-c.h"
#include "proto/failure.h"

/* Files that are mixed by weight. One piece of memory, freed as such. A part's name is its
 * pattern; its number of files is set once they are known, in a clone. */
struct spec_blend {
    size_t n;
    Pinserve__BlendPart **list; /* for messages; to parts */
    Pinserve__BlendPart *parts;
};

/* "PATTERN[:u16|u32|i32][,OPTION]..." or "blend=WEIGHT:PATTERN[,WEIGHT:PATTERN]...", with the same
 * behind them. source is all of the text, for failures. Sets *pattern_p, within rest, or *blend_p,
 * the caller's; with a blend *pattern_p is that of its parts together. */
int spec_tokens_parse(const char *source, const char *rest, Pinserve__Source *parsed,
                      struct parse_text *pattern_p, struct spec_blend **blend_p,
                      struct failure *failure);

/* A blend of one's own, whose names stay the other's; NULL of NULL. */
int spec_blend_clone(const struct spec_blend *blend, struct spec_blend **clone_p,
                     struct failure *failure);

#endif
