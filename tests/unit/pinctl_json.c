/*
 * The JSON writer: layout, escapes, and what is no UTF-8.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/pinctl/json.h"

struct text {
    FILE *out;
    char *bytes;
    size_t size;
    struct json json;
};

static void begin(struct text *text, bool compact)
{
    text->bytes = NULL;
    text->out = open_memstream(&text->bytes, &text->size);
    assert_non_null(text->out);
    json_init(&text->json, text->out, compact);
}

static void expect(struct text *text, const char *expected)
{
    fclose(text->out);
    assert_string_equal(text->bytes, expected);
    free(text->bytes);
}

static void test_layout(void **state)
{
    (void)state;
    struct text text;
    begin(&text, false);
    json_object_begin(&text.json, NULL);
    json_unsigned(&text.json, "most", UINT64_MAX);
    json_signed(&text.json, "least", INT64_MIN);
    json_array_begin(&text.json, "list");
    json_string(&text.json, NULL, "a");
    json_object_begin(&text.json, NULL);
    json_bool(&text.json, "yes", true);
    json_bool(&text.json, "no", false);
    json_object_end(&text.json);
    json_array_end(&text.json);
    json_array_begin(&text.json, "empty");
    json_array_end(&text.json);
    json_null(&text.json, "nothing");
    json_object_end(&text.json);
    expect(&text, "{\n"
                  "  \"most\": 18446744073709551615,\n"
                  "  \"least\": -9223372036854775808,\n"
                  "  \"list\": [\n"
                  "    \"a\",\n"
                  "    {\n"
                  "      \"yes\": true,\n"
                  "      \"no\": false\n"
                  "    }\n"
                  "  ],\n"
                  "  \"empty\": [],\n"
                  "  \"nothing\": null\n"
                  "}\n");
}

static void test_one_line(void **state)
{
    (void)state;
    struct text text;
    begin(&text, true);
    for (int i = 0; i < 2; i++) {
        json_object_begin(&text.json, NULL);
        json_signed(&text.json, "i", i);
        json_array_begin(&text.json, "l");
        json_signed(&text.json, NULL, -1);
        json_signed(&text.json, NULL, 2);
        json_array_end(&text.json);
        json_object_end(&text.json);
    }
    expect(&text, "{\"i\": 0, \"l\": [-1, 2]}\n{\"i\": 1, \"l\": [-1, 2]}\n");
}

static void test_reals(void **state)
{
    (void)state;
    struct text text;
    begin(&text, true);
    json_array_begin(&text.json, NULL);
    json_real(&text.json, NULL, 0);
    json_real(&text.json, NULL, 1234.5678);
    json_real(&text.json, NULL, 1e20);
    json_real(&text.json, NULL, (double)NAN);
    json_real(&text.json, NULL, (double)INFINITY);
    json_array_end(&text.json);
    expect(&text, "[0, 1234.5678, 1e+20, null, null]\n");
}

static void test_strings(void **state)
{
    (void)state;
    static const struct {
        const char *value, *expected;
    } cases[] = {
        {"", "[\"\"]\n"},
        {"a\"b\\c\n\t\x1b\x7f", "[\"a\\\"b\\\\c\\n\\u0009\\u001b\\u007f\"]\n"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "[\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"]\n"},
        {"\xff!", "[\"\\ufffd!\"]\n"},
        {"\xc3", "[\"\\ufffd\"]\n"},
        {"\xc0\xaf", "[\"\\ufffd\\ufffd\"]\n"},
        {"\xe0\x80\x80", "[\"\\ufffd\\ufffd\\ufffd\"]\n"},
        {"\xed\xa0\x80", "[\"\\ufffd\\ufffd\\ufffd\"]\n"},
        {"\xf4\x90\x80\x80", "[\"\\ufffd\\ufffd\\ufffd\\ufffd\"]\n"},
        {"\xe2\x82", "[\"\\ufffd\\ufffd\"]\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct text text;
        begin(&text, true);
        json_array_begin(&text.json, NULL);
        json_string(&text.json, NULL, cases[i].value);
        json_array_end(&text.json);
        expect(&text, cases[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_one_line),
        cmocka_unit_test(test_reals),
        cmocka_unit_test(test_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
