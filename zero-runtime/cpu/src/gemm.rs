//! Matrix product over strided views: of f32 by the `gemm` crate on the calling thread, of other widths by `product`. Never
//! copies or transposes a matrix itself: a transpose is a swap of strides.

use zero_plan::footprint::PACKED_ROWS;

use super::matrix::StridedMatrix;
use super::matrix_mut::MatrixMut;
use super::packing::making_room;
use super::parallel::{COLS_MIN, CutBlock};
use super::product::{Bf16Products, product_with};
use super::simd::vectorised;
use zero_core::device::{Element, Write};

/// `c` := these rows and columns of `a` (m, k) * `b` (k, n), plus `c` when adding. Sums are f32, whatever the widths, and
/// are rounded once, when they are stored.
pub fn matmul<O: Element, E: Element>(c: MatrixMut<O>, a: StridedMatrix<E>, b: StridedMatrix<E>, write: Write) {
    matmul_with(Bf16Products::chosen(), c, a, b, write);
}

/// [`matmul`], with these instructions if the factors are bf16.
///
/// # Panics
/// If they are not there.
pub fn matmul_with<O: Element, E: Element>(
    instructions: Bf16Products,
    mut c: MatrixMut<O>,
    a: StridedMatrix<E>,
    b: StridedMatrix<E>,
    write: Write,
) {
    assert!(
        a.cols == b.rows && c.rows().end <= a.rows && c.columns().end <= b.cols,
        "({}, {}) x ({}, {}) does not give rows {:?} and columns {:?}",
        a.rows,
        a.cols,
        b.rows,
        b.cols,
        c.rows(),
        c.columns()
    );
    let (a, b) = (a.part(c.rows(), 0..a.cols), b.part(0..b.rows, c.columns()));
    if let (Some(c), Some(a), Some(b)) = (c.known(), a.known(), b.known()) {
        return by_gemm(c, a, b, write);
    }
    let (first_row, first_col) = (c.rows().start, c.columns().start);
    product_with(instructions, a, b, |sums| {
        vectorised(
            #[inline(always)]
            || {
                let mut c = c.columns_mut(first_col + sums.cols.start..first_col + sums.cols.end);
                for row in sums.rows.clone() {
                    for (to, &sum) in c.row(first_row + row).iter_mut().zip(sums.row(row)) {
                        *to = O::narrow(if write == Write::Add { to.widen() + sum } else { sum });
                    }
                }
            },
        );
    });
}

/// Multiplies in pieces if `a` has so many rows that `gemm` would pack more than the plan reserves memory for.
fn by_gemm(c: MatrixMut, a: StridedMatrix, b: StridedMatrix, write: Write) {
    // With very few columns, the order in which `gemm` sums a row depends on the number of rows, and nothing is packed.
    let mut pieces = if b.cols < COLS_MIN { 1 } else { a.rows.div_ceil(PACKED_ROWS) };
    let (mut c, mut a) = (c, a);
    while pieces > 1 {
        // Pieces of this many rows are summed in the same order as the whole: see `by_products`.
        let rows = a.rows / pieces;
        let ((c_first, c_rest), (a_first, a_rest)) = (c.cut_rows(rows), a.split_at(rows));
        gemm_once(c_first, a_first, b, write);
        (c, a, pieces) = (c_rest, a_rest, pieces - 1);
    }
    gemm_once(c, a, b, write);
}

/// One call of `gemm`, which packs at most as many rows as `a` has.
#[expect(unsafe_code, reason = "gemm takes pointers and strides")]
fn gemm_once(mut c: MatrixMut, a: StridedMatrix, b: StridedMatrix, write: Write) {
    // `gemm` stores columns, and the rows of `c` are the columns of its transpose. A single column needs no other form.
    let (lhs, rhs, [col_stride, row_stride]) = match c.row_stride() {
        row_stride @ (0 | 1) => (a, b, [1, row_stride]),
        row_stride => (b.transposed(), a.transposed(), [row_stride, 1]),
    };
    // SAFETY: the constructors proved that every (row, column) of each matrix lies within its slice, and `matmul` passes
    // parts that have the rows and columns of `c`, so gemm visits no other elements. `c` is a unique borrow, so it overlaps neither `a` nor `b`, and its rows do not overlap each other.
    // `Write::Set` never reads `c`.
    making_room(|| unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            lhs.rows,
            rhs.cols,
            lhs.cols,
            c.as_mut_ptr(),
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

    /// Equal to one call of `gemm`, to the bit.
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
    #[should_panic(expected = "(2, 3) x (2, 1) does not give rows 0..2 and columns 0..1")]
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
