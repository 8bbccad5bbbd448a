//! Gated: two linear maps of the same input, one of which is activated and then multiplied with the other. Never saves
//! the product, which is the layer's output.

use std::marker::PhantomData;

use zero_plan::Message;

use super::cost::{bytes, empty, matrix, product, sum};
use super::linear::{LinearMap, initial};
use super::{
    Backward, Context, Entry, Features, Forward, Gelu, Layer, Nonlinear, OrthogonalCost, Shape, Silu, Tensors,
};
use crate::device::{Kernels, Then};

/// (tokens, I) to (tokens, H): f(x Wg^T) (x Wu^T), where f is the activation `K` (Shazeer, "GLU variants improve
/// transformer", 2020). Tensors: gate_proj.weight (H, I) and up_proj.weight (H, I). No bias.
pub struct Gated<const I: usize, const H: usize, K>(PhantomData<K>);

/// The gate of Llama, Qwen and OLMo.
pub type SwiGlu<const I: usize, const H: usize> = Gated<I, H, Silu>;
/// The gate of Gemma, with the tanh form of GELU.
pub type GeGlu<const I: usize, const H: usize> = Gated<I, H, Gelu>;

impl<const I: usize, const H: usize, K> Gated<I, H, K> {
    /// Both maps in one product: the rows of the second weight follow those of the first.
    const MAP: LinearMap = LinearMap { input: I, output: product(&[2, H]), bias: false };
}

impl<S: Shape, const I: usize, const H: usize, K: Nonlinear> Layer<S, Features<I>> for Gated<I, H, K> {
    type Output = Features<H>;
    const PARAMS: usize = Self::MAP.params();
    const FAULT: Option<Message> = empty("Gated", &[("input width", I), ("output width", H)]);
    // Both products (tokens, 2 H).
    const SAVED: usize = bytes::<S::Compute>(product(&[S::TOKENS, 2, H]));
    // Backward: their gradients (tokens, 2 H).
    const WORKSPACE: usize = bytes::<S::Compute>(product(&[S::TOKENS, 2, H]));
    // The weight of the gate, and the other weight.
    const MATRICES: OrthogonalCost = matrix::<S::Compute>([H, I]).and(matrix::<S::Compute>([H, I]));
    // Both products, the activation, and the multiplication by it.
    const OPERATIONS: usize =
        sum(&[product(&[2, Self::MAP.params(), S::TOKENS]), product(&[S::TOKENS, H, sum(&[K::OPERATIONS, 1])])]);

    fn tensors(out: &mut Tensors) {
        for name in ["gate_proj", "up_proj"] {
            out.scope(name, |out| out.hidden("weight", &[H], I, initial(I)));
        }
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, Features<I>, Features<H>>) {
        let mut both = pass.saved.take::<S::Compute>(cx.tokens() * 2 * H).0;
        Self::MAP.forward(cx, pass.params, pass.x, both.reborrow(), Then::Nothing);
        cx.device.gate(K::KIND, both.as_view(), pass.y, H);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, Features<I>, Features<H>>) {
        let both = pass.saved.take::<S::Compute>(cx.tokens() * 2 * H).0;
        let mut dboth = pass.work.take::<S::Compute>(cx.tokens() * 2 * H).0;
        cx.device.gate_backward(K::KIND, both, pass.dy, dboth.reborrow(), H);
        Self::MAP.backward(cx, pass.params, pass.grads, pass.x, dboth.as_view(), pass.dx);
    }
}

impl<const I: usize, const H: usize, K> Entry for Gated<I, H, K> {
    type Input = Features<I>;
}
