/*
 * What becomes of bad samples, as users write it: "fail", "blank" or
 * "substitute", and how many are borne.
 */
#include "spec.h"

#include "parse.h"

/* "100" samples or "0.5%" of them. */
static int limit_parse(struct parse_text text, Pinserve__BadLimit *limit)
{
    uint64_t ppm;

    pinserve__bad_limit__init(limit);
    if (text.size == 0 || text.text[text.size - 1] != '%')
        return parse_whole(text, UINT64_MAX, &limit->samples);
    text.size--;
    if (memchr(text.text, '/', text.size) || parse_ppm(text, &ppm) < 0 || ppm % 100 != 0 ||
        ppm > 100 * UINT64_C(1000000))
        return -EINVAL;
    limit->share_ppm = (uint32_t)(ppm / 100);
    return 0;
}

int pinclient_spec_bad(struct pinclient_spec *spec, const char *bad)
{
    struct parse_text limit = parse_from(bad);
    struct parse_text word = parse_cut(&limit, ':');
    Pinserve__BadLimit parsed = PINSERVE__BAD_LIMIT__INIT;
    Pinserve__BadSamples kind = PINSERVE__BAD_SAMPLES__BAD_FAIL;

    if (parse_is(word, "blank"))
        kind = PINSERVE__BAD_SAMPLES__BAD_BLANK;
    else if (parse_is(word, "substitute"))
        kind = PINSERVE__BAD_SAMPLES__BAD_SUBSTITUTE;
    else if (!parse_is(word, "fail") || !word.last)
        return failure_set(spec->handle.failure, -EINVAL,
                           "bad \"%.200s\": write fail, blank[:LIMIT] or substitute[:LIMIT]", bad);
    if (!word.last && limit_parse(limit, &parsed) < 0)
        return failure_set(spec->handle.failure, -EINVAL,
                           "bad \"%.200s\": \"%.*s\" is no limit: a number of samples, or a share "
                           "up to 100%% like 0.5%%",
                           bad, (int)limit.size, limit.text);
    spec->bad = kind;
    spec->has_bad_limit = !word.last;
    spec->bad_limit = parsed;
    return 0;
}
