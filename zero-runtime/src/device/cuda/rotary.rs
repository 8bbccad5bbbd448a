//! Rotary: rotary position embeddings. Never waits for the device.

use super::Cuda;
use crate::device::{Element, Rotary, StridedMut};
use crate::view::{View, ViewMut};

pub(super) fn rotary_table(cuda: &Cuda, _rotary: &Rotary, _first: usize, _head_dim: usize, _table: ViewMut<Cuda, f32>) {
    cuda.missing("rotary_table");
}

pub(super) fn rotate<E: Element>(
    cuda: &Cuda,
    _x: StridedMut<Cuda, E>,
    _heads: usize,
    _table: View<Cuda, f32>,
    _length: usize,
    _back: bool,
) {
    cuda.missing("rotate");
}
