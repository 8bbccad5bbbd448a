// Packs: eight consecutive elements of a row, which one thread loads, computes and stores together, and sums over the
// threads that share a row. Which elements a thread has depends on the row's width alone, so the order of sums does
// too; whether a pack moves in one piece depends on its address.
#pragma once
#include "math.cuh"

constexpr int PACK = 8;

struct alignas(16) Quarter {
    u32 words[4];
};

// Whether packs of rows that begin here and are `stride` elements apart may be moved in one piece.
__device__ inline bool is_aligned(const void* start, u64 stride) {
    return reinterpret_cast<u64>(start) % 16 == 0 && stride % PACK == 0;
}

// `to` := `count` elements, at most eight, followed by zeros.
template <class E> __device__ inline void load(float (&to)[PACK], const E* from, u32 count, bool aligned) {
    if (aligned && count >= PACK) {
        constexpr int QUARTERS = PACK * sizeof(E) / sizeof(Quarter);
        union Pack {
            Quarter quarters[QUARTERS];
            E elements[PACK];
            __device__ Pack() {}
        } pack;
#pragma unroll
        for (int i = 0; i < QUARTERS; i++) pack.quarters[i] = reinterpret_cast<const Quarter*>(from)[i];
#pragma unroll
        for (int i = 0; i < PACK; i++) to[i] = widen(pack.elements[i]);
        return;
    }
#pragma unroll
    for (int i = 0; i < PACK; i++) to[i] = i < count ? widen(from[i]) : 0.0f;
}

// The first `count` elements, at most eight, := `from`, rounded.
template <class E> __device__ inline void store(E* to, const float (&from)[PACK], u32 count, bool aligned) {
    if (aligned && count >= PACK) {
        constexpr int QUARTERS = PACK * sizeof(E) / sizeof(Quarter);
        union Pack {
            Quarter quarters[QUARTERS];
            E elements[PACK];
            __device__ Pack() {}
        } pack;
#pragma unroll
        for (int i = 0; i < PACK; i++) pack.elements[i] = narrow<E>(from[i]);
#pragma unroll
        for (int i = 0; i < QUARTERS; i++) reinterpret_cast<Quarter*>(to)[i] = pack.quarters[i];
        return;
    }
#pragma unroll
    for (int i = 0; i < PACK; i++)
        if (i < count) to[i] = narrow<E>(from[i]);
}

// How much of a row is left from a column on, at most a pack.
__device__ inline u32 rest(u32 width, u32 column) { return column < width ? min(width - column, u32(PACK)) : 0u; }

// Threads of a block, unless a kernel says otherwise.
constexpr u32 BLOCK = 256;

constexpr u32 ALL_LANES = 0xffffffffu;

// The sum over the THREADS neighbouring threads that work on a row, which all of them get. THREADS is a power of two up
// to a warp, or a block of whole warps. All threads of the block call this.
template <int THREADS> __device__ inline float row_sum(float value) {
#pragma unroll
    for (int lanes = min(THREADS, 32) / 2; lanes > 0; lanes /= 2) value += __shfl_xor_sync(ALL_LANES, value, lanes);
    if (THREADS > 32) {
        __shared__ float of_warps[32];
        // The result of an earlier sum has been read.
        __syncthreads();
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
        __syncthreads();
        value = 0.0f;
#pragma unroll
        for (int warp = 0; warp < THREADS / 32; warp++) value += of_warps[warp];
    }
    return value;
}

// The largest value, as with `row_sum`; NaN is ignored.
template <int THREADS> __device__ inline float row_max(float value) {
#pragma unroll
    for (int lanes = min(THREADS, 32) / 2; lanes > 0; lanes /= 2) {
        float other = __shfl_xor_sync(ALL_LANES, value, lanes);
        value = other > value ? other : value;
    }
    if (THREADS > 32) {
        __shared__ float of_warps[32];
        __syncthreads();
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
        __syncthreads();
#pragma unroll
        for (int warp = 0; warp < THREADS / 32; warp++) value = of_warps[warp] > value ? of_warps[warp] : value;
    }
    return value;
}

// The row that a thread works on, where THREADS threads share each row.
template <int THREADS> __device__ inline u64 row_of_thread() {
    return u64(blockIdx.x) * (blockDim.x / THREADS) + threadIdx.x / THREADS;
}
