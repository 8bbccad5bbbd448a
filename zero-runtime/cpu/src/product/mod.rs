//! Product: matrix products with sums in f32 for elements of any width, cut into blocks for the caches. Never writes a
//! result: each block of sums is passed on while it is in the cache.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod choice;
mod pack;
mod scratch;
#[cfg(test)]
mod tests;
mod tile;
mod transpose;

use std::ops::Range;

pub use choice::Bf16Products;

use super::StridedMatrix;
use pack::{Cell, Order, Packing, SIDE, Widened, cells_of, pack};
use scratch::with_scratch;
use tile::{BLOCK, STRIDE, Tile};
use zero_core::device::Element;

/// Rows and columns of the sums that are kept until they are whole. With this many rows, each element of the right
/// operand is used often enough whenever it is read from a third-level cache; with this many columns, each element of
/// the left operand is used often enough whenever it is packed.
const ROWS: usize = 256;
const COLS: usize = 512;

/// Cells along the common dimension that are packed at a time.
const DEPTH_CELLS: usize = 64;

/// Some rows and columns of a product.
pub struct ProductPart<'a> {
    /// Its rows.
    pub rows: Range<usize>,
    /// Its columns.
    pub cols: Range<usize>,
    sums: &'a [f32],
}

impl ProductPart<'_> {
    /// The sums in these columns of row `row` of the product.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &[f32] {
        &self.sums[(row - self.rows.start) * STRIDE..][..self.cols.len()]
    }
}

/// Calls `finish` for all sums of `a` (m, k) * `b` (k, n), block by block.
///
/// A sum runs along k in an order that depends only on the instructions. So its bits differ from machine to machine,
/// but do not depend on the rows and columns next to it. With instructions for bf16, subnormal numbers count as 0.
pub fn product<E: Element>(a: StridedMatrix<E>, b: StridedMatrix<E>, finish: impl FnMut(ProductPart)) {
    product_with(Bf16Products::chosen(), a, b, finish);
}

/// [`product`], with these instructions if the elements are bf16.
///
/// # Panics
/// If they are not there.
pub fn product_with<E: Element>(
    instructions: Bf16Products,
    a: StridedMatrix<E>,
    b: StridedMatrix<E>,
    finish: impl FnMut(ProductPart),
) {
    assert!(instructions.is_there(), "this processor has no `{}`", instructions.name());
    #[cfg(target_arch = "x86_64")]
    if let (Some(a), Some(b)) = (a.known(), b.known()) {
        match instructions {
            // SAFETY: the instructions are there.
            Bf16Products::Amx => return unsafe { product_by::<amx::Amx>(a, b, finish) },
            // SAFETY: the instructions are there.
            Bf16Products::Avx512 => return unsafe { product_by::<avx512::Avx512>(a, b, finish) },
            Bf16Products::Widened => {}
        }
    }
    // SAFETY: every machine widens.
    unsafe { product_by::<Widened<E>>(a, b, finish) }
}

type TileElement<T> = <<T as Tile>::Packing as Packing>::Element;

/// [`product`] by one kind of tile.
///
/// # Safety
/// This machine has the instructions of the tile.
unsafe fn product_by<T: Tile>(
    a: StridedMatrix<TileElement<T>>,
    b: StridedMatrix<TileElement<T>>,
    mut finish: impl FnMut(ProductPart),
) {
    let depth_max = DEPTH_CELLS * SIDE * T::Packing::IN_WORD;
    // Columns of `b` are packed in the same way as rows of `a`.
    let b = b.transposed();
    with_scratch(|scratch| {
        let (left, right, sums) = scratch.parts();
        for cols in pieces(b.rows(), COLS) {
            let mut is_packed = false;
            for rows in pieces(a.rows(), ROWS) {
                for depth in pieces(a.cols(), depth_max) {
                    let cells = cells_of::<T::Packing>(depth.len());
                    let left = &mut left[..strips(&rows) * cells];
                    let right = &mut right[..strips(&cols) * cells];
                    pack::<T::Packing>(a.part(rows.clone(), depth.clone()), T::LEFT, left);
                    if !is_packed {
                        pack::<T::Packing>(b.part(cols.clone(), depth.clone()), Order::Depth, right);
                    }
                    is_packed = depth.len() == a.cols();
                    let is_first = depth.start == 0;
                    // SAFETY: by the caller's promise.
                    T::during(|| unsafe { multiply::<T>(left, right, cells, is_first, sums) });
                }
                if a.cols() == 0 {
                    sums.fill(0.0);
                }
                finish(ProductPart { rows, cols: cols.clone(), sums });
            }
        }
    });
}

/// `sums` += the product of strips of `cells` cells each; := if it is the first.
///
/// # Safety
/// As for [`Tile::multiply`].
unsafe fn multiply<T: Tile>(left: &[Cell], right: &[Cell], cells: usize, is_first: bool, sums: &mut [f32]) {
    for near in pieces(cells, T::NEAR_CELLS) {
        for (col, right) in right.chunks_exact(2 * cells).enumerate() {
            for (row, left) in left.chunks_exact(2 * cells).enumerate() {
                let sums = &mut sums[row * BLOCK * STRIDE + col * BLOCK..];
                let [left, right] = [left, right].map(|strips| {
                    let (first, second) = strips.split_at(cells);
                    [&first[near.clone()], &second[near.clone()]]
                });
                // SAFETY: by the caller's promise.
                unsafe { T::multiply(left, right, is_first && near.start == 0, sums) };
            }
        }
    }
}

/// The number of strips that hold these rows, rounded up to an even number.
fn strips(rows: &Range<usize>) -> usize {
    2 * rows.len().div_ceil(BLOCK)
}

/// Cuts `len` into ranges of at most `max`.
fn pieces(len: usize, max: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(max).map(move |start| start..len.min(start + max))
}
