//! Elementary functions that vectorise: no tables, no branches, no library calls. Never NaN for a finite argument.

use std::f32::consts::{LN_2, LOG2_E};

/// Adding it moves an `f32` within +-2^22 to where its last bit counts ones: it rounds, and the low bits are an integer.
const ROUNDER: f32 = 12_582_912.0; // 1.5 x 2^23

/// What `LN_2` lacks of ln 2, so that `n * ln 2` is subtracted to well below one unit in the last place.
const LN_2_REST: f32 = (std::f64::consts::LN_2 - LN_2 as f64) as f32;

/// Below 2^-125 the result is 0, else `power / 2` in `exp` would leave the normal numbers.
const EXP_UNDERFLOW: f32 = -125.0 * LN_2;

/// The largest argument whose exponential is finite, ln(2^128 - 2^104) rounded down.
const EXP_OVERFLOW: f32 = 88.722_83;

/// x in parts: n and r of x = n ln 2 + r with |r| <= ln(2)/2, n as it stands in the low bits of a sum with `ROUNDER`; and
/// e^r, whose Taylor series to degree 6 errs by 2e-7.
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
    // 2^(n - 1): n itself reaches 128, whose power of two is not an `f32`. The shift drops all of `ROUNDER`'s own bits.
    let half_power = f32::from_bits((n << 23).wrapping_add(126 << 23));
    let value = 2.0 * series * half_power;
    let value = if x < EXP_UNDERFLOW { 0.0 } else { value };
    if x > EXP_OVERFLOW { f32::INFINITY } else { value }
}

/// [`exp`] of what is not above `EXP_WITHIN`, without what only larger arguments need.
#[inline(always)]
pub fn exp_small(x: f32) -> f32 {
    let value = exp_within(x);
    if x < EXP_UNDERFLOW { 0.0 } else { value }
}

/// [`exp`] of what is within +-`EXP_WITHIN`, or NaN, without what only others need.
#[inline(always)]
pub fn exp_within(x: f32) -> f32 {
    let (n, series) = exp_parts(x);
    series * f32::from_bits((n << 23).wrapping_add(127 << 23))
}

/// The power of two nearest to its exponential, and to its negative's, is a normal number.
pub const EXP_WITHIN: f32 = 87.5;

/// 1 / (1 + e^-x), in [0, 1] whatever x.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// [`sigmoid`] of what is within +-`EXP_WITHIN`, or NaN.
#[inline(always)]
pub fn sigmoid_within(x: f32) -> f32 {
    1.0 / (1.0 + exp_within(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

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
