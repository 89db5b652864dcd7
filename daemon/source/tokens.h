/*
 * Inside the source of tokens: its files, and where windows begin in them.
 * tokens.c indexes, tokens_file.c tells what a file is, tokens_place.c finds a
 * window's place, tokens_read.c reads it.
 *
 * Files belong to parts, one after the other; without a blend there is one.
 * The places of a file are where a window may begin: one at each stride, or,
 * where windows are random, at each token that has room behind it; with
 * `within` only where it ends in the document in which it begins.
 */
#ifndef PINSERVE_SOURCE_TOKENS_H
#define PINSERVE_SOURCE_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source/arena.h"
#include "source/blend.h"
#include "source/file.h"
#include "source/source.h"

enum token_format {
    TOKENS_BARE,
    TOKENS_LLMC,     /* behind llm.c's header */
    TOKENS_MEGATRON, /* described by an index */
};

struct token_file {
    struct source_file file;
    struct source_file index; /* of a Megatron pair, its fd closed; else without a name */
    enum token_format format;
    enum sample_dtype width;
    uint64_t skip; /* bytes before the first token */
    uint64_t tokens;
    uint64_t limit;          /* tokens, as unsigned numbers, are below it; 0: not checked */
    uint64_t first_place;    /* of its part's */
    uint64_t first_document; /* of all files' */
    uint64_t documents;      /* 1 but for a Megatron pair */
    bool has_documents;      /* it is known where they begin: in tokens->starts, from here on */
    size_t documents_at;
};

struct token_part {
    size_t first_file, n_files;
    size_t n_fds;
    uint64_t weight;
    uint64_t samples, places;
};

struct tokens {
    struct token_windows windows;
    uint32_t length; /* of a window: seq + 1 */
    uint64_t step;   /* from one place to the next */
    struct token_file *files;
    size_t n_files;
    struct token_part *parts;
    size_t n_parts;
    struct blend blend; /* without one: no parts */
    uint64_t documents;
    struct arena arena;
    /* Of files with documents, uint64: the token at which each begins, and the end of the last
     * one. */
    struct array starts;
    /* For `within`, at the same positions: how many of the file's places come before. */
    struct array places;
};

/* Where a window begins. */
struct place {
    const struct token_file *file;
    uint64_t token;
};

/* -- tokens_file.c ---------------------------------------------------------------------------- */

/* Whether fd is of a Megatron index. Other than plain files are none. */
bool token_fd_is_index(int fd);

/* Takes fds[0], with its index behind it if there is one, tells what it is, and sets everything of
 * file but its first_*. *taken_p is the number of fds. -EINVAL in words. The file is deinit-ed by
 * the caller, also after an error. */
int token_file_take(struct tokens *tokens, struct token_file *file, const int *fds,
                    const char *const *names, size_t n, struct source_progress *progress,
                    size_t *taken_p, struct failure *failure);
void token_file_deinit(struct token_file *file);

/* -- tokens_place.c --------------------------------------------------------------------------- */

/* Counts a file's places and windows, and what is too short for any. With `within` it appends to
 * tokens->places. *longest_p grows to the longest run of tokens that a window might lie in. */
struct token_counts {
    uint64_t places, samples, skipped;
};
int tokens_count(struct tokens *tokens, const struct token_file *file, struct token_counts *counts,
                 uint64_t *longest_p, struct failure *failure);

/* The part of a sample, and of which of its samples it takes the place. */
struct blend_draw tokens_draw(const struct tokens *tokens, uint64_t sample, struct sample_key key);
struct place tokens_place(const struct tokens *tokens, uint64_t sample, struct sample_key key);

/* Writes the index in its document, or the number of its document, of each token of a window. */
void tokens_positions(const struct tokens *tokens, const struct place *place, int64_t *out);
void tokens_documents(const struct tokens *tokens, const struct place *place, int64_t *out);

/* -- tokens_read.c ---------------------------------------------------------------------------- */

/* fill and try_fill of struct source_ops. */
int tokens_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                int64_t *label_p, struct failure *failure);
int tokens_try_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                    int64_t *label_p, struct failure *failure);

#endif
