//! Rotary: rotary position embeddings. Frequencies are computed here, once for each table, and passed as an argument,
//! because a table is made in a step, where nothing may be staged. Never waits for the device.

use super::Cuda;
use super::attention::HEAD_DIM_MAX;
use super::elementwise::THREADS;
use super::grid::{PACK, of_packs, words};
use super::handle::launch::{Argument, Grid, Kernel};
use super::lengths::{check_len, divided};
use super::source::KernelSource;
use zero_core::device::{Element, Rotary, StridedMut};
use zero_core::view::{View, ViewMut};

const ROTARY_TABLE: Kernel = Kernel::new(KernelSource::Rotary, "rotary_table");
const ROTATE: Kernel = Kernel::new(KernelSource::Rotary, "rotate");

pub(super) fn rotary_table(cuda: &Cuda, rotary: &Rotary, first: usize, head_dim: usize, table: ViewMut<Cuda, f32>) {
    assert!(head_dim.is_multiple_of(2) && head_dim <= HEAD_DIM_MAX, "a head of {head_dim} features has no pairs");
    let positions = divided("table", table.len(), head_dim);
    let mut frequencies = [0.0f32; HEAD_DIM_MAX / 2];
    let factor = rotary.frequencies(&mut frequencies[..head_dim / 2]);
    cuda.launch(
        ROTARY_TABLE.with(head_dim / 2).with_float(factor),
        Grid::over(table.len() / 2, 1, THREADS),
        &[table.into(), positions.into(), first.into(), words(&frequencies)],
    );
}

pub(super) fn rotate<E: Element>(
    cuda: &Cuda,
    x: StridedMut<Cuda, E>,
    heads: usize,
    table: View<Cuda, f32>,
    length: usize,
    back: bool,
) {
    let head_dim = divided("table", table.len(), length);
    let half = head_dim / 2;
    check_len("a head", 2 * half, head_dim);
    let (width, stride, len) = (heads * head_dim, x.stride, x.view.len());
    assert!(0 < width && width <= stride, "rows of {width} elements lie {stride} elements apart");
    let rows = if len < width { 0 } else { (len - width) / stride + 1 };
    let (grid, blocks) = of_packs(rows, heads * half.div_ceil(PACK));
    cuda.launch(
        ROTATE.of(E::WIDTH).with(stride).with(heads).with(half).with(blocks),
        grid,
        &[x.view.into(), table.into(), length.into(), Argument::F32(if back { -1.0 } else { 1.0 })],
    );
}
