// Elementary functions: the same operations as in the processor's kernels, so that both compute the same bits. Never
// calls a function of the CUDA library, whose last bits differ between versions and from the host's. Only
// `power_of_two`, an instruction of the GPU, computes other bits than the processor.
#pragma once
#include "prelude.cuh"

// Adding this rounds an f32 within +-2^22 to an integer, which is then in the low bits.
constexpr float ROUNDER = 12582912.0f; // 1.5 x 2^23
constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float LN_2 = 0.693147180559945309417f;
// ln 2 minus LN_2.
constexpr float LN_2_REST = float(0.693147180559945309417 - double(LN_2));
constexpr float EXP_UNDERFLOW = -125.0f * LN_2;
constexpr float EXP_OVERFLOW = 88.72283f;
// The least f32. Running maxima begin here, so that the difference of a hidden score from them is negative infinity.
constexpr float LOWEST = -3.40282346638528859812e38f;

__device__ inline float infinity() { return __uint_as_float(0x7f800000u); }
__device__ inline float not_a_number() { return __uint_as_float(0x7fc00000u); }

struct ExpParts {
    u32 power;
    float series;
};

// x = n ln 2 + r: n in the low bits of a sum with ROUNDER, and e^r by its Taylor series.
__device__ inline ExpParts exp_parts(float x) {
    float rounded = fmaf(x, LOG2_E, ROUNDER);
    float n = rounded - ROUNDER;
    float r = fmaf(-n, LN_2_REST, fmaf(-n, LN_2, x));
    float series = 1.0f / 720.0f;
    series = fmaf(r, series, 1.0f / 120.0f);
    series = fmaf(r, series, 1.0f / 24.0f);
    series = fmaf(r, series, 1.0f / 6.0f);
    series = fmaf(r, series, 0.5f);
    series = fmaf(r, series, 1.0f);
    series = fmaf(r, series, 1.0f);
    return {__float_as_uint(rounded), series};
}

// e^x of any x: 0 below 2^-125, infinity above the largest f32, NaN for NaN.
__device__ inline float exponential(float x) {
    ExpParts parts = exp_parts(x);
    float half_power = __uint_as_float((parts.power << 23) + (126u << 23));
    float value = 2.0f * parts.series * half_power;
    value = x < EXP_UNDERFLOW ? 0.0f : value;
    return x > EXP_OVERFLOW ? infinity() : value;
}

// e^x where |x| is at most 87.5, or x is NaN.
__device__ inline float exponential_within(float x) {
    ExpParts parts = exp_parts(x);
    return parts.series * __uint_as_float((parts.power << 23) + (127u << 23));
}

// e^x where x is at most 87.5, or NaN.
__device__ inline float exponential_small(float x) {
    float value = exponential_within(x);
    return x < EXP_UNDERFLOW ? 0.0f : value;
}

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

// Instructions that only a GPU has. With another compiler, PRETEND has these functions.
#ifndef PRETEND
// About 1 / x, for a normal x.
__device__ __forceinline__ float near_reciprocal(float x) {
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(x));
    return near;
}

// 2^x to two units in the last place; results below the normal numbers are 0. NaN stays.
__device__ __forceinline__ float power_of_two(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
#endif

// 1 / x, rounded to the nearest, where x is from 1 to 2^126, or NaN. These are the instructions into which NVIDIA's compiler
// translates the division, without its branch for other numbers. They round right only if `near_reciprocal` is as near as NVIDIA's.
__device__ inline float reciprocal_within(float x) {
    float near = near_reciprocal(x);
    return fmaf(near, fmaf(-x, near, 1.0f), near);
}

__device__ inline float sigmoid_within(float x) { return reciprocal_within(1.0f + exponential_within(-x)); }

// ln x of a positive, normal x, to two units in the last place; infinity and NaN stay, 0 gives negative infinity. With
// x = 2^n m and m about 1, ln m is 2 atanh(s) by its series in s = (m - 1) / (m + 1).
__device__ inline float logarithm(float x) {
    u32 bits = __float_as_uint(x);
    // m is at least sqrt(1/2): the number that is subtracted from the exponent is added to the fraction's place.
    u32 shifted = bits - 0x3f3504f3u;
    float n = float(int(shifted) >> 23);
    float m = __uint_as_float((shifted & 0x007fffffu) + 0x3f3504f3u);
    float f = m - 1.0f;
    float s = f / (2.0f + f);
    float square = s * s;
    float series = fmaf(square, 2.0f / 11.0f, 2.0f / 9.0f);
    series = fmaf(square, series, 2.0f / 7.0f);
    series = fmaf(square, series, 2.0f / 5.0f);
    series = fmaf(square, series, 2.0f / 3.0f);
    // f - s (f - square series) is ln m; only its second term is rounded, because f is exact.
    float tail = fmaf(-s, f - square * series, n * LN_2_REST);
    float value = fmaf(n, LN_2, f + tail);
    value = x == 0.0f ? -infinity() : value;
    return x < infinity() ? value : x;
}

constexpr double ROUNDER_F64 = 6755399441055744.0; // 1.5 x 2^52

struct SinCos {
    float sin, cos;
};

// Sine and cosine, with the angle reduced to +-pi/4 in f64.
__device__ inline SinCos sin_cos(float angle) {
    double x = angle;
    double rounded = fma(x, 0.63661977236758134308, ROUNDER_F64);
    double r = fma(-(rounded - ROUNDER_F64), 1.57079632679489661923, x);
    u32 quarter = u32(u64(__double_as_longlong(rounded)));
    double square = r * r, sin = -1.0 / 39916800.0, cos = -1.0 / 3628800.0;
    sin = fma(square, sin, 1.0 / 362880.0);
    sin = fma(square, sin, -1.0 / 5040.0);
    sin = fma(square, sin, 1.0 / 120.0);
    sin = fma(square, sin, -1.0 / 6.0);
    cos = fma(square, cos, 1.0 / 40320.0);
    cos = fma(square, cos, -1.0 / 720.0);
    cos = fma(square, cos, 1.0 / 24.0);
    cos = fma(square, cos, -0.5);
    cos = fma(square, cos, 1.0);
    float near_sin = float(fma(r * square, sin, r)), near_cos = float(cos);
    bool is_odd = quarter & 1u;
    float y = is_odd ? near_cos : near_sin, z = is_odd ? near_sin : near_cos;
    // One quarter turn gives (-sin, cos) instead of (cos, sin); two negate both.
    y = __uint_as_float(__float_as_uint(y) ^ ((quarter & 2u) << 30));
    z = __uint_as_float(__float_as_uint(z) ^ (((quarter + 1u) & 2u) << 30));
    return {y, z};
}
