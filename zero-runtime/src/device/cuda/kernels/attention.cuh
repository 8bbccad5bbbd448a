// What kernels of attention share: shapes, which keys a query sees, and where backward keeps a number for each query.
//
// Scores are never kept: forward has a running maximum and sum, backward computes them anew from the log-sum-exp (Dao et al.,
// 2022). Nothing is summed by atomics: one kernel sums over keys for a block of queries, another over queries, and over the
// heads that share keys, for a block of keys.
#pragma once
#include "packs.cuh"

// What attention measures; as `AttentionShape`, with a window that sees all where there is none.
struct Shape {
    u64 query_stride, key_stride, value_stride;
    u32 length, before, heads, sharing, dim, window, blocks;
    float scale;
};

// Elements of a row of gradients: queries, keys, values.
__device__ inline u64 gradient_stride(const Shape& shape) {
    return u64(shape.heads + 2 * (shape.heads / shape.sharing)) * shape.dim;
}

// A query's `do . o`, which backward needs for each of its scores. It lies in the first 4 bytes of the query's own gradient,
// which is written last. Of a single bf16 there are no 4 bytes: then it is computed where it is used.
template <class E> __device__ inline float delta_of(const E* dquery, const E* dout, const E* out, u32 dim) {
    if (sizeof(E) * dim < sizeof(float)) return widen(*dout) * widen(*out);
    u16 halves[2];
    halves[0] = reinterpret_cast<const u16*>(dquery)[0];
    halves[1] = reinterpret_cast<const u16*>(dquery)[1];
    return __uint_as_float(halves[0] | u32(halves[1]) << 16);
}

// The first key that a query sees, and whether it sees one, all by their places in the sequence.
__device__ inline u32 first_seen(const Shape& shape, u32 place) {
    return place + 1 > shape.window ? place + 1 - shape.window : 0u;
}
__device__ inline bool sees(const Shape& shape, u32 place, u32 key) {
    return key <= place && place - key < shape.window;
}
