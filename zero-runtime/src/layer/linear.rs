//! Linear: y = x W^T + b, and what follows it in the same pass.

use zero_plan::message::Message;

use super::size::{empty, product, sum};
use super::{Backward, Context, Entry, Features, Forward, Grads, Init, Layer, Shape, Tensors};
use crate::device::{Device, Element, Matrix, Then, Write};
use crate::view::{View, ViewMut};

/// (tokens, I) to (tokens, O), with weight (O, I) and bias (O).
pub struct Linear<const I: usize, const O: usize>;

impl<S: Shape, const I: usize, const O: usize> Layer<S, Features<I>> for Linear<I, O> {
    type Output = Features<O>;
    const PARAMS: usize = params(I, O);
    const FAULT: Option<Message> = empty("Linear", &[("input width", I), ("output width", O)]);
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;

    fn tensors(out: &mut Tensors) {
        tensors(I, O, out);
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, Features<I>, Features<O>>) {
        forward(cx, [I, O], pass.params, pass.x, pass.y, Then::Nothing);
    }

    fn forward_then(
        cx: &Context<S::Device>,
        pass: Forward<S, Features<I>, Features<O>>,
        then: Then<S::Device, S::Compute>,
    ) {
        forward(cx, [I, O], pass.params, pass.x, pass.y, then);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, Features<I>, Features<O>>) {
        backward(cx, [I, O], pass.params, pass.grads, pass.x, pass.dy, pass.dx);
    }
}

/// Parameters of a linear map from `input` to `output` features.
pub(super) const fn params(input: usize, output: usize) -> usize {
    sum(&[product(&[input, output]), output])
}

/// Weight and bias. The deviation gives the variance that PyTorch's uniform default has.
pub(super) fn tensors(input: usize, output: usize, out: &mut Tensors) {
    out.add("weight", &[output, input], Init::Normal((3.0 * input as f32).sqrt().recip()));
    out.add("bias", &[output], Init::Zeros);
}

/// `y` (tokens, output) := `x` (tokens, input) times the transposed weight (output, input), plus the bias; then `then`.
pub(super) fn forward<D: Device, E: Element>(
    cx: &Context<D>,
    [input, output]: [usize; 2],
    params: View<D, E>,
    x: View<D, E>,
    y: ViewMut<D, E>,
    then: Then<D, E>,
) {
    let (weight, bias) = params.split_at(output * input);
    cx.device.linear(y, x, Matrix::new(weight, output, input), Some(bias), then);
}

/// The vector-Jacobian product of [`forward`].
pub(super) fn backward<D: Device, E: Element>(
    cx: &Context<D>,
    [input, output]: [usize; 2],
    params: View<D, E>,
    grads: Grads<D>,
    x: View<D, E>,
    dy: View<D, E>,
    dx: Option<ViewMut<D, E>>,
) {
    let tokens = cx.tokens();
    if let Some(dx) = dx {
        let weight = Matrix::new(params.split_at(output * input).0, output, input);
        cx.device.matmul(dx, Matrix::new(dy, tokens, output), weight, Write::Set);
    }
    let (grads, write) = grads.into_parts();
    let (dweight, dbias) = grads.split_at(output * input);
    // (output, input) = (output, tokens) (tokens, input)
    cx.device.matmul(dweight, Matrix::new(dy, tokens, output).transposed(), Matrix::new(x, tokens, input), write);
    cx.device.sum_rows(dy, dbias, write);
}

impl<const I: usize, const O: usize> Entry for Linear<I, O> {
    type Input = Features<I>;
}
