//! Layer norm and RMS norm over the last dimension, and their vector-Jacobian products. Never keeps the normalised
//! rows: backward rebuilds them from the input and the saved statistics.

use std::ops::Range;

use super::elementwise::each;
use super::simd::{begin, check_len, divided, sum, vectorised};
use zero_core::device::{Element, Write};

/// `y` := (`x` - mean) / sqrt(variance + `eps`) * `gain` + `bias`, row by row.
///
/// `x`, `y`: (rows, width); `gain`, `bias`: (width). `stats` (rows, 2) keeps mean and 1 / sqrt(variance + eps) for
/// backward. The variance is the biased one (Ba et al., 2016).
pub fn layer_norm<E: Element>(x: &[E], gain: &[E], bias: &[E], y: &mut [E], stats: &mut [f32], eps: f32) {
    let width = gain.len();
    let rows = divided("x", x.len(), width);
    check_len("bias", bias.len(), width);
    check_len("y", y.len(), x.len());
    check_len("stats", stats.len(), 2 * rows);
    let stats = stats.as_chunks_mut::<2>().0;
    vectorised(
        #[inline(always)]
        || {
            for ((x, y), stats) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(stats) {
                let mean = sum([x], |[x]| x) / width as f32;
                let variance = sum([x], |[x]| (x - mean) * (x - mean)) / width as f32;
                let scale = 1.0 / (variance + eps).sqrt();
                each(y, [x, gain, bias], |_, [x, gain, bias]| ((x - mean) * scale).mul_add(gain, bias));
                *stats = [mean, scale];
            }
        },
    );
}

/// The gradients of `layer_norm`, given `dy` (rows, width), in one pass: [`layer_norm_dx`] and [`layer_norm_dparams`] of all
/// columns, to the bit.
#[expect(clippy::too_many_arguments, reason = "the tensors of the formula, each by its name")]
pub fn layer_norm_backward<E: Element>(
    x: &[E],
    gain: &[E],
    stats: &[f32],
    dy: &[E],
    dx: &mut [E],
    plus: Option<&[E]>,
    dgain: &mut [f32],
    dbias: &mut [f32],
    write: Write,
) {
    let width = gain.len();
    check_input(x, width, stats.len() / 2, dy, dx, plus);
    check_len("dgain", dgain.len(), width);
    check_len("dbias", dbias.len(), width);
    begin(dgain, write);
    begin(dbias, write);
    vectorised(
        #[inline(always)]
        || {
            for (row, &stats) in stats.as_chunks::<2>().0.iter().enumerate() {
                let row = row * width..(row + 1) * width;
                let (x, dy) = (&x[row.clone()], &dy[row.clone()]);
                add_dparams(dgain, dbias, x, dy, stats);
                layer_norm_dx_row(&mut dx[row.clone()], [x, gain, dy], stats, plus.map(|plus| &plus[row]));
            }
        },
    );
}

/// `dx` (rows, width) := the gradient of the input of `layer_norm`, given `dy` (rows, width). `plus` (rows, width), if
/// there is one, is added to the stored result: the gradient of a residual connection around the norm.
// With n the normalised row and g = dy * gain: dx = scale (g - mean(g) - n mean(g n)).
pub fn layer_norm_dx<E: Element>(x: &[E], gain: &[E], stats: &[f32], dy: &[E], dx: &mut [E], plus: Option<&[E]>) {
    let width = gain.len();
    check_input(x, width, stats.len() / 2, dy, dx, plus);
    vectorised(
        #[inline(always)]
        || {
            for (row, &stats) in stats.as_chunks::<2>().0.iter().enumerate() {
                let row = row * width..(row + 1) * width;
                let inputs = [&x[row.clone()], gain, &dy[row.clone()]];
                layer_norm_dx_row(&mut dx[row.clone()], inputs, stats, plus.map(|plus| &plus[row]));
            }
        },
    );
}

/// `dgain` and `dbias` := or += these `columns` of the gradients of `layer_norm`'s parameters, given `dy` (rows,
/// width).
#[expect(clippy::too_many_arguments, reason = "the tensors of the formula, each by its name")]
pub fn layer_norm_dparams<E: Element>(
    x: &[E],
    stats: &[f32],
    dy: &[E],
    width: usize,
    columns: Range<usize>,
    dgain: &mut [f32],
    dbias: &mut [f32],
    write: Write,
) {
    check_rows(x, width, stats.len() / 2, dy);
    check_len("dgain", dgain.len(), columns.len());
    check_len("dbias", dbias.len(), columns.len());
    begin(dgain, write);
    begin(dbias, write);
    vectorised(
        #[inline(always)]
        || {
            for (row, &stats) in stats.as_chunks::<2>().0.iter().enumerate() {
                let columns = row * width + columns.start..row * width + columns.end;
                add_dparams(dgain, dbias, &x[columns.clone()], &dy[columns], stats);
            }
        },
    );
}

#[inline(always)]
fn layer_norm_dx_row<E: Element>(dx: &mut [E], inputs: [&[E]; 3], stats: [f32; 2], plus: Option<&[E]>) {
    let [_, gain, dy] = inputs;
    let along_one = sum([gain, dy], |[gain, dy]| gain * dy) / dx.len() as f32;
    dx_row(dx, inputs, stats, along_one, plus);
}

/// Adds the contribution of one row.
#[inline(always)]
fn add_dparams<E: Element>(dgain: &mut [f32], dbias: &mut [f32], x: &[E], dy: &[E], [mean, scale]: [f32; 2]) {
    for (((dgain, dbias), x), dy) in dgain.iter_mut().zip(dbias).zip(x).zip(dy) {
        let (x, dy) = (x.widen(), dy.widen());
        *dgain = dy.mul_add((x - mean) * scale, *dgain);
        *dbias += dy;
    }
}

/// `dx` := scale * (g - `along_one` - n mean(g n)) for one row, with g = dy * gain and n = (x - mean) * scale; then
/// `plus` is added.
#[inline(always)]
fn dx_row<E: Element>(dx: &mut [E], inputs: [&[E]; 3], [mean, scale]: [f32; 2], along_one: f32, plus: Option<&[E]>) {
    let along_n = along(inputs, [mean, scale]);
    each(dx, inputs, |_, inputs| dx_element(inputs, [mean, scale], along_one, along_n));
    if let Some(plus) = plus {
        each(dx, [plus], |dx, [plus]| dx + plus);
    }
}

/// [`dx_row`] of an RMS norm, with `dx` in the place of `dy`.
#[inline(always)]
pub(super) fn rms_norm_dx_row_in_place<E: Element>(x: &[E], gain: &[E], dy: &mut [E], scale: f32) {
    let along_n = along([x, gain, dy], [0.0, scale]);
    each(dy, [x, gain], |dy, [x, gain]| dx_element([x, gain, dy], [0.0, scale], 0.0, along_n));
}

/// mean(g n), one row.
#[inline(always)]
fn along<E: Element>(inputs: [&[E]; 3], [mean, scale]: [f32; 2]) -> f32 {
    sum(inputs, |[x, gain, dy]| (x - mean) * scale * (gain * dy)) / inputs[0].len() as f32
}

#[inline(always)]
fn dx_element([x, gain, dy]: [f32; 3], [mean, scale]: [f32; 2], along_one: f32, along_n: f32) -> f32 {
    scale * ((x - mean) * scale).mul_add(-along_n, gain * dy - along_one)
}

/// Panics unless `x` and `dy` are (rows, width).
#[track_caller]
fn check_rows<E>(x: &[E], width: usize, rows: usize, dy: &[E]) {
    check_len("x", x.len(), rows * width);
    check_len("dy", dy.len(), x.len());
}

/// [`check_rows`], and a check that `dx` and `plus` are as large as `x`.
#[track_caller]
fn check_input<E>(x: &[E], width: usize, rows: usize, dy: &[E], dx: &[E], plus: Option<&[E]>) {
    check_rows(x, width, rows, dy);
    check_len("dx", dx.len(), x.len());
    check_len("plus", plus.map_or(x.len(), <[E]>::len), x.len());
}

/// `y` := `x` / sqrt(mean(x^2) + `eps`) * `gain`, row by row (Zhang and Sennrich, 2019).
///
/// `x`, `y`: (rows, width); `gain`: (width). `inverse` (rows) keeps 1 / sqrt(mean(x^2) + eps) for backward.
pub fn rms_norm<E: Element>(x: &[E], gain: &[E], y: &mut [E], inverse: &mut [f32], eps: f32) {
    let width = gain.len();
    let rows = divided("x", x.len(), width);
    check_len("y", y.len(), x.len());
    check_len("inverse", inverse.len(), rows);
    vectorised(
        #[inline(always)]
        || {
            for ((x, y), inverse) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).zip(inverse) {
                *inverse = rms_norm_row(x, gain, y, eps);
            }
        },
    );
}

/// One row of [`rms_norm`], for use within a vectorised loop: 1 / sqrt(mean(x^2) + eps).
#[inline(always)]
pub(super) fn rms_norm_row<E: Element>(x: &[E], gain: &[E], y: &mut [E], eps: f32) -> f32 {
    let mean_square = sum([x], |[x]| x * x) / x.len() as f32;
    let scale = 1.0 / (mean_square + eps).sqrt();
    each(y, [x, gain], |_, [x, gain]| x * scale * gain);
    scale
}

/// The gradients of `rms_norm`, given `dy` (rows, width), in one pass: [`rms_norm_dx`] and [`rms_norm_dgain`] of all columns,
/// to the bit.
#[expect(clippy::too_many_arguments, reason = "the tensors of the formula, each by its name")]
pub fn rms_norm_backward<E: Element>(
    x: &[E],
    gain: &[E],
    inverse: &[f32],
    dy: &[E],
    dx: &mut [E],
    plus: Option<&[E]>,
    dgain: &mut [f32],
    write: Write,
) {
    let width = gain.len();
    check_input(x, width, inverse.len(), dy, dx, plus);
    check_len("dgain", dgain.len(), width);
    begin(dgain, write);
    vectorised(
        #[inline(always)]
        || {
            for (row, &scale) in inverse.iter().enumerate() {
                let row = row * width..(row + 1) * width;
                let (x, dy) = (&x[row.clone()], &dy[row.clone()]);
                add_dgain(dgain, x, dy, scale);
                dx_row(&mut dx[row.clone()], [x, gain, dy], [0.0, scale], 0.0, plus.map(|plus| &plus[row]));
            }
        },
    );
}

/// `dx` (rows, width) := the gradient of the input of `rms_norm`, given `dy` (rows, width); `plus` as in
/// [`layer_norm_dx`].
// As in layer norm, without the mean: dx = scale (g - n mean(g n)).
pub fn rms_norm_dx<E: Element>(x: &[E], gain: &[E], inverse: &[f32], dy: &[E], dx: &mut [E], plus: Option<&[E]>) {
    let width = gain.len();
    check_input(x, width, inverse.len(), dy, dx, plus);
    vectorised(
        #[inline(always)]
        || {
            for (row, &scale) in inverse.iter().enumerate() {
                let row = row * width..(row + 1) * width;
                let inputs = [&x[row.clone()], gain, &dy[row.clone()]];
                dx_row(&mut dx[row.clone()], inputs, [0.0, scale], 0.0, plus.map(|plus| &plus[row]));
            }
        },
    );
}

/// `dgain` := or += these `columns` of the gradient of `rms_norm`'s gain, given `dy` (rows, width).
pub fn rms_norm_dgain<E: Element>(
    x: &[E],
    inverse: &[f32],
    dy: &[E],
    width: usize,
    columns: Range<usize>,
    dgain: &mut [f32],
    write: Write,
) {
    check_rows(x, width, inverse.len(), dy);
    check_len("dgain", dgain.len(), columns.len());
    begin(dgain, write);
    vectorised(
        #[inline(always)]
        || {
            for (row, &scale) in inverse.iter().enumerate() {
                let columns = row * width + columns.start..row * width + columns.end;
                add_dgain(dgain, &x[columns.clone()], &dy[columns], scale);
            }
        },
    );
}

/// Adds the contribution of one row.
#[inline(always)]
pub(super) fn add_dgain<E: Element>(dgain: &mut [f32], x: &[E], dy: &[E], scale: f32) {
    for ((dgain, x), dy) in dgain.iter_mut().zip(x).zip(dy) {
        *dgain = dy.widen().mul_add(x.widen() * scale, *dgain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::add;
    use crate::testing::{LENGTHS, assert_close, bits, stored, to_f64};
    use zero_core::device::bf16;

    const EPS: f32 = 1e-5;

    struct Expected {
        y: Vec<f64>,
        dx: Vec<f64>,
        dgain: Vec<f64>,
    }

    /// Either norm in f64, its `dx` through the full Jacobian d n_j / d x_i.
    fn naive<E: Element>(x: &[E], gain: &[E], bias: &[E], dy: &[E], centred: bool) -> Expected {
        let (gain, bias) = (to_f64(gain), to_f64(bias));
        let width = gain.len();
        let mut expected = Expected { y: vec![], dx: vec![], dgain: vec![0.0; width] };
        for (x, dy) in to_f64(x).chunks(width).zip(to_f64(dy).chunks(width)) {
            let mean = if centred { x.iter().sum::<f64>() / width as f64 } else { 0.0 };
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
            let scale = 1.0 / (variance + f64::from(EPS)).sqrt();
            let n: Vec<f64> = x.iter().map(|x| (x - mean) * scale).collect();
            for j in 0..width {
                expected.y.push(n[j] * gain[j] + bias[j]);
                expected.dgain[j] += dy[j] * n[j];
            }
            for i in 0..width {
                let through_mean = if centred { 1.0 / width as f64 } else { 0.0 };
                let slope = |j: usize| {
                    let direct = f64::from(u8::from(i == j));
                    scale * (direct - through_mean - n[i] * n[j] / width as f64)
                };
                expected.dx.push((0..width).map(|j| dy[j] * gain[j] * slope(j)).sum());
            }
        }
        expected
    }

    fn layer_norms_match_f64<E: Element>(rows: usize, width: usize) {
        let (x, dy) = (stored::<E>(rows * width, 1), stored::<E>(rows * width, 2));
        let (gain, bias) = (stored::<E>(width, 3), stored::<E>(width, 4));
        let expected = naive(&x, &gain, &bias, &dy, true);
        let (mut y, mut stats) = (x.clone(), vec![0.0; 2 * rows]);
        layer_norm(&x, &gain, &bias, &mut y, &mut stats, EPS);
        assert_close("y", &y, &expected.y, 1e-5);

        let (mut dx, mut dgain, mut dbias) = (x.clone(), vec![f32::NAN; width], vec![0.5; width]);
        layer_norm_dparams(&x, &stats, &dy, width, 0..width, &mut dgain, &mut dbias, Write::Set);
        layer_norm_backward(&x, &gain, &stats, &dy, &mut dx, None, &mut dgain, &mut dbias, Write::Add);
        assert_close("dx", &dx, &expected.dx, 2e-5);
        let (plus, mut sum) = (stored::<E>(x.len(), 5), x.clone());
        layer_norm_dx(&x, &gain, &stats, &dy, &mut sum, Some(&plus));
        add(&mut dx, &plus);
        assert_eq!(bits(&sum), bits(&dx), "in one pass or in two, to the bit");
        let twice: Vec<f64> = expected.dgain.iter().map(|d| 2.0 * d).collect();
        assert_close("dgain", &dgain, &twice, 1e-5);
        let dy = to_f64(&dy);
        let column = |j: usize| (0..rows).map(|row| dy[row * width + j]).sum::<f64>();
        assert_close("dbias", &dbias, &(0..width).map(|j| 2.0 * column(j)).collect::<Vec<_>>(), 1e-5);
    }

    #[test]
    fn layer_norm_matches_f64() {
        for width in LENGTHS {
            for rows in [1, 5] {
                layer_norms_match_f64::<f32>(rows, width);
                layer_norms_match_f64::<bf16>(rows, width);
            }
        }
    }

    fn rms_norms_match_f64<E: Element>(rows: usize, width: usize) {
        let (x, dy, gain) = (stored::<E>(rows * width, 1), stored::<E>(rows * width, 2), stored::<E>(width, 3));
        let expected = naive(&x, &gain, &vec![E::narrow(0.0); width], &dy, false);
        let (mut y, mut inverse) = (x.clone(), vec![0.0; rows]);
        rms_norm(&x, &gain, &mut y, &mut inverse, EPS);
        assert_close("y", &y, &expected.y, 1e-5);

        let (mut dx, mut dgain) = (x.clone(), vec![f32::NAN; width]);
        rms_norm_dgain(&x, &inverse, &dy, width, 0..width, &mut dgain, Write::Set);
        rms_norm_backward(&x, &gain, &inverse, &dy, &mut dx, None, &mut dgain, Write::Add);
        assert_close("dx", &dx, &expected.dx, 2e-5);
        let (plus, mut sum) = (stored::<E>(x.len(), 5), x.clone());
        rms_norm_dx(&x, &gain, &inverse, &dy, &mut sum, Some(&plus));
        add(&mut dx, &plus);
        assert_eq!(bits(&sum), bits(&dx), "in one pass or in two, to the bit");
        let twice: Vec<f64> = expected.dgain.iter().map(|d| 2.0 * d).collect();
        assert_close("dgain", &dgain, &twice, 1e-5);
    }

    #[test]
    fn rms_norm_matches_f64() {
        for width in LENGTHS {
            for rows in [1, 5] {
                rms_norms_match_f64::<f32>(rows, width);
                rms_norms_match_f64::<bf16>(rows, width);
            }
        }
    }

    /// A number that is not finite shows in its own row, and in no other.
    fn show_what_is_not_finite<E: Element>() {
        for bad in [f32::NAN, f32::INFINITY] {
            let (x, ones) = ([bad, 2.0, 1.0, 2.0].map(E::narrow), [1.0; 4].map(E::narrow));
            let (mut y, mut dx, mut stats, mut inverse) = (x, x, [0.0; 4], [0.0; 2]);
            let (mut dgain, mut dbias) = ([0.0; 2], [0.0; 2]);
            let shows = |y: [E; 4]| y.map(|y| y.widen().is_nan()) == [true, true, false, false];
            layer_norm(&x, &ones[..2], &ones[..2], &mut y, &mut stats, EPS);
            assert!(shows(y) && stats[..2].iter().all(|x| !x.is_finite()), "{stats:?}");
            layer_norm_backward(&x, &ones[..2], &stats, &ones, &mut dx, None, &mut dgain, &mut dbias, Write::Set);
            assert!(shows(dx) && dgain.iter().all(|x| x.is_nan()), "{dgain:?}");
            rms_norm(&x, &ones[..2], &mut y, &mut inverse, EPS);
            rms_norm_backward(&x, &ones[..2], &inverse, &ones, &mut dx, None, &mut dgain, Write::Set);
            assert!(y[0].widen().is_nan() && dx[0].widen().is_nan() && dgain[0].is_nan());
        }
    }

    #[test]
    fn what_is_not_finite_shows() {
        show_what_is_not_finite::<f32>();
        show_what_is_not_finite::<bf16>();
    }

    #[test]
    fn a_constant_row_is_its_bias() {
        let (mut y, mut stats) = ([0.0; 3], [0.0; 2]);
        layer_norm(&[7.0; 3], &[2.0; 3], &[1.0, 2.0, 3.0], &mut y, &mut stats, EPS);
        assert_eq!(y, [1.0, 2.0, 3.0]);
        assert_eq!(stats[0], 7.0);
    }

    #[test]
    #[should_panic(expected = "`stats` has 2 elements, expected 4")]
    fn every_row_needs_its_statistics() {
        layer_norm(&[0.0; 6], &[1.0; 3], &[0.0; 3], &mut [0.0; 6], &mut [0.0; 2], EPS);
    }
}
