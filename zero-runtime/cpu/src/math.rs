//! Elementary functions that vectorise: no tables, no branches, no library calls. Never NaN for a finite argument.

use std::f32::consts::{LN_2, LOG2_E};

/// Adding this moves an `f32` within +-2^22 to a range where its last bit counts ones: the sum is rounded, and its low
/// bits are an integer.
const ROUNDER: f32 = 12_582_912.0; // 1.5 x 2^23

/// ln 2 minus `LN_2`, so that `n * ln 2` is subtracted to well below one unit in the last place.
const LN_2_REST: f32 = (std::f64::consts::LN_2 - LN_2 as f64) as f32;

/// Below 2^-125 the result is 0; otherwise `power / 2` in `exp` would leave the normal numbers.
const EXP_UNDERFLOW: f32 = -125.0 * LN_2;

/// The largest argument whose exponential is finite, ln(2^128 - 2^104) rounded down.
const EXP_OVERFLOW: f32 = 88.722_83;

/// Splits x into n and r, where x = n ln 2 + r and |r| <= ln(2)/2. Returns n, in the low bits of a sum with `ROUNDER`,
/// and e^r, whose Taylor series to degree 6 errs by 2e-7.
#[inline(always)]
fn exp_parts(x: f32) -> (u32, f32) {
    let rounded = x.mul_add(LOG2_E, ROUNDER);
    let n = rounded - ROUNDER;
    let r = (-n).mul_add(LN_2_REST, (-n).mul_add(LN_2, x));
    let mut series = 1.0 / 720.0;
    for coefficient in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        series = r.mul_add(series, coefficient);
    }
    (rounded.to_bits(), series)
}

/// e^x to a relative error under 3e-7; 0 below 2^-125, infinity above the largest `f32`, NaN for NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let (n, series) = exp_parts(x);
    // 2^(n - 1): n itself reaches 128, and 2^128 is not an `f32`. The shift drops all of `ROUNDER`'s own bits.
    let half_power = f32::from_bits((n << 23).wrapping_add(126 << 23));
    let value = 2.0 * series * half_power;
    let value = if x < EXP_UNDERFLOW { 0.0 } else { value };
    if x > EXP_OVERFLOW { f32::INFINITY } else { value }
}

/// [`exp`] of an argument not above `EXP_WITHIN`, without the code that only larger arguments need.
#[inline(always)]
pub fn exp_small(x: f32) -> f32 {
    let value = exp_within(x);
    if x < EXP_UNDERFLOW { 0.0 } else { value }
}

/// [`exp`] of an argument within +-`EXP_WITHIN`, or NaN, without the code that only other arguments need.
#[inline(always)]
pub fn exp_within(x: f32) -> f32 {
    let (n, series) = exp_parts(x);
    series * f32::from_bits((n << 23).wrapping_add(127 << 23))
}

/// The powers of two nearest to e^87.5 and e^-87.5 are normal numbers.
pub const EXP_WITHIN: f32 = 87.5;

/// 1 / (1 + e^-x), in [0, 1] for every x.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// [`sigmoid`] of an argument within +-`EXP_WITHIN`, or NaN.
#[inline(always)]
pub fn sigmoid_within(x: f32) -> f32 {
    1.0 / (1.0 + exp_within(-x))
}

/// [`ROUNDER`] for `f64`.
const ROUNDER_F64: f64 = 6_755_399_441_055_744.0; // 1.5 x 2^52

/// Sine and cosine, to within 1e-7 where |x| < 2^24. The angle is reduced to +-pi/4 in f64, where Taylor series to
/// degrees 11 and 10 err by 2e-10.
#[inline(always)]
pub fn sin_cos(x: f32) -> [f32; 2] {
    use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};
    let x = f64::from(x);
    let rounded = x.mul_add(FRAC_2_PI, ROUNDER_F64);
    let r = (-(rounded - ROUNDER_F64)).mul_add(FRAC_PI_2, x);
    let quarter = rounded.to_bits() as u32;
    let (square, mut sin, mut cos) = (r * r, -1.0 / 39_916_800.0, -1.0 / 3_628_800.0);
    for coefficient in [1.0 / 362_880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0] {
        sin = square.mul_add(sin, coefficient);
    }
    for coefficient in [1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0] {
        cos = square.mul_add(cos, coefficient);
    }
    let (sin, cos) = ((r * square).mul_add(sin, r) as f32, cos as f32);
    // One quarter turn gives (-sin, cos) instead of (cos, sin); two negate both.
    let is_odd = quarter & 1 != 0;
    let (y, x) = if is_odd { (cos, sin) } else { (sin, cos) };
    let sign = |number: f32, quarters: u32| f32::from_bits(number.to_bits() ^ ((quarters & 2) << 30));
    [sign(y, quarter), sign(x, quarter.wrapping_add(1))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sines_and_cosines_are_accurate_as_far_as_positions_go() {
        for limit in [1.0f32, 100.0, 131_072.0, 16_777_216.0] {
            for step in 0..=200_000 {
                let x = limit * (step as f32 / 1e5 - 1.0);
                let (found, exact) = (sin_cos(x).map(f64::from), f64::from(x).sin_cos());
                let error = (found[0] - exact.0).abs().max((found[1] - exact.1).abs());
                assert!(error < 1e-7, "{found:?} of {x}, expected {exact:?}");
            }
        }
        assert_eq!(sin_cos(0.0), [0.0, 1.0]);
        assert!([f32::NAN, f32::INFINITY].iter().all(|&x| sin_cos(x).iter().all(|y| y.is_nan())));
    }

    #[test]
    fn exp_is_accurate_over_its_whole_range() {
        let mut worst = 0.0f64;
        for step in 0..=2_000_000 {
            let x = EXP_UNDERFLOW + (EXP_OVERFLOW - EXP_UNDERFLOW) * (step as f32 / 2e6);
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 3e-7, "relative error {worst:e}");
    }

    #[test]
    fn the_fast_ones_are_the_same_where_they_may_be_used() {
        for step in 0..=1_000_000 {
            let x = EXP_WITHIN * (step as f32 / 5e5 - 1.0);
            let expected = exp(x);
            if x >= EXP_UNDERFLOW {
                assert_eq!(exp_within(x), expected, "{x}");
            }
            assert!((exp_within(x) - expected).abs() <= 2.0 * f32::MIN_POSITIVE, "{x}");
            assert_eq!(exp_small(x), expected, "{x}");
        }
        assert_eq!([f32::NEG_INFINITY, f32::MIN, 0.0].map(exp_small), [0.0, 0.0, 1.0]);
        assert!(exp_small(f32::NAN).is_nan() && exp_within(-f32::NAN).is_nan());
    }

    #[test]
    fn exp_at_its_edges() {
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(EXP_OVERFLOW).is_finite());
        assert_eq!(exp(EXP_OVERFLOW.next_up()), f32::INFINITY);
        assert!(exp(EXP_UNDERFLOW) >= f32::MIN_POSITIVE);
        assert_eq!(exp(EXP_UNDERFLOW.next_down()), 0.0);
        assert_eq!((exp(f32::MAX), exp(f32::MIN)), (f32::INFINITY, 0.0));
        assert_eq!((exp(f32::INFINITY), exp(f32::NEG_INFINITY)), (f32::INFINITY, 0.0));
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sigmoid_saturates_without_nan() {
        assert_eq!([f32::MIN, 0.0, f32::MAX].map(sigmoid), [0.0, 0.5, 1.0]);
    }
}
