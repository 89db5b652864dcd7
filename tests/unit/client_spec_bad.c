/*
 * client/spec_bad.c: what becomes of bad samples, and the limits on them.
 */
#include "client/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#include <cmocka.h>

#include "spec_fixture.h"

/* What an OpenJob says then; samples UINT64_MAX: no limit. */
static void taken(struct pinclient_spec *spec, const char *bad, Pinserve__BadSamples kind,
                  uint64_t samples, uint32_t share_ppm)
{
    Pinserve__OpenJob open = PINSERVE__OPEN_JOB__INIT;

    assert_int_equal(pinclient_spec_bad(spec, bad), 0);
    spec_open_job(spec, &open);
    assert_int_equal(open.bad, kind);
    if (samples == UINT64_MAX) {
        assert_null(open.bad_limit);
        return;
    }
    assert_non_null(open.bad_limit);
    assert_int_equal(open.bad_limit->samples, samples);
    assert_int_equal(open.bad_limit->share_ppm, share_ppm);
}

static void refused(struct pinclient_spec *spec, const char *bad, const char *text)
{
    assert_int_equal(pinclient_spec_bad(spec, bad), -EINVAL);
    assert_string_equal(pinclient_error(spec), text);
}

static void test_words_and_limits(void **state)
{
    struct pinclient_spec *spec = *state;
    Pinserve__OpenJob open = PINSERVE__OPEN_JOB__INIT;

    spec_open_job(spec, &open);
    assert_int_equal(open.bad, PINSERVE__BAD_SAMPLES__BAD_FAIL);
    assert_null(open.bad_limit);
    taken(spec, "blank", PINSERVE__BAD_SAMPLES__BAD_BLANK, UINT64_MAX, 0);
    taken(spec, "substitute:100", PINSERVE__BAD_SAMPLES__BAD_SUBSTITUTE, 100, 0);
    taken(spec, "substitute:0", PINSERVE__BAD_SAMPLES__BAD_SUBSTITUTE, 0, 0);
    taken(spec, "blank:0.5%", PINSERVE__BAD_SAMPLES__BAD_BLANK, 0, 5000);
    taken(spec, "blank:100%", PINSERVE__BAD_SAMPLES__BAD_BLANK, 0, 1000000);
    taken(spec, "blank:0.0001%", PINSERVE__BAD_SAMPLES__BAD_BLANK, 0, 1);
    taken(spec, "blank:0%", PINSERVE__BAD_SAMPLES__BAD_BLANK, 0, 0);
    taken(spec, "substitute", PINSERVE__BAD_SAMPLES__BAD_SUBSTITUTE, UINT64_MAX, 0);
    taken(spec, "fail", PINSERVE__BAD_SAMPLES__BAD_FAIL, UINT64_MAX, 0);
}

static void test_refusals(void **state)
{
    struct pinclient_spec *spec = *state;

    taken(spec, "blank:7", PINSERVE__BAD_SAMPLES__BAD_BLANK, 7, 0);
    refused(spec, "skip", "bad \"skip\": write fail, blank[:LIMIT] or substitute[:LIMIT]");
    refused(spec, "fail:3", "bad \"fail:3\": write fail, blank[:LIMIT] or substitute[:LIMIT]");
    refused(spec, "", "bad \"\": write fail, blank[:LIMIT] or substitute[:LIMIT]");
    refused(spec, "blank:",
            "bad \"blank:\": \"\" is no limit: a number of samples, or a share up "
            "to 100% like 0.5%");
    refused(spec, "blank:-1",
            "bad \"blank:-1\": \"-1\" is no limit: a number of samples, or a "
            "share up to 100% like 0.5%");
    refused(spec, "blank:100.1%",
            "bad \"blank:100.1%\": \"100.1%\" is no limit: a number of "
            "samples, or a share up to 100% like 0.5%");
    refused(spec, "blank:1/2%",
            "bad \"blank:1/2%\": \"1/2%\" is no limit: a number of samples, or "
            "a share up to 100% like 0.5%");
    refused(spec, "blank:0.00001%",
            "bad \"blank:0.00001%\": \"0.00001%\" is no limit: a number of "
            "samples, or a share up to 100% like 0.5%");
    /* A value that is refused leaves the spec as it was. */
    Pinserve__OpenJob open = PINSERVE__OPEN_JOB__INIT;
    spec_open_job(spec, &open);
    assert_int_equal(open.bad, PINSERVE__BAD_SAMPLES__BAD_BLANK);
    assert_int_equal(open.bad_limit->samples, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_words_and_limits, spec_setup, spec_teardown),
        cmocka_unit_test_setup_teardown(test_refusals, spec_setup, spec_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
