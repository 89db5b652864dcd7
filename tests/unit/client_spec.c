/*
 * client/spec.c and parse.h: what users write, and what they are told when it is
 * wrong.
 */
#include "client/spec.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/parse.h"
#include "proto/token.h"
#include "spec_fixture.h"

#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

static void test_defaults(void **state)
{
    const struct pinclient_spec *spec = *state;

    assert_null(spec->source_text);
    assert_int_equal(spec->batch, 1);
    assert_int_equal(spec->depth, 4);
    assert_string_equal(spec->device, "auto");
    assert_int_equal(spec->delivery, PINSERVE__DELIVERY__DELIVERY_AUTO);
    assert_int_equal(spec->order.shuffle, PINSERVE__SHUFFLE__SHUFFLE_FULL);
    assert_int_equal(spec->order.last, PINSERVE__LAST__LAST_DROP);
    assert_int_equal(spec->order.world, 1);
    assert_int_equal(spec->pipeline.crop, PINSERVE__CROP_KIND__CROP_NONE);
    assert_string_equal(spec->name, "test-client-spec");
}

static void test_images(void **state)
{
    struct pinclient_spec *spec = *state;
    const Pinserve__Pipeline *pipeline = &spec->pipeline;

    assert_int_equal(pinclient_spec_flip(spec, 0.5), 0);
    assert_int_equal(pinclient_spec_image(spec, "random-crop:224"), 0);
    assert_int_equal(pipeline->crop, PINSERVE__CROP_KIND__CROP_RANDOM);
    assert_int_equal(pipeline->size, 224);
    assert_int_equal(pipeline->area_min_ppm, 80000);
    assert_int_equal(pipeline->area_max_ppm, 1000000);
    assert_int_equal(pipeline->ratio_min_ppm, 750000);
    assert_int_equal(pipeline->ratio_max_ppm, 1333333);
    assert_int_equal(pipeline->flip_ppm, 500000);

    assert_int_equal(pinclient_spec_image(spec, "random-crop:64,ratio=1/2..2,area=0.25..0.5"), 0);
    assert_int_equal(pipeline->area_min_ppm, 250000);
    assert_int_equal(pipeline->area_max_ppm, 500000);
    assert_int_equal(pipeline->ratio_min_ppm, 500000);
    assert_int_equal(pipeline->ratio_max_ppm, 2000000);

    assert_int_equal(pinclient_spec_image(spec, "center-crop:224"), 0);
    assert_int_equal(pipeline->crop, PINSERVE__CROP_KIND__CROP_CENTER);
    assert_int_equal(pipeline->resize, 256);
    assert_int_equal(pipeline->area_min_ppm, 0);
    assert_int_equal(pinclient_spec_image(spec, "center-crop:224:224"), 0);
    assert_int_equal(pipeline->resize, 224);
    assert_int_equal(pipeline->filter, PINSERVE__FILTER__FILTER_BILINEAR);
    assert_false(pipeline->orient);
    assert_int_equal(pinclient_spec_image(spec, "center-crop:224:250,orient=exif,filter=bicubic"),
                     0);
    assert_int_equal(pipeline->resize, 250);
    assert_int_equal(pipeline->filter, PINSERVE__FILTER__FILTER_BICUBIC);
    assert_true(pipeline->orient);
    assert_int_equal(pinclient_spec_image(spec, "center-crop:224,filter=bicubic"), 0);
    assert_int_equal(pipeline->resize, 256);
    assert_false(pipeline->orient);
    assert_int_equal(
        pinclient_spec_image(spec, "random-crop:64,orient=exif,area=0.25..1,filter=bilinear"), 0);
    assert_int_equal(pipeline->area_min_ppm, 250000);
    assert_int_equal(pipeline->filter, PINSERVE__FILTER__FILTER_BILINEAR);
    assert_true(pipeline->orient);
    assert_int_equal(pinclient_spec_image(spec, "none"), 0);
    assert_int_equal(pipeline->crop, PINSERVE__CROP_KIND__CROP_NONE);
    assert_int_equal(pipeline->flip_ppm, 500000);
}

static void test_wrong_images(void **state)
{
    static const char *const wrong[] = {
        "",
        "random-crop",
        "random-crop:",
        "random-crop:0",
        "random-crop:65536",
        "random-crop:224:256",
        "random-crop:224,",
        "random-crop:224,area",
        "random-crop:224,area=0.5",
        "random-crop:224,area=0.5..0.25",
        "random-crop:224,area=0..1",
        "random-crop:224,area=0.5..1.5",
        "random-crop:224,ratio=3/0..4",
        "random-crop:224,size=1..2",
        "random-crop:224,filter=lanczos",
        "random-crop:224,orient",
        "random-crop:224,orient=on",
        "center-crop:224:256,",
        "center-crop:224,area=0.1..1",
        "center-crop:224,256",
        "center-crop:",
        "center-crop:224:200",
        "center-crop:224:",
        "none:1",
        "crop:1",
    };
    struct pinclient_spec *spec = *state;

    assert_int_equal(pinclient_spec_image(spec, "center-crop:99"), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (pinclient_spec_image(spec, wrong[i]) != -EINVAL)
            fail_msg("image \"%s\" was taken", wrong[i]);
        assert_error(spec, wrong[i]);
    }
    assert_int_equal(spec->pipeline.size, 99);
}

static void test_numbers(void **state)
{
    struct pinclient_spec *spec = *state;

    assert_int_equal(pinclient_spec_flip(spec, 1), 0);
    assert_int_equal(spec->pipeline.flip_ppm, 1000000);
    assert_int_equal(pinclient_spec_flip(spec, -0.1), -EINVAL);
    assert_int_equal(pinclient_spec_flip(spec, 1.1), -EINVAL);
    assert_int_equal(pinclient_spec_flip(spec, (double)NAN), -EINVAL);
    assert_error(spec, "from 0 to 1");
    assert_int_equal(pinclient_spec_batch(spec, 0), -EINVAL);
    assert_error(spec, "batch 0");
    assert_int_equal(pinclient_spec_batch(spec, BATCH_MAX + 1), -EINVAL);
    assert_int_equal(pinclient_spec_batch(spec, BATCH_MAX), 0);
    assert_int_equal(pinclient_spec_depth(spec, 0), -EINVAL);
    assert_int_equal(pinclient_spec_depth(spec, 129), -EINVAL);
    assert_error(spec, "depth 129: from 1 to 128");
    assert_int_equal(pinclient_spec_depth(spec, 128), 0);
    assert_int_equal(pinclient_spec_shard(spec, 0, 0), -EINVAL);
    assert_int_equal(pinclient_spec_shard(spec, 4, 4), -EINVAL);
    assert_error(spec, "rank 4 of a world of 4");
    assert_int_equal(pinclient_spec_shard(spec, 3, 4), 0);
    assert_int_equal(spec->order.rank, 3);
    assert_int_equal(pinclient_spec_seed(spec, UINT64_MAX), 0);
    assert_int_equal(spec->order.seed, UINT64_MAX);
}

static void test_words(void **state)
{
    static const char *const devices[] = {"auto",    "host",     "cuda:0",
                                          "cuda:12", "GPU-8f1c", "MIG-12"};
    static const char *const wrong[] = {"", "cuda", "cuda:", "cuda:x", "cuda:-1", "gpu0", "GPU-"};
    struct pinclient_spec *spec = *state;

    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        assert_int_equal(pinclient_spec_device(spec, devices[i]), 0);
        assert_string_equal(spec->device, devices[i]);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(pinclient_spec_device(spec, wrong[i]), -EINVAL);
    assert_string_equal(spec->device, "MIG-12");
    assert_int_equal(pinclient_spec_delivery(spec, "ipc"), 0);
    assert_int_equal(spec->delivery, PINSERVE__DELIVERY__DELIVERY_IPC);
    assert_int_equal(pinclient_spec_delivery(spec, "mapped"), 0);
    assert_int_equal(spec->delivery, PINSERVE__DELIVERY__DELIVERY_MAPPED);
    assert_int_equal(pinclient_spec_delivery(spec, "tcp"), -EINVAL);
    assert_error(spec, "delivery \"tcp\": there are auto, fd, ipc, copy, host, mapped");
    assert_int_equal(pinclient_spec_shuffle(spec, "none"), 0);
    assert_int_equal(spec->order.shuffle, PINSERVE__SHUFFLE__SHUFFLE_NONE);
    assert_int_equal(pinclient_spec_shuffle(spec, "some"), -EINVAL);
    assert_int_equal(pinclient_spec_last(spec, "partial"), 0);
    assert_int_equal(spec->order.last, PINSERVE__LAST__LAST_PARTIAL);
    assert_int_equal(pinclient_spec_last(spec, "first"), -EINVAL);
    assert_int_equal(pinclient_spec_name(spec, "run 7"), 0);
    assert_string_equal(spec->name, "run 7");
}

/* A token undoes a start and the other way round; both reach OpenJob. */
static void test_starts(void **state)
{
    struct pinclient_spec *spec = *state;
    Pinserve__ResumeToken token = PINSERVE__RESUME_TOKEN__INIT;
    Pinserve__OpenJob open = PINSERVE__OPEN_JOB__INIT;
    char text[512];
    size_t size = sizeof text;

    token.version = 1;
    token.dataset = "synthetic:4";
    token.position = 88;
    assert_int_equal(token_format(&token, text, &size), 0);
    assert_int_equal(pinclient_spec_start(spec, 3, 5), 0);
    spec_open_job(spec, &open);
    assert_int_equal(open.start, PINSERVE__START__START_CURSOR);
    assert_int_equal(open.epoch, 3);
    assert_int_equal(open.step, 5);

    assert_int_equal(pinclient_spec_token(spec, "no token"), -EINVAL);
    assert_int_equal(pinclient_spec_token(spec, text), 0);
    spec_open_job(spec, &open);
    assert_int_equal(open.start, PINSERVE__START__START_TOKEN);
    assert_int_equal(open.token->position, 88);
    text[20] ^= 1;
    assert_int_equal(pinclient_spec_token(spec, text), -EINVAL);
    assert_int_equal(spec->token->position, 88);

    assert_int_equal(pinclient_spec_start(spec, 0, 0), 0);
    spec_open_job(spec, &open);
    assert_int_equal(open.start, PINSERVE__START__START_CURSOR);
    assert_null(open.token);
}

/* A decimal point is a point wherever the program runs. */
static void test_locale(void **state)
{
    struct pinclient_spec *spec = *state;

    setlocale(LC_ALL, "de_DE.UTF-8");
    assert_int_equal(pinclient_spec_image(spec, "random-crop:8,area=0.08..1"), 0);
    assert_int_equal(spec->pipeline.area_min_ppm, 80000);
    setlocale(LC_ALL, "C");
}

static void test_parse(void **state)
{
    struct parse_text text = parse_from("a,b,");
    struct parse_text piece;
    uint64_t value = 0;

    (void)state;
    piece = parse_cut(&text, ',');
    assert_true(parse_is(piece, "a") && !piece.last);
    piece = parse_cut(&text, ',');
    assert_true(parse_is(piece, "b") && !piece.last);
    piece = parse_cut(&text, ',');
    assert_true(parse_is(piece, "") && piece.last);

    assert_int_equal(parse_whole(parse_from("18446744073709551615"), UINT64_MAX, &value), 0);
    assert_int_equal(value, UINT64_MAX);
    assert_int_equal(parse_whole(parse_from("18446744073709551616"), UINT64_MAX, &value), -ERANGE);
    assert_int_equal(parse_whole(parse_from("11"), 10, &value), -ERANGE);
    assert_int_equal(parse_whole(parse_from("+1"), 10, &value), -EINVAL);
    assert_int_equal(parse_whole(parse_from(""), 10, &value), -EINVAL);

    assert_int_equal(parse_ppm(parse_from("0.000001"), &value), 0);
    assert_int_equal(value, 1);
    assert_int_equal(parse_ppm(parse_from("1.5"), &value), 0);
    assert_int_equal(value, 1500000);
    assert_int_equal(parse_ppm(parse_from("4/3"), &value), 0);
    assert_int_equal(value, 1333333);
    assert_int_equal(parse_ppm(parse_from("0.0000001"), &value), -EINVAL);
    assert_int_equal(parse_ppm(parse_from(".5"), &value), -EINVAL);
    assert_int_equal(parse_ppm(parse_from("1."), &value), -EINVAL);
    assert_int_equal(parse_ppm(parse_from("1e3"), &value), -EINVAL);
}

#define spec_test(function) cmocka_unit_test_setup_teardown(function, spec_setup, spec_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        spec_test(test_defaults), spec_test(test_images),       spec_test(test_wrong_images),
        spec_test(test_numbers),  spec_test(test_words),        spec_test(test_starts),
        spec_test(test_locale),   cmocka_unit_test(test_parse),
    };

    pinclient_spec_free(NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
