/*
 * The kernels of pinclient_transform: bytes height x width x channels become
 * normalised floats, in planes or as they lie.
 *
 * A block loads its tile into shared memory, 16 bytes a thread, so that threads
 * are free to read it in the order of the output, and stores 16 bytes a thread,
 * neighbours side by side. Values come from a line that the host has checked
 * for all 256 bytes (transform_plan.c), so that arithmetic, and not lookups in
 * shared memory with their bank conflicts, stands beside the memory's speed.
 *
 * The kernels named for their channels need a width that is a multiple of a
 * 16-byte vector of output, out aligned to 16 bytes, and in, with in_stride, to
 * as many bytes as the vector has elements. Those named `any` need nothing.
 */
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "transform_kernel.h"

namespace
{

struct tile {
    uint32_t sample, row, column, rows, columns;
    bool flip;
};

__device__ tile tile_find(const transform_args &args)
{
    tile tile;

    tile.row = blockIdx.x * args.rows;
    tile.column = blockIdx.y * args.columns;
    tile.sample = blockIdx.z;
    tile.rows = min(args.rows, args.height - tile.row);
    tile.columns = min(args.columns, args.width - tile.column);
    tile.flip = args.flip ? args.flip[tile.sample] != 0
                          : (args.flips[tile.sample / 32] >> tile.sample % 32 & 1) != 0;
    return tile;
}

/* Copies the tile's bytes to shared memory, which has room for 16 more, and returns where they
 * begin there: as far from a multiple of 16 as in memory. No byte beside them is read. */
template <uint32_t BYTES_MOST>
__device__ const uint8_t *tile_load(const transform_args &args, const tile &tile, uint32_t channels,
                                    uint8_t *shared)
{
    /* All of a thread's loads are under way before the first is waited for. */
    constexpr uint32_t loads = (BYTES_MOST / 16 + TRANSFORM_THREADS - 1) / TRANSFORM_THREADS;
    uint4 loaded[loads];
    uint32_t column = tile.flip ? args.width - tile.column - tile.columns : tile.column;
    const uint8_t *from = args.in + tile.sample * args.in_stride +
                          ((size_t)tile.row * args.width + column) * channels;
    uint32_t bytes = tile.rows * tile.columns * channels;
    uint32_t lead = (uint32_t)((uintptr_t)from % 16);
    uint32_t head = lead ? min(16 - lead, bytes) : 0;
    uint32_t vectors = (bytes - head) / 16, tail = (bytes - head) % 16;

    if (threadIdx.x < head)
        shared[lead + threadIdx.x] = from[threadIdx.x];
    const uint4 *body = reinterpret_cast<const uint4 *>(from + head);
    uint4 *to = reinterpret_cast<uint4 *>(shared + lead + head);
#pragma unroll
    for (uint32_t j = 0; j < loads; j++) {
        uint32_t i = threadIdx.x + j * TRANSFORM_THREADS;
        if (i < vectors)
            loaded[j] = __ldg(body + i);
    }
#pragma unroll
    for (uint32_t j = 0; j < loads; j++) {
        uint32_t i = threadIdx.x + j * TRANSFORM_THREADS;
        if (i < vectors)
            to[i] = loaded[j];
    }
    if (threadIdx.x < tail)
        shared[lead + bytes - tail + threadIdx.x] = from[bytes - tail + threadIdx.x];
    __syncthreads();
    return shared + lead;
}

/* The element of the tile that lies in row x where i does, mirrored; for count neighbours the
 * first of theirs, which are in one row. */
struct mirror {
    uint32_t columns;
    float reciprocal;

    __device__ explicit mirror(const tile &tile)
        : columns(tile.columns), reciprocal(__frcp_rn((float)tile.columns))
    {
    }

    /* The row by a multiplication: a quotient's distance from the next whole number, half a
     * column at least, is far beyond its error as long as a tile is below 2^20 pixels. */
    __device__ uint32_t operator()(uint32_t i, uint32_t count) const
    {
        uint32_t row = (uint32_t)(((float)i + 0.5f) * reciprocal);
        return (2 * row + 1) * columns - count - i;
    }
};

__device__ float line_at(const transform_line &line, float x)
{
    return __fadd_rn(__fmaf_rn(x, line.a, line.b), __fmaf_rn(x, line.c, line.d));
}

/* Byte i of word as a float: 2^23 + byte, less 2^23. */
__device__ float byte_at(uint32_t word, uint32_t i)
{
    return __uint_as_float(__byte_perm(word, 0x4b000000, 0x7440 | i)) - 8388608.0f;
}

__device__ uint32_t bits_of(__half2 pair)
{
    return *reinterpret_cast<uint32_t *>(&pair);
}

__device__ uint32_t bits_of(__nv_bfloat162 pair)
{
    return *reinterpret_cast<uint32_t *>(&pair);
}

/* The output types: how many are in 16 bytes, and how they get there. */
struct f32 {
    typedef uint32_t bits;
    static constexpr uint32_t in_vector = 4;
    static constexpr uint32_t tile_pixels = TRANSFORM_TILE_BYTES / sizeof(bits);

    static __device__ uint32_t of(float y)
    {
        return __float_as_uint(y);
    }
    static __device__ uint4 pack(const float *y)
    {
        return make_uint4(of(y[0]), of(y[1]), of(y[2]), of(y[3]));
    }
};

struct f16 {
    typedef uint16_t bits;
    static constexpr uint32_t in_vector = 8;
    static constexpr uint32_t tile_pixels = TRANSFORM_TILE_BYTES / sizeof(bits);

    static __device__ uint16_t of(float y)
    {
        return __half_as_ushort(__float2half_rn(y));
    }
    static __device__ uint32_t two(const float *y)
    {
        return bits_of(__floats2half2_rn(y[0], y[1]));
    }
    static __device__ uint4 pack(const float *y)
    {
        return make_uint4(two(y), two(y + 2), two(y + 4), two(y + 6));
    }
};

struct bf16 {
    typedef uint16_t bits;
    static constexpr uint32_t in_vector = 8;
    static constexpr uint32_t tile_pixels = TRANSFORM_TILE_BYTES / sizeof(bits);

    static __device__ uint16_t of(float y)
    {
        return __bfloat16_as_ushort(__float2bfloat16_rn(y));
    }
    static __device__ uint32_t two(const float *y)
    {
        return bits_of(__floats2bfloat162_rn(y[0], y[1]));
    }
    static __device__ uint4 pack(const float *y)
    {
        return make_uint4(two(y), two(y + 2), two(y + 4), two(y + 6));
    }
};

template <typename T> __device__ void vector_store(typename T::bits *to, const float *y)
{
    *reinterpret_cast<uint4 *>(to) = T::pack(y);
}

/* N words from shared memory, by twos where the address allows. */
template <uint32_t N, bool TWOS> __device__ void words_load(const uint8_t *from, uint32_t *words)
{
    if (TWOS) {
#pragma unroll
        for (uint32_t i = 0; i < N; i += 2) {
            uint2 two = reinterpret_cast<const uint2 *>(from)[i / 2];
            words[i] = two.x;
            words[i + 1] = two.y;
        }
    } else {
#pragma unroll
        for (uint32_t i = 0; i < N; i++)
            words[i] = reinterpret_cast<const uint32_t *>(from)[i];
    }
}

/* A thread takes as many pixels as a vector has elements, and stores a vector in each plane. */
template <typename T, uint32_t C, bool FLIP>
__device__ void planes_write(const transform_args &args, const tile &tile, const uint8_t *from)
{
    constexpr uint32_t V = T::in_vector;
    const size_t plane = (size_t)args.height * args.width;
    const uint32_t pixels = tile.rows * tile.columns;
    const mirror mirror(tile);
    typename T::bits *to = static_cast<typename T::bits *>(args.out) + tile.sample * C * plane +
                           (size_t)tile.row * args.width + tile.column;

    for (uint32_t i = threadIdx.x * V; i < pixels; i += TRANSFORM_THREADS * V) {
        uint32_t words[V * C / 4];
        words_load<V * C / 4, V == 8>(from + (FLIP ? mirror(i, V) : i) * C, words);
#pragma unroll
        for (uint32_t c = 0; c < C; c++) {
            float y[V];
#pragma unroll
            for (uint32_t k = 0; k < V; k++) {
                uint32_t byte = (FLIP ? V - 1 - k : k) * C + c;
                y[k] = line_at(args.line[c], byte_at(words[byte / 4], byte % 4));
            }
            vector_store<T>(to + c * plane + i, y);
        }
    }
}

/* A thread takes a vector of elements. Which channel is its first stays the same: a block's threads
 * take a multiple of the channels in a round. */
template <typename T, uint32_t C, bool FLIP>
__device__ void pixels_write(const transform_args &args, const tile &tile, const uint8_t *from)
{
    constexpr uint32_t V = T::in_vector;
    const uint32_t elements = tile.rows * tile.columns * C;
    const uint32_t phase = threadIdx.x * V % C;
    const mirror mirror(tile);
    transform_line line[C];
    typename T::bits *to =
        static_cast<typename T::bits *>(args.out) +
        (((size_t)tile.sample * args.height + tile.row) * args.width + tile.column) * C;

    static_assert(TRANSFORM_THREADS % C == 0, "the phase of a thread changes");
#pragma unroll
    for (uint32_t c = 0; c < C; c++)
        line[c] = args.line[(phase + c) % C];
    for (uint32_t i = threadIdx.x * V; i < elements; i += TRANSFORM_THREADS * V) {
        float y[V];
        if (FLIP) {
            const uint8_t *pixel = from + mirror(i / C, 1) * C;
#pragma unroll
            for (uint32_t k = 0; k < V; k++) {
                int at = (int)((phase + k) % C) - (int)((phase + k) / C * C);
                y[k] = line_at(line[k % C], byte_at(pixel[at], 0));
            }
        } else {
            uint32_t words[V / 4];
            words_load<V / 4, V == 8>(from + i, words);
#pragma unroll
            for (uint32_t k = 0; k < V; k++)
                y[k] = line_at(line[k % C], byte_at(words[k / 4], k % 4));
        }
        vector_store<T>(to + i, y);
    }
}

template <typename T, uint32_t C, bool PLANES> __device__ void transform(const transform_args &args)
{
    __shared__ __align__(16) uint8_t shared[T::tile_pixels * C + 16];
    const tile tile = tile_find(args);
    const uint8_t *from = tile_load<T::tile_pixels * C>(args, tile, C, shared);

    if (PLANES && tile.flip)
        planes_write<T, C, true>(args, tile, from);
    else if (PLANES)
        planes_write<T, C, false>(args, tile, from);
    else if (tile.flip)
        pixels_write<T, C, true>(args, tile, from);
    else
        pixels_write<T, C, false>(args, tile, from);
}

/* A thread takes an element at a time, in planes a pixel. */
template <typename T> __device__ void transform_any(const transform_any_args &args)
{
    __shared__ __align__(16) uint8_t shared[T::tile_pixels * TRANSFORM_CHANNELS + 16];
    __shared__ typename T::bits table[TRANSFORM_CHANNELS][256];
    const transform_args &base = args.base;
    const uint32_t channels = base.channels;
    const tile tile = tile_find(base);
    const mirror mirror(tile);

    /* Done before the barrier in tile_load. */
    for (uint32_t i = threadIdx.x; args.by_table && i < channels * 256; i += TRANSFORM_THREADS)
        table[i / 256][i % 256] = (typename T::bits)args.table[i / 256][i % 256];
    const uint8_t *from =
        tile_load<T::tile_pixels * TRANSFORM_CHANNELS>(base, tile, channels, shared);
    const size_t plane = (size_t)base.height * base.width;
    const uint32_t pixels = tile.rows * tile.columns;
    typename T::bits *to =
        static_cast<typename T::bits *>(base.out) + tile.sample * channels * plane;
    const size_t first = (size_t)tile.row * base.width + tile.column;
    auto value = [&](uint32_t c, uint32_t pixel) -> typename T::bits {
        uint8_t x = from[(tile.flip ? mirror(pixel, 1) : pixel) * channels + c];
        return args.by_table ? table[c][x] : T::of(line_at(base.line[c], byte_at(x, 0)));
    };
    if (args.planes) {
        for (uint32_t i = threadIdx.x; i < pixels; i += TRANSFORM_THREADS) {
            for (uint32_t c = 0; c < channels; c++)
                to[c * plane + first + i] = value(c, i);
        }
    } else {
        for (uint32_t i = threadIdx.x; i < pixels * channels; i += TRANSFORM_THREADS)
            to[first * channels + i] = value(i % channels, i / channels);
    }
}

} // namespace

#define KERNEL(type, channels, name, planes)                                                       \
    extern "C" __global__ void __launch_bounds__(TRANSFORM_THREADS)                                \
        transform_##type##_##name##_##channels(const __grid_constant__ transform_args args)        \
    {                                                                                              \
        transform<type, channels, planes>(args);                                                   \
    }
#define KERNELS(type)                                                                              \
    KERNEL(type, 1, nchw, true)                                                                    \
    KERNEL(type, 3, nchw, true)                                                                    \
    KERNEL(type, 4, nchw, true)                                                                    \
    KERNEL(type, 3, nhwc, false)                                                                   \
    KERNEL(type, 4, nhwc, false)                                                                   \
    extern "C" __global__ void __launch_bounds__(TRANSFORM_THREADS)                                \
        transform_##type##_any(const __grid_constant__ transform_any_args args)                    \
    {                                                                                              \
        transform_any<type>(args);                                                                 \
    }

KERNELS(f32)
KERNELS(f16)
KERNELS(bf16)
