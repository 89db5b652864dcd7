/*
 * Filling a sample's place in a slot. Its bytes come from readers, or from the
 * page cache, or, where readers do not help, from a read that may wait. When
 * they are bad, the place is filled with another sample or with zeros, as the
 * order says: what it then holds follows from the data alone.
 */
#include "decode/fill.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void filler_begin(struct filler *filler)
{
    filler->read_ns = filler->decode_ns = 0;
    filler->now = now_ns();
}

void filler_end(struct filler *filler, struct work *work)
{
    struct decoder_counts counts;

    work->read_ns += filler->read_ns;
    work->decode_ns += filler->decode_ns;
    if (!filler->decoder)
        return;
    decoder_counts_get(filler->decoder, &counts);
    work->without_end += counts.without_end - filler->told.without_end;
    work->plain_inks += counts.plain_inks - filler->told.plain_inks;
    filler->told = counts;
}

void filler_deinit(struct filler *filler)
{
    decoder_free(filler->decoder);
    sample_deinit(&filler->sample);
}

bool filler_take(struct filler *filler, struct work *work, struct taken *taken_p,
                 struct failure *failure)
{
    *taken_p = (struct taken){.how = work->intake ? TAKEN_TRY : TAKEN_READ};
    if (work->intake && intake_take(work->intake, taken_p, &filler->sample, failure))
        return true;
    if (work->intake && intake_pending(work->intake) >= INTAKE_PENDING_MAX)
        return false;
    taken_p->position = atomic_fetch_add(&work->next, 1);
    return taken_p->position < work->count;
}

static void reading_begin(struct filler *filler, uint64_t sample)
{
    atomic_store_explicit(&filler->reading_sample, sample, memory_order_relaxed);
    atomic_store_explicit(&filler->reading_since, filler->now, memory_order_release);
}

static void reading_end(struct filler *filler)
{
    uint64_t start = filler->now;

    atomic_store_explicit(&filler->reading_since, 0, memory_order_release);
    filler->now = now_ns();
    filler->read_ns += filler->now - start;
}

static struct sample_key key_of(const struct work *work)
{
    return (struct sample_key){work->order->seed, work->epoch,
                               work->order->shuffle == ORDER_SHUFFLE_FULL};
}

/* Where position i of the batch has its part of a tensor. */
static uint8_t *part_of(const struct work *work, size_t tensor, uint32_t i)
{
    const struct tensor *t = &work->layout->tensors[tensor];

    return work->slot + t->offset + i * t->sample_bytes;
}

/* A cold sample passes through a reader's memory; a warm one goes straight into the slot. */
static int fill_raw(struct filler *filler, struct work *work, const struct taken *taken,
                    uint64_t index, int64_t *label, struct failure *failure)
{
    uint8_t *out = part_of(work, TENSOR_SAMPLE, taken->position);
    struct sample_key key = key_of(work);
    int rc = 1;

    filler->read_ns += taken->read_ns;
    if (taken->how == TAKEN_BYTES) {
        if (taken->code == 0) {
            memcpy(out, filler->sample.bytes, filler->sample.size);
            *label = filler->sample.label;
        }
        filler->now = now_ns();
        return taken->code;
    }
    reading_begin(filler, index);
    if (taken->how == TAKEN_TRY)
        rc = source_try_fill(work->source, index, key, out, label, failure);
    if (rc > 0 && taken->how == TAKEN_TRY && intake_ask(work->intake, taken->position) == 0)
        rc = FILL_PASSED_ON;
    else if (rc > 0)
        rc = source_fill(work->source, index, key, out, label, failure);
    reading_end(filler);
    return rc;
}

/* Has the bytes of a sample in filler->sample. */
static int sample_get(struct filler *filler, struct work *work, const struct taken *taken,
                      uint64_t index, struct failure *failure)
{
    int rc = 1;

    filler->read_ns += taken->read_ns;
    if (taken->how == TAKEN_BYTES) {
        filler->now = now_ns();
        return taken->code;
    }
    reading_begin(filler, index);
    if (taken->how == TAKEN_TRY)
        rc = source_try_read(work->source, index, &filler->sample, failure);
    if (rc > 0 && taken->how == TAKEN_TRY && intake_ask(work->intake, taken->position) == 0)
        rc = FILL_PASSED_ON;
    else if (rc > 0)
        rc = source_read(work->source, index, &filler->sample, failure);
    reading_end(filler);
    return rc;
}

static int fill_image(struct filler *filler, struct work *work, const struct taken *taken,
                      uint64_t index, int64_t *label, struct failure *failure)
{
    char name[FAILURE_TEXT_MAX];

    if (!filler->decoder)
        filler->decoder = decoder_new();
    if (!filler->decoder)
        return failure_set(failure, -ENOMEM, "no memory for a decoder");
    int rc = sample_get(filler, work, taken, index, failure);
    if (rc != 0)
        return rc;
    uint64_t start = filler->now;
    *label = filler->sample.label;
    rc = decoder_image(filler->decoder, work->pipeline, filler->sample.bytes, filler->sample.size,
                       work->order->seed, work->epoch, index,
                       part_of(work, TENSOR_SAMPLE, taken->position),
                       source_sample_name(work->source, index, name, sizeof name), failure);
    filler->now = now_ns();
    filler->decode_ns += filler->now - start;
    return rc;
}

/* The first tensor, too, is a field of the sample. */
static int fill_composed(struct filler *filler, struct work *work, const struct taken *taken,
                         uint64_t index, int64_t *label, struct failure *failure)
{
    int rc = sample_get(filler, work, taken, index, failure);

    if (rc != 0)
        return rc;
    *label = filler->sample.label;
    return source_field_fill(work->source, index, key_of(work), &filler->sample, 0,
                             part_of(work, TENSOR_SAMPLE, taken->position), failure);
}

/* What a sample has beside the tensors of every layout. */
static int fill_fields(struct filler *filler, struct work *work, uint32_t i, uint64_t index,
                       struct failure *failure)
{
    int rc = 0;

    for (size_t t = TENSOR_FIELDS; rc == 0 && t < work->layout->n_tensors; t++)
        rc = source_field_fill(work->source, index, key_of(work), &filler->sample,
                               t - TENSOR_FIELDS + 1, part_of(work, t, i), failure);
    return rc;
}

static int fill_sample(struct filler *filler, struct work *work, const struct taken *taken,
                       uint64_t index, int64_t *label, struct failure *failure)
{
    int rc;

    if (work->pipeline->crop != CROP_KIND_NONE)
        rc = fill_image(filler, work, taken, index, label, failure);
    else if (source_is_composed(work->source))
        rc = fill_composed(filler, work, taken, index, label, failure);
    else
        rc = fill_raw(filler, work, taken, index, label, failure);
    return rc == 0 ? fill_fields(filler, work, taken->position, index, failure) : rc;
}

/* Whether its bytes are bad; what storage or memory says of it is another matter. */
static bool is_bad(int rc)
{
    return rc == -EBADMSG || rc == -EFBIG;
}

/* Readers fetch no substitutes: there are few of them. */
static int fill_substitute(struct filler *filler, struct work *work, uint32_t position,
                           struct order_item *item, int64_t *label, struct failure *failure)
{
    struct taken taken = {.position = position, .how = TAKEN_READ};
    struct failure other;
    uint64_t sample;
    uint32_t n = 1;

    for (; order_substitute(work->order, work->epoch, work->step, position, n, &sample); n++) {
        if (atomic_load(&work->cancelled))
            return failure_set(failure, -ECANCELED, "cancelled");
        int rc = fill_sample(filler, work, &taken, sample, label, &other);
        if (rc == 0)
            *item = (struct order_item){.sample = sample, .status = SAMPLE_SUBSTITUTE};
        else if (is_bad(rc))
            continue;
        else
            *failure = other;
        return rc;
    }
    other = *failure;
    return failure_set(failure, other.code,
                       "%.400s; nor is there a substitute: the %" PRIu32
                       " samples behind it in the order are bad, too",
                       other.text, n - 1);
}

/* Fills the place of a sample that is bad as failure says. */
static int fill_instead(struct filler *filler, struct work *work, uint32_t position,
                        struct order_item *item, int64_t *label, struct failure *failure)
{
    atomic_fetch_add(&work->n_bad, 1);
    if (work->bad)
        work->bad(work, item->sample, failure->text);
    if (work->order->bad == ORDER_BAD_SUBSTITUTE)
        return fill_substitute(filler, work, position, item, label, failure);
    for (size_t t = 0; t < work->layout->n_tensors; t++)
        memset(part_of(work, t, position), 0, work->layout->tensors[t].sample_bytes);
    *label = source_label(work->source, item->sample);
    item->status = SAMPLE_BLANK;
    return 0;
}

int filler_fill(struct filler *filler, struct work *work, const struct taken *taken,
                struct failure *failure)
{
    uint32_t i = taken->position;
    struct order_item item = order_at(work->order, work->epoch, work->step, i);
    int64_t label = 0;
    int rc = fill_sample(filler, work, taken, item.sample, &label, failure);

    if (is_bad(rc) && work->order->bad != ORDER_BAD_FAIL)
        rc = fill_instead(filler, work, i, &item, &label, failure);
    if (rc != 0)
        return rc;
    memcpy(part_of(work, TENSOR_LABEL, i), &label, sizeof label);
    memcpy(part_of(work, TENSOR_INDEX, i), &item.sample, sizeof item.sample);
    *part_of(work, TENSOR_STATUS, i) = (uint8_t)item.status;
    return 0;
}
