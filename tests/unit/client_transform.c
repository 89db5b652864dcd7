/*
 * client/transform.c: what callers may ask for, on batches in host memory. The
 * values are in client_transform_plan.c and client_transform_host.c.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client_peer.h"

#define HEIGHT 2
#define WIDTH 4
#define SAMPLE (HEIGHT * WIDTH * 3)
#define assert_error(handle, part) assert_non_null(strstr(pinclient_error(handle), part))

static struct peer peer;
static struct pinclient_job *job;
static struct pinclient_batch *batch;
static uint32_t shape[5];
static uint64_t strides[5];
static size_t dims;

static void ready_images(Pinserve__JobReady *ready)
{
    Pinserve__Tensor *data = ready->tensors[0];

    shape[0] = data->shape[0];
    data->n_shape = data->n_strides = dims;
    data->shape = shape;
    data->strides = strides;
}

/* A job whose "data" is what shape and strides say, with a batch leased. */
static void open_images(void)
{
    peer_init(&peer);
    peer.ready = ready_images;
    assert_int_equal(peer_connect(&peer), 0);
    assert_int_equal(peer_open_default(&peer, &job), 0);
    for (size_t i = 0; i < 4 * SAMPLE; i++)
        peer.region[i] = (uint8_t)(i * 7);
    peer_send_batch(&peer, 0, 5, 0, 0, 0);
    assert_int_equal(pinclient_next(job, 5000, &batch), 0);
}

static void set_dense(size_t n, uint32_t height, uint32_t width, uint32_t channels)
{
    uint32_t of[] = {0, height, width, channels, 1};
    uint64_t stride = 1;

    dims = n;
    for (size_t i = n; i-- > 0;) {
        shape[i] = of[i];
        strides[i] = stride;
        stride *= of[i];
    }
}

static void close_images(void)
{
    pinclient_release(batch, PINCLIENT_NO_STREAM);
    peer_close(&peer, job);
    peer_deinit(&peer);
}

static struct pinclient_transform usual(void)
{
    return (struct pinclient_transform){
        .dtype = PINCLIENT_F32,
        .layout = PINCLIENT_NCHW,
        .channels = 3,
        .mean = {0.485, 0.456, 0.406},
        .std = {0.229, 0.224, 0.225},
    };
}

static void test_planes(void **state)
{
    struct pinclient_transform spec = usual();
    const uint8_t flip[4] = {0, 1, 0, 1};
    float out[4 * SAMPLE + 1];

    (void)state;
    set_dense(4, HEIGHT, WIDTH, 3);
    open_images();
    out[4 * SAMPLE] = 77;
    spec.flip = flip;
    assert_int_equal(pinclient_transform(batch, "data", out, &spec, NULL), 0);
    for (size_t i = 0; i < 4 * SAMPLE; i++) {
        size_t n = i / SAMPLE, c = i / (HEIGHT * WIDTH) % 3, y = i / WIDTH % HEIGHT, x = i % WIDTH;
        size_t from = flip[n] ? WIDTH - 1 - x : x;
        uint8_t value = peer.region[n * SAMPLE + (y * WIDTH + from) * 3 + c];
        assert_true(out[i] == (float)((value / 255.0 - spec.mean[c]) / spec.std[c]));
    }
    assert_true(out[4 * SAMPLE] == 77);
    close_images();
}

/* The plan is kept from call to call, and made anew for another spec. */
static void test_another_spec(void **state)
{
    struct pinclient_transform spec = usual();
    uint16_t half[4 * SAMPLE];
    float out[4 * SAMPLE];

    (void)state;
    set_dense(4, HEIGHT, WIDTH, 3);
    open_images();
    assert_int_equal(pinclient_transform(batch, "data", out, &spec, NULL), 0);
    spec.layout = PINCLIENT_NHWC;
    for (size_t c = 0; c < 3; c++) {
        spec.mean[c] = 0;
        spec.std[c] = 1 / 255.0;
    }
    assert_int_equal(pinclient_transform(batch, "data", out, &spec, NULL), 0);
    for (size_t i = 0; i < 4 * SAMPLE; i++)
        assert_true(out[i] == peer.region[i]);
    spec.dtype = PINCLIENT_F16;
    spec.std[0] = spec.std[1] = spec.std[2] = 1;
    assert_int_equal(pinclient_transform(batch, "data", half, &spec, NULL), 0);
    assert_int_equal(peer.region[0], 0);
    assert_int_equal(half[0], 0);
    assert_int_equal(half[1], 0x2707); /* 7 / 255 */
    close_images();
}

/* Fewer samples than a full batch: no more are written. */
static void test_short_batch(void **state)
{
    struct pinclient_transform spec = usual();
    float out[4 * SAMPLE];

    (void)state;
    set_dense(4, HEIGHT, WIDTH, 3);
    open_images();
    assert_int_equal(pinclient_release(batch, PINCLIENT_NO_STREAM), 0);
    peer.batch = 3;
    peer_send_batch(&peer, 1, 6, 0, 1, 0);
    assert_int_equal(pinclient_next(job, 5000, &batch), 0);
    memset(out, 0, sizeof out);
    spec.mean[0] = spec.mean[1] = spec.mean[2] = 9;
    assert_int_equal(pinclient_transform(batch, "data", out, &spec, NULL), 0);
    for (size_t i = 0; i < 4 * SAMPLE; i++)
        assert_true((out[i] != 0) == (i < 3 * SAMPLE));
    close_images();
}

/* Of three dimensions: grey. */
static void test_grey(void **state)
{
    struct pinclient_transform spec = usual();
    float out[4 * HEIGHT * WIDTH];

    (void)state;
    set_dense(3, HEIGHT, WIDTH, 1);
    open_images();
    spec.channels = 0;
    spec.std[1] = 0; /* not looked at */
    assert_int_equal(pinclient_transform(batch, "data", out, &spec, NULL), 0);
    assert_true(out[5] == (float)((35 / 255.0 - 0.485) / 0.229));
    close_images();
}

static void test_release(void **state)
{
    struct pinclient_transform spec = usual();
    struct peer_event event;
    float out[4 * SAMPLE];

    (void)state;
    set_dense(4, HEIGHT, WIDTH, 3);
    open_images();
    spec.flags = PINCLIENT_RELEASE;
    /* What fails leaves the lease. */
    assert_int_equal(pinclient_transform(batch, "image", out, &spec, NULL), -ENOENT);
    assert_error(job, "no tensor \"image\": there are data, index");
    assert_int_equal(pinclient_transform(batch, "data", NULL, &spec, NULL), -EINVAL);
    assert_false(peer_expect(&peer, 20, &event));
    assert_int_equal(pinclient_transform(batch, "data", out, &spec, NULL), 0);
    assert_true(peer_expect(&peer, 5000, &event));
    assert_int_equal(event.kind, PINSERVE__MESSAGE__BODY_RELEASE);
    assert_int_equal(event.generation, 5);
    assert_int_equal(pinclient_transform(batch, "data", out, &spec, NULL), -EINVAL);
    assert_error(job, "released already");
    close_images();
}

static void assert_refused(const struct pinclient_transform *spec, const char *name, void *out,
                           const char *part)
{
    assert_int_equal(pinclient_transform(batch, name, out, spec, NULL), -EINVAL);
    assert_error(job, part);
}

static void test_spec_is_checked(void **state)
{
    struct pinclient_transform spec = usual();
    float out[4 * SAMPLE];

    (void)state;
    set_dense(4, HEIGHT, WIDTH, 3);
    open_images();
    spec.dtype = PINCLIENT_I64;
    assert_refused(&spec, "data", out, "dtype 2 is none of PINCLIENT_F32");
    spec = usual();
    spec.layout = (enum pinclient_layout)2;
    assert_refused(&spec, "data", out, "layout 2");
    spec = usual();
    spec.flags = 6;
    assert_refused(&spec, "data", out, "flags 0x6");
    spec = usual();
    spec.channels = 4;
    assert_refused(&spec, "data", out, "\"data\" has 3 channels, mean and std have 4");
    spec = usual();
    spec.std[2] = 0;
    assert_refused(&spec, "data", out, "channel 2 has mean 0.406 and std 0");
    spec.std[2] = (double)INFINITY;
    assert_refused(&spec, "data", out, "channel 2");
    spec = usual();
    spec.mean[1] = (double)NAN;
    assert_refused(&spec, "data", out, "channel 1 has mean nan");
    spec = usual();
    assert_refused(&spec, "data", NULL, "out is NULL");
    assert_refused(&spec, "data", (uint8_t *)out + 2, "not aligned to an element of 4 bytes");
    assert_refused(&spec, "index", out, "\"index\" is not of uint8");
    close_images();
}

static void test_tensor_is_checked(void **state)
{
    struct pinclient_transform spec = usual();
    float out[4 * SAMPLE];

    (void)state;
    set_dense(2, 24, 1, 1);
    open_images();
    assert_refused(&spec, "data", out, "\"data\" has 2 dimensions, the last of 24");
    close_images();
    set_dense(4, 3, 2, 5);
    open_images();
    assert_refused(&spec, "data", out, "the last of 5: images have samples x height x width");
    close_images();
    set_dense(5, 1, 2, 3);
    open_images();
    assert_refused(&spec, "data", out, "5 dimensions");
    close_images();
    set_dense(4, HEIGHT, WIDTH, 3);
    strides[1] += 1;
    open_images();
    assert_refused(&spec, "data", out, "\"data\" has gaps");
    close_images();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planes),
        cmocka_unit_test(test_another_spec),
        cmocka_unit_test(test_short_batch),
        cmocka_unit_test(test_grey),
        cmocka_unit_test(test_release),
        cmocka_unit_test(test_spec_is_checked),
        cmocka_unit_test(test_tensor_is_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
