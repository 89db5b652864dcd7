/*
 * The progress line fits the terminal and says what it should.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/pinctl/progress.h"

static void test_line(void **state)
{
    (void)state;
    char text[256];
    struct progress_counts counts = {.batches = 50, .share = 0.5};
    assert_string_equal(progress_line(&counts, 1234.4, 12.34, 80, text, sizeof(text)),
                        "[##############               ]  50 %  "
                        "50 batches  1234 samples/s  wait 12.3 us");
    counts.share = -1;
    assert_string_equal(progress_line(&counts, 1, 0, 80, text, sizeof(text)),
                        "50 batches  1 samples/s  wait 0.0 us");
}

static void test_share_is_capped(void **state)
{
    (void)state;
    char text[256];
    struct progress_counts counts = {.batches = 5, .share = 1.7};
    assert_non_null(strstr(progress_line(&counts, 1, 0, 80, text, sizeof(text)), "] 100 %  "));
}

static void test_every_width_fits(void **state)
{
    (void)state;
    char text[256];
    struct progress_counts counts = {.batches = UINT64_MAX, .share = 0.99};
    for (unsigned int width = 1; width < 300; width++) {
        progress_line(&counts, 1e9, 1e6, width, text, sizeof(text));
        assert_true(strlen(text) < width);
        assert_true(strlen(text) < sizeof(text));
    }
}

static void test_nothing_but_on_a_terminal(void **state)
{
    (void)state;
    FILE *out = tmpfile();
    struct progress progress;
    struct progress_counts counts = {.batches = 1, .share = 0.5};
    assert_non_null(out);
    progress_init(&progress, out, true, 0);
    progress_show(&progress, &counts, 1000);
    progress_end(&progress);
    assert_int_equal(ftell(out), 0);
    fclose(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_share_is_capped),
        cmocka_unit_test(test_every_width_fits),
        cmocka_unit_test(test_nothing_but_on_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
