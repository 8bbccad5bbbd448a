//! Attention, forward and backward: heads of awkward widths, sequences that end within a tile, windows, shared keys, and
//! queries after cached keys.

use zero_core::device::{AttentionShape, Device, Element, Kernels, Strided, bf16};
use zero_cuda::Cuda;
use zero_plan::Width;

use super::{Case, How, Results, SUMS, Tensor, check, check_in, cuda, noise};

/// Weights are rounded to bf16 before sums use them, and so are the gradients of scores: each by a 512th at most. In a
/// sum of many terms these roundings partly cancel; if one weight dominates, its rounding remains.
const NARROW: f32 = 6e-3;

struct Attention {
    shape: AttentionShape,
    /// Elements between rows; between rows of values, there are twice as many.
    beside: usize,
    /// The magnitude of queries and keys.
    scale: f32,
}

const SHAPE: AttentionShape =
    AttentionShape { sequences: 1, length: 1, before: 0, heads: 1, key_heads: 1, head_dim: 16, window: None };

impl Attention {
    fn of(shape: AttentionShape) -> Self {
        Self { shape, beside: 0, scale: 1.0 }
    }

    fn how<E: Element>(&self) -> How {
        if E::WIDTH == Width::BF16 { How::Near(NARROW) } else { How::Near(1e-5) }
    }
}

impl Case for Attention {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        let Self { shape, beside, scale } = *self;
        let named = |what: &str| format!("{what} of {shape:?}");
        let scaled = |len, seed| noise(len, seed).into_iter().map(|x| x * scale).collect::<Vec<_>>();
        let (query_stride, key_stride) = (shape.out_width() + beside, shape.key_width() + beside);
        let value_stride = key_stride + beside;
        let keys = shape.sequences * shape.keys();
        let q = Tensor::<D, E>::aligned(device, &scaled(shape.tokens() * query_stride, 1));
        let k = Tensor::<D, E>::aligned(device, &scaled(keys * key_stride, 2));
        let v = Tensor::<D, E>::aligned(device, &noise(keys * value_stride, 3));
        let of_q = || Strided::new(q.view(), query_stride);
        let [of_k, of_v] = [(&k, key_stride), (&v, value_stride)].map(|(x, stride)| Strided::new(x.view(), stride));
        let len = shape.tokens() * shape.out_width();
        let mut out = Tensor::<D, E>::unwritten(device, len);
        let mut lse = Tensor::<D, f32>::unwritten(device, shape.tokens() * shape.heads);
        device.attention(shape, of_q(), of_k, of_v, out.view_mut(), lse.view_mut());
        let mut results =
            vec![(named("out"), self.how::<E>(), out.values(device)), (named("lse"), SUMS, lse.values(device))];
        if shape.before == 0 {
            // From the device's own results, because backward needs an output and statistics of the same forward.
            let dout = Tensor::<D, E>::aligned(device, &noise(len, 4));
            let mut dqkv = Tensor::<D, E>::unwritten(device, shape.tokens() * shape.qkv_width());
            let to = dqkv.view_mut();
            device.attention_backward(shape, of_q(), of_k, of_v, out.view(), lse.view(), dout.view(), to);
            results.extend(gradients(shape, &dqkv.values(device), self.how::<E>()));
        }
        results
    }
}

/// Separate gradients of queries, keys and values, because they differ in magnitude.
fn gradients(shape: AttentionShape, dqkv: &[f32], how: How) -> Results {
    let cuts = [0, shape.out_width(), shape.out_width() + shape.key_width(), shape.qkv_width()];
    let part = |i: usize| dqkv.chunks(shape.qkv_width()).flat_map(|row| row[cuts[i]..cuts[i + 1]].to_vec()).collect();
    ["dq", "dk", "dv"].into_iter().enumerate().map(|(i, name)| (format!("{name} of {shape:?}"), how, part(i))).collect()
}

#[test]
fn heads_of_any_width_agree() {
    for (length, head_dim) in [(1, 1), (3, 2), (17, 7), (33, 16), (31, 65), (130, 64)] {
        check(&Attention::of(AttentionShape { sequences: 2, length, heads: 2, head_dim, ..SHAPE }));
    }
    for head_dim in [48, 128] {
        check(&Attention::of(AttentionShape { length: 70, head_dim, ..SHAPE }));
    }
}

#[test]
fn heads_that_share_keys_agree() {
    for (heads, key_heads, beside) in [(2, 1, 0), (6, 2, 8), (4, 2, 3)] {
        let shape = AttentionShape { sequences: 2, length: 67, heads, key_heads, head_dim: 64, ..SHAPE };
        check(&Attention { beside, ..Attention::of(shape) });
    }
}

/// Heads of GPT-2, of Qwen3 and of a layer of OLMo 3, as kernels are compiled for each.
#[test]
fn published_heads_agree() {
    let of =
        |heads, key_heads, head_dim, window| AttentionShape { length: 65, heads, key_heads, head_dim, window, ..SHAPE };
    for shape in [of(12, 12, 64, None), of(32, 8, 128, None), of(32, 32, 128, Some(4096))] {
        check_in::<bf16>(&Attention { beside: 2 * shape.key_width(), ..Attention::of(shape) });
    }
}

/// Windows of one token, within a tile, and so short that no query of a tile sees some whole tiles.
#[test]
fn windows_agree() {
    let of = |length, window| {
        Attention::of(AttentionShape { length, window: Some(window), heads: 2, head_dim: 16, ..SHAPE })
    };
    for (length, window) in [(150, 20), (150, 64), (200, 65), (33, 1000)] {
        check(&of(length, window));
    }
    // Forward alone: here gradients of queries and keys are differences of equal numbers.
    check(&Forward(of(65, 1)));
}

#[test]
fn queries_after_cached_keys_agree() {
    for (length, before, window) in [(1, 100, None), (1, 63, Some(20)), (5, 130, None), (70, 64, Some(65))] {
        let shape = AttentionShape { sequences: 2, length, before, heads: 4, key_heads: 2, head_dim: 64, window };
        check(&Attention::of(shape));
        check(&Attention { beside: 5, ..Attention::of(AttentionShape { head_dim: 7, ..shape }) });
    }
}

/// Exponentials are finite for scores of any magnitude, because the largest score is subtracted first.
#[test]
fn scores_may_be_large() {
    for scale in [0.0, 30.0, 1e4] {
        let shape = AttentionShape { length: 40, heads: 2, head_dim: 32, ..SHAPE };
        check_in::<f32>(&Forward(Attention { scale, ..Attention::of(shape) }));
        check_in::<bf16>(&Forward(Attention { scale, ..Attention::of(shape) }));
    }
}

/// Without gradients, which are sums that cancel if one weight dominates.
struct Forward(Attention);

impl Case for Forward {
    fn run<D: Device, E: Element>(&self, device: &D) -> Results {
        self.0.run::<D, E>(device).into_iter().take(2).collect()
    }
}

#[test]
fn a_value_that_is_not_finite_shows_where_it_is_seen() {
    fn shows<E: Element>(cuda: &Cuda) {
        let shape = AttentionShape { sequences: 2, length: 70, ..SHAPE };
        let mut values = noise(140 * 16, 1);
        values[40 * 16 + 3] = f32::NAN;
        let (x, v) = (Tensor::<_, E>::aligned(cuda, &noise(140 * 16, 2)), Tensor::<_, E>::aligned(cuda, &values));
        let mut out = Tensor::<_, E>::unwritten(cuda, 140 * 16);
        let mut lse = Tensor::<_, f32>::unwritten(cuda, 140);
        let of = |x| Strided::new(x, 16);
        cuda.attention(shape, of(x.view()), of(x.view()), of(v.view()), out.view_mut(), lse.view_mut());
        let out = out.values(cuda);
        assert!((40..70).all(|token| out[token * 16 + 3].is_nan()), "those that see it");
        assert!(out[70 * 16..].iter().all(|x| x.is_finite()), "no other sequence");
        assert_eq!(cuda.failure(), None);
    }
    let Some(cuda) = cuda() else { return };
    shows::<f32>(&cuda);
    shows::<bf16>(&cuda);
}
