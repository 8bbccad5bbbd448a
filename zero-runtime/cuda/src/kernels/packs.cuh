// Packs: eight consecutive elements of a row, which one thread loads, computes and stores together, and sums over the
// threads that share a row. The elements of a thread depend only on the row's width, so the order of sums does too;
// whether a pack moves in one access depends on its address.
#pragma once
#include "math.cuh"

constexpr int PACK = EIGHT;

// Whether packs of rows that begin here and are `stride` elements apart may be moved in one access.
__device__ inline bool is_aligned(const void* start, u64 stride) {
    return reinterpret_cast<u64>(start) % sizeof(Quarter) == 0 && stride % PACK == 0;
}

// `to` := `count` elements, at most eight, followed by zeros.
template <class E> __device__ inline void load(float (&to)[PACK], const E* from, u32 count, bool aligned) {
    if (aligned && count >= PACK) return load_eight(to, from);
#pragma unroll
    for (int i = 0; i < PACK; i++) to[i] = i < count ? widen(from[i]) : 0.0f;
}

// The first `count` elements, at most eight, := `from`, rounded.
template <class E> __device__ inline void store(E* to, const float (&from)[PACK], u32 count, bool aligned) {
    if (aligned && count >= PACK) return store_eight(to, from);
#pragma unroll
    for (int i = 0; i < PACK; i++)
        if (i < count) to[i] = narrow<E>(from[i]);
}

// The number of elements that are left of a row from a column on, at most a pack.
__device__ inline u32 rest(u32 width, u32 column) { return column < width ? min(width - column, u32(PACK)) : 0u; }

// Threads of a block, unless a kernel says otherwise.
constexpr u32 BLOCK = 256;

constexpr u32 ALL_LANES = 0xffffffffu;

// Sums over the THREADS neighbouring threads that work on a row; all of them receive the sums. THREADS is a power of
// two up to a warp, or some warps. The block has a multiple of THREADS threads, and all of them call this.
template <int THREADS, int COUNT> __device__ inline void row_sums(float (&values)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
#pragma unroll
        for (int lanes = min(THREADS, 32) / 2; lanes > 0; lanes /= 2)
            values[i] += __shfl_xor_sync(ALL_LANES, values[i], lanes);
    }
    if (THREADS > 32) {
        __shared__ float of_warps[COUNT][32];
        u32 first = threadIdx.x / THREADS * (THREADS / 32);
        // The results of earlier sums have been read.
        __syncthreads();
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (threadIdx.x % 32 == 0) of_warps[i][threadIdx.x / 32] = values[i];
            values[i] = 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
#pragma unroll
            for (int warp = 0; warp < THREADS / 32; warp++) values[i] += of_warps[i][first + warp];
        }
    }
}

template <int THREADS> __device__ inline float row_sum(float value) {
    float values[1] = {value};
    row_sums<THREADS>(values);
    return values[0];
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
        u32 first = threadIdx.x / THREADS * (THREADS / 32);
        __syncthreads();
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
        __syncthreads();
#pragma unroll
        for (u32 warp = first; warp < first + THREADS / 32; warp++) value = of_warps[warp] > value ? of_warps[warp] : value;
    }
    return value;
}

// The row that a thread works on, if THREADS threads share each row.
template <int THREADS> __device__ inline u64 row_of_thread() {
    return u64(blockIdx.x) * (blockDim.x / THREADS) + threadIdx.x / THREADS;
}
