//! Cross-entropy: the loss of logits and its gradient, with a block for each row. Never waits for the device.

use super::Cuda;
use super::elementwise::{check_len, divided};
use super::grid::BLOCK;
use super::launch::{Grid, Kernel};
use super::module::KernelSource;
use crate::device::Element;
use crate::view::{View, ViewMut};

const CROSS_ENTROPY: Kernel = Kernel::new(KernelSource::Loss, "cross_entropy");
const CROSS_ENTROPY_BACKWARD: Kernel = Kernel::new(KernelSource::Loss, "cross_entropy_backward");

pub(super) fn cross_entropy<E: Element>(
    cuda: &Cuda,
    logits: View<Cuda, E>,
    targets: View<Cuda, u32>,
    loss: ViewMut<Cuda, f32>,
) {
    let (classes, grid) = rows(logits.len(), targets.len(), loss.len());
    cuda.launch(CROSS_ENTROPY.of(E::WIDTH).with(classes), grid, &[logits.into(), targets.into(), loss.into()]);
}

pub(super) fn cross_entropy_backward<E: Element>(
    cuda: &Cuda,
    logits: ViewMut<Cuda, E>,
    targets: View<Cuda, u32>,
    loss: ViewMut<Cuda, f32>,
) {
    let (classes, grid) = rows(logits.len(), targets.len(), loss.len());
    cuda.launch(CROSS_ENTROPY_BACKWARD.of(E::WIDTH).with(classes), grid, &[logits.into(), targets.into(), loss.into()]);
}

/// The number of classes, and a grid with a block for each row.
fn rows(logits: usize, rows: usize, losses: usize) -> (usize, Grid) {
    check_len("loss", losses, rows);
    (divided("logits", logits, rows), Grid { blocks: rows, threads: BLOCK })
}
