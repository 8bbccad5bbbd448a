//! RMS norm of each head of strided rows, and its vector-Jacobian product. Each head is treated as a row, by the loops
//! of the norm of rows. Never touches the elements between rows.

use std::ops::Range;

use super::norm::{add_dgain, rms_norm_dx_row_in_place, rms_norm_row};
use super::simd::{begin, check_len, vectorised};
use super::strided::{StridedSlice, StridedSliceMut};
use zero_core::device::{Element, Write};

/// Head by head of each row: `y` := `x` / sqrt(mean(x^2) + `eps`) * `gain`. `inverse` (rows, heads) keeps 1 / sqrt(mean(x^2) +
/// eps) for backward.
pub fn rms_norm_heads<E: Element>(
    x: StridedSlice<E>,
    gain: &[E],
    mut y: StridedSliceMut<E>,
    inverse: &mut [f32],
    eps: f32,
) {
    let heads = heads(&x, gain.len(), inverse.len());
    check_len("y", y.rows() * y.width(), x.rows() * x.width());
    vectorised(
        #[inline(always)]
        || {
            for (row, inverse) in inverse.chunks_exact_mut(heads).enumerate() {
                let (x, y) = (x.row(row).chunks_exact(gain.len()), y.row(row).chunks_exact_mut(gain.len()));
                for ((x, y), inverse) in x.zip(y).zip(inverse) {
                    *inverse = rms_norm_row(x, gain, y, eps);
                }
            }
        },
    );
}

/// The gradients of [`rms_norm_heads`] in one pass: [`rms_norm_heads_dgain`] of all columns and [`rms_norm_heads_dx`], to the
/// bit.
pub fn rms_norm_heads_backward<E: Element>(
    x: StridedSlice<E>,
    gain: &[E],
    inverse: &[f32],
    mut dy: StridedSliceMut<E>,
    dgain: &mut [f32],
    write: Write,
) {
    let heads = heads(&x, gain.len(), inverse.len());
    check_len("dy", dy.rows() * dy.width(), x.rows() * x.width());
    check_len("dgain", dgain.len(), gain.len());
    begin(dgain, write);
    vectorised(
        #[inline(always)]
        || {
            for (row, inverse) in inverse.chunks_exact(heads).enumerate() {
                let (x, dy) = (x.row(row).chunks_exact(gain.len()), dy.row(row).chunks_exact_mut(gain.len()));
                for ((x, dy), &scale) in x.zip(dy).zip(inverse) {
                    add_dgain(dgain, x, dy, scale);
                    rms_norm_dx_row_in_place(x, gain, dy, scale);
                }
            }
        },
    );
}

/// Turns `dy` into the gradient of the input of [`rms_norm_heads`].
pub fn rms_norm_heads_dx<E: Element>(x: StridedSlice<E>, gain: &[E], inverse: &[f32], mut dy: StridedSliceMut<E>) {
    let heads = heads(&x, gain.len(), inverse.len());
    check_len("dy", dy.rows() * dy.width(), x.rows() * x.width());
    vectorised(
        #[inline(always)]
        || {
            for (row, inverse) in inverse.chunks_exact(heads).enumerate() {
                let (x, dy) = (x.row(row).chunks_exact(gain.len()), dy.row(row).chunks_exact_mut(gain.len()));
                for ((x, dy), &scale) in x.zip(dy).zip(inverse) {
                    rms_norm_dx_row_in_place(x, gain, dy, scale);
                }
            }
        },
    );
}

/// `dgain` := or += these `columns` of the gradient of the gain, whose width is that of a head: summed over rows, and
/// within a row over heads.
pub fn rms_norm_heads_dgain<E: Element>(
    x: StridedSlice<E>,
    width: usize,
    inverse: &[f32],
    dy: StridedSlice<E>,
    columns: Range<usize>,
    dgain: &mut [f32],
    write: Write,
) {
    let heads = heads(&x, width, inverse.len());
    check_len("dy", dy.rows() * dy.width(), x.rows() * x.width());
    check_len("dgain", dgain.len(), columns.len());
    begin(dgain, write);
    vectorised(
        #[inline(always)]
        || {
            for (row, inverse) in inverse.chunks_exact(heads).enumerate() {
                let (x, dy) = (x.row(row).chunks_exact(width), dy.row(row).chunks_exact(width));
                for ((x, dy), &scale) in x.zip(dy).zip(inverse) {
                    add_dgain(dgain, &x[columns.clone()], &dy[columns.clone()], scale);
                }
            }
        },
    );
}

/// Heads in each row. Panics unless each has its `inverse`.
#[track_caller]
fn heads<E>(x: &StridedSlice<E>, width: usize, inverse: usize) -> usize {
    let heads = super::simd::divided("a row of x", x.width(), width);
    check_len("inverse", inverse, x.rows() * heads);
    heads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, bits, stored};
    use crate::{rms_norm, rms_norm_backward};
    use zero_core::device::bf16;

    const EPS: f32 = 1e-6;
    const ROWS: usize = 5;

    /// To the bit the same as the norm of rows for the same heads in rows of their own, which has a test against f64.
    /// The elements in between are unchanged.
    fn heads_are_rows<E: Element>(heads: usize, width: usize) {
        let (len, x_stride, y_stride) = (heads * width, heads * width + 3, heads * width + 1);
        let (x, dy, gain) = (stored::<E>(ROWS * x_stride, 1), stored::<E>(ROWS * y_stride, 2), stored::<E>(width, 3));
        let apart = |data: &[E], stride| {
            let rows = StridedSlice::new(data, stride, len);
            (0..ROWS).flat_map(|row| rows.row(row).to_vec()).collect::<Vec<E>>()
        };
        let (row_x, row_dy) = (apart(&x, x_stride), apart(&dy, y_stride));
        let (mut row_y, mut row_dx) = (row_x.clone(), row_x.clone());
        let (mut row_inverse, mut row_dgain) = (vec![0.0; ROWS * heads], vec![0.5; width]);
        rms_norm(&row_x, &gain, &mut row_y, &mut row_inverse, EPS);
        rms_norm_backward(&row_x, &gain, &row_inverse, &row_dy, &mut row_dx, None, &mut row_dgain, Write::Add);

        let rows = || StridedSlice::new(&x, x_stride, len);
        let (mut y, mut inverse) = (dy.clone(), vec![f32::NAN; ROWS * heads]);
        rms_norm_heads(rows(), &gain, StridedSliceMut::new(&mut y, y_stride, len), &mut inverse, EPS);
        assert_eq!((bits(&apart(&y, y_stride)), bits(&inverse)), (bits(&row_y), bits(&row_inverse)));
        let (mut dx, mut dgain) = (dy.clone(), vec![0.5; width]);
        let to = StridedSliceMut::new(&mut dx, y_stride, len);
        rms_norm_heads_backward(rows(), &gain, &inverse, to, &mut dgain, Write::Add);
        assert_eq!((bits(&apart(&dx, y_stride)), bits(&dgain)), (bits(&row_dx), bits(&row_dgain)));
        for row in 0..ROWS {
            let between = row * y_stride + len..(row + 1) * y_stride;
            let expected = bits(&dy[between.clone()]);
            assert_eq!((bits(&y[between.clone()]), bits(&dx[between])), (expected.clone(), expected));
        }

        let (mut apart_dx, mut apart_dgain) = (dy.clone(), vec![f32::NAN; width]);
        let from = StridedSlice::new(&dy, y_stride, len);
        rms_norm_heads_dgain(rows(), width, &inverse, from, 0..width, &mut apart_dgain, Write::Set);
        rms_norm_heads_dx(rows(), &gain, &inverse, StridedSliceMut::new(&mut apart_dx, y_stride, len));
        rms_norm_backward(&row_x, &gain, &inverse, &row_dy, &mut row_dx, None, &mut row_dgain, Write::Set);
        assert_eq!((bits(&apart_dx), bits(&apart_dgain)), (bits(&dx), bits(&row_dgain)));
    }

    #[test]
    fn each_head_is_a_row() {
        for heads in [1, 3] {
            for width in LENGTHS {
                heads_are_rows::<f32>(heads, width);
                heads_are_rows::<bf16>(heads, width);
            }
        }
    }

    #[test]
    #[should_panic(expected = "`inverse` has 3 elements, expected 4")]
    fn every_head_needs_its_statistics() {
        let (x, mut y) = ([0.0; 8], [0.0; 8]);
        rms_norm_heads(StridedSlice::new(&x, 4, 4), &[1.0; 2], StridedSliceMut::new(&mut y, 4, 4), &mut [0.0; 3], EPS);
    }
}
