// Embeddings: rows of tables by token and by position, and their gradients without atomics. A row's gradient is the sum
// over its tokens in their order, to the bit the same as the processor's.
#include "packs.cuh"

// out (tokens, WIDTH) := row ids[t] of `table`, plus row t % `length` of `positions` if there are positions. BLOCKS
// blocks share a row.
template <class E, u32 VOCABULARY, u32 WIDTH, u32 BLOCKS>
__global__ void embed(const u32* ids, const E* table, const E* positions, E* out, u64 length) {
    u64 token = blockIdx.x / BLOCKS, id = ids[token];
    u32 column = (blockIdx.x % BLOCKS * blockDim.x + threadIdx.x) * PACK, here = rest(WIDTH, column);
    if (here == 0) return;
    bool aligned = is_aligned(table, WIDTH) && is_aligned(out, WIDTH) && is_aligned(positions, WIDTH);
    float words[PACK], places[PACK];
    // An id without a row results in NaN, so that it shows.
#pragma unroll
    for (int i = 0; i < PACK; i++) words[i] = not_a_number();
    if (id < VOCABULARY) load(words, table + id * WIDTH + column, here, aligned);
    if (positions) {
        load(places, positions + token % length * WIDTH + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) words[i] = words[i] + places[i];
    }
    store(out + token * WIDTH + column, words, here, aligned);
}

// The most rows of a table in a block, the found tokens that it holds, the ids that a thread reads together, and the
// columns that a thread sums.
constexpr u32 SLOTS = 64, FOUND = 2048, IDS = 4, COLUMNS = 4;

struct Tokens {
    // Tokens in their order, and then by row and in their order.
    u32 found[FOUND], sorted[FOUND];
    u8 slots[FOUND];
    u32 of_warps[BLOCK / 32], counts[SLOTS], starts[SLOTS];
};

// Adds to `tokens.found` the tokens from `first` on whose ids are in the block's group, and returns the new number of
// found tokens.
template <u32 VOCABULARY, u32 SHIFT>
__device__ inline u32 find(Tokens& tokens, u32 count, const u32* ids, u64 first, u64 end, u32 group) {
    u32 matches = 0, at = u32(threadIdx.x) * IDS, slots[IDS];
#pragma unroll
    for (u32 i = 0; i < IDS; i++) {
        u32 id = first + at + i < end ? ids[first + at + i] : ~0u;
        bool is_match = (id & ((1u << SHIFT) - 1u)) == group && id < VOCABULARY;
        slots[i] = is_match ? id >> SHIFT : SLOTS;
        matches += is_match;
    }
    // The number of matches before this thread's.
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, before = matches;
#pragma unroll
    for (u32 lanes = 1; lanes < 32; lanes *= 2) {
        u32 other = __shfl_up_sync(ALL_LANES, before, lanes);
        before += lane >= lanes ? other : 0u;
    }
    if (lane == 31) tokens.of_warps[warp] = before;
    __syncthreads();
    u32 place = count + before - matches;
#pragma unroll
    for (u32 other = 0; other < BLOCK / 32; other++) {
        place += other < warp ? tokens.of_warps[other] : 0u;
        count += tokens.of_warps[other];
    }
#pragma unroll
    for (u32 i = 0; i < IDS; i++) {
        if (slots[i] == SLOTS) continue;
        tokens.found[place] = u32(first) + at + i;
        tokens.slots[place++] = u8(slots[i]);
    }
    __syncthreads();
    return count;
}

// `tokens.sorted` := the found tokens, by row; each warp does every eighth row.
__device__ inline void sort(Tokens& tokens, u32 count) {
    u32 lane = threadIdx.x % 32;
    for (u32 slot = threadIdx.x / 32; slot < SLOTS; slot += BLOCK / 32) {
        u32 matches = 0;
        for (u32 i = 0; i < count; i += 32)
            matches += __popc(__ballot_sync(ALL_LANES, i + lane < count && tokens.slots[i + lane] == slot));
        if (lane == 0) tokens.counts[slot] = matches;
    }
    __syncthreads();
    if (threadIdx.x < SLOTS) {
        u32 start = 0;
        for (u32 slot = 0; slot < threadIdx.x; slot++) start += tokens.counts[slot];
        tokens.starts[threadIdx.x] = start;
    }
    __syncthreads();
    for (u32 slot = threadIdx.x / 32; slot < SLOTS; slot += BLOCK / 32) {
        u32 to = tokens.starts[slot];
        if (tokens.counts[slot] == 0) continue;
        for (u32 i = 0; i < count; i += 32) {
            bool is_match = i + lane < count && tokens.slots[i + lane] == slot;
            u32 matches = __ballot_sync(ALL_LANES, is_match);
            if (is_match) tokens.sorted[to + __popc(matches & ((1u << lane) - 1u))] = tokens.found[i + lane];
            to += __popc(matches);
        }
    }
    __syncthreads();
}

// dtable (VOCABULARY, WIDTH) := or += for each row the sum of `dout` over its tokens. A block has the rows whose ids
// end in the SHIFT bits of its group, so that neighbouring rows, of which the first are the most frequent, go to many
// blocks; it reads all ids once. Each block of a group has a tile of columns, and each thread has some of these.
template <class E, u32 VOCABULARY, u32 WIDTH, u32 SHIFT, u32 TILES>
__global__ void embed_backward(const u32* ids, const E* dout, float* dtable, u64 count, u32 add) {
    __shared__ Tokens tokens;
    u32 group = blockIdx.x / TILES, first_column = blockIdx.x % TILES * BLOCK * COLUMNS + threadIdx.x;
    if (!add) {
        for (u64 row = group; row < VOCABULARY; row += 1u << SHIFT) {
#pragma unroll
            for (u32 i = 0; i < COLUMNS; i++) {
                u32 column = first_column + i * BLOCK;
                if (column < WIDTH) dtable[row * WIDTH + column] = 0.0f;
            }
        }
    }
    u32 found = 0;
    for (u64 first = 0; first < count; first += BLOCK * IDS) {
        found = find<VOCABULARY, SHIFT>(tokens, found, ids, first, count, group);
        bool is_last = first + BLOCK * IDS >= count;
        if (found == 0 || (!is_last && found + BLOCK * IDS <= FOUND)) continue;
        sort(tokens, found);
        found = 0;
        for (u32 slot = 0; slot < SLOTS; slot++) {
            u32 start = tokens.starts[slot], end = start + tokens.counts[slot];
            if (start == end) continue;
            float* to = dtable + u64(group + (slot << SHIFT)) * WIDTH;
            float sums[COLUMNS];
#pragma unroll
            for (u32 i = 0; i < COLUMNS; i++) {
                u32 column = first_column + i * BLOCK;
                sums[i] = column < WIDTH ? to[column] : 0.0f;
            }
#pragma unroll 4
            for (u32 at = start; at < end; at++) {
                const E* from = dout + u64(tokens.sorted[at]) * WIDTH;
#pragma unroll
                for (u32 i = 0; i < COLUMNS; i++) {
                    u32 column = first_column + i * BLOCK;
                    if (column < WIDTH) sums[i] += widen(from[column]);
                }
            }
#pragma unroll
            for (u32 i = 0; i < COLUMNS; i++) {
                u32 column = first_column + i * BLOCK;
                if (column < WIDTH) to[column] = sums[i];
            }
        }
        // All threads have read the found tokens.
        __syncthreads();
    }
}

// dpositions (context, WIDTH) := or += for each position the sum of `dout` over the sequences. BLOCKS blocks share a row.
template <class E, u32 WIDTH, u32 BLOCKS>
__global__ void positions_backward(const E* dout, float* dpositions, u64 sequences, u64 length, u32 add) {
    u64 place = blockIdx.x / BLOCKS;
    u32 column = (blockIdx.x % BLOCKS * blockDim.x + threadIdx.x) * PACK, here = rest(WIDTH, column);
    if (here == 0) return;
    bool aligned = is_aligned(dout, WIDTH), sums_aligned = is_aligned(dpositions, WIDTH);
    float* to = dpositions + place * WIDTH + column;
    float sums[PACK] = {}, gradients[PACK];
    if (add) load(sums, to, here, sums_aligned);
    if (place < length) {
#pragma unroll 4
        for (u64 sequence = 0; sequence < sequences; sequence++) {
            load(gradients, dout + (sequence * length + place) * WIDTH + column, here, aligned);
#pragma unroll
            for (int i = 0; i < PACK; i++) sums[i] += gradients[i];
        }
    }
    store(to, sums, here, sums_aligned);
}
