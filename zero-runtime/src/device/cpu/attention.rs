//! Causal self-attention, forward and backward, in strips of all keys by the block of queries that sees them. Never
//! holds a (length, length) matrix: backward rebuilds each strip from the log-sum-exp (Dao et al., 2022).

use std::ops::Range;

use super::gemm::{Matrix, MatrixMut, matmul};
use super::math::exp;
use super::simd::{check_len, sum, vectorised};
use crate::device::Write;

/// Queries worked on at a time, and the width of a strip's rows whether or not all of them are queries: a constant, so
/// that every loop over a row is a few whole vectors. A strip is (keys, queries), so that softmax runs down its columns
/// and needs no sum across a vector.
const QUERY_BLOCK: usize = 32;

/// What the tensors of attention measure; tokens = `sequences` x `length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences in the batch; none sees another.
    pub sequences: usize,
    /// Tokens in each sequence.
    pub length: usize,
    /// Heads.
    pub heads: usize,
    /// Width of one head's queries, keys and values.
    pub head_dim: usize,
}

/// Elements of `work` that `attention` and `attention_backward` need for sequences of `length` tokens; `usize::MAX` where
/// that is too many to count.
pub const fn attention_workspace(length: usize) -> usize {
    length.saturating_mul(2 * QUERY_BLOCK)
}

/// `out` := softmax(q k^T / sqrt(head_dim), causal) v, for every sequence and head.
///
/// `qkv`: (tokens, 3 * heads * head_dim), thirds q, k, v, heads contiguous within a third; `out`: (tokens, heads *
/// head_dim); `lse`: (tokens, heads), the log-sum-exp of each softmax row, kept for backward.
pub fn attention(shape: AttentionShape, qkv: &[f32], out: &mut [f32], lse: &mut [f32], work: &mut [f32]) {
    shape.check(qkv, out, lse, work);
    for head in shape.each_head() {
        for queries in shape.query_blocks() {
            head.forward(queries, qkv, out, lse, work);
        }
    }
}

/// `dqkv` (tokens, 3 * heads * head_dim) := the gradient of `attention`, given `dout` (tokens, heads * head_dim).
pub fn attention_backward(
    shape: AttentionShape,
    qkv: &[f32],
    out: &[f32],
    lse: &[f32],
    dout: &[f32],
    dqkv: &mut [f32],
    work: &mut [f32],
) {
    shape.check(qkv, out, lse, work);
    check_len("dout", dout.len(), out.len());
    check_len("dqkv", dqkv.len(), qkv.len());
    let saved = Saved { qkv, out, lse };
    for head in shape.each_head() {
        // The last block sees every key, so it sets dk and dv, and the others add to them.
        for queries in shape.query_blocks().rev() {
            head.backward(queries, saved, dout, dqkv, work);
        }
    }
}

impl AttentionShape {
    #[track_caller]
    fn check(&self, qkv: &[f32], out: &[f32], lse: &[f32], work: &[f32]) {
        let tokens = self.sequences * self.length;
        check_len("qkv", qkv.len(), tokens * 3 * self.heads * self.head_dim);
        check_len("out", out.len(), tokens * self.heads * self.head_dim);
        check_len("lse", lse.len(), tokens * self.heads);
        let needed = attention_workspace(self.length);
        assert!(work.len() >= needed, "`work` has {} elements, expected at least {needed}", work.len());
    }

    fn each_head(self) -> impl Iterator<Item = Head> {
        let width = self.heads * self.head_dim;
        (0..self.sequences * self.heads).map(move |i| {
            let (first_token, head) = (i / self.heads * self.length, i % self.heads);
            let third = |index: usize| Panel {
                offset: first_token * 3 * width + index * width + head * self.head_dim,
                cols: self.head_dim,
                row_stride: 3 * width,
            };
            Head {
                query: third(0),
                key: third(1),
                value: third(2),
                out: Panel {
                    offset: first_token * width + head * self.head_dim,
                    cols: self.head_dim,
                    row_stride: width,
                },
                lse: Panel { offset: first_token * self.heads + head, cols: 1, row_stride: self.heads },
                length: self.length,
            }
        })
    }

    fn query_blocks(self) -> impl DoubleEndedIterator<Item = Range<usize>> {
        (0..self.length).step_by(QUERY_BLOCK).map(move |start| start..self.length.min(start + QUERY_BLOCK))
    }
}

/// The columns of one head in the rows of one sequence, within a tensor of the whole batch.
#[derive(Clone, Copy)]
struct Panel {
    offset: usize,
    cols: usize,
    row_stride: usize,
}

impl Panel {
    fn rows(self, x: &[f32], rows: Range<usize>) -> Matrix<'_> {
        let start = self.offset + rows.start * self.row_stride;
        Matrix::strided(&x[start..], rows.len(), self.cols, self.row_stride)
    }

    fn rows_mut(self, x: &mut [f32], rows: Range<usize>) -> MatrixMut<'_> {
        let start = self.offset + rows.start * self.row_stride;
        MatrixMut::strided(&mut x[start..], rows.len(), self.cols, self.row_stride)
    }

    #[inline(always)]
    fn row(self, row: usize) -> Range<usize> {
        let start = self.offset + row * self.row_stride;
        start..start + self.cols
    }
}

/// What forward leaves for backward.
#[derive(Clone, Copy)]
struct Saved<'a> {
    qkv: &'a [f32],
    out: &'a [f32],
    lse: &'a [f32],
}

/// One head of one sequence: where its rows lie.
struct Head {
    query: Panel,
    key: Panel,
    value: Panel,
    out: Panel,
    lse: Panel,
    length: usize,
}

impl Head {
    fn scale(&self) -> f32 {
        1.0 / (self.query.cols as f32).sqrt()
    }

    /// `strip` (keys, queries) := `keys` `queries`^T * `factor`.
    fn products(strip: &mut [f32], keys: Matrix, queries: Matrix, factor: f32) {
        let strip = MatrixMut::strided(strip, keys.rows(), queries.rows(), QUERY_BLOCK);
        matmul(strip, keys, queries.transposed(), factor, Write::Set);
    }

    fn forward(&self, queries: Range<usize>, qkv: &[f32], out: &mut [f32], lse: &mut [f32], work: &mut [f32]) {
        let keys = 0..queries.end;
        let strip = &mut work[..QUERY_BLOCK * keys.len()];
        Self::products(strip, self.key.rows(qkv, keys.clone()), self.query.rows(qkv, queries.clone()), self.scale());
        let (maxima, sums) = vectorised(
            #[inline(always)]
            || {
                let rows = strip.as_chunks_mut::<QUERY_BLOCK>().0;
                hide_future(rows, queries.start);
                exponentials(rows)
            },
        );
        for (query, (max, sum)) in queries.clone().zip(maxima.iter().zip(&sums)) {
            lse[self.lse.row(query).start] = max + sum.ln();
        }
        let weights = Matrix::strided(strip, keys.len(), queries.len(), QUERY_BLOCK).transposed();
        let values = self.value.rows(qkv, keys);
        matmul(self.out.rows_mut(out, queries.clone()), weights, values, 1.0, Write::Set);
        // Dividing here rather than in the strip touches head_dim elements a query instead of up to `length`.
        vectorised(
            #[inline(always)]
            || {
                for (query, sum) in queries.zip(sums) {
                    let inverse = 1.0 / sum;
                    for out in &mut out[self.out.row(query)] {
                        *out *= inverse;
                    }
                }
            },
        );
    }

    // With p a softmax row and o = p v: ds = p (do v^T - do . o), dq = ds k, dk = ds^T q, dv = p^T do.
    fn backward(&self, queries: Range<usize>, saved: Saved, dout: &[f32], dqkv: &mut [f32], work: &mut [f32]) {
        let keys = 0..queries.end;
        let (weights, dscores) = work.split_at_mut(QUERY_BLOCK * keys.len());
        let dscores = &mut dscores[..QUERY_BLOCK * keys.len()];
        let [query, dout_rows] = [self.query.rows(saved.qkv, queries.clone()), self.out.rows(dout, queries.clone())];
        let [key, value] = [self.key, self.value].map(|panel| panel.rows(saved.qkv, keys.clone()));
        Self::products(weights, key, query, self.scale());
        Self::products(dscores, value, dout_rows, 1.0);
        vectorised(
            #[inline(always)]
            || {
                let (mut lse, mut shared) = ([0.0; QUERY_BLOCK], [0.0; QUERY_BLOCK]);
                for (query, (lse, shared)) in queries.clone().zip(lse.iter_mut().zip(&mut shared)) {
                    let out = self.out.row(query);
                    *lse = saved.lse[self.lse.row(query).start];
                    *shared = sum([&dout[out.clone()], &saved.out[out]], |[dout, out]| dout * out);
                }
                let weights = weights.as_chunks_mut::<QUERY_BLOCK>().0;
                hide_future(weights, queries.start);
                for (weights, dscores) in weights.iter_mut().zip(dscores.as_chunks_mut::<QUERY_BLOCK>().0) {
                    for i in 0..QUERY_BLOCK {
                        weights[i] = exp(weights[i] - lse[i]);
                        dscores[i] = weights[i] * (dscores[i] - shared[i]);
                    }
                }
            },
        );
        let [weights, dscores] =
            [weights, dscores].map(|strip| Matrix::strided(strip, keys.len(), queries.len(), QUERY_BLOCK));
        let write = if queries.end == self.length { Write::Set } else { Write::Add };
        matmul(self.query.rows_mut(dqkv, queries), dscores.transposed(), key, self.scale(), Write::Set);
        matmul(self.key.rows_mut(dqkv, keys.clone()), dscores, query, self.scale(), write);
        matmul(self.value.rows_mut(dqkv, keys), weights, dout_rows, 1.0, write);
    }
}

/// Scores of keys after their query := negative infinity. `strip` holds keys from 0, queries from `first_query`.
#[inline(always)]
fn hide_future(strip: &mut [[f32; QUERY_BLOCK]], first_query: usize) {
    for (queries_before, row) in strip[first_query..].iter_mut().enumerate() {
        row[..queries_before].fill(f32::NEG_INFINITY);
    }
}

/// `strip` := e^(strip - max), column by column; returns each column's max and sum.
#[inline(always)]
fn exponentials(strip: &mut [[f32; QUERY_BLOCK]]) -> ([f32; QUERY_BLOCK], [f32; QUERY_BLOCK]) {
    let mut maxima = [f32::NEG_INFINITY; QUERY_BLOCK];
    for row in &*strip {
        for (max, &score) in maxima.iter_mut().zip(row) {
            *max = if score > *max { score } else { *max };
        }
    }
    let mut sums = [0.0; QUERY_BLOCK];
    for row in strip {
        for i in 0..QUERY_BLOCK {
            row[i] = exp(row[i] - maxima[i]);
            sums[i] += row[i];
        }
    }
    (maxima, sums)
}

#[cfg(test)]
mod tests;
