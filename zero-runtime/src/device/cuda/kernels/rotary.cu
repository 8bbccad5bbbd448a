// Rotary position embeddings: cosines and sines of positions, and pairs of features turned by them. The processor's
// operations, to the bit.
#include "packs.cuh"

// By how much each pair of a head turns from token to token.
struct Frequencies {
    float of_pair[64];
};

// `table` (positions, head_dim) := cosines, then sines, of position times frequency, times `factor`. A thread has a pair of a
// position.
__global__ void rotary_table(float* table, u64 positions, u64 first, u32 pairs, float factor, Frequencies frequencies) {
    u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x, position = i / pairs;
    u32 pair = u32(i % pairs);
    if (position >= positions) return;
    SinCos turn = sin_cos(float(first + position) * frequencies.of_pair[pair]);
    table[position * 2 * pairs + pair] = turn.cos * factor;
    table[position * 2 * pairs + pairs + pair] = turn.sin * factor;
}

// Turns each pair (i, i + half) of `heads` heads of each row by row t % `length` of `table`, where t is the number of the row;
// by the negative angle if `sign` is -1. Some blocks share a row, and a thread has a pack of pairs of a head.
template <class E>
__global__ void rotate(E* x, u64 stride, u32 heads, u32 half, const float* table, u64 length, float sign, u32 blocks) {
    u64 row = blockIdx.x / blocks;
    u32 packs = (half + PACK - 1) / PACK, i = blockIdx.x % blocks * blockDim.x + threadIdx.x;
    u32 head = i / packs, pair = i % packs * PACK, here = rest(half, pair);
    if (head >= heads) return;
    E* low = x + row * stride + u64(head) * 2 * half + pair;
    const float* cosines = table + row % length * 2 * half + pair;
    bool aligned = is_aligned(x, stride | half), table_aligned = is_aligned(table, half);
    float lows[PACK], highs[PACK], cos[PACK], sin[PACK];
    load(lows, low, here, aligned);
    load(highs, low + half, here, aligned);
    load(cos, cosines, here, table_aligned);
    load(sin, cosines + half, here, table_aligned);
#pragma unroll
    for (int i = 0; i < PACK; i++) {
        float x = lows[i], y = highs[i], turn = sign * sin[i];
        lows[i] = fmaf(x, cos[i], -(y * turn));
        highs[i] = fmaf(y, cos[i], x * turn);
    }
    store(low, lows, here, aligned);
    store(low + half, highs, here, aligned);
}
