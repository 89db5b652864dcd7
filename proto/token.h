/*
 * Resume tokens as text: "pinserve1:", the packed ResumeToken in hexadecimal,
 * and 16 digits of its XXH64, so that a token cut short or mistyped is refused.
 */
#ifndef PINSERVE_TOKEN_H
#define PINSERVE_TOKEN_H

#include <stddef.h>

#include "failure.h"
#include "pinserve.pb-c.h"

/* Writes token as NUL-terminated text. *size_p is the room on entry and the bytes needed, the NUL
 * included, on return. 0, or -ENOSPC when there is too little room (text is untouched then). */
int token_format(const Pinserve__ResumeToken *token, char *text, size_t *size_p);

/* Reads it back; free *token_p with pinserve__resume_token__free_unpacked. -EINVAL: not a token. */
int token_parse(const char *text, Pinserve__ResumeToken **token_p, struct failure *failure);

#endif
