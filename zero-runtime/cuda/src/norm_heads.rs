//! Norm of heads: root-mean-square norm of the parts of rows, by the kernels of whole rows. Never waits for the device.

use super::Cuda;
use super::handle::launch::Argument;
use super::lengths::{check_len, divided};
use super::norm::{NormGradients, NormInputs, NormRows, backward, rms_norm_of};
use zero_core::device::{Element, Strided, StridedMut, Write};
use zero_core::view::{View, ViewMut};

pub(super) fn rms_norm_heads<E: Element>(
    cuda: &Cuda,
    x: Strided<Cuda, E>,
    heads: usize,
    gain: View<Cuda, E>,
    y: StridedMut<Cuda, E>,
    inverse: ViewMut<Cuda, f32>,
    epsilon: f32,
) {
    let rows = divided("inverse", inverse.len(), heads);
    let of_x = place("x", x.view.len(), x.stride, heads, gain.len(), rows);
    let of_y = place("y", y.view.len(), y.stride, heads, gain.len(), rows);
    rms_norm_of(cuda, (x.view, of_x), gain, (y.view, of_y), inverse, epsilon);
}

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn rms_norm_heads_backward<E: Element>(
    cuda: &Cuda,
    x: Strided<Cuda, E>,
    heads: usize,
    gain: View<Cuda, E>,
    inverse: View<Cuda, f32>,
    dy: StridedMut<Cuda, E>,
    dgain: ViewMut<Cuda, f32>,
    write: Write,
) {
    let rows = divided("inverse", inverse.len(), heads);
    let of_x = place("x", x.view.len(), x.stride, heads, gain.len(), rows);
    let of_dy = place("dy", dy.view.len(), dy.stride, heads, gain.len(), rows);
    check_len("dgain", dgain.len(), gain.len());
    let given = NormInputs { x: (x.view, of_x), gain, stats: inverse, rows: rows * heads, is_centred: false };
    let in_place = Argument::from(dy.view);
    let gradients = NormGradients { dy: in_place, dx: in_place, plus: Argument::Pointer(0), rows: of_dy };
    backward(cuda, &given, gradients, dgain, None, write);
}

/// The place of the heads in each row. Panics unless there are `rows` rows.
#[track_caller]
fn place(name: &str, len: usize, stride: usize, heads: usize, width: usize, rows: usize) -> NormRows {
    let of_row = heads * width;
    assert!(0 < of_row && of_row <= stride, "rows of {of_row} elements lie {stride} elements apart");
    let found = if len < of_row { 0 } else { (len - of_row) / stride + 1 };
    assert!(found == rows, "`{name}` has {found} rows, expected {rows}");
    NormRows { stride, parts: heads, width }
}
