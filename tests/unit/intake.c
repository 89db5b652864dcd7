/*
 * Intakes: samples that are given up, and the room that bytes have.
 */
#include "gated.h"

#define KIB ((size_t)1024)

/* What is not wanted any more goes at once, or when its read is back; the rest stays. */
static void test_limit(void **state)
{
    struct readers *readers = readers_start(4, 1 << 20);
    struct order order = gated_order(8, 8);
    struct gated gated;

    (void)state;
    gated_init(&gated, 100);
    struct stream *stream = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
    struct intake *intake = stream_want(stream, (struct cursor){0}, &gated);
    stream_stop(stream);
    intake_ask(intake, 0);
    intake_ask(intake, 4);
    wait_until(intake_ready(intake) == 2);
    gated_shut(&gated, true);
    intake_ask(intake, 1);
    intake_ask(intake, 5);
    wait_until(info_of(readers).reading == 2);
    intake_ask(intake, 2);
    intake_ask(intake, 6);
    assert_int_equal(intake_pending(intake), 6);
    intake_limit(intake, 3);
    assert_int_equal(intake_pending(intake), 4);
    assert_int_equal(intake_ready(intake), 1);
    assert_int_equal(intake_ask(intake, 7), 0);
    assert_int_equal(intake_pending(intake), 4);
    gated_shut(&gated, false);
    wait_until(intake_ready(intake) == 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_true(take_bytes(intake, 0, 100).position < 3);
    wait_until(intake_pending(intake) == 0);
    assert_int_equal(gated_reads(&gated), 5);
    /* Of everything that went somebody was told. */
    wait_until(gated_told(&gated) == 5);
    intake_free(intake);
    stream_close(stream);
    readers_end(readers);
    gated_deinit(&gated);
}

/* Reading ahead stops at the bound, and goes on when something is taken. */
static void test_room(void **state)
{
    struct readers *readers = readers_start(8, 1000 * KIB);
    struct order order = gated_order(4, 64);
    struct gated gated;

    (void)state;
    gated_init(&gated, 150 * KIB);
    struct stream *stream = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
    struct intake *intake = stream_want(stream, (struct cursor){0}, &gated);
    for (uint32_t i = 0; i < 4; i++)
        intake_ask(intake, i);
    wait_until(intake_ready(intake) == 4);
    wait_until(info_of(readers).bytes >= 4 * 150 * KIB && info_of(readers).reading == 0);
    assert_true(info_of(readers).bytes <= 1000 * KIB);
    for (uint64_t step = 0; step < 30; step++) {
        wait_until(intake_ready(intake) > 0);
        for (uint32_t taken = 0; intake_pending(intake) > 0; taken++) {
            wait_until(intake_ready(intake) > 0);
            struct taken got;
            struct sample sample = {0};
            assert_true(intake_take(intake, &got, &sample, NULL));
            sample_deinit(&sample);
            assert_true(info_of(readers).bytes <= 1000 * KIB);
        }
        intake_free(intake);
        intake = stream_want(stream, (struct cursor){0, step + 1}, &gated);
        for (uint32_t i = intake_asked(intake); i < 4; i++)
            intake_ask(intake, i);
    }
    intake_limit(intake, 0);
    wait_until(intake_pending(intake) == 0);
    intake_free(intake);
    stream_close(stream);
    readers_end(readers);
    gated_deinit(&gated);
}

/* A sample that is waited for takes the room of the one that is furthest ahead. */
static void test_what_is_ahead_makes_room(void **state)
{
    struct readers *readers = readers_start(2, 1040 * KIB);
    struct order order = gated_order(2, 64);
    struct gated gated;
    struct taken taken;
    struct sample sample = {0};
    unsigned given_up = 0;

    (void)state;
    gated_init(&gated, 180 * KIB);
    struct stream *stream = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
    struct intake *later = stream_want(stream, (struct cursor){0, 9}, &gated);
    intake_ask(later, 0);
    wait_until(gated_reads(&gated) == 5);
    wait_until(info_of(readers).reading == 0);
    assert_int_equal(info_of(readers).bytes, 5 * 180 * KIB);
    /* An earlier one, after all, twice. */
    struct intake *intake = stream_want(stream, (struct cursor){0, 3}, &gated);
    intake_ask(intake, 0);
    intake_ask(intake, 1);
    wait_until(intake_ready(intake) == 2);
    assert_true(info_of(readers).bytes <= 1040 * KIB);
    take_bytes(intake, 6, 180 * KIB);
    take_bytes(intake, 6, 180 * KIB);
    intake_free(intake);
    take_bytes(later, 18, 180 * KIB);
    intake_free(later);
    for (uint64_t step = 10; step < 12; step++) {
        intake = stream_want(stream, (struct cursor){0, step}, &gated);
        assert_int_equal(intake_asked(intake), 2);
        wait_until(intake_ready(intake) == 2);
        while (intake_take(intake, &taken, &sample, NULL))
            given_up += taken.how == TAKEN_TRY;
        intake_free(intake);
    }
    assert_int_equal(given_up, 2);
    sample_deinit(&sample);
    stream_close(stream);
    readers_end(readers);
    gated_deinit(&gated);
}

/* Whoever takes a sample that never fits reads it. */
static void test_too_large(void **state)
{
    struct readers *readers = readers_start(2, 1000 * KIB);
    struct order order = gated_order(8, 64);
    struct gated gated;
    struct taken taken;
    struct sample sample = {0};

    (void)state;
    gated_init(&gated, 100 * KIB);
    gated.large = 2;
    gated.large_bytes = 1001 * KIB;
    struct stream *stream = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
    struct intake *intake = stream_want(stream, (struct cursor){0}, &gated);
    for (uint32_t i = 0; i < 5; i++)
        intake_ask(intake, i);
    for (uint32_t i = 0; i < 5; i++) {
        wait_until(intake_ready(intake) > 0);
        assert_true(intake_take(intake, &taken, &sample, NULL));
        assert_int_equal(taken.how, taken.position == 2 ? TAKEN_READ : TAKEN_BYTES);
    }
    sample_deinit(&sample);
    intake_free(intake);
    stream_close(stream);
    readers_end(readers);
    gated_deinit(&gated);
}

/* With a second stream each has half: the first gives up what is more. */
static void test_shares(void **state)
{
    struct readers *readers = readers_start(2, 1000 * KIB);
    struct order order = gated_order(2, 64);
    struct gated gated;

    (void)state;
    gated_init(&gated, 100 * KIB);
    struct stream *first = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
    struct intake *intake = stream_want(first, (struct cursor){0}, &gated);
    intake_ask(intake, 0);
    wait_until(info_of(readers).bytes > 700 * KIB && info_of(readers).reading == 0);
    struct stream *second = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
    assert_true(info_of(readers).bytes <= 500 * KIB);
    struct intake *others = stream_want(second, (struct cursor){0}, &gated);
    intake_ask(others, 1);
    wait_until(intake_ready(others) == 1);
    assert_true(info_of(readers).bytes <= 1000 * KIB);
    take_bytes(intake, 0, 100 * KIB);
    take_bytes(others, 0, 100 * KIB);
    intake_free(intake);
    intake_free(others);
    stream_close(first);
    stream_close(second);
    readers_end(readers);
    gated_deinit(&gated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_what_is_ahead_makes_room),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_shares),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
