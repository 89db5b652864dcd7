/*
 * Filling batches whose samples come late: workers go on with what is ready,
 * and what a batch tells does not depend on the order in which samples came.
 */
#include "gated.h"

#include "batch.h"
#include "machine.h"

static const struct pipeline none = {.crop = CROP_KIND_NONE};

#define BATCH 8u
#define BYTES 100u

/* -- a raw source that is gated ------------------------------------------------------------------
 */

#define UNREADABLE 40 /* a sample of which storage says nothing, when it is gated->large */

static int raw_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                    int64_t *label_p, struct failure *failure)
{
    struct gated *gated = gated_of(source);

    (void)key;
    gated_wait(gated, index);
    if (gated->large == UNREADABLE && index == UNREADABLE)
        return failure_set(failure, -EIO, "sample %d: no answer", (int)index);
    if (index == gated->bad || gated->held[GATED_SAMPLES - 1 - index])
        return failure_set(failure, -EBADMSG, "sample %d: bad", (int)index);
    memset(out, (int)index, BYTES);
    *label_p = (int64_t)index;
    return 0;
}

static int raw_try_fill(struct source *source, uint64_t index, struct sample_key key, void *out,
                        int64_t *label_p, struct failure *failure)
{
    return gated_of(source)->warm ? raw_fill(source, index, key, out, label_p, failure) : 1;
}

static int raw_shape(const struct source *source, uint32_t *shape_p, size_t *n_dims_p,
                     enum sample_dtype *dtype_p)
{
    (void)source;
    shape_p[0] = BYTES;
    *n_dims_p = 1;
    *dtype_p = SAMPLE_U8;
    return 0;
}

static int64_t raw_label(const struct source *source, uint64_t index)
{
    (void)source;
    return (int64_t)index + 1000;
}

static const struct source_ops raw_ops = {.name = "gated",
                                          .label = raw_label,
                                          .fill = raw_fill,
                                          .try_fill = raw_try_fill,
                                          .shape = raw_shape,
                                          .sample_name = gated_name};

/* -- a job of it ---------------------------------------------------------------------------------
 */

struct fixture {
    struct readers *readers;
    struct workers *workers;
    struct gated gated;
    struct order order;
    struct layout layout;
    struct stream *stream;
    struct batch batch;
};

static void on_fetched(void *user)
{
    workers_wake(user);
}

static void fixture_init(struct fixture *fixture, struct readers *readers, struct workers *workers)
{
    fixture->readers = readers;
    fixture->workers = workers;
    gated_init(&fixture->gated, BYTES);
    fixture->gated.source.ops = &raw_ops;
    fixture->order = gated_order(BATCH, 64);
    assert_int_equal(layout_init(&fixture->layout, &none, &fixture->gated.source, BATCH, NULL), 0);
    fixture->stream =
        stream_new(readers, &fixture->gated.source, &fixture->order, on_fetched, workers);
    assert_non_null(fixture->stream);
    batch_init(&fixture->batch, &fixture->gated.source, &none, &fixture->layout, &fixture->order);
    fixture->batch.work.stream = fixture->stream;
}

static void fixture_deinit(struct fixture *fixture)
{
    stream_close(fixture->stream);
    wait_until(fixture->gated.source.refs == 1);
    batch_deinit(&fixture->batch);
    gated_deinit(&fixture->gated);
}

static void check_batch(const struct work *work)
{
    for (uint32_t i = 0; i < BATCH; i++) {
        uint64_t sample = work->step * BATCH + i;

        assert_int_equal(work->slot[(size_t)i * BYTES], (uint8_t)sample);
        assert_int_equal(work->slot[(size_t)i * BYTES + BYTES - 1], (uint8_t)sample);
        assert_int_equal(((int64_t *)(work->slot + work->layout->tensors[1].offset))[i], sample);
    }
}

/* One worker: a batch whose samples are not there holds up no other one. */
static void test_another_batch_meanwhile(void **state)
{
    struct readers *readers = readers_start(4, 1 << 20);
    struct workers *workers = NULL;
    struct fixture late, ready;

    (void)state;
    assert_int_equal(workers_new(machine, &here, 1, &workers, NULL), 0);
    fixture_init(&late, readers, workers);
    fixture_init(&ready, readers, workers);
    ready.gated.warm = true;
    for (uint64_t step = 0; step < 3; step++) {
        gated_shut(&late.gated, true);
        late.batch.work.step = step;
        workers_submit(workers, &late.batch.work);
        wait_until(gated_reads(&late.gated) > 0);
        for (ready.batch.work.step = 0; ready.batch.work.step < 8; ready.batch.work.step++) {
            workers_submit(workers, &ready.batch.work);
            batch_wait(&ready.batch);
            assert_int_equal(ready.batch.work.failure.code, 0);
            check_batch(&ready.batch.work);
        }
        gated_shut(&late.gated, false);
        batch_wait(&late.batch);
        assert_int_equal(late.batch.work.failure.code, 0);
        assert_true(late.batch.work.read_ns > 0);
        check_batch(&late.batch.work);
    }
    fixture_deinit(&late);
    fixture_deinit(&ready);
    readers_free(readers);
    workers_free(workers);
}

/* Of two bad samples the lower one is told, also when it comes later. */
static void test_the_lowest_bad_sample(void **state)
{
    struct readers *readers = readers_start(8, 1 << 20);
    struct workers *workers = NULL;
    struct fixture fixture;

    (void)state;
    assert_int_equal(workers_new(machine, &here, 2, &workers, NULL), 0);
    fixture_init(&fixture, readers, workers);
    fixture.gated.bad = 2;
    fixture.gated.held[GATED_SAMPLES - 1 - 5] = true; /* bad, see raw_fill */
    for (int round = 0; round < 3; round++) {
        gated_hold(&fixture.gated, 2, true);
        workers_submit(workers, &fixture.batch.work);
        wait_until(atomic_load(&fixture.batch.work.next) >= BATCH);
        pause_ms(5);
        gated_hold(&fixture.gated, 2, false);
        batch_wait(&fixture.batch);
        assert_int_equal(fixture.batch.work.failure.code, -EBADMSG);
        assert_string_equal(fixture.batch.work.failure.text, "sample 2: bad");
    }
    fixture_deinit(&fixture);
    readers_free(readers);
    workers_free(workers);
}

/* A batch that is not wanted ends when the reads under way are back, and no others begin. */
static void test_cancelled(void **state)
{
    struct readers *readers = readers_start(4, 1 << 20);
    struct workers *workers = NULL;
    struct fixture fixture;

    (void)state;
    assert_int_equal(workers_new(machine, &here, 1, &workers, NULL), 0);
    fixture_init(&fixture, readers, workers);
    gated_shut(&fixture.gated, true);
    workers_submit(workers, &fixture.batch.work);
    wait_until(gated_reads(&fixture.gated) == 2);
    wait_until(atomic_load(&fixture.batch.work.next) >= BATCH);
    atomic_store(&fixture.batch.work.cancelled, true);
    stream_stop(fixture.stream);
    pause_ms(5);
    assert_int_equal(fixture.batch.times, 0);
    gated_shut(&fixture.gated, false);
    batch_wait(&fixture.batch);
    assert_int_equal(fixture.batch.work.failure.code, -ECANCELED);
    assert_true(gated_reads(&fixture.gated) <= BATCH + 2); /* two may have gone ahead */
    fixture_deinit(&fixture);
    readers_free(readers);
    workers_free(workers);
}

/* Many batches, two at a time, on readers with next to no room. */
static void test_little_room(void **state)
{
    struct readers *readers = readers_start(3, 8 * 4096);
    struct workers *workers = NULL;
    struct fixture a, b;

    (void)state;
    assert_int_equal(workers_new(machine, &here, 2, &workers, NULL), 0);
    fixture_init(&a, readers, workers);
    fixture_init(&b, readers, workers);
    for (uint64_t at = 0; at < 100; at++) {
        struct fixture *fixture = at % 2 ? &a : &b;

        if (at > 1) {
            batch_wait(&fixture->batch);
            assert_int_equal(fixture->batch.work.failure.code, 0);
            check_batch(&fixture->batch.work);
        }
        fixture->batch.work.epoch = at / 16;
        fixture->batch.work.step = at / 2 % 8;
        workers_submit(workers, &fixture->batch.work);
        assert_true(info_of(readers).bytes <= 8 * 4096);
    }
    batch_wait(&a.batch);
    batch_wait(&b.batch);
    fixture_deinit(&a);
    fixture_deinit(&b);
    assert_int_equal(info_of(readers).bytes, 0);
    readers_free(readers);
    workers_free(workers);
}

/* -- bad samples ---------------------------------------------------------------------------------
 */

static _Atomic uint64_t bad_told; /* a bit for each sample */

static void on_bad(struct work *work, uint64_t sample, const char *reason)
{
    char wanted[32];

    (void)work;
    snprintf(wanted, sizeof wanted, "sample %d: bad", (int)sample);
    assert_string_equal(reason, wanted);
    bad_told |= UINT64_C(1) << sample;
}

static void make_bad(struct fixture *fixture, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i <= to; i++)
        fixture->gated.held[GATED_SAMPLES - 1 - i] = true; /* bad, see raw_fill */
}

static void run_bad(struct fixture *fixture, enum order_bad bad)
{
    fixture->order.bad = bad;
    fixture->batch.work.bad = on_bad;
    bad_told = 0;
    memset(fixture->batch.work.slot, 0xee, fixture->layout.slot_bytes);
    workers_submit(fixture->workers, &fixture->batch.work);
    batch_wait(&fixture->batch);
}

/* Place i of the batch holds all of a sample, or zeros. */
static void check_place(const struct work *work, uint32_t i, uint64_t sample, int64_t label,
                        enum sample_status status)
{
    const struct tensor *tensors = work->layout->tensors;
    uint8_t bytes[BYTES];

    memset(bytes, status == SAMPLE_BLANK ? 0 : (int)sample, BYTES);
    assert_memory_equal(work->slot + (size_t)i * BYTES, bytes, BYTES);
    assert_int_equal(((int64_t *)(work->slot + tensors[1].offset))[i], label);
    assert_int_equal(((uint64_t *)(work->slot + tensors[2].offset))[i], sample);
    assert_int_equal((work->slot + tensors[3].offset)[i], status);
}

/* Samples 2 and 3, and 7 whose substitute is of the next batch; of one worker or more, from the
 * page cache, from readers or from reads that wait. */
static void test_bad_samples(void **state)
{
    (void)state;
    for (unsigned way = 0; way < 6; way++) {
        struct readers *readers = readers_start(4, 1 << 20);
        struct workers *workers = NULL;
        struct fixture fixture;
        struct work *work = &fixture.batch.work;

        assert_int_equal(workers_new(machine, &here, 1 + way / 3 * 2, &workers, NULL), 0);
        fixture_init(&fixture, readers, workers);
        fixture.gated.warm = way % 3 == 0;
        if (way % 3 == 2)
            work->stream = NULL;
        make_bad(&fixture, 2, 3);
        make_bad(&fixture, 7, 7);
        for (int i = 0; i < 3; i++) {
            run_bad(&fixture, ORDER_BAD_SUBSTITUTE);
            assert_int_equal(work->failure.code, 0);
            assert_int_equal(work->n_bad, 3);
            assert_int_equal(bad_told, 1 << 2 | 1 << 3 | 1 << 7);
            check_place(work, 1, 1, 1, SAMPLE_OK);
            check_place(work, 2, 4, 4, SAMPLE_SUBSTITUTE);
            check_place(work, 3, 4, 4, SAMPLE_SUBSTITUTE);
            check_place(work, 4, 4, 4, SAMPLE_OK);
            check_place(work, 7, 8, 8, SAMPLE_SUBSTITUTE);
            run_bad(&fixture, ORDER_BAD_BLANK);
            assert_int_equal(work->failure.code, 0);
            assert_int_equal(work->n_bad, 3);
            check_place(work, 2, 2, 1002, SAMPLE_BLANK);
            check_place(work, 3, 3, 1003, SAMPLE_BLANK);
            check_place(work, 4, 4, 4, SAMPLE_OK);
            check_place(work, 7, 7, 1007, SAMPLE_BLANK);
            run_bad(&fixture, ORDER_BAD_FAIL);
            assert_string_equal(work->failure.text, "sample 2: bad");
            assert_int_equal(bad_told, 0);
        }
        fixture_deinit(&fixture);
        readers_free(readers);
        workers_free(workers);
    }
}

/* What storage says is no matter of bad samples, also where a substitute is looked for; and these
 * are looked for so far and no further. */
static void test_what_ends_a_job_all_the_same(void **state)
{
    struct readers *readers = readers_start(4, 1 << 20);
    struct workers *workers = NULL;
    struct fixture fixture;
    struct work *work = &fixture.batch.work;

    (void)state;
    assert_int_equal(workers_new(machine, &here, 3, &workers, NULL), 0);
    fixture_init(&fixture, readers, workers);
    fixture.order.samples = 100;
    work->stream = NULL;
    fixture.gated.large = UNREADABLE;
    work->step = UNREADABLE / BATCH;
    run_bad(&fixture, ORDER_BAD_BLANK);
    assert_int_equal(work->failure.code, -EIO);
    assert_string_equal(work->failure.text, "sample 40: no answer");
    assert_int_equal(work->n_bad, 0);

    work->step = 4;
    make_bad(&fixture, 32, 39);
    run_bad(&fixture, ORDER_BAD_SUBSTITUTE);
    assert_int_equal(work->failure.code, -EIO);
    assert_string_equal(work->failure.text, "sample 40: no answer");

    fixture.gated.large = UINT64_MAX;
    make_bad(&fixture, 0, 64);
    run_bad(&fixture, ORDER_BAD_SUBSTITUTE); /* sample 65 is within 64 tries of all of them */
    assert_int_equal(work->failure.code, 0);
    check_place(work, 0, 65, 65, SAMPLE_SUBSTITUTE);
    work->step = 0;
    run_bad(&fixture, ORDER_BAD_SUBSTITUTE);
    assert_int_equal(work->failure.code, -EBADMSG);
    assert_string_equal(work->failure.text, "sample 0: bad; nor is there a substitute: the 64 "
                                            "samples behind it in the order are bad, too");
    run_bad(&fixture, ORDER_BAD_BLANK);
    assert_int_equal(work->failure.code, 0);
    assert_int_equal(work->n_bad, BATCH);
    fixture_deinit(&fixture);
    readers_free(readers);
    workers_free(workers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_batch_meanwhile),
        cmocka_unit_test(test_the_lowest_bad_sample),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_little_room),
        cmocka_unit_test(test_bad_samples),
        cmocka_unit_test(test_what_ends_a_job_all_the_same),
    };

    return cmocka_run_group_tests(tests, machine_read, machine_forget);
}
