// Common code of attention kernels: shapes, which keys a query sees, and where backward keeps a number for each query.
//
// Scores are never kept: forward keeps a running maximum and sum, and backward recomputes them from the log-sum-exp
// (Dao et al., 2022). No sum uses atomics: one kernel sums over keys for a block of queries; another sums over queries,
// and over the heads that share keys, for a block of keys.
#pragma once
#include "packs.cuh"

// Elements of a row of gradients: queries, keys, values.
__device__ constexpr u64 gradient_stride(u32 heads, u32 sharing, u32 dim) { return u64(heads + 2 * (heads / sharing)) * dim; }

// The window of a query that sees all keys before it.
constexpr u32 ALL = 0xffffffffu;

// The sizes of attention, as in `AttentionShape`. Sizes that a plan fixes are constants; the number of tokens is not,
// because it grows from one call of a decoder to the next.
template <u32 QUERY_STRIDE, u32 KEY_STRIDE, u32 VALUE_STRIDE, u32 HEADS, u32 SHARING, u32 HEAD_DIM, u32 WINDOW, u32 SCALE_BITS>
struct Shape {
    static constexpr u64 query_stride = QUERY_STRIDE, key_stride = KEY_STRIDE, value_stride = VALUE_STRIDE;
    static constexpr u64 out_stride = u64(HEADS) * HEAD_DIM, dqkv_stride = gradient_stride(HEADS, SHARING, HEAD_DIM);
    static constexpr u32 heads = HEADS, sharing = SHARING, key_heads = HEADS / SHARING, dim = HEAD_DIM, window = WINDOW;
    static __device__ __forceinline__ float scale() { return __uint_as_float(SCALE_BITS); }
    u32 length, before, blocks;
};

// A query's `do . o`, which backward needs for each of its scores. It lies in the first 4 bytes of the query's own
// gradient, which is written last. A gradient of a single bf16 has no 4 bytes, so then the number is computed where it
// is used.
template <class E, class S>
__device__ inline float delta_of(const S& shape, const E* dquery, const E* dout, const E* out) {
    if (sizeof(E) * shape.dim < sizeof(float)) return widen(*dout) * widen(*out);
    u16 halves[2];
    halves[0] = reinterpret_cast<const u16*>(dquery)[0];
    halves[1] = reinterpret_cast<const u16*>(dquery)[1];
    return __uint_as_float(halves[0] | u32(halves[1]) << 16);
}

// The first key that a query sees, and whether it sees a given key, both by position in the sequence.
template <class S> __device__ inline u32 first_seen(const S& shape, u32 place) {
    return place + 1 > shape.window ? place + 1 - shape.window : 0u;
}
template <class S> __device__ inline bool sees(const S& shape, u32 place, u32 key) {
    return key <= place && (shape.window == ALL || place - key < shape.window);
}
