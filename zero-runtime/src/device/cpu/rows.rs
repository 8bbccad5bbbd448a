//! Rows, plainly: sum them, add and multiply element by element. Never knows what a row is of.

use std::ops::Range;

use super::simd::{begin, check_len, divided, vectorised};
use crate::device::{Element, Write};

/// `out` (width) := or += the sum of the rows of `dy` (rows, width), first to last.
pub fn sum_rows<E: Element>(dy: &[E], out: &mut [f32], write: Write) {
    sum_columns(dy, out.len(), 0..out.len(), out, write);
}

/// `out` := or += those `columns` of the sum of the rows of `dy` (rows, width), first to last.
pub fn sum_columns<E: Element>(dy: &[E], width: usize, columns: Range<usize>, out: &mut [f32], write: Write) {
    divided("dy", dy.len(), width);
    check_len("out", out.len(), columns.len());
    begin(out, write);
    vectorised(
        #[inline(always)]
        || {
            for row in dy.chunks_exact(width) {
                accumulate(out, &row[columns.clone()]);
            }
        },
    );
}

/// `y` += `x`.
pub fn add<E: Element>(y: &mut [E], x: &[E]) {
    check_len("x", x.len(), y.len());
    vectorised(
        #[inline(always)]
        || accumulate(y, x),
    );
}

/// `y` *= `x`.
pub fn mul<E: Element>(y: &mut [E], x: &[E]) {
    check_len("x", x.len(), y.len());
    vectorised(
        #[inline(always)]
        || y.iter_mut().zip(x).for_each(|(y, x)| *y = E::narrow(y.widen() * x.widen())),
    );
}

/// `y` *= `factor`.
pub fn scale<E: Element>(y: &mut [E], factor: f32) {
    vectorised(
        #[inline(always)]
        || y.iter_mut().for_each(|y| *y = E::narrow(y.widen() * factor)),
    );
}

/// `y` += `x`, for use within a vectorised loop.
#[inline(always)]
pub(super) fn accumulate<Y: Element, X: Element>(y: &mut [Y], x: &[X]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = Y::narrow(y.widen() + x.widen());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::testing::{LENGTHS, assert_close, noise, to_f64};

    #[test]
    fn sum_rows_matches_f64() {
        for width in LENGTHS {
            for rows in [1, 5, 17] {
                let dy = noise(rows * width, 1);
                let mut out = noise(width, 2);
                let mut expected = to_f64(&out);
                for row in dy.chunks_exact(width) {
                    expected.iter_mut().zip(row).for_each(|(e, &x)| *e += f64::from(x));
                }
                sum_rows(&dy, &mut out, Write::Add);
                assert_close("sum", &out, &expected, 1e-5);
            }
        }
    }

    #[test]
    fn set_forgets_what_was_there() {
        let mut out = [f32::NAN; 2];
        sum_rows(&[1.0, 2.0, 3.0, 4.0], &mut out, Write::Set);
        assert_eq!(out, [4.0, 6.0]);
    }

    #[test]
    fn add_matches_the_definition() {
        let mut y = [1.0, 2.0, 3.0];
        add(&mut y, &[1.0, 1.0, -3.0]);
        assert_eq!(y, [2.0, 3.0, 0.0]);
    }

    #[test]
    fn products_match_the_definition() {
        let mut y = [1.0, 2.0, -3.0];
        mul(&mut y, &[4.0, 0.5, 2.0]);
        assert_eq!(y, [4.0, 1.0, -6.0]);
        scale(&mut y, -0.5);
        assert_eq!(y, [-2.0, -0.5, 3.0]);
    }

    #[test]
    #[should_panic(expected = "`x` has 2 elements, expected 3")]
    fn factors_of_another_number_are_refused() {
        mul(&mut [0.0; 3], &[0.0; 2]);
    }

    #[test]
    #[should_panic(expected = "`dy` has 7 elements, expected a multiple of 3")]
    fn a_ragged_matrix_is_refused() {
        sum_rows(&[0.0; 7], &mut [0.0; 3], Write::Set);
    }
}
