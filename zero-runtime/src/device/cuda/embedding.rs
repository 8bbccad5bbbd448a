//! Embedding: rows of a table by id. Never waits for the device.

use super::Cuda;
use crate::device::{Element, Write};
use crate::view::{View, ViewMut};

pub(super) fn embed<E: Element>(
    cuda: &Cuda,
    _ids: View<Cuda, u32>,
    _table: View<Cuda, E>,
    _positions: Option<View<Cuda, E>>,
    _out: ViewMut<Cuda, E>,
    _length: usize,
) {
    cuda.missing("embed");
}

pub(super) fn embed_backward<E: Element>(
    cuda: &Cuda,
    _ids: View<Cuda, u32>,
    _dout: View<Cuda, E>,
    _dtable: ViewMut<Cuda, f32>,
    _dpositions: Option<ViewMut<Cuda, f32>>,
    _length: usize,
    _write: Write,
) {
    cuda.missing("embed_backward");
}
