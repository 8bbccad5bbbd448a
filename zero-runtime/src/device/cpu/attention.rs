//! Causal self-attention, forward and backward, over blocks of queries and blocks of keys. Never holds more scores than one
//! block of each has: forward keeps a running maximum and sum, backward rebuilds the softmax from the log-sum-exp (Dao et
//! al., 2022).
#![allow(unsafe_code)]

mod product;

use std::cell::RefCell;
use std::ops::Range;

use super::Cpu;
use super::math::exp_small;
use super::parallel::PRODUCTS_PER_ELEMENT;
use super::simd::{check_len, sum, vectorised};
use crate::device::{AttentionShape, Write};
use product::{Rows, RowsMut, Size, product};

/// Queries worked on at a time. Scores lie in rows of as many, a row for each key, whether or not all of them are queries:
/// so every loop over a row is a few whole vectors, softmax runs down the columns and needs no sum across a vector.
const QUERIES: usize = 32;

/// Keys worked on at a time; a multiple of `QUERIES`, so that every query sees the first key of each block of keys that its
/// block of queries has to do with.
const KEYS: usize = 2 * QUERIES;

/// The most features of a head.
pub(super) const HEAD_DIM_MAX: usize = 1024;

/// `out` := softmax(q k^T / sqrt(head_dim), causal) v, for every sequence and head.
///
/// `qkv` is laid out as [`AttentionShape`] says; `out`: (tokens, heads * head_dim); `lse`: (tokens, heads), the log-sum-exp
/// of each softmax row, kept for backward.
pub fn attention(cpu: Cpu, shape: AttentionShape, qkv: &[f32], out: &mut [f32], lse: &mut [f32]) {
    check(shape, qkv, out, lse);
    let (out, lse) = (Destination(out.as_mut_ptr()), Destination(lse.as_mut_ptr()));
    each_head(cpu, shape, 1, |head| {
        // SAFETY: the checks prove that the rows of every head lie within their tensors, which are borrowed here, and no
        // two heads have an element in common.
        unsafe { head.forward(qkv, out.start(), lse.start()) };
    });
}

/// `dqkv`, laid out as `qkv`, := the gradient of `attention`, given `dout` (tokens, heads * head_dim).
pub fn attention_backward(
    cpu: Cpu,
    shape: AttentionShape,
    qkv: &[f32],
    out: &[f32],
    lse: &[f32],
    dout: &[f32],
    dqkv: &mut [f32],
) {
    check(shape, qkv, out, lse);
    check_len("dout", dout.len(), out.len());
    check_len("dqkv", dqkv.len(), qkv.len());
    let saved = Saved { qkv, out, lse };
    let dqkv = Destination(dqkv.as_mut_ptr());
    each_head(cpu, shape, shape.sharing(), |head| {
        // SAFETY: as for `attention`; and heads that share keys and values run one after another.
        unsafe { head.backward(saved, dout, dqkv.start()) };
    });
}

/// The start of a tensor of which each head is written by one thread.
struct Destination(*mut f32);

// SAFETY: an address; whoever writes through it argues for that.
unsafe impl Sync for Destination {}

impl Destination {
    fn start(&self) -> *mut f32 {
        self.0
    }
}

#[track_caller]
fn check(shape: AttentionShape, qkv: &[f32], out: &[f32], lse: &[f32]) {
    assert!(shape.head_dim <= HEAD_DIM_MAX, "a head of {} features, {HEAD_DIM_MAX} at most", shape.head_dim);
    shape.sharing();
    check_len("qkv", qkv.len(), shape.tokens() * shape.qkv_width());
    check_len("out", out.len(), shape.tokens() * shape.out_width());
    check_len("lse", lse.len(), shape.tokens() * shape.heads);
}

/// `run` for each head of each sequence, some of them at a time; each `together` in order, on one thread.
fn each_head(cpu: Cpu, shape: AttentionShape, together: usize, run: impl Fn(Head) + Sync) {
    let products = shape.length * shape.length * shape.head_dim * together;
    cpu.by_heads(shape.sequences * shape.heads / together, products / PRODUCTS_PER_ELEMENT, |groups| {
        (groups.start * together..groups.end * together).for_each(|head| run(Head::of(shape, head)));
    });
}

/// Where the rows of one head of one sequence lie in a tensor of the whole batch.
#[derive(Clone, Copy)]
struct Panel {
    offset: usize,
    stride: usize,
}

impl Panel {
    fn at(self, row: usize) -> usize {
        self.offset + row * self.stride
    }

    fn rows(self, x: &[f32], first: usize) -> Rows {
        Rows { start: x[self.at(first)..].as_ptr(), stride: self.stride }
    }

    /// # Safety
    /// `x` is the start of a tensor that has this row.
    unsafe fn rows_mut(self, x: *mut f32, first: usize) -> RowsMut {
        // SAFETY: by the caller's promise.
        RowsMut { start: unsafe { x.add(self.at(first)) }, stride: self.stride }
    }
}

/// What forward leaves for backward.
#[derive(Clone, Copy)]
struct Saved<'a> {
    qkv: &'a [f32],
    out: &'a [f32],
    lse: &'a [f32],
}

/// One head of one sequence.
struct Head {
    query: Panel,
    key: Panel,
    value: Panel,
    out: Panel,
    lse: Panel,
    length: usize,
    dim: usize,
    /// How gradients of its keys and values are written: a head that shares them with heads before it adds to theirs.
    first: Write,
}

/// Scores of a block of keys, or what becomes of them.
type Strip = [[f32; QUERIES]; KEYS];

/// What a thread works in: constant in size, and nobody else's.
#[repr(align(64))]
struct Scratch {
    /// (dim, QUERIES): a block of queries, transposed.
    queries: [[f32; QUERIES]; HEAD_DIM_MAX],
    /// (dim, QUERIES): the gradients of what they gave, transposed.
    gradients: [[f32; QUERIES]; HEAD_DIM_MAX],
    weights: Strip,
    dscores: Strip,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch {
            queries: [[0.0; QUERIES]; HEAD_DIM_MAX],
            gradients: [[0.0; QUERIES]; HEAD_DIM_MAX],
            weights: [[0.0; QUERIES]; KEYS],
            dscores: [[0.0; QUERIES]; KEYS],
        })
    };
}

fn rows_of<const N: usize>(matrix: &[[f32; N]]) -> Rows {
    Rows { start: matrix.as_flattened().as_ptr(), stride: N }
}

fn rows_of_mut<const N: usize>(matrix: &mut [[f32; N]]) -> RowsMut {
    RowsMut { start: matrix.as_flattened_mut().as_mut_ptr(), stride: N }
}

/// Blocks of `size` that `0..end` is cut into.
fn blocks(end: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..end).step_by(size).map(move |start| start..end.min(start + size))
}

impl Head {
    /// Head number `index`, sequence by sequence.
    fn of(shape: AttentionShape, index: usize) -> Self {
        let AttentionShape { length, heads, key_heads, head_dim, .. } = shape;
        let (first_token, head) = (index / heads * length, index % heads);
        let (width, stride, sharing) = (shape.out_width(), shape.qkv_width(), shape.sharing());
        let panel = |offset: usize| Panel { offset: first_token * stride + offset * head_dim, stride };
        Self {
            query: panel(head),
            key: panel(heads + head / sharing),
            value: panel(heads + key_heads + head / sharing),
            out: Panel { offset: first_token * width + head * head_dim, stride: width },
            lse: Panel { offset: first_token * heads + head, stride: heads },
            length,
            dim: head_dim,
            first: if head.is_multiple_of(sharing) { Write::Set } else { Write::Add },
        }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.dim as f32).sqrt()
    }

    /// # Safety
    /// `qkv`, `out` and `lse` are tensors of the shape that this head is of; of the last two, the rows of this head are
    /// nobody else's.
    unsafe fn forward(&self, qkv: &[f32], out: *mut f32, lse: *mut f32) {
        SCRATCH.with_borrow_mut(|scratch| {
            for queries in blocks(self.length, QUERIES) {
                // SAFETY: by the caller's promise.
                unsafe { self.forward_block(queries, qkv, out, lse, scratch) };
            }
        });
    }

    /// # Safety
    /// As for `forward`.
    unsafe fn forward_block(
        &self,
        queries: Range<usize>,
        qkv: &[f32],
        out: *mut f32,
        lse: *mut f32,
        scratch: &mut Scratch,
    ) {
        let (dim, count) = (self.dim, queries.len());
        self.transpose(&mut scratch.queries, qkv, self.query, &queries, self.scale());
        // SAFETY: by the caller's promise.
        let mixed = unsafe { self.out.rows_mut(out, queries.start) };
        let mut softmax = Softmax::new();
        for keys in blocks(queries.end, KEYS) {
            let weights = &mut scratch.weights[..keys.len()];
            let size = Size { rows: keys.len(), depth: dim, cols: QUERIES };
            let (key, value) = (self.key.rows(qkv, keys.start), self.value.rows(qkv, keys.start));
            // SAFETY: `keys` are rows of this head; the strip is ours.
            unsafe { product(size, key.left(), rows_of(&scratch.queries), rows_of_mut(weights), Write::Set) };
            let factors = vectorised(
                #[inline(always)]
                || {
                    hide_future(weights, keys.start, queries.start);
                    softmax.advance(weights)
                },
            );
            let write = if keys.start == 0 { Write::Set } else { Write::Add };
            let size = Size { rows: count, depth: keys.len(), cols: dim };
            // SAFETY: `queries` are rows of `out` that are ours, and the product reads `keys`, which are rows of this head.
            unsafe {
                if write == Write::Add {
                    scale_rows(mixed, count, dim, &factors);
                }
                product(size, rows_of(weights).transposed(), value, mixed, write);
            }
        }
        // Dividing here rather than in the strips touches `dim` elements a query instead of up to `length`.
        // SAFETY: rows of `out` and elements of `lse` that are ours.
        unsafe {
            scale_rows(mixed, count, dim, &softmax.sums.map(f32::recip));
            for (i, query) in queries.enumerate() {
                *lse.add(self.lse.at(query)) = softmax.maxima[i] + softmax.sums[i].ln();
            }
        }
    }

    /// # Safety
    /// All are tensors of the shape that this head is of; of `dqkv`, the rows of this head are nobody else's.
    unsafe fn backward(&self, saved: Saved, dout: &[f32], dqkv: *mut f32) {
        SCRATCH.with_borrow_mut(|scratch| {
            for queries in blocks(self.length, QUERIES) {
                // SAFETY: by the caller's promise.
                unsafe { self.backward_block(queries, saved, dout, dqkv, scratch) };
            }
        });
    }

    // With p a softmax row and o = p v: ds = p (do v^T - do . o), dq = ds k, dk = ds^T q, dv = p^T do.
    /// # Safety
    /// As for `backward`.
    unsafe fn backward_block(
        &self,
        queries: Range<usize>,
        saved: Saved,
        dout: &[f32],
        dqkv: *mut f32,
        scratch: &mut Scratch,
    ) {
        let (dim, count) = (self.dim, queries.len());
        self.transpose(&mut scratch.queries, saved.qkv, self.query, &queries, self.scale());
        self.transpose(&mut scratch.gradients, dout, self.out, &queries, 1.0);
        // What is no query has no weight.
        let (mut lse, mut shared) = ([f32::INFINITY; QUERIES], [0.0; QUERIES]);
        for (i, query) in queries.clone().enumerate() {
            let out = self.out.at(query)..self.out.at(query) + dim;
            lse[i] = saved.lse[self.lse.at(query)];
            shared[i] = vectorised(
                #[inline(always)]
                || sum([&dout[out.clone()], &saved.out[out.clone()]], |[dout, out]| dout * out),
            );
        }
        for keys in blocks(queries.end, KEYS) {
            let (weights, dscores) = (&mut scratch.weights[..keys.len()], &mut scratch.dscores[..keys.len()]);
            let (key, value) = (self.key.rows(saved.qkv, keys.start), self.value.rows(saved.qkv, keys.start));
            let size = Size { rows: keys.len(), depth: dim, cols: QUERIES };
            // SAFETY: `keys` are rows of this head; the strips are ours.
            unsafe {
                product(size, key.left(), rows_of(&scratch.queries), rows_of_mut(weights), Write::Set);
                product(size, value.left(), rows_of(&scratch.gradients), rows_of_mut(dscores), Write::Set);
            }
            let scale = self.scale();
            vectorised(
                #[inline(always)]
                || {
                    hide_future(weights, keys.start, queries.start);
                    for (weights, dscores) in weights.iter_mut().zip(&mut *dscores) {
                        for i in 0..QUERIES {
                            weights[i] = exp_small(weights[i] - lse[i]);
                            dscores[i] = scale * weights[i] * (dscores[i] - shared[i]);
                        }
                    }
                },
            );
            let write = if keys.start == 0 { Write::Set } else { Write::Add };
            let size = Size { rows: count, depth: keys.len(), cols: dim };
            // SAFETY: `queries` are rows of this head, ours in `dqkv`, and `keys` are rows of this head.
            unsafe {
                let dquery = self.query.rows_mut(dqkv, queries.start);
                product(size, rows_of(dscores).transposed(), key, dquery, write);
            }
            // This head sees keys of this very block for the first time, those before it again.
            let middle = queries.start.clamp(keys.start, keys.end);
            for (keys_part, write) in [(keys.start..middle, Write::Add), (middle..keys.end, self.first)] {
                let strip = keys_part.start - keys.start..keys_part.end - keys.start;
                let size = Size { rows: strip.len(), depth: count, cols: dim };
                let (query, dout) = (self.query.rows(saved.qkv, queries.start), self.out.rows(dout, queries.start));
                // SAFETY: as above.
                unsafe {
                    let dkey = self.key.rows_mut(dqkv, keys_part.start);
                    let dvalue = self.value.rows_mut(dqkv, keys_part.start);
                    product(size, rows_of(&dscores[strip.clone()]).left(), query, dkey, write);
                    product(size, rows_of(&weights[strip]).left(), dout, dvalue, write);
                }
            }
        }
    }

    /// `to` (dim, QUERIES) := the rows `queries` of `panel`, transposed and scaled; zero where there are no more.
    fn transpose(&self, to: &mut [[f32; QUERIES]], x: &[f32], panel: Panel, queries: &Range<usize>, scale: f32) {
        let to = &mut to[..self.dim];
        if queries.len() < QUERIES {
            to.as_flattened_mut().fill(0.0);
        }
        for (i, query) in queries.clone().enumerate() {
            let from = &x[panel.at(query)..][..self.dim];
            for (to, from) in to.iter_mut().zip(from) {
                to[i] = scale * from;
            }
        }
    }
}

/// A softmax down the columns of strips that come one after another.
struct Softmax {
    maxima: [f32; QUERIES],
    /// Of e^(score - maximum).
    sums: [f32; QUERIES],
}

impl Softmax {
    fn new() -> Self {
        Self { maxima: [f32::NEG_INFINITY; QUERIES], sums: [0.0; QUERIES] }
    }

    /// `strip` := e^(strip - the new maxima); gives what earlier exponentials are to be multiplied by.
    #[inline(always)]
    fn advance(&mut self, strip: &mut [[f32; QUERIES]]) -> [f32; QUERIES] {
        let before = self.maxima;
        for row in &*strip {
            for (max, &score) in self.maxima.iter_mut().zip(row) {
                *max = if score > *max { score } else { *max };
            }
        }
        let mut factors = [0.0; QUERIES];
        for i in 0..QUERIES {
            factors[i] = exp_small(before[i] - self.maxima[i]);
            self.sums[i] *= factors[i];
        }
        for row in strip {
            for ((weight, max), sum) in row.iter_mut().zip(&self.maxima).zip(&mut self.sums) {
                *weight = exp_small(*weight - max);
                *sum += *weight;
            }
        }
        factors
    }
}

/// Scores of keys after their query := negative infinity.
#[inline(always)]
fn hide_future(strip: &mut [[f32; QUERIES]], first_key: usize, first_query: usize) {
    let after = first_query.saturating_sub(first_key);
    for (queries_before, row) in strip.iter_mut().skip(after).enumerate() {
        row[..queries_before].fill(f32::NEG_INFINITY);
    }
}

/// Multiplies row i by `factors[i]`.
///
/// # Safety
/// `rows` has `count` rows of `width` elements, and they are nobody else's.
unsafe fn scale_rows(rows: RowsMut, count: usize, width: usize, factors: &[f32; QUERIES]) {
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

#[cfg(test)]
mod tests;
