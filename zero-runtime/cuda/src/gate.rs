//! Gate: one half of a row as the gate of the other, elementwise, with the processor's bits. Never waits for the
//! device.

use super::Cuda;
use super::activation::number;
use super::elementwise::in_packs;
use super::grid::{PACK, of_packs};
use super::handle::launch::Kernel;
use super::lengths::{check_len, divided};
use super::source::KernelSource;
use zero_core::device::{Element, Nonlinearity};
use zero_core::view::{View, ViewMut};

const GATE: Kernel = Kernel::new(KernelSource::Nonlinear, "gate");
const GATE_BACKWARD: Kernel = Kernel::new(KernelSource::Nonlinear, "gate_backward");

pub(super) fn gate<E: Element>(cuda: &Cuda, kind: Nonlinearity, x: View<Cuda, E>, y: ViewMut<Cuda, E>, width: usize) {
    let rows = divided("y", y.len(), width);
    check_len("x", x.len(), 2 * y.len());
    let (grid, blocks) = of_packs(rows, width.div_ceil(PACK));
    let (x, y) = (x.into(), y.into());
    let kernel = GATE.of(E::WIDTH).with(number(kind)).with(in_packs([x, y], &[width])).with(width).with(blocks);
    cuda.launch(kernel, grid, &[x, y]);
}

pub(super) fn gate_backward<E: Element>(
    cuda: &Cuda,
    kind: Nonlinearity,
    x: View<Cuda, E>,
    dy: View<Cuda, E>,
    dx: ViewMut<Cuda, E>,
    width: usize,
) {
    let rows = divided("dy", dy.len(), width);
    check_len("x", x.len(), 2 * dy.len());
    check_len("dx", dx.len(), x.len());
    let (grid, blocks) = of_packs(rows, width.div_ceil(PACK));
    let (x, dy, dx) = (x.into(), dy.into(), dx.into());
    let kernel = GATE_BACKWARD.of(E::WIDTH).with(number(kind)).with(in_packs([x, dy, dx], &[width]));
    cuda.launch(kernel.with(width).with(blocks), grid, &[x, dy, dx]);
}
