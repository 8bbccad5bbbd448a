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

// Two numbers as bf16, the first one in the lower half of the word: the nearest ones; a tie goes to the number whose
// last bit is 0. NaN stays NaN. With another compiler, PRETEND has this function.
#ifndef PRETEND
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
#endif

// A number as E, rounded in the same way.
template <class E> __device__ __forceinline__ E narrow(float number);
template <> __device__ __forceinline__ float narrow<float>(float number) { return number; }
template <> __device__ __forceinline__ bf16 narrow<bf16>(float number) { return bf16{u16(pack_bf16(number, 0.0f))}; }

// The index of this thread among all threads of the launch.
__device__ __forceinline__ u64 thread_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

// Elements that a thread processes at a time.
constexpr int EIGHT = 8;

// A word in which memory is read and written.
struct __align__(16) Quarter {
    u32 words[4];
};

// `to` := eight numbers, which lie at a multiple of 16 bytes.
__device__ __forceinline__ void load_eight(float* to, const float* from) {
#pragma unroll
    for (int i = 0; i < EIGHT; i += 4) {
        Quarter quarter = *reinterpret_cast<const Quarter*>(from + i);
#pragma unroll
        for (int j = 0; j < 4; j++) to[i + j] = __uint_as_float(quarter.words[j]);
    }
}
__device__ __forceinline__ void load_eight(float* to, const bf16* from) {
    Quarter quarter = *reinterpret_cast<const Quarter*>(from);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = __uint_as_float(quarter.words[i] << 16);
        to[2 * i + 1] = __uint_as_float(quarter.words[i] & 0xffff0000u);
    }
}

// Eight numbers, which lie at a multiple of 16 bytes, := `from`, rounded.
__device__ __forceinline__ void store_eight(float* to, const float* from) {
#pragma unroll
    for (int i = 0; i < EIGHT; i += 4) {
        Quarter quarter;
#pragma unroll
        for (int j = 0; j < 4; j++) quarter.words[j] = __float_as_uint(from[i + j]);
        *reinterpret_cast<Quarter*>(to + i) = quarter;
    }
}
__device__ __forceinline__ void store_eight(bf16* to, const float* from) {
    Quarter quarter;
#pragma unroll
    for (int i = 0; i < 4; i++) quarter.words[i] = pack_bf16(from[2 * i], from[2 * i + 1]);
    *reinterpret_cast<Quarter*>(to) = quarter;
}

// Numbers `start` to `start` + 8 of `from`, up to `len`, and zeros beyond. With ALIGNED, `from` lies at a multiple of
// 16 bytes.
template <int ALIGNED, class E> __device__ __forceinline__ void load(float* to, const E* from, u64 start, u64 len) {
    if (ALIGNED && start + EIGHT <= len) return load_eight(to, from + start);
#pragma unroll
    for (int i = 0; i < EIGHT; i++) to[i] = start + i < len ? widen(from[start + i]) : 0.0f;
}

// `to` from `start` on := the eight numbers, rounded, up to `len` elements.
template <int ALIGNED, class E> __device__ __forceinline__ void store(E* to, const float* from, u64 start, u64 len) {
    if (ALIGNED && start + EIGHT <= len) return store_eight(to + start, from);
#pragma unroll
    for (int i = 0; i < EIGHT; i++)
        if (start + i < len) to[start + i] = narrow<E>(from[i]);
}
