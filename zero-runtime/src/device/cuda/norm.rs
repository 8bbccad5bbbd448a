//! Norm: layer norm and root-mean-square norm of rows. Never waits for the device.

use super::Cuda;
use crate::device::{Element, Write};
use crate::view::{View, ViewMut};

pub(super) fn layer_norm<E: Element>(
    cuda: &Cuda,
    _x: View<Cuda, E>,
    _gain: View<Cuda, E>,
    _bias: View<Cuda, E>,
    _y: ViewMut<Cuda, E>,
    _stats: ViewMut<Cuda, f32>,
    _epsilon: f32,
) {
    cuda.missing("layer_norm");
}

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn layer_norm_backward<E: Element>(
    cuda: &Cuda,
    _x: View<Cuda, E>,
    _gain: View<Cuda, E>,
    _stats: View<Cuda, f32>,
    _dy: View<Cuda, E>,
    _dx: Option<ViewMut<Cuda, E>>,
    _plus: Option<View<Cuda, E>>,
    _dgain: ViewMut<Cuda, f32>,
    _dbias: ViewMut<Cuda, f32>,
    _write: Write,
) {
    cuda.missing("layer_norm_backward");
}

pub(super) fn rms_norm<E: Element>(
    cuda: &Cuda,
    _x: View<Cuda, E>,
    _gain: View<Cuda, E>,
    _y: ViewMut<Cuda, E>,
    _inverse: ViewMut<Cuda, f32>,
    _epsilon: f32,
) {
    cuda.missing("rms_norm");
}

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn rms_norm_backward<E: Element>(
    cuda: &Cuda,
    _x: View<Cuda, E>,
    _gain: View<Cuda, E>,
    _inverse: View<Cuda, f32>,
    _dy: View<Cuda, E>,
    _dx: Option<ViewMut<Cuda, E>>,
    _plus: Option<View<Cuda, E>>,
    _dgain: ViewMut<Cuda, f32>,
    _write: Write,
) {
    cuda.missing("rms_norm_backward");
}
