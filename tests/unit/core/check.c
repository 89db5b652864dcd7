/*
 * core_check finds what is wrong: state that no event can make is put there by
 * hand.
 */
#include "world.h"

#include "core/core_private.h"

static void expect_wrong(struct world *w, const char *text)
{
    struct failure failure = {0};

    assert_int_equal(core_check(w->core, &failure), -EINVAL);
    if (!strstr(failure.text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, failure.text);
}

static void test_wrong(void **state)
{
    struct world w;
    struct core_job_spec spec = spec_make(GPU, 2);
    struct core_action decode;
    struct job *job;
    struct ring kept;

    (void)state;
    world_init(&w, UINT64_MAX, 2);
    job = core_job_get(w.core, job_begin(&w, &spec, 10));
    ring_begin(&w, job->id);
    decode = *expect(&w, CORE_DECODE);
    expect(&w, CORE_DECODE);
    check(&w);

    job->feed.slots[decode.slot].state = SLOT_FREE;
    expect_wrong(&w, "the workers have 1 batches, counted 2");
    job->feed.slots[decode.slot].state = SLOT_DECODING;
    job->feed.slots[decode.slot].others = 1;
    expect_wrong(&w, "is used by 1 leases, it counts 1 of others");
    job->feed.slots[decode.slot].others = 0;
    job->debts = 1;
    expect_wrong(&w, "it has 0 slots of others, counted 1");
    job->debts = 0;
    job->feed.slots[decode.slot].whole = true;
    expect_wrong(&w, "is whole in state 2");
    job->feed.slots[decode.slot].whole = false;

    job->leases[0].slot = 1;
    expect_wrong(&w, "which knows nothing of it");
    job->leases[0].slot = 0;
    job->leases[0].at.step = 4;
    expect_wrong(&w, "lease 0 is in a slot with another batch");
    job->feed.slots[0].at.step = 4;
    expect_wrong(&w, "step 0:4 is pending where 0:0 should be");
    job->leases[0].at.step = job->feed.slots[0].at.step = 0;
    job->free = 1;
    expect_wrong(&w, "leases free, ready, handed, unfilled are 0, 0, 0, 0, counted 1");
    job->free = 0;
    job->feed.held = 1;
    expect_wrong(&w, "0 slots are free and 2 held, the feed counts 0 and 1");
    job->feed.held = 2;

    kept = *job->ring;
    job->ring->copies = 1;
    expect_wrong(&w, "0 copies go to ring 1, which counts 1");
    job->ring->copies = 0;
    job->ring->bytes++;
    expect_wrong(&w, "ring 1 of 2097153 bytes is charged 2097152");
    *job->ring = kept;
    w.tenant->used[ACCOUNT_DEVICE]++;
    expect_wrong(&w,
                 "uid:1000 is charged 2097153 device bytes and 1 jobs, there are 2097152 and 1");
    w.tenant->used[ACCOUNT_DEVICE]--;
    check(&w);

    assert_int_equal(core_free(w.core), 1);
    account_unref(w.tenant);
    assert_int_equal(accounts_deinit(&w.accounts), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
