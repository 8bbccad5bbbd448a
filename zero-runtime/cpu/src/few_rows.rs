//! Few rows: products of so few rows that their time is that of reading the other matrix from memory. Each column of
//! that matrix is contiguous, and is read from memory once and in place. Never packs. No bit of a sum depends on how many rows
//! or columns there are.

use pulp::{Simd, WithSimd};
use zero_plan::Width;

use super::simd::{dispatch, vector};
use super::{MatrixMut, StridedMatrix};
use zero_core::device::Element;

/// The largest number of rows that counts as few, and the rows multiplied at a time.
pub const ROWS: usize = 4;

/// Columns multiplied at a time.
const COLS: usize = 4;

/// Whether [`few_rows`] is the fastest way to multiply `a` by `b`.
pub fn are_few<E>(a: &StridedMatrix<E>, b: &StridedMatrix<E>) -> bool {
    (1..=ROWS).contains(&a.rows()) && a.has_rows() && b.has_columns()
}

/// Calls `finish` with each element of `c` (m, n), its column in the whole matrix, and its value in `a` (m, k) `b` (k,
/// n), where `b` has only the columns of `c`. Sums are f32; the lanes of a vector are summed separately, and then
/// across the vector.
///
/// # Panics
/// If the shapes do not agree, or rows of `a` or columns of `b` are not contiguous.
pub fn few_rows<O: Element, E: Element>(
    c: MatrixMut<O>,
    a: StridedMatrix<E>,
    b: StridedMatrix<E>,
    finish: impl Fn(&mut O, usize, f32),
) {
    assert!(a.has_rows() && b.has_columns(), "a matrix in another layout");
    assert!(
        (a.rows(), a.cols(), b.cols()) == (c.rows().len(), b.rows(), c.columns().len()),
        "({}, {}) x ({}, {}) does not give ({}, {})",
        a.rows(),
        a.cols(),
        b.rows(),
        b.cols(),
        c.rows().len(),
        c.columns().len()
    );
    dispatch(FewRows { c, a, columns: b.transposed(), finish });
}

struct FewRows<'a, O, E, F> {
    c: MatrixMut<'a, O>,
    a: StridedMatrix<'a, E>,
    /// (n, k)
    columns: StridedMatrix<'a, E>,
    finish: F,
}

impl<O: Element, E: Element, F: Fn(&mut O, usize, f32)> WithSimd for FewRows<'_, O, E, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut this = self;
        let mut first = 0;
        while this.columns.rows() - first >= COLS {
            this.columns::<S, COLS>(simd, first);
            first += COLS;
        }
        while first < this.columns.rows() {
            this.columns::<S, 1>(simd, first);
            first += 1;
        }
    }
}

impl<O: Element, E: Element, F: Fn(&mut O, usize, f32)> FewRows<'_, O, E, F> {
    /// All rows by N columns, which the cache keeps until the last rows.
    #[inline(always)]
    fn columns<S: Simd, const N: usize>(&mut self, simd: S, first: usize) {
        let rows = self.a.rows();
        for row in (0..rows).step_by(ROWS) {
            match rows - row {
                1 => self.block::<S, 1, N>(simd, row, first),
                2 => self.block::<S, 2, N>(simd, row, first),
                3 => self.block::<S, 3, N>(simd, row, first),
                _ => self.block::<S, ROWS, N>(simd, row, first),
            }
        }
    }

    /// M rows from `row` on by N columns.
    #[inline(always)]
    fn block<S: Simd, const M: usize, const N: usize>(&mut self, simd: S, row: usize, first: usize) {
        let rows: [&[E]; M] = core::array::from_fn(|m| self.a.row(row + m, 0, self.a.cols()));
        let columns: [&[E]; N] = core::array::from_fn(|n| self.columns.row(first + n, 0, self.a.cols()));
        let sums = dots::<S, E, M, N>(simd, rows, columns);
        let column = self.c.columns().start + first;
        for (m, sums) in sums.iter().enumerate() {
            for (n, (to, &sum)) in self.c.row(row + m)[first..].iter_mut().zip(sums).enumerate() {
                (self.finish)(to, column + n, sum);
            }
        }
    }
}

/// The dot product of each row and each column, all equally long.
#[inline(always)]
fn dots<S: Simd, E: Element, const M: usize, const N: usize>(
    simd: S,
    rows: [&[E]; M],
    columns: [&[E]; N],
) -> [[f32; N]; M] {
    let mut sums = [[simd.splat_f32s(0.0); N]; M];
    let depth = columns[0].len();
    let whole = depth / (2 * S::F32_LANES) * (2 * S::F32_LANES);
    for k in (0..whole).step_by(2 * S::F32_LANES) {
        add::<S, E, M, N, 2>(simd, rows, columns, k, 2 * S::F32_LANES, &mut sums);
    }
    for k in (whole..depth).step_by(S::F32_LANES) {
        add::<S, E, M, N, 1>(simd, rows, columns, k, S::F32_LANES.min(depth - k), &mut sums);
    }
    let mut totals = [[0.0; N]; M];
    for (totals, sums) in totals.iter_mut().zip(sums) {
        for (total, sum) in totals.iter_mut().zip(sums) {
            *total = simd.reduce_sum_f32s(sum);
        }
    }
    totals
}

/// Adds the products of `width` elements from number `k` on, which V vectors hold. It has loops instead of the
/// library's functions, which would call a closure: code that is not inlined is not compiled for these vectors.
#[inline(always)]
fn add<S: Simd, E: Element, const M: usize, const N: usize, const V: usize>(
    simd: S,
    rows: [&[E]; M],
    columns: [&[E]; N],
    k: usize,
    width: usize,
    sums: &mut [[S::f32s; N]; M],
) {
    let mut right = [[simd.splat_f32s(0.0); V]; N];
    for (right, column) in right.iter_mut().zip(columns) {
        *right = load::<S, E, V>(simd, &column[k..][..width]);
    }
    for (row, sums) in rows.into_iter().zip(sums) {
        let left = load::<S, E, V>(simd, &row[k..][..width]);
        for (sum, right) in sums.iter_mut().zip(&right) {
            for (left, right) in left.iter().zip(right) {
                *sum = simd.mul_add_f32s(*left, *right, *sum);
            }
        }
    }
}

/// As many numbers as V vectors have, or fewer at the end for one vector. In two vectors, the order of the numbers
/// depends only on the width, which is enough for a sum of products: either half of a word of two bf16 is an f32 once
/// the other half is cleared.
#[inline(always)]
fn load<S: Simd, E: Element, const V: usize>(simd: S, stored: &[E]) -> [S::f32s; V] {
    let mut vectors = [simd.splat_f32s(0.0); V];
    if E::WIDTH == Width::BF16 && V == 2 {
        let words: S::u32s = bytemuck::pod_read_unaligned(bytemuck::cast_slice(stored));
        let lower = simd.wrapping_dyn_shl_u32s(words, simd.splat_u32s(16));
        let upper = simd.and_u32s(words, simd.splat_u32s(0xffff_0000));
        vectors[0] = simd.transmute_f32s_u32s(lower);
        vectors[1] = simd.transmute_f32s_u32s(upper);
    } else if V == 1 {
        vectors[0] = vector(simd, stored);
    } else {
        for (i, to) in vectors.iter_mut().enumerate() {
            *to = vector(simd, &stored[i * S::F32_LANES..][..S::F32_LANES]);
        }
    }
    vectors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, bits, stored, to_f64};
    use zero_core::device::bf16;

    fn product<O: Element, E: Element>(a: &[E], b: &[E], [m, n, k]: [usize; 3]) -> Vec<O> {
        let mut c = vec![O::narrow(f32::NAN); m * n];
        let (a, b) = (StridedMatrix::new(a, m, k), StridedMatrix::new(b, n, k).transposed());
        few_rows(MatrixMut::new(&mut c, m, n), a, b, |to, _, sum| *to = O::narrow(sum));
        c
    }

    fn matches_f64<O: Element, E: Element>() {
        for m in (1..=ROWS).chain([ROWS + 1, 3 * ROWS + 2]) {
            for (n, k) in [(1, 1), (3, 0), (4, 15), (5, 16), (7, 17), (66, 130)] {
                let (a, b) = (stored::<E>(m * k, 1), stored::<E>(n * k, 2));
                let (left, right) = (to_f64(&a), to_f64(&b));
                let dot = |i: usize, j: usize| (0..k).map(|l| left[i * k + l] * right[j * k + l]).sum::<f64>();
                let expected: Vec<f64> = (0..m * n).map(|place| dot(place / n, place % n)).collect();
                assert_close("c", &product::<O, E>(&a, &b, [m, n, k]), &expected, 2e-5);
            }
        }
    }

    #[test]
    fn every_width_matches_f64() {
        matches_f64::<f32, f32>();
        matches_f64::<f32, bf16>();
        matches_f64::<bf16, bf16>();
    }

    /// With any number of rows and columns next to a sum.
    #[test]
    fn no_bit_depends_on_what_else_there_is() {
        let (m, n, k) = (2 * ROWS + 3, 11, 37);
        let (a, b) = (stored::<bf16>(m * k, 1), stored::<bf16>(n * k, 2));
        let all = bits(&product::<f32, _>(&a, &b, [m, n, k]));
        for (i, a) in a.chunks(k).enumerate() {
            for (j, b) in b.chunks(k).enumerate() {
                assert_eq!(bits(&product::<f32, _>(a, b, [1, 1, k])), [all[i * n + j]], "({i}, {j})");
            }
        }
    }

    #[test]
    #[should_panic(expected = "a matrix in another layout")]
    fn scattered_columns_are_refused() {
        let (a, b) = ([0.0f32; 2], [0.0f32; 4]);
        let (a, b) = (StridedMatrix::new(&a, 1, 2), StridedMatrix::new(&b, 2, 2));
        few_rows(MatrixMut::new(&mut [0.0f32; 2], 1, 2), a, b, |to, _, sum| *to = sum);
    }

    #[test]
    #[should_panic(expected = "(1, 2) x (2, 1) does not give (1, 2)")]
    fn shapes_must_agree() {
        let (a, b) = ([0.0f32; 2], [0.0f32; 2]);
        let (a, b) = (StridedMatrix::new(&a, 1, 2), StridedMatrix::new(&b, 1, 2).transposed());
        few_rows(MatrixMut::new(&mut [0.0f32; 2], 1, 2), a, b, |to, _, sum| *to = sum);
    }
}
