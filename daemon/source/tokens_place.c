/*
 * Where windows of tokens begin, and in which documents they lie. All of it is
 * computed from the index; nothing is read.
 */
#include "source/tokens.h"

#include <errno.h>

#include "source/draw.h"

/* Windows in a run of tokens, and the places where one may begin. */
static void run_count(const struct tokens *tokens, uint64_t n, struct token_counts *counts,
                      uint64_t *longest_p)
{
    if (n > *longest_p)
        *longest_p = n;
    if (n < tokens->length) {
        counts->skipped++;
        return;
    }
    uint64_t room = n - tokens->length;
    counts->samples += room / tokens->windows.stride + 1;
    counts->places += room / tokens->step + 1;
}

int tokens_count(struct tokens *tokens, const struct token_file *file, struct token_counts *counts,
                 uint64_t *longest_p, struct failure *failure)
{
    *counts = (struct token_counts){0};
    if (!tokens->windows.within || !file->has_documents) {
        run_count(tokens, file->tokens, counts, longest_p);
        return 0;
    }
    size_t n = (size_t)file->documents;
    int r = array_reserve(&tokens->places, n + 1, sizeof(uint64_t), &tokens->arena, failure);
    if (r < 0)
        return r;
    const uint64_t *starts = (const uint64_t *)tokens->starts.items + file->documents_at;
    uint64_t *places = (uint64_t *)tokens->places.items + tokens->places.n;
    for (size_t i = 0; i < n; i++) {
        places[i] = counts->places;
        run_count(tokens, starts[i + 1] - starts[i], counts, longest_p);
    }
    places[n] = counts->places;
    tokens->places.n += n + 1;
    return 0;
}

/* The last of n ascending numbers that is not above value; the first is not. */
static size_t last_up_to(const uint64_t *numbers, size_t n, uint64_t value)
{
    size_t low = 0;
    size_t high = n;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (numbers[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Files without a place share their first with the next: the last is the one. */
static const struct token_file *file_of(const struct tokens *tokens, const struct token_part *part,
                                        uint64_t place)
{
    const struct token_file *files = tokens->files + part->first_file;
    size_t low = 0;
    size_t high = part->n_files;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (files[middle].first_place <= place)
            low = middle;
        else
            high = middle;
    }
    return &files[low];
}

struct blend_draw tokens_draw(const struct tokens *tokens, uint64_t sample, struct sample_key key)
{
    if (tokens->blend.n_parts == 0)
        return (struct blend_draw){0, sample};
    return blend_at(&tokens->blend, sample, key);
}

struct place tokens_place(const struct tokens *tokens, uint64_t sample, struct sample_key key)
{
    struct blend_draw drawn = tokens_draw(tokens, sample, key);
    const struct token_part *part = &tokens->parts[drawn.part];
    uint64_t number = drawn.sample, token = 0;

    if (tokens->windows.random) {
        struct block random = draw(draw_key(key.seed, key.epoch), sample, 0);
        uint64_t word = (uint64_t)random.word[1] << 32 | random.word[0];
        number = (uint64_t)((unsigned __int128)word * part->places >> 64);
    }
    const struct token_file *file = file_of(tokens, part, number);
    number -= file->first_place;
    if (tokens->windows.within && file->has_documents) {
        size_t at = file->documents_at;
        const uint64_t *places = (const uint64_t *)tokens->places.items + at;
        size_t document = last_up_to(places, (size_t)file->documents, number);
        token = ((const uint64_t *)tokens->starts.items)[at + document];
        number -= places[document];
    }
    return (struct place){file, token + number * tokens->step};
}

/* A run of a window's tokens that lie in one document. */
struct run {
    uint64_t document; /* of the file's */
    uint64_t position; /* of the first */
    uint64_t n;
};

static struct run run_at(const struct tokens *tokens, const struct token_file *file, uint64_t token)
{
    if (!file->has_documents)
        return (struct run){0, token, file->tokens - token};
    const uint64_t *starts = (const uint64_t *)tokens->starts.items + file->documents_at;
    size_t document = last_up_to(starts, (size_t)file->documents, token);
    return (struct run){document, token - starts[document], starts[document + 1] - token};
}

void tokens_positions(const struct tokens *tokens, const struct place *place, int64_t *out)
{
    for (uint64_t done = 0; done < tokens->length;) {
        struct run run = run_at(tokens, place->file, place->token + done);
        uint64_t left = tokens->length - done;
        uint64_t n = run.n < left ? run.n : left;
        for (uint64_t i = 0; i < n; i++)
            out[done + i] = (int64_t)(run.position + i);
        done += n;
    }
}

void tokens_documents(const struct tokens *tokens, const struct place *place, int64_t *out)
{
    for (uint64_t done = 0; done < tokens->length;) {
        struct run run = run_at(tokens, place->file, place->token + done);
        uint64_t left = tokens->length - done;
        uint64_t n = run.n < left ? run.n : left;
        for (uint64_t i = 0; i < n; i++)
            out[done + i] = (int64_t)(place->file->first_document + run.document);
        done += n;
    }
}
