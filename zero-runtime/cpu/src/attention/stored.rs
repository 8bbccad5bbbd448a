//! Stored: how attention reads and writes tensors that are not stored as f32: rows are widened into scratch a few at a
//! time, and sums are kept in scratch until they can be rounded. f32 is read and summed in place.
#![allow(unsafe_code)]

use zero_plan::Width;

use super::product::{ProductSize, Rows, RowsMut, product};
use super::{HEAD_DIM_MAX, blocks};
use crate::simd::{LANES, vectorised};
use zero_core::device::{Element, Write};

/// Elements widened at a time: as many rows of the widest head as a product takes at once.
pub const WIDENED: usize = 8 * HEAD_DIM_MAX;

/// `c` (rows, cols) := `a` (rows, depth) `b` (depth, cols), where `a` is at most `HEAD_DIM_MAX` deep.
///
/// # Safety
/// As for `product`.
pub unsafe fn product_of_stored<E: Element>(
    size: ProductSize,
    a: Rows<E>,
    b: Rows<f32>,
    c: RowsMut<f32>,
    room: &mut [f32; WIDENED],
) {
    if E::WIDTH == Width::F32 {
        let a = Rows { start: a.start.cast(), stride: a.stride };
        // SAFETY: by the caller's promise; elements stored as f32 are f32.
        return unsafe { product(size, a.left(), b, c, Write::Set) };
    }
    let depth = size.depth.max(1);
    // Each sum is the same, however many rows are done at a time.
    for rows in blocks(0..size.rows, WIDENED / depth) {
        vectorised(
            #[inline(always)]
            || {
                for (row, room) in rows.clone().zip(room.chunks_exact_mut(depth)) {
                    // SAFETY: a row of `a`, which the caller lets us read.
                    let stored = unsafe { core::slice::from_raw_parts(a.start.add(row * a.stride), size.depth) };
                    widen(stored, room);
                }
            },
        );
        let a = Rows { start: room.as_ptr(), stride: depth }.left();
        // SAFETY: `a` are the rows just widened; the other operands are as the caller promises, from `rows` on.
        unsafe {
            product(ProductSize { rows: rows.len(), ..size }, a, b, c.skip(rows.start), Write::Set);
        }
    }
}

/// `to` := `from`, a whole vector at a time while whole vectors remain.
#[inline(always)]
fn widen<E: Element>(from: &[E], to: &mut [f32]) {
    let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<LANES>(), to.as_chunks_mut::<LANES>());
    for (to, from) in to.iter_mut().zip(from) {
        let mut wide = [0.0; LANES];
        for (wide, from) in wide.iter_mut().zip(from) {
            *wide = from.widen();
        }
        *to = wide;
    }
    for (to, from) in to_rest.iter_mut().zip(from_rest) {
        *to = from.widen();
    }
}

/// The rows in which `width` elements for `to` are summed: `to` itself if it stores f32, otherwise `room`.
pub fn sums<E: Element>(to: RowsMut<E>, room: &mut [f32], width: usize) -> RowsMut<f32> {
    match E::WIDTH {
        Width::F32 => RowsMut { start: to.start.cast(), stride: to.stride },
        Width::BF16 => RowsMut { start: room.as_mut_ptr(), stride: width },
    }
}

/// Rounds `count` rows of `width` sums, in the rows that `sums` returned, to `to`.
///
/// # Safety
/// The sums can be read, and `to` has as many rows, which nobody else uses.
pub unsafe fn store<E: Element>(sums: RowsMut<f32>, to: RowsMut<E>, count: usize, width: usize) {
    if E::WIDTH == Width::F32 {
        return;
    }
    vectorised(
        #[inline(always)]
        || {
            for row in 0..count {
                // SAFETY: by the caller's promise; sums of elements that are not stored as f32 lie elsewhere.
                let (sums, to) = unsafe {
                    (
                        core::slice::from_raw_parts(sums.start.add(row * sums.stride), width),
                        core::slice::from_raw_parts_mut(to.start.add(row * to.stride), width),
                    )
                };
                for (to, &sum) in to.iter_mut().zip(sums) {
                    *to = E::narrow(sum);
                }
            }
        },
    );
}
