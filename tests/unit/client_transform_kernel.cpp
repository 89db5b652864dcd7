/*
 * client/transform.cu on the CPU: every kernel, its threads one after the other,
 * against client/transform_host.c. What a GPU adds, timing and alignment's
 * price, is not seen here; a vector that is not aligned is, by the sanitizer.
 *
 * A block's threads run twice: when the second round comes, shared memory holds
 * what all of the first have put there, as behind a barrier.
 */
#include <cmath>
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" {
#include <cmocka.h>

#include "client/transform.h"
}

namespace
{
struct {
    unsigned x, y, z;
} threadIdx, blockIdx;

uint32_t min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void __syncthreads()
{
}

float __frcp_rn(float x)
{
    return 1.0f / x;
}

float __fmaf_rn(float x, float y, float z)
{
    return std::fma(x, y, z);
}

float __fadd_rn(float x, float y)
{
    return x + y;
}

uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

float __uint_as_float(uint32_t bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector)
{
    uint64_t both = (uint64_t)y << 32 | x;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++)
        result |= (uint32_t)(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}

template <typename T> T __ldg(const T *from)
{
    return *from;
}
} // namespace

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#undef __align__
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(threads)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
#include "client/transform.cu"

namespace
{

constexpr uint8_t poison = 0xa5;
constexpr size_t guard = 64;

template <typename Args>
void launch(void (*kernel)(Args), const Args &args, const transform_args &base)
{
    const uint32_t blocks = base.tiles_down * base.tiles_across * base.samples;

    for (uint32_t i = 0; i < blocks; i++) {
        blockIdx.x = i % base.tiles_down;
        blockIdx.y = i / base.tiles_down % base.tiles_across;
        blockIdx.z = i / base.tiles_down / base.tiles_across;
        for (int round = 0; round < 2; round++) {
            for (threadIdx.x = 0; threadIdx.x < TRANSFORM_THREADS; threadIdx.x++)
                kernel(args);
        }
    }
}

using kernel_function = void (*)(transform_args);
using any_function = void (*)(transform_any_args);

void work_launch(const transform_work &work, const transform_args &args, transform_kernel kernel)
{
    static const kernel_function kernels[3][TRANSFORM_ANY] = {
        {transform_f32_nchw_1, transform_f32_nchw_3, transform_f32_nchw_4, transform_f32_nhwc_3,
         transform_f32_nhwc_4},
        {transform_f16_nchw_1, transform_f16_nchw_3, transform_f16_nchw_4, transform_f16_nhwc_3,
         transform_f16_nhwc_4},
        {transform_bf16_nchw_1, transform_bf16_nchw_3, transform_bf16_nchw_4, transform_bf16_nhwc_3,
         transform_bf16_nhwc_4},
    };
    static const any_function anys[3] = {transform_f32_any, transform_f16_any, transform_bf16_any};
    const int type = work.plan->dtype == PINCLIENT_F32   ? 0
                     : work.plan->dtype == PINCLIENT_F16 ? 1
                                                         : 2;

    if (kernel != TRANSFORM_ANY) {
        launch(kernels[type][kernel], args, args);
        return;
    }
    static transform_any_args any;
    any.base = args;
    any.planes = work.layout == PINCLIENT_NCHW;
    any.by_table = !work.plan->by_line;
    std::memcpy(any.table, work.plan->table, sizeof any.table);
    launch(anys[type], any, args);
}

struct shape {
    uint32_t samples, height, width, channels;
    size_t out_offset; /* elements from a multiple of 16 bytes */
    size_t in_gap;     /* bytes between samples */
};

/* Fills in and flip, transforms on both, compares all of out and the bytes around it. */
void compare(const transform_plan &plan, const shape &shape, pinclient_layout layout,
             bool flip_in_memory)
{
    const size_t bytes = transform_dtype_bytes(plan.dtype);
    const size_t elements = (size_t)shape.height * shape.width * shape.channels;
    const size_t in_stride = elements + shape.in_gap;
    const size_t out_bytes = shape.samples * elements * bytes;
    std::vector<uint8_t> wanted(out_bytes), flip(shape.samples);
    /* As large as it is, so that a sanitizer sees a byte too far. */
    const size_t in_bytes = in_stride * (shape.samples - 1) + elements;
    uint8_t *in = static_cast<uint8_t *>(std::malloc(in_bytes));
    const size_t room = out_bytes + shape.out_offset * bytes + 2 * guard + 16;
    uint8_t *space = static_cast<uint8_t *>(std::aligned_alloc(64, (room + 63) / 64 * 64));
    uint8_t *out = space + guard + shape.out_offset * bytes;

    std::memset(space, poison, (room + 63) / 64 * 64);
    for (size_t i = 0; i < in_bytes; i++)
        in[i] = (uint8_t)(i * 2654435761u >> 13);
    for (uint32_t i = 0; i < shape.samples; i++)
        flip[i] = i % 3 == 1;
    transform_work work = {};
    work.plan = &plan;
    work.in = in;
    work.out = wanted.data();
    work.flip = flip.data();
    work.in_stride = in_stride;
    work.samples = shape.samples;
    work.height = shape.height;
    work.width = shape.width;
    work.layout = layout;
    transform_host(&work);
    work.out = out;
    transform_args args = {};
    transform_kernel kernel = transform_cut(&work, &args);
    args.samples = shape.samples;
    if (flip_in_memory)
        args.flip = flip.data();
    for (uint32_t i = 0; i < shape.samples; i++)
        args.flips[i / 32] |= (uint32_t)flip[i] << i % 32;
    work_launch(work, args, kernel);
    assert_memory_equal(out, wanted.data(), out_bytes);
    for (size_t i = 0; i < guard; i++) {
        assert_int_equal(out[-1 - (ptrdiff_t)i], poison);
        assert_int_equal(out[out_bytes + i], poison);
    }
    std::free(in);
    std::free(space);
}

const pinclient_dtype types[] = {PINCLIENT_F32, PINCLIENT_F16, PINCLIENT_BF16};
const double mean[] = {0.485, 0.456, 0.406, 0.5}, deviation[] = {0.229, 0.224, 0.225, 0.25};

void compare_all(const shape &shape)
{
    static transform_plan plan;

    for (pinclient_dtype type : types) {
        transform_plan_make(&plan, type, shape.channels, mean, deviation);
        assert_true(plan.by_line);
        for (pinclient_layout layout : {PINCLIENT_NCHW, PINCLIENT_NHWC}) {
            compare(plan, shape, layout, false);
            compare(plan, shape, layout, true);
        }
    }
}

void test_whole_vectors(void **)
{
    compare_all({3, 224, 224, 3, 0, 0});
    compare_all({5, 32, 16, 3, 0, 0});
    compare_all({2, 9, 40, 1, 0, 0});
    compare_all({2, 9, 40, 4, 0, 0});
    compare_all({70, 8, 8, 3, 0, 0});
    compare_all({2, 24, 24, 3, 0, 64});
}

void test_odd_sizes(void **)
{
    for (uint32_t channels = 1; channels <= 4; channels++) {
        compare_all({3, 1, 1, channels, 0, 0});
        compare_all({3, 7, 7, channels, 0, 0});
        compare_all({2, 33, 45, channels, 0, 3});
    }
    compare_all({2, 225, 225, 3, 0, 0});
    compare_all({2, 36, 36, 3, 0, 5});
}

void test_misaligned_out(void **)
{
    for (size_t offset = 1; offset < 8; offset++)
        compare_all({2, 16, 16, 3, offset, 0});
}

/* Rows that need several tiles. */
void test_wide_images(void **)
{
    compare_all({2, 3, 2048, 3, 0, 0});
    compare_all({2, 2, 4104, 3, 0, 0});
    compare_all({2, 2, 2049, 4, 0, 0});
    compare_all({1, 2, 6160, 1, 0, 0});
}

/* Values that no line gives. */
void test_by_table(void **)
{
    static transform_plan plan;

    for (pinclient_dtype type : types) {
        transform_plan_make(&plan, type, 3, mean, deviation);
        plan.by_line = false;
        for (uint32_t i = 0; i < 256; i++)
            plan.table[1][i] ^= 1;
        for (pinclient_layout layout : {PINCLIENT_NCHW, PINCLIENT_NHWC})
            compare(plan, {3, 40, 40, 3, 0, 0}, layout, false);
    }
}

} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_vectors),  cmocka_unit_test(test_odd_sizes),
        cmocka_unit_test(test_misaligned_out), cmocka_unit_test(test_wide_images),
        cmocka_unit_test(test_by_table),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
