// Instructions that only a GPU has: products by a whole warp on tensor cores, of 16 x 16 and 16 x 8 fragments of bf16
// with sums in f32, loads of fragments from shared memory, and copies into it that a thread does not wait for. With
// another compiler, PRETEND has these functions.
#pragma once
#include "prelude.cuh"

#ifndef PRETEND
// d (16, 8) += a (16, 16) b (16, 8).
__device__ __forceinline__ void mma_bf16(float* d, const u32* a, const u32* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four matrices of 8 x 8: lane 8 m + i passes the address of row i of matrix m. A lane receives two neighbours of a row
// of each matrix.
__device__ __forceinline__ void ldmatrix_x4(u32* to, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(u32(__cvta_generic_to_shared(row)))
                 : "memory");
}

// The same for their transposes.
__device__ __forceinline__ void ldmatrix_x4_trans(u32* to, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(u32(__cvta_generic_to_shared(row)))
                 : "memory");
}

// Begins to copy 16 bytes into shared memory.
__device__ __forceinline__ void copy_async_16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(u32(__cvta_generic_to_shared(to))), "l"(from) : "memory");
}

// The same, or as many zeros.
__device__ __forceinline__ void copy_async_16(void* to, const void* from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(u32(__cvta_generic_to_shared(to))), "l"(from),
                 "r"(is_there ? 16 : 0)
                 : "memory");
}

// Waits for all copies that this thread has begun.
__device__ __forceinline__ void copy_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif

// Fragments of 16 rows and 16 columns each, where rows lie STRIDE elements apart. These functions compute the address
// that a lane passes for the left factor, and for the right factor if that is the matrix or its transpose.

// Rows are rows of the left factor.
template <int STRIDE> __device__ __forceinline__ void left_fragment(u32* to, const bf16* rows, u32 column) {
    u32 lane = threadIdx.x % 32;
    ldmatrix_x4(to, rows + lane % 16 * STRIDE + column + lane / 16 * 8);
}

// Rows are columns of the right factor: two fragments of 16 x 8, one after the other.
template <int STRIDE> __device__ __forceinline__ void right_fragments(u32* to, const bf16* rows, u32 column) {
    u32 lane = threadIdx.x % 32;
    ldmatrix_x4(to, rows + (lane / 16 * 8 + lane % 8) * STRIDE + column + lane / 8 % 2 * 8);
}

// Rows are rows of the right factor: two fragments of 16 x 8, one after the other.
template <int STRIDE> __device__ __forceinline__ void right_fragments_of_rows(u32* to, const bf16* rows, u32 column) {
    u32 lane = threadIdx.x % 32;
    ldmatrix_x4_trans(to, rows + lane % 16 * STRIDE + column + lane / 16 * 8);
}

// Sums of two neighbouring fragments, rounded, as a left factor of the next product.
__device__ __forceinline__ void left_of_sums(u32* to, const float (&one)[4], const float (&next)[4]) {
    to[0] = pack_bf16(one[0], one[1]);
    to[1] = pack_bf16(one[2], one[3]);
    to[2] = pack_bf16(next[0], next[1]);
    to[3] = pack_bf16(next[2], next[3]);
}
