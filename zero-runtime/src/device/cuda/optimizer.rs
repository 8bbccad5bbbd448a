//! Optimizer: one step of it, from the words of a step.

use super::Cuda;
use crate::device::{AdamW, HyperBlock, ReportBlock, Stored, StoredMut, Weights};
use crate::view::View;

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn update(
    cuda: &Cuda,
    _decays: bool,
    _hyper: View<Cuda, HyperBlock>,
    _report: View<Cuda, ReportBlock>,
    _weights: Weights<Cuda>,
    _grads: Stored<Cuda>,
    _m: StoredMut<Cuda>,
    _v: StoredMut<Cuda>,
) {
    cuda.missing("update");
}

pub(super) fn adamw<'a>(
    cuda: &Cuda,
    _step: &AdamW,
    _weights: impl Into<Weights<'a, Cuda>>,
    _grads: impl Into<Stored<'a, Cuda>>,
    _m: impl Into<StoredMut<'a, Cuda>>,
    _v: impl Into<StoredMut<'a, Cuda>>,
) {
    cuda.missing("adamw");
}

pub(super) fn all_finite<'a>(cuda: &Cuda, _x: impl Into<Stored<'a, Cuda>>) -> bool {
    cuda.missing("all_finite");
    false
}
