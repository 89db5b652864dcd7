/*
 * The readers' threads: none before they are needed, many at a time, a bound for
 * each stream, and what happens when they are stuck.
 */
#include "gated.h"

static void test_none_until_asked(void **state)
{
    struct readers *readers = readers_start(4, 1 << 20);
    struct order order = gated_order(4, 8);
    struct gated gated;

    (void)state;
    gated_init(&gated, 100);
    struct stream *stream = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
    struct intake *intake = stream_want(stream, (struct cursor){0, 1}, &gated);
    assert_non_null(intake);
    assert_int_equal(intake_asked(intake), 0);
    pause_ms(10);
    assert_int_equal(info_of(readers).threads, 0);
    assert_int_equal(gated_reads(&gated), 0);

    assert_int_equal(intake_ask(intake, 2), 0);
    wait_until(intake_ready(intake) == 1);
    wait_until(gated_told(&gated) == 1);
    assert_true(info_of(readers).threads > 0);
    assert_int_equal(intake_pending(intake), 1);
    assert_int_equal(take_bytes(intake, 4, 100).position, 2);
    assert_int_equal(intake_pending(intake), 0);
    intake_free(intake);
    stream_close(stream);
    readers_end(readers);
    gated_deinit(&gated);
}

/* A stream has half of the threads at most. */
static void test_many_at_a_time(void **state)
{
    struct readers *readers = readers_start(6, 1 << 20);
    struct order order = gated_order(16, 16);
    struct gated gated[2];
    struct stream *streams[2];
    struct intake *intakes[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        gated_init(&gated[i], 100);
        gated[i].shut = true;
        streams[i] = stream_new(readers, &gated[i].source, &order, gated_on_ready, &gated[i]);
        intakes[i] = stream_want(streams[i], (struct cursor){0}, &gated[i]);
        for (uint32_t k = 0; k < 16; k++)
            assert_int_equal(intake_ask(intakes[i], k), 0);
        wait_until(gated_reads(&gated[i]) == 3);
        pause_ms(5);
        assert_int_equal(gated_reads(&gated[i]), 3);
    }
    assert_int_equal(info_of(readers).threads, 6);
    assert_int_equal(info_of(readers).reading, 6);
    for (int i = 0; i < 2; i++) {
        gated_shut(&gated[i], false);
        wait_until(intake_ready(intakes[i]) == 16);
        for (uint32_t k = 0; k < 16; k++)
            take_bytes(intakes[i], 0, 100);
        intake_free(intakes[i]);
        stream_close(streams[i]);
    }
    readers_end(readers);
    gated_deinit(&gated[0]);
    gated_deinit(&gated[1]);
}

static void test_a_failed_read(void **state)
{
    struct readers *readers = readers_start(2, 1 << 20);
    struct order order = gated_order(4, 4);
    struct gated gated;
    struct taken taken;
    struct sample sample = {0};
    struct failure failure = {0};

    (void)state;
    gated_init(&gated, 100);
    gated.bad = 3;
    struct stream *stream = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
    struct intake *intake = stream_want(stream, (struct cursor){0}, &gated);
    assert_false(intake_take(intake, &taken, &sample, &failure));
    intake_ask(intake, 3);
    wait_until(intake_ready(intake) == 1);
    assert_true(intake_take(intake, &taken, &sample, &failure));
    assert_int_equal(taken.how, TAKEN_BYTES);
    assert_int_equal(taken.position, 3);
    assert_int_equal(taken.code, -EIO);
    assert_int_equal(failure.code, -EIO);
    assert_string_equal(failure.text, "sample 3: no bytes");
    intake_free(intake);
    stream_close(stream);
    readers_end(readers);
    gated_deinit(&gated);
}

struct told {
    unsigned times;
    void *owner;
    char name[64];
};

static void on_stuck(void *owner, const char *name, void *user)
{
    struct told *told = user;

    told->times++;
    told->owner = owner;
    snprintf(told->name, sizeof told->name, "%s", name);
}

/* One thread, stuck: it is told once, another takes its place; the sample is pending till the end.
 */
static void test_stuck(void **state)
{
    struct readers *readers = readers_start(1, 1 << 20);
    struct order order = gated_order(8, 8);
    struct gated gated;
    struct told told = {0};

    (void)state;
    gated_init(&gated, 100);
    gated.held[1] = true;
    struct stream *stream = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
    struct intake *intake = stream_want(stream, (struct cursor){0}, &gated);
    intake_ask(intake, 1);
    wait_until(gated_reads(&gated) == 1);
    struct stream *other = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
    struct intake *others = stream_want(other, (struct cursor){0}, &told);
    intake_ask(others, 2);
    pause_ms(5);
    assert_int_equal(gated_reads(&gated), 1);
    readers_check(readers, UINT64_C(3600000000000), on_stuck, &told);
    assert_int_equal(told.times, 0);
    for (int i = 0; i < 3; i++)
        readers_check(readers, 1000000, on_stuck, &told);
    assert_int_equal(told.times, 1);
    assert_ptr_equal(told.owner, &gated);
    assert_string_equal(told.name, "sample 1");
    wait_until(intake_ready(others) == 1);
    take_bytes(others, 0, 100);
    assert_int_equal(info_of(readers).stuck, 1);

    /* Given up, it is pending until it is back. */
    intake_limit(intake, 0);
    assert_int_equal(intake_pending(intake), 1);
    gated_hold(&gated, 1, false);
    wait_until(intake_pending(intake) == 0);
    wait_until(info_of(readers).stuck == 0 && info_of(readers).threads <= 1);
    intake_free(intake);
    intake_free(others);
    stream_close(stream);
    stream_close(other);
    readers_end(readers);
    gated_deinit(&gated);
}

/* What was read ahead and is stuck is told when its batch is wanted; the stream may be closed. */
static void test_stuck_ahead(void **state)
{
    struct readers *readers = readers_start(4, 1 << 20);
    struct order order = gated_order(2, 1024);
    struct gated gated;
    struct told told = {0};

    (void)state;
    gated_init(&gated, 100);
    gated.held[3] = true;
    struct stream *stream = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
    struct intake *intake = stream_want(stream, (struct cursor){0}, &gated);
    intake_ask(intake, 0);
    /* It reads on until there is no more room. */
    wait_until(intake_ready(intake) == 1 && gated_reads(&gated) > 100);
    wait_until(info_of(readers).reading == 1);
    pause_ms(3);
    readers_check(readers, 1000000, on_stuck, &told);
    assert_int_equal(told.times, 0);
    assert_int_equal(info_of(readers).stuck, 1);
    take_bytes(intake, 0, 100);
    intake_free(intake);
    intake = stream_want(stream, (struct cursor){0, 1}, &told);
    assert_int_equal(intake_asked(intake), 2);
    readers_check(readers, 1000000, on_stuck, &told);
    assert_int_equal(told.times, 1);
    assert_ptr_equal(told.owner, &told);
    assert_string_equal(told.name, "sample 3");
    wait_until(intake_ready(intake) == 1);
    take_bytes(intake, 2, 100);
    gated_hold(&gated, 3, false);
    wait_until(intake_ready(intake) == 1);
    take_bytes(intake, 2, 100);
    intake_free(intake);
    gated_shut(&gated, true);
    stream_close(stream);
    gated_shut(&gated, false);
    readers_end(readers);
    gated_deinit(&gated);
}

/* When nobody is left to read, who waits is told too. */
static void test_all_are_stuck(void **state)
{
    struct readers *readers = readers_start(1, 1 << 20);
    struct order order = gated_order(8, 8);
    struct gated gated;
    struct told told = {0};
    char owners[3];
    struct stream *streams[3];
    struct intake *intakes[3];

    (void)state;
    gated_init(&gated, 100);
    gated.shut = true;
    for (uint32_t i = 0; i < 3; i++) {
        streams[i] = stream_new(readers, &gated.source, &order, gated_on_ready, &gated);
        intakes[i] = stream_want(streams[i], (struct cursor){0}, &owners[i]);
        intake_ask(intakes[i], i);
        if (i < 2)
            wait_until(gated_reads(&gated) == i + 1);
        pause_ms(5);
        readers_check(readers, 1000000, on_stuck, &told);
    }
    assert_int_equal(told.times, 3);
    assert_ptr_equal(told.owner, &owners[2]);
    assert_string_equal(told.name, "sample 2");
    assert_int_equal(info_of(readers).stuck, 2);
    gated_shut(&gated, false);
    for (uint32_t i = 0; i < 3; i++) {
        wait_until(intake_ready(intakes[i]) == 1);
        take_bytes(intakes[i], 0, 100);
        intake_free(intakes[i]);
        stream_close(streams[i]);
    }
    wait_until(info_of(readers).streams == 0);
    readers_free(readers);
    gated_deinit(&gated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none_until_asked), cmocka_unit_test(test_many_at_a_time),
        cmocka_unit_test(test_a_failed_read),    cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_stuck_ahead),      cmocka_unit_test(test_all_are_stuck),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
