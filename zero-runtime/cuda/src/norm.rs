//! Norm: layer norm and root-mean-square norm of rows, and of parts of wider rows. The order of sums depends on the
//! width, and for the gradients of parameters on the shape. Never waits for the device.

use super::Cuda;
use super::elementwise::in_packs;
use super::grid::{ColumnSums, of_rows, sharing, sharing_backward};
use super::handle::launch::{Argument, Kernel};
use super::lengths::{check_len, divided};
use super::source::KernelSource;
use zero_core::device::{Element, Write};
use zero_core::view::{View, ViewMut};

const LAYER_NORM: Kernel = Kernel::new(KernelSource::Norm, "layer_norm");
const RMS_NORM: Kernel = Kernel::new(KernelSource::Norm, "rms_norm");
const NORM_BACKWARD: Kernel = Kernel::new(KernelSource::Norm, "norm_backward");

/// The place of the rows of a norm: `parts` adjacent parts of each row of a matrix.
#[derive(Clone, Copy)]
pub(super) struct NormRows {
    pub stride: usize,
    pub parts: usize,
    pub width: usize,
}

impl NormRows {
    /// Rows that are whole rows of a matrix.
    fn rows(width: usize) -> Self {
        Self { stride: width, parts: 1, width }
    }

    /// A kernel for these rows, and for `other` rows with the same parts.
    fn kernel(self, kernel: Kernel, other: Self) -> Kernel {
        assert!((self.width, self.parts) == (other.width, other.parts), "rows of one norm are alike");
        kernel.with(self.width).with(self.parts).with(self.stride).with(other.stride)
    }
}

/// The inputs of backward, for both norms.
#[derive(Clone, Copy)]
pub(super) struct NormInputs<'a, E> {
    pub x: (View<'a, Cuda, E>, NormRows),
    pub gain: View<'a, Cuda, E>,
    pub stats: View<'a, Cuda, f32>,
    pub rows: usize,
    /// Whether a mean was subtracted.
    pub is_centred: bool,
}

pub(super) fn layer_norm<E: Element>(
    cuda: &Cuda,
    x: View<Cuda, E>,
    gain: View<Cuda, E>,
    bias: View<Cuda, E>,
    y: ViewMut<Cuda, E>,
    stats: ViewMut<Cuda, f32>,
    epsilon: f32,
) {
    let width = gain.len();
    let rows = divided("x", x.len(), width);
    check_len("bias", bias.len(), width);
    check_len("y", y.len(), x.len());
    check_len("stats", stats.len(), 2 * rows);
    let (x, gain, bias, y) = (x.into(), gain.into(), bias.into(), y.into());
    let is_aligned = in_packs([x, gain, bias, y], &[width]);
    let kernel = LAYER_NORM.of(E::WIDTH).with(is_aligned).with(sharing(width)).with(width).with_float(epsilon);
    cuda.launch(kernel, of_rows(rows, sharing(width)), &[x, gain, bias, y, stats.into(), rows.into()]);
}

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn layer_norm_backward<E: Element>(
    cuda: &Cuda,
    x: View<Cuda, E>,
    gain: View<Cuda, E>,
    stats: View<Cuda, f32>,
    dy: View<Cuda, E>,
    dx: Option<ViewMut<Cuda, E>>,
    plus: Option<View<Cuda, E>>,
    dgain: ViewMut<Cuda, f32>,
    dbias: ViewMut<Cuda, f32>,
    write: Write,
) {
    let (width, rows) = (gain.len(), stats.len() / 2);
    check_rows(x.len(), width * rows, dy.len(), dx.as_ref().map(ViewMut::len), plus.as_ref().map(View::len));
    check_len("dgain", dgain.len(), width);
    check_len("dbias", dbias.len(), width);
    let given = NormInputs { x: (x, NormRows::rows(width)), gain, stats, rows, is_centred: true };
    let gradients = NormGradients { dy: dy.into(), dx: dx.into(), plus: plus.into(), rows: NormRows::rows(width) };
    backward(cuda, &given, gradients, dgain, Some(dbias), write);
}

pub(super) fn rms_norm<E: Element>(
    cuda: &Cuda,
    x: View<Cuda, E>,
    gain: View<Cuda, E>,
    y: ViewMut<Cuda, E>,
    inverse: ViewMut<Cuda, f32>,
    epsilon: f32,
) {
    let width = gain.len();
    let rows = divided("x", x.len(), width);
    check_len("y", y.len(), x.len());
    check_len("inverse", inverse.len(), rows);
    let place = NormRows::rows(width);
    rms_norm_of(cuda, (x, place), gain, (y, place), inverse, epsilon);
}

/// Norms as many rows as there are elements of `inverse`.
pub(super) fn rms_norm_of<E: Element>(
    cuda: &Cuda,
    (x, of_x): (View<Cuda, E>, NormRows),
    gain: View<Cuda, E>,
    (y, of_y): (ViewMut<Cuda, E>, NormRows),
    inverse: ViewMut<Cuda, f32>,
    epsilon: f32,
) {
    let (rows, sharing) = (inverse.len(), sharing(gain.len()));
    let (x, gain, y) = (x.into(), gain.into(), y.into());
    let is_aligned = in_packs([x, gain, y], &[of_x.width, of_x.stride, of_y.stride]);
    let kernel = of_x.kernel(RMS_NORM.of(E::WIDTH).with(is_aligned).with(sharing), of_y).with_float(epsilon);
    cuda.launch(kernel, of_rows(rows, sharing), &[x, gain, y, inverse.into(), rows.into()]);
}

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn rms_norm_backward<E: Element>(
    cuda: &Cuda,
    x: View<Cuda, E>,
    gain: View<Cuda, E>,
    inverse: View<Cuda, f32>,
    dy: View<Cuda, E>,
    dx: Option<ViewMut<Cuda, E>>,
    plus: Option<View<Cuda, E>>,
    dgain: ViewMut<Cuda, f32>,
    write: Write,
) {
    let (width, rows) = (gain.len(), inverse.len());
    check_rows(x.len(), width * rows, dy.len(), dx.as_ref().map(ViewMut::len), plus.as_ref().map(View::len));
    check_len("dgain", dgain.len(), width);
    let given = NormInputs { x: (x, NormRows::rows(width)), gain, stats: inverse, rows, is_centred: false };
    let gradients = NormGradients { dy: dy.into(), dx: dx.into(), plus: plus.into(), rows: NormRows::rows(width) };
    backward(cuda, &given, gradients, dgain, None, write);
}

/// The gradients of the output (`dy`) and of the input (`dx`), which lies in the place of `dy` or in rows of the same
/// kind, and the numbers that are added to `dx` (`plus`). `dx` and `plus` may be null.
pub(super) struct NormGradients<'a> {
    pub dy: Argument<'a>,
    pub dx: Argument<'a>,
    pub plus: Argument<'a>,
    pub rows: NormRows,
}

/// The gradients of the input, if it is not null, of the gain, and of the bias if there is one.
pub(super) fn backward<E: Element>(
    cuda: &Cuda,
    given: &NormInputs<E>,
    gradients: NormGradients,
    dgain: ViewMut<Cuda, f32>,
    dbias: Option<ViewMut<Cuda, f32>>,
    write: Write,
) {
    let NormInputs { x: (x, of_x), gain, stats, rows, is_centred } = *given;
    let NormGradients { dy, dx, plus, rows: of_dy } = gradients;
    let sharing = sharing_backward(gain.len());
    let sums = ColumnSums::of_rows(rows, of_x.width, sharing);
    let (x, gain) = (x.into(), gain.into());
    let is_aligned = in_packs([x, gain, dy, dx, plus], &[of_x.width, of_x.stride, of_dy.stride]);
    let kernel = NORM_BACKWARD.of(E::WIDTH).with(is_aligned).with(is_centred.into()).with(sharing);
    let partial = Argument::Pointer(sums.partial(cuda, if is_centred { 2 } else { 1 }));
    let (rows, chunk) = (rows.into(), sums.chunk.into());
    let arguments = [x, gain, stats.into(), dy, dx, plus, partial, rows, chunk];
    cuda.launch(of_x.kernel(kernel, of_dy), sums.grid(), &arguments);
    sums.finish(cuda, dgain, dbias, write);
}

/// Panics unless all are as large as `x`, which is `expected`.
#[track_caller]
fn check_rows(x: usize, expected: usize, dy: usize, dx: Option<usize>, plus: Option<usize>) {
    check_len("x", x, expected);
    check_len("dy", dy, x);
    check_len("dx", dx.unwrap_or(x), x);
    check_len("plus", plus.unwrap_or(x), x);
}
