// Elementwise nonlinearities, gates by them, and their vector-Jacobian products: the processor's operations, to the
// bit. A nonlinearity is named by its number in `activation.rs`. ALIGNED says that whole packs can be moved in one
// access; it is a constant, so that all loads of a thread begin before the thread waits for any.
#include "packs.cuh"

constexpr float GELU_LINEAR = 1.12837916709551257390f * 1.41421356237309504880f; // 2 sqrt(2/pi)
constexpr float GELU_CUBIC = 0.044715f;
constexpr float GELU_SATURATED = 10.0f;

enum { GELU, RELU, SILU };

__device__ inline float clamped(float x) {
    x = x < -GELU_SATURATED ? -GELU_SATURATED : x;
    return x > GELU_SATURATED ? GELU_SATURATED : x;
}

template <int KIND> __device__ inline float value_of(float x) {
    if (KIND == RELU) return x < 0.0f ? 0.0f : x;
    if (KIND == SILU) return x * sigmoid(x);
    float inner = clamped(x);
    float gate = sigmoid_within(GELU_LINEAR * inner * fmaf(GELU_CUBIC * inner, inner, 1.0f));
    // `x * 0.0f` and not 0, so that an infinity shows.
    return x < -GELU_SATURATED ? x * 0.0f : x * gate;
}

template <int KIND> __device__ inline float slope_of(float x) {
    if (KIND == RELU) return x > 0.0f ? 1.0f : 0.0f;
    if (KIND == SILU) {
        float gate = sigmoid(x);
        return gate * fmaf(x, 1.0f - gate, 1.0f);
    }
    float inner = clamped(x);
    float square = GELU_CUBIC * inner * inner;
    float gate = sigmoid_within(GELU_LINEAR * inner * (1.0f + square));
    float slope = GELU_LINEAR * fmaf(square, 3.0f, 1.0f);
    float whole = fmaf(inner * slope * (1.0f - gate), gate, gate);
    return x < -GELU_SATURATED ? x * 0.0f : whole;
}

// y := f(x). A thread has a pack.
template <class E, int KIND, int ALIGNED> __global__ void activate(const E* x, E* y, u64 count) {
    u64 at = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * PACK;
    if (at >= count) return;
    u32 here = u32(min(count - at, u64(PACK)));
    float values[PACK];
    load(values, x + at, here, ALIGNED);
#pragma unroll
    for (int i = 0; i < PACK; i++) values[i] = value_of<KIND>(values[i]);
    store(y + at, values, here, ALIGNED);
}

// dx := dy f'(x).
template <class E, int KIND, int ALIGNED> __global__ void activate_backward(const E* x, const E* dy, E* dx, u64 count) {
    u64 at = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * PACK;
    if (at >= count) return;
    u32 here = u32(min(count - at, u64(PACK)));
    float values[PACK], gradients[PACK];
    // Both loads begin before the thread waits for either.
    if (ALIGNED && here == PACK) {
        load_eight(values, x + at);
        load_eight(gradients, dy + at);
    } else {
        load(values, x + at, here, false);
        load(gradients, dy + at, here, false);
    }
#pragma unroll
    for (int i = 0; i < PACK; i++) gradients[i] = gradients[i] * slope_of<KIND>(values[i]);
    store(dx + at, gradients, here, ALIGNED);
}

// y (rows, WIDTH) := f(x) u, where each row of `x` is (x, u). BLOCKS blocks share a row.
template <class E, int KIND, int ALIGNED, u32 WIDTH, u32 BLOCKS>
__global__ void gate(const E* x, E* y) {
    u64 row = blockIdx.x / BLOCKS;
    u32 column = (blockIdx.x % BLOCKS * blockDim.x + threadIdx.x) * PACK, here = rest(WIDTH, column);
    if (here == 0) return;
    const E* from = x + row * 2 * WIDTH + column;
    float gates[PACK], ups[PACK];
    load(gates, from, here, ALIGNED);
    load(ups, from + WIDTH, here, ALIGNED);
#pragma unroll
    for (int i = 0; i < PACK; i++) ups[i] = value_of<KIND>(gates[i]) * ups[i];
    store(y + row * WIDTH + column, ups, here, ALIGNED);
}

// dx (rows, 2 WIDTH) := (dy u f'(x), dy f(x)).
template <class E, int KIND, int ALIGNED, u32 WIDTH, u32 BLOCKS>
__global__ void gate_backward(const E* x, const E* dy, E* dx) {
    u64 row = blockIdx.x / BLOCKS;
    u32 column = (blockIdx.x % BLOCKS * blockDim.x + threadIdx.x) * PACK, here = rest(WIDTH, column);
    if (here == 0) return;
    u64 at = row * 2 * WIDTH + column;
    float gates[PACK], ups[PACK], gradients[PACK];
    load(gates, x + at, here, ALIGNED);
    load(ups, x + at + WIDTH, here, ALIGNED);
    load(gradients, dy + row * WIDTH + column, here, ALIGNED);
#pragma unroll
    for (int i = 0; i < PACK; i++) {
        ups[i] = gradients[i] * ups[i] * slope_of<KIND>(gates[i]);
        gradients[i] = gradients[i] * value_of<KIND>(gates[i]);
    }
    store(dx + at, ups, here, ALIGNED);
    store(dx + at + WIDTH, gradients, here, ALIGNED);
}
