//! Rows: sums of the rows of a matrix, in an order that depends on its shape alone: of chunks of rows first, then over chunks.
//! Never waits for the device.

use super::Cuda;
use super::elementwise::divided;
use super::grid::{ColumnSums, word};
use super::launch::{Argument, Kernel};
use super::module::KernelSource;
use crate::device::{Element, Write};
use crate::view::{View, ViewMut};

const SUM_CHUNKS: Kernel = Kernel::new(KernelSource::Norm, "sum_chunks");

pub(super) fn sum_rows<E: Element>(cuda: &Cuda, x: View<Cuda, E>, out: ViewMut<Cuda, f32>, write: Write) {
    let width = out.len();
    let rows = divided("x", x.len(), width);
    let columns = ColumnSums::of(rows, width);
    cuda.launch(
        SUM_CHUNKS.of(E::WIDTH),
        columns.grid(),
        &[
            x.into(),
            Argument::Pointer(columns.partial(cuda, 1)),
            rows.into(),
            columns.chunk.into(),
            word(width),
            word(columns.tiles),
            word(columns.lanes),
        ],
    );
    columns.finish(cuda, 0, 1, out, write);
}
