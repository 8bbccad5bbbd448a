//! Norms: each token's features brought to unit scale. Never mixes tokens.

use std::marker::PhantomData;

use zero_plan::Message;

use super::cost::{bytes, empty, product};
use super::{Backward, Context, Entry, Features, Forward, Init, Layer, Shape, Tensors};
use crate::device::Kernels;
use crate::view::View;

/// The number that a norm adds to the variance, or to the mean square, before it takes the root.
pub trait Epsilon: 'static {
    /// The number.
    const EPSILON: f32;
}

/// 1e-5.
pub struct E5;
/// 1e-6.
pub struct E6;

impl Epsilon for E5 {
    const EPSILON: f32 = 1e-5;
}
impl Epsilon for E6 {
    const EPSILON: f32 = 1e-6;
}

/// Layer norm over W features, with weight (W) and bias (W).
pub struct LayerNorm<const W: usize, E = E5>(PhantomData<E>);

impl<S: Shape, const W: usize, E: Epsilon> Layer<S, Features<W>> for LayerNorm<W, E> {
    type Output = Features<W>;
    const PARAMS: usize = product(&[2, W]);
    const FAULT: Option<Message> = empty("LayerNorm", &[("width", W)]);
    // Mean and reciprocal deviation of each token.
    const SAVED: usize = bytes::<f32>(product(&[2, S::TOKENS]));
    const WORKSPACE: usize = 0;
    // For each element: 1 for the mean, 3 for the variance, 2 to normalise, 2 for weight and bias.
    const OPERATIONS: usize = product(&[S::TOKENS, W, 8]);

    fn tensors(out: &mut Tensors) {
        out.add("weight", &[W], Init::Ones);
        out.add("bias", &[W], Init::Zeros);
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, Features<W>>) {
        let (gain, bias) = pass.params.split_at(W);
        let stats = pass.saved.take::<f32>(2 * cx.tokens()).0;
        cx.device.layer_norm(pass.x, gain, bias, pass.y, stats, E::EPSILON);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, Features<W>>) {
        Self::backward(cx, pass, None);
    }

    fn backward_plus(cx: &Context<S::Device>, pass: Backward<S, Features<W>>, plus: View<S::Device, S::Compute>) {
        Self::backward(cx, pass, Some(plus));
    }
}

impl<const W: usize, E> LayerNorm<W, E> {
    fn backward<S: Shape>(
        cx: &Context<S::Device>,
        pass: Backward<S, Features<W>>,
        plus: Option<View<S::Device, S::Compute>>,
    ) {
        let gain = pass.params.split_at(W).0;
        let stats = pass.saved.take::<f32>(2 * cx.tokens()).0;
        let (grads, write) = pass.grads.into_parts();
        let (dgain, dbias) = grads.split_at(W);
        cx.device.layer_norm_backward(pass.x, gain, stats, pass.dy, pass.dx, plus, dgain, dbias, write);
    }
}

/// Root-mean-square norm over W features, with weight (W).
pub struct RmsNorm<const W: usize, E = E5>(PhantomData<E>);

impl<S: Shape, const W: usize, E: Epsilon> Layer<S, Features<W>> for RmsNorm<W, E> {
    type Output = Features<W>;
    const PARAMS: usize = W;
    const FAULT: Option<Message> = empty("RmsNorm", &[("width", W)]);
    // Reciprocal root mean square of each token.
    const SAVED: usize = bytes::<f32>(S::TOKENS);
    const WORKSPACE: usize = 0;
    // For each element: 2 for the sum of squares, 1 to normalise, 1 for the weight.
    const OPERATIONS: usize = product(&[S::TOKENS, W, 4]);

    fn tensors(out: &mut Tensors) {
        out.add("weight", &[W], Init::Ones);
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, Features<W>>) {
        let inverse = pass.saved.take::<f32>(cx.tokens()).0;
        cx.device.rms_norm(pass.x, pass.params, pass.y, inverse, E::EPSILON);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, Features<W>>) {
        Self::backward(cx, pass, None);
    }

    fn backward_plus(cx: &Context<S::Device>, pass: Backward<S, Features<W>>, plus: View<S::Device, S::Compute>) {
        Self::backward(cx, pass, Some(plus));
    }
}

impl<const W: usize, E> RmsNorm<W, E> {
    fn backward<S: Shape>(
        cx: &Context<S::Device>,
        pass: Backward<S, Features<W>>,
        plus: Option<View<S::Device, S::Compute>>,
    ) {
        let inverse = pass.saved.take::<f32>(cx.tokens()).0;
        let (dgain, write) = pass.grads.into_parts();
        cx.device.rms_norm_backward(pass.x, pass.params, inverse, pass.dy, pass.dx, plus, dgain, write);
    }
}

impl<const W: usize, E> Entry for LayerNorm<W, E> {
    type Input = Features<W>;
}

impl<const W: usize, E> Entry for RmsNorm<W, E> {
    type Input = Features<W>;
}
