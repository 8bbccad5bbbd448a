// Prelude: the basis of all kernels: numbers as they are stored, as they are computed with, and vectors of them. A
// float that is a constant of a template is passed as the integer of its bits, which `__uint_as_float` makes a float
// again. Includes nothing, because a compiler at run time has no headers. Never depends on the number of threads.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The upper half of a float.
struct bf16 {
    u16 bits;
};

__device__ __forceinline__ float widen(float number) { return number; }
__device__ __forceinline__ float widen(bf16 number) { return __uint_as_float((u32)number.bits << 16); }

// The nearest number that E can store; a tie goes to the one whose last bit is 0. NaN stays NaN.
template <class E> __device__ __forceinline__ E narrow(float number);
template <> __device__ __forceinline__ float narrow<float>(float number) { return number; }
template <> __device__ __forceinline__ bf16 narrow<bf16>(float number) {
    u32 bits = __float_as_uint(number);
    // Carries into the upper half just above a tie and beyond, and at a tie if the last bit kept is 1.
    u32 rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    // A NaN whose fraction bits all lie in the lower half would become an infinity, so the quiet bit is set.
    u32 quiet = bits | 0x400000u;
    return bf16{(u16)((number != number ? quiet : rounded) >> 16)};
}

// The place of this thread among all threads of the launch.
__device__ __forceinline__ u64 thread_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

// Elements that a thread takes at a time.
constexpr int EIGHT = 8;

// Eight elements that are read and written in words of 16 bytes.
template <class E> struct __align__(16) Eight {
    E at[EIGHT];
};

// Numbers `start` to `start` + 8 of `from`, up to `len`, and zeros beyond. With ALIGNED, `from` lies at a multiple of
// 16 bytes.
template <int ALIGNED, class E> __device__ __forceinline__ void load(float* to, const E* from, u64 start, u64 len) {
    if (ALIGNED && start + EIGHT <= len) {
        Eight<E> eight = *reinterpret_cast<const Eight<E>*>(from + start);
#pragma unroll
        for (int i = 0; i < EIGHT; i++) to[i] = widen(eight.at[i]);
    } else {
#pragma unroll
        for (int i = 0; i < EIGHT; i++) to[i] = start + i < len ? widen(from[start + i]) : 0.0f;
    }
}

// `to` from `start` on := the eight numbers, rounded, up to `len` elements.
template <int ALIGNED, class E> __device__ __forceinline__ void store(E* to, const float* from, u64 start, u64 len) {
    if (ALIGNED && start + EIGHT <= len) {
        Eight<E> eight;
#pragma unroll
        for (int i = 0; i < EIGHT; i++) eight.at[i] = narrow<E>(from[i]);
        *reinterpret_cast<Eight<E>*>(to + start) = eight;
    } else {
#pragma unroll
        for (int i = 0; i < EIGHT; i++)
            if (start + i < len) to[start + i] = narrow<E>(from[i]);
    }
}
