//! Linear: a matrix product, and the ops on its result that run while it is still in the cache. Never reads the result
//! from memory twice.

use std::ops::Range;

use super::activation::{gelu, relu, silu};
use super::gemm::matmul;
use super::matrix::{MatrixMut, StridedMatrix};
use super::parallel::Cut;
use super::product::product;
use super::simd::{check_len, divided, vectorised};
use zero_core::device::{Element, Nonlinearity, Write};
use zero_core::device::{known, known_mut};

/// The most columns of the result worked on at a time. A few hundred rows of this width fit in a second-level cache,
/// where the following ops find them. Narrower panels lose more than they save, in the product and in rows that are too
/// short to stream.
const PANEL: usize = 768;

/// An op that follows the product in the same pass. It has the same bits as the op in a pass of its own on the stored
/// result.
pub enum SliceThen<'a, E = f32> {
    /// Nothing.
    Nothing,
    /// The nonlinearity of the result, to another matrix of its shape.
    Activate(Nonlinearity, &'a mut [E]),
    /// Another matrix of its shape is added to the result.
    Add(&'a [E]),
}

/// By rows.
impl<E: Element> Cut for SliceThen<'_, E> {
    fn cut(self, at: usize, of: usize) -> (Self, Self) {
        match self {
            Self::Nothing => (Self::Nothing, Self::Nothing),
            Self::Activate(kind, to) => {
                let (to, rest) = to.cut(at, of);
                (Self::Activate(kind, to), Self::Activate(kind, rest))
            }
            Self::Add(other) => {
                let (other, rest) = other.cut(at, of);
                (Self::Add(other), Self::Add(rest))
            }
        }
    }
}

/// `y` (rows, output) := `x` (rows, input) * `weight`^T, with `weight` (output, input), plus `bias` (output), if there
/// is one, in every row; then applies `then`. Sums are f32, and are rounded once, with the bias, when they are stored.
pub fn linear<E: Element>(y: &mut [E], x: &[E], weight: StridedMatrix<E>, bias: Option<&[E]>, mut then: SliceThen<E>) {
    let [output, input] = [weight.rows(), weight.cols()];
    let rows = divided("y", y.len(), output);
    check_len("x", x.len(), rows * input);
    check_len("bias", bias.map_or(output, <[E]>::len), output);
    match &then {
        SliceThen::Nothing => {}
        SliceThen::Activate(_, z) => check_len("z", z.len(), y.len()),
        SliceThen::Add(other) => check_len("other", other.len(), y.len()),
    }
    if rows == 0 {
        return;
    }
    let columns_of = |cols: &Range<usize>| bias.map(|bias| &bias[cols.clone()]);
    let (Some(x_f32), Some(weight_f32)) = (known::<E, f32>(x), weight.known::<f32>()) else {
        return product(StridedMatrix::new(x, rows, input), weight.transposed(), |sums| {
            let bias = columns_of(&sums.cols);
            finish(
                y,
                output,
                sums.rows.clone(),
                &sums.cols,
                &mut then,
                #[inline(always)]
                |y, row| store(y, sums.row(row), bias),
            );
        });
    };
    // Panels differ in width by at most one column, because `gemm` sums in another order if there are very few columns.
    let panels = output.div_ceil(PANEL);
    for panel in 0..panels {
        let cols = output * panel / panels..output * (panel + 1) / panels;
        let weight = weight_f32.split_at(cols.start).1.split_at(cols.len()).0.transposed();
        let part: &mut [f32] = known_mut(&mut y[cols.start..]).expect("as wide as `x`");
        let part = MatrixMut::strided(part, rows, cols.len(), output);
        matmul(part, StridedMatrix::new(x_f32, rows, input), weight, Write::Set);
        let bias = columns_of(&cols);
        finish(
            y,
            output,
            0..rows,
            &cols,
            &mut then,
            #[inline(always)]
            |y, _| {
                if let Some(bias) = bias {
                    accumulate(y, bias);
                }
            },
        );
    }
}

/// `y` := `sums` + `bias`.
#[inline(always)]
fn store<E: Element>(y: &mut [E], sums: &[f32], bias: Option<&[E]>) {
    let Some(bias) = bias else { return y.iter_mut().zip(sums).for_each(|(y, &sum)| *y = E::narrow(sum)) };
    for ((y, &sum), bias) in y.iter_mut().zip(sums).zip(bias) {
        *y = E::narrow(sum + bias.widen());
    }
}

/// In these columns of these rows of `y`, whose rows are `width` long: does `begin` with each row and its number, and
/// then applies `then`.
#[inline(always)]
fn finish<E: Element>(
    y: &mut [E],
    width: usize,
    rows: Range<usize>,
    cols: &Range<usize>,
    then: &mut SliceThen<E>,
    begin: impl Fn(&mut [E], usize),
) {
    vectorised(
        #[inline(always)]
        || {
            for row in rows {
                let part = row * width + cols.start..row * width + cols.end;
                let y = &mut y[part.clone()];
                begin(y, row);
                match then {
                    SliceThen::Nothing => {}
                    SliceThen::Add(other) => accumulate(y, &other[part]),
                    SliceThen::Activate(Nonlinearity::Gelu, z) => map(y, &mut z[part], gelu),
                    SliceThen::Activate(Nonlinearity::Relu, z) => map(y, &mut z[part], relu),
                    SliceThen::Activate(Nonlinearity::Silu, z) => map(y, &mut z[part], silu),
                }
            }
        },
    );
}

/// `y` += `x`.
#[inline(always)]
fn accumulate<E: Element>(y: &mut [E], x: &[E]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = E::narrow(y.widen() + x.widen());
    }
}

/// `z` := f(`y`).
#[inline(always)]
fn map<E: Element>(y: &[E], z: &mut [E], f: impl Fn(f32) -> f32) {
    for (y, z) in y.iter().zip(z) {
        *z = E::narrow(f(y.widen()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, noise};
    use crate::{activate, add};
    use zero_core::device::bf16;

    fn narrowed(x: &[f32]) -> Vec<bf16> {
        x.iter().map(|&x| bf16::narrow(x)).collect()
    }

    fn widened(x: &[bf16]) -> Vec<f32> {
        x.iter().map(|x| x.widen()).collect()
    }

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
            linear(&mut y, &x, StridedMatrix::new(&weight, output, input), Some(&bias), SliceThen::Nothing);
            assert_close("y", &y, &expected(&x, &weight, &bias, input), 1e-5);
        }
    }

    /// The error of a result is that of its last rounding, and of the roundings of its terms, its bias and their sums.
    #[test]
    fn bf16_is_rounded_once() {
        for [rows, input, output] in [[1, 1, 1], [3, 5, 7], [70, 33, 40], [5, 3, PANEL + 9]] {
            let [x, weight, bias] =
                [(rows * input, 1), (output * input, 2), (output, 3)].map(|(len, seed)| narrowed(&noise(len, seed)));
            let mut y = vec![bf16::NAN; rows * output];
            linear(&mut y, &x, StridedMatrix::new(&weight, output, input), Some(&bias), SliceThen::Nothing);
            let expected = expected(&widened(&x), &widened(&weight), &widened(&bias), input);
            for (y, expected) in y.iter().zip(expected) {
                // No term is larger than 4.
                let of_sums = 4.0 * (input + 1) as f64 * (input + 1) as f64 * f64::from(f32::EPSILON);
                let most = of_sums + (expected.abs() + of_sums) * bf16::EPSILON.to_f64() / 2.0;
                assert!((f64::from(y.widen()) - expected).abs() <= most, "found {y}, expected {expected}");
            }
        }
    }

    /// Applied to the rounded result, to the bit, beyond a block of rows and of columns.
    #[test]
    fn what_follows_in_bf16_is_as_if_it_came_after() {
        let (rows, input, output) = (300, 6, PANEL + 21);
        let [x, weight, bias, other] = [(rows * input, 1), (output * input, 2), (output, 3), (rows * output, 4)]
            .map(|(n, s)| narrowed(&noise(n, s)));
        let weight = StridedMatrix::new(&weight, output, input);
        for bias in [None, Some(&bias[..])] {
            let mut plain = vec![bf16::NAN; rows * output];
            linear(&mut plain, &x, weight, bias, SliceThen::Nothing);
            for kind in [Nonlinearity::Gelu, Nonlinearity::Relu, Nonlinearity::Silu] {
                let (mut y, mut z) = (vec![bf16::NAN; plain.len()], vec![bf16::NAN; plain.len()]);
                linear(&mut y, &x, weight, bias, SliceThen::Activate(kind, &mut z));
                let mut activated = vec![f32::NAN; plain.len()];
                activate(kind, &widened(&plain), &mut activated);
                assert!(y == plain && z == narrowed(&activated), "{kind:?}");
            }
            let mut y = vec![bf16::NAN; plain.len()];
            linear(&mut y, &x, weight, bias, SliceThen::Add(&other));
            let mut added = widened(&plain);
            add(&mut added, &widened(&other));
            assert!(y == narrowed(&added));
        }
    }

    /// One pass and two passes agree to the bit.
    #[test]
    fn what_follows_is_as_if_it_came_after() {
        let (rows, input, output) = (5, 6, PANEL + 21);
        let (x, weight, bias) = (noise(rows * input, 1), noise(output * input, 2), noise(output, 3));
        let weight = StridedMatrix::new(&weight, output, input);
        let mut plain = vec![f32::NAN; rows * output];
        linear(&mut plain, &x, weight, Some(&bias), SliceThen::Nothing);
        for kind in [Nonlinearity::Gelu, Nonlinearity::Relu, Nonlinearity::Silu] {
            let (mut y, mut z) = (vec![f32::NAN; plain.len()], vec![f32::NAN; plain.len()]);
            linear(&mut y, &x, weight, Some(&bias), SliceThen::Activate(kind, &mut z));
            let mut activated = vec![f32::NAN; plain.len()];
            activate(kind, &plain, &mut activated);
            assert_eq!((y, z), (plain.clone(), activated), "{kind:?}");
        }
        let other = noise(plain.len(), 4);
        let mut y = vec![f32::NAN; plain.len()];
        linear(&mut y, &x, weight, Some(&bias), SliceThen::Add(&other));
        add(&mut plain, &other);
        assert_eq!(y, plain);
    }

    #[test]
    fn no_bias_is_as_one_of_zeros() {
        let (rows, input, output) = (5, 6, 7);
        let (x, weight, zeros) = (noise(rows * input, 1), noise(output * input, 2), vec![0.0; output]);
        let weight = StridedMatrix::new(&weight, output, input);
        let run = |bias: Option<&[f32]>, kind: Option<Nonlinearity>| {
            let (mut y, mut z) = (vec![f32::NAN; rows * output], noise(rows * output, 4));
            match kind {
                None => linear(&mut y, &x, weight, bias, SliceThen::Add(&z)),
                Some(kind) => linear(&mut y, &x, weight, bias, SliceThen::Activate(kind, &mut z)),
            }
            [y, z]
        };
        for kind in [None, Some(Nonlinearity::Relu)] {
            assert_eq!(run(None, kind), run(Some(&zeros), kind));
        }
        let (mut without, mut with) = (vec![f32::NAN; rows * output], vec![f32::NAN; rows * output]);
        linear(&mut without, &x, weight, None, SliceThen::Nothing);
        linear(&mut with, &x, weight, Some(&zeros), SliceThen::Nothing);
        assert_eq!(without, with);
    }

    #[test]
    #[should_panic(expected = "`other` has 1 elements, expected 2")]
    fn shapes_must_agree() {
        linear(&mut [0.0; 2], &[1.0], StridedMatrix::new(&[1.0; 2], 2, 1), None, SliceThen::Add(&[0.0]));
    }
}
