//! Tile: the interface for multiplying packed strips, and the implementation for any machine. Never knows how strips
//! are packed or where results go.
#![allow(unsafe_code)]

use pulp::{Simd, WithSimd};

use super::COLS;
use super::pack::{Cell, Order, Packing, SIDE, Widened};
use crate::simd::dispatch;
use zero_core::device::Element;

/// Rows and columns of a product of two strips by two.
pub const BLOCK: usize = 2 * SIDE;

/// Elements from one row of sums to the next.
pub const STRIDE: usize = COLS + SIDE;

/// Ways to multiply strips.
///
/// The order of a sum along the common dimension depends only on its length, so that a result does not depend on its
/// block or its position in the block.
pub trait Tile {
    /// How strips are packed.
    type Packing: Packing;

    /// How cells of the left operand are packed. Those of the right one are packed by [`Order::Depth`].
    const LEFT: Order;

    /// Cells of a strip that are multiplied at a time. With fewer, two strips stay in a first-level cache; with more,
    /// sums are written less often.
    const NEAR_CELLS: usize;

    /// Runs `work`, which multiplies.
    fn during(work: impl FnOnce()) {
        work();
    }

    /// A block at the start of `sums`, with rows of [`STRIDE`], += the product of two strips `left` and two strips
    /// `right`, all equally long; := if it is the first.
    ///
    /// # Safety
    /// This machine has the instructions of the tile, and the call is within [`Tile::during`].
    unsafe fn multiply(left: [&[Cell]; 2], right: [&[Cell]; 2], is_first: bool, sums: &mut [f32]);
}

/// Clears a block at the start of `sums`.
pub fn clear(sums: &mut [f32]) {
    sums.chunks_mut(STRIDE).take(BLOCK).for_each(|row| row[..BLOCK].fill(0.0));
}

/// Adds one term after another, in f32.
impl<E: Element> Tile for Widened<E> {
    type Packing = Self;
    /// So that the elements of an index of the common dimension lie in one cache line, and are read in the order of memory.
    const LEFT: Order = Order::Depth;
    const NEAR_CELLS: usize = 32;

    #[inline(always)]
    unsafe fn multiply(left: [&[Cell]; 2], right: [&[Cell]; 2], is_first: bool, sums: &mut [f32]) {
        dispatch(Multiply { left, right, is_first, sums });
    }
}

struct Multiply<'a> {
    left: [&'a [Cell]; 2],
    right: [&'a [Cell]; 2],
    is_first: bool,
    sums: &'a mut [f32],
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    /// As many sums at a time as registers hold besides the operands.
    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for col in (0..BLOCK).step_by(2 * S::F32_LANES) {
            for strip in (0..BLOCK).step_by(SIDE) {
                if S::REGISTER_COUNT >= 32 {
                    self.part::<S, 8>(simd, strip, col);
                    self.part::<S, 8>(simd, strip + 8, col);
                } else {
                    self.part::<S, 6>(simd, strip, col);
                    self.part::<S, 5>(simd, strip + 6, col);
                    self.part::<S, 5>(simd, strip + 11, col);
                }
            }
        }
    }
}

impl Multiply<'_> {
    /// M rows of two vectors of columns.
    #[inline(always)]
    fn part<S: Simd, const M: usize>(&mut self, simd: S, row: usize, col: usize) {
        let cols = [col, col + S::F32_LANES];
        let mut sums = [[simd.splat_f32s(0.0); 2]; M];
        if !self.is_first {
            sums = core::array::from_fn(|m| cols.map(|col| vector::<S>(&self.sums[(row + m) * STRIDE..], col)));
        }
        let right = cols.map(|col| self.right[col / SIDE]);
        for ((left, first), second) in self.left[row / SIDE].iter().zip(right[0]).zip(right[1]) {
            let [left, first, second]: [&[[f32; SIDE]; SIDE]; 3] =
                [left, first, second].map(|cell| bytemuck::cast_ref(&cell.0));
            for place in 0..SIDE {
                let left: &[f32; M] = left[place][row % SIDE..].first_chunk().expect("rows of a strip");
                let right = [vector::<S>(&first[place], cols[0] % SIDE), vector::<S>(&second[place], cols[1] % SIDE)];
                for (left, sums) in left.iter().zip(&mut sums) {
                    let left = simd.splat_f32s(*left);
                    *sums = [0, 1].map(|n| simd.mul_add_f32s(left, right[n], sums[n]));
                }
            }
        }
        for (m, sums) in sums.into_iter().enumerate() {
            for (col, sums) in cols.into_iter().zip(sums) {
                let to = &mut self.sums[(row + m) * STRIDE + col..][..S::F32_LANES];
                S::as_mut_simd_f32s(to).0[0] = sums;
            }
        }
    }
}

#[inline(always)]
fn vector<S: Simd>(from: &[f32], at: usize) -> S::f32s {
    S::as_simd_f32s(&from[at..][..S::F32_LANES]).0[0]
}
