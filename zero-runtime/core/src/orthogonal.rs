//! Orthogonal: computes a matrix that has the singular vectors of another, and singular values near 1: the direction in
//! which Muon updates a matrix (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024). Uses
//! only operations of a device. Never asks the host, never allocates memory.

use crate::checked::{bytes, product, sum};
use crate::device::{Device, Element, Matrix, Stored, Write};
use crate::view::{View, ViewMut};

/// How often [`orthogonalize`] iterates.
const ITERATIONS: usize = 5;

/// An iteration maps each singular value s to `ONCE` s + `CUBED` s^3 + `FIFTH` s^5. This raises small values fast, and
/// keeps those that have come near 1 between 0.68 and 1.14, which is close enough.
const ONCE: f32 = 3.4445;
const CUBED: f32 = -4.7750;
const FIFTH: f32 = 2.0315;

/// A matrix is divided by its norm, or by this if this is larger, so that a matrix of zeros stays zero.
const EPSILON: f64 = 1e-7;

/// About the root mean square of a step of AdamW. A step of [`step_factor`] has it as well, so that one learning rate serves both
/// (Liu et al., "Muon is scalable for LLM training", 2025).
const ADAMW_RMS: f64 = 0.2;

/// The factor of the orthogonalized (rows, columns) matrix in a step, besides the learning rate: PyTorch calls it
/// `match_rms_adamw`.
pub fn step_factor([rows, columns]: [usize; 2]) -> f64 {
    ADAMW_RMS * (rows.max(columns) as f64).sqrt()
}

/// Bytes of the room that [`orthogonalize`] works in: two (rows, columns) matrices and two squares of their shorter side, all in
/// `E`, and a word.
///
/// # Panics
/// Z0210 if a `usize` cannot hold it; in a constant, that is a build error.
#[track_caller]
pub const fn room_bytes<E>([rows, columns]: [usize; 2]) -> usize {
    let side = if rows < columns { rows } else { columns };
    let [matrix, square] = [bytes::<E>(product(&[rows, columns])), bytes::<E>(product(&[side, side]))];
    sum(&[product(&[2, matrix]), product(&[2, square]), bytes::<f64>(1)])
}

/// Floating-point operations of the matrix products in [`orthogonalize`], which are nearly all of its operations. A
/// multiply-add counts as 2. If a `usize` cannot hold them, its largest value.
pub const fn operations([rows, columns]: [usize; 2]) -> usize {
    let (short, long) = if rows < columns { (rows, columns) } else { (columns, rows) };
    let square = short.saturating_mul(short);
    let iteration = square.saturating_mul(long).saturating_mul(2).saturating_add(square.saturating_mul(short));
    iteration.saturating_mul(2 * ITERATIONS)
}

/// Approximates the orthogonal matrix that is nearest to the (rows, columns) matrix `from`. Works in `room`, which has
/// [`room_bytes`] bytes of any content.
///
/// With X, which is `from` divided by its Frobenius norm, it repeats five times: X := a X + (b A + c A^2) X, where A is
/// X X^T; or, if X^T X is the smaller square, X := a X + X (b A + c A^2) with A = X^T X. Each product and each sum of
/// two is rounded to `E`.
pub fn orthogonalize<'r, D: Device, E: Element>(
    device: &D,
    [rows, columns]: [usize; 2],
    from: Stored<D>,
    room: ViewMut<'r, D, u8>,
) -> View<'r, D, E> {
    let side = rows.min(columns);
    let (mut x, rest) = room.take::<E>(rows * columns);
    let (mut next, rest) = rest.take::<E>(rows * columns);
    let (mut gram, rest) = rest.take::<E>(side * side);
    let (mut polynomial, rest) = rest.take::<E>(side * side);
    let mut square = rest.take::<f64>(1).0;
    device.squares(from, square.reborrow());
    device.normalize(x.reborrow(), from, square.as_view(), EPSILON);
    for _ in 0..ITERATIONS {
        let of_x = || Matrix::new(x.as_view(), rows, columns);
        let (left, right) = if rows > columns { (of_x().transposed(), of_x()) } else { (of_x(), of_x().transposed()) };
        device.matmul(gram.reborrow(), left, right, Write::Set);
        let of_gram = || Matrix::new(gram.as_view(), side, side);
        device.matmul(polynomial.reborrow(), of_gram(), of_gram(), Write::Set);
        device.axpby(CUBED, gram.as_view(), FIFTH, polynomial.reborrow());
        let factor = Matrix::new(polynomial.as_view(), side, side);
        let (left, right) = if rows > columns { (of_x(), factor) } else { (factor, of_x()) };
        device.matmul(next.reborrow(), left, right, Write::Set);
        device.axpby(ONCE, x.as_view(), 1.0, next.reborrow());
        std::mem::swap(&mut x, &mut next);
    }
    x.into_view()
}
