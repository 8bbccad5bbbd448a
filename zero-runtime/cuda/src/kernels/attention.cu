// Attention in f32: plain tiles in shared memory, one product after another.
#include "attention.cuh"

// Writes the `do . o` of each query into dqkv (tokens, a row of gradients). Eight threads work on each query.
template <class E, u32 HEADS, u32 SHARING, u32 DIM>
__global__ void attention_delta(const E* out, const E* dout, E* dqkv, u64 queries) {
    u64 mine = row_of_thread<8>(), query = min(mine, queries - 1);
    bool aligned = is_aligned(out, DIM) && is_aligned(dout, DIM);
    float values[PACK], gradients[PACK], sum = 0.0f;
    for (u32 feature = threadIdx.x % 8 * PACK; feature < DIM; feature += 8 * PACK) {
        load(values, out + query * DIM + feature, rest(DIM, feature), aligned);
        load(gradients, dout + query * DIM + feature, rest(DIM, feature), aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += values[i] * gradients[i];
    }
    u32 delta = __float_as_uint(row_sum<8>(sum));
    if (mine >= queries || threadIdx.x % 8 > 0 || sizeof(E) * DIM < sizeof(float)) return;
    u64 token = query / HEADS, head = query % HEADS;
    u16* to = reinterpret_cast<u16*>(dqkv + token * gradient_stride(HEADS, SHARING, DIM) + head * DIM);
    to[0] = u16(delta);
    to[1] = u16(delta >> 16);
}

// Threads of a block here.
constexpr u32 PLAIN = 128;

// `to` (ROWS, DIM + 1) := rows from `first` on, times `factor`; zeros beyond the rows and features.
template <int DIM, int ROWS>
__device__ inline void fetch(float (&to)[ROWS][DIM + 1], const float* from, u64 stride, u32 first, u32 end, u32 dim, float factor) {
    for (u32 i = threadIdx.x; i < ROWS * DIM; i += PLAIN) {
        u32 row = i / DIM, feature = i % DIM;
        bool is_there = first + row < end && feature < dim;
        to[row][feature] = is_there ? factor * from[u64(first + row) * stride + feature] : 0.0f;
    }
}

// 32 queries of a head, with four threads for each. The threads compute scores of every fourth key of a tile and sums
// of every fourth feature.
template <int DIM, u32... NUMBERS>
__global__ void attention(const float* q, const float* k, const float* v, float* out, float* lse, Shape<NUMBERS...> shape) {
    constexpr u32 QUERIES = 32, KEYS = 32, SHARE = PLAIN / QUERIES;
    __shared__ float queries[QUERIES][DIM + 1], keys[KEYS][DIM + 1], weights[QUERIES][KEYS + 1];
    // The last queries see the most keys, so they begin first.
    u32 head = blockIdx.x / shape.blocks, sequence = head / shape.heads, start = (shape.blocks - 1 - blockIdx.x % shape.blocks) * QUERIES;
    head %= shape.heads;
    u32 all_keys = shape.before + shape.length, dim = shape.dim, key_head = head / shape.sharing;
    q += u64(sequence) * shape.length * shape.query_stride + u64(head) * dim;
    k += u64(sequence) * all_keys * shape.key_stride + u64(key_head) * dim;
    v += u64(sequence) * all_keys * shape.value_stride + u64(key_head) * dim;
    u32 mine = threadIdx.x / SHARE, part = threadIdx.x % SHARE, query = start + mine, place = shape.before + query;
    u32 end = shape.before + min(start + QUERIES, shape.length);
    fetch<DIM>(queries, q, shape.query_stride, start, shape.length, dim, shape.scale());
    float largest = LOWEST, total = 0.0f, sums[DIM / SHARE] = {};
    for (u32 tile = first_seen(shape, shape.before + start) / KEYS * KEYS; tile < end; tile += KEYS) {
        __syncthreads();
        fetch<DIM>(keys, k, shape.key_stride, tile, all_keys, dim, 1.0f);
        __syncthreads();
        float scores[KEYS / SHARE], before = largest;
#pragma unroll
        for (u32 i = 0; i < KEYS / SHARE; i++) {
            u32 key = part + i * SHARE;
            float score = 0.0f;
            for (u32 feature = 0; feature < dim; feature++) score = fmaf(queries[mine][feature], keys[key][feature], score);
            scores[i] = sees(shape, place, tile + key) ? score : -infinity();
            largest = scores[i] > largest ? scores[i] : largest;
        }
        largest = row_max<SHARE>(largest);
        float factor = exponential_small(before - largest);
        total *= factor;
#pragma unroll
        for (u32 i = 0; i < KEYS / SHARE; i++) {
            float weight = exponential_small(scores[i] - largest);
            total += weight;
            weights[mine][part + i * SHARE] = weight;
        }
        __syncthreads();
        fetch<DIM>(keys, v, shape.value_stride, tile, all_keys, dim, 1.0f);
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < DIM / SHARE; i++) {
            float sum = factor * sums[i];
            for (u32 key = 0; key < KEYS; key++) sum = fmaf(weights[mine][key], keys[key][part + i * SHARE], sum);
            sums[i] = sum;
        }
    }
    total = row_sum<SHARE>(total);
    if (query >= shape.length) return;
    u64 row = (u64(sequence) * shape.length + query) * shape.heads + head;
#pragma unroll
    for (u32 i = 0; i < DIM / SHARE; i++)
        if (part + i * SHARE < dim) out[row * dim + part + i * SHARE] = sums[i] * (1.0f / total);
    if (part == 0) lse[row] = largest + logarithm(total);
}

// Shared memory of both kernels of backward: tiles of 16 queries and 16 keys, and their weights and gradients of
// scores. Eight threads for each row compute two of each.
template <int DIM> struct Tiles {
    static constexpr u32 ROWS = 16, SHARE = PLAIN / ROWS;
    float queries[ROWS][DIM + 1], gradients[ROWS][DIM + 1], keys[ROWS][DIM + 1], values[ROWS][DIM + 1];
    float weights[ROWS][ROWS + 1], dscores[ROWS][ROWS + 1];
    float lse[ROWS], delta[ROWS];
};

// Fetches tiles of queries and of the gradients of their outputs.
template <int DIM, class S>
__device__ inline void fetch_queries(Tiles<DIM>& tiles, const float* q, const float* out, const float* lse, const float* dout,
                                     const float* dqkv, u32 start, const S& shape) {
    u64 stride = shape.out_stride;
    fetch<DIM>(tiles.queries, q, shape.query_stride, start, shape.length, shape.dim, 1.0f);
    fetch<DIM>(tiles.gradients, dout, stride, start, shape.length, shape.dim, 1.0f);
    u32 query = start + threadIdx.x;
    if (threadIdx.x < Tiles<DIM>::ROWS) {
        bool is_there = query < shape.length;
        // Rows beyond the queries have no weights.
        tiles.lse[threadIdx.x] = is_there ? lse[u64(query) * shape.heads] : infinity();
        u64 row = u64(is_there ? query : 0);
        float delta = delta_of(shape, dqkv + row * shape.dqkv_stride, dout + row * stride, out + row * stride);
        tiles.delta[threadIdx.x] = is_there ? delta : 0.0f;
    }
}

// Computes the weights and gradients of scores of the fetched tiles.
template <int DIM, class S> __device__ inline void score(Tiles<DIM>& tiles, u32 start, u32 tile, const S& shape) {
    constexpr u32 ROWS = Tiles<DIM>::ROWS, SHARE = Tiles<DIM>::SHARE;
    u32 query = threadIdx.x / SHARE;
    for (u32 key = threadIdx.x % SHARE; key < ROWS; key += SHARE) {
        float score = 0.0f, dweight = 0.0f;
        for (u32 feature = 0; feature < shape.dim; feature++) {
            score = fmaf(shape.scale() * tiles.queries[query][feature], tiles.keys[key][feature], score);
            dweight = fmaf(tiles.gradients[query][feature], tiles.values[key][feature], dweight);
        }
        score = sees(shape, start + query, tile + key) ? score : -infinity();
        float weight = exponential_small(score - tiles.lse[query]);
        tiles.weights[query][key] = weight;
        tiles.dscores[query][key] = shape.scale() * weight * (dweight - tiles.delta[query]);
    }
}

// Writes the gradients of 16 keys and values to dqkv, summed over the heads that share them, head after head and query
// after query.
template <int DIM, u32... NUMBERS>
__global__ void attention_dkv(const float* q, const float* k, const float* v, const float* out, const float* lse,
                              const float* dout, float* dqkv, Shape<NUMBERS...> shape) {
    constexpr u32 ROWS = Tiles<DIM>::ROWS, SHARE = Tiles<DIM>::SHARE;
    __shared__ Tiles<DIM> tiles;
    u32 key_heads = shape.key_heads, index = blockIdx.x / shape.blocks, tile = blockIdx.x % shape.blocks * ROWS;
    u32 sequence = index / key_heads, key_head = index % key_heads, dim = shape.dim;
    u64 token = u64(sequence) * shape.length, width = shape.out_stride, stride = shape.dqkv_stride;
    fetch<DIM>(tiles.keys, k + token * shape.key_stride + u64(key_head) * dim, shape.key_stride, tile, shape.length, dim, 1.0f);
    fetch<DIM>(tiles.values, v + token * shape.value_stride + u64(key_head) * dim, shape.value_stride, tile, shape.length, dim, 1.0f);
    float dkeys[DIM / SHARE] = {}, dvalues[DIM / SHARE] = {};
    u32 mine = threadIdx.x / SHARE, part = threadIdx.x % SHARE;
    // The last query that sees the last key, plus one.
    u32 end = u32(min(u64(shape.length), u64(tile) + ROWS - 1 + shape.window));
    for (u32 head = key_head * shape.sharing; head < (key_head + 1) * shape.sharing; head++) {
        u64 features = u64(head) * dim;
        for (u32 start = tile; start < end; start += ROWS) {
            __syncthreads();
            fetch_queries(tiles, q + token * shape.query_stride + features, out + token * width + features,
                          lse + token * shape.heads + head, dout + token * width + features, dqkv + token * stride + features,
                          start, shape);
            __syncthreads();
            score(tiles, start, tile, shape);
            __syncthreads();
            for (u32 query = 0; query < ROWS; query++) {
                float weight = tiles.weights[query][mine], dscore = tiles.dscores[query][mine];
#pragma unroll
                for (u32 i = 0; i < DIM / SHARE; i++) {
                    dkeys[i] = fmaf(dscore, tiles.queries[query][part + i * SHARE], dkeys[i]);
                    dvalues[i] = fmaf(weight, tiles.gradients[query][part + i * SHARE], dvalues[i]);
                }
            }
        }
    }
    if (tile + mine >= shape.length) return;
    float* to = dqkv + (token + tile + mine) * stride + width + u64(key_head) * dim;
#pragma unroll
    for (u32 i = 0; i < DIM / SHARE; i++) {
        if (part + i * SHARE >= dim) continue;
        to[part + i * SHARE] = dkeys[i];
        to[u64(key_heads) * dim + part + i * SHARE] = dvalues[i];
    }
}

// Writes the gradients of 16 queries of a head to dqkv, summed key after key. No other block reads their `do . o` any
// more.
template <int DIM, u32... NUMBERS>
__global__ void attention_dq(const float* q, const float* k, const float* v, const float* out, const float* lse,
                             const float* dout, float* dqkv, Shape<NUMBERS...> shape) {
    constexpr u32 ROWS = Tiles<DIM>::ROWS, SHARE = Tiles<DIM>::SHARE;
    __shared__ Tiles<DIM> tiles;
    u32 index = blockIdx.x / shape.blocks, start = (shape.blocks - 1 - blockIdx.x % shape.blocks) * ROWS;
    u32 sequence = index / shape.heads, head = index % shape.heads, dim = shape.dim;
    u64 token = u64(sequence) * shape.length, width = shape.out_stride, features = u64(head) * dim;
    u64 key_features = u64(head / shape.sharing) * dim;
    float* to = dqkv + token * shape.dqkv_stride + features;
    fetch_queries(tiles, q + token * shape.query_stride + features, out + token * width + features,
                  lse + token * shape.heads + head, dout + token * width + features, to, start, shape);
    float sums[DIM / SHARE] = {};
    u32 mine = threadIdx.x / SHARE, part = threadIdx.x % SHARE, end = min(start + ROWS, shape.length);
    for (u32 tile = first_seen(shape, start) / ROWS * ROWS; tile < end; tile += ROWS) {
        __syncthreads();
        fetch<DIM>(tiles.keys, k + token * shape.key_stride + key_features, shape.key_stride, tile, shape.length, dim, 1.0f);
        fetch<DIM>(tiles.values, v + token * shape.value_stride + key_features, shape.value_stride, tile, shape.length, dim, 1.0f);
        __syncthreads();
        score(tiles, start, tile, shape);
        __syncthreads();
        for (u32 key = 0; key < ROWS; key++) {
            float dscore = tiles.dscores[mine][key];
#pragma unroll
            for (u32 i = 0; i < DIM / SHARE; i++) sums[i] = fmaf(dscore, tiles.keys[key][part + i * SHARE], sums[i]);
        }
    }
    if (start + mine >= shape.length) return;
#pragma unroll
    for (u32 i = 0; i < DIM / SHARE; i++)
        if (part + i * SHARE < dim) to[u64(start + mine) * shape.dqkv_stride + part + i * SHARE] = sums[i];
}
