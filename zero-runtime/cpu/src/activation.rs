//! Elementwise nonlinearities and their derivatives. Never NaN for a finite input.

use super::elementwise::each;
use super::math::{EXP_WITHIN, sigmoid, sigmoid_within};
use super::simd::{check_len, vectorised};
use zero_core::device::{Element, Nonlinearity};

/// `y` := f(`x`).
pub fn activate<E: Element>(kind: Nonlinearity, x: &[E], y: &mut [E]) {
    check_len("y", y.len(), x.len());
    match kind {
        Nonlinearity::Gelu => map(x, y, gelu),
        Nonlinearity::Relu => map(x, y, relu),
        Nonlinearity::Silu => map(x, y, silu),
    }
}

/// `dx` := `dy` * f'(`x`).
pub fn activate_backward<E: Element>(kind: Nonlinearity, x: &[E], dy: &[E], dx: &mut [E]) {
    check_len("dy", dy.len(), x.len());
    check_len("dx", dx.len(), x.len());
    match kind {
        Nonlinearity::Gelu => map_backward(x, dy, dx, gelu_slope),
        Nonlinearity::Relu => map_backward(x, dy, dx, relu_slope),
        Nonlinearity::Silu => map_backward(x, dy, dx, silu_slope),
    }
}

#[inline(always)]
fn map<E: Element>(x: &[E], y: &mut [E], f: impl Fn(f32) -> f32) {
    vectorised(
        #[inline(always)]
        || each(y, [x], |_, [x]| f(x)),
    );
}

#[inline(always)]
fn map_backward<E: Element>(x: &[E], dy: &[E], dx: &mut [E], slope: impl Fn(f32) -> f32) {
    vectorised(
        #[inline(always)]
        || each(dx, [x, dy], |_, [x, dy]| dy * slope(x)),
    );
}

const GELU_LINEAR: f32 = std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::SQRT_2; // 2 sqrt(2/pi)
const GELU_CUBIC: f32 = 0.044_715;

/// Beyond this the gate is 1, or is below 2^-125 and treated as 0. At the clamp its argument is 87.3, within the range
/// of `exp_within`.
const GELU_SATURATED: f32 = 10.0;
const _: () = assert!(
    GELU_LINEAR * GELU_SATURATED * (1.0 + GELU_CUBIC * GELU_SATURATED * GELU_SATURATED) < EXP_WITHIN,
    "the gate's argument leaves the range of the exponential"
);

/// 0.5 (1 + tanh(u)) = sigmoid(2u), which needs no tanh and keeps its relative precision for x < 0.
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    let inner = x.clamp(-GELU_SATURATED, GELU_SATURATED);
    let gate = sigmoid_within(GELU_LINEAR * inner * (GELU_CUBIC * inner).mul_add(inner, 1.0));
    // `x * 0.0` and not 0, so that an infinity or NaN shows.
    if x < -GELU_SATURATED { x * 0.0 } else { x * gate }
}

/// (x s(z))' = s + x s (1 - s) z', with z = 2u as in `gelu`.
#[inline(always)]
pub(super) fn gelu_slope(x: f32) -> f32 {
    let inner = x.clamp(-GELU_SATURATED, GELU_SATURATED);
    let square = GELU_CUBIC * inner * inner;
    let gate = sigmoid_within(GELU_LINEAR * inner * (1.0 + square));
    let slope = GELU_LINEAR * square.mul_add(3.0, 1.0);
    let whole = (inner * slope * (1.0 - gate)).mul_add(gate, gate);
    if x < -GELU_SATURATED { x * 0.0 } else { whole }
}

#[inline(always)]
pub(super) fn relu(x: f32) -> f32 {
    // Not `f32::max`, which would hide a NaN.
    if x < 0.0 { 0.0 } else { x }
}

#[inline(always)]
pub(super) fn relu_slope(x: f32) -> f32 {
    if x > 0.0 { 1.0 } else { 0.0 }
}

#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// (x s)' = s (1 + x (1 - s)).
#[inline(always)]
pub(super) fn silu_slope(x: f32) -> f32 {
    let gate = sigmoid(x);
    gate * x.mul_add(1.0 - gate, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, noise, stored, to_f64};
    use zero_core::device::bf16;

    const KINDS: [Nonlinearity; 3] = [Nonlinearity::Gelu, Nonlinearity::Relu, Nonlinearity::Silu];

    /// f and f', in f64, from the definitions.
    fn naive(kind: Nonlinearity, x: f64) -> (f64, f64) {
        match kind {
            Nonlinearity::Gelu => {
                let scale = (2.0 / std::f64::consts::PI).sqrt();
                let tanh = (scale * (x + 0.044715 * x.powi(3))).tanh();
                let inner_slope = scale * (1.0 + 3.0 * 0.044715 * x * x);
                (0.5 * x * (1.0 + tanh), 0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner_slope)
            }
            Nonlinearity::Relu => (x.max(0.0), f64::from(u8::from(x > 0.0))),
            Nonlinearity::Silu => {
                let gate = 1.0 / (1.0 + (-x).exp());
                (x * gate, gate * (1.0 + x * (1.0 - gate)))
            }
        }
    }

    fn match_f64<E: Element>(kind: Nonlinearity, len: usize) {
        let x: Vec<E> = noise(len, 1).iter().map(|x| E::narrow(4.0 * x)).collect();
        let dy = stored::<E>(len, 2);
        let (mut y, mut dx) = (vec![E::narrow(f32::NAN); len], vec![E::narrow(f32::NAN); len]);
        activate(kind, &x, &mut y);
        activate_backward(kind, &x, &dy, &mut dx);
        let expected: Vec<_> = to_f64(&x).iter().map(|&x| naive(kind, x)).collect();
        let values: Vec<f64> = expected.iter().map(|e| e.0).collect();
        let gradients: Vec<f64> = expected.iter().zip(to_f64(&dy)).map(|(e, dy)| e.1 * dy).collect();
        assert_close("y", &y, &values, 1e-6);
        assert_close("dx", &dx, &gradients, 2e-6);
    }

    #[test]
    fn matches_f64_forward_and_backward() {
        for kind in KINDS {
            for len in LENGTHS.into_iter().chain([1003]) {
                match_f64::<f32>(kind, len);
                match_f64::<bf16>(kind, len);
            }
        }
    }

    /// The nonlinearity of `x`, and its derivative.
    fn of<const N: usize, E: Element>(kind: Nonlinearity, x: [f32; N]) -> [[f32; N]; 2] {
        let x = x.map(E::narrow);
        let (mut y, mut dx) = (x, x);
        activate(kind, &x, &mut y);
        activate_backward(kind, &x, &[1.0; N].map(E::narrow), &mut dx);
        [y.map(E::widen), dx.map(E::widen)]
    }

    #[test]
    fn an_overflow_before_gelu_shows_after_it() {
        for [y, dx] in [of::<1, f32>, of::<1, bf16>].map(|of| of(Nonlinearity::Gelu, [f32::NEG_INFINITY])) {
            assert!(y[0].is_nan() && dx[0].is_nan(), "{y:?} {dx:?}");
        }
    }

    fn extremes_stay_finite<E: Element>(largest: f32) {
        for kind in KINDS {
            let [y, dx] = of::<8, E>(kind, [-largest, -1e20, -90.0, -0.0, f32::MIN_POSITIVE, 90.0, 1e20, largest]);
            assert_eq!((y[0], y[7], dx[0], dx[7]), (0.0, largest, 0.0, 1.0), "{kind:?}");
            assert!(y.iter().chain(&dx).all(|v| v.is_finite()), "{kind:?}: {y:?} {dx:?}");
            let [y, dx] = of::<1, E>(kind, [f32::NAN]);
            assert!(y[0].is_nan() && (dx[0].is_nan() || kind == Nonlinearity::Relu), "{kind:?}");
        }
    }

    #[test]
    fn extremes_stay_finite_and_nan_shows() {
        extremes_stay_finite::<f32>(f32::MAX);
        extremes_stay_finite::<bf16>(bf16::MAX.widen());
    }
}
