//! Rows: sums of rows, and elementwise sums and products. Never knows what a row stands for.

use std::ops::Range;

use super::elementwise::each;
use super::simd::{begin, check_len, divided, vectorised};
use zero_core::device::{Element, Write};

/// `out` (width) := or += the sum of the rows of `dy` (rows, width), first to last.
pub fn sum_rows<E: Element>(dy: &[E], out: &mut [f32], write: Write) {
    sum_columns(dy, out.len(), 0..out.len(), out, write);
}

/// `out` := or += these `columns` of the sum of the rows of `dy` (rows, width), first to last.
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
        || each(y, [x], |y, [x]| y + x),
    );
}

/// `y` *= `x`.
pub fn mul<E: Element>(y: &mut [E], x: &[E]) {
    check_len("x", x.len(), y.len());
    vectorised(
        #[inline(always)]
        || each(y, [x], |y, [x]| y * x),
    );
}

/// `y` *= `factor`.
pub fn scale<E: Element>(y: &mut [E], factor: f32) {
    vectorised(
        #[inline(always)]
        || each(y, [], |y, []| y * factor),
    );
}

/// `y` := `alpha` `x` + `beta` `y`: the first product and the sum are rounded together.
pub fn axpby<E: Element>(alpha: f32, x: &[E], beta: f32, y: &mut [E]) {
    check_len("x", x.len(), y.len());
    vectorised(
        #[inline(always)]
        || each(y, [x], |y, [x]| alpha.mul_add(x, beta * y)),
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
    use crate::testing::{LENGTHS, assert_close, bits, noise, stored, to_f64};
    use zero_core::device::bf16;

    fn sums_match_f64<E: Element>() {
        for width in LENGTHS {
            for rows in [1, 5, 17] {
                let dy = stored::<E>(rows * width, 1);
                let mut out = noise(width, 2);
                let mut expected = to_f64(&out);
                for row in dy.chunks_exact(width) {
                    expected.iter_mut().zip(to_f64(row)).for_each(|(e, x)| *e += x);
                }
                sum_rows(&dy, &mut out, Write::Add);
                assert_close("sum", &out, &expected, 1e-5);
            }
        }
    }

    #[test]
    fn sum_rows_matches_f64() {
        sums_match_f64::<f32>();
        sums_match_f64::<bf16>();
    }

    /// To the bit: one operation, rounded once.
    fn match_the_definition<E: Element>() {
        for len in LENGTHS {
            let (x, y) = (stored::<E>(len, 1), stored::<E>(len, 2));
            let expected = |of: fn(f32, f32) -> f32| {
                let results = y.iter().zip(&x).map(|(y, x)| E::narrow(of(y.widen(), x.widen())));
                bits(&results.collect::<Vec<_>>())
            };
            let found = |op: fn(&mut [E], &[E])| {
                let mut found = y.clone();
                op(&mut found, &x);
                bits(&found)
            };
            assert_eq!(found(add), expected(|y, x| y + x));
            assert_eq!(found(mul), expected(|y, x| y * x));
            assert_eq!(found(|y, _| scale(y, 0.3)), expected(|y, _| y * 0.3));
            assert_eq!(found(|y, x| axpby(0.3, x, -1.7, y)), expected(|y, x| 0.3f32.mul_add(x, -1.7 * y)));
        }
    }

    #[test]
    fn elements_match_the_definition() {
        match_the_definition::<f32>();
        match_the_definition::<bf16>();
    }

    fn show_what_is_not_finite<E: Element>() {
        let inputs = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0].map(E::narrow);
        let (mut sum, mut out) = (inputs, [0.0; 4]);
        add(&mut sum, &[f32::NEG_INFINITY; 4].map(E::narrow));
        assert!(sum[0].widen().is_nan() && sum[1].widen().is_nan(), "NaN, and infinities against each other");
        assert_eq!([sum[2], sum[3]].map(E::widen), [f32::NEG_INFINITY; 2]);
        sum_rows(&inputs, &mut out, Write::Set);
        assert!(out[0].is_nan() && out[1..] == [f32::INFINITY, f32::NEG_INFINITY, 1.0], "{out:?}");
    }

    #[test]
    fn what_is_not_finite_shows() {
        show_what_is_not_finite::<f32>();
        show_what_is_not_finite::<bf16>();
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
