//! Products of bf16 by AVX512-BF16: 16 sums of two products in one instruction. Never runs on a processor without it.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m512, __m512bh, _mm512_dpbf16_ps, _mm512_load_ps, _mm512_load_si512, _mm512_set1_epi32, _mm512_store_ps,
};

use super::pack::{Cell, Order, Pairs, SIDE};
use super::tile::{BLOCK, STRIDE, Tile, clear};

/// Rows worked on at a time: with two vectors of columns, 16 sums hide the latency of an addition.
const ROWS: usize = 8;

/// Whether this processor has the instructions.
pub fn is_there() -> bool {
    std::is_x86_feature_detected!("avx512f") && std::is_x86_feature_detected!("avx512bf16")
}

/// Only for processors where [`is_there`] is true.
///
/// The processor may round each pair of products in any way; subnormal operands and results count as 0.
pub enum Avx512 {}

impl Tile for Avx512 {
    type Packing = Pairs;
    const LEFT: Order = Order::Rows;
    const NEAR_CELLS: usize = 32;

    #[inline(always)]
    unsafe fn multiply(left: [&[Cell]; 2], right: [&[Cell]; 2], is_first: bool, sums: &mut [f32]) {
        if is_first {
            clear(sums);
        }
        // SAFETY: by the caller's promise the instructions are there.
        unsafe { multiply(left, right, sums) }
    }
}

#[target_feature(enable = "avx512f,avx512bf16")]
fn multiply(left: [&[Cell]; 2], right: [&[Cell]; 2], sums: &mut [f32]) {
    for row in (0..BLOCK).step_by(ROWS) {
        part(left[row / SIDE], row % SIDE, right, &mut sums[row * STRIDE..]);
    }
}

/// [`ROWS`] rows of a strip, from `first`, by two strips.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn part(left: &[Cell], first: usize, right: [&[Cell]; 2], sums: &mut [f32]) {
    let sums = &mut sums[..(ROWS - 1) * STRIDE + BLOCK];
    let at = |row: usize, strip: usize| row * STRIDE + strip * SIDE;
    assert!(sums.as_ptr().cast::<__m512>().is_aligned(), "sums lie across cache lines");
    // SAFETY: `sums` holds `ROWS` rows of a block, and they are aligned: the first is, and the stride is of whole vectors.
    let mut total: [[__m512; 2]; ROWS] =
        core::array::from_fn(|row| [0, 1].map(|strip| unsafe { _mm512_load_ps(&raw const sums[at(row, strip)]) }));
    for ((left, first_strip), second_strip) in left.iter().zip(right[0]).zip(right[1]) {
        let left: &[[u32; SIDE]; ROWS] = left.0[first..].first_chunk().expect("rows of a strip");
        for place in 0..SIDE {
            // SAFETY: a row of a cell is one vector, and aligned as one.
            let right = [first_strip, second_strip]
                .map(|cell| unsafe { pairs(_mm512_load_si512(cell.0[place].as_ptr().cast())) });
            for (left, total) in left.iter().zip(&mut total) {
                let left = pairs(_mm512_set1_epi32(left[place].cast_signed()));
                *total = [0, 1].map(|strip| _mm512_dpbf16_ps(total[strip], left, right[strip]));
            }
        }
    }
    for (row, total) in total.into_iter().enumerate() {
        for (strip, total) in total.into_iter().enumerate() {
            // SAFETY: as for the loads.
            unsafe { _mm512_store_ps(&raw mut sums[at(row, strip)], total) };
        }
    }
}

#[inline(always)]
fn pairs(words: core::arch::x86_64::__m512i) -> __m512bh {
    // SAFETY: both are 64 bytes of which every pattern is a value.
    unsafe { core::mem::transmute(words) }
}
