//! Squared error: the loss of numbers. Never waits for the device.

use super::Cuda;
use crate::device::Element;
use crate::view::{View, ViewMut};

pub(super) fn squared_error<E: Element>(
    cuda: &Cuda,
    _x: View<Cuda, E>,
    _targets: View<Cuda, f32>,
    _loss: ViewMut<Cuda, f32>,
) {
    cuda.missing("squared_error");
}

pub(super) fn squared_error_backward<E: Element>(
    cuda: &Cuda,
    _x: View<Cuda, E>,
    _targets: View<Cuda, f32>,
    _dloss: View<Cuda, f32>,
    _dx: ViewMut<Cuda, E>,
) {
    cuda.missing("squared_error_backward");
}
