// Losses of rows and their vector-Jacobian products: softmax cross-entropy and squared error.
#include "packs.cuh"

// e^x, where x is at most 87.5 or NaN, for logits of a width. In bf16, by the GPU's own powers of two: to about
// 2 + |x| / 2 units in the last place.
template <class E> __device__ __forceinline__ float exponential_for(float x) { return power_of_two(LOG2_E * x); }
template <> __device__ __forceinline__ float exponential_for<float>(float x) { return exponential_small(x); }

// ln sum e^logit of a row, which is read once: each of its threads keeps the largest logit so far, and the sum of
// exponentials relative to it.
template <class E, int THREADS, u32 CLASSES> __device__ inline float log_sum_exp(const E* from, bool aligned) {
    float values[PACK], largest = LOWEST, sum = 0.0f;
    for (u32 column = threadIdx.x % THREADS * PACK; column < CLASSES; column += THREADS * PACK) {
        u32 here = rest(CLASSES, column);
        load(values, from + column, here, aligned);
        if (here < PACK) {
#pragma unroll
            for (int i = 0; i < PACK; i++) values[i] = i < here ? values[i] : -infinity();
        }
        float before = largest;
#pragma unroll
        for (int i = 0; i < PACK; i++) largest = values[i] > largest ? values[i] : largest;
        sum *= exponential_for<E>(before - largest);
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += exponential_for<E>(values[i] - largest);
    }
    float of_row = row_max<THREADS>(largest);
    return of_row + logarithm(row_sum<THREADS>(sum * exponential_for<E>(largest - of_row)));
}

// loss (rows) := ln sum e^logit - the target's logit.
template <class E, int THREADS, u32 CLASSES>
__global__ void cross_entropy(const E* logits, const u32* targets, float* loss, u64 rows) {
    u64 mine = row_of_thread<THREADS>(), row = min(mine, rows - 1);
    const E* from = logits + row * CLASSES;
    float lse = log_sum_exp<E, THREADS, CLASSES>(from, is_aligned(logits, CLASSES));
    u32 target = targets[row];
    // A target that is not a class results in NaN, so that it shows.
    if (mine < rows && threadIdx.x % THREADS == 0) loss[row] = target < CLASSES ? lse - widen(from[target]) : not_a_number();
}

// The same, but `loss` holds its gradient at first; and logits := (e^(logit - lse) - 1 at the target) times that gradient.
template <class E, int THREADS, u32 CLASSES>
__global__ void cross_entropy_backward(E* logits, const u32* targets, float* loss, u64 rows) {
    u64 mine = row_of_thread<THREADS>(), row = min(mine, rows - 1);
    E* at = logits + row * CLASSES;
    bool aligned = is_aligned(logits, CLASSES);
    float lse = log_sum_exp<E, THREADS, CLASSES>(at, aligned), weight = loss[row], values[PACK];
    u32 target = targets[row];
    float logit = target < CLASSES ? widen(at[target]) : not_a_number();
    // All threads have read the gradient of the loss and the target's logit.
    __syncthreads();
    if (mine >= rows) return;
    u32 first = threadIdx.x % THREADS * PACK;
    if (first == 0) loss[row] = lse - logit;
    for (u32 column = first; column < CLASSES; column += THREADS * PACK) {
        u32 here = rest(CLASSES, column);
        load(values, at + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            float value = exponential_for<E>(values[i] - lse) * weight;
            values[i] = column + i == target ? value - weight : value;
        }
        store(at + column, values, here, aligned);
    }
}

// loss (rows) := the mean of (x - t)^2 over a row.
template <class E, int THREADS, u32 WIDTH>
__global__ void squared_error(const E* x, const float* targets, float* loss, u64 rows) {
    u64 mine = row_of_thread<THREADS>(), row = min(mine, rows - 1);
    bool aligned = is_aligned(x, WIDTH) && is_aligned(targets, WIDTH);
    float values[PACK], expected[PACK], sum = 0.0f;
    u32 first = threadIdx.x % THREADS * PACK;
    for (u32 column = first; column < WIDTH; column += THREADS * PACK) {
        u32 here = rest(WIDTH, column);
        load(values, x + row * WIDTH + column, here, aligned);
        load(expected, targets + row * WIDTH + column, here, aligned);
#pragma unroll
        for (int i = 0; i < PACK; i++) sum += (values[i] - expected[i]) * (values[i] - expected[i]);
    }
    sum = row_sum<THREADS>(sum);
    if (mine < rows && first == 0) loss[row] = sum / float(WIDTH);
}

// dx (rows, WIDTH) := 2 (x - t) / WIDTH dloss.
template <class E, u32 WIDTH, u32 BLOCKS>
__global__ void squared_error_backward(const E* x, const float* targets, const float* dloss, E* dx) {
    u64 row = blockIdx.x / BLOCKS;
    u32 column = (blockIdx.x % BLOCKS * blockDim.x + threadIdx.x) * PACK, here = rest(WIDTH, column);
    if (here == 0) return;
    bool aligned = is_aligned(x, WIDTH) && is_aligned(targets, WIDTH) && is_aligned(dx, WIDTH);
    u64 at = row * WIDTH + column;
    float slope = 2.0f * dloss[row] / float(WIDTH), values[PACK], expected[PACK];
    load(values, x + at, here, aligned);
    load(expected, targets + at, here, aligned);
#pragma unroll
    for (int i = 0; i < PACK; i++) values[i] = slope * (values[i] - expected[i]);
    store(dx + at, values, here, aligned);
}
