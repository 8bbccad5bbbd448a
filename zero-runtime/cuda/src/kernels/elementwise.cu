// Elementwise: results that depend only on the elements at one index. A thread computes eight of them.
#include "prelude.cuh"

// `to` := `from`, rounded.
template <class To, class From, int ALIGNED> __global__ void convert(To* to, const From* from, u64 len) {
    u64 start = thread_index() * EIGHT;
    if (start >= len) return;
    float x[EIGHT];
    load<ALIGNED>(x, from, start, len);
    store<ALIGNED>(to, x, start, len);
}

// `y` += `x`.
template <class E, int ALIGNED> __global__ void add(E* y, const E* x, u64 len) {
    u64 start = thread_index() * EIGHT;
    if (start >= len) return;
    float a[EIGHT], b[EIGHT];
    load<ALIGNED>(a, y, start, len);
    load<ALIGNED>(b, x, start, len);
#pragma unroll
    for (int i = 0; i < EIGHT; i++) a[i] = a[i] + b[i];
    store<ALIGNED>(y, a, start, len);
}

// `y` *= `x`.
template <class E, int ALIGNED> __global__ void mul(E* y, const E* x, u64 len) {
    u64 start = thread_index() * EIGHT;
    if (start >= len) return;
    float a[EIGHT], b[EIGHT];
    load<ALIGNED>(a, y, start, len);
    load<ALIGNED>(b, x, start, len);
#pragma unroll
    for (int i = 0; i < EIGHT; i++) a[i] = a[i] * b[i];
    store<ALIGNED>(y, a, start, len);
}

// `y` *= `factor`.
template <class E, int ALIGNED> __global__ void scale(E* y, u64 len, float factor) {
    u64 start = thread_index() * EIGHT;
    if (start >= len) return;
    float a[EIGHT];
    load<ALIGNED>(a, y, start, len);
#pragma unroll
    for (int i = 0; i < EIGHT; i++) a[i] = a[i] * factor;
    store<ALIGNED>(y, a, start, len);
}

// `y` := `alpha` `x` + `beta` `y`.
template <class E, int ALIGNED> __global__ void axpby(E* y, const E* x, u64 len, float alpha, float beta) {
    u64 start = thread_index() * EIGHT;
    if (start >= len) return;
    float a[EIGHT], b[EIGHT];
    load<ALIGNED>(a, y, start, len);
    load<ALIGNED>(b, x, start, len);
#pragma unroll
    for (int i = 0; i < EIGHT; i++) a[i] = fmaf(alpha, b[i], beta * a[i]);
    store<ALIGNED>(y, a, start, len);
}

// An unsigned number of BYTES bytes.
template <int BYTES> struct Word;
template <> struct Word<2> { typedef u16 type; };
template <> struct Word<4> { typedef u32 type; };
template <> struct Word<8> { typedef u64 type; };

// `to` := `value` everywhere.
template <int BYTES> __global__ void fill(typename Word<BYTES>::type* to, u64 len, u64 value) {
    u64 start = (u64)blockIdx.x * blockDim.x * EIGHT + threadIdx.x;
    for (int i = 0; i < EIGHT; i++) {
        u64 at = start + (u64)i * blockDim.x;
        if (at < len) to[at] = (typename Word<BYTES>::type)value;
    }
}

// Each row of `y` := `bias` (WIDTH).
template <class E, u32 WIDTH> __global__ void broadcast(E* y, const E* bias, u64 len) {
    u64 start = (u64)blockIdx.x * blockDim.x * EIGHT + threadIdx.x;
    for (int i = 0; i < EIGHT; i++) {
        u64 at = start + (u64)i * blockDim.x;
        if (at < len) y[at] = bias[at % WIDTH];
    }
}
