//! Cross-entropy: the loss of logits and its gradient. The number of threads that share a row depends on its number of
//! classes. Never waits for the device.

use super::Cuda;
use super::grid::{of_rows, sharing};
use super::handle::launch::{Argument, Kernel};
use super::lengths::{check_len, divided};
use super::source::KernelSource;
use zero_core::device::Element;
use zero_core::view::{View, ViewMut};

const CROSS_ENTROPY: Kernel = Kernel::new(KernelSource::Loss, "cross_entropy");
const CROSS_ENTROPY_BACKWARD: Kernel = Kernel::new(KernelSource::Loss, "cross_entropy_backward");

pub(super) fn cross_entropy<E: Element>(
    cuda: &Cuda,
    logits: View<Cuda, E>,
    targets: View<Cuda, u32>,
    loss: ViewMut<Cuda, f32>,
) {
    launch(cuda, CROSS_ENTROPY.of(E::WIDTH), logits.len(), logits.into(), targets, loss);
}

pub(super) fn cross_entropy_backward<E: Element>(
    cuda: &Cuda,
    logits: ViewMut<Cuda, E>,
    targets: View<Cuda, u32>,
    loss: ViewMut<Cuda, f32>,
) {
    launch(cuda, CROSS_ENTROPY_BACKWARD.of(E::WIDTH), logits.len(), logits.into(), targets, loss);
}

fn launch(
    cuda: &Cuda,
    kernel: Kernel,
    len: usize,
    logits: Argument,
    targets: View<Cuda, u32>,
    loss: ViewMut<Cuda, f32>,
) {
    let rows = targets.len();
    check_len("loss", loss.len(), rows);
    let classes = divided("logits", len, rows);
    let threads = sharing(classes);
    let arguments = [logits, targets.into(), loss.into(), rows.into()];
    cuda.launch(kernel.with(threads).with(classes), of_rows(rows, threads), &arguments);
}
