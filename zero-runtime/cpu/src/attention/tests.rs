//! Attention compared with an f64 reference that holds the whole (length, length) matrix.

use std::num::NonZeroUsize;

use super::*;
use crate::convert;
use crate::testing::{assert_close, bits, stored, to_f64};
use zero_core::device::{Device, bf16};

struct Reference {
    out: Vec<f64>,
    lse: Vec<f64>,
    dqkv: Vec<f64>,
}

/// The softmax gradient takes its mean from `out` as stored, as the kernel does.
fn reference<E: Element>(shape: AttentionShape, qkv: &[E], out: &[E], dout: &[E]) -> Reference {
    let (qkv, out, dout) = (to_f64(qkv), to_f64(out), to_f64(dout));
    let AttentionShape { sequences, length, heads, key_heads, head_dim, window, .. } = shape;
    let width = heads * head_dim;
    let scale = 1.0 / (head_dim as f64).sqrt();
    let mut r = Reference {
        out: vec![0.0; sequences * length * width],
        lse: vec![0.0; sequences * length * heads],
        dqkv: vec![0.0; qkv.len()],
    };
    for sequence in 0..sequences {
        for head in 0..heads {
            // Queries, keys and values.
            let first = [head, heads + head * key_heads / heads, heads + key_heads + head * key_heads / heads];
            let row_width = (heads + 2 * key_heads) * head_dim;
            let at =
                |row: usize, kind: usize, d: usize| (sequence * length + row) * row_width + first[kind] * head_dim + d;
            let x = |row, kind, d| qkv[at(row, kind, d)];
            for i in 0..length {
                let token = sequence * length + i;
                let seen = window.map_or(0, |window| (i + 1).saturating_sub(window))..i + 1;
                let out_at = |d: usize| token * width + head * head_dim + d;
                let scores: Vec<f64> =
                    seen.clone().map(|j| scale * (0..head_dim).map(|d| x(i, 0, d) * x(j, 1, d)).sum::<f64>()).collect();
                let total: f64 = scores.iter().map(|s| s.exp()).sum();
                r.lse[token * heads + head] = total.ln();
                let p: Vec<f64> = scores.iter().map(|s| s.exp() / total).collect();
                let dp: Vec<f64> =
                    seen.clone().map(|j| (0..head_dim).map(|d| dout[out_at(d)] * x(j, 2, d)).sum()).collect();
                let mean_dp: f64 = (0..head_dim).map(|d| dout[out_at(d)] * out[out_at(d)]).sum();
                for (j, (p, dp)) in seen.clone().zip(p.iter().zip(&dp)) {
                    let ds = p * (dp - mean_dp) * scale;
                    for d in 0..head_dim {
                        r.out[out_at(d)] += p * x(j, 2, d);
                        r.dqkv[at(i, 0, d)] += ds * x(j, 1, d);
                        r.dqkv[at(j, 1, d)] += ds * x(i, 0, d);
                        r.dqkv[at(j, 2, d)] += p * dout[out_at(d)];
                    }
                }
            }
        }
    }
    r
}

/// Shapes that leave partial vectors, partial blocks of queries and of keys, and partial spans. For bf16 tensors, a
/// span has gradients of keys for 64 tokens of the widest head.
fn awkward_shapes() -> impl Iterator<Item = AttentionShape> {
    let shapes = [
        [1, 1, 1, 1, 1],
        [2, 3, 2, 1, 5],
        [1, 17, 3, 3, 3],
        [2, 31, 2, 2, 8],
        [1, 32, 4, 2, 17],
        [3, 33, 1, 1, 100],
        [2, 63, 1, 1, 16],
        [1, 64, 2, 2, 7],
        [2, 65, 6, 2, 8],
        [2, 97, 4, 1, 33],
        [1, 130, 1, 1, 3],
        [1, 200, 2, 2, 64],
        [1, 200, 3, 1, 400],
        [1, 130, 2, 1, HEAD_DIM_MAX],
    ];
    shapes.into_iter().map(shape_of).chain(windows())
}

/// Windows of one token, and shorter than a block, as long as one block, longer, and longer than the sequence; some
/// over several spans.
fn windows() -> impl Iterator<Item = AttentionShape> {
    let all = [1, 7, 65, 130].into_iter().flat_map(|length| [1, 5, 33, 64, 100].map(|window| (length, window)));
    let narrow = all.map(|(length, window)| (shape_of([2, length, 6, 3, 7]), window));
    let wide = [1, 5, 64, 100].map(|window| (shape_of([1, 200, 2, 1, HEAD_DIM_MAX]), window));
    narrow.chain(wide).map(|(shape, window)| AttentionShape { window: Some(window), ..shape })
}

/// A shape without a window or earlier tokens.
fn shape_of([sequences, length, heads, key_heads, head_dim]: [usize; 5]) -> AttentionShape {
    AttentionShape { sequences, length, before: 0, heads, key_heads, head_dim, window: None }
}

fn parts<E>(shape: AttentionShape, qkv: &[E]) -> [Strided<'_, Cpu, E>; 3] {
    shape.parts(qkv.into())
}

/// The results of the kernels for noise, or for tensors with a spoilt element.
struct Run<E> {
    qkv: Vec<E>,
    dout: Vec<E>,
    out: Vec<E>,
    lse: Vec<f32>,
    dqkv: Vec<E>,
}

impl<E: Element> Run<E> {
    fn of_noise(shape: AttentionShape) -> Self {
        let (qkv, dout) = (shape.tokens() * shape.qkv_width(), shape.tokens() * shape.out_width());
        Self::of(Cpu::ONE_THREAD, shape, stored(qkv, 1), stored(dout, 2))
    }

    fn of(cpu: Cpu, shape: AttentionShape, qkv: Vec<E>, dout: Vec<E>) -> Self {
        // NaN wherever a kernel must write before it reads.
        let nan = E::narrow(f32::NAN);
        let (mut out, mut lse) = (vec![nan; dout.len()], vec![f32::NAN; shape.tokens() * shape.heads]);
        let mut dqkv = vec![nan; qkv.len()];
        attention(cpu, shape, parts(shape, &qkv), &mut out, &mut lse);
        attention_backward(cpu, shape, parts(shape, &qkv), &out, &lse, &dout, &mut dqkv);
        Self { qkv, dout, out, lse, dqkv }
    }

    fn bits(&self) -> [Vec<u32>; 3] {
        [bits(&self.out), bits(&self.lse), bits(&self.dqkv)]
    }
}

/// Within the error of sums in f32, plus one more rounding for bf16.
fn matches_f64<E: Element>(shape: AttentionShape) {
    let run = Run::<E>::of_noise(shape);
    let expected = reference(shape, &run.qkv, &run.out, &run.dout);
    assert_close("out", &run.out, &expected.out, 1e-5);
    assert_close("lse", &run.lse, &expected.lse, 1e-5);
    assert_close("dqkv", &run.dqkv, &expected.dqkv, 3e-5);
}

#[test]
fn matches_f64_on_awkward_shapes() {
    for shape in awkward_shapes() {
        matches_f64::<f32>(shape);
        matches_f64::<bf16>(shape);
    }
}

fn converted<To: Element, From: Element>(from: &[From]) -> Vec<To> {
    let mut to = vec![To::narrow(f32::NAN); from.len()];
    convert(&mut to, from);
    to
}

/// There is only one rounding, wherever sums are kept until then.
#[test]
fn bf16_is_f32_of_the_same_numbers_rounded_once() {
    for shape in awkward_shapes() {
        let narrow = Run::<bf16>::of_noise(shape);
        let (qkv, dout): (Vec<f32>, Vec<f32>) = (converted(&narrow.qkv), converted(&narrow.dout));
        let wide = Run::of(Cpu::ONE_THREAD, shape, qkv, dout);
        assert_eq!(bits(&narrow.out), bits(&converted::<bf16, _>(&wide.out)), "{shape:?}");
        assert_eq!(bits(&narrow.lse), bits(&wide.lse), "{shape:?}");
        // Backward reads `out` as it was stored.
        let (out, mut dqkv) = (converted(&narrow.out), vec![f32::NAN; wide.qkv.len()]);
        attention_backward(Cpu::ONE_THREAD, shape, parts(shape, &wide.qkv), &out, &wide.lse, &wide.dout, &mut dqkv);
        assert_eq!(bits(&narrow.dqkv), bits(&converted::<bf16, _>(&dqkv)), "{shape:?}");
    }
}

fn same_on_threads<E: Element>(shape: AttentionShape) {
    let alone = Run::<E>::of_noise(shape);
    for threads in [2, 3, 5] {
        let threads = NonZeroUsize::new(threads).expect("threads");
        let work = |cpu: Cpu| Run::of(cpu.eager(), shape, alone.qkv.clone(), alone.dout.clone()).bits();
        let found = Cpu::ONE_THREAD.on_threads(threads, "test", work).expect("threads");
        assert!(found == alone.bits(), "{threads} threads, {shape:?}");
    }
}

#[test]
fn no_bit_depends_on_the_number_of_threads() {
    for [sequences, length, heads, key_heads, head_dim] in [[3, 37, 4, 2, 5], [1, 100, 6, 6, 17], [2, 70, 4, 1, 1000]] {
        let shape = shape_of([sequences, length, heads, key_heads, head_dim]);
        for window in [None, Some(20)] {
            same_on_threads::<f32>(AttentionShape { window, ..shape });
            same_on_threads::<bf16>(AttentionShape { window, ..shape });
        }
    }
}

/// A number that is not finite shows in everything that depends on it, and in no other head or sequence. The same
/// feature of earlier tokens of its sequence may be NaN, from a product with a weight of 0.
fn shows_what_is_not_finite<E: Element>(spoilt: f32) {
    let shape = shape_of([2, 70, 2, 2, 3]);
    let (token, width) = (37, shape.out_width());
    let finite = Run::<E>::of_noise(shape);
    let mut qkv = finite.qkv.clone();
    // A value of the first head.
    qkv[token * shape.qkv_width() + 2 * width] = E::narrow(spoilt);
    let run = Run::of(Cpu::ONE_THREAD, shape, qkv, finite.dout.clone());
    for (i, x) in run.out.iter().enumerate() {
        let (row, column) = (i / width, i % width);
        if row >= shape.length || column > 0 {
            assert!(x.widen().is_finite(), "out[{i}]");
        } else if row >= token {
            assert!(!x.widen().is_finite(), "out[{i}]");
        }
    }
    let mut dout = finite.dout.clone();
    dout[token * width] = E::narrow(spoilt);
    let run = Run::of(Cpu::ONE_THREAD, shape, finite.qkv.clone(), dout);
    for (i, x) in run.dqkv.iter().enumerate() {
        let (row, column) = (i / shape.qkv_width(), i % shape.qkv_width());
        let (kind, column) = (column / width, column % width);
        // The gradient of the value depends only on this feature of `dout`, the gradients of the query and the keys on
        // all features.
        if row >= shape.length || column >= shape.head_dim || (kind == 2 && column > 0) || (kind == 0 && row != token) {
            assert!(x.widen().is_finite(), "dqkv[{i}]");
        } else if row <= token {
            assert!(!x.widen().is_finite(), "dqkv[{i}]");
        }
    }
}

#[test]
fn what_is_not_finite_shows() {
    for spoilt in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        shows_what_is_not_finite::<f32>(spoilt);
        shows_what_is_not_finite::<bf16>(spoilt);
    }
}

/// Keys and values that no query of a block sees are not read: forward, backward, and after earlier tokens.
fn what_a_window_leaves_out_is_not_looked_at<E: Element>() {
    let shape = AttentionShape { window: Some(40), ..shape_of([1, 300, 2, 1, 5]) };
    let (token, nan) = (100, E::narrow(f32::NAN));
    let finite = Run::<E>::of_noise(shape);
    let mut qkv = finite.qkv.clone();
    qkv[token * shape.qkv_width() + shape.out_width()..(token + 1) * shape.qkv_width()].fill(nan);
    let run = Run::of(Cpu::ONE_THREAD, shape, qkv, finite.dout.clone());
    let is_finite = |row: &[E]| row.iter().all(|x| x.widen().is_finite());
    // It is seen up to token 139, by queries of the blocks from 96 to 159, which see keys from token 57 on.
    for (i, row) in run.out.chunks(shape.out_width()).enumerate() {
        assert!((96..160).contains(&i) || is_finite(row), "out of token {i}");
        assert!(!(100..140).contains(&i) || !is_finite(row), "out of token {i}");
    }
    for (i, row) in run.dqkv.chunks(shape.qkv_width()).enumerate() {
        assert!((57..160).contains(&i) || is_finite(row), "gradients of token {i}");
    }
    for length in [1, 3, 40] {
        let (asking, before) = (AttentionShape { length, before: 200, ..shape }, 200);
        let q = stored::<E>(asking.tokens() * shape.out_width(), 3);
        let mut kv = stored::<E>(asking.keys() * 2 * shape.key_width(), 4);
        let expected = out_and_lse(asking, &q, &kv);
        kv[..(before + 1 - 40) * 2 * shape.key_width()].fill(nan);
        assert!(out_and_lse(asking, &q, &kv) == expected, "{length} tokens after {before}");
    }
}

/// The bits of the output for these queries; a row of `kv` has the keys of a token, then its values.
fn out_and_lse<E: Element>(shape: AttentionShape, q: &[E], kv: &[E]) -> [Vec<u32>; 2] {
    let mut out = vec![E::narrow(f32::NAN); q.len()];
    let mut lse = vec![f32::NAN; shape.tokens() * shape.heads];
    let keys = Strided::new(kv.into(), 2 * shape.key_width());
    let qkv = [Strided::new(q.into(), shape.out_width()), keys, keys.after(shape.key_width())];
    attention(Cpu::ONE_THREAD, shape, qkv, &mut out, &mut lse);
    [bits(&out), bits(&lse)]
}

#[test]
fn a_window_leaves_out_whole_blocks() {
    what_a_window_leaves_out_is_not_looked_at::<f32>();
    what_a_window_leaves_out_is_not_looked_at::<bf16>();
}

/// The rows of these tokens in each of `count` sequences of `length` tokens, with NaN between them.
fn rows_of_tokens<E: Element>(x: Strided<Cpu, E>, sequences: [usize; 2], tokens: Range<usize>, width: usize) -> Vec<E> {
    let [count, length] = sequences;
    let mut rows = Vec::new();
    for sequence in 0..count {
        for token in tokens.clone() {
            rows.extend_from_slice(x.view.part((sequence * length + token) * x.stride, width).as_slice());
            rows.extend([E::narrow(f32::NAN); GAP]);
        }
    }
    rows
}

const GAP: usize = 3;

/// Tokens after other tokens whose keys and values are already there have the same results as in one sequence.
fn continues<E: Element>(whole: AttentionShape, lengths: &[usize]) {
    let run = Run::<E>::of_noise(whole);
    let expected = reference(whole, &run.qkv, &run.out, &run.dout);
    let sequences = [whole.sequences, whole.length];
    let [q, k, v] = parts(whole, &run.qkv);
    for &length in lengths {
        for before in (0..=whole.length - length).step_by(length) {
            let shape = AttentionShape { length, before, ..whole };
            let end = before + length;
            let q = rows_of_tokens(q, sequences, before..end, whole.out_width());
            let [k, v] = [k, v].map(|rows| rows_of_tokens(rows, sequences, 0..end, whole.key_width()));
            let (mut out, mut lse) = (
                vec![E::narrow(f32::NAN); shape.tokens() * shape.out_width()],
                vec![f32::NAN; shape.tokens() * shape.heads],
            );
            let [key, value] = [&k, &v].map(|rows| Strided::new(rows[..].into(), whole.key_width() + GAP));
            let query = Strided::new(q[..].into(), whole.out_width() + GAP);
            attention(Cpu::ONE_THREAD, shape, [query, key, value], &mut out, &mut lse);
            for sequence in 0..shape.sequences {
                let of =
                    |width: usize| (sequence * whole.length + before) * width..(sequence * whole.length + end) * width;
                let here = |width: usize| sequence * length * width..(sequence + 1) * length * width;
                let name = format!("{shape:?} out");
                assert_close(&name, &out[here(shape.out_width())], &expected.out[of(shape.out_width())], 1e-5);
                assert_close("lse", &lse[here(shape.heads)], &expected.lse[of(shape.heads)], 1e-5);
            }
        }
    }
}

#[test]
fn tokens_after_others_are_as_in_one_sequence() {
    for window in [None, Some(1), Some(5), Some(33), Some(64), Some(100)] {
        let shape = AttentionShape { window, ..shape_of([2, 130, 6, 3, 7]) };
        continues::<f32>(shape, &[1, 2, 41, 65]);
        continues::<bf16>(shape, &[1, 41]);
    }
    // More sharing heads than are worked on at a time, or more than half as many.
    for heads in [16, 17, 32, 35] {
        let shape = shape_of([1, 70, heads, 1, 3]);
        continues::<f32>(shape, &[1]);
        continues::<bf16>(shape, &[1]);
    }
}

#[test]
#[should_panic(expected = "gradients of queries with 1 earlier tokens")]
fn gradients_are_of_all_tokens() {
    let shape = AttentionShape { before: 1, ..shape_of([1, 1, 1, 1, 1]) };
    attention_backward(Cpu::ONE_THREAD, shape, parts(shape, &[0.0; 6]), &[0.0], &[0.0], &[0.0], &mut [0.0; 3]);
}

#[test]
#[should_panic(expected = "a window of 0 tokens")]
fn a_token_sees_itself() {
    let shape = AttentionShape { window: Some(0), ..shape_of([1, 1, 1, 1, 1]) };
    attention(Cpu::ONE_THREAD, shape, parts(shape, &[0.0; 3]), &mut [0.0], &mut [0.0]);
}

#[test]
#[should_panic(expected = "`v` has 3 elements, expected 4 or more")]
fn rows_lie_within_their_tensor() {
    let shape = shape_of([1, 2, 1, 1, 1]);
    let [q, k, v] = parts(shape, &[0.0; 6]);
    let v = Strided::new(v.view.split_at(3).0, v.stride);
    attention(Cpu::ONE_THREAD, shape, [q, k, v], &mut [0.0; 2], &mut [0.0; 2]);
}

#[test]
#[should_panic(expected = "rows of `k` have 2 elements, but a stride of 1")]
fn rows_do_not_overlap() {
    let shape = shape_of([1, 2, 1, 1, 2]);
    let [q, k, v] = parts(shape, &[0.0; 12]);
    attention(Cpu::ONE_THREAD, shape, [q, Strided::new(k.view, 1), v], &mut [0.0; 4], &mut [0.0; 2]);
}

#[test]
#[should_panic(expected = "3 heads cannot share 2 heads of keys")]
fn heads_share_evenly() {
    let shape = shape_of([1, 1, 3, 2, 1]);
    attention(Cpu::ONE_THREAD, shape, parts(shape, &[0.0; 7]), &mut [0.0; 3], &mut [0.0; 3]);
}

#[test]
fn the_first_token_sees_only_itself() {
    let shape = shape_of([1, 2, 1, 1, 1]);
    let (mut out, mut lse) = ([0.0; 2], [0.0; 2]);
    // Two tokens of q, k, v; with q = 0 the second weighs both values alike.
    attention(Cpu::ONE_THREAD, shape, parts(shape, &[1.0, 2.0, 3.0, 0.0, 5.0, 9.0]), &mut out, &mut lse);
    assert_eq!((out, lse), ([3.0, 6.0], [2.0, 2f32.ln()]));
}

#[test]
fn large_scores_do_not_overflow() {
    let shape = shape_of([1, 3, 1, 1, 1]);
    let (mut out, mut lse) = ([0.0; 3], [0.0; 3]);
    let qkv = [1e4, 1e4, 1.0, 1e4, -1e4, 2.0, 1e4, 1e4, 3.0];
    attention(Cpu::ONE_THREAD, shape, parts(shape, &qkv), &mut out, &mut lse);
    assert_eq!(out, [1.0, 1.0, 2.0]);
}

#[test]
#[should_panic(expected = "a head of 1025 features, 1024 at most")]
fn a_head_beyond_the_scratch_is_refused() {
    let shape = shape_of([1, 1, 1, 1, 1025]);
    attention(Cpu::ONE_THREAD, shape, parts(shape, &[0.0; 3 * 1025]), &mut [0.0; 1025], &mut [0.0]);
}
