//! Cross-entropy: the loss of logits, a block for each row, and its gradient, elementwise. Never waits for the device.

use super::Cuda;
use super::elementwise::{check_len, divided};
use super::grid::{BLOCK, PACK, of_packs};
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
    lse: ViewMut<Cuda, f32>,
) {
    let rows = targets.len();
    let classes = divided("logits", logits.len(), rows);
    check_len("loss", loss.len(), rows);
    check_len("lse", lse.len(), rows);
    let grid = Grid { blocks: rows, threads: BLOCK };
    let arguments = [logits.into(), targets.into(), loss.into(), lse.into()];
    cuda.launch(CROSS_ENTROPY.of(E::WIDTH).with(classes), grid, &arguments);
}

pub(super) fn cross_entropy_backward<E: Element>(
    cuda: &Cuda,
    logits: ViewMut<Cuda, E>,
    targets: View<Cuda, u32>,
    lse: View<Cuda, f32>,
    dloss: View<Cuda, f32>,
) {
    let rows = targets.len();
    let classes = divided("logits", logits.len(), rows);
    check_len("lse", lse.len(), rows);
    check_len("dloss", dloss.len(), rows);
    let (grid, blocks) = of_packs(rows, classes.div_ceil(PACK));
    let arguments = [logits.into(), targets.into(), lse.into(), dloss.into()];
    cuda.launch(CROSS_ENTROPY_BACKWARD.of(E::WIDTH).with(classes).with(blocks), grid, &arguments);
}
