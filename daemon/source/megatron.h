/*
 * Indexes of Megatron-LM (.idx): they cut the tokens of a .bin file into
 * sequences, and these into documents. An index holds, little-endian and
 * without gaps: the magic bytes, uint64 version, uint8 type of the tokens,
 * uint64 number of sequences n, uint64 number of document indices d; then
 * int32 tokens of each sequence, int64 byte at which each begins, and d times
 * int64 the sequence at which a document begins, the last of them being n.
 */
#ifndef PINSERVE_SOURCE_MEGATRON_H
#define PINSERVE_SOURCE_MEGATRON_H

#include <stdint.h>

#include "proto/failure.h"
#include "proto/megatron.h"
#include "source/arena.h"
#include "source/file.h"
#include "source/source.h"

struct megatron {
    enum sample_dtype width; /* SAMPLE_U16 or SAMPLE_I32 */
    uint64_t tokens, documents;
};

/* Reads an index and checks all of it against itself and the tokens' file, of which nothing is
 * read. Appends to starts, unless NULL, the token at which each document begins and behind them
 * that at which the last one ends. What an index says is believed, and memory asked for, only as
 * far as the two files have the bytes for it. -EINVAL names what is wrong; -E2BIG, -ENOMEM: as
 * array_reserve; -ECANCELED when progress says so. */
int megatron_read(const struct source_file *index, const struct source_file *file,
                  struct array *starts, struct arena *arena, struct source_progress *progress,
                  struct megatron *megatron_p, struct failure *failure);

#endif
