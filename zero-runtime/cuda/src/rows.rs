//! Rows: sums of the rows of a matrix, in an order that depends only on its shape: first within chunks of rows, then
//! over chunks. Never waits for the device.

use super::Cuda;
use super::elementwise::in_packs;
use super::grid::ColumnSums;
use super::handle::launch::{Argument, Kernel};
use super::lengths::divided;
use super::source::KernelSource;
use zero_core::device::{Element, Write};
use zero_core::view::{View, ViewMut};

const SUM_CHUNKS: Kernel = Kernel::new(KernelSource::Norm, "sum_chunks");

pub(super) fn sum_rows<E: Element>(cuda: &Cuda, x: View<Cuda, E>, out: ViewMut<Cuda, f32>, write: Write) {
    let width = out.len();
    let rows = divided("x", x.len(), width);
    let sums = ColumnSums::of(rows, width);
    let partial = Argument::Pointer(sums.partial(cuda, 1));
    let x = x.into();
    let kernel = SUM_CHUNKS.of(E::WIDTH).with(in_packs([x], &[width])).with(width).with(sums.tiles).with(sums.lanes);
    cuda.launch(kernel, sums.grid(), &[x, partial, rows.into(), sums.chunk.into()]);
    sums.finish(cuda, out, None, write);
}
