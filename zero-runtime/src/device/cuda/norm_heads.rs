//! Norm of heads: root-mean-square norm of the parts of rows. Never waits for the device.

use super::Cuda;
use crate::device::{Element, Strided, StridedMut, Write};
use crate::view::{View, ViewMut};

pub(super) fn rms_norm_heads<E: Element>(
    cuda: &Cuda,
    _x: Strided<Cuda, E>,
    _heads: usize,
    _gain: View<Cuda, E>,
    _y: StridedMut<Cuda, E>,
    _inverse: ViewMut<Cuda, f32>,
    _epsilon: f32,
) {
    cuda.missing("rms_norm_heads");
}

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn rms_norm_heads_backward<E: Element>(
    cuda: &Cuda,
    _x: Strided<Cuda, E>,
    _heads: usize,
    _gain: View<Cuda, E>,
    _inverse: View<Cuda, f32>,
    _dy: StridedMut<Cuda, E>,
    _dgain: ViewMut<Cuda, f32>,
    _write: Write,
) {
    cuda.missing("rms_norm_heads_backward");
}
