// Rotary position embeddings: cosines and sines of positions, and rotations of pairs of features by them. The same
// operations as the processor's, to the bit.
#include "packs.cuh"

// The angle by which each pair of a head turns from token to token.
struct Frequencies {
    float of_pair[64];
};

// `table` (positions, 2 PAIRS) := cosines, then sines, of position times frequency, times a factor. Each thread has one
// pair of a position.
template <u32 PAIRS, u32 FACTOR_BITS>
__global__ void rotary_table(float* table, u64 positions, u64 first, Frequencies frequencies) {
    u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x, position = i / PAIRS;
    u32 pair = u32(i % PAIRS);
    if (position >= positions) return;
    float factor = __uint_as_float(FACTOR_BITS);
    SinCos turn = sin_cos(float(first + position) * frequencies.of_pair[pair]);
    table[position * 2 * PAIRS + pair] = turn.cos * factor;
    table[position * 2 * PAIRS + PAIRS + pair] = turn.sin * factor;
}

// Rotates each pair (i, i + HALF) of HEADS heads of each row by row t % `length` of `table`, where t is the number of
// the row; by the negative angle if `sign` is -1. BLOCKS blocks share a row, and a thread has a pack of pairs of a
// head.
template <class E, u32 STRIDE, u32 HEADS, u32 HALF, u32 BLOCKS>
__global__ void rotate(E* x, const float* table, u64 length, float sign) {
    u64 row = blockIdx.x / BLOCKS;
    constexpr u32 PACKS = (HALF + PACK - 1) / PACK;
    u32 i = blockIdx.x % BLOCKS * blockDim.x + threadIdx.x, head = i / PACKS, pair = i % PACKS * PACK, here = rest(HALF, pair);
    if (head >= HEADS) return;
    E* low = x + row * STRIDE + u64(head) * 2 * HALF + pair;
    const float* cosines = table + row % length * 2 * HALF + pair;
    bool aligned = is_aligned(x, STRIDE | HALF), table_aligned = is_aligned(table, HALF);
    float lows[PACK], highs[PACK], cos[PACK], sin[PACK];
    load(lows, low, here, aligned);
    load(highs, low + HALF, here, aligned);
    load(cos, cosines, here, table_aligned);
    load(sin, cosines + HALF, here, table_aligned);
#pragma unroll
    for (int i = 0; i < PACK; i++) {
        float x = lows[i], y = highs[i], turn = sign * sin[i];
        lows[i] = fmaf(x, cos[i], -(y * turn));
        highs[i] = fmaf(y, cos[i], x * turn);
    }
    store(low, lows, here, aligned);
    store(low + HALF, highs, here, aligned);
}
