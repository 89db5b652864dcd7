/*
 * Synthetic samples: their values, which never change, and that these look
 * random.
 */
#include "source/source.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct source_spec spec_of(uint32_t a, uint32_t b, uint32_t c, enum sample_dtype dtype)
{
    return (struct source_spec){.kind = SOURCE_KIND_SYNTHETIC,
                                .name = "synthetic",
                                .shape = {a, b, c},
                                .n_dims = 3,
                                .dtype = dtype,
                                .samples = 5000};
}

static struct source *open_source(const struct source_spec *spec)
{
    struct source_progress progress = {0};
    struct source *source = NULL;
    struct failure failure;

    assert_int_equal(source_new(spec, &progress, &source, &failure), 0);
    assert_int_equal(progress.indexed, spec->samples);
    return source;
}

static int64_t fill(struct source *source, uint64_t index, void *out)
{
    int64_t label = -1;

    assert_int_equal(source_fill(source, index, (struct sample_key){0}, out, &label, NULL), 0);
    return label;
}

static void the_values_are_these(void **state)
{
    struct source_spec spec = spec_of(1, 1, 20, SAMPLE_U8);
    struct source *source = open_source(&spec);
    static const uint8_t first[20] = {0x1c, 0xd3, 0xd0, 0xfe, 0xa3, 0x6d, 0x5d, 0x21, 0x84, 0x5f,
                                      0x28, 0x6c, 0xbf, 0xf6, 0x39, 0xa1, 0x98, 0xd4, 0x5b, 0x02};
    static const uint8_t last[20] = {0x66, 0xe8, 0x78, 0x5f, 0x08, 0xbd, 0x20, 0x8c, 0x2a, 0xd0,
                                     0xee, 0xe0, 0x7a, 0x28, 0xfe, 0x41, 0x68, 0x06, 0x58, 0xea};
    uint8_t out[21];

    (void)state;
    out[20] = 0xa5;
    assert_int_equal(fill(source, 0, out), 0);
    assert_memory_equal(out, first, sizeof first);
    assert_int_equal(fill(source, 4999, out), 999);
    assert_memory_equal(out, last, sizeof last);
    assert_int_equal(out[20], 0xa5);
    source_unref(source);
}

static void the_number_alone_decides(void **state)
{
    struct source_spec small = spec_of(2, 3, 50, SAMPLE_U8);
    struct source_spec large = spec_of(3, 50, 70, SAMPLE_U8);
    struct source *a = open_source(&small);
    struct source *b = NULL;
    uint8_t *x = malloc(3 * 50 * 70);
    uint8_t *y = malloc(3 * 50 * 70);

    (void)state;
    assert_true(x && y);
    large.samples = 7000;
    b = open_source(&large);
    assert_int_equal(fill(a, 1234, x), 234);
    fill(b, 4321, y);
    assert_int_equal(fill(b, 1234, y), 234);
    assert_memory_equal(x, y, 300);
    free(x);
    free(y);
    source_unref(a);
    source_unref(b);
}

static double correlation(const uint8_t *x, const uint8_t *y, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (x[i] - 127.5) * (y[i] - 127.5);
    return sum / (double)n / ((256.0 * 256.0 - 1) / 12);
}

/* 2^20 bytes a sample: chi squared of 255 degrees has mean 255 and deviation 22.6, a correlation
 * deviation 0.001; a pair of bytes 65,535 degrees, deviation 362. */
static void bytes_look_random(void **state)
{
    enum { N = 1 << 20 };
    struct source_spec spec = spec_of(1, 1024, 1024, SAMPLE_U8);
    struct source *source = open_source(&spec);
    uint8_t *x = malloc(N);
    uint8_t *y = malloc(N);
    uint32_t *pairs = calloc(65536, sizeof *pairs);
    static const size_t lags[] = {1, 2, 3, 4, 5, 8, 16, 256, 1024, 1028};

    (void)state;
    assert_true(x && y && pairs);
    for (uint64_t sample = 0; sample < 3; sample++) {
        uint32_t counts[4][256] = {{0}};
        fill(source, sample * 1000, x);
        fill(source, sample * 1000 + 1, y);
        memset(pairs, 0, 65536 * sizeof *pairs);
        for (size_t i = 0; i < N; i++) {
            counts[i % 4][x[i]]++;
            pairs[x[i] * 256 + x[(i + 4) % N]]++;
        }
        for (int lane = 0; lane < 4; lane++) {
            double chi = 0;
            for (int i = 0; i < 256; i++)
                chi += pow(counts[lane][i] - N / 1024.0, 2) / (N / 1024.0);
            assert_true(chi > 150 && chi < 370);
        }
        double chi = 0;
        for (int i = 0; i < 65536; i++)
            chi += pow(pairs[i] - N / 65536.0, 2) / (N / 65536.0);
        assert_true(chi > 65535 - 2500 && chi < 65535 + 2500);
        for (size_t i = 0; i < sizeof lags / sizeof lags[0]; i++)
            assert_true(fabs(correlation(x, x + lags[i], N - lags[i])) < 0.006);
        assert_true(fabs(correlation(x, y, N)) < 0.006);
    }
    free(x);
    free(y);
    free(pairs);
    source_unref(source);
}

static void samples_differ(void **state)
{
    struct source_spec spec = spec_of(1, 1, 8, SAMPLE_U8);
    struct source *source = open_source(&spec);
    uint64_t *seen = calloc(spec.samples, sizeof *seen);

    (void)state;
    assert_non_null(seen);
    for (uint64_t i = 0; i < spec.samples; i++) {
        assert_int_equal(fill(source, i, &seen[i]), i % 1000);
        for (uint64_t j = i > 50 ? i - 50 : 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
    }
    free(seen);
    source_unref(source);
}

static void floats_are_exact_in_0_1(void **state)
{
    enum { N = 3 * 100 * 101 };
    struct source_spec spec = spec_of(3, 100, 101, SAMPLE_F32);
    struct source *source = open_source(&spec);
    float *out = malloc(N * sizeof *out);
    double sum = 0;

    (void)state;
    assert_non_null(out);
    fill(source, 17, out);
    for (size_t i = 0; i < N; i++) {
        assert_true(out[i] >= 0 && out[i] < 1);
        float scaled = out[i] * 0x1p24f;
        assert_true(scaled == floorf(scaled));
        sum += out[i];
    }
    assert_true(fabs(sum / N - 0.5) < 0.01);
    free(out);
    source_unref(source);
}

static void tells_its_shape(void **state)
{
    struct source_spec spec = spec_of(3, 5, 7, SAMPLE_F32);
    struct source *source = open_source(&spec);
    struct sample sample = {0};
    uint32_t shape[7];
    size_t n_dims;
    enum sample_dtype dtype;
    char text[64];

    (void)state;
    assert_false(source_may_wait(source));
    assert_int_equal(source_samples(source), 5000);
    assert_int_equal(source_skipped(source), 0);
    assert_int_equal(source_classes(source), 0);
    assert_int_equal(source_shape(source, shape, &n_dims, &dtype), 0);
    assert_int_equal(n_dims, 3);
    assert_true(shape[0] == 3 && shape[1] == 5 && shape[2] == 7);
    assert_int_equal(dtype, SAMPLE_F32);
    assert_int_equal(source_read(source, 2001, &sample, NULL), 0);
    assert_null(sample.bytes);
    assert_int_equal(sample.size, 3 * 5 * 7 * 4);
    assert_int_equal(sample.label, 1);
    assert_string_equal(source_sample_name(source, 2001, text, sizeof text),
                        "synthetic: sample 2001");
    sample_deinit(&sample);
    source_unref(source);
}

static void the_fingerprint_is_of_shape_type_and_number(void **state)
{
    struct source_spec specs[] = {
        spec_of(3, 5, 7, SAMPLE_U8), spec_of(3, 5, 7, SAMPLE_F32), spec_of(3, 7, 5, SAMPLE_U8),
        spec_of(3, 5, 7, SAMPLE_U8), spec_of(35, 5, 7, SAMPLE_U8), spec_of(3, 5, 7, SAMPLE_U8),
    };
    enum { N = sizeof specs / sizeof specs[0] };
    uint64_t prints[N];

    (void)state;
    specs[3].samples = 5001;
    specs[4].n_dims = 2;
    for (size_t i = 0; i < N; i++) {
        struct source *source = open_source(&specs[i]);
        prints[i] = source_fingerprint(source);
        assert_true(source_matches(source, &specs[i]));
        assert_true(source_matches(source, &specs[0]) == (i == 0 || i == N - 1));
        source_unref(source);
        for (size_t j = 0; j < i; j++)
            assert_true((prints[i] == prints[j]) == (i == N - 1 && j == 0));
    }
}

static void refused(const struct source_spec *spec, int code, const char *why)
{
    struct source *source = NULL;
    struct failure failure = {0};

    assert_int_equal(source_new(spec, NULL, &source, &failure), code);
    assert_null(source);
    assert_int_equal(failure.code, code);
    if (!strstr(failure.text, why))
        fail_msg("\"%s\" lacks \"%s\"", failure.text, why);
}

static void refuses_what_is_no_shape(void **state)
{
    struct source_spec spec = spec_of(3, 0, 7, SAMPLE_U8);

    (void)state;
    refused(&spec, -EINVAL, "dimension 2 of the shape is 0");
    spec = spec_of(65536, 65536, 2, SAMPLE_U8);
    refused(&spec, -E2BIG, "4 GiB");
    spec = spec_of(UINT32_MAX, UINT32_MAX, UINT32_MAX, SAMPLE_F32);
    refused(&spec, -E2BIG, "4 GiB");
    spec = spec_of(3, 4, 5, SAMPLE_U8);
    spec.n_dims = 0;
    refused(&spec, -EINVAL, "1 to 7 dimensions, not 0");
    spec.n_dims = 8;
    refused(&spec, -EINVAL, "not 8");
    spec.n_dims = 3;
    spec.samples = 0;
    refused(&spec, -EINVAL, "0 samples");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_values_are_these),
        cmocka_unit_test(the_number_alone_decides),
        cmocka_unit_test(bytes_look_random),
        cmocka_unit_test(samples_differ),
        cmocka_unit_test(floats_are_exact_in_0_1),
        cmocka_unit_test(tells_its_shape),
        cmocka_unit_test(the_fingerprint_is_of_shape_type_and_number),
        cmocka_unit_test(refuses_what_is_no_shape),
    };

    return cmocka_run_group_tests_name("synthetic", tests, NULL, NULL);
}
