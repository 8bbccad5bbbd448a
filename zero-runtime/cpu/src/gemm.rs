//! Matrix product over strided views: of f32 by the `gemm` crate on the calling thread, of other widths by `product`. Never
//! copies or transposes a matrix itself: a transpose is a swap of strides.

use std::ops::Range;

use zero_plan::footprint::PACKED_ROWS;

use super::packing::making_room;
use super::parallel::COLS_MIN;
use super::product::product;
use super::simd::vectorised;
use zero_core::device::{Element, Write};
use zero_core::device::{known, known_mut};

/// A (rows, cols) matrix seen through strides, in elements.
#[derive(Clone, Copy, Debug)]
pub struct StridedMatrix<'a, T = f32> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a, T> StridedMatrix<'a, T> {
    /// All of `data` as (rows, cols), row-major.
    #[track_caller]
    pub fn new(data: &'a [T], rows: usize, cols: usize) -> Self {
        super::simd::check_len("matrix", data.len(), rows * cols);
        Self::strided(data, rows, cols, cols)
    }

    /// (rows, cols) at the start of `data`, each row `row_stride` after the one before.
    #[track_caller]
    pub fn strided(data: &'a [T], rows: usize, cols: usize, row_stride: usize) -> Self {
        check_extent(data.len(), rows, cols, row_stride);
        Self { data, rows, cols, row_stride, col_stride: 1 }
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns it has.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The first `at` rows, and the others.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let others = &self.data[at * self.row_stride..];
        (Self { rows: at, ..self }, Self { data: others, rows: self.rows - at, ..self })
    }

    /// The (cols, rows) transpose, of the same data.
    pub fn transposed(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// These rows and columns, neither of which is empty.
    pub(super) fn part(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        assert!(rows.end <= self.rows && cols.end <= self.cols, "a part beyond its matrix");
        let data = &self.data[rows.start * self.row_stride + cols.start * self.col_stride..];
        Self { data, rows: rows.len(), cols: cols.len(), ..self }
    }

    /// Whether the elements of a row are contiguous; otherwise those of a column are.
    #[inline(always)]
    pub(super) fn has_rows(&self) -> bool {
        self.col_stride == 1
    }

    /// Whether the elements of a column are contiguous.
    pub(super) fn has_columns(&self) -> bool {
        self.row_stride == 1
    }

    /// `cols` elements of a row, from column `col`, where rows are contiguous.
    #[inline(always)]
    pub(super) fn row(&self, row: usize, col: usize, cols: usize) -> &'a [T] {
        &self.data[row * self.row_stride + col..][..cols]
    }
}

impl<'a, T: Element> StridedMatrix<'a, T> {
    /// The same matrix, if it is of this type.
    pub(super) fn known<To: Element>(self) -> Option<StridedMatrix<'a, To>> {
        let Self { data, rows, cols, row_stride, col_stride } = self;
        known(data).map(|data| StridedMatrix { data, rows, cols, row_stride, col_stride })
    }
}

/// A (rows, cols) row-major matrix to write to; its rows do not overlap.
#[derive(Debug)]
pub struct MatrixMut<'a, T = f32> {
    data: &'a mut [T],
    rows: usize,
    cols: usize,
    row_stride: usize,
}

impl<'a, T> MatrixMut<'a, T> {
    /// All of `data` as (rows, cols), row-major.
    #[track_caller]
    pub fn new(data: &'a mut [T], rows: usize, cols: usize) -> Self {
        super::simd::check_len("matrix", data.len(), rows * cols);
        Self::strided(data, rows, cols, cols)
    }

    /// (rows, cols) at the start of `data`, each row `row_stride` after the one before.
    #[track_caller]
    pub fn strided(data: &'a mut [T], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(row_stride >= cols, "rows of {cols} overlap at row stride {row_stride}");
        check_extent(data.len(), rows, cols, row_stride);
        Self { data, rows, cols, row_stride }
    }

    /// The first `at` rows, and the others.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let Self { data, rows, cols, row_stride } = self;
        let (data, others) = data.split_at_mut(at * row_stride);
        (Self { data, rows: at, cols, row_stride }, Self { data: others, rows: rows - at, cols, row_stride })
    }
}

impl<T: Element> MatrixMut<'_, T> {
    /// The same matrix, if it is of this type.
    fn known<To: Element>(&mut self) -> Option<MatrixMut<'_, To>> {
        let Self { rows, cols, row_stride, .. } = *self;
        known_mut(self.data).map(|data| MatrixMut { data, rows, cols, row_stride })
    }
}

/// Panics unless the last element of the last row lies within `len`.
#[track_caller]
fn check_extent(len: usize, rows: usize, cols: usize, row_stride: usize) {
    if rows > 0 && cols > 0 {
        let extent = (rows - 1).checked_mul(row_stride).and_then(|n| n.checked_add(cols));
        assert!(
            extent.is_some_and(|extent| extent <= len),
            "a ({rows}, {cols}) matrix of row stride {row_stride} needs {extent:?} elements, found {len}"
        );
    }
}

/// `c` (m, n) := `a` (m, k) * `b` (k, n), plus `c` when adding. Sums are f32, whatever the widths, and rounded once when they
/// are stored.
pub fn matmul<O: Element, E: Element>(mut c: MatrixMut<O>, a: StridedMatrix<E>, b: StridedMatrix<E>, write: Write) {
    assert!(
        (a.rows, a.cols, b.cols) == (c.rows, b.rows, c.cols),
        "({}, {}) x ({}, {}) does not give ({}, {})",
        a.rows,
        a.cols,
        b.rows,
        b.cols,
        c.rows,
        c.cols
    );
    if let (Some(c), Some(a), Some(b)) = (c.known(), a.known(), b.known()) {
        return by_gemm(c, a, b, write);
    }
    product(a, b, |sums| {
        vectorised(
            #[inline(always)]
            || {
                for row in sums.rows.clone() {
                    let to = &mut c.data[row * c.row_stride..][sums.cols.clone()];
                    for (to, &sum) in to.iter_mut().zip(sums.row(row)) {
                        *to = O::narrow(if write == Write::Add { to.widen() + sum } else { sum });
                    }
                }
            },
        );
    });
}

/// Multiplies in pieces if `a` has so many rows that `gemm` would pack more than the plan has room for.
fn by_gemm(c: MatrixMut, a: StridedMatrix, b: StridedMatrix, write: Write) {
    // With very few columns `gemm` sums each row in a way that depends on the number of rows, and packs nothing.
    let mut pieces = if c.cols < COLS_MIN { 1 } else { c.rows.div_ceil(PACKED_ROWS) };
    let (mut c, mut a) = (c, a);
    while pieces > 1 {
        // Pieces of this many rows are summed in the same order as the whole: see `by_products`.
        let rows = c.rows / pieces;
        let ((c_first, c_rest), (a_first, a_rest)) = (c.split_at(rows), a.split_at(rows));
        gemm_once(c_first, a_first, b, write);
        (c, a, pieces) = (c_rest, a_rest, pieces - 1);
    }
    gemm_once(c, a, b, write);
}

/// One call of `gemm`, which packs at most as many rows as `a` has.
#[expect(unsafe_code, reason = "gemm takes pointers and strides")]
fn gemm_once(c: MatrixMut, a: StridedMatrix, b: StridedMatrix, write: Write) {
    // `gemm` stores columns, and the rows of `c` are the columns of its transpose. A single column needs no other form.
    let (lhs, rhs, [col_stride, row_stride]) = match c.row_stride {
        0 | 1 => (a, b, [1, c.row_stride]),
        row_stride => (b.transposed(), a.transposed(), [row_stride, 1]),
    };
    // SAFETY: the constructors proved that every (row, column) of each matrix lies within its slice, and the assertion
    // of `matmul` proved that gemm visits no others: pieces have the same columns, and equally many rows in `c` and
    // `a`. `c` is a unique borrow, so it overlaps neither `a` nor `b`, and its rows do not overlap each other.
    // `Write::Set` never reads `c`.
    making_room(|| unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            lhs.rows,
            rhs.cols,
            lhs.cols,
            c.data.as_mut_ptr(),
            col_stride as isize,
            row_stride as isize,
            matches!(write, Write::Add),
            lhs.data.as_ptr(),
            lhs.col_stride as isize,
            lhs.row_stride as isize,
            rhs.data.as_ptr(),
            rhs.col_stride as isize,
            rhs.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, noise};

    /// `data` as (rows, cols), or as the transpose of (cols, rows) when `transpose`.
    fn view(data: &[f32], rows: usize, cols: usize, transpose: bool) -> StridedMatrix<'_> {
        match transpose {
            false => StridedMatrix::new(data, rows, cols),
            true => StridedMatrix::new(data, cols, rows).transposed(),
        }
    }

    fn at(x: StridedMatrix, row: usize, col: usize) -> f64 {
        f64::from(x.data[row * x.row_stride + col * x.col_stride])
    }

    fn check(m: usize, n: usize, k: usize, transpose_a: bool, transpose_b: bool, write: Write) {
        let (a, b) = (noise(m * k, 1), noise(k * n, 2));
        let (a, b) = (view(&a, m, k, transpose_a), view(&b, k, n, transpose_b));
        let row_stride = n + 2;
        let mut c = noise((m - 1) * row_stride + n, 3);
        let mut expected: Vec<f64> = c.iter().copied().map(f64::from).collect();
        for i in 0..m {
            for j in 0..n {
                let product: f64 = (0..k).map(|l| at(a, i, l) * at(b, l, j)).sum();
                let before = if write == Write::Add { expected[i * row_stride + j] } else { 0.0 };
                expected[i * row_stride + j] = before + product;
            }
        }
        matmul(MatrixMut::strided(&mut c, m, n, row_stride), a, b, write);
        assert_close("c", &c, &expected, 2e-5);
    }

    #[test]
    fn matches_f64_for_all_transposes_and_leaves_the_gaps() {
        for [m, n, k] in [[1, 1, 1], [3, 17, 5], [17, 3, 65], [65, 33, 17], [2, 130, 0], [64, 64, 64]] {
            for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
                check(m, n, k, transpose_a, transpose_b, Write::Set);
                check(m, n, k, transpose_a, transpose_b, Write::Add);
            }
        }
    }

    /// The same as one call of `gemm`, to the bit.
    #[test]
    fn many_rows_are_multiplied_in_pieces_without_a_trace() {
        for (m, n, k) in [(PACKED_ROWS + 1, 3, 40), (2 * PACKED_ROWS + 77, 70, 9), (PACKED_ROWS + 5, 2, 6)] {
            let (a, b) = (noise(m * k, 1), noise(k * n, 2));
            for (transpose_a, write) in [(false, Write::Set), (true, Write::Add)] {
                let (a, b) = (view(&a, m, k, transpose_a), view(&b, k, n, false));
                let row_stride = n + 1;
                let mut whole = noise((m - 1) * row_stride + n, 3);
                let mut pieces = whole.clone();
                gemm_once(MatrixMut::strided(&mut whole, m, n, row_stride), a, b, write);
                matmul(MatrixMut::strided(&mut pieces, m, n, row_stride), a, b, write);
                assert!(pieces == whole, "({m}, {k}) x ({k}, {n})");
            }
        }
    }

    #[test]
    fn set_overwrites_nan() {
        let mut c = [f32::NAN];
        matmul(
            MatrixMut::new(&mut c, 1, 1),
            StridedMatrix::new(&[2.0], 1, 1),
            StridedMatrix::new(&[3.0], 1, 1),
            Write::Set,
        );
        assert_eq!(c, [6.0]);
    }

    #[test]
    #[should_panic(expected = "a (3, 2) matrix of row stride 4 needs Some(10) elements, found 9")]
    fn a_view_beyond_its_slice_is_refused() {
        StridedMatrix::strided(&[0.0; 9], 3, 2, 4);
    }

    #[test]
    #[should_panic(expected = "(2, 3) x (2, 1) does not give (2, 1)")]
    fn shapes_must_agree() {
        let mut c = [0.0; 2];
        matmul(
            MatrixMut::new(&mut c, 2, 1),
            StridedMatrix::new(&[0.0; 6], 2, 3),
            StridedMatrix::new(&[0.0; 2], 2, 1),
            Write::Set,
        );
    }
}
