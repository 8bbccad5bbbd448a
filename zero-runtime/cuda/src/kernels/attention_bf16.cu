// Attention in bf16 on tensor cores. A block has four warps, each with 16 queries or 16 keys and all of their features.
// In shared memory heads are DIM wide, a multiple of 16; features that a head does not have are zeros. Sums are f32;
// weights and gradients of scores are rounded to bf16 before the products that they are factors of. Weights are
// powers of two, for which a GPU has an instruction; the scale of scores is a part of the exponent. Blocks are small
// enough that three or four of them, of heads of up to 64 features, run at a time on a multiprocessor: more rows for each
// warp need fewer loads from shared memory, but are slower on an H100.
#include "attention.cuh"
#include "mma.cuh"

constexpr u32 WARPS = 4, THREADS = 32 * WARPS, ROWS = 16 * WARPS;

// Blocks of forward that run at a time, if heads are narrow. For a fourth block, the compiler spills registers of GPUs
// before Hopper.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr u32 FORWARD_BLOCKS = 3;
#else
constexpr u32 FORWARD_BLOCKS = 4;
#endif

// Elements from row to row in shared memory: an odd number of 16 bytes, so that eight rows never share a bank.
template <int DIM> constexpr int STRIDE = DIM + 8;

// Rows of a head in memory. With ALIGNED, the address of each row and its length in bytes are multiples of 16. If rows are also as
// wide as in shared memory, a thread has the same features of every STEP-th row, and `start` is the address of its first ones.
template <int DIM, int ALIGNED, u32 HEAD_DIM> struct Rows {
    static constexpr u32 PACKS = DIM / 8, STEP = THREADS / PACKS;
    static constexpr bool IS_WHOLE = ALIGNED && HEAD_DIM == DIM && THREADS % PACKS == 0;
    const bf16* start;
    u32 stride;

    __device__ __forceinline__ Rows(const bf16* from, u32 stride) : start(from), stride(stride) {
        if (IS_WHOLE) start += row() * stride + feature();
    }

    static __device__ __forceinline__ u32 row() { return threadIdx.x / PACKS; }
    static __device__ __forceinline__ u32 feature() { return threadIdx.x % PACKS * 8; }

    // Begins to fetch COUNT rows from `first` on; zeros beyond the rows and features.
    template <int COUNT> __device__ __forceinline__ void fetch(bf16* to, u32 first, u32 end) const {
        if constexpr (IS_WHOLE) {
            const bf16* from = start + u64(first) * stride;
            bf16* place = to + row() * STRIDE<DIM> + feature();
            // Almost all tiles are whole.
            if (first + COUNT <= end) {
#pragma unroll
                for (u32 i = 0; i < COUNT; i += STEP) copy_async_16(place + i * STRIDE<DIM>, from + i * stride);
                return;
            }
#pragma unroll 1
            for (u32 i = 0; i < COUNT; i += STEP) {
                bool is_there = first + row() + i < end;
                const bf16* any = start - (row() * stride + feature());
                copy_async_16(place + i * STRIDE<DIM>, is_there ? from + i * stride : any, is_there);
            }
        } else {
#pragma unroll 1
            for (u32 i = threadIdx.x; i < COUNT * PACKS; i += THREADS) {
                u32 row = i / PACKS, feature = i % PACKS * 8;
                bool is_there = first + row < end && feature < HEAD_DIM;
                const bf16* from = start + (is_there ? u64(first + row) * stride + feature : 0);
                bf16* place = to + row * STRIDE<DIM> + feature;
                if constexpr (ALIGNED) {
                    copy_async_16(place, from, is_there);
                } else {
#pragma unroll
                    for (u32 j = 0; j < 8; j++) place[j] = is_there && feature + j < HEAD_DIM ? from[j] : bf16{0};
                }
            }
        }
    }
};

// Stores two neighbours of a row, from an even feature on; `whole` if rows begin at multiples of 4 bytes and have an
// even width.
__device__ __forceinline__ void store_pair(bf16* row, u32 feature, u32 dim, float low, float high, bool whole) {
    if (feature >= dim) return;
    if (whole) {
        *reinterpret_cast<u32*>(row + feature) = pack_bf16(low, high);
        return;
    }
    row[feature] = narrow<bf16>(low);
    if (feature + 1 < dim) row[feature + 1] = narrow<bf16>(high);
}

__device__ __forceinline__ bool is_whole(const bf16* start, u64 stride, u32 dim) {
    return reinterpret_cast<u64>(start) % 4 == 0 && stride % 2 == 0 && dim % 2 == 0;
}

// Stores 16 rows of sums, or as many as there are.
template <int DIM>
__device__ __forceinline__ void store_sums(bf16* to, u64 stride, u32 first, u32 end, u32 dim, const float (&sums)[DIM / 8][4]) {
    u32 lane = threadIdx.x % 32;
    bool whole = is_whole(to, stride, dim);
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 row = first + lane / 4 + half * 8;
        if (row >= end) continue;
#pragma unroll
        for (u32 i = 0; i < DIM / 8; i++)
            store_pair(to + u64(row) * stride, i * 8 + lane % 4 * 2, dim, sums[i][half * 2], sums[i][half * 2 + 1], whole);
    }
}

// The factor that turns a score into an exponent of two.
template <class S> __device__ __forceinline__ float exponent_scale(const S& shape) { return shape.scale() * LOG2_E; }

// Whether the first of `rows` queries does not see the last of `count` keys, or the last query the first key.
template <class S> __device__ __forceinline__ bool hides(const S& shape, u32 query, u32 rows, u32 key, u32 count) {
    return key + count - 1 > query || (shape.window < ALL && query + rows - 1 - key >= shape.window);
}

// A softmax of a lane's two rows of a fragment.
struct Softmax {
    float largest[2], total[2];
};

// scores := 2^(scale (scores - the new maxima)), where hidden scores are negative infinity; returns the factors for
// earlier sums.
template <int COUNT>
__device__ __forceinline__ void advance(Softmax& softmax, float scale, float (&scores)[COUNT][4], float (&factors)[2]) {
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        float before = softmax.largest[half], largest = before;
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) largest = fmaxf(largest, fmaxf(scores[i][half * 2], scores[i][half * 2 + 1]));
        largest = row_max<4>(largest);
        factors[half] = power_of_two(scale * (before - largest));
        float shift = scale * largest, total = softmax.total[half] * factors[half];
#pragma unroll
        for (u32 i = 0; i < COUNT; i++) {
#pragma unroll
            for (u32 j = half * 2; j < half * 2 + 2; j++) {
                scores[i][j] = power_of_two(fmaf(scale, scores[i][j], -shift));
                total += scores[i][j];
            }
        }
        softmax.largest[half] = largest;
        softmax.total[half] = total;
    }
}

// 64 queries of a head over tiles of 64 keys. Values are fetched while scores are computed, and the next keys while
// values are summed.
template <int DIM, int ALIGNED, u32... NUMBERS>
__global__ void __launch_bounds__(THREADS, DIM <= 64 ? FORWARD_BLOCKS : 1)
    attention_bf16(const bf16* q, const bf16* k, const bf16* v, bf16* out, float* lse, Shape<NUMBERS...> shape) {
    constexpr u32 KEYS = 64;
    __shared__ __align__(16) bf16 keys[KEYS * STRIDE<DIM>], values[KEYS * STRIDE<DIM>];
    // The last queries see the most keys, so they begin first.
    u32 index = blockIdx.x / shape.blocks, start = (shape.blocks - 1 - blockIdx.x % shape.blocks) * ROWS;
    u32 sequence = index / shape.heads, head = index % shape.heads, key_head = head / shape.sharing, dim = shape.dim;
    u32 all_keys = shape.before + shape.length, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    q += u64(sequence) * shape.length * shape.query_stride + u64(head) * dim;
    k += u64(sequence) * all_keys * shape.key_stride + u64(key_head) * dim;
    v += u64(sequence) * all_keys * shape.value_stride + u64(key_head) * dim;
    using HeadRows = Rows<DIM, ALIGNED, Shape<NUMBERS...>::dim>;
    HeadRows of_keys(k, shape.key_stride), of_values(v, shape.value_stride);
    u32 queries[DIM / 16][4];
    HeadRows(q, shape.query_stride).template fetch<ROWS>(keys, start, shape.length);
    copy_async_wait();
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < DIM / 16; i++) left_fragment<STRIDE<DIM>>(queries[i], keys + warp * 16 * STRIDE<DIM>, i * 16);
    __syncthreads();
    u32 place = shape.before + start, end = shape.before + min(start + ROWS, shape.length);
    u32 tile = first_seen(shape, place) / KEYS * KEYS;
    of_keys.template fetch<KEYS>(keys, tile, all_keys);
    // These are finite even times a scale of up to log2(e).
    Softmax softmax = {{LOWEST / 2, LOWEST / 2}, {0.0f, 0.0f}};
    float sums[DIM / 8][4] = {}, scale = exponent_scale(shape);
    for (; tile < end; tile += KEYS) {
        copy_async_wait();
        __syncthreads();
        of_values.template fetch<KEYS>(values, tile, all_keys);
        float scores[KEYS / 8][4] = {}, factors[2];
#pragma unroll
        for (u32 i = 0; i < DIM / 16; i++) {
#pragma unroll
            for (u32 j = 0; j < KEYS / 16; j++) {
                u32 fragments[4];
                right_fragments<STRIDE<DIM>>(fragments, keys + j * 16 * STRIDE<DIM>, i * 16);
                mma_bf16(scores[2 * j], queries[i], fragments);
                mma_bf16(scores[2 * j + 1], queries[i], fragments + 2);
            }
        }
        copy_async_wait();
        __syncthreads();
        if (tile + KEYS < end) of_keys.template fetch<KEYS>(keys, tile + KEYS, all_keys);
        if (hides(shape, place + warp * 16, 16, tile, KEYS)) {
#pragma unroll
            for (u32 i = 0; i < KEYS / 8; i++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    u32 query = place + warp * 16 + lane / 4 + j / 2 * 8, key = tile + i * 8 + lane % 4 * 2 + j % 2;
                    if (!sees(shape, query, key)) scores[i][j] = -infinity();
                }
            }
        }
        advance(softmax, scale, scores, factors);
#pragma unroll
        for (u32 i = 0; i < DIM / 8; i++) {
#pragma unroll
            for (u32 j = 0; j < 4; j++) sums[i][j] *= factors[j / 2];
        }
#pragma unroll
        for (u32 j = 0; j < KEYS / 16; j++) {
            u32 weights[4];
            left_of_sums(weights, scores[2 * j], scores[2 * j + 1]);
#pragma unroll
            for (u32 i = 0; i < DIM / 16; i++) {
                u32 fragments[4];
                right_fragments_of_rows<STRIDE<DIM>>(fragments, values + j * 16 * STRIDE<DIM>, i * 16);
                mma_bf16(sums[2 * i], weights, fragments);
                mma_bf16(sums[2 * i + 1], weights, fragments + 2);
            }
        }
    }
    u64 token = u64(sequence) * shape.length;
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        float total = row_sum<4>(softmax.total[half]), factor = 1.0f / total;
#pragma unroll
        for (u32 i = 0; i < DIM / 8; i++) {
            sums[i][half * 2] *= factor;
            sums[i][half * 2 + 1] *= factor;
        }
        u32 query = start + warp * 16 + lane / 4 + half * 8;
        if (lane % 4 == 0 && query < shape.length)
            lse[(token + query) * shape.heads + head] = shape.scale() * softmax.largest[half] + logarithm(total);
    }
    u64 width = shape.out_stride;
    store_sums<DIM>(out + token * width + u64(head) * dim, width, start + warp * 16, shape.length, dim, sums);
}

// The start of a head's part of the tensors that backward reads and writes.
struct Head {
    const bf16 *q, *out, *dout;
    const float* lse;
    bf16* dqkv;
};

template <class S>
__device__ __forceinline__ Head head_of(const S& shape, u32 sequence, u32 head, const bf16* q, const bf16* out,
                                        const float* lse, const bf16* dout, bf16* dqkv) {
    u64 token = u64(sequence) * shape.length, width = shape.out_stride, features = u64(head) * shape.dim;
    return {q + token * shape.query_stride + features, out + token * width + features, dout + token * width + features,
            lse + token * shape.heads + head, dqkv + token * shape.dqkv_stride + features};
}

// The log-sum-exp of a query's scores, to the base of two, and its `do . o`; rows beyond the queries have no weights.
template <class S>
__device__ __forceinline__ void statistics_of(const Head& head, const S& shape, u32 query, float& lse, float& delta) {
    lse = infinity();
    delta = 0.0f;
    if (query >= shape.length) return;
    u64 width = shape.out_stride;
    lse = LOG2_E * head.lse[u64(query) * shape.heads];
    delta = delta_of(shape, head.dqkv + u64(query) * shape.dqkv_stride, head.dout + query * width, head.out + query * width);
}

// Multiplies by the scale of scores, a factor of all terms of a gradient.
template <int COUNT, class S> __device__ __forceinline__ void scale_sums(const S& shape, float (&sums)[COUNT][4]) {
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) sums[i][j] *= shape.scale();
    }
}

// The gradients of 64 keys and values that some heads share: over tiles of queries, head after head.
template <int DIM, int ALIGNED, u32... NUMBERS>
__global__ void __launch_bounds__(THREADS, DIM <= 64 ? 3 : 1)
    attention_dkv_bf16(const bf16* q, const bf16* k, const bf16* v, const bf16* out, const float* lse, const bf16* dout,
                       bf16* dqkv, Shape<NUMBERS...> shape) {
    // There is room for two tiles: the next tile is fetched while one is worked on.
    constexpr u32 QUERIES = DIM <= 64 ? 64 : 16;
    // Whether there are registers for the keys of a warp.
    constexpr bool KEEPS_KEYS = DIM <= 64;
    __shared__ __align__(16) bf16 keys[ROWS * STRIDE<DIM>], queries[2][QUERIES * STRIDE<DIM>], gradients[2][QUERIES * STRIDE<DIM>];
    __shared__ float all_lse[2][QUERIES], all_delta[2][QUERIES];
    u32 key_heads = shape.key_heads, index = blockIdx.x / shape.blocks, tile = blockIdx.x % shape.blocks * ROWS;
    u32 sequence = index / key_heads, key_head = index % key_heads, dim = shape.dim, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 token = u64(sequence) * shape.length, width = shape.out_stride, key_features = u64(key_head) * dim;
    k += token * shape.key_stride + key_features;
    v += token * shape.value_stride + key_features;
    using HeadRows = Rows<DIM, ALIGNED, Shape<NUMBERS...>::dim>;
    u32 values[DIM / 16][4];
    HeadRows(v, shape.value_stride).template fetch<ROWS>(keys, tile, shape.length);
    copy_async_wait();
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < DIM / 16; i++) left_fragment<STRIDE<DIM>>(values[i], keys + warp * 16 * STRIDE<DIM>, i * 16);
    __syncthreads();
    HeadRows(k, shape.key_stride).template fetch<ROWS>(keys, tile, shape.length);
    u32 kept_keys[KEEPS_KEYS ? DIM / 16 : 1][4];
    if (KEEPS_KEYS) {
        copy_async_wait();
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < DIM / 16; i++) left_fragment<STRIDE<DIM>>(kept_keys[i], keys + warp * 16 * STRIDE<DIM>, i * 16);
    }
    // The last query that sees the last key, plus one.
    u32 end = u32(min(u64(shape.length), u64(tile) + ROWS - 1 + shape.window));
    u32 tiles = (end - tile + QUERIES - 1) / QUERIES, count = tiles * shape.sharing;
    float lse_next = 0.0f, delta_next = 0.0f;
    auto begin = [&](u32 step) {
        u32 start = tile + step % tiles * QUERIES, room = step % 2;
        Head head = head_of(shape, sequence, key_head * shape.sharing + step / tiles, q, out, lse, dout, dqkv);
        HeadRows(head.q, shape.query_stride).template fetch<QUERIES>(queries[room], start, shape.length);
        HeadRows(head.dout, width).template fetch<QUERIES>(gradients[room], start, shape.length);
        if (threadIdx.x < QUERIES) statistics_of(head, shape, start + threadIdx.x, lse_next, delta_next);
    };
    auto finish = [&](u32 step) {
        if (threadIdx.x >= QUERIES) return;
        all_lse[step % 2][threadIdx.x] = lse_next;
        all_delta[step % 2][threadIdx.x] = delta_next;
    };
    begin(0);
    finish(0);
    float dkeys[DIM / 8][4] = {}, dvalues[DIM / 8][4] = {}, scale = exponent_scale(shape);
    for (u32 step = 0; step < count; step++) {
        copy_async_wait();
        __syncthreads();
        if (step + 1 < count) begin(step + 1);
        u32 start = tile + step % tiles * QUERIES, room = step % 2, key = tile + warp * 16 + lane / 4;
#pragma unroll
        for (u32 part = 0; part < QUERIES; part += 16) {
            // These queries are before all keys of this warp.
            if (start + part + 15 < tile + warp * 16) continue;
            const bf16 *of_queries = queries[room] + part * STRIDE<DIM>, *of_gradients = gradients[room] + part * STRIDE<DIM>;
            float weights[2][4] = {}, dscores[2][4] = {};
            u32 left[4], fragments[4];
#pragma unroll
            for (u32 i = 0; i < DIM / 16; i++) {
                u32(&of_keys)[4] = kept_keys[KEEPS_KEYS ? i : 0];
                if (!KEEPS_KEYS) left_fragment<STRIDE<DIM>>(of_keys, keys + warp * 16 * STRIDE<DIM>, i * 16);
                right_fragments<STRIDE<DIM>>(fragments, of_queries, i * 16);
                mma_bf16(weights[0], of_keys, fragments);
                mma_bf16(weights[1], of_keys, fragments + 2);
                right_fragments<STRIDE<DIM>>(fragments, of_gradients, i * 16);
                mma_bf16(dscores[0], values[i], fragments);
                mma_bf16(dscores[1], values[i], fragments + 2);
            }
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    u32 query = part + i * 8 + lane % 4 * 2 + j % 2;
                    weights[i][j] = power_of_two(fmaf(scale, weights[i][j], -all_lse[room][query]));
                }
            }
            if (hides(shape, start + part, 16, tile + warp * 16, 16)) {
#pragma unroll
                for (u32 i = 0; i < 2; i++) {
#pragma unroll
                    for (u32 j = 0; j < 4; j++) {
                        u32 query = start + part + i * 8 + lane % 4 * 2 + j % 2;
                        if (!sees(shape, query, key + j / 2 * 8)) weights[i][j] = 0.0f;
                    }
                }
            }
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    u32 query = part + i * 8 + lane % 4 * 2 + j % 2;
                    dscores[i][j] = weights[i][j] * (dscores[i][j] - all_delta[room][query]);
                }
            }
            left_of_sums(left, weights[0], weights[1]);
#pragma unroll
            for (u32 i = 0; i < DIM / 16; i++) {
                right_fragments_of_rows<STRIDE<DIM>>(fragments, of_gradients, i * 16);
                mma_bf16(dvalues[2 * i], left, fragments);
                mma_bf16(dvalues[2 * i + 1], left, fragments + 2);
            }
            left_of_sums(left, dscores[0], dscores[1]);
#pragma unroll
            for (u32 i = 0; i < DIM / 16; i++) {
                right_fragments_of_rows<STRIDE<DIM>>(fragments, of_queries, i * 16);
                mma_bf16(dkeys[2 * i], left, fragments);
                mma_bf16(dkeys[2 * i + 1], left, fragments + 2);
            }
        }
        if (step + 1 < count) finish(step + 1);
    }
    u64 stride = shape.dqkv_stride;
    bf16* to = dqkv + token * stride + width + key_features;
    scale_sums(shape, dkeys);
    store_sums<DIM>(to, stride, tile + warp * 16, shape.length, dim, dkeys);
    store_sums<DIM>(to + u64(key_heads) * dim, stride, tile + warp * 16, shape.length, dim, dvalues);
}

// The gradients of 64 queries of a head, over tiles of keys. No other block reads their `do . o` any more.
template <int DIM, int ALIGNED, u32... NUMBERS>
__global__ void __launch_bounds__(THREADS, DIM <= 64 ? 3 : 1)
    attention_dq_bf16(const bf16* q, const bf16* k, const bf16* v, const bf16* out, const float* lse, const bf16* dout, bf16* dqkv,
                      Shape<NUMBERS...> shape) {
    constexpr u32 KEYS = DIM <= 64 ? 64 : 32;
    __shared__ __align__(16) bf16 keys[2][KEYS * STRIDE<DIM>], values[2][KEYS * STRIDE<DIM>];
    u32 index = blockIdx.x / shape.blocks, start = (shape.blocks - 1 - blockIdx.x % shape.blocks) * ROWS, dim = shape.dim;
    u32 sequence = index / shape.heads, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 token = u64(sequence) * shape.length, width = shape.out_stride;
    u64 key_features = u64(index % shape.heads / shape.sharing) * dim;
    Head head = head_of(shape, sequence, index % shape.heads, q, out, lse, dout, dqkv);
    k += token * shape.key_stride + key_features;
    v += token * shape.value_stride + key_features;
    // First, the memory for keys holds the queries, and the memory for values their gradients.
    using HeadRows = Rows<DIM, ALIGNED, Shape<NUMBERS...>::dim>;
    HeadRows all_keys(k, shape.key_stride), all_values(v, shape.value_stride);
    u32 queries[DIM / 16][4], gradients[DIM / 16][4];
    HeadRows(head.q, shape.query_stride).template fetch<ROWS>(keys[0], start, shape.length);
    HeadRows(head.dout, width).template fetch<ROWS>(values[0], start, shape.length);
    float of_lse[2], of_delta[2];
#pragma unroll
    for (u32 half = 0; half < 2; half++)
        statistics_of(head, shape, start + warp * 16 + lane / 4 + half * 8, of_lse[half], of_delta[half]);
    copy_async_wait();
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < DIM / 16; i++) {
        left_fragment<STRIDE<DIM>>(queries[i], keys[0] + warp * 16 * STRIDE<DIM>, i * 16);
        left_fragment<STRIDE<DIM>>(gradients[i], values[0] + warp * 16 * STRIDE<DIM>, i * 16);
    }
    __syncthreads();
    u32 tile = first_seen(shape, start) / KEYS * KEYS, end = min(start + ROWS, shape.length);
    auto begin = [&](u32 tile) {
        u32 room = tile / KEYS % 2;
        all_keys.template fetch<KEYS>(keys[room], tile, shape.length);
        all_values.template fetch<KEYS>(values[room], tile, shape.length);
    };
    begin(tile);
    float sums[DIM / 8][4] = {}, scale = exponent_scale(shape);
    for (; tile < end; tile += KEYS) {
        copy_async_wait();
        __syncthreads();
        if (tile + KEYS < end) begin(tile + KEYS);
        u32 room = tile / KEYS % 2;
#pragma unroll
        for (u32 part = 0; part < KEYS; part += 16) {
            // These keys are after all queries of this warp.
            if (tile + part > start + warp * 16 + 15) continue;
            const bf16 *of_keys = keys[room] + part * STRIDE<DIM>, *of_values = values[room] + part * STRIDE<DIM>;
            float scores[2][4] = {}, dscores[2][4] = {};
            u32 left[4], fragments[4];
#pragma unroll
            for (u32 i = 0; i < DIM / 16; i++) {
                right_fragments<STRIDE<DIM>>(fragments, of_keys, i * 16);
                mma_bf16(scores[0], queries[i], fragments);
                mma_bf16(scores[1], queries[i], fragments + 2);
                right_fragments<STRIDE<DIM>>(fragments, of_values, i * 16);
                mma_bf16(dscores[0], gradients[i], fragments);
                mma_bf16(dscores[1], gradients[i], fragments + 2);
            }
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) scores[i][j] = power_of_two(fmaf(scale, scores[i][j], -of_lse[j / 2]));
            }
            if (hides(shape, start + warp * 16, 16, tile + part, 16)) {
#pragma unroll
                for (u32 i = 0; i < 2; i++) {
#pragma unroll
                    for (u32 j = 0; j < 4; j++) {
                        u32 query = start + warp * 16 + lane / 4 + j / 2 * 8, key = tile + part + i * 8 + lane % 4 * 2 + j % 2;
                        if (!sees(shape, query, key)) scores[i][j] = 0.0f;
                    }
                }
            }
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) dscores[i][j] = scores[i][j] * (dscores[i][j] - of_delta[j / 2]);
            }
            left_of_sums(left, dscores[0], dscores[1]);
#pragma unroll
            for (u32 i = 0; i < DIM / 16; i++) {
                right_fragments_of_rows<STRIDE<DIM>>(fragments, of_keys, i * 16);
                mma_bf16(sums[2 * i], left, fragments);
                mma_bf16(sums[2 * i + 1], left, fragments + 2);
            }
        }
    }
    scale_sums(shape, sums);
    store_sums<DIM>(head.dqkv, shape.dqkv_stride, start + warp * 16, shape.length, dim, sums);
}
