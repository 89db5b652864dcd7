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

/* The tensors of a slot, in layout_init's order. */
enum { TENSOR_SAMPLE, TENSOR_LABEL, TENSOR_INDEX, TENSOR_STATUS };

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

/* A cold sample passes through a reader's memory; a warm one goes straight into the slot. */
static int fill_raw(struct filler *filler, struct work *work, const struct taken *taken,
                    uint64_t index, uint8_t *out, int64_t *label, struct failure *failure)
{
    struct sample_key key = {work->order->seed, work->epoch};
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
                      uint64_t index, uint8_t *out, int64_t *label, struct failure *failure)
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
                       work->order->seed, work->epoch, index, out,
                       source_sample_name(work->source, index, name, sizeof name), failure);
    filler->now = now_ns();
    filler->decode_ns += filler->now - start;
    return rc;
}

static int fill_sample(struct filler *filler, struct work *work, const struct taken *taken,
                       uint64_t index, uint8_t *out, int64_t *label, struct failure *failure)
{
    return (work->pipeline->crop == CROP_KIND_NONE ? fill_raw : fill_image)(
        filler, work, taken, index, out, label, failure);
}

/* Whether its bytes are bad; what storage or memory says of it is another matter. */
static bool is_bad(int rc)
{
    return rc == -EBADMSG || rc == -EFBIG;
}

/* Readers fetch no substitutes: there are few of them. */
static int fill_substitute(struct filler *filler, struct work *work, uint32_t position,
                           struct order_item *item, uint8_t *out, int64_t *label,
                           struct failure *failure)
{
    struct taken taken = {.position = position, .how = TAKEN_READ};
    struct failure other;
    uint64_t sample;
    uint32_t n = 1;

    for (; order_substitute(work->order, work->epoch, work->step, position, n, &sample); n++) {
        if (atomic_load(&work->cancelled))
            return failure_set(failure, -ECANCELED, "cancelled");
        int rc = fill_sample(filler, work, &taken, sample, out, label, &other);
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
                        struct order_item *item, uint8_t *out, int64_t *label,
                        struct failure *failure)
{
    atomic_fetch_add(&work->n_bad, 1);
    if (work->bad)
        work->bad(work, item->sample, failure->text);
    if (work->order->bad == ORDER_BAD_SUBSTITUTE)
        return fill_substitute(filler, work, position, item, out, label, failure);
    memset(out, 0, work->layout->tensors[TENSOR_SAMPLE].sample_bytes);
    *label = source_label(work->source, item->sample);
    item->status = SAMPLE_BLANK;
    return 0;
}

int filler_fill(struct filler *filler, struct work *work, const struct taken *taken,
                struct failure *failure)
{
    const struct tensor *tensors = work->layout->tensors;
    uint32_t i = taken->position;
    struct order_item item = order_at(work->order, work->epoch, work->step, i);
    uint8_t *slot = work->slot;
    uint8_t *out = slot + tensors[TENSOR_SAMPLE].offset + i * tensors[TENSOR_SAMPLE].sample_bytes;
    int64_t label = 0;
    int rc = fill_sample(filler, work, taken, item.sample, out, &label, failure);

    if (is_bad(rc) && work->order->bad != ORDER_BAD_FAIL)
        rc = fill_instead(filler, work, i, &item, out, &label, failure);
    if (rc != 0)
        return rc;
    memcpy(slot + tensors[TENSOR_LABEL].offset + (size_t)i * sizeof label, &label, sizeof label);
    memcpy(slot + tensors[TENSOR_INDEX].offset + (size_t)i * sizeof item.sample, &item.sample,
           sizeof item.sample);
    slot[tensors[TENSOR_STATUS].offset + i] = (uint8_t)item.status;
    return 0;
}
