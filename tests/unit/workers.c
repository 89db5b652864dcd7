/*
 * Workers: every sample of a batch filled once, whoever filled it; batches that
 * fail, are cancelled or are stuck; what a batch tells when it is done.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "batch.h"
#include "decode/workers.h"
#include "images.h"
#include "machine.h"
#include "source/kind.h"
#include "temp_dir.h"

static struct workers *workers_start(unsigned n)
{
    struct workers *workers = NULL;

    assert_int_equal(workers_new(machine, &here, n, &workers, NULL), 0);
    assert_int_equal(workers_count(workers), n);
    return workers;
}

static struct source *raw_source(uint32_t bytes, uint64_t samples)
{
    struct source_spec spec = {.kind = SOURCE_KIND_SYNTHETIC,
                               .name = "synthetic:test",
                               .shape = {bytes},
                               .n_dims = 1,
                               .dtype = SAMPLE_U8,
                               .samples = samples};
    struct source_progress progress = {0};
    struct source *source = NULL;

    assert_int_equal(source_new(&spec, &progress, &source, NULL), 0);
    return source;
}

static const struct pipeline none = {.crop = CROP_KIND_NONE};

/* What the slot has to hold, sample by sample. */
static void check_raw(const struct work *work)
{
    const struct tensor *tensors = work->layout->tensors;
    uint8_t *expected = malloc(tensors[0].sample_bytes);

    assert_non_null(expected);
    for (uint32_t i = 0; i < work->count; i++) {
        struct order_item item = order_at(work->order, work->epoch, work->step, i);
        int64_t label = 0;

        assert_int_equal(source_fill(work->source, item.sample,
                                     (struct sample_key){work->order->seed, work->epoch}, expected,
                                     &label, NULL),
                         0);
        assert_memory_equal(work->slot + tensors[0].offset + i * tensors[0].sample_bytes, expected,
                            tensors[0].sample_bytes);
        assert_int_equal(((const int64_t *)(work->slot + tensors[1].offset))[i], label);
        assert_int_equal(((const uint64_t *)(work->slot + tensors[2].offset))[i], item.sample);
        assert_int_equal(work->slot[tensors[3].offset + i], item.status);
    }
    free(expected);
}

/* Two batches with the workers at a time, over two epochs whose last batches are padded. */
static void test_raw(void **state)
{
    struct source *source = raw_source(1000, 50);
    struct order order = {.shuffle = ORDER_SHUFFLE_FULL,
                          .last = ORDER_LAST_PAD,
                          .seed = 3,
                          .samples = 50,
                          .batch = 7,
                          .world = 1};
    struct layout layout;
    unsigned padded = 0;

    (void)state;
    assert_int_equal(layout_init(&layout, &none, source, order.batch, NULL), 0);
    for (unsigned n = 1; n <= 4; n += 3) {
        struct workers *workers = workers_start(n);
        struct batch batches[2];

        for (int b = 0; b < 2; b++)
            batch_init(&batches[b], source, &none, &layout, &order);
        for (uint64_t at = 0; at < 16; at += 2) {
            for (uint64_t b = 0; b < 2; b++) {
                batches[b].work.epoch = (at + b) / 8;
                batches[b].work.step = (at + b) % 8;
                workers_submit(workers, &batches[b].work);
            }
            for (uint64_t b = 0; b < 2; b++) {
                batch_wait(&batches[b]);
                assert_int_equal(batches[b].work.failure.code, 0);
                assert_true(batches[b].work.read_ns > 0);
                check_raw(&batches[b].work);
                padded += batches[b].work.slot[layout.tensors[3].offset + 6] == SAMPLE_PADDING;
            }
        }
        for (int b = 0; b < 2; b++)
            batch_deinit(&batches[b]);
        workers_free(workers);
    }
    assert_int_equal(padded, 4);
    source_unref(source);
}

/* Many small batches, one after the other and two at a time: none is lost, none done twice. */
static void test_many(void **state)
{
    struct source *source = raw_source(16, 1000);
    struct order order = {.samples = 1000, .batch = 4, .world = 1};
    struct layout layout;
    struct workers *workers = workers_start(3);
    struct batch batches[2];

    (void)state;
    assert_int_equal(layout_init(&layout, &none, source, order.batch, NULL), 0);
    for (int b = 0; b < 2; b++)
        batch_init(&batches[b], source, &none, &layout, &order);
    for (int i = 0; i < 5000; i++) {
        batches[i % 2].work.step = (uint64_t)i % 250;
        workers_submit(workers, &batches[i % 2].work);
        if (i > 0)
            batch_wait(&batches[(i + 1) % 2]);
    }
    batch_wait(&batches[1]);
    check_raw(&batches[1].work);
    batches[0].work.count = 0;
    workers_submit(workers, &batches[0].work);
    batch_wait(&batches[0]);
    assert_int_equal(batches[0].work.failure.code, 0);
    for (int b = 0; b < 2; b++)
        batch_deinit(&batches[b]);
    workers_free(workers);
    source_unref(source);
}

static void test_cancelled(void **state)
{
    struct source *source = raw_source(16, 1000);
    struct order order = {.samples = 1000, .batch = 100, .world = 1};
    struct layout layout;
    struct workers *workers = workers_start(2);
    struct batch batch;

    (void)state;
    assert_int_equal(layout_init(&layout, &none, source, order.batch, NULL), 0);
    batch_init(&batch, source, &none, &layout, &order);
    atomic_store(&batch.work.cancelled, true);
    workers_submit(workers, &batch.work);
    batch_wait(&batch);
    assert_int_equal(batch.work.failure.code, -ECANCELED);
    assert_int_equal(batch.work.read_ns, 0);
    /* The same once more, not cancelled: nothing of it is left. */
    atomic_store(&batch.work.cancelled, false);
    workers_submit(workers, &batch.work);
    batch_wait(&batch);
    assert_int_equal(batch.work.failure.code, 0);
    check_raw(&batch.work);
    batch_deinit(&batch);
    workers_free(workers);
    source_unref(source);
}

/* -- images ---------------------------------------------------------------------------------- */

#define PHOTOS 12

/* PHOTOS files in two class folders; those of the list are cut. */
static void make_photos(const struct temp_dir *dir, const int *cut, size_t n_cut)
{
    for (int i = 0; i < PHOTOS; i++) {
        struct jpeg_make make = {
            .w = 60 + 10 * (uint32_t)i, .h = 80, .components = 3, .horizontal = 2, .vertical = 2};
        size_t size;
        uint8_t *jpeg = image_jpeg(&make, NULL, &size);
        char name[32];

        for (size_t k = 0; k < n_cut; k++)
            if (cut[k] == i)
                size /= 2;
        snprintf(name, sizeof name, "c%d/%02d.jpg", i >= PHOTOS / 2, i);
        assert_true(temp_dir_write(dir, name, jpeg, size));
        free(jpeg);
    }
}

static struct source *photos_source(struct temp_dir *dir)
{
    static const char *const fd_name = "photos";
    struct identity identity;
    struct source_spec spec = {.kind = SOURCE_KIND_FOLDER,
                               .name = "folder:photos",
                               .identity = &identity,
                               .fds = &dir->fd,
                               .fd_names = &fd_name,
                               .n_fds = 1,
                               .index_bytes_max = 1 << 20};
    struct source_progress progress = {0};
    struct source *source = NULL;
    struct failure failure = {0};

    identity_of_process(&identity);
    if (source_new(&spec, &progress, &source, &failure) < 0)
        fail_msg("%s", failure.text);
    return source;
}

static void check_images(const struct work *work)
{
    const struct tensor *tensors = work->layout->tensors;
    struct decoder *decoder = decoder_new();
    struct sample sample = {0};
    uint8_t *expected = malloc(tensors[0].sample_bytes);

    assert_non_null(expected);
    for (uint32_t i = 0; i < work->count; i++) {
        struct order_item item = order_at(work->order, work->epoch, work->step, i);

        assert_int_equal(source_read(work->source, item.sample, &sample, NULL), 0);
        assert_int_equal(decoder_image(decoder, work->pipeline, sample.bytes, sample.size,
                                       work->order->seed, work->epoch, item.sample, expected, "x",
                                       NULL),
                         0);
        assert_memory_equal(work->slot + tensors[0].offset + i * tensors[0].sample_bytes, expected,
                            tensors[0].sample_bytes);
        assert_int_equal(((const int64_t *)(work->slot + tensors[1].offset))[i],
                         item.sample >= PHOTOS / 2);
        assert_int_equal(((const uint64_t *)(work->slot + tensors[2].offset))[i], item.sample);
    }
    sample_deinit(&sample);
    decoder_free(decoder);
    free(expected);
}

static void test_images(void **state)
{
    struct pipeline pipeline = {.crop = CROP_KIND_RANDOM, .size = 33, .flip_ppm = 500000};
    struct order order = {
        .shuffle = ORDER_SHUFFLE_FULL, .seed = 9, .samples = PHOTOS, .batch = PHOTOS, .world = 1};
    struct temp_dir dir;
    struct source *source;
    struct layout layout;

    (void)state;
    assert_true(temp_dir_init(&dir));
    make_photos(&dir, NULL, 0);
    source = photos_source(&dir);
    assert_int_equal(pipeline_check(&pipeline, NULL), 0);
    assert_int_equal(layout_init(&layout, &pipeline, source, order.batch, NULL), 0);
    assert_string_equal(layout.tensors[0].name, "image");
    assert_int_equal(layout.tensors[0].n_dims, 4);
    assert_int_equal(layout.tensors[0].sample_bytes, 33 * 33 * 3);
    for (unsigned n = 1; n <= 4; n += 3) {
        struct workers *workers = workers_start(n);
        struct batch batch;

        batch_init(&batch, source, &pipeline, &layout, &order);
        for (batch.work.epoch = 0; batch.work.epoch < 3; batch.work.epoch++) {
            workers_submit(workers, &batch.work);
            batch_wait(&batch);
            assert_int_equal(batch.work.failure.code, 0);
            assert_true(batch.work.decode_ns > 0 && batch.work.read_ns > 0);
            check_images(&batch.work);
        }
        batch_deinit(&batch);
        workers_free(workers);
    }
    source_unref(source);
    temp_dir_deinit(&dir);
}

/* Of two bad samples always the one at the lower position is told, by name. */
static void test_bad_sample(void **state)
{
    static const int cut[] = {4, 9};
    struct pipeline pipeline = {.crop = CROP_KIND_CENTER, .size = 32};
    struct order order = {
        .samples = PHOTOS, .batch = PHOTOS, .world = 1, .shuffle = ORDER_SHUFFLE_NONE};
    struct temp_dir dir;
    struct source *source;
    struct layout layout;
    struct workers *workers = workers_start(4);
    struct batch batch;

    (void)state;
    assert_true(temp_dir_init(&dir));
    make_photos(&dir, cut, 2);
    source = photos_source(&dir);
    assert_int_equal(pipeline_check(&pipeline, NULL), 0);
    assert_int_equal(layout_init(&layout, &pipeline, source, order.batch, NULL), 0);
    batch_init(&batch, source, &pipeline, &layout, &order);
    for (int i = 0; i < 30; i++) {
        workers_submit(workers, &batch.work);
        batch_wait(&batch);
        assert_int_equal(batch.work.failure.code, -EBADMSG);
        if (!strstr(batch.work.failure.text, "c0/04.jpg: JPEG: "))
            fail_msg("%s", batch.work.failure.text);
    }
    batch_deinit(&batch);
    workers_free(workers);
    source_unref(source);
    temp_dir_deinit(&dir);
}

/* -- stuck reads ----------------------------------------------------------------------------- */

/* Sample 1 of it takes as long as the test likes. */
struct slow {
    struct source source;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool reading, release;
};

static int slow_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                     int64_t *label_p, struct failure *failure)
{
    struct slow *slow = (struct slow *)source;

    (void)key;
    (void)failure;
    pthread_mutex_lock(&slow->lock);
    if (index == 1) {
        slow->reading = true;
        pthread_cond_broadcast(&slow->change);
    }
    while (index == 1 && !slow->release)
        pthread_cond_wait(&slow->change, &slow->lock);
    pthread_mutex_unlock(&slow->lock);
    memset(out, (int)index, 16);
    *label_p = (int64_t)index;
    return 0;
}

static const char *slow_name(const struct source *source, uint64_t index, char *text, size_t size)
{
    (void)source;
    snprintf(text, size, "slow sample %d", (int)index);
    return text;
}

static const struct source_ops slow_ops = {
    .name = "slow", .fill = slow_fill, .sample_name = slow_name};

struct told {
    unsigned times;
    struct work *work;
    char name[64];
};

static void on_stuck(struct work *work, const char *name, void *user)
{
    struct told *told = user;

    told->times++;
    told->work = work;
    snprintf(told->name, sizeof told->name, "%s", name);
}

/* One worker, stuck: it is told once, another takes its place, and the batch ends with the read. */
static void test_stuck(void **state)
{
    struct source *like = raw_source(16, 100);
    struct slow slow = {
        .source = {.ops = &slow_ops, .kind = SOURCE_KIND_SYNTHETIC, .samples = 100}};
    struct order order = {.samples = 100, .batch = 4, .world = 1, .shuffle = ORDER_SHUFFLE_NONE};
    struct layout layout;
    struct workers *workers = workers_start(1);
    struct batch stuck, other;
    struct told told = {0};

    (void)state;
    pthread_mutex_init(&slow.lock, NULL);
    pthread_cond_init(&slow.change, NULL);
    assert_int_equal(layout_init(&layout, &none, like, order.batch, NULL), 0);
    batch_init(&stuck, &slow.source, &none, &layout, &order);
    batch_init(&other, like, &none, &layout, &order);
    for (int round = 0; round < 10; round++) {
        struct timespec pause = {0, 2000000};

        told.times = 0;
        slow.reading = slow.release = false;
        workers_submit(workers, &stuck.work);
        pthread_mutex_lock(&slow.lock);
        while (!slow.reading)
            pthread_cond_wait(&slow.change, &slow.lock);
        pthread_mutex_unlock(&slow.lock);
        workers_check(workers, UINT64_C(3600000000000), on_stuck, &told);
        assert_int_equal(told.times, 0);
        nanosleep(&pause, NULL);
        for (int i = 0; i < 3; i++)
            workers_check(workers, 1000000, on_stuck, &told);
        assert_int_equal(told.times, 1);
        assert_ptr_equal(told.work, &stuck.work);
        assert_string_equal(told.name, "slow sample 1");

        workers_submit(workers, &other.work);
        batch_wait(&other);
        check_raw(&other.work);
        assert_int_equal(stuck.times, 0);

        pthread_mutex_lock(&slow.lock);
        slow.release = true;
        pthread_cond_broadcast(&slow.change);
        pthread_mutex_unlock(&slow.lock);
        batch_wait(&stuck);
        assert_int_equal(stuck.work.failure.code, 0);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(stuck.work.slot[i * 16], i);
        /* The thread ends soon after; its place is free again. */
        nanosleep(&pause, NULL);
        workers_check(workers, UINT64_C(3600000000000), on_stuck, &told);
        assert_int_equal(told.times, 1);
    }
    batch_deinit(&stuck);
    batch_deinit(&other);
    workers_free(workers);
    pthread_mutex_destroy(&slow.lock);
    pthread_cond_destroy(&slow.change);
    source_unref(like);
}

static void test_none(void **state)
{
    struct workers *workers = NULL;
    struct failure failure = {0};

    (void)state;
    assert_int_equal(workers_new(machine, &here, 0, &workers, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, "no workers"));
    assert_null(workers);
    workers_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_raw),        cmocka_unit_test(test_many),
        cmocka_unit_test(test_cancelled),  cmocka_unit_test(test_images),
        cmocka_unit_test(test_bad_sample), cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_none),
    };

    return cmocka_run_group_tests(tests, machine_read, machine_forget);
}
