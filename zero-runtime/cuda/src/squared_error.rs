//! Squared error: the loss of numbers, and its gradient, elementwise. Never waits for the device.

use super::Cuda;
use super::grid::{PACK, of_packs, of_rows, sharing};
use super::handle::launch::Kernel;
use super::lengths::{check_len, divided};
use super::source::KernelSource;
use zero_core::device::Element;
use zero_core::view::{View, ViewMut};

const SQUARED_ERROR: Kernel = Kernel::new(KernelSource::Loss, "squared_error");
const SQUARED_ERROR_BACKWARD: Kernel = Kernel::new(KernelSource::Loss, "squared_error_backward");

pub(super) fn squared_error<E: Element>(
    cuda: &Cuda,
    x: View<Cuda, E>,
    targets: View<Cuda, f32>,
    loss: ViewMut<Cuda, f32>,
) {
    let rows = loss.len();
    check_len("targets", targets.len(), x.len());
    let width = divided("x", x.len(), rows);
    let arguments = [x.into(), targets.into(), loss.into(), rows.into()];
    let kernel = SQUARED_ERROR.of(E::WIDTH).with(sharing(width)).with(width);
    cuda.launch(kernel, of_rows(rows, sharing(width)), &arguments);
}

pub(super) fn squared_error_backward<E: Element>(
    cuda: &Cuda,
    x: View<Cuda, E>,
    targets: View<Cuda, f32>,
    dloss: View<Cuda, f32>,
    dx: ViewMut<Cuda, E>,
) {
    let rows = dloss.len();
    check_len("targets", targets.len(), x.len());
    check_len("dx", dx.len(), x.len());
    let width = divided("x", x.len(), rows);
    let (grid, blocks) = of_packs(rows, width.div_ceil(PACK));
    let arguments = [x.into(), targets.into(), dloss.into(), dx.into()];
    cuda.launch(SQUARED_ERROR_BACKWARD.of(E::WIDTH).with(width).with(blocks), grid, &arguments);
}
