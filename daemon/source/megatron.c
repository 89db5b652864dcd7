/*
 * Indexes of Megatron-LM. One is read once, front to back, in blocks of three
 * columns side by side; what is kept of it is where documents begin.
 */
#include "source/megatron.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "proto/dtype.h"
#include "source/kind.h"

#define VERSION 1
#define BLOCK_BYTES 16384

/* As the file begins. */
struct __attribute__((packed)) header {
    char magic[MEGATRON_MAGIC_BYTES];
    uint64_t version;
    uint8_t type;
    uint64_t sequences, documents;
};
_Static_assert(sizeof(struct header) == 34, "an index's header");

static const char *const type_names[] = {
    [1] = "uint8", [2] = "int8",    [3] = "int16",   [4] = "int32",
    [5] = "int64", [6] = "float64", [7] = "float32", [8] = "uint16",
};
#define TYPES (sizeof type_names / sizeof *type_names)

/* One of the arrays behind the header, as it is read. */
struct column {
    const struct source_file *file;
    const struct source_progress *progress;
    uint64_t offset; /* bytes, of what is not read yet */
    uint64_t left;   /* numbers that are not read yet */
    size_t width, at, n;
    _Alignas(8) uint8_t block[BLOCK_BYTES];
};

/* An index while it is read. */
struct walk {
    const struct source_file *index, *file;
    uint64_t sequences, documents;
    size_t width; /* bytes of a token */
    uint64_t tokens;
    uint64_t boundary;   /* the next sequence at which a document begins */
    uint64_t boundaries; /* taken so far */
    struct array *starts;
    struct column lengths, pointers, indices;
};

static void column_init(struct column *column, const struct source_file *file,
                        const struct source_progress *progress, uint64_t offset, uint64_t count,
                        size_t width)
{
    column->file = file;
    column->progress = progress;
    column->offset = offset;
    column->left = count;
    column->width = width;
    column->at = column->n = 0;
}

static int column_read(struct column *column, struct failure *failure)
{
    uint64_t max = BLOCK_BYTES / column->width;

    if (column->progress && atomic_load(&column->progress->cancelled))
        return failure_set(failure, -ECANCELED, "%s: reading it was cancelled at byte %" PRIu64,
                           column->file->name, column->offset);
    column->n = (size_t)(column->left < max ? column->left : max);
    column->at = 0;
    size_t bytes = column->n * column->width;
    int r = source_read_exactly(column->file->fd, column->block, bytes, column->offset);
    if (r < 0)
        return failure_set(failure, r, "%s: %s", column->file->name,
                           r == -ENODATA ? "became shorter while it was read" : strerror(-r));
    column->offset += bytes;
    column->left -= column->n;
    return 0;
}

/* The caller knows that there is one more. */
static int column_next(struct column *column, int64_t *value_p, struct failure *failure)
{
    int r = column->at == column->n ? column_read(column, failure) : 0;
    int32_t narrow;

    if (r < 0)
        return r;
    const uint8_t *from = column->block + column->at++ * column->width;
    if (column->width == sizeof narrow) {
        memcpy(&narrow, from, sizeof narrow);
        *value_p = narrow;
    } else {
        memcpy(value_p, from, sizeof *value_p);
    }
    return 0;
}

/* The type of the tokens; only two of them are served. */
static int type_check(const struct source_file *index, uint8_t type, struct megatron *megatron,
                      struct failure *failure)
{
    if (type == 0 || type >= TYPES)
        return failure_set(failure, -EINVAL, "%s: type %u of its tokens is unknown", index->name,
                           type);
    if (strcmp(type_names[type], "uint16") == 0)
        megatron->width = SAMPLE_U16;
    else if (strcmp(type_names[type], "int32") == 0)
        megatron->width = SAMPLE_I32;
    else
        return failure_set(failure, -EINVAL, "%s: its tokens are %s; uint16 and int32 are served",
                           index->name, type_names[type]);
    return 0;
}

/* Nothing is believed before the file's size bears it out. */
static int header_check(const struct source_file *index, const struct header *header,
                        struct failure *failure)
{
    uint64_t left = source_file_bytes(index) - sizeof *header;
    uint64_t sequence_bytes = sizeof(int32_t) + sizeof(int64_t);

    if (header->version != VERSION)
        return failure_set(failure, -EINVAL, "%s: version %" PRIu64 " of the index; %d is served",
                           index->name, header->version, VERSION);
    if (header->sequences > left / sequence_bytes ||
        header->documents > (left - header->sequences * sequence_bytes) / sizeof(int64_t))
        return failure_set(failure, -EINVAL,
                           "%s: its %" PRIu64 " bytes are too few for the %" PRIu64
                           " sequences and %" PRIu64 " document indices that it names",
                           index->name, source_file_bytes(index), header->sequences,
                           header->documents);
    left -= header->sequences * sequence_bytes + header->documents * sizeof(int64_t);
    if (left > 0 && left == header->sequences)
        return failure_set(failure, -EINVAL,
                           "%s: tells the mode of each sequence; datasets of several modes are "
                           "not served",
                           index->name);
    if (left > 0)
        return failure_set(failure, -EINVAL,
                           "%s: %" PRIu64 " of its %" PRIu64 " bytes are more than its %" PRIu64
                           " sequences and %" PRIu64 " document indices take",
                           index->name, left, source_file_bytes(index), header->sequences,
                           header->documents);
    if (header->documents == 0)
        return failure_set(failure, -EINVAL, "%s: says of no document where it begins",
                           index->name);
    return 0;
}

static int header_read(const struct source_file *index, struct header *header,
                       struct megatron *megatron, struct failure *failure)
{
    int r = source_read_exactly(index->fd, header, sizeof *header, 0);

    if (r == -ENODATA || (r == 0 && source_file_bytes(index) < sizeof *header))
        return failure_set(failure, -EINVAL, "%s: its %" PRIu64 " bytes are no whole header",
                           index->name, source_file_bytes(index));
    if (r < 0)
        return failure_set(failure, r, "%s: %s", index->name, strerror(-r));
    if (!megatron_is_index(header->magic, sizeof header->magic))
        return failure_set(failure, -EINVAL, "%s: is no index of Megatron-LM", index->name);
    r = header_check(index, header, failure);
    return r < 0 ? r : type_check(index, header->type, megatron, failure);
}

/* Takes every document index that is `sequence`, which begins at the token that has come. */
static int boundaries_take(struct walk *walk, uint64_t sequence, struct failure *failure)
{
    int64_t next = 0;

    while (walk->boundaries < walk->documents && walk->boundary == sequence) {
        if (walk->starts)
            ((uint64_t *)walk->starts->items)[walk->starts->n++] = walk->tokens;
        if (++walk->boundaries == walk->documents)
            break;
        int r = column_next(&walk->indices, &next, failure);
        if (r < 0)
            return r;
        if (next < 0 || (uint64_t)next < sequence || (uint64_t)next > walk->sequences)
            return failure_set(
                failure, -EINVAL,
                "%s: document index %" PRIu64 " is %" PRId64 ", behind one of %" PRIu64
                "; they ascend and end at the number of sequences, %" PRIu64,
                walk->index->name, walk->boundaries, next, sequence, walk->sequences);
        walk->boundary = (uint64_t)next;
    }
    return 0;
}

static int sequence_take(struct walk *walk, uint64_t sequence, struct failure *failure)
{
    uint64_t begin = walk->tokens * walk->width;
    int64_t length = 0, pointer = 0;

    int r = column_next(&walk->lengths, &length, failure);
    if (r == 0)
        r = column_next(&walk->pointers, &pointer, failure);
    if (r < 0)
        return r;
    if (length < 0)
        return failure_set(failure, -EINVAL, "%s: sequence %" PRIu64 " has %" PRId64 " tokens",
                           walk->index->name, sequence, length);
    if (pointer < 0 || (uint64_t)pointer != begin)
        return failure_set(failure, -EINVAL,
                           "%s: sequence %" PRIu64 " begins at byte %" PRId64
                           ", the one before it ends at %" PRIu64
                           "; sequences with gaps or out of order are not served",
                           walk->index->name, sequence, pointer, begin);
    /* Below 2^63 + 2^34: the file has as many bytes. */
    walk->tokens += (uint64_t)length;
    if (walk->tokens * walk->width > source_file_bytes(walk->file))
        return failure_set(failure, -EINVAL,
                           "%s: sequence %" PRIu64 " ends at byte %" PRIu64 ", %s has %" PRIu64
                           " bytes",
                           walk->index->name, sequence, walk->tokens * walk->width,
                           walk->file->name, source_file_bytes(walk->file));
    return boundaries_take(walk, sequence + 1, failure);
}

static int walk_begin(struct walk *walk, struct failure *failure)
{
    int64_t first = 0;
    int r = column_next(&walk->indices, &first, failure);

    if (r < 0)
        return r;
    if (first != 0)
        return failure_set(failure, -EINVAL,
                           "%s: its first document begins at sequence %" PRId64 ", not 0",
                           walk->index->name, first);
    walk->boundary = 0;
    return boundaries_take(walk, 0, failure);
}

static int walk_end(const struct walk *walk, struct failure *failure)
{
    if (walk->boundaries < walk->documents || walk->boundary != walk->sequences)
        return failure_set(failure, -EINVAL,
                           "%s: its last document ends at sequence %" PRIu64 ", it has %" PRIu64,
                           walk->index->name, walk->boundary, walk->sequences);
    if (walk->tokens * walk->width != source_file_bytes(walk->file))
        return failure_set(failure, -EINVAL,
                           "%s: its sequences end at byte %" PRIu64 ", %s has %" PRIu64 " bytes",
                           walk->index->name, walk->tokens * walk->width, walk->file->name,
                           source_file_bytes(walk->file));
    return 0;
}

static int walk_all(struct walk *walk, struct failure *failure)
{
    int r = walk_begin(walk, failure);

    for (uint64_t i = 0; r == 0 && i < walk->sequences; i++)
        r = sequence_take(walk, i, failure);
    return r < 0 ? r : walk_end(walk, failure);
}

int megatron_read(const struct source_file *index, const struct source_file *file,
                  struct array *starts, struct arena *arena, struct source_progress *progress,
                  struct megatron *megatron_p, struct failure *failure)
{
    struct megatron megatron = {0};
    struct header header;

    int r = header_read(index, &header, &megatron, failure);
    if (r == 0 && starts)
        r = array_reserve(starts, header.documents, sizeof(uint64_t), arena, failure);
    if (r < 0)
        return r;
    struct walk walk = {
        .index = index,
        .file = file,
        .sequences = header.sequences,
        .documents = header.documents,
        .width = dtype_table[megatron.width].bytes,
        .starts = starts,
    };
    uint64_t pointers = sizeof header + header.sequences * sizeof(int32_t);
    column_init(&walk.lengths, index, progress, sizeof header, header.sequences, sizeof(int32_t));
    column_init(&walk.pointers, index, progress, pointers, header.sequences, sizeof(int64_t));
    column_init(&walk.indices, index, progress, pointers + header.sequences * sizeof(int64_t),
                header.documents, sizeof(int64_t));
    r = walk_all(&walk, failure);
    if (r < 0)
        return r;
    megatron.tokens = walk.tokens;
    megatron.documents = header.documents - 1;
    *megatron_p = megatron;
    return 0;
}
