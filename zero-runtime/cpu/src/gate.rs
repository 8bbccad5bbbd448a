//! Gate: the nonlinearity of one half of each row times the other half, and its vector-Jacobian product (Shazeer, "GLU
//! variants improve transformer", 2020). Never keeps the nonlinearity: backward computes it again.

use super::activation::{gelu, gelu_slope, relu, relu_slope, silu, silu_slope};
use super::elementwise::{each, each_both};
use super::simd::{check_len, divided, vectorised};
use zero_core::device::{Element, Nonlinearity};

/// `y` (rows, width) := f(the first half of each row of `x`) * the second half, with `x` (rows, 2 width).
pub fn gate<E: Element>(kind: Nonlinearity, x: &[E], y: &mut [E], width: usize) {
    divided("y", y.len(), width);
    check_len("x", x.len(), 2 * y.len());
    match kind {
        Nonlinearity::Gelu => map(x, y, width, gelu),
        Nonlinearity::Relu => map(x, y, width, relu),
        Nonlinearity::Silu => map(x, y, width, silu),
    }
}

/// `dx` (rows, 2 width) := the gradient of the input of [`gate`], given `dy` (rows, width).
pub fn gate_backward<E: Element>(kind: Nonlinearity, x: &[E], dy: &[E], dx: &mut [E], width: usize) {
    divided("dy", dy.len(), width);
    check_len("x", x.len(), 2 * dy.len());
    check_len("dx", dx.len(), x.len());
    match kind {
        Nonlinearity::Gelu => map_backward(x, dy, dx, width, gelu, gelu_slope),
        Nonlinearity::Relu => map_backward(x, dy, dx, width, relu, relu_slope),
        Nonlinearity::Silu => map_backward(x, dy, dx, width, silu, silu_slope),
    }
}

#[inline(always)]
fn map<E: Element>(x: &[E], y: &mut [E], width: usize, f: impl Fn(f32) -> f32) {
    vectorised(
        #[inline(always)]
        || {
            for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
                let (gate, up) = x.split_at(width);
                each(y, [gate, up], |_, [gate, up]| f(gate) * up);
            }
        },
    );
}

#[inline(always)]
fn map_backward<E: Element>(
    x: &[E],
    dy: &[E],
    dx: &mut [E],
    width: usize,
    f: impl Fn(f32) -> f32,
    slope: impl Fn(f32) -> f32,
) {
    vectorised(
        #[inline(always)]
        || {
            let rows = x.chunks_exact(2 * width).zip(dy.chunks_exact(width));
            for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(2 * width)) {
                let ((gate, up), (dgate, dup)) = (x.split_at(width), dx.split_at_mut(width));
                each_both(dgate, dup, [gate, up, dy], |[gate, up, dy]| [dy * up * slope(gate), dy * f(gate)]);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, bits, stored, to_f64};
    use crate::{activate, activate_backward};
    use zero_core::device::bf16;

    const ROWS: usize = 3;

    /// Compared with the nonlinearity's own op in f32, which has a test against f64; the product is in f64.
    fn match_f64<E: Element>(kind: Nonlinearity, width: usize) {
        let (x, dy) = (stored::<E>(ROWS * 2 * width, 1), stored::<E>(ROWS * width, 2));
        let (mut y, mut dx) = (vec![E::narrow(f32::NAN); dy.len()], vec![E::narrow(f32::NAN); x.len()]);
        gate(kind, &x, &mut y, width);
        gate_backward(kind, &x, &dy, &mut dx, width);
        let wide: Vec<f32> = x.iter().map(|x| x.widen()).collect();
        let (mut f, mut slope) = (wide.clone(), wide.clone());
        activate(kind, &wide, &mut f);
        activate_backward(kind, &wide, &vec![1.0; wide.len()], &mut slope);
        let (wide, f, slope, dy) = (to_f64(&wide), to_f64(&f), to_f64(&slope), to_f64(&dy));
        let (mut values, mut gradients) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
        for i in 0..dy.len() {
            let gate = i / width * 2 * width + i % width;
            values[i] = f[gate] * wide[gate + width];
            gradients[gate] = dy[i] * wide[gate + width] * slope[gate];
            gradients[gate + width] = dy[i] * f[gate];
        }
        assert_close("y", &y, &values, 1e-6);
        assert_close("dx", &dx, &gradients, 2e-6);
    }

    #[test]
    fn matches_f64_forward_and_backward() {
        for kind in [Nonlinearity::Gelu, Nonlinearity::Relu, Nonlinearity::Silu] {
            for width in LENGTHS {
                match_f64::<f32>(kind, width);
                match_f64::<bf16>(kind, width);
            }
        }
    }

    #[test]
    fn the_first_half_is_the_gate() {
        let mut y = [0.0];
        gate(Nonlinearity::Relu, &[-1.0, 3.0], &mut y, 1);
        assert_eq!(bits(&y), bits(&[0.0]));
        gate(Nonlinearity::Relu, &[3.0, -1.0], &mut y, 1);
        assert_eq!(y, [-3.0]);
    }

    #[test]
    #[should_panic(expected = "`x` has 6 elements, expected 8")]
    fn a_missing_half_is_refused() {
        gate(Nonlinearity::Silu, &[0.0; 6], &mut [0.0; 4], 2);
    }
}
