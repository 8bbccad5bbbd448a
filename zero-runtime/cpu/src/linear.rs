//! Linear: a matrix product, and the ops on its result that run while it is still in the cache. Never reads the result
//! from memory twice.

use std::ops::Range;

use super::activation::{gelu, relu, silu};
use super::gemm::matmul;
use super::matrix::StridedMatrix;
use super::matrix_mut::MatrixMut;
use super::parallel::CutBlock;
use super::product::product;
use super::rows::accumulate;
use super::simd::{check_len, vectorised};
use zero_core::device::{Element, Nonlinearity, Write};
use zero_plan::Width;

/// The most columns of the result worked on at a time. A few hundred rows of this width fit in a second-level cache,
/// where the following ops find them. Narrower panels lose more than they save, in the product and in rows that are too
/// short to stream.
const PANEL: usize = 768;

/// An op that follows the product in the same pass. It has the same bits as the op in a pass of its own on the stored
/// result.
pub enum ThenBlock<'a, E = f32> {
    /// Nothing.
    Nothing,
    /// The nonlinearity of the result, to the same block of another matrix of its shape.
    Activate(Nonlinearity, MatrixMut<'a, E>),
    /// Another matrix of its shape is added to the result.
    Add(StridedMatrix<'a, E>),
}

impl<'a, E: Element> ThenBlock<'a, E> {
    fn cut(self, cut: impl Fn(MatrixMut<'a, E>) -> (MatrixMut<'a, E>, MatrixMut<'a, E>)) -> (Self, Self) {
        match self {
            Self::Nothing => (Self::Nothing, Self::Nothing),
            Self::Activate(kind, to) => {
                let (to, rest) = cut(to);
                (Self::Activate(kind, to), Self::Activate(kind, rest))
            }
            Self::Add(other) => (Self::Add(other), Self::Add(other)),
        }
    }

    /// The op on the columns with these numbers.
    fn columns_mut(&mut self, columns: Range<usize>) -> ThenBlock<'_, E> {
        match self {
            Self::Nothing => ThenBlock::Nothing,
            Self::Activate(kind, to) => ThenBlock::Activate(*kind, to.columns_mut(columns)),
            Self::Add(other) => ThenBlock::Add(*other),
        }
    }
}

impl<E: Element> CutBlock for ThenBlock<'_, E> {
    fn cut_rows(self, at: usize) -> (Self, Self) {
        self.cut(|to| to.cut_rows(at))
    }

    fn cut_columns(self, at: usize) -> (Self, Self) {
        self.cut(|to| to.cut_columns(at))
    }
}

/// `y` := these rows and columns of `x` (rows, input) * `weight`^T, with `weight` (output, input), plus `bias` (output),
/// if there is one, in every row; then applies `then`. Sums are f32, and are rounded once, with the bias, when they are
/// stored.
pub fn linear<E: Element>(
    mut y: MatrixMut<E>,
    x: StridedMatrix<E>,
    weight: StridedMatrix<E>,
    bias: Option<&[E]>,
    mut then: ThenBlock<E>,
) {
    check_len("bias", bias.map_or(weight.rows(), <[E]>::len), weight.rows());
    match &then {
        ThenBlock::Nothing => {}
        ThenBlock::Activate(_, z) => {
            assert!((z.rows(), z.columns()) == (y.rows(), y.columns()), "`z` is not the block that `y` is");
        }
        ThenBlock::Add(other) => {
            assert!((other.rows(), other.cols()) == (x.rows(), weight.rows()), "`other` is not as large as `y`");
        }
    }
    let (rows, columns) = (y.rows(), y.columns());
    if rows.is_empty() || columns.is_empty() {
        return;
    }
    if E::WIDTH != Width::F32 {
        let (x, weight) = (x.part(rows.clone(), 0..x.cols()), weight.part(columns.clone(), 0..weight.cols()));
        return product(x, weight.transposed(), |sums| {
            let cols = columns.start + sums.cols.start..columns.start + sums.cols.end;
            let bias = bias.map(|bias| &bias[cols.clone()]);
            finish(
                y.columns_mut(cols.clone()),
                rows.start + sums.rows.start..rows.start + sums.rows.end,
                then.columns_mut(cols),
                #[inline(always)]
                |y, row| store(y, sums.row(row - rows.start), bias),
            );
        });
    }
    // Panels differ in width by at most one column, because `gemm` sums in another order if there are very few columns.
    let panels = columns.len().div_ceil(PANEL);
    for panel in 0..panels {
        let at = |panel| columns.start + columns.len() * panel / panels;
        let cols = at(panel)..at(panel + 1);
        matmul(y.columns_mut(cols.clone()), x, weight.transposed(), Write::Set);
        let bias = bias.map(|bias| &bias[cols.clone()]);
        finish(
            y.columns_mut(cols.clone()),
            rows.clone(),
            then.columns_mut(cols),
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

/// In these rows of `y`: does `begin` with each row and its number, and then applies `then`.
#[inline(always)]
fn finish<E: Element>(
    mut y: MatrixMut<E>,
    rows: Range<usize>,
    mut then: ThenBlock<E>,
    begin: impl Fn(&mut [E], usize),
) {
    let columns = y.columns();
    vectorised(
        #[inline(always)]
        || {
            for row in rows {
                let y = y.row(row);
                begin(y, row);
                match &mut then {
                    ThenBlock::Nothing => {}
                    ThenBlock::Add(other) => accumulate(y, other.row(row, columns.start, columns.len())),
                    ThenBlock::Activate(Nonlinearity::Gelu, z) => map(y, z.row(row), gelu),
                    ThenBlock::Activate(Nonlinearity::Relu, z) => map(y, z.row(row), relu),
                    ThenBlock::Activate(Nonlinearity::Silu, z) => map(y, z.row(row), silu),
                }
            }
        },
    );
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

    /// What follows, on whole matrices.
    enum After<'a, E = f32> {
        Nothing,
        Activate(Nonlinearity, &'a mut [E]),
        Add(&'a [E]),
    }

    /// [`linear`] of a whole matrix.
    fn all<E: Element>(y: &mut [E], x: &[E], weight: StridedMatrix<E>, bias: Option<&[E]>, after: After<E>) {
        let [output, input] = [weight.rows(), weight.cols()];
        let rows = x.len() / input;
        let then = match after {
            After::Nothing => ThenBlock::Nothing,
            After::Activate(kind, z) => ThenBlock::Activate(kind, MatrixMut::new(z, rows, output)),
            After::Add(other) => ThenBlock::Add(StridedMatrix::new(other, rows, output)),
        };
        linear(MatrixMut::new(y, rows, output), StridedMatrix::new(x, rows, input), weight, bias, then);
    }

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
            all(&mut y, &x, StridedMatrix::new(&weight, output, input), Some(&bias), After::Nothing);
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
            all(&mut y, &x, StridedMatrix::new(&weight, output, input), Some(&bias), After::Nothing);
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
            all(&mut plain, &x, weight, bias, After::Nothing);
            for kind in [Nonlinearity::Gelu, Nonlinearity::Relu, Nonlinearity::Silu] {
                let (mut y, mut z) = (vec![bf16::NAN; plain.len()], vec![bf16::NAN; plain.len()]);
                all(&mut y, &x, weight, bias, After::Activate(kind, &mut z));
                let mut activated = vec![f32::NAN; plain.len()];
                activate(kind, &widened(&plain), &mut activated);
                assert!(y == plain && z == narrowed(&activated), "{kind:?}");
            }
            let mut y = vec![bf16::NAN; plain.len()];
            all(&mut y, &x, weight, bias, After::Add(&other));
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
        all(&mut plain, &x, weight, Some(&bias), After::Nothing);
        for kind in [Nonlinearity::Gelu, Nonlinearity::Relu, Nonlinearity::Silu] {
            let (mut y, mut z) = (vec![f32::NAN; plain.len()], vec![f32::NAN; plain.len()]);
            all(&mut y, &x, weight, Some(&bias), After::Activate(kind, &mut z));
            let mut activated = vec![f32::NAN; plain.len()];
            activate(kind, &plain, &mut activated);
            assert_eq!((y, z), (plain.clone(), activated), "{kind:?}");
        }
        let other = noise(plain.len(), 4);
        let mut y = vec![f32::NAN; plain.len()];
        all(&mut y, &x, weight, Some(&bias), After::Add(&other));
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
                None => all(&mut y, &x, weight, bias, After::Add(&z)),
                Some(kind) => all(&mut y, &x, weight, bias, After::Activate(kind, &mut z)),
            }
            [y, z]
        };
        for kind in [None, Some(Nonlinearity::Relu)] {
            assert_eq!(run(None, kind), run(Some(&zeros), kind));
        }
        let (mut without, mut with) = (vec![f32::NAN; rows * output], vec![f32::NAN; rows * output]);
        all(&mut without, &x, weight, None, After::Nothing);
        all(&mut with, &x, weight, Some(&zeros), After::Nothing);
        assert_eq!(without, with);
    }

    #[test]
    #[should_panic(expected = "`other` is not as large as `y`")]
    fn shapes_must_agree() {
        let (x, other) = (StridedMatrix::new(&[1.0], 1, 1), StridedMatrix::new(&[0.0], 1, 1));
        let weight = StridedMatrix::new(&[1.0; 2], 2, 1);
        linear(MatrixMut::new(&mut [0.0; 2], 1, 2), x, weight, None, ThenBlock::Add(other));
    }
}
