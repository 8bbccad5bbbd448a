//! Forward: one head of one sequence, a block of queries at a time.
#![allow(unsafe_code)]

use std::ops::Range;

use super::product::{ProductSize, RowsMut, product};
use super::softmax::Softmax;
use super::stored::{product_of_stored, store, sums};
use super::{Inputs, OneHead, QUERIES, QueryBlock, SCRATCH, blocks, key_blocks, rows_of, rows_of_mut};
use crate::simd::vectorised;
use zero_core::device::{Element, Write};

impl OneHead {
    /// # Safety
    /// `inputs`, `out` and `lse` are tensors of this head's shape; nobody else uses the rows of this head in `out` and
    /// `lse`.
    pub unsafe fn forward<E: Element>(&self, inputs: &Inputs<E>, out: *mut E, lse: *mut f32) {
        SCRATCH.with_borrow_mut(|scratch| {
            for queries in blocks(0..self.length, QUERIES) {
                // SAFETY: by the caller's promise.
                unsafe { self.forward_block(queries, inputs, out, lse, &mut scratch.block) };
            }
        });
    }

    /// # Safety
    /// As for `forward`.
    unsafe fn forward_block<E: Element>(
        &self,
        queries: Range<usize>,
        inputs: &Inputs<E>,
        out: *mut E,
        lse: *mut f32,
        block: &mut QueryBlock,
    ) {
        let (dim, count) = (self.dim, queries.len());
        self.transpose(&mut block.queries, inputs.query, self.query, &queries, self.scale());
        // SAFETY: by the caller's promise.
        let out = unsafe { self.out.rows_mut(out, queries.start) };
        let mixed = sums(out, &mut block.sums, dim);
        let mut softmax = Softmax::new();
        let seen = self.seen(&queries);
        for keys in key_blocks(seen.clone()) {
            let weights = &mut block.weights[..keys.len()];
            let size = ProductSize { rows: keys.len(), depth: dim, cols: QUERIES };
            let (key, value) = (self.key.rows(inputs.key, keys.start), self.value.rows(inputs.value, keys.start));
            // SAFETY: `keys` are rows of this head; the strip is ours.
            unsafe {
                product_of_stored(size, key, rows_of(&block.queries), rows_of_mut(weights), &mut block.widened);
            }
            let factors = vectorised(
                #[inline(always)]
                || {
                    self.hide(weights, keys.start, &queries);
                    softmax.advance(weights)
                },
            );
            let write = if keys.start == seen.start { Write::Set } else { Write::Add };
            let size = ProductSize { rows: count, depth: keys.len(), cols: dim };
            // SAFETY: `mixed` has as many rows as there are queries, and is ours; the product reads `keys`, which are
            // rows of this head.
            unsafe {
                if write == Write::Add {
                    scale_rows(mixed, count, dim, &factors);
                }
                product(size, rows_of(weights).transposed(), value, mixed, write);
            }
        }
        // Dividing here rather than in the strips touches `dim` elements for each query instead of up to `length`.
        // SAFETY: rows of `out` and elements of `lse` that are ours.
        unsafe {
            scale_rows(mixed, count, dim, &softmax.sums.map(f32::recip));
            store(mixed, out, count, dim);
            for (i, query) in queries.enumerate() {
                *lse.add(self.lse.at(query)) = softmax.maxima[i] + softmax.sums[i].ln();
            }
        }
    }
}

/// Multiplies row i by `factors[i]`.
///
/// # Safety
/// `rows` has `count` rows of `width` elements, which nobody else uses.
pub unsafe fn scale_rows(rows: RowsMut<f32>, count: usize, width: usize, factors: &[f32]) {
    vectorised(
        #[inline(always)]
        || {
            for (i, factor) in factors.iter().enumerate().take(count) {
                // SAFETY: by the caller's promise.
                let row = unsafe { core::slice::from_raw_parts_mut(rows.start.add(i * rows.stride), width) };
                for x in row {
                    *x *= factor;
                }
            }
        },
    );
}
