//! Backward: the heads that share keys and values, one after another, a block of queries at a time.
//!
//! With p a softmax row and o = p v: ds = p (do v^T - do . o), dq = ds k, dk = ds^T q, dv = p^T do.
#![allow(unsafe_code)]

use std::ops::Range;

use zero_plan::Width;

use super::product::{ProductSize, RowsMut, product};
use super::stored::{product_of_stored, store, sums};
use super::{
    HEAD_DIM_MAX, Inputs, KEYS, OneHead, Panel, QUERIES, QueryBlock, SCRATCH, blocks, key_blocks, rows_of, rows_of_mut,
};
use crate::math::exp_small;
use crate::simd::{sum, vectorised};
use zero_core::device::{AttentionShape, Element, Write};

/// Elements of the gradients of keys, and as many of values, that are summed at a time if the tensor cannot hold sums:
/// a block of keys of the widest head.
pub const SPAN: usize = KEYS * HEAD_DIM_MAX;

/// The inputs of backward.
#[derive(Clone, Copy)]
pub struct BackwardInputs<'a, E> {
    pub inputs: Inputs<'a, E>,
    pub out: &'a [E],
    pub lse: &'a [f32],
    pub dout: &'a [E],
}

/// Tokens whose gradients of keys and values are summed at a time, in whole blocks of keys, and the addresses of the sums.
struct KeySpan {
    tokens: Range<usize>,
    dkey: RowsMut<f32>,
    dvalue: RowsMut<f32>,
}

/// A block of queries, with two numbers for each query that the gradients of all of its scores need. Columns beyond the
/// queries have no weight.
struct Queries {
    range: Range<usize>,
    lse: [f32; QUERIES],
    /// do . o
    shared: [f32; QUERIES],
}

/// The most tokens in a span.
fn span_max<E: Element>(dim: usize) -> usize {
    match E::WIDTH {
        // All: the tensor itself holds the sums.
        Width::F32 => usize::MAX,
        Width::BF16 => SPAN / dim.max(1) / KEYS * KEYS,
    }
}

/// Computes the gradients of `heads`, which are all heads that share their keys and values.
///
/// # Safety
/// All are tensors of the shape; nobody else uses the rows of these heads in `dqkv`.
pub unsafe fn backward<E: Element>(shape: AttentionShape, heads: Range<usize>, given: BackwardInputs<E>, dqkv: *mut E) {
    let [_, key, value] = gradients(shape, heads.start);
    SCRATCH.with_borrow_mut(|scratch| {
        for tokens in blocks(0..shape.length, span_max::<E>(shape.head_dim)) {
            let (start, count) = (tokens.start, tokens.len());
            // SAFETY: tokens of this sequence.
            let (dkey, dvalue) = unsafe { (key.rows_mut(dqkv, start), value.rows_mut(dqkv, start)) };
            let [dkey_sums, dvalue_sums] = &mut scratch.span;
            let dkey_sums = sums(dkey, dkey_sums, shape.head_dim);
            let dvalue_sums = sums(dvalue, dvalue_sums, shape.head_dim);
            let span = KeySpan { tokens, dkey: dkey_sums, dvalue: dvalue_sums };
            for index in heads.clone() {
                let (head, [dquery, ..]) = (OneHead::of(shape, &given.inputs, index), gradients(shape, index));
                let sees_span = |queries: &Range<usize>| head.seen(queries).start < span.tokens.end;
                for queries in blocks(start..shape.length, QUERIES).take_while(sees_span) {
                    // SAFETY: by the caller's promise.
                    unsafe {
                        let dquery = dquery.rows_mut(dqkv, queries.start);
                        head.backward_block(queries, &span, given, dquery, &mut scratch.block);
                    }
                }
            }
            // SAFETY: the sums over all queries of all heads, and rows of `dqkv` that are ours.
            unsafe {
                store(dkey_sums, dkey, count, shape.head_dim);
                store(dvalue_sums, dvalue, count, shape.head_dim);
            }
        }
    });
}

/// The positions of the gradients of the queries, keys and values of head number `index`.
fn gradients(shape: AttentionShape, index: usize) -> [Panel; 3] {
    let AttentionShape { length, heads, key_heads, head_dim, .. } = shape;
    let (sequence, head, stride) = (index / heads, index % heads, shape.qkv_width());
    let key = heads + head / shape.sharing();
    [head, key, key + key_heads].map(|head| Panel { offset: sequence * length * stride + head * head_dim, stride })
}

impl OneHead {
    /// Adds the contribution of these queries to the gradients of the span's keys and values. The queries' own
    /// gradients are complete after the span that has the queries. That pass goes once more through all earlier keys
    /// that the queries see, because partial sums cannot be kept anywhere.
    ///
    /// # Safety
    /// As for `backward`; `dquery` are the rows of these queries, none of which is before the span.
    unsafe fn backward_block<E: Element>(
        &self,
        queries: Range<usize>,
        span: &KeySpan,
        given: BackwardInputs<E>,
        dquery: RowsMut<E>,
        block: &mut QueryBlock,
    ) {
        let (dim, count, inside) = (self.dim, queries.len(), queries.start < span.tokens.end);
        let dquery_sums = sums(dquery, &mut block.sums, dim);
        let queries = self.prepare(queries, given, block);
        let seen = self.seen(&queries.range);
        let first_key = if inside { seen.start } else { seen.start.max(span.tokens.start) };
        for keys in key_blocks(first_key..seen.end.min(span.tokens.end)) {
            // SAFETY: `keys` are rows of this head.
            unsafe { self.score(&queries, &keys, &given.inputs, block) };
            if inside {
                let write = if keys.start == seen.start { Write::Set } else { Write::Add };
                let size = ProductSize { rows: count, depth: keys.len(), cols: dim };
                let dscores = rows_of(&block.dscores).transposed();
                // SAFETY: the sums have as many rows as there are queries, and are ours; `keys` are rows of this head.
                unsafe { product(size, dscores, self.key.rows(given.inputs.key, keys.start), dquery_sums, write) };
            }
            if keys.start >= span.tokens.start {
                // SAFETY: by the caller's promise.
                unsafe { self.add_to_span(&queries.range, &keys, span, given, block) };
            }
        }
        if inside {
            // SAFETY: the sums over all keys, and rows of `dqkv` that are ours.
            unsafe { store(dquery_sums, dquery, count, dim) };
        }
    }

    /// Transposes the queries and the gradients of their outputs.
    fn prepare<E: Element>(&self, range: Range<usize>, given: BackwardInputs<E>, block: &mut QueryBlock) -> Queries {
        self.transpose(&mut block.queries, given.inputs.query, self.query, &range, self.scale());
        self.transpose(&mut block.gradients, given.dout, self.out, &range, 1.0);
        let mut queries = Queries { range, lse: [f32::INFINITY; QUERIES], shared: [0.0; QUERIES] };
        for (i, query) in queries.range.clone().enumerate() {
            let out = self.out.at(query)..self.out.at(query) + self.dim;
            queries.lse[i] = given.lse[self.lse.at(query)];
            queries.shared[i] = vectorised(
                #[inline(always)]
                || sum([&given.dout[out.clone()], &given.out[out.clone()]], |[dout, out]| dout * out),
            );
        }
        queries
    }

    /// Computes the block's weights and the gradients of its scores.
    ///
    /// # Safety
    /// `inputs` are tensors of this head's shape, and have these keys.
    unsafe fn score<E: Element>(
        &self,
        queries: &Queries,
        keys: &Range<usize>,
        inputs: &Inputs<E>,
        block: &mut QueryBlock,
    ) {
        let (weights, dscores) = (&mut block.weights[..keys.len()], &mut block.dscores[..keys.len()]);
        let (key, value) = (self.key.rows(inputs.key, keys.start), self.value.rows(inputs.value, keys.start));
        let size = ProductSize { rows: keys.len(), depth: self.dim, cols: QUERIES };
        let room = &mut block.widened;
        // SAFETY: by the caller's promise; the strips are ours.
        unsafe {
            product_of_stored(size, key, rows_of(&block.queries), rows_of_mut(weights), room);
            product_of_stored(size, value, rows_of(&block.gradients), rows_of_mut(dscores), room);
        }
        let scale = self.scale();
        let Queries { range, lse, shared } = queries;
        vectorised(
            #[inline(always)]
            || {
                self.hide(weights, keys.start, range);
                for (weights, dscores) in weights.iter_mut().zip(dscores) {
                    for i in 0..QUERIES {
                        weights[i] = exp_small(weights[i] - lse[i]);
                        dscores[i] = scale * weights[i] * (dscores[i] - shared[i]);
                    }
                }
            },
        );
    }

    /// # Safety
    /// As for `backward_block`; `keys` are within the span.
    unsafe fn add_to_span<E: Element>(
        &self,
        queries: &Range<usize>,
        keys: &Range<usize>,
        span: &KeySpan,
        given: BackwardInputs<E>,
        block: &QueryBlock,
    ) {
        let (query, dout) =
            (self.query.rows(given.inputs.query, queries.start), self.out.rows(given.dout, queries.start));
        // This head sees the keys of its own block for the first time, and earlier keys again.
        let middle = queries.start.clamp(keys.start, keys.end);
        for (part, write) in [(keys.start..middle, Write::Add), (middle..keys.end, self.first)] {
            let strip = part.start - keys.start..part.end - keys.start;
            let size = ProductSize { rows: strip.len(), depth: queries.len(), cols: self.dim };
            let row = part.start - span.tokens.start;
            // SAFETY: `queries` are rows of this head, and the sums of `part` are ours.
            unsafe {
                product(size, rows_of(&block.dscores[strip.clone()]).left(), query, span.dkey.skip(row), write);
                product(size, rows_of(&block.weights[strip]).left(), dout, span.dvalue.skip(row), write);
            }
        }
    }
}
