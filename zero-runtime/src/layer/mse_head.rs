//! Mean squared error: the head of a model that predicts numbers instead of classes. Never has parameters.

use zero_plan::Message;

use super::size::{empty, product};
use super::{Backward, Context, Features, Forward, Head, Layer, Loss, Shape, Tensors};
use crate::device::Kernels;
use crate::view::{View, ViewMut};

/// (tokens, W) to a loss: for each token, the mean over its W features x of (x - t)^2, where t are its f32 targets
/// (tokens, W). It predicts what it takes, so the layer before it usually is a [`super::Linear`].
///
/// The loss of a step is the mean over its tokens, as PyTorch's `mse_loss` of all features at once.
///
/// A model that learns a sine, and its data:
///
/// ```
/// use zero_runtime::data::{Dataset, Draw};
/// use zero_runtime::prelude::*;
/// use zero_runtime::random::uniform;
///
/// #[zero(stage = 2, ranks = 2, sequences = 64, length = 1)]
/// struct Sine {
///     hidden: (Linear<1, 32>, Silu),
///     out: Linear<32, 1>,
///     head: MseHead<1>,
/// }
///
/// struct Points;
///
/// impl Dataset for Points {
///     type Input = Features<1>;
///     type Target = Features<1>;
///
///     fn training(&self, draw: Draw, input: &mut [f32], targets: &mut [f32]) {
///         for (i, (x, target)) in (0..).zip(input.iter_mut().zip(targets)) {
///             *x = 6.0 * uniform(draw.hash(), i) as f32 - 3.0;
///             *target = x.sin();
///         }
///     }
///
///     fn held_out(&self, index: usize, input: &mut [f32], targets: &mut [f32]) {
///         self.training(Draw { seed: 0, step: u64::MAX, index: index as u64 }, input, targets);
///     }
///
///     fn held_out_count(&self) -> usize {
///         64
///     }
/// }
///
/// fn main() -> std::process::ExitCode {
///     # if true { return std::process::ExitCode::SUCCESS }
///     zero_runtime::main_with::<Sine>(Points)
/// }
/// ```
pub struct MseHead<const W: usize>;

impl<S: Shape, const W: usize> Layer<S, Features<W>> for MseHead<W> {
    type Output = Loss;
    const PARAMS: usize = 0;
    const FAULT: Option<Message> = empty("MseHead", &[("width", W)]);
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;
    // A difference, a product and a sum.
    const OPERATIONS: usize = product(&[3, S::TOKENS, W]);

    fn tensors(_: &mut Tensors) {}

    fn forward(cx: &Context<S::Device>, pass: Forward<S, Features<W>, Loss>) {
        cx.device.squared_error(pass.x, cx.targets.cast(), pass.y);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, Features<W>, Loss>) {
        if let Some(dx) = pass.dx {
            cx.device.squared_error_backward(pass.x, cx.targets.cast(), pass.dy, dx);
        }
    }
}

impl<S: Shape, const W: usize> Head<S> for MseHead<W> {
    type Target = Features<W>;
    const UNIT: &'static str = "mean squared error";
    const CLASSES: usize = 0;
    const OUTPUTS: usize = W;

    fn logits(
        device: &S::Device,
        _: View<S::Device, S::Compute>,
        x: View<S::Device, S::Compute>,
        outputs: ViewMut<S::Device, f32>,
    ) {
        device.convert(outputs.into(), x.into());
    }
}
