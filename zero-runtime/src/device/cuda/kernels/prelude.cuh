#pragma once
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
struct bf16 { u16 bits; };
__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
__device__ inline u32 rounded_bits(float x) {
    u32 bits = __float_as_uint(x);
    u32 rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return x != x ? bits | 0x400000u : rounded;
}
template <class E> __device__ inline E narrow(float x);
template <> __device__ inline float narrow<float>(float x) { return x; }
template <> __device__ inline bf16 narrow<bf16>(float x) { return {u16(rounded_bits(x) >> 16)}; }
