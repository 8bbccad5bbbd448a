// CUDA C++ for the host's compiler: what a kernel's source may use, included before it. A thread of a block is a fiber
// of the pretend driver, which runs them in any order that barriers allow.
//
// Leaves out functions that kernels may not use, so that these do not compile here: those whose result a GPU rounds
// differently from the host (`expf`, `rsqrtf`, `__fdividef`), or which order threads by chance (`atomicAdd` of floats).
// Includes no system header, as compiling one would take longer than the kernel.
#pragma once
#include "module.h"

#define PRETEND 1

#define __global__
#define __device__
#define __host__
// `extern __shared__` has lost its second word when it gets here: the pretend NVRTC makes room for it.
#define __shared__ static
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#ifndef __restrict__
#define __restrict__ __restrict
#endif

extern "C" __attribute__((visibility("default"))) PretendThreads pretend_threads;
PretendThreads pretend_threads;
#define threadIdx (pretend_threads.thread)
#define blockIdx (pretend_threads.block)
#define blockDim (pretend_threads.threads)
#define gridDim (pretend_threads.blocks)
static const int warpSize = 32;

// ---- Entries: one for each name expression, written by the pretend NVRTC after the source.

template <int... I> struct PretendIndices {};
template <int N> struct PretendCount {
    template <class... A, int... I> static void call(void (*kernel)(A...), void** arguments, PretendIndices<I...>) {
        kernel(*static_cast<A*>(arguments[I])...);
    }
};
template <class F, F kernel> struct PretendEntry;
template <class... A, void (*kernel)(A...)> struct PretendEntry<void (*)(A...), kernel> {
    static constexpr unsigned count = sizeof...(A);
    static constexpr unsigned sizes[count + 1] = {sizeof(A)..., 0};
    static void run(void** arguments) {
        PretendCount<count>::call(kernel, arguments, PretendIndices<__integer_pack(int(count))...>());
    }
};
#define PRETEND_KERNEL(symbol, ...)                                                                                    \
    extern "C" __attribute__((visibility("default"), used)) const PretendKernel symbol = {                            \
        #__VA_ARGS__, PretendEntry<decltype(&__VA_ARGS__), &__VA_ARGS__>::run,                                         \
        PretendEntry<decltype(&__VA_ARGS__), &__VA_ARGS__>::sizes,                                                     \
        PretendEntry<decltype(&__VA_ARGS__), &__VA_ARGS__>::count, 1024};

// ---- Threads that wait for one another.

static inline void __syncthreads() { pretend_threads.block_barrier(); }
static inline void pretend_nothing(void* const*) {}
static inline void __syncwarp(unsigned mask = 0xffffffffu) { pretend_threads.meet(mask, pretend_nothing, nullptr); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void __trap() { pretend_threads.fail("__trap()"); }

template <class T> struct PretendShuffle {
    T value, result;
    int from;
    static void meet(void* const* lanes) {
        for (int lane = 0; lane < 32; lane++) {
            auto* mine = static_cast<PretendShuffle*>(lanes[lane]);
            if (!mine) continue;
            auto* other = static_cast<PretendShuffle*>(lanes[mine->from]);
            if (!other) return pretend_threads.fail("a shuffle reads a lane that takes no part in it");
            mine->result = other->value;
        }
    }
};
static inline int pretend_lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
template <class T> static inline T pretend_shuffle(unsigned mask, T value, int from) {
    PretendShuffle<T> mine{value, value, from};
    pretend_threads.meet(mask, PretendShuffle<T>::meet, &mine);
    return mine.result;
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    int lane = pretend_lane();
    return pretend_shuffle(mask, value, (lane & -width) | (from & (width - 1)));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {
    int lane = pretend_lane(), from = lane ^ with;
    return pretend_shuffle(mask, value, from >= (lane & -width) + width ? lane : from);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
    int lane = pretend_lane(), from = lane + int(by);
    return pretend_shuffle(mask, value, from >= (lane & -width) + width ? lane : from);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
    int lane = pretend_lane(), from = lane - int(by);
    return pretend_shuffle(mask, value, from < (lane & -width) ? lane : from);
}
struct PretendBallot {
    unsigned votes;
    static void meet(void* const* lanes) {
        unsigned votes = 0;
        for (int lane = 0; lane < 32; lane++)
            if (lanes[lane] && static_cast<PretendBallot*>(lanes[lane])->votes) votes |= 1u << lane;
        for (int lane = 0; lane < 32; lane++)
            if (lanes[lane]) static_cast<PretendBallot*>(lanes[lane])->votes = votes;
    }
};
static inline unsigned __ballot_sync(unsigned mask, int vote) {
    PretendBallot mine{unsigned(vote != 0)};
    pretend_threads.meet(mask, PretendBallot::meet, &mine);
    return mine.votes;
}
static inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
static inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) == mask; }

// ---- The product of a warp: `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`, by the published layout of fragments.

struct PretendMma {
    float* d;
    const unsigned *a, *b;
    static float half(unsigned pair, int upper) {
        union { unsigned bits; float number; } u = {upper ? pair & 0xffff0000u : pair << 16};
        return u.number;
    }
    static void meet(void* const* lanes) {
        float a[16][16], b[16][8];
        for (int lane = 0; lane < 32; lane++) {
            auto* mine = static_cast<PretendMma*>(lanes[lane]);
            if (!mine) return pretend_threads.fail("a lane takes no part in its warp's product");
            int group = lane / 4, pair = lane % 4 * 2;
            for (int i = 0; i < 8; i++)
                a[group + i / 2 % 2 * 8][pair + i % 2 + i / 4 * 8] = half(mine->a[i / 2], i % 2);
            for (int i = 0; i < 4; i++) b[pair + i % 2 + i / 2 * 8][group] = half(mine->b[i / 2], i % 2);
        }
        for (int lane = 0; lane < 32; lane++) {
            float* d = static_cast<PretendMma*>(lanes[lane])->d;
            for (int i = 0; i < 4; i++) {
                int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
                float sum = 0;
                for (int k = 0; k < 16; k++) sum = __builtin_fmaf(a[row][k], b[k][column], sum);
                d[i] += sum;
            }
        }
    }
};
static inline void mma_bf16(float* d, const unsigned* a, const unsigned* b) {
    PretendMma mine{d, a, b};
    pretend_threads.meet(0xffffffffu, PretendMma::meet, &mine);
}

// ---- Fragments of a block's memory, a matrix of 8 x 8 from eight lanes each, and numbers rounded in pairs.

struct PretendMatrices {
    unsigned* to;
    const void* row;
    bool transposed;
    static void meet(void* const* lanes) {
        for (int lane = 0; lane < 32; lane++)
            if (!lanes[lane]) return pretend_threads.fail("a lane takes no part in what its warp loads");
        for (int lane = 0; lane < 32; lane++) {
            auto* mine = static_cast<PretendMatrices*>(lanes[lane]);
            for (int matrix = 0; matrix < 4; matrix++) {
                unsigned pair = 0;
                for (int i = 0; i < 2; i++) {
                    int row = mine->transposed ? lane % 4 * 2 + i : lane / 4;
                    int column = mine->transposed ? lane / 4 : lane % 4 * 2 + i;
                    auto* from = static_cast<PretendMatrices*>(lanes[matrix * 8 + row])->row;
                    pair |= unsigned(static_cast<const unsigned short*>(from)[column]) << 16 * i;
                }
                mine->to[matrix] = pair;
            }
        }
    }
};
static inline void pretend_load(unsigned* to, const void* row, bool transposed) {
    if ((unsigned long long)row % 16) pretend_threads.fail("ldmatrix of a row that is not at a multiple of 16 bytes");
    PretendMatrices mine{to, row, transposed};
    pretend_threads.meet(0xffffffffu, PretendMatrices::meet, &mine);
}
static inline void ldmatrix_x4(unsigned* to, const void* row) { pretend_load(to, row, false); }
static inline void ldmatrix_x4_trans(unsigned* to, const void* row) { pretend_load(to, row, true); }
static inline unsigned pack_bf16(float low, float high) {
    auto rounded = [](float x) {
        union { float number; unsigned bits; } u = {x};
        return x != x ? 0x7fffu : (u.bits + 0x7fffu + (u.bits >> 16 & 1u)) >> 16;
    };
    return rounded(low) | rounded(high) << 16;
}
static inline float power_of_two(float x) { return __builtin_exp2f(x); }
// One unit too small, from which one step of Newton's method comes to the nearest number for all but one of 2^23 numbers.
static inline float near_reciprocal(float x) { return __builtin_nextafterf(1.0f / x, 0.0f); }

// ---- Asynchronous copies: done when a thread waits for them; until then their target is NaN.

struct PretendCopies {
    static constexpr int MOST = 64;
    void* to[MOST];
    const void* from[MOST];
    int count;
};
static PretendCopies pretend_copies[1024];
static inline void copy_async_16(void* to, const void* from, bool is_there = true) {
    PretendCopies& mine = pretend_copies[threadIdx.x];
    if (((unsigned long long)to | (unsigned long long)from) % 16) pretend_threads.fail("cp.async that is not at a multiple of 16 bytes");
    if (mine.count == PretendCopies::MOST) pretend_threads.fail("more copies at a time than this host counts");
    __builtin_memset(to, 0xff, 16);
    mine.to[mine.count] = to;
    mine.from[mine.count++] = is_there ? from : nullptr;
}
static inline void copy_async_wait() {
    PretendCopies& mine = pretend_copies[threadIdx.x];
    for (int i = 0; i < mine.count; i++)
        if (mine.from[i]) __builtin_memcpy(mine.to[i], mine.from[i], 16);
        else __builtin_memset(mine.to[i], 0, 16);
    mine.count = 0;
}

// ---- Numbers: operations that host and GPU round alike.

template <class To, class From> static inline To pretend_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits of another length");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float x) { return pretend_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return pretend_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return pretend_bits<float>(x); }
static inline float __int_as_float(int x) { return pretend_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return pretend_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return pretend_bits<double>(x); }
#define PRETEND_NUMBERS(T, f)                                                                                          \
    static inline T fma##f(T x, T y, T z) { return __builtin_fma##f(x, y, z); }                                        \
    static inline T sqrt##f(T x) { return __builtin_sqrt##f(x); }                                                      \
    static inline T fabs##f(T x) { return __builtin_fabs##f(x); }                                                      \
    static inline T floor##f(T x) { return __builtin_floor##f(x); }                                                    \
    static inline T ceil##f(T x) { return __builtin_ceil##f(x); }                                                      \
    static inline T fmax##f(T x, T y) { return x != x ? y : y != y ? x : x > y ? x : y; }                              \
    static inline T fmin##f(T x, T y) { return x != x ? y : y != y ? x : x < y ? x : y; }                              \
    static inline bool isnan(T x) { return x != x; }                                                                   \
    static inline bool isinf(T x) { return __builtin_isinf(x); }                                                       \
    static inline bool isfinite(T x) { return __builtin_isfinite(x); }                                                 \
    static inline T max(T x, T y) { return fmax##f(x, y); }                                                            \
    static inline T min(T x, T y) { return fmin##f(x, y); }
PRETEND_NUMBERS(float, f)
PRETEND_NUMBERS(double, )
#define PRETEND_INTEGERS(T)                                                                                            \
    static inline T max(T x, T y) { return x > y ? x : y; }                                                            \
    static inline T min(T x, T y) { return x < y ? x : y; }
PRETEND_INTEGERS(int)
PRETEND_INTEGERS(unsigned)
PRETEND_INTEGERS(long)
PRETEND_INTEGERS(unsigned long)
PRETEND_INTEGERS(long long)
PRETEND_INTEGERS(unsigned long long)
static inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
static inline double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __ddiv_rn(double x, double y) { return x / y; }
static inline double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
static inline float __double2float_rn(double x) { return float(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __umulhi(unsigned x, unsigned y) { return unsigned((unsigned long long)x * y >> 32); }
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}

// ---- Memory.

template <class T> static inline T __ldg(const T* from) { return *from; }
// Blocks run one after another and threads give way only where they wait, so that a plain access is atomic.
#define PRETEND_ATOMIC(T)                                                                                              \
    static inline T atomicAdd(T* to, T value) { T old = *to; *to = old + value; return old; }                          \
    static inline T atomicMax(T* to, T value) { T old = *to; *to = max(old, value); return old; }                      \
    static inline T atomicMin(T* to, T value) { T old = *to; *to = min(old, value); return old; }                      \
    static inline T atomicOr(T* to, T value) { T old = *to; *to = old | value; return old; }                           \
    static inline T atomicExch(T* to, T value) { T old = *to; *to = value; return old; }                               \
    static inline T atomicCAS(T* to, T expected, T value) { T old = *to; if (old == expected) *to = value; return old; }
PRETEND_ATOMIC(int)
PRETEND_ATOMIC(unsigned)
PRETEND_ATOMIC(unsigned long long)

#define PRETEND_VECTOR(T, name, bytes)                                                                                 \
    struct __align__(2 * bytes) name##2 { T x, y; };                                                                   \
    struct __align__((4 * bytes) > 16 ? 16 : (4 * bytes)) name##4 { T x, y, z, w; };                                   \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                  \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
PRETEND_VECTOR(float, float, 4)
PRETEND_VECTOR(double, double, 8)
PRETEND_VECTOR(int, int, 4)
PRETEND_VECTOR(unsigned, uint, 4)
PRETEND_VECTOR(unsigned short, ushort, 2)
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
