//! One token: attention for the last token of each sequence alone. Its time is that of reading keys and values from
//! memory: heads that share them are computed together, and all heads use a block of keys before the next block is
//! read. Never packs.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::ops::Range;

use super::forward::scale_rows;
use super::product::{ProductSize, Rows, RowsMut, product};
use super::softmax::RowSoftmax;
use super::stored::{store, sums};
use super::{HEAD_DIM_MAX, Inputs, OneHead, Panel, QUERIES, QueryBlock, SCRATCH, key_blocks};
use crate::few_rows::{ROWS, few_rows};
use crate::simd::vectorised;
use crate::{MatrixMut, StridedMatrix};
use zero_core::device::{AttentionShape, Element, Write};

/// The most heads that use a block of keys before the next block is read.
const HEADS: usize = 128;

/// Bytes that memory delivers at a time.
const LINE_BYTES: usize = 64;

/// Heads of the same token, and the state of their softmax.
struct TokenHeads<'a, E> {
    shape: AttentionShape,
    /// Counted over all sequences.
    range: Range<usize>,
    inputs: &'a Inputs<'a, E>,
    softmax: [RowSoftmax; HEADS],
}

/// Computes the output of `heads`, counted over all sequences, for the only token with a query.
///
/// # Safety
/// As for `OneHead::forward`.
pub unsafe fn one_token<E: Element>(
    shape: AttentionShape,
    heads: Range<usize>,
    inputs: &Inputs<E>,
    out: *mut E,
    lse: *mut f32,
) {
    let at_once = HEADS.min(QUERIES * HEAD_DIM_MAX / shape.head_dim.max(1));
    SCRATCH.with_borrow_mut(|scratch| {
        let mut first = heads.start;
        while first < heads.end {
            let of_sequence = (first / shape.heads + 1) * shape.heads;
            let end = heads.end.min(of_sequence).min(first + at_once);
            let heads = TokenHeads { shape, range: first..end, inputs, softmax: [RowSoftmax::NEW; HEADS] };
            // SAFETY: by the caller's promise.
            unsafe { heads.forward(out, lse, &mut scratch.block) };
            first = end;
        }
    });
}

impl<E: Element> TokenHeads<'_, E> {
    fn head(&self, index: usize) -> OneHead {
        OneHead::of(self.shape, self.inputs, index)
    }

    /// # Safety
    /// As for `one_token`.
    unsafe fn forward(mut self, out: *mut E, lse: *mut f32, block: &mut QueryBlock) {
        let (dim, count) = (self.shape.head_dim, self.range.len());
        let [first, last] = [self.range.start, self.range.end - 1].map(|index| self.head(index));
        // SAFETY: by the caller's promise; the heads of a token lie one after another.
        let out = RowsMut { start: unsafe { first.out.rows_mut(out, 0) }.start, stride: dim };
        let mixed = sums(out, &mut block.sums, dim);
        let scores = block.weights.as_flattened_mut();
        let seen = first.seen(&(0..1));
        for keys in key_blocks(seen.clone()) {
            touch(self.inputs.key, first.key, &keys, last.key.offset + dim - first.key.offset);
            touch(self.inputs.value, first.value, &keys, last.value.offset + dim - first.value.offset);
            let write = if keys.start == seen.start { Write::Set } else { Write::Add };
            let mut index = self.range.start;
            while index < self.range.end {
                let sharing = self.shape.sharing();
                let end = self.range.end.min((index / sharing + 1) * sharing).min(index + ROWS);
                // SAFETY: rows of `mixed`, which are ours.
                unsafe {
                    let mixed = mixed.skip(index - self.range.start);
                    self.ask(index..end, &keys, &mut scores[..(end - index) * keys.len()], mixed, write);
                }
                index = end;
            }
        }
        let factors = self.softmax.map(|softmax| softmax.sum.recip());
        // SAFETY: rows of `out` and elements of `lse` that are ours.
        unsafe {
            scale_rows(mixed, count, dim, &factors);
            store(mixed, out, count, dim);
            for (i, softmax) in self.softmax.iter().enumerate().take(count) {
                *lse.add(first.lse.offset + i) = softmax.max + softmax.sum.ln();
            }
        }
    }

    /// Adds to `mixed` the contribution of a block of keys and values to these heads, which share them; `scores`
    /// (heads, keys).
    ///
    /// # Safety
    /// `mixed` are the sums of these heads, and nobody else uses them.
    unsafe fn ask(
        &mut self,
        heads: Range<usize>,
        keys: &Range<usize>,
        scores: &mut [f32],
        mixed: RowsMut<f32>,
        write: Write,
    ) {
        let (head, dim, count) = (self.head(heads.start), self.shape.head_dim, heads.len());
        let queries = StridedMatrix::strided(&self.inputs.query[head.query.at(0)..], count, dim, dim);
        let key = StridedMatrix::strided(&self.inputs.key[head.key.at(keys.start)..], keys.len(), dim, head.key.stride);
        let scale = head.scale();
        few_rows(
            MatrixMut::of_width(scores, keys.len()),
            queries,
            key.transposed(),
            #[inline(always)]
            |score, _, sum| *score = scale * sum,
        );
        let mut factors = [0.0; ROWS];
        let softmax = &mut self.softmax[heads.start - self.range.start..];
        for ((softmax, factor), scores) in softmax.iter_mut().zip(&mut factors).zip(scores.chunks_exact_mut(keys.len()))
        {
            *factor = vectorised(
                #[inline(always)]
                || softmax.advance(scores),
            );
        }
        let weights = Rows { start: scores.as_ptr(), stride: keys.len() }.left();
        let size = ProductSize { rows: count, depth: keys.len(), cols: dim };
        // SAFETY: `mixed` has as many rows as there are heads, and is ours; `keys` are rows of this head.
        unsafe {
            if write == Write::Add {
                scale_rows(mixed, count, dim, &factors);
            }
            product(size, weights, head.value.rows(self.inputs.value, keys.start), mixed, write);
        }
    }
}

/// Reads each cache line of the first `width` elements of these rows, in order, because memory delivers lines faster in
/// this order than head by head.
fn touch<E: Element>(x: &[E], panel: Panel, rows: &Range<usize>, width: usize) {
    let mut seen = 0;
    for row in rows.clone() {
        let lines = x[panel.at(row)..][..width].iter().step_by(LINE_BYTES / size_of::<E>());
        seen = lines.fold(seen, |seen, x| seen ^ x.widen().to_bits());
    }
    black_box(seen);
}

const _: () = assert!(ROWS <= QUERIES, "`weights` holds the scores of as many heads");
