/*
 * Streams: what is read ahead, in what order, until when; and what becomes of
 * it.
 */
#include "gated.h"

struct fixture {
    struct readers *readers;
    struct gated gated;
    struct stream *stream;
};

static void fixture_init(struct fixture *fixture, unsigned threads, struct order order)
{
    fixture->readers = readers_start(threads, 4 << 20);
    gated_init(&fixture->gated, 100);
    fixture->stream = stream_new(fixture->readers, &fixture->gated.source, &order, gated_on_ready,
                                 &fixture->gated);
    assert_non_null(fixture->stream);
}

static void fixture_deinit(struct fixture *fixture)
{
    stream_close(fixture->stream);
    readers_end(fixture->readers);
    gated_deinit(&fixture->gated);
}

/* Asks for one sample, which makes the stream cold. */
static void ask_one(struct fixture *fixture, struct cursor at, uint64_t first)
{
    struct intake *intake = stream_want(fixture->stream, at, fixture);

    assert_int_equal(intake_ask(intake, 0), 0);
    wait_until(intake_ready(intake) == 1);
    take_bytes(intake, first, 100);
    intake_free(intake);
}

/* One thread: what was asked for, then the batches after it, over the end of the epoch. */
static void test_order(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_init(&fixture, 1, gated_order(4, 10));
    struct intake *intake = stream_want(fixture.stream, (struct cursor){5, 1}, &fixture);
    gated_shut(&fixture.gated, true);
    for (uint32_t i = 0; i < 3; i++)
        intake_ask(intake, i);
    gated_shut(&fixture.gated, false);
    wait_until(gated_reads(&fixture.gated) > 16);
    gated_shut(&fixture.gated, true);
    static const uint64_t expected[] = {4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4};
    assert_memory_equal(fixture.gated.reads, expected, sizeof expected);
    gated_shut(&fixture.gated, false);
    for (uint32_t i = 0; i < 3; i++)
        take_bytes(intake, 4, 100);
    intake_free(intake);
    /* Both batches of the next epoch are there, and are in nobody's way any more. */
    for (uint64_t step = 0; step < 2; step++) {
        intake = stream_want(fixture.stream, (struct cursor){6, step}, &fixture);
        assert_int_equal(intake_asked(intake), 4);
        wait_until(intake_ready(intake) == 4);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(take_bytes(intake, 4 * step, 100).position, i);
        assert_int_equal(intake_pending(intake), 0);
        intake_free(intake);
    }
    fixture_deinit(&fixture);
}

/* The last batch of an epoch may be short. */
static void test_partial(void **state)
{
    struct order order = gated_order(4, 6);
    struct fixture fixture;

    (void)state;
    order.last = ORDER_LAST_PARTIAL;
    fixture_init(&fixture, 2, order);
    ask_one(&fixture, (struct cursor){0, 0}, 0);
    wait_until(gated_reads(&fixture.gated) > 20);
    struct intake *intake = stream_want(fixture.stream, (struct cursor){0, 1}, &fixture);
    assert_int_equal(intake_asked(intake), 2);
    wait_until(intake_ready(intake) == 2);
    take_bytes(intake, 4, 100);
    take_bytes(intake, 4, 100);
    intake_free(intake);
    fixture_deinit(&fixture);
}

/* Batches that were passed over are dropped, those before what is read ahead are made anew. */
static void test_jumps(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_init(&fixture, 2, gated_order(4, 64));
    ask_one(&fixture, (struct cursor){0, 2}, 8);
    wait_until(gated_reads(&fixture.gated) > 100);
    struct intake *intake = stream_want(fixture.stream, (struct cursor){0, 1}, &fixture);
    assert_int_equal(intake_asked(intake), 0);
    intake_free(intake);
    intake = stream_want(fixture.stream, (struct cursor){0, 5}, &fixture);
    assert_int_equal(intake_asked(intake), 4);
    intake_limit(intake, 0);
    intake_free(intake);
    intake = stream_want(fixture.stream, (struct cursor){0, 4}, &fixture);
    assert_int_equal(intake_asked(intake), 0);
    intake_free(intake);
    fixture_deinit(&fixture);
}

static void test_stop(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_init(&fixture, 4, gated_order(4, 64));
    ask_one(&fixture, (struct cursor){0, 0}, 0);
    wait_until(gated_reads(&fixture.gated) > 100);
    assert_true(info_of(fixture.readers).bytes > 50 * 4096);
    stream_stop(fixture.stream);
    wait_until(info_of(fixture.readers).reading == 0);
    assert_int_equal(info_of(fixture.readers).bytes, 0);
    unsigned reads = gated_reads(&fixture.gated);
    /* What is asked for is read all the same. */
    ask_one(&fixture, (struct cursor){0, 1}, 4);
    wait_quiet(fixture.readers);
    assert_int_equal(gated_reads(&fixture.gated), reads + 1);
    fixture_deinit(&fixture);
}

/* Finding all in the page cache ends it: what is there costs nothing to read. */
static void test_warm(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_init(&fixture, 1, gated_order(4, 1024));
    fixture.gated.bytes = 1;
    fixture.gated.warm = true;
    struct intake *intake = stream_want(fixture.stream, (struct cursor){0}, &fixture);
    intake_ask(intake, 0);
    wait_until(gated_reads(&fixture.gated) == 256);
    wait_quiet(fixture.readers);
    assert_int_equal(gated_reads(&fixture.gated), 256);
    /* So it stays, until somebody has to ask again. */
    struct intake *far = stream_want(fixture.stream, (struct cursor){0, 200}, &fixture);
    assert_int_equal(intake_asked(far), 0);
    wait_quiet(fixture.readers);
    assert_int_equal(gated_reads(&fixture.gated), 256);
    intake_ask(far, 1);
    wait_until(gated_reads(&fixture.gated) > 257);
    wait_until(intake_ready(far) == 1);
    take_bytes(far, 800, 1);
    intake_free(far);
    take_bytes(intake, 0, 1);
    intake_free(intake);
    fixture_deinit(&fixture);
}

/* Closed while reads are under way: they end by themselves. */
static void test_close(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_init(&fixture, 8, gated_order(4, 64));
    ask_one(&fixture, (struct cursor){0, 0}, 0);
    gated_shut(&fixture.gated, true);
    struct intake *intake = stream_want(fixture.stream, (struct cursor){700, 0}, &fixture);
    wait_until(info_of(fixture.readers).reading == 4);
    intake_free(intake);
    stream_close(fixture.stream);
    fixture.stream = NULL;
    assert_int_equal(info_of(fixture.readers).streams, 1);
    gated_shut(&fixture.gated, false);
    fixture_deinit(&fixture);
    stream_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order), cmocka_unit_test(test_partial), cmocka_unit_test(test_jumps),
        cmocka_unit_test(test_stop),  cmocka_unit_test(test_warm),    cmocka_unit_test(test_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
