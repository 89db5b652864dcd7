/*
 * The text of wanted fields: the tensors that it makes, and why it makes none.
 */
#include "source/tar_fields.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void init(struct tar_fields *fields, const char *text)
{
    struct failure failure = {0};

    if (tar_fields_init(fields, text, "s", &failure) < 0)
        fail_msg("%s: %s", text ? text : "none", failure.text);
}

static void expect_tensor(const struct tar_fields *fields, size_t i, const char *name,
                          enum sample_dtype dtype, size_t n_dims, uint32_t size)
{
    const struct source_field *out = &fields->tensors[i].out;

    assert_string_equal(out->name, name);
    assert_int_equal(out->dtype, dtype);
    assert_int_equal(out->n_dims, n_dims);
    if (n_dims > 0)
        assert_int_equal(out->shape[0], size);
}

static void without_a_text_it_is_an_image_and_its_class(void **state)
{
    struct tar_fields fields;

    (void)state;
    init(&fields, NULL);
    assert_int_equal(fields.n, 2);
    assert_int_equal(fields.n_parts, 1);
    assert_int_equal(fields.n_tensors, 1);
    assert_true(fields.has_image);
    assert_null(fields.text);
    assert_int_equal(tar_field_rank(&fields.fields[0], "JPG"), 0);
    assert_int_equal(tar_field_rank(&fields.fields[0], "webp"), 3);
    assert_int_equal(tar_field_rank(&fields.fields[0], "seg.png"), TAR_FIELD_NOT);
    assert_int_equal(tar_field_rank(&fields.fields[1], "Cls"), 0);
    assert_string_equal(tar_field_words(&fields.fields[0]), "jpg, jpeg, png or webp");
    tar_fields_deinit(&fields);
}

static void tensors_come_in_order_and_an_image_first(void **state)
{
    struct tar_fields fields;

    (void)state;
    init(&fields, "json:4096+emb.npy+cls+seg.png+x:y:7");
    assert_int_equal(fields.n, 5);
    assert_int_equal(fields.n_parts, 4);
    assert_int_equal(fields.n_tensors, 6);
    assert_string_equal(fields.tensors[0].out.name, "image");
    expect_tensor(&fields, 1, "json", SAMPLE_U8, 1, 4096);
    expect_tensor(&fields, 2, "json.size", SAMPLE_I32, 0, 0);
    assert_string_equal(fields.tensors[3].out.name, "emb.npy");
    expect_tensor(&fields, 4, "x:y", SAMPLE_U8, 1, 7);
    assert_true(fields.tensors[5].is_size);
    /* The image is the first part, whatever its place. */
    assert_int_equal(fields.fields[3].part, 0);
    assert_int_equal(fields.fields[0].part, 1);
    assert_int_equal(fields.fields[1].part, 2);
    assert_int_equal(fields.fields[4].part, 3);
    assert_int_equal(tar_field_rank(&fields.fields[3], "SEG.png"), 0);
    assert_int_equal(tar_field_rank(&fields.fields[3], "png"), TAR_FIELD_NOT);
    assert_string_equal(tar_field_words(&fields.fields[3]), "seg.png");
    assert_string_equal(fields.text, "json:4096+emb.npy+cls+seg.png+x:y:7");
    tar_fields_deinit(&fields);
}

static void without_an_image_the_first_field_is_the_first(void **state)
{
    struct tar_fields fields;

    (void)state;
    init(&fields, "cls+NPY+cls:3");
    assert_false(fields.has_image);
    assert_int_equal(fields.n_tensors, 3);
    assert_string_equal(fields.tensors[0].out.name, "NPY");
    assert_int_equal(fields.fields[0].kind, TAR_FIELD_LABEL);
    assert_int_equal(fields.fields[1].part, 0);
    assert_int_equal(fields.fields[2].kind, TAR_FIELD_BYTES);
    tar_fields_deinit(&fields);
}

/* An image and its bytes are two fields. */
static void a_member_may_be_wanted_twice(void **state)
{
    struct tar_fields fields;

    (void)state;
    init(&fields, "image+jpg:100");
    assert_int_equal(fields.n_parts, 2);
    assert_int_equal(tar_field_rank(&fields.fields[0], "jpg"), 0);
    assert_int_equal(tar_field_rank(&fields.fields[1], "jpg"), 0);
    tar_fields_deinit(&fields);
}

static void what_makes_no_tensors_is_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "a name is missing"},
        {"jpg+", "a name is missing"},
        {":4", "a name is missing"},
        {"cls", "the label alone"},
        {"json", "json:4096"},
        {"jpg,cls", "a + between them, not a comma"},
        {"jpg+mask.txt", "mask.txt:4096"},
        {"jpg+seg.png", "seg.png:N"},
        {"seg.png+image", "jpg:N"},
        {"json:0", "from 1 to 268435456"},
        {"json:-1", "\"json:-1\""},
        {"json:", "\"json:\""},
        {"json: 5", "\"json: 5\""},
        {"json:5x", "\"json:5x\""},
        {"json:268435457", "from 1 to 268435456"},
        {"json:99999999999999999999", "from 1 to 268435456"},
        {"json:4+json:5", "two tensors \"json\""},
        {"json.size:4+json:5", "two tensors \"json.size\""},
        {"npy+npy", "two tensors \"npy\""},
        {"index:5", "\"index\""},
        {"image:5", "\"image\""},
        {"a:1+b:1+c:1+d:1+e:1+f:1+g:1", "more than 16 tensors"},
        {"cls+cls+cls+cls+cls+cls+cls+cls+cls+cls+cls+cls+cls+cls+cls+cls+cls", "more than 16"},
        {"a23456789b123456789c123456789d123456789e123456789f123456789g123.npy", "over 63 bytes"},
        {"a23456789b123456789c123456789d123456789e123456789f123456789:1", "over 63 bytes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tar_fields fields;
        struct failure failure = {0};

        assert_int_equal(tar_fields_init(&fields, cases[i].text, "shards", &failure), -EINVAL);
        if (!strstr(failure.text, cases[i].why) || !strstr(failure.text, "source shards: "))
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].text, failure.text, cases[i].why);
        tar_fields_deinit(&fields);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_text_it_is_an_image_and_its_class),
        cmocka_unit_test(tensors_come_in_order_and_an_image_first),
        cmocka_unit_test(without_an_image_the_first_field_is_the_first),
        cmocka_unit_test(a_member_may_be_wanted_twice),
        cmocka_unit_test(what_makes_no_tensors_is_refused),
    };

    return cmocka_run_group_tests_name("tar_fields", tests, NULL, NULL);
}
