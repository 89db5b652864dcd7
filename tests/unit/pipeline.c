/* Pipelines: ranges, defaults, canonical text; layouts of slots. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode/decode.h"

static void test_defaults(void **state)
{
    struct pipeline random = {.crop = CROP_KIND_RANDOM, .size = 224};
    struct pipeline center = {.crop = CROP_KIND_CENTER, .size = 224};
    struct pipeline none = {0};
    char text[200];

    (void)state;
    assert_int_equal(pipeline_check(&random, NULL), 0);
    assert_string_equal(pipeline_text(&random, text, sizeof text),
                        "random-crop:224 area=80000..1000000 ratio=750000..1333333 flip=0 v1");
    assert_int_equal(pipeline_check(&center, NULL), 0);
    assert_string_equal(pipeline_text(&center, text, sizeof text),
                        "center-crop:224 resize=256 flip=0 v1");
    center.orient = true;
    assert_string_equal(pipeline_text(&center, text, sizeof text),
                        "center-crop:224 resize=256 flip=0 orient=exif v1");
    random.filter = FILTER_KIND_BICUBIC;
    random.orient = true;
    assert_string_equal(pipeline_text(&random, text, sizeof text),
                        "random-crop:224 area=80000..1000000 ratio=750000..1333333 flip=0 "
                        "filter=bicubic orient=exif v1");
    assert_int_equal(pipeline_check(&none, NULL), 0);
    assert_string_equal(pipeline_text(&none, text, sizeof text), "none v1");
}

/* A checked pipeline stays as it is. */
static void test_check_again(void **state)
{
    struct pipeline pipelines[] = {
        {.crop = CROP_KIND_RANDOM, .size = 96, .area_min_ppm = 250000, .flip_ppm = 500000},
        {.crop = CROP_KIND_CENTER, .size = 100, .flip_ppm = 1},
        {0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof pipelines / sizeof pipelines[0]; i++) {
        struct pipeline once;
        char before[200], after[200];

        assert_int_equal(pipeline_check(&pipelines[i], NULL), 0);
        once = pipelines[i];
        pipeline_text(&once, before, sizeof before);
        assert_int_equal(pipeline_check(&once, NULL), 0);
        assert_string_equal(before, pipeline_text(&once, after, sizeof after));
    }
    assert_int_equal(pipelines[1].resize, 114); /* 100 * 8 / 7 = 114.3 */
}

static void test_refused(void **state)
{
    static const struct {
        struct pipeline pipeline;
        const char *text;
    } cases[] = {
        {{.crop = CROP_KIND_RANDOM}, "crop size 0: must be between 1 and 8192 pixels"},
        {{.crop = CROP_KIND_RANDOM, .size = 8193}, "crop size 8193:"},
        {{.crop = CROP_KIND_RANDOM, .size = 9, .flip_ppm = 1000001}, "flip 1000001 millionths"},
        {{.crop = CROP_KIND_RANDOM, .size = 9, .resize = 20}, "resize 20: only center-crop"},
        {{.crop = CROP_KIND_RANDOM, .size = 9, .area_min_ppm = 9, .area_max_ppm = 8},
         "area 9..8 millionths"},
        {{.crop = CROP_KIND_RANDOM, .size = 9, .area_max_ppm = 1000001}, "area 80000..1000001"},
        {{.crop = CROP_KIND_RANDOM, .size = 9, .ratio_min_ppm = 9999}, "ratio 9999..1333333"},
        {{.crop = CROP_KIND_RANDOM, .size = 9, .ratio_max_ppm = 100000001},
         "ratio 750000..100000001"},
        {{.crop = CROP_KIND_RANDOM, .size = 9, .ratio_min_ppm = 2000000}, "ratio 2000000..1333333"},
        {{.crop = CROP_KIND_CENTER, .size = 224, .resize = 223},
         "resize 223: must be between the crop's size 224 and 16384 pixels"},
        {{.crop = CROP_KIND_CENTER, .size = 224, .area_min_ppm = 1}, "area 1..0"},
        {{.crop = CROP_KIND_CENTER, .size = 224, .ratio_max_ppm = 1}, "ratio 0..1"},
        {{.flip_ppm = 5}, "flip 5 millionths: only images with a crop flip"},
        {{.size = 224}, "but no crop"},
        {{.orient = true}, "a filter or an orientation is given, but no crop"},
        {{.filter = FILTER_KIND_BICUBIC}, "a filter or an orientation is given, but no crop"},
        {{.crop = CROP_KIND_RANDOM, .size = 9, .filter = (enum filter_kind)2}, "filter 2 is"},
        {{.crop = (enum crop_kind)7, .size = 1}, "crop kind 7 is unknown"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pipeline pipeline = cases[i].pipeline;
        struct failure failure = {0};

        assert_int_equal(pipeline_check(&pipeline, &failure), -EINVAL);
        assert_int_equal(failure.code, -EINVAL);
        if (!strstr(failure.text, cases[i].text))
            fail_msg("\"%s\" lacks \"%s\"", failure.text, cases[i].text);
    }
}

static struct source *raw_source(uint32_t a, uint32_t b, enum sample_dtype dtype)
{
    struct source_spec spec = {.kind = SOURCE_KIND_SYNTHETIC,
                               .name = "synthetic:test",
                               .shape = {a, b},
                               .n_dims = 2,
                               .dtype = dtype,
                               .samples = 100};
    struct source_progress progress = {0};
    struct source *source = NULL;

    assert_int_equal(source_new(&spec, &progress, &source, NULL), 0);
    return source;
}

static void test_layout_raw(void **state)
{
    struct source *source = raw_source(5, 7, SAMPLE_F32);
    struct pipeline none = {0};
    struct layout layout;

    (void)state;
    assert_int_equal(layout_init(&layout, &none, source, 10, NULL), 0);
    assert_int_equal(layout.n_tensors, 4);
    assert_string_equal(layout.tensors[0].name, "data");
    assert_int_equal(layout.tensors[0].dtype, TENSOR_F32);
    assert_int_equal(layout.tensors[0].n_dims, 3);
    assert_int_equal(layout.tensors[0].shape[0], 10);
    assert_int_equal(layout.tensors[0].shape[1], 5);
    assert_int_equal(layout.tensors[0].shape[2], 7);
    assert_int_equal(layout.tensors[0].offset, 0);
    assert_int_equal(layout.tensors[0].sample_bytes, 140);
    assert_string_equal(layout.tensors[1].name, "label");
    assert_int_equal(layout.tensors[1].dtype, TENSOR_I64);
    assert_int_equal(layout.tensors[1].n_dims, 1);
    assert_int_equal(layout.tensors[1].offset, 1536); /* 1400 rounded up to 512 */
    assert_string_equal(layout.tensors[2].name, "index");
    assert_int_equal(layout.tensors[2].dtype, TENSOR_U64);
    assert_int_equal(layout.tensors[2].offset, 2048);
    assert_string_equal(layout.tensors[3].name, "status");
    assert_int_equal(layout.tensors[3].dtype, TENSOR_U8);
    assert_int_equal(layout.tensors[3].offset, 2560);
    assert_int_equal(layout.slot_bytes, 4096);
    source_unref(source);
}

static void test_layout_of_tokens(void **state)
{
    char path[] = "/tmp/pinserve-test-XXXXXX";
    int fd = mkstemp(path);
    const char *name = path;
    struct source_spec spec = {
        .kind = SOURCE_KIND_TOKENS,
        .name = "tokens:test",
        .fds = &fd,
        .fd_names = &name,
        .n_fds = 1,
        .tokens = {.seq = 9, .stride = 9, .width = SAMPLE_U16, .out = SAMPLE_I32},
    };
    struct source *source = NULL;
    struct pipeline none = {0};
    struct layout layout;

    (void)state;
    unlink(path);
    assert_int_equal(ftruncate(fd, 200), 0);
    assert_int_equal(source_new(&spec, NULL, &source, NULL), 0);
    close(fd);
    assert_int_equal(layout_init(&layout, &none, source, 3, NULL), 0);
    assert_string_equal(layout.tensors[0].name, "tokens");
    assert_int_equal(layout.tensors[0].dtype, TENSOR_I32);
    assert_int_equal(layout.tensors[0].n_dims, 2);
    assert_int_equal(layout.tensors[0].shape[1], 10);
    assert_int_equal(layout.tensors[0].sample_bytes, 40);
    source_unref(source);
}

static void test_layout_refused(void **state)
{
    struct source *source = raw_source(1 << 15, 1 << 15, SAMPLE_U8);
    struct pipeline none = {0}, center = {.crop = CROP_KIND_CENTER, .size = 224};
    struct layout layout;
    struct failure failure;

    (void)state;
    assert_int_equal(pipeline_check(&center, NULL), 0);
    assert_int_equal(layout_init(&layout, &center, source, 1, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, "synthetic:test: holds arrays, no images"));
    assert_int_equal(layout_init(&layout, &none, source, 0, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, "batch 0:"));
    assert_int_equal(layout_init(&layout, &none, source, BATCH_MAX + 1, &failure), -EINVAL);
    assert_int_equal(layout_init(&layout, &none, source, 1000, NULL), 0);
    assert_int_equal(layout.tensors[1].offset, (uint64_t)1000 << 30);
    assert_int_equal(layout_init(&layout, &none, source, 1024, &failure), -E2BIG);
    assert_non_null(strstr(failure.text, "1024 samples with 1073741824 bytes of data each"));
    assert_non_null(strstr(failure.text, "limit of 1099511627776 bytes"));
    source_unref(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),         cmocka_unit_test(test_check_again),
        cmocka_unit_test(test_refused),          cmocka_unit_test(test_layout_raw),
        cmocka_unit_test(test_layout_of_tokens), cmocka_unit_test(test_layout_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
