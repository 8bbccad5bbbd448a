//! Sums: those of ranks, of losses and of squares, each in its fixed order.

use super::Cuda;
use crate::device::{Agreement, HyperBlock, ReportBlock, Stored, StoredMut, Write};
use crate::view::{View, ViewMut};

pub(super) fn reduce<'a>(
    cuda: &Cuda,
    _to: StoredMut<Cuda>,
    _count: usize,
    _own: Option<usize>,
    _source: &dyn Fn(usize) -> Stored<'a, Cuda>,
    _write: Write,
) {
    cuda.missing("reduce");
}

pub(super) fn add_mean(cuda: &Cuda, _x: View<Cuda, f32>, _to: ViewMut<Cuda, f64>) {
    cuda.missing("add_mean");
}

pub(super) fn squares(cuda: &Cuda, _x: Stored<Cuda>, _to: ViewMut<Cuda, f64>) {
    cuda.missing("squares");
}

pub(super) fn agree(
    cuda: &Cuda,
    _agreement: &Agreement,
    _all: View<Cuda, f64>,
    _hyper: View<Cuda, HyperBlock>,
    _report: ViewMut<Cuda, ReportBlock>,
) {
    cuda.missing("agree");
}
