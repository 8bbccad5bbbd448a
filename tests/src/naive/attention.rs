//! Attention of the naive device: one query at a time, with all of its weights. Never shares a loop between forward and
//! backward but for the scores.

use zero_runtime::device::AttentionShape;

use super::numbers::{dot, log_sum_exp};

/// One query of one head, and where what it has to do with lies.
struct Query {
    shape: AttentionShape,
    first_token: usize,
    token: usize,
    head: usize,
}

impl Query {
    fn all(shape: AttentionShape) -> impl Iterator<Item = Self> {
        let heads = move |token| (0..shape.heads).map(move |head| (token, head));
        (0..shape.tokens()).flat_map(heads).map(move |(token, head)| Self {
            shape,
            first_token: token / shape.length * shape.length,
            token,
            head,
        })
    }

    /// The start of a head's row in `qkv`, counted over heads of queries, of keys and of values.
    fn at(&self, token: usize, head: usize) -> usize {
        token * self.shape.qkv_width() + head * self.shape.head_dim
    }

    fn query(&self) -> usize {
        self.at(self.token, self.head)
    }

    fn key(&self, token: usize) -> usize {
        self.at(token, self.shape.heads + self.head / self.shape.sharing())
    }

    fn value(&self, token: usize) -> usize {
        self.key(token) + self.shape.key_heads * self.shape.head_dim
    }

    fn out(&self) -> usize {
        self.token * self.shape.out_width() + self.head * self.shape.head_dim
    }

    fn lse(&self) -> usize {
        self.token * self.shape.heads + self.head
    }

    fn seen(&self) -> std::ops::RangeInclusive<usize> {
        self.first_token..=self.token
    }

    fn scale(&self) -> f32 {
        1.0 / (self.shape.head_dim as f32).sqrt()
    }

    fn score(&self, qkv: &[f32], token: usize) -> f32 {
        let dim = self.shape.head_dim;
        self.scale() * dot(&qkv[self.query()..][..dim], &qkv[self.key(token)..][..dim])
    }
}

pub(super) fn forward(shape: AttentionShape, qkv: &[f32], out: &mut [f32], lse: &mut [f32]) {
    out.fill(0.0);
    for query in Query::all(shape) {
        let scores: Vec<f32> = query.seen().map(|token| query.score(qkv, token)).collect();
        lse[query.lse()] = log_sum_exp(&scores);
        for (token, score) in query.seen().zip(scores) {
            let weight = (score - lse[query.lse()]).exp();
            for d in 0..shape.head_dim {
                out[query.out() + d] += weight * qkv[query.value(token) + d];
            }
        }
    }
}

pub(super) fn backward(shape: AttentionShape, [qkv, out, lse, dout]: [&[f32]; 4], dqkv: &mut [f32]) {
    dqkv.fill(0.0);
    for query in Query::all(shape) {
        let dim = shape.head_dim;
        let dout = &dout[query.out()..][..dim];
        let shared = dot(dout, &out[query.out()..][..dim]);
        for token in query.seen() {
            let weight = (query.score(qkv, token) - lse[query.lse()]).exp();
            let dweight = dot(dout, &qkv[query.value(token)..][..dim]);
            let dscore = query.scale() * weight * (dweight - shared);
            for d in 0..dim {
                dqkv[query.query() + d] += dscore * qkv[query.key(token) + d];
                dqkv[query.key(token) + d] += dscore * qkv[query.query() + d];
                dqkv[query.value(token) + d] += weight * dout[d];
            }
        }
    }
}
