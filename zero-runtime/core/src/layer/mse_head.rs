//! Mean squared error: the head of a model that predicts numbers instead of classes. Never has parameters.

use zero_plan::Message;

use super::cost::{empty, product};
use super::{Backward, Context, Features, Forward, Head, Layer, Loss, Shape, Tensors};
use crate::device::Kernels;
use crate::view::{View, ViewMut};

/// (tokens, W) to a loss: for each token, the mean over its W features x of (x - t)^2, where t are its f32 targets
/// (tokens, W). Its input is its prediction, so the layer before it usually is a [`super::Linear`].
///
/// The loss of a step is the mean over its tokens, as PyTorch's `mse_loss` of all features at once.
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
