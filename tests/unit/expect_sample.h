/*
 * One sample of a source, compared with what it must be.
 */
#ifndef PINSERVE_TESTS_UNIT_EXPECT_SAMPLE_H
#define PINSERVE_TESTS_UNIT_EXPECT_SAMPLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "source/source.h"

static inline void expect_sample(struct source *source, uint64_t index, const char *name,
                                 int64_t label, const char *text)
{
    struct sample sample = {0};
    struct failure failure = {0};
    char buffer[512];

    assert_string_equal(source_sample_name(source, index, buffer, sizeof buffer), name);
    assert_string_equal(source_sample_place(source, index, buffer, sizeof buffer), name);
    if (source_read(source, index, &sample, &failure) != 0)
        fail_msg("%s", failure.text);
    assert_int_equal(sample.label, label);
    assert_int_equal(source_label(source, index), label);
    assert_int_equal(sample.size, strlen(text));
    assert_memory_equal(sample.bytes, text, sample.size);
    sample_deinit(&sample);
}

#endif
