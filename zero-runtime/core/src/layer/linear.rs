//! Linear: y = x W^T + b, and what follows it in the same pass.

use zero_plan::Message;

use super::cost::{empty, matrix, product, sum};
use super::{Backward, Context, Entry, Features, Forward, Grads, Init, Layer, OrthogonalCost, Shape, Tensors};
use crate::device::{Device, Element, Matrix, Then, Write};
use crate::view::{View, ViewMut};

/// (tokens, I) to (tokens, O), with weight (O, I) and, unless BIAS is false, bias (O).
pub struct Linear<const I: usize, const O: usize, const BIAS: bool = true>;

impl<const I: usize, const O: usize, const BIAS: bool> Linear<I, O, BIAS> {
    const MAP: LinearMap = LinearMap { input: I, output: O, bias: BIAS };
}

impl<S: Shape, const I: usize, const O: usize, const BIAS: bool> Layer<S, Features<I>> for Linear<I, O, BIAS> {
    type Output = Features<O>;
    const PARAMS: usize = Self::MAP.params();
    const FAULT: Option<Message> = empty("Linear", &[("input width", I), ("output width", O)]);
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;
    const MATRICES: OrthogonalCost = matrix::<S::Compute>([O, I]);

    fn tensors(out: &mut Tensors) {
        Self::MAP.tensors(&[O], out);
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, Features<I>, Features<O>>) {
        Self::MAP.forward(cx, pass.params, pass.x, pass.y, Then::Nothing);
    }

    fn forward_then(
        cx: &Context<S::Device>,
        pass: Forward<S, Features<I>, Features<O>>,
        then: Then<S::Device, S::Compute>,
    ) {
        Self::MAP.forward(cx, pass.params, pass.x, pass.y, then);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, Features<I>, Features<O>>) {
        Self::MAP.backward(cx, pass.params, pass.grads, pass.x, pass.dy, pass.dx);
    }
}

/// A linear map of a layer: weight (output, input), then, if there is one, bias (output).
#[derive(Clone, Copy)]
pub(super) struct LinearMap {
    pub input: usize,
    pub output: usize,
    pub bias: bool,
}

impl LinearMap {
    /// Number of its parameters.
    pub const fn params(&self) -> usize {
        sum(&[product(&[self.input, self.output]), if self.bias { self.output } else { 0 }])
    }

    /// Weight and bias. The weight is one matrix, or several, each with its number of `rows`.
    fn tensors(&self, rows: &[usize], out: &mut Tensors) {
        out.hidden("weight", rows, self.input, initial(self.input));
        if self.bias {
            out.add("bias", &[self.output], Init::Zeros);
        }
    }

    /// [`Self::tensors`], under `name`.
    pub fn tensors_of(&self, name: &'static str, rows: &[usize], out: &mut Tensors) {
        out.scope(name, |out| self.tensors(rows, out));
    }

    /// `y` (tokens, output) := `x` (tokens, input) times the transposed weight, plus the bias; then `then`.
    pub fn forward<D: Device, E: Element>(
        &self,
        cx: &Context<D>,
        params: View<D, E>,
        x: View<D, E>,
        y: ViewMut<D, E>,
        then: Then<D, E>,
    ) {
        let (weight, bias) = params.split_at(self.output * self.input);
        let bias = self.bias.then_some(bias);
        cx.linear(y, x, Matrix::new(weight, self.output, self.input), bias, then);
    }

    /// The vector-Jacobian product of [`Self::forward`].
    pub fn backward<D: Device, E: Element>(
        &self,
        cx: &Context<D>,
        params: View<D, E>,
        grads: Grads<D>,
        x: View<D, E>,
        dy: View<D, E>,
        dx: Option<ViewMut<D, E>>,
    ) {
        let (Self { input, output, bias }, tokens) = (*self, cx.tokens());
        if let Some(dx) = dx {
            let weight = Matrix::new(params.split_at(output * input).0, output, input);
            cx.device.matmul(dx, Matrix::new(dy, tokens, output), weight, Write::Set);
        }
        let (grads, write) = grads.into_parts();
        let (dweight, dbias) = grads.split_at(output * input);
        // (output, input) = (output, tokens) (tokens, input)
        cx.device.matmul(dweight, Matrix::new(dy, tokens, output).transposed(), Matrix::new(x, tokens, input), write);
        if bias {
            cx.device.sum_rows(dy, dbias, write);
        }
    }
}

/// The initial values of a weight that takes `input` features, with the variance of PyTorch's uniform default.
pub(super) fn initial(input: usize) -> Init {
    Init::Normal((3.0 * input as f32).sqrt().recip())
}

impl<const I: usize, const O: usize, const BIAS: bool> Entry for Linear<I, O, BIAS> {
    type Input = Features<I>;
}
