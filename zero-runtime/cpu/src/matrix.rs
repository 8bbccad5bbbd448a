//! Matrix to read, addressed through strides. Never copies or transposes it: a transpose is a swap of strides.

use std::ops::Range;

use zero_core::device::{Element, known};

/// A (rows, cols) matrix addressed through strides, in elements.
#[derive(Clone, Copy, Debug)]
pub struct StridedMatrix<'a, T = f32> {
    pub(super) data: &'a [T],
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
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

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The first `at` rows, and the other rows.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let others = &self.data[at * self.row_stride..];
        (Self { rows: at, ..self }, Self { data: others, rows: self.rows - at, ..self })
    }

    /// The (cols, rows) transpose, of the same data.
    pub fn transposed(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// These rows and columns.
    pub(super) fn part(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        assert!(rows.end <= self.rows && cols.end <= self.cols, "a part beyond its matrix");
        // A part without elements may begin beyond the data.
        let data = self.data.get(rows.start * self.row_stride + cols.start * self.col_stride..).unwrap_or_default();
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

/// Panics unless the last element of the last row lies within `len`.
#[track_caller]
pub(super) fn check_extent(len: usize, rows: usize, cols: usize, row_stride: usize) {
    if rows > 0 && cols > 0 {
        let extent = (rows - 1).checked_mul(row_stride).and_then(|n| n.checked_add(cols));
        assert!(
            extent.is_some_and(|extent| extent <= len),
            "a ({rows}, {cols}) matrix of row stride {row_stride} needs {extent:?} elements, found {len}"
        );
    }
}
