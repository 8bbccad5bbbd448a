//! Causal self-attention, forward and backward, over blocks of queries and blocks of keys. Never holds more scores than
//! those of one block of queries by one block of keys: forward keeps a running maximum and sum, backward rebuilds the
//! softmax from the log-sum-exp (Dao et al., 2022).
#![allow(unsafe_code)]

mod backward;
mod forward;
mod one_token;
mod product;
mod softmax;
mod stored;

use std::cell::RefCell;
use std::ops::Range;

use zero_plan::footprint::{ATTENTION_BYTES, ATTENTION_SUMS_BYTES};

use super::Cpu;
use super::parallel::PRODUCTS_PER_ELEMENT;
use super::simd::check_len;
use backward::{BackwardInputs, SPAN, backward};
use one_token::one_token;
use product::{Rows, RowsMut};
use softmax::{hide_future, hide_past};
use stored::WIDENED;
use zero_core::device::{AttentionShape, Element, Strided, Write};

/// Queries worked on at a time. Scores lie in rows of this length, one for each key, even if there are fewer queries.
/// So every loop over a row is a few whole vectors, and softmax runs down the columns without a sum across a vector.
const QUERIES: usize = 32;

/// Keys worked on at a time. Both blocks and spans end at multiples of it, so that sums over blocks are the same with
/// and without spans.
const KEYS: usize = 2 * QUERIES;

/// The most features of a head.
pub(super) const HEAD_DIM_MAX: usize = 1024;

/// `out` := softmax(q k^T / sqrt(head_dim), causal and within the window) v, for every sequence and head. Blocks of
/// keys that no query of a block sees are skipped.
///
/// [`AttentionShape`] defines the rows of `qkv`, the queries, keys and values; `out`: (tokens, heads * head_dim);
/// `lse`: (tokens, heads), the log-sum-exp of each softmax row, kept for backward.
///
/// All sums are in f32. An element of `out` is rounded once more, when it is stored.
pub fn attention<E: Element>(
    cpu: Cpu,
    shape: AttentionShape,
    qkv: [Strided<Cpu, E>; 3],
    out: &mut [E],
    lse: &mut [f32],
) {
    check(shape, qkv, out, lse);
    let inputs = Inputs::new(qkv);
    let (out, lse) = (Destination(out.as_mut_ptr()), Destination(lse.as_mut_ptr()));
    let together = if shape.length == 1 { shape.sharing() } else { 1 };
    each_group(cpu, shape, together, |heads| {
        // SAFETY: the checks prove that the rows of every head lie within their tensors, which are borrowed here, and
        // no two heads share an element of `out` or `lse`.
        unsafe {
            if shape.length == 1 {
                return one_token(shape, heads, &inputs, out.start(), lse.start());
            }
            heads.for_each(|head| OneHead::of(shape, &inputs, head).forward(&inputs, out.start(), lse.start()));
        }
    });
}

/// `dqkv` := the gradient of `attention`, given `dout` (tokens, heads * head_dim). Its rows have the gradients of
/// queries, then of keys, then of values.
///
/// All sums are in f32. An element of `dqkv` is rounded once more, when it is stored.
pub fn attention_backward<E: Element>(
    cpu: Cpu,
    shape: AttentionShape,
    qkv: [Strided<Cpu, E>; 3],
    out: &[E],
    lse: &[f32],
    dout: &[E],
    dqkv: &mut [E],
) {
    assert!(shape.before == 0, "gradients of queries with {} earlier tokens", shape.before);
    check(shape, qkv, out, lse);
    check_len("dout", dout.len(), out.len());
    check_len("dqkv", dqkv.len(), shape.tokens() * shape.qkv_width());
    let given = BackwardInputs { inputs: Inputs::new(qkv), out, lse, dout };
    let dqkv = Destination(dqkv.as_mut_ptr());
    let sharing = shape.sharing();
    each_group(cpu, shape, sharing, |heads| {
        for group in blocks(heads, sharing) {
            // SAFETY: as for `attention`, with all heads that share keys and values in one group.
            unsafe { backward(shape, group, given, dqkv.start()) };
        }
    });
}

/// The inputs: tensors and the strides of their rows.
#[derive(Clone, Copy)]
struct Inputs<'a, E> {
    query: &'a [E],
    key: &'a [E],
    value: &'a [E],
    strides: [usize; 3],
}

impl<'a, E> Inputs<'a, E> {
    fn new(qkv: [Strided<'a, Cpu, E>; 3]) -> Self {
        let [query, key, value] = qkv.map(|rows| rows.view.as_slice());
        Self { query, key, value, strides: qkv.map(|rows| rows.stride) }
    }
}

/// The start of a tensor; each of its heads is written by one thread.
struct Destination<E>(*mut E);

// SAFETY: this is an address; the code that writes through it argues why it may.
unsafe impl<E> Sync for Destination<E> {}

impl<E> Destination<E> {
    fn start(&self) -> *mut E {
        self.0
    }
}

#[track_caller]
fn check<E: Element>(shape: AttentionShape, qkv: [Strided<Cpu, E>; 3], out: &[E], lse: &[f32]) {
    assert!(shape.head_dim <= HEAD_DIM_MAX, "a head of {} features, {HEAD_DIM_MAX} at most", shape.head_dim);
    shape.sharing();
    assert!(shape.window != Some(0), "a window of 0 tokens, in which a token does not see itself");
    let keys = [shape.sequences * shape.keys(), shape.key_width()];
    let sizes = [[shape.tokens(), shape.out_width()], keys, keys];
    for ((name, rows), [count, width]) in ["q", "k", "v"].into_iter().zip(qkv).zip(sizes) {
        assert!(rows.stride >= width, "rows of `{name}` have {width} elements, but a stride of {}", rows.stride);
        let least = count.checked_sub(1).map_or(0, |before_last| before_last * rows.stride + width);
        let found = rows.view.len();
        assert!(found >= least, "`{name}` has {found} elements, expected {least} or more");
    }
    check_len("out", out.len(), shape.tokens() * shape.out_width());
    check_len("lse", lse.len(), shape.tokens() * shape.heads);
}

/// Calls `run` for all heads of all sequences, at once or in pieces of a multiple of `together` heads.
fn each_group(cpu: Cpu, shape: AttentionShape, together: usize, run: impl Fn(Range<usize>) + Sync) {
    let seen = shape.window.map_or(shape.keys(), |window| shape.keys().min(window.saturating_add(QUERIES)));
    let products = shape.length * seen * shape.head_dim * together;
    cpu.by_heads(shape.sequences * shape.heads / together, products / PRODUCTS_PER_ELEMENT, |groups| {
        run(groups.start * together..groups.end * together);
    });
}

/// The position of the rows of one head of one sequence in a tensor of the whole batch.
#[derive(Clone, Copy)]
struct Panel {
    offset: usize,
    stride: usize,
}

impl Panel {
    fn at(self, row: usize) -> usize {
        self.offset + row * self.stride
    }

    fn rows<E>(self, x: &[E], first: usize) -> Rows<E> {
        Rows { start: x[self.at(first)..].as_ptr(), stride: self.stride }
    }

    /// # Safety
    /// `x` is the start of a tensor that has this row.
    unsafe fn rows_mut<E>(self, x: *mut E, first: usize) -> RowsMut<E> {
        // SAFETY: by the caller's promise.
        RowsMut { start: unsafe { x.add(self.at(first)) }, stride: self.stride }
    }
}

/// One head of one sequence.
struct OneHead {
    query: Panel,
    key: Panel,
    value: Panel,
    out: Panel,
    lse: Panel,
    /// Tokens that have queries.
    length: usize,
    /// The position of the first of them among the tokens that have keys.
    position: usize,
    window: Option<usize>,
    dim: usize,
    /// How it writes the gradients of its keys and values: a head that shares them with earlier heads adds its own.
    first: Write,
}

/// Scores of a block of keys, or their weights or gradients.
type Strip = [[f32; QUERIES]; KEYS];

/// The scratch of one thread, constant in size.
struct AttentionScratch {
    block: QueryBlock,
    /// Sums of the gradients of a span's keys and values.
    span: [[f32; SPAN]; 2],
}

/// The scratch for a block of queries.
#[repr(align(64))]
struct QueryBlock {
    /// (dim, QUERIES): the queries, transposed.
    queries: [[f32; QUERIES]; HEAD_DIM_MAX],
    /// (dim, QUERIES): the gradients of their outputs, transposed.
    gradients: [[f32; QUERIES]; HEAD_DIM_MAX],
    weights: Strip,
    dscores: Strip,
    /// (queries, dim): the sums of their outputs, or of their gradients.
    sums: [f32; QUERIES * HEAD_DIM_MAX],
    widened: [f32; WIDENED],
}

const _: () =
    assert!(size_of::<AttentionScratch>() == ATTENTION_BYTES + ATTENTION_SUMS_BYTES, "plans count another size");

thread_local! {
    static SCRATCH: RefCell<AttentionScratch> = const {
        RefCell::new(AttentionScratch {
            block: QueryBlock {
                queries: [[0.0; QUERIES]; HEAD_DIM_MAX],
                gradients: [[0.0; QUERIES]; HEAD_DIM_MAX],
                weights: [[0.0; QUERIES]; KEYS],
                dscores: [[0.0; QUERIES]; KEYS],
                sums: [0.0; QUERIES * HEAD_DIM_MAX],
                widened: [0.0; WIDENED],
            },
            span: [[0.0; SPAN]; 2],
        })
    };
}

fn rows_of<const N: usize>(matrix: &[[f32; N]]) -> Rows<f32> {
    Rows { start: matrix.as_flattened().as_ptr(), stride: N }
}

fn rows_of_mut<const N: usize>(matrix: &mut [[f32; N]]) -> RowsMut<f32> {
    RowsMut { start: matrix.as_flattened_mut().as_mut_ptr(), stride: N }
}

/// Cuts `all` into blocks of `size`.
fn blocks(all: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    all.clone().step_by(size).map(move |start| start..all.end.min(start.saturating_add(size)))
}

/// The blocks of some keys.
fn key_blocks(keys: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let blocks = blocks(keys.start / KEYS * KEYS..keys.end, KEYS);
    blocks.map(move |block| block.start.max(keys.start)..block.end)
}

impl OneHead {
    /// The head with this number, counted sequence by sequence.
    fn of<E>(shape: AttentionShape, inputs: &Inputs<E>, index: usize) -> Self {
        let AttentionShape { length, heads, head_dim, .. } = shape;
        let (sequence, head) = (index / heads, index % heads);
        let sharing = shape.sharing();
        let panel = |rows: usize, stride: usize, head: usize| Panel {
            offset: sequence * rows * stride + head * head_dim,
            stride,
        };
        let [query, key, value] = inputs.strides;
        Self {
            query: panel(length, query, head),
            key: panel(shape.keys(), key, head / sharing),
            value: panel(shape.keys(), value, head / sharing),
            out: panel(length, shape.out_width(), head),
            lse: Panel { offset: sequence * length * heads + head, stride: heads },
            length,
            position: shape.before,
            window: shape.window,
            dim: head_dim,
            first: if head.is_multiple_of(sharing) { Write::Set } else { Write::Add },
        }
    }

    /// The range from the first key that one of these queries sees to the last.
    fn seen(&self, queries: &Range<usize>) -> Range<usize> {
        let first = self.position + queries.start;
        self.window.map_or(0, |window| (first + 1).saturating_sub(window))..self.position + queries.end
    }

    /// Sets the scores of keys from `first_key` on that these queries do not see to negative infinity.
    #[inline(always)]
    fn hide(&self, strip: &mut [[f32; QUERIES]], first_key: usize, queries: &Range<usize>) {
        let position = self.position + queries.start;
        hide_future(strip, first_key, position);
        if let Some(window) = self.window {
            hide_past(strip, first_key, position, window);
        }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.dim as f32).sqrt()
    }

    /// `to` (dim, QUERIES) := the rows `queries` of `panel`, transposed and scaled; the last row is repeated to fill
    /// the missing columns.
    fn transpose<E: Element>(
        &self,
        to: &mut [[f32; QUERIES]],
        x: &[E],
        panel: Panel,
        queries: &Range<usize>,
        scale: f32,
    ) {
        let row = |query: usize| &x[panel.at(query.min(queries.end - 1))..][..self.dim];
        // Four rows at a time: element by element would need four times the stores, each to another cache line.
        for group in 0..QUERIES / 4 {
            let query = queries.start + 4 * group;
            let rows = row(query).iter().zip(row(query + 1)).zip(row(query + 2)).zip(row(query + 3));
            for (to, (((a, b), c), d)) in to.iter_mut().zip(rows) {
                to.as_chunks_mut().0[group] = [a, b, c, d].map(|x| scale * x.widen());
            }
        }
    }
}

#[cfg(test)]
mod tests;
