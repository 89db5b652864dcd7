/*
 * Resume tokens: the text gives back the token, and no other text gives one.
 */
#include "proto/token.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/limits.h"

static char dataset[] = "folder:/data/photos";
static char pipeline[] = "random-crop:224 v1";

static Pinserve__ResumeToken example(void)
{
    Pinserve__ResumeToken token = PINSERVE__RESUME_TOKEN__INIT;

    token.version = 1;
    token.dataset = dataset;
    token.fingerprint = UINT64_C(0xfedcba9876543210);
    token.pipeline = pipeline;
    token.seed = UINT64_MAX;
    token.shuffle = PINSERVE__SHUFFLE__SHUFFLE_NONE;
    token.last = PINSERVE__LAST__LAST_PAD;
    token.global_batch = 1024;
    token.epoch = 3;
    token.position = 20480;
    token.bad = PINSERVE__BAD_SAMPLES__BAD_SUBSTITUTE;
    return token;
}

static char *example_text(void)
{
    static char text[1024];
    Pinserve__ResumeToken token = example();
    size_t size = sizeof text;

    assert_int_equal(token_format(&token, text, &size), 0);
    assert_int_equal(size, strlen(text) + 1);
    return text;
}

static void gives_back_what_was_written(void **state)
{
    Pinserve__ResumeToken token = example();
    Pinserve__ResumeToken *back = NULL;
    struct failure failure;
    const char *text = example_text();

    (void)state;
    assert_memory_equal(text, "pinserve1:", 10);
    assert_int_equal(token_parse(text, &back, &failure), 0);
    assert_int_equal(back->version, token.version);
    assert_string_equal(back->dataset, token.dataset);
    assert_true(back->fingerprint == token.fingerprint);
    assert_string_equal(back->pipeline, token.pipeline);
    assert_true(back->seed == token.seed);
    assert_int_equal(back->shuffle, token.shuffle);
    assert_int_equal(back->last, token.last);
    assert_int_equal(back->global_batch, token.global_batch);
    assert_int_equal(back->epoch, token.epoch);
    assert_int_equal(back->position, token.position);
    assert_int_equal(back->bad, token.bad);
    pinserve__resume_token__free_unpacked(back, NULL);
}

static void gives_back_an_empty_token(void **state)
{
    Pinserve__ResumeToken token = PINSERVE__RESUME_TOKEN__INIT;
    Pinserve__ResumeToken *back = NULL;
    char text[64];
    size_t size = sizeof text;

    (void)state;
    assert_int_equal(token_format(&token, text, &size), 0);
    assert_int_equal(size, 10 + 16 + 1);
    assert_int_equal(token_parse(text, &back, NULL), 0);
    assert_int_equal(back->epoch, 0);
    pinserve__resume_token__free_unpacked(back, NULL);
}

static void gives_back_the_longest_names(void **state)
{
    Pinserve__ResumeToken token = example();
    Pinserve__ResumeToken *back = NULL;
    char *name = malloc(NAME_MAX_BYTES + 1);
    size_t size = 0;

    (void)state;
    assert_non_null(name);
    memset(name, 'n', NAME_MAX_BYTES);
    name[NAME_MAX_BYTES] = '\0';
    token.dataset = name;
    token.pipeline = name;
    assert_int_equal(token_format(&token, NULL, &size), -ENOSPC);
    char *text = malloc(size);
    assert_non_null(text);
    assert_int_equal(token_format(&token, text, &size), 0);
    assert_int_equal(token_parse(text, &back, NULL), 0);
    assert_string_equal(back->dataset, name);
    pinserve__resume_token__free_unpacked(back, NULL);
    free(text);
    free(name);
}

static void tells_the_room_it_needs(void **state)
{
    Pinserve__ResumeToken token = example();
    char text[1024] = "untouched";
    size_t needed = strlen(example_text()) + 1;
    size_t size = needed - 1;

    (void)state;
    assert_int_equal(token_format(&token, text, &size), -ENOSPC);
    assert_int_equal(size, needed);
    assert_string_equal(text, "untouched");
    assert_int_equal(token_format(&token, text, &size), 0);
    assert_int_equal(size, needed);
    assert_string_equal(text, example_text());
}

static void refused(const char *text, const char *why)
{
    Pinserve__ResumeToken *back = NULL;
    struct failure failure = {0};

    if (token_parse(text, &back, &failure) != -EINVAL || back)
        fail_msg("read: %s", text);
    if (!strstr(failure.text, why))
        fail_msg("\"%s\" lacks \"%s\"", failure.text, why);
}

static void refuses_every_cut(void **state)
{
    char text[1024];

    (void)state;
    snprintf(text, sizeof text, "%s", example_text());
    for (size_t n = strlen(text) - 1; n > 0; n--) {
        text[n] = '\0';
        refused(text, "token");
    }
}

static void refuses_every_flipped_digit(void **state)
{
    char text[1024];

    (void)state;
    snprintf(text, sizeof text, "%s", example_text());
    for (size_t i = 10; text[i]; i++) {
        char right = text[i];
        text[i] = right == '7' ? '8' : '7';
        refused(text, "mistyped");
        text[i] = right;
    }
}

static void refuses_other_texts(void **state)
{
    char text[2048];

    (void)state;
    refused("", "begin");
    refused("pinserve2:00", "begin");
    refused("pinserve1:", "cut off");
    snprintf(text, sizeof text, "%s\n", example_text());
    refused(text, "cut off");
    snprintf(text, sizeof text, "%szz", example_text());
    refused(text, "0-9 and a-f");

    char *endless = malloc(100001);
    assert_non_null(endless);
    memset(endless, '0', 100000);
    memcpy(endless, "pinserve1:", 10);
    endless[100000] = '\0';
    refused(endless, "longer");
    free(endless);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_back_what_was_written),
        cmocka_unit_test(gives_back_an_empty_token),
        cmocka_unit_test(gives_back_the_longest_names),
        cmocka_unit_test(tells_the_room_it_needs),
        cmocka_unit_test(refuses_every_cut),
        cmocka_unit_test(refuses_every_flipped_digit),
        cmocka_unit_test(refuses_other_texts),
    };

    return cmocka_run_group_tests_name("token", tests, NULL, NULL);
}
