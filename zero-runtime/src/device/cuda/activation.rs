//! Activation: nonlinearities, elementwise. Never waits for the device.

use super::Cuda;
use crate::device::{Element, Nonlinearity};
use crate::view::{View, ViewMut};

pub(super) fn activate<E: Element>(cuda: &Cuda, _kind: Nonlinearity, _x: View<Cuda, E>, _y: ViewMut<Cuda, E>) {
    cuda.missing("activate");
}

pub(super) fn activate_backward<E: Element>(
    cuda: &Cuda,
    _kind: Nonlinearity,
    _x: View<Cuda, E>,
    _dy: View<Cuda, E>,
    _dx: ViewMut<Cuda, E>,
) {
    cuda.missing("activate_backward");
}
