//! Attention: causal attention: on tensor cores in bf16, by plain tiles in f32. Backward needs no memory besides its
//! result: it keeps one number for each query where the query's gradient will be. Never waits for the device.

use zero_plan::Width;

use super::Cuda;
use super::elementwise::in_packs;
use super::grid::{of_rows, words};
use super::handle::launch::{Argument, Grid, Kernel, narrowed};
use super::lengths::check_len;
use super::source::KernelSource;
use zero_core::device::{AttentionShape, Element, Strided};
use zero_core::view::{View, ViewMut};

/// The most features of a head.
pub(super) const HEAD_DIM_MAX: usize = 128;

/// Threads of a block, as in `attention.cu` and `attention_bf16.cu`.
const THREADS: usize = 128;

/// Threads that share the `do . o` of a query, as in `attention.cu`.
const DELTA_THREADS: usize = 8;

const DELTA: Kernel = Kernel::new(KernelSource::Attention, "attention_delta");

/// Kernels of a width, and the number of queries or keys in their blocks.
struct Kernels {
    forward: Kernel,
    dkv: Kernel,
    dq: Kernel,
    /// Rows of a block in forward, and in backward.
    rows: [usize; 2],
}

/// The width of a head in the kernels of a width of numbers: in f32, eight threads share it; in bf16, a product on
/// tensor cores is 16 wide.
fn dim_of(width: Width, head_dim: usize) -> usize {
    match width {
        Width::F32 => head_dim.next_power_of_two().max(8),
        Width::BF16 => head_dim.next_multiple_of(16),
    }
}

impl Kernels {
    /// The kernels for heads of `head_dim` features that are laid out like `rows`.
    fn of<E: Element>(head_dim: usize, rows: &[Strided<Cuda, E>]) -> Self {
        let named = |source, name| Kernel::new(source, name).with(dim_of(E::WIDTH, head_dim));
        match E::WIDTH {
            Width::F32 => Self {
                forward: named(KernelSource::Attention, "attention"),
                dkv: named(KernelSource::Attention, "attention_dkv"),
                dq: named(KernelSource::Attention, "attention_dq"),
                rows: [32, 16],
            },
            Width::BF16 => {
                let is_aligned = rows.iter().all(|rows| in_packs([rows.view.into()], &[rows.stride, head_dim]) == 1);
                let named = |name| named(KernelSource::AttentionBf16, name).with(is_aligned.into());
                Self {
                    forward: named("attention_bf16"),
                    dkv: named("attention_dkv_bf16"),
                    dq: named("attention_dq_bf16"),
                    rows: [64, 64],
                }
            }
        }
    }
}

/// A kernel with the parts of a shape that the plan fixes: the constants of `Shape` in `attention.cuh`.
fn of_shape(kernel: Kernel, shape: AttentionShape, strides: [usize; 3]) -> Kernel {
    let sees_all = u32::MAX as usize;
    let window = shape.window.map_or(sees_all, |window| window.min(sees_all));
    let scale = 1.0 / (shape.head_dim as f32).sqrt();
    let [query, key, value] = strides;
    let numbers = [query, key, value, shape.heads, shape.sharing(), shape.head_dim, window];
    numbers.into_iter().fold(kernel, Kernel::with).with_float(scale)
}

/// The other fields of `Shape`, for blocks of `rows` rows.
fn lengths(shape: AttentionShape, rows: usize) -> [u32; 3] {
    [shape.length, shape.before, blocks(shape, rows)].map(narrowed)
}

/// Blocks of `rows` tokens in a sequence.
fn blocks(shape: AttentionShape, rows: usize) -> usize {
    shape.length.div_ceil(rows)
}

pub(super) fn attention<E: Element>(
    cuda: &Cuda,
    shape: AttentionShape,
    q: Strided<Cuda, E>,
    k: Strided<Cuda, E>,
    v: Strided<Cuda, E>,
    out: ViewMut<Cuda, E>,
    lse: ViewMut<Cuda, f32>,
) {
    check(shape, [q, k, v], out.len(), lse.len());
    let Kernels { forward, rows: [rows, _], .. } = Kernels::of(shape.head_dim, &[q, k, v]);
    cuda.launch(
        of_shape(forward, shape, [q, k, v].map(|rows| rows.stride)),
        Grid { blocks: shape.sequences * shape.heads * blocks(shape, rows), threads: THREADS },
        &[q.view.into(), k.view.into(), v.view.into(), out.into(), lse.into(), words(&lengths(shape, rows))],
    );
}

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn attention_backward<E: Element>(
    cuda: &Cuda,
    shape: AttentionShape,
    q: Strided<Cuda, E>,
    k: Strided<Cuda, E>,
    v: Strided<Cuda, E>,
    out: View<Cuda, E>,
    lse: View<Cuda, f32>,
    dout: View<Cuda, E>,
    dqkv: ViewMut<Cuda, E>,
) {
    assert!(shape.before == 0, "gradients of queries with {} earlier tokens", shape.before);
    check(shape, [q, k, v], out.len(), lse.len());
    check_len("dout", dout.len(), out.len());
    check_len("dqkv", dqkv.len(), shape.tokens() * shape.qkv_width());
    let of_heads = Strided::new(dout, shape.out_width());
    let Kernels { dkv, dq, rows: [_, rows], .. } = Kernels::of(shape.head_dim, &[q, k, v, of_heads]);
    let strides = [q, k, v].map(|rows| rows.stride);
    let (lengths, queries) = (lengths(shape, rows), shape.tokens() * shape.heads);
    let (lengths, dqkv) = (words(&lengths), Argument::from(dqkv));
    let of_blocks = |heads| Grid { blocks: shape.sequences * heads * blocks(shape, rows), threads: THREADS };
    let arguments = [q.view.into(), k.view.into(), v.view.into(), out.into(), lse.into(), dout.into(), dqkv, lengths];
    // One kernel writes the number for each query, the next reads it, and the last overwrites it.
    cuda.launch(
        DELTA.of(E::WIDTH).with(shape.heads).with(shape.sharing()).with(shape.head_dim),
        of_rows(queries, DELTA_THREADS),
        &[out.into(), dout.into(), dqkv, queries.into()],
    );
    cuda.launch(of_shape(dkv, shape, strides), of_blocks(shape.key_heads), &arguments);
    cuda.launch(of_shape(dq, shape, strides), of_blocks(shape.heads), &arguments);
}

#[track_caller]
pub(super) fn check<E: Element>(shape: AttentionShape, qkv: [Strided<Cuda, E>; 3], out: usize, lse: usize) {
    let dim = shape.head_dim;
    assert!((1..=HEAD_DIM_MAX).contains(&dim), "a head of {dim} features, {HEAD_DIM_MAX} at most");
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
    check_len("out", out, shape.tokens() * shape.out_width());
    check_len("lse", lse, shape.tokens() * shape.heads);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_fit_their_kernels() {
        for dim in 1..=HEAD_DIM_MAX {
            for (width, step) in [(Width::F32, 8), (Width::BF16, 16)] {
                let found = dim_of(width, dim);
                assert!(dim <= found && found <= HEAD_DIM_MAX && found.is_multiple_of(step), "{dim} in {found}");
            }
        }
    }
}
