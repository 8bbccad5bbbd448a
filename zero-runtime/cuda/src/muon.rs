//! Muon: the elementwise parts of its step, with the processor's bits. Never multiplies matrices.

use super::Cuda;
use super::elementwise::{aligned, over, stored, stored_mut};
use super::handle::launch::{Argument, Kernel};
use super::lengths::check_len;
use super::optimizer::weight_addresses;
use super::source::KernelSource;
use zero_core::device::{Element, HyperBlock, ReportBlock, Stored, StoredMut, Weights};
use zero_core::view::{View, ViewMut};

const MOMENTUM: Kernel = Kernel::new(KernelSource::Optimizer, "momentum");
const NORMALIZE: Kernel = Kernel::new(KernelSource::Optimizer, "normalize");
const STEP_ALONG: Kernel = Kernel::new(KernelSource::Optimizer, "step_along");

pub(super) fn momentum(
    cuda: &Cuda,
    hyper: View<Cuda, HyperBlock>,
    report: View<Cuda, ReportBlock>,
    gradients: StoredMut<Cuda>,
    m: StoredMut<Cuda>,
) {
    check_len("hyper", hyper.len(), 1);
    check_len("report", report.len(), 1);
    check_len("m", m.len(), gradients.len());
    let len = gradients.len();
    let ((gradients, gradients_width), (m, m_width)) = (stored_mut(gradients), stored_mut(m));
    let kernel = MOMENTUM.of(gradients_width).of(m_width).with(aligned([gradients, m]));
    cuda.launch(kernel, over(len), &[gradients, m, len.into(), hyper.into(), report.into()]);
}

pub(super) fn normalize<E: Element>(
    cuda: &Cuda,
    to: ViewMut<Cuda, E>,
    from: Stored<Cuda>,
    square: View<Cuda, f64>,
    epsilon: f64,
) {
    check_len("from", from.len(), to.len());
    check_len("square", square.len(), 1);
    let len = to.len();
    let (to, (from, from_width)) = (to.into(), stored(from));
    let kernel = NORMALIZE.of(E::WIDTH).of(from_width).with(aligned([to, from]));
    cuda.launch(kernel, over(len), &[to, from, len.into(), square.into(), Argument::F64(epsilon)]);
}

#[allow(clippy::too_many_arguments, reason = "one argument for each part of the formula")]
pub(super) fn step_along<E: Element>(
    cuda: &Cuda,
    decays: bool,
    factor: f64,
    hyper: View<Cuda, HyperBlock>,
    report: View<Cuda, ReportBlock>,
    weights: Weights<Cuda>,
    direction: View<Cuda, E>,
) {
    check_len("hyper", hyper.len(), 1);
    check_len("report", report.len(), 1);
    check_len("direction", direction.len(), weights.params.len());
    let len = direction.len();
    let ([copied, updated], widths) = weight_addresses(weights);
    let direction = direction.into();
    let kernel = widths.into_iter().fold(STEP_ALONG, Kernel::of).of(E::WIDTH);
    let kernel = kernel.with(aligned([copied, updated, direction]));
    let words = [hyper.into(), report.into(), Argument::F64(factor), Argument::U32(decays.into())];
    let [hyper, report, factor, decays] = words;
    cuda.launch(kernel, over(len), &[copied, updated, direction, len.into(), hyper, report, factor, decays]);
}
