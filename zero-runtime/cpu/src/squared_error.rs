//! Squared error: the mean over each row, and its gradient. Never averages over rows: the caller weights each row.

use super::simd::{check_len, divided, sum_pairs, vectorised};
use zero_core::device::Element;

/// `loss` (rows) := the mean of (x - t)^2 over each row of `x` and `targets` (rows, width).
pub fn squared_error<E: Element>(x: &[E], targets: &[f32], loss: &mut [f32]) {
    let width = check_shapes(x.len(), targets, loss);
    vectorised(
        #[inline(always)]
        || {
            for ((x, targets), loss) in x.chunks_exact(width).zip(targets.chunks_exact(width)).zip(loss) {
                *loss = sum_pairs(x, targets, |x, t| (x - t) * (x - t)) / width as f32;
            }
        },
    );
}

/// `dx` (rows, width) := 2 (x - t) / width * `dloss` (rows).
pub fn squared_error_backward<E: Element>(x: &[E], targets: &[f32], dloss: &[f32], dx: &mut [E]) {
    let width = check_shapes(x.len(), targets, dloss);
    check_len("dx", dx.len(), x.len());
    vectorised(
        #[inline(always)]
        || {
            for (row, dx) in dx.chunks_exact_mut(width).enumerate() {
                let (from, to) = (row * width, (row + 1) * width);
                let slope = 2.0 * dloss[row] / width as f32;
                for ((dx, x), t) in dx.iter_mut().zip(&x[from..to]).zip(&targets[from..to]) {
                    *dx = E::narrow(slope * (x.widen() - t));
                }
            }
        },
    );
}

/// The width of a row, from the number of elements of `x`; panics unless all shapes agree.
#[track_caller]
fn check_shapes(x: usize, targets: &[f32], loss: &[f32]) -> usize {
    check_len("targets", targets.len(), x);
    divided("x", x, loss.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, noise, stored, to_f64};
    use zero_core::device::bf16;

    fn match_f64<E: Element>(rows: usize, width: usize) {
        let (x, targets, dloss) = (stored::<E>(rows * width, 1), noise(rows * width, 2), noise(rows, 3));
        let (mut loss, mut dx) = (vec![f32::NAN; rows], vec![E::narrow(f32::NAN); rows * width]);
        squared_error(&x, &targets, &mut loss);
        squared_error_backward(&x, &targets, &dloss, &mut dx);
        let errors: Vec<f64> = to_f64(&x).iter().zip(&targets).map(|(x, &t)| x - f64::from(t)).collect();
        let mean = |row: &[f64]| row.iter().map(|e| e * e).sum::<f64>() / width as f64;
        let losses: Vec<f64> = errors.chunks_exact(width).map(mean).collect();
        let slope = |i: usize| 2.0 * f64::from(dloss[i / width]) / width as f64;
        let gradients: Vec<f64> = errors.iter().enumerate().map(|(i, e)| slope(i) * e).collect();
        assert_close("loss", &loss, &losses, 1e-5);
        assert_close("dx", &dx, &gradients, 1e-5);
    }

    #[test]
    fn matches_f64_forward_and_backward() {
        for width in LENGTHS {
            for rows in [1, 5] {
                match_f64::<f32>(rows, width);
                match_f64::<bf16>(rows, width);
            }
        }
    }

    fn show_what_is_not_finite<E: Element>() {
        let x = [f32::NAN, 0.0, f32::INFINITY, 0.0].map(E::narrow);
        let (mut loss, mut dx) = ([0.0; 2], x);
        squared_error(&x, &[0.0; 4], &mut loss);
        squared_error_backward(&x, &[0.0; 4], &[1.0; 2], &mut dx);
        assert!(loss[0].is_nan() && loss[1] == f32::INFINITY, "{loss:?}");
        let dx = dx.map(E::widen);
        assert!(dx[0].is_nan() && dx[1..] == [0.0, f32::INFINITY, 0.0], "{dx:?}");
    }

    #[test]
    fn what_is_not_finite_shows() {
        show_what_is_not_finite::<f32>();
        show_what_is_not_finite::<bf16>();
    }

    #[test]
    fn by_hand() {
        let (mut loss, mut dx) = ([0.0], [0.0; 2]);
        squared_error(&[1.0, 5.0], &[3.0, 2.0], &mut loss);
        squared_error_backward(&[1.0, 5.0], &[3.0, 2.0], &[0.5], &mut dx);
        assert_eq!((loss, dx), ([(4.0 + 9.0) / 2.0], [-1.0, 1.5]));
    }

    #[test]
    #[should_panic(expected = "`targets` has 3 elements, expected 4")]
    fn a_target_of_another_width_is_refused() {
        squared_error(&[0.0; 4], &[0.0; 3], &mut [0.0; 2]);
    }
}
