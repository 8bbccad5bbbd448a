//! Gate: half of a row as the gate of the other. Never waits for the device.

use super::Cuda;
use crate::device::{Element, Nonlinearity};
use crate::view::{View, ViewMut};

pub(super) fn gate<E: Element>(
    cuda: &Cuda,
    _kind: Nonlinearity,
    _x: View<Cuda, E>,
    _y: ViewMut<Cuda, E>,
    _width: usize,
) {
    cuda.missing("gate");
}

pub(super) fn gate_backward<E: Element>(
    cuda: &Cuda,
    _kind: Nonlinearity,
    _x: View<Cuda, E>,
    _dy: View<Cuda, E>,
    _dx: ViewMut<Cuda, E>,
    _width: usize,
) {
    cuda.missing("gate_backward");
}
