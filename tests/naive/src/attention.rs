//! Attention of the naive device: one query at a time, with all of its weights. Forward and backward share only the loop that
//! computes the scores.

use std::ops::Range;

use zero_core::device::{AttentionShape, Element, Strided};

use super::Naive;
use super::numbers::{dot, log_sum_exp, wide};

/// The rows that are read.
pub(super) struct Inputs {
    shape: AttentionShape,
    qkv: [Vec<f32>; 3],
    strides: [usize; 3],
}

impl Inputs {
    pub(super) fn new<E: Element>(shape: AttentionShape, qkv: [Strided<Naive, E>; 3]) -> Self {
        Self { shape, qkv: qkv.map(|rows| wide(rows.view)), strides: qkv.map(|rows| rows.stride) }
    }

    /// A head of a row of queries (0), keys (1) or values (2).
    fn head(&self, kind: usize, row: usize, head: usize) -> &[f32] {
        let dim = self.shape.head_dim;
        &self.qkv[kind][row * self.strides[kind] + head * dim..][..dim]
    }

    fn queries(&self) -> impl Iterator<Item = Query<'_>> {
        let heads = |token| (0..self.shape.heads).map(move |head| (token, head));
        (0..self.shape.tokens()).flat_map(heads).map(|(token, head)| Query { inputs: self, token, head })
    }
}

/// One query of one head, with its keys and values.
struct Query<'a> {
    inputs: &'a Inputs,
    token: usize,
    head: usize,
}

impl Query<'_> {
    fn query(&self) -> &[f32] {
        self.inputs.head(0, self.token, self.head)
    }

    fn key_head(&self) -> usize {
        self.head / self.inputs.shape.sharing()
    }

    fn key(&self, row: usize) -> &[f32] {
        self.inputs.head(1, row, self.key_head())
    }

    fn value(&self, row: usize) -> &[f32] {
        self.inputs.head(2, row, self.key_head())
    }

    fn out(&self) -> usize {
        let shape = &self.inputs.shape;
        self.token * shape.out_width() + self.head * shape.head_dim
    }

    fn lse(&self) -> usize {
        self.token * self.inputs.shape.heads + self.head
    }

    /// Rows of the keys and values that this query sees: its own, and those before it.
    fn seen(&self) -> Range<usize> {
        let AttentionShape { length, before, window, .. } = self.inputs.shape;
        let first_row = self.token / length * (before + length);
        let position = before + self.token % length;
        let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
        first_row + first..first_row + position + 1
    }

    fn scale(&self) -> f32 {
        1.0 / (self.inputs.shape.head_dim as f32).sqrt()
    }

    fn score(&self, row: usize) -> f32 {
        self.scale() * dot(self.query(), self.key(row))
    }
}

pub(super) fn forward(inputs: &Inputs, out: &mut [f32], lse: &mut [f32]) {
    out.fill(0.0);
    for query in inputs.queries() {
        let scores: Vec<f32> = query.seen().map(|row| query.score(row)).collect();
        lse[query.lse()] = log_sum_exp(&scores);
        for (row, score) in query.seen().zip(scores) {
            let weight = (score - lse[query.lse()]).exp();
            for (out, value) in out[query.out()..].iter_mut().zip(query.value(row)) {
                *out += weight * value;
            }
        }
    }
}

/// For queries without earlier keys, so that each row of keys belongs to one token.
pub(super) fn backward(inputs: &Inputs, [out, lse, dout]: [&[f32]; 3], dqkv: &mut [f32]) {
    let shape = &inputs.shape;
    assert!(shape.before == 0, "gradients of keys that came before");
    dqkv.fill(0.0);
    for query in inputs.queries() {
        let dim = shape.head_dim;
        let dout = &dout[query.out()..][..dim];
        let shared = dot(dout, &out[query.out()..][..dim]);
        // `head` counts heads of queries, then of keys, then of values.
        let at = |token: usize, head: usize| token * shape.qkv_width() + head * dim;
        for token in query.seen() {
            let weight = (query.score(token) - lse[query.lse()]).exp();
            let dweight = dot(dout, query.value(token));
            let dscore = query.scale() * weight * (dweight - shared);
            let key_head = shape.heads + query.key_head();
            for d in 0..dim {
                dqkv[at(query.token, query.head) + d] += dscore * query.key(token)[d];
                dqkv[at(token, key_head) + d] += dscore * query.query()[d];
                dqkv[at(token, key_head + shape.key_heads) + d] += weight * dout[d];
            }
        }
    }
}
