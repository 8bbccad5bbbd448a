//! Cross-entropy: the loss of logits. Never waits for the device.

use super::Cuda;
use crate::device::Element;
use crate::view::{View, ViewMut};

pub(super) fn cross_entropy<E: Element>(
    cuda: &Cuda,
    _logits: View<Cuda, E>,
    _targets: View<Cuda, u32>,
    _loss: ViewMut<Cuda, f32>,
    _lse: ViewMut<Cuda, f32>,
) {
    cuda.missing("cross_entropy");
}

pub(super) fn cross_entropy_backward<E: Element>(
    cuda: &Cuda,
    _logits: ViewMut<Cuda, E>,
    _targets: View<Cuda, u32>,
    _lse: View<Cuda, f32>,
    _dloss: View<Cuda, f32>,
) {
    cuda.missing("cross_entropy_backward");
}
