//! Linear: a matrix product, and what is done to its result while that is still in the cache. Never reads the result from
//! memory twice.

use std::ops::Range;

use super::activation::{gelu, relu, silu};
use super::gemm::{Matrix, MatrixMut, matmul};
use super::rows::accumulate;
use super::simd::{check_len, divided, vectorised};
use crate::device::{Nonlinearity, Write};

/// The most columns of the result worked on at a time. What follows finds a few hundred rows of so many in a second-level cache;
/// narrower panels lose more in the product, and in rows too short to stream, than they save.
const PANEL: usize = 768;

/// What follows the product, in the same pass.
pub enum Then<'a> {
    /// Nothing.
    Nothing,
    /// The nonlinearity of the result, to another matrix of its shape.
    Activate(Nonlinearity, &'a mut [f32]),
    /// Another matrix of its shape is added to the result.
    Add(&'a [f32]),
}

/// `y` (rows, output) := `x` (rows, input) * `weight`^T, with `weight` (output, input), plus `bias` (output), if there is
/// one, in every row; then what `then` says.
pub fn linear(y: &mut [f32], x: &[f32], weight: Matrix, bias: Option<&[f32]>, mut then: Then) {
    let [output, input] = [weight.rows(), weight.cols()];
    let rows = divided("y", y.len(), output);
    check_len("x", x.len(), rows * input);
    check_len("bias", bias.map_or(output, <[f32]>::len), output);
    match &then {
        Then::Nothing => {}
        Then::Activate(_, z) => check_len("z", z.len(), y.len()),
        Then::Add(other) => check_len("other", other.len(), y.len()),
    }
    if rows == 0 {
        return;
    }
    // As wide as one another, but for a column: `gemm` has another order of summation for very few of them.
    let panels = output.div_ceil(PANEL);
    for panel in 0..panels {
        let columns = output * panel / panels..output * (panel + 1) / panels;
        let weight = weight.split_at(columns.start).1.split_at(columns.len()).0.transposed();
        let part = MatrixMut::strided(&mut y[columns.start..], rows, columns.len(), output);
        matmul(part, Matrix::new(x, rows, input), weight, Write::Set);
        let bias = bias.map(|bias| &bias[columns.clone()]);
        match &mut then {
            Then::Nothing => vectorised(
                #[inline(always)]
                || {
                    if let Some(bias) = bias {
                        for y in y.chunks_exact_mut(output) {
                            accumulate(&mut y[columns.clone()], bias);
                        }
                    }
                },
            ),
            Then::Add(other) => vectorised(
                #[inline(always)]
                || {
                    for (y, other) in y.chunks_exact_mut(output).zip(other.chunks_exact(output)) {
                        add_both(&mut y[columns.clone()], bias, &other[columns.clone()]);
                    }
                },
            ),
            Then::Activate(Nonlinearity::Gelu, z) => activate([y, z], output, columns, bias, gelu),
            Then::Activate(Nonlinearity::Relu, z) => activate([y, z], output, columns, bias, relu),
            Then::Activate(Nonlinearity::Silu, z) => activate([y, z], output, columns, bias, silu),
        }
    }
}

/// `y` += `bias` + `other`, in this order.
#[inline(always)]
fn add_both(y: &mut [f32], bias: Option<&[f32]>, other: &[f32]) {
    let Some(bias) = bias else { return accumulate(y, other) };
    for ((y, bias), other) in y.iter_mut().zip(bias).zip(other) {
        *y = (*y + bias) + other;
    }
}

/// `y` += `bias` and `z` := f(`y`), in these columns of every row of `width`.
#[inline(always)]
fn activate(
    [y, z]: [&mut [f32]; 2],
    width: usize,
    columns: Range<usize>,
    bias: Option<&[f32]>,
    f: impl Fn(f32) -> f32,
) {
    vectorised(
        #[inline(always)]
        || {
            for (y, z) in y.chunks_exact_mut(width).zip(z.chunks_exact_mut(width)) {
                activate_row(&mut y[columns.clone()], bias, &mut z[columns.clone()], &f);
            }
        },
    );
}

#[inline(always)]
fn activate_row(y: &mut [f32], bias: Option<&[f32]>, z: &mut [f32], f: impl Fn(f32) -> f32) {
    let Some(bias) = bias else { return z.iter_mut().zip(y).for_each(|(z, y)| *z = f(*y)) };
    for ((y, bias), z) in y.iter_mut().zip(bias).zip(z) {
        *y += bias;
        *z = f(*y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::testing::{assert_close, noise};
    use crate::device::cpu::{activate, add};

    fn expected(x: &[f32], weight: &[f32], bias: &[f32], input: usize) -> Vec<f64> {
        let row = |x: &[f32]| {
            let dot = |weight: &[f32]| x.iter().zip(weight).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>();
            weight.chunks(input).zip(bias).map(|(weight, &bias)| dot(weight) + f64::from(bias)).collect::<Vec<_>>()
        };
        x.chunks(input).flat_map(row).collect()
    }

    #[test]
    fn matches_f64_within_and_beyond_a_panel() {
        for [rows, input, output] in [[1, 1, 1], [3, 5, 7], [4, 17, PANEL], [5, 3, 2 * PANEL + 9]] {
            let (x, weight, bias) = (noise(rows * input, 1), noise(output * input, 2), noise(output, 3));
            let mut y = vec![f32::NAN; rows * output];
            linear(&mut y, &x, Matrix::new(&weight, output, input), Some(&bias), Then::Nothing);
            assert_close("y", &y, &expected(&x, &weight, &bias, input), 1e-5);
        }
    }

    /// In one pass or in two, to the bit.
    #[test]
    fn what_follows_is_as_if_it_came_after() {
        let (rows, input, output) = (5, 6, PANEL + 21);
        let (x, weight, bias) = (noise(rows * input, 1), noise(output * input, 2), noise(output, 3));
        let weight = Matrix::new(&weight, output, input);
        let mut plain = vec![f32::NAN; rows * output];
        linear(&mut plain, &x, weight, Some(&bias), Then::Nothing);
        for kind in [Nonlinearity::Gelu, Nonlinearity::Relu, Nonlinearity::Silu] {
            let (mut y, mut z) = (vec![f32::NAN; plain.len()], vec![f32::NAN; plain.len()]);
            linear(&mut y, &x, weight, Some(&bias), Then::Activate(kind, &mut z));
            let mut activated = vec![f32::NAN; plain.len()];
            activate(kind, &plain, &mut activated);
            assert_eq!((y, z), (plain.clone(), activated), "{kind:?}");
        }
        let other = noise(plain.len(), 4);
        let mut y = vec![f32::NAN; plain.len()];
        linear(&mut y, &x, weight, Some(&bias), Then::Add(&other));
        add(&mut plain, &other);
        assert_eq!(y, plain);
    }

    #[test]
    fn no_bias_is_as_one_of_zeros() {
        let (rows, input, output) = (5, 6, 7);
        let (x, weight, zeros) = (noise(rows * input, 1), noise(output * input, 2), vec![0.0; output]);
        let weight = Matrix::new(&weight, output, input);
        let run = |bias: Option<&[f32]>, kind: Option<Nonlinearity>| {
            let (mut y, mut z) = (vec![f32::NAN; rows * output], noise(rows * output, 4));
            match kind {
                None => linear(&mut y, &x, weight, bias, Then::Add(&z)),
                Some(kind) => linear(&mut y, &x, weight, bias, Then::Activate(kind, &mut z)),
            }
            [y, z]
        };
        for kind in [None, Some(Nonlinearity::Relu)] {
            assert_eq!(run(None, kind), run(Some(&zeros), kind));
        }
        let (mut without, mut with) = (vec![f32::NAN; rows * output], vec![f32::NAN; rows * output]);
        linear(&mut without, &x, weight, None, Then::Nothing);
        linear(&mut with, &x, weight, Some(&zeros), Then::Nothing);
        assert_eq!(without, with);
    }

    #[test]
    #[should_panic(expected = "`other` has 1 elements, expected 2")]
    fn shapes_must_agree() {
        linear(&mut [0.0; 2], &[1.0], Matrix::new(&[1.0; 2], 2, 1), None, Then::Add(&[0.0]));
    }
}
